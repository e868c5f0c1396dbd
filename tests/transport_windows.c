/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of windows: memory that both ends share, and peers that pass memory which could
 * be turned against us.
 */
#include "transport_suite.h"

#include "clock.h"
#include "fault.h"
#include "foreign.h"
#include "link.h"
#include "memory.h"
#include "protocols.h"
#include "shmem.h"
#include "socket.h"
#include "status.h"
#include "window_slots.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void shared_both_ways(void **state)
{
    static const uint32_t sizes[] = {1, 64, 65, 4096, 131072};
    struct suite *suite = *state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t nbytes = ko_window_bytes(2, sizes[i]);
        struct ends ends = suite_open(suite, sizes[i]);

        assert_true((uintptr_t)ends.from->inbox % KO_LINE == 0);
        assert_int_equal(((unsigned char *)ends.from->inbox)[nbytes - 1], 0);
        suite_fill(ends.from->outbox, nbytes, i);
        assert_true(suite_matches(ends.to->inbox, nbytes, i));
        suite_fill(ends.to->outbox, nbytes, i + 100);
        assert_true(suite_matches(ends.from->inbox, nbytes, i + 100));
        if (ends.to != ends.from)
            assert_true(suite_matches(ends.to->inbox, nbytes, i)); /* two windows, not one */
        suite_hang_up(suite, &ends);
    }
}

/* A hello of that segment, with `fd` beside it, from a bare socket; drives to the end of the
 * handshake. */
static int greet_as(struct suite *suite, uint64_t segment, uint32_t slice_bytes, int fd,
                    struct ko_wire **wire_out, int *socket_out)
{
    struct ko_hello hello = suite_hello(slice_bytes), answer = suite_answer(slice_bytes);
    ko_deadline deadline = ko_deadline_in(5000);
    int socket = suite->traits->dial(suite->address, suite->address_bytes);
    int err = KOLO_OK;

    hello.segment = segment;
    assert_int_equal(ko_socket_send_with(socket, &hello, sizeof hello, fd), (ssize_t)sizeof hello);
    *wire_out = suite_accept(suite, NULL);
    err = suite->transport->answer(*wire_out, &answer);
    while (!err && (*wire_out)->state != KO_WIRE_OPEN && !ko_deadline_passed(&deadline))
        err = suite_settle(*wire_out, NULL);
    *socket_out = socket;
    return err;
}

int suite_memory(size_t nbytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)nbytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* Of a segment that this process has not made. */
int suite_greet_with(struct suite *suite, uint32_t slice_bytes, int fd, struct ko_wire **wire_out,
                     int *socket_out)
{
    return greet_as(suite, 0xdeadbeef, slice_bytes, fd, wire_out, socket_out);
}

static void expect_greeting(struct suite *suite, int fd, int status)
{
    struct ko_wire *wire;
    int socket;

    assert_int_equal(suite_greet_with(suite, 4096, fd, &wire, &socket), status);
    suite->transport->hangup(wire);
    close(socket);
    if (fd >= 0)
        close(fd);
}

/* Memory that could shrink under us would be a SIGBUS to come. */
static void hostile_segments(void **state)
{
    struct suite *suite = *state;
    size_t nbytes = ko_window_bytes(2, 4096);
    int null;

    suite_needs_dial(suite);
    null = open("/dev/zero", O_RDWR | O_CLOEXEC);
    expect_greeting(suite, -1, KOLO_E_PROTOCOL);
    expect_greeting(suite, suite_memory(nbytes, 0), KOLO_E_PROTOCOL);
    expect_greeting(suite, suite_memory(nbytes, F_SEAL_GROW), KOLO_E_PROTOCOL);
    expect_greeting(suite, suite_memory(nbytes - 1, F_SEAL_SHRINK), KOLO_E_PROTOCOL);
    expect_greeting(suite, suite_memory(nbytes + 1, F_SEAL_SHRINK), KOLO_E_PROTOCOL);
    expect_greeting(suite, suite_memory(0, F_SEAL_SHRINK), KOLO_E_PROTOCOL);
    expect_greeting(suite, null, KOLO_E_PROTOCOL);
    expect_greeting(suite, suite_memory(nbytes, F_SEAL_SHRINK), KOLO_OK);
}

/* A segment that is found here by its id has to be as long as one that is mapped. */
static void short_segment_of_ours(void **state)
{
    const size_t nbytes = ko_window_bytes(2, 4096);
    struct suite *suite = *state;

    suite_needs_dial(suite);
    for (int longer = -1; longer <= 1; longer++) {
        struct ko_segment *segment;
        struct ko_wire *wire;
        int socket;

        assert_int_equal(ko_segment_create(nbytes + (size_t)longer, &segment), KOLO_OK);
        assert_int_equal(greet_as(suite, segment->id, 4096, -1, &wire, &socket),
                         longer ? KOLO_E_PROTOCOL : KOLO_OK);
        suite->transport->hangup(wire);
        close(socket);
        ko_segment_release(segment);
    }
}

/* Memory that cannot be written is refused, and is no crash. */
static void read_only_segment(void **state)
{
    struct suite *suite = *state;
    struct ko_wire *wire;
    int socket, fd, err;

    suite_needs_dial(suite);
    fd = suite_memory(ko_window_bytes(2, 4096), F_SEAL_SHRINK | F_SEAL_WRITE);
    err = suite_greet_with(suite, 4096, fd, &wire, &socket);
    assert_int_not_equal(err, KOLO_OK);
    suite->transport->hangup(wire);
    close(socket);
    close(fd);
}

