/* SPDX-License-Identifier: MIT
 *
 * shmem.h: shared segments: memory of this process that a peer maps too. They have no name in any
 * file system (memfd), so nothing is left behind whoever dies; they are their user's alone, and
 * allocated before they are written, and sealed, so that neither side can meet SIGBUS. Within one
 * process a segment is found by its id and keeps one address, with a count of its users. Any
 * thread.
 */
#ifndef KO_SHMEM_H
#define KO_SHMEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ko_segment {
    void *memory; /* nbytes, zeroed at creation */
    size_t nbytes;
    uint64_t id; /* random; 0 for a segment mapped from another process */
    int fd;      /* to hand to a peer; -1 if there is none */
    int users;
    bool is_view;         /* to be read only */
    atomic_bool is_freed; /* memory.h: by its user; nobody should begin to use it any more */
    struct ko_segment **link, *next; /* link: NULL for one mapped from another process */
};

/* Makes a segment with one user. */
int ko_segment_create(size_t nbytes, struct ko_segment **segment);

/* One between two ranks, with memory for the first `front` bytes only: whoever wants to write
 * behind them, of either side, reserves that part of its mapping before. What lies there, zeros at
 * first, stays. KOLO_E_NOMEM. */
int ko_segment_begin(size_t nbytes, size_t front, struct ko_segment **segment);
int ko_segment_reserve(void *from, size_t nbytes);

/* The opposite, of pages that lie between these bytes: they are zeros then, on both sides. False
 * where memory is not reserved in parts. */
bool ko_segment_give_back(void *from, size_t nbytes);

/* The segment with this id if this process made it: one user more. NULL if it is not here. */
struct ko_segment *ko_segment_find(uint64_t id);

/* Maps a peer's segment of exactly nbytes; refuses one that could shrink. Takes fd over. */
int ko_segment_map(int fd, size_t nbytes, struct ko_segment **segment);

/* The same, to be read only; and from then on to be written, too, by whoever holds it. */
int ko_segment_view(int fd, size_t nbytes, struct ko_segment **segment);
int ko_segment_open(struct ko_segment *segment);

/* One user more. */
void ko_segment_retain(struct ko_segment *segment);

/* Closes the descriptor, once the peer has it; the memory stays. */
void ko_segment_close_fd(struct ko_segment *segment);

/* One user less; the last unmaps. NULL is allowed. */
void ko_segment_release(struct ko_segment *segment);

#endif
