/* SPDX-License-Identifier: MIT
 *
 * topology.h: facts about where ranks sit, and from them the transport for each pair, with the
 * reason in words.
 */
#ifndef KO_TOPOLOGY_H
#define KO_TOPOLOGY_H

#include "costs.h"
#include "transport.h"

enum { KO_CONTACT_TRANSPORTS = 4, KO_CONTACT_CORES = 1024, KO_HOST_NAME = 63 };

/* What a rank tells all others through the store. Travels as it is. */
struct ko_contact {
    uint32_t magic, version; /* as a hello's */
    uint32_t slots, slice_bytes;
    char machine[152];  /* equal on ranks that can share memory: boot id, network namespace, user,
                           KOLO_HOST */
    char host[64];      /* for messages */
    uint64_t processes; /* the pid namespace, in which pid counts */
    int32_t pid;
    uint32_t checks_calls; /* KOLO_CHECK: 1 or 0 */
    uint32_t naddresses;
    struct ko_costs costs; /* that this rank would go by; those of the world's rank 0 count. cores
                              0: as many as the ranks of a host may run on */
    uint64_t cores[KO_CONTACT_CORES / 64]; /* a bit for each on which this rank may run */
    struct {
        char transport[12];
        uint32_t nbytes;
        unsigned char bytes[KO_ADDRESS_BYTES];
    } addresses[KO_CONTACT_TRANSPORTS];
};

/* Fills in all but the addresses. KOLO_E_INVALID for a malformed variable. */
int ko_contact_begin(struct ko_contact *contact);

/* Adds a device's address. */
void ko_contact_add(struct ko_contact *contact, struct ko_device *device);

/* Checks a contact that came from the store: nbytes of data that rank is said to have put there. */
int ko_contact_check(const void *data, size_t nbytes, int rank, const struct ko_contact *own);

/* True if a rank with this contact reaches others of its machine through windows, if they do too.
 */
bool ko_contact_has_windows(const struct ko_contact *contact);

/* KOLO_E_INVALID if KOLO_TRANSPORT lists what is no transport, KOLO_IFADDR is no address of this
 * machine, or KOLO_HOST is too long. */
int ko_topology_check_transports(void);
int ko_topology_check_address(void);
int ko_topology_check_host(void);

/* True if the variable KOLO_TRANSPORT lets this transport be used. */
bool ko_topology_allows(const struct ko_transport *transport);

/* Finds the transport from own to peer; *index is that of its address in peer, and *why the reason.
 * False: none joins them. */
bool ko_topology_find(const struct ko_contact *own, const struct ko_contact *peer, bool is_self,
                      uint32_t *index, const char **why);

/* True if peer is a rank of this process. */
bool ko_contact_is_here(const struct ko_contact *own, const struct ko_contact *peer);

/* True if peer's process has ended; false also if that cannot be known from here. */
bool ko_contact_is_gone(const struct ko_contact *own, const struct ko_contact *peer);

/* "host:pid" */
void ko_contact_name(const struct ko_contact *contact, char *name, size_t nbytes);

#endif