/* On a window's wire slices have no place, and control frames their limit. */
static void bad_frame(struct suite *suite, struct ko_frame frame)
{
    int fd = suite_memory(ko_window_bytes(2, 4096), F_SEAL_SHRINK);
    const struct ko_frame *seen;
    struct ko_wire *wire;
    int socket, err;

    assert_int_equal(suite_greet_with(suite, 4096, fd, &wire, &socket), KOLO_OK);
    assert_int_equal(write(socket, &frame, sizeof frame), (ssize_t)sizeof frame);
    while ((err = suite->transport->next(wire, &seen)) == KO_AGAIN)
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    assert_int_equal(err, KOLO_E_PROTOCOL);
    suite->transport->hangup(wire);
    close(socket);
    close(fd);
}

static void bad_frames(void **state)
{
    struct suite *suite = *state;

    suite_needs_dial(suite);
    bad_frame(suite, (struct ko_frame){.kind = 0});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_MEMORY + 1});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_DATA, .nbytes = 1});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_DATA});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_FAIL, .nbytes = KO_CONTROL_BYTES + 1});
}

/* ---- messages that are taken at once ------------------------------------------------------ */

enum { TAKEN = 4096 };

/* One that is not what was asked for stays; the one that is comes whole, and makes room. */
static void taken_at_once(void **state)
{
    static const size_t sizes[] = {0,     1, KO_BESIDE, KO_BESIDE + 1, KO_INLINE, KO_INLINE + 1,
                                   TAKEN, 8, 100};
    unsigned char sent[TAKEN], got[TAKEN];
    struct ko_message message = {.room = TAKEN};
    const struct links links = suite_open_links(*state, TAKEN);
    struct ko_link *from = links.from, *to = links.to;

    for (uint64_t i = 0; i < 10 * sizeof sizes / sizeof *sizes; i++) {
        const size_t nbytes = sizes[i % (sizeof sizes / sizeof *sizes)];
        const struct ko_stamp stamp = {.seq = i, .count = nbytes, .call = 5 + i};

        message = (struct ko_message){i, 5 + i, nbytes, 0};
        assert_false(ko_window_take(to, &message, got, 3));
        suite_fill(sent, nbytes, i);
        assert_int_equal(from->ops->post(from, &stamp, sent, nbytes), KOLO_OK);
        message.seq = i + 1;
        assert_false(ko_window_take(to, &message, got, 1));
        message = (struct ko_message){i, 4 + i, nbytes, 0};
        assert_false(ko_window_take(to, &message, got, 1));
        message = (struct ko_message){i, 5 + i, nbytes - 1, 0};
        assert_true(!nbytes || !ko_window_take(to, &message, got, 1));
        message.room = nbytes + i % 2;
        assert_true(ko_window_take(to, &message, got, 1));
        assert_int_equal(message.nbytes, nbytes);
        assert_true(suite_matches(got, nbytes, i));
    }
    assert_int_equal(to->received, from->sent);
    suite_free_links(&links);
}

/* What a slot cannot hold is not taken out of it. */
static void hostile_lengths(void **state)
{
    static const uint32_t kinds[] = {KO_FRAME_INLINE, KO_FRAME_DATA, KO_FRAME_BYE, 0};
    static const uint32_t lengths[] = {KO_INLINE + 1, TAKEN + 1, 0, 0};
    struct ko_message message = {1, 2, UINT32_MAX, 0};
    const struct links links = suite_open_links(*state, TAKEN);
    struct ko_slot *slot = ko_window_slot(links.to->inbox, 0);
    unsigned char got[1];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        slot->frame =
            (struct ko_frame){kinds[i], lengths[i], {.seq = 1, .count = lengths[i], .call = 2}};
        ko_store_ordered(&slot->step, 1);
        assert_false(ko_window_take(links.to, &message, got, 1));
    }
    suite_free_links(&links);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* A place has memory from the first slice on that is to lie there; if there is none for it, there
 * is an error and no signal, and all is as it was. */
static void places_come_with_slices(void **state)
{
    static unsigned char sent[TAKEN], got[TAKEN];
    const struct ko_stamp stamp = {.count = TAKEN}, of_short = {.count = KO_INLINE};
    struct ko_message message = {.room = TAKEN};
    const struct links links = suite_open_links(*state, TAKEN);
    struct ko_link *from = links.from, *to = links.to;

    from->protocols &= KO_PROTO_INLINE; /* no slice stays where it is */
    suite_fill(sent, TAKEN, 1);
    for (int i = 0; i < 2; i++) { /* both slots have memory then */
        assert_int_equal(from->ops->post(from, &of_short, sent, KO_INLINE), KOLO_OK);
        assert_true(ko_window_take(to, &message, got, 1));
    }
    ko_fault_arm(KO_FAULT_PAGES, 1);
    assert_int_equal(from->ops->post(from, &stamp, sent, TAKEN), KOLO_E_NOMEM);
    assert_false(ko_window_take(to, &message, got, 1));
    for (int i = 0; i < 10; i++) {
        ko_fault_arm(KO_FAULT_PAGES, i >= 4); /* once all places have been used that are */
        assert_int_equal(from->ops->post(from, &stamp, sent, TAKEN), KOLO_OK);
        assert_true(ko_window_take(to, &message, got, 1));
        assert_true(suite_matches(got, TAKEN, 1));
    }
    ko_fault_arm(KO_FAULT_PAGES, 0);
    suite_free_links(&links);
}

#define CASE(name)              \
    {                           \
        "windows: " #name, name \
    }
const struct suite_case suite_window_cases[] = {CASE(shared_both_ways),
                                                CASE(hostile_segments),
                                                CASE(short_segment_of_ours),
                                                CASE(read_only_segment),
                                                CASE(bad_frames),
                                                CASE(taken_at_once),
                                                CASE(hostile_lengths),
                                                CASE(places_come_with_slices)};
const size_t suite_nwindow_cases = sizeof suite_window_cases / sizeof *suite_window_cases;
