/* SPDX-License-Identifier: MIT
 *
 * foreign.h: slices in ordinary memory that the receiver reads out of its peer's process, by one
 * copy instead of two (process_vm_readv; between threads, a plain one). The system may forbid it,
 * so it is tried before it is relied on: each end says where a word of its own stands, and who
 * finds that word there says so in its window. Until then, and where that fails, slices go through
 * slots. Both ends have to want it (protocols.h).
 *
 * Some memory cannot be read so although that word can: a device's, mapped into the process, or
 * what memfd_secret makes. Nobody knows before a slice of it is due, which then is an error that
 * says so.
 */
#ifndef KO_FOREIGN_H
#define KO_FOREIGN_H

#include "link.h"

/* Shorter slices cost less as two copies. */
enum { KO_FOREIGN_LEAST = 32 << 10 };

struct ko_foreign;

/* Says in the window where the peer finds our word, if this process wants to be read. */
int ko_foreign_invite(struct ko_link *link);

/* Once, when long slices come: finds out whether the peer's memory can be read, and tells it. */
void ko_foreign_try(struct ko_link *link);

/* Whether the peer reads slices of nbytes here. */
bool ko_foreign_is_read(const struct ko_link *link, size_t nbytes);

/* Copies nbytes from the peer's address. KOLO_E_PEER_LOST if the peer has gone, KOLO_E_PROTOCOL if
 * they lie nowhere, or where no other process may read, or nobody reads here. */
int ko_foreign_read(const struct ko_link *link, uint64_t address, void *to, size_t nbytes);

/* NULL is allowed. */
void ko_foreign_free(struct ko_foreign *foreign);

#endif
