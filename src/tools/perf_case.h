/* SPDX-License-Identifier: MIT
 *
 * perf_case.h: the operations that kolo-perf measures, a row each: how one is called, which buffers
 * it reads and writes, what must be in them afterwards, and how its bandwidth is reckoned.
 */
#ifndef KO_PERF_CASE_H
#define KO_PERF_CASE_H

#include "kolo.h"

#include <stdbool.h>
#include <stddef.h>

/* The arguments of one operation. count is of a block where there are blocks. */
struct ko_perf_call {
    kolo_group *group;
    int rank, nranks;
    void *in, *out;
    size_t count;
    kolo_dtype dtype;
    kolo_op op;
    int root;
};

enum ko_perf_flags {
    KO_PERF_BLOCKS_IN = 1,   /* in is a block for each rank */
    KO_PERF_BLOCKS_OUT = 2,  /* out is */
    KO_PERF_REDUCES = 4,     /* the op matters */
    KO_PERF_HAS_ROOT = 8,    /* the root matters */
    KO_PERF_NO_OUT = 16,     /* cannot be out of place */
    KO_PERF_NO_IN = 32,      /* cannot be in place */
    KO_PERF_IS_MESSAGE = 64, /* no collective: has no asynchronous form of its own */
    KO_PERF_IS_EMPTY = 128   /* moves no data, whatever the size */
};

/* Whose data a rank must find in out: block b, if there are blocks, is of rank first + b, else all
 * is of rank first; KO_PERF_REDUCED and KO_PERF_NOTHING are no ranks. It begins with that rank's
 * element from, or with that of the reduction. */
enum { KO_PERF_NOTHING = -2 };

struct ko_perf_outcome {
    int first, nblocks;
    size_t from;
};

struct ko_perf_case {
    const char *name;
    unsigned flags;
    int least_ranks;
    /* work NULL: blocking */
    int (*run)(const struct ko_perf_call *call, kolo_work **work);
    struct ko_perf_outcome (*expect)(const struct ko_perf_call *call);
};

/* *count rows. */
const struct ko_perf_case *ko_perf_cases(int *count);

/* Elements of a block, or of the buffer, so that the larger buffer is not larger than nbytes; and
 * the bytes of the larger buffer. */
size_t ko_perf_case_count(const struct ko_perf_case *row, size_t nbytes, kolo_dtype dtype,
                          int nranks);
size_t ko_perf_case_bytes(const struct ko_perf_case *row, size_t count, kolo_dtype dtype,
                          int nranks);

/* Bytes that the busiest link of a rank must carry, for each byte of the larger buffer. */
double ko_perf_case_factor(const struct ko_perf_case *row, int nranks);

/* Operations that one call counts as: the two ways of a ping-pong, the messages of a stream. */
int ko_perf_case_parts(const struct ko_perf_case *row, size_t nbytes);

/* Sets in and out: a, b, or in place both in one of them, as kolo.h allows it. */
void ko_perf_case_place(const struct ko_perf_case *row, int form, void *a, void *b,
                        struct ko_perf_call *call);

/* True if the operation in this form can be repeated with the same result: it leaves its own input
 * alone. */
bool ko_perf_case_repeats(const struct ko_perf_case *row, int form);

#endif
