/* SPDX-License-Identifier: MIT
 *
 * transport_suite.h: what every transport must do (transports/transport.h), as one list of tests. A
 * transport joins with one row of struct transport_traits and one call of transport_suite_add.
 */
#ifndef TRANSPORT_SUITE_H
#define TRANSPORT_SUITE_H

#include "link.h"
#include "transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/types.h>

/* What the suite has to know of a transport. */
struct transport_traits {
    const struct ko_transport *transport;
    /* Why there is no second rank at the other end; the cases that need one are skipped. */
    const char *alone;
    /* A bare, blocking socket to a device, for peers that do not keep to the protocol; NULL: such
     * cases are skipped. */
    int (*dial)(const unsigned char *address, size_t nbytes);
    int sockets;       /* KOLO_TCP_SOCKETS; 0: it does not matter */
    const char *token; /* KOLO_AUTH_TOKEN; NULL: none */
    bool is_sealed;    /* KOLO_ENCRYPT=1 */
    const char *rdma;  /* FAKEVERBS_DEVICES; NULL: it does not matter */
    const char *hca;   /* KOLO_IB_HCA; NULL: as the environment has it */
    const char *qps;   /* KOLO_IB_QPS_PER_CONNECTION, likewise */
};

enum { SUITE_MOST = 128 };

/* Adds the suite for one transport to tests, which has room for SUITE_MOST more. traits stays. */
size_t transport_suite_add(struct CMUnitTest *tests, const struct transport_traits *traits);

/* ---- for the suite's own files -------------------------------------------------------------- */

/* With the address of the environment's RDMA_ADDR, else 127.0.0.1. */
struct ko_site transport_suite_site(void);

/* A test's state: two devices, and the address of the second. */
struct suite {
    const struct transport_traits *traits;
    const struct ko_transport *transport;
    struct ko_device *left, *right;
    struct ko_wire *driven; /* by a child that waits to be killed; NULL: none */
    unsigned char address[KO_ADDRESS_BYTES];
    size_t address_bytes;
    int nfds; /* open in this process before the test */
    const struct suite_case *under_test;
    bool has_ended; /* as it should, or has been skipped */
};

/* The ends of a wire: `from` connected, `to` was accepted. */
struct ends {
    struct ko_wire *from, *to;
};

/* Rank 1 to rank 2, with 2 slots of slice_bytes. */
struct ko_hello suite_hello(uint32_t slice_bytes);
/* The answer to it. */
struct ko_hello suite_answer(uint32_t slice_bytes);

/* Drives wires (NULLs allowed) and sleeps a little if nothing is ready. Returns the first error. */
int suite_settle(struct ko_wire *a, struct ko_wire *b);

/* Begins a wire from left to right. */
struct ko_wire *suite_connect(struct suite *suite, uint32_t slice_bytes);
/* Accepts at right, driving `from` (may be NULL) meanwhile, until the hello has come. */
struct ko_wire *suite_accept(struct suite *suite, struct ko_wire *from);
/* An open wire; for a transport that is alone, both ends are one. */
struct ends suite_open(struct suite *suite, uint32_t slice_bytes);
void suite_hang_up(struct suite *suite, struct ends *ends);

/* The two links over such a wire, or one twice. */
struct links {
    struct ko_link *from, *to;
};
struct links suite_open_links(struct suite *suite, uint32_t slice_bytes);
void suite_free_links(const struct links *links);

/* For windows: shared memory with these seals; and a wire to whoever greets with it, for two slots
 * of slice_bytes, whose end is a bare socket. */
int suite_memory(size_t nbytes, int seals);
int suite_greet_with(struct suite *suite, uint32_t slice_bytes, int fd, struct ko_wire **wire,
                     int *socket);

/* A link over such a wire, whose other end is ours to play: the socket, and the link's own inbox.
 */
struct puppet {
    struct ko_link *link;
    int socket;
};
struct puppet suite_open_puppet(struct suite *suite, uint32_t slice_bytes);
void suite_close_puppet(struct puppet *puppet);
/* Puts a frame of 4096 bytes, with nbytes at `place` beside it, into the link's next slot, and
 * peeks at it. */
int suite_refer(const struct puppet *puppet, uint32_t kind, const void *place, size_t nbytes,
                const void **body);

/* A puppet under KOLO_PROTO=protocol whose peer is this process itself, whose memory is read. */
struct puppet suite_open_reading(struct suite *suite, const char *protocol, uint32_t slice_bytes);

/* Drives the wire until it fails, and asserts that it does so with status, or KOLO_E_PEER_LOST. */
void suite_expect_failure(struct ko_wire *wire, int status);
void suite_expect_loss(struct ko_wire *wire);

/* The next frame that arrives at wire, while `other` (may be NULL) is driven; asserts success. */
const struct ko_frame *suite_next(struct ko_wire *wire, struct ko_wire *other);
/* Lands the body of that frame. */
void suite_land(struct ko_wire *wire, struct ko_wire *other, void *to);

/* Ends the test, which has closed what it has opened, and says why. */
void suite_skip(struct suite *suite, const char *why);
/* Skips the test if the transport is alone, or cannot be dialed. */
void suite_needs_peer(struct suite *suite);
/* The same if a child could not open a device of its own. */
void suite_needs_child(struct suite *suite);
void suite_needs_dial(struct suite *suite);

/* Byte i of the pattern number `key`. */
unsigned char suite_byte(uint64_t key, size_t i);
void suite_fill(unsigned char *bytes, size_t nbytes, uint64_t key);
int suite_matches(const unsigned char *bytes, size_t nbytes, uint64_t key);

/* A process that opens a device of its own, plays `role` and then waits to be killed. */
typedef int (*suite_role)(struct suite *suite);
struct suite_child {
    pid_t pid;
    int ready; /* a byte comes when role has returned 0 */
};
/* The child's right is a new device, whose address the parent's suite takes over; its left is the
 * parent's device's address. */
struct suite_child suite_fork(struct suite *suite, suite_role role);
void suite_await(const struct suite_child *child);
void suite_kill(const struct suite_child *child);

/* The lists, each with `n` rows. */
struct suite_case {
    const char *name;
    void (*run)(void **state);
};
extern const struct suite_case suite_wire_cases[], suite_loss_cases[], suite_bare_cases[],
    suite_link_cases[], suite_window_cases[], suite_reference_cases[], suite_foreign_cases[],
    suite_ahead_cases[], suite_share_cases[], suite_piece_cases[], suite_short_cases[];
extern const size_t suite_nwire_cases, suite_nloss_cases, suite_nbare_cases, suite_nlink_cases,
    suite_nwindow_cases, suite_nreference_cases, suite_nforeign_cases, suite_nahead_cases,
    suite_nshare_cases, suite_npiece_cases, suite_nshort_cases;

#endif
