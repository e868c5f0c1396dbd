/* SPDX-License-Identifier: MIT
 *
 * foreign.h: the receiver's side of slices that are left to it (foreign_out.h): it reads them out
 * of its peer's process, by one copy instead of two (process_vm_readv; between threads, a plain
 * one). The system may forbid it, so it is tried before it is relied on: each end says where a word
 * of its own stands, and who finds that word there says so in its window. Until then slices go
 * through slots. Both ends have to want it (protocols.h).
 *
 * Whether one copy by the system is sooner than two of ours depends on the machine, and on a
 * virtual one on the moment: by a factor of two either way. So where nothing else is wanted
 * (try-cma) slices go both ways in turn at first, and now and then again; the receiver finds out
 * how long each takes, by classes of length, and says in its window what is better.
 */
#ifndef KO_FOREIGN_H
#define KO_FOREIGN_H

#include "foreign_process.h"
#include "link.h"

/* Shorter slices cost less as two copies. */
enum { KO_FOREIGN_LEAST = 8 << 10 };

/* Classes of length: the shortest are of KO_FOREIGN_LEAST bytes, each twice as long as the one
 * before, the last of any more. What goes both ways at a time (link->flow) has classes of its own,
 * since there copies take longer, and so has what is reduced, both ways at a time or one way. */
enum { KO_FOREIGN_LENGTHS = 5, KO_FOREIGN_CLASSES = 4 * KO_FOREIGN_LENGTHS };
int ko_foreign_class(const struct ko_link *link, size_t nbytes);

/* Bits of what a window says of reading: whether at all; and of the first class (of others so many
 * bits further), that it is known whether reading takes less time than a slice for which somebody
 * waits takes through a slot; that it does; and that it takes less than slices take that follow
 * each other, of which one is copied in while another is copied out. */
enum { KO_FOREIGN_READS = 1, KO_FOREIGN_KNOWN = 4, KO_FOREIGN_SOONER = 24, KO_FOREIGN_FASTER = 44 };

_Static_assert(KO_FOREIGN_CLASSES <= KO_FOREIGN_SOONER - KO_FOREIGN_KNOWN, "a bit for each");

static inline bool ko_foreign_says(uint64_t reading, int what, int class)
{
    return reading >> (what + class) & 1;
}

struct ko_foreign;

/* Says in the window where the peer finds our word, if this process wants to be read. */
int ko_foreign_invite(struct ko_link *link);

/* Once, when long slices come: finds out whether the peer's memory can be read, and tells it. */
void ko_foreign_try(struct ko_link *link);

/* A moment of this thread's; ns since then (at least 1), or 0 if the thread has met pages for the
 * first time meanwhile: that takes longer than any copy, and happens to either way once. */
struct ko_moment {
    int64_t ns;
    long faults;
};
struct ko_moment ko_moment_now(void);
int64_t ko_moment_since(const struct ko_moment *began);

/* Of the next slice, which was not left to us: whether its sender has measured his copy. */
bool ko_foreign_is_measured(const struct ko_link *link);

/* Whether it is to be measured how long the next slice takes to get. If so, then it did. */
bool ko_foreign_is_watched(struct ko_link *link);
void ko_foreign_watched(struct ko_link *link, const struct ko_moment *began, bool is_read);

/* The same of a slice that is used where it lies until it is released. */
void ko_foreign_peeked(struct ko_link *link, const struct ko_moment *began, bool is_read);
void ko_foreign_released(struct ko_link *link);

/* What is made of that. */
struct ko_foreign_sample {
    bool is_read;
    int64_t ns;      /* of the receiver's; 0: not known */
    int64_t copy_ns; /* of the sender's, who has put it into the window; 0: not known */
    int64_t gap_ns;  /* since the end of the one before */
};
void ko_foreign_judge(struct ko_link *link, const struct ko_foreign_sample *sample);

/* Moves the next slice, which was left to us: either it is read into `to`, which *body is then,
 * with what follows it in the same message as far as link->ahead reaches, since a call of the
 * system's takes as long as a short slice; or its sender has put it into the window, where *body
 * is. KO_AGAIN while the sender does that, which it is asked to if the system keeps the memory from
 * us (a device's, or secret), and once it has withdrawn the slice: the wire tells why.
 * KOLO_E_PEER_LOST if the peer has gone, KOLO_E_PROTOCOL if nobody reads here. */
int ko_foreign_take(struct ko_link *link, void *to, const void **body);

/* Whether what comes next has been read with what was taken last. */
bool ko_foreign_reads_ahead(const struct ko_link *link);

/* Where the peer's memory is; NULL: it is not read. */
struct ko_foreign_process *ko_foreign_process_of(struct ko_link *link);

/* Whether the peer is another thread of this process. */
bool ko_foreign_is_here(const struct ko_link *link);

/* NULL is allowed. */
void ko_foreign_free(struct ko_foreign *foreign);

#endif
