/* SPDX-License-Identifier: MIT
 *
 * foreign.h: slices in ordinary memory that the receiver reads out of its peer's process, by one
 * copy instead of two (process_vm_readv; between threads, a plain one). The system may forbid it,
 * so it is tried before it is relied on: each end says where a word of its own stands, and who
 * finds that word there says so in its window. Until then, and where that fails, slices go through
 * slots. Both ends have to want it (protocols.h).
 *
 * Some memory cannot be read so although that word can: a device's, mapped into the process, or
 * what memfd_secret makes. Where all is to be read (cma), a slice of it is an error that says so.
 *
 * Whether one copy by the system is sooner than two of ours depends on the machine: by a factor of
 * two either way. So where nothing else is wanted (try-cma) slices of a collective that only moves
 * them go both ways in turn at first, the receiver measures how long each takes to get, by classes
 * of length, and says in its window what it is to be: to read where that takes less than two copies
 * out of slots, of which the sender makes one. The sender then makes sure, by reading itself, that
 * it is memory that can be read.
 */
#ifndef KO_FOREIGN_H
#define KO_FOREIGN_H

#include "link.h"

/* Shorter slices cost less as two copies. */
enum { KO_FOREIGN_LEAST = 8 << 10 };

/* Classes of length: the shortest are of KO_FOREIGN_LEAST bytes, each twice as long as the one
 * before, the last of any more. */
enum { KO_FOREIGN_CLASSES = 5 };

/* Bits of what a window says of reading: whether at all; of the first class (and so on), that it is
 * decided, and that to read is sooner. */
enum { KO_FOREIGN_READS = 1, KO_FOREIGN_DECIDED = 8, KO_FOREIGN_SOONER = 16 };

struct ko_foreign;

/* Says in the window where the peer finds our word, if this process wants to be read. */
int ko_foreign_invite(struct ko_link *link);

/* Once, when long slices come: finds out whether the peer's memory can be read, and tells it. */
void ko_foreign_try(struct ko_link *link);

/* Whether the peer reads all slices of nbytes here. */
bool ko_foreign_is_read(const struct ko_link *link, size_t nbytes);

/* Whether it is to read this one, which it puts in its place, since that is sooner, or to find out
 * whether it is. */
bool ko_foreign_is_tried(struct ko_link *link, const void *from, size_t nbytes);

/* Whether it is to be measured how long the next slice takes to get; what that has taken. */
bool ko_foreign_is_timed(const struct ko_link *link);
void ko_foreign_judge(struct ko_link *link, int64_t ns);

/* Copies nbytes from the peer's address. KOLO_E_PEER_LOST if the peer has gone, KOLO_E_PROTOCOL if
 * they lie nowhere, or where no other process may read, or nobody reads here. */
int ko_foreign_read(const struct ko_link *link, uint64_t address, void *to, size_t nbytes);

/* NULL is allowed. */
void ko_foreign_free(struct ko_foreign *foreign);

#endif
