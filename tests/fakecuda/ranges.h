/* SPDX-License-Identifier: MIT
 *
 * ranges.h: the memory that the double's driver knows, by ranges of addresses. What follows the
 * lock is for who holds it.
 */
#ifndef DOUBLE_RANGES_H
#define DOUBLE_RANGES_H

#include "double.h"

enum { DOUBLE_GRAIN = 4096, DOUBLE_UNSET = 0xa5, DOUBLE_MOST_UNSET = 1 << 20 };

/* Memory without an address. */
struct double_piece {
    int users, fd, device;
    size_t nbytes;
    bool has_descriptor;
};

struct double_range {
    unsigned char *base;
    size_t nbytes;
    enum { DOUBLE_DEVICE, DOUBLE_IMPORTED, DOUBLE_HOST, DOUBLE_PIECE } kind;
    struct double_piece *piece; /* that is mapped there */
    int device, fd;
    bool is_managed, is_at_host; /* by double_alloc, and fakecuda_manage */
    unsigned allowed;            /* bits: GPUs that a piece has been given to */
    int users;                   /* of one that is imported */
    uint64_t id, origin, there;  /* where one that is imported lies in its process */
    int pid;
    struct double_range *next;
};

void double_ranges_lock(void);
void double_ranges_unlock(void);

/* The range in which an address lies, or NULL. */
struct double_range *double_range_at(ko_cu_ptr at);
/* Whether it is one, and begins there. */
bool double_range_begins(const struct double_range *range, ko_cu_ptr at);
/* The one that was imported from there, or NULL. */
struct double_range *double_range_imported(uint64_t origin);

/* Whether anything is imported that lies, or has lain, at those addresses of a process's. */
bool double_range_is_taken(int pid, uint64_t base, uint64_t nbytes);

/* Enters a copy, with an id that no other has had. */
struct double_range *double_range_enter(struct double_range range);
/* Forgets it; device memory is unmapped, and its file closed. */
void double_range_take_out(struct double_range *range);

/* Maps a file; NULL: it cannot be. */
unsigned char *double_map(int fd, size_t nbytes);
/* Fills new memory with what it is full of, the first MiB of it: pages that nobody comes to cost
 * nothing then. */
void double_unset(unsigned char *base, size_t nbytes);
/* From now on only those who may can touch it. */
void double_protect(unsigned char *base, size_t nbytes);

#endif
