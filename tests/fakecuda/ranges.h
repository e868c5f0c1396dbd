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

/* What small allocations are parts of. */
struct double_block {
    unsigned char *base;
    size_t nbytes;
    int device, fd, nparts;
    uint64_t id;
    struct double_block *next;
};

struct double_range {
    unsigned char *base;
    size_t nbytes;
    enum { DOUBLE_DEVICE, DOUBLE_IMPORTED, DOUBLE_HOST, DOUBLE_PIECE } kind;
    struct double_piece *piece; /* that is mapped there */
    struct double_block *block; /* of which it is a part; NULL: it is none */
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
/* One that has any of these bytes, or NULL. */
struct double_range *double_range_touches(const unsigned char *base, size_t nbytes);
/* The process's own memory of a GPU that has all of these bytes, or would have if it began and
 * ended at multiples of grain; NULL: there is none. */
struct double_range *double_range_around(ko_cu_ptr at, size_t nbytes, size_t grain);
/* Whether it is one, and begins there. */
bool double_range_begins(const struct double_range *range, ko_cu_ptr at);
/* The one that was imported from there, or NULL. */
struct double_range *double_range_imported(uint64_t origin);

/* Whether anything is imported that lies, or has lain, at those addresses of a process's. */
bool double_range_is_taken(int pid, uint64_t base, uint64_t nbytes);

/* An id that nothing has had. */
uint64_t double_range_number(void);
/* Enters a copy, with such an id. */
struct double_range *double_range_enter(struct double_range range);
/* Forgets it; device memory is unmapped, and its file closed, unless it is a part of more. */
void double_range_take_out(struct double_range *range);

/* Whether an allocation of so many bytes is to be a part of a block; finds room in one for as many
 * as the range has, of its GPU: false, there is no memory. The end of one. */
bool double_block_suits(size_t nbytes);
bool double_block_take(struct double_range *part);
void double_block_leave(struct double_block *block);

/* Maps a file; NULL: it cannot be. */
unsigned char *double_map(int fd, size_t nbytes);
/* Fills new memory with what it is full of, the first MiB of it: pages that nobody comes to cost
 * nothing then. */
void double_unset(unsigned char *base, size_t nbytes);
/* From now on only those who may can touch it. */
void double_protect(unsigned char *base, size_t nbytes);

#endif
