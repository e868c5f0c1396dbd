/* SPDX-License-Identifier: MIT
 *
 * perf_case.h: the operations that kolo-perf measures, a row each: how one is called, which buffers
 * it reads and writes, what must be in them afterwards, and how its bandwidth is reckoned. Uneven
 * blocks are, of each two ranks, half as long and half as long again as even ones, so that all of
 * them together are as long.
 */
#ifndef KO_PERF_CASE_H
#define KO_PERF_CASE_H

#include "kolo.h"

#include <stdbool.h>
#include <stddef.h>

/* The arguments of one operation. */
struct ko_perf_call {
    kolo_group *group;
    int rank, nranks;
    void *in, *out;
    size_t count; /* of a block where there are blocks, on average if they are uneven */
    kolo_dtype dtype;
    int named_op; /* a kolo_op, or KO_PERF_MULSUM (perf_data.h) */
    kolo_op op;   /* the same, as kolo takes it */
    int root;
    kolo_tensor *tensors; /* in and out, cut up; one of all if the operation takes no list */
    int ntensors;
    size_t *lengths, *starts; /* of this rank's blocks, if they are uneven */
    kolo_p2p *messages;       /* to and from each rank, of a batch */
};

enum ko_perf_flags {
    KO_PERF_BLOCKS_IN = 1,  /* in is a block for each rank */
    KO_PERF_BLOCKS_OUT = 2, /* out is */
    KO_PERF_REDUCES = 4,    /* the op matters */
    KO_PERF_HAS_ROOT = 8,   /* the root matters */
    KO_PERF_NO_OUT = 16,    /* cannot be out of place */
    KO_PERF_NO_IN = 32,     /* cannot be in place */
    KO_PERF_IS_PAIR = 64,   /* only ranks 0 and 1 take part, and it cannot be asynchronous */
    KO_PERF_IS_EMPTY = 128, /* moves no data, whatever the size */
    KO_PERF_UNEVEN = 256,   /* the blocks differ in length */
    KO_PERF_TENSORS = 512,  /* takes a list of tensors */
    KO_PERF_BY_HOST = 1024  /* ends by a message of host memory, whatever the device */
};

enum { KO_PERF_NOTHING = -2 }; /* in place of a rank: nobody */

enum { KO_PERF_TAG = 7 }; /* of messages */

struct ko_perf_case {
    const char *name;
    unsigned flags;
    int least_ranks;
    /* work NULL: blocking */
    int (*run)(const struct ko_perf_call *call, kolo_work **work);
    /* Whose data the rank must find in a block of out: a rank's, KO_PERF_REDUCED or
     * KO_PERF_NOTHING. */
    int (*source)(const struct ko_perf_call *call, int block);
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

/* True if the operation in this form can be repeated with the same result: it leaves its own input
 * alone. */
bool ko_perf_case_repeats(const struct ko_perf_case *row, int form);

/* ---- calls ------------------------------------------------------------------------------- */

/* A call of the group, with room for the lists that a row needs; close it. */
int ko_perf_call_open(struct ko_perf_call *call, kolo_group *group, const struct ko_perf_case *row,
                      int ntensors);
void ko_perf_call_close(struct ko_perf_call *call);

/* Sets in, out and the lists, for the count: a, b, or in place both in one of them, as kolo.h
 * allows it. */
void ko_perf_call_place(const struct ko_perf_case *row, int form, void *a, void *b,
                        struct ko_perf_call *call);

/* Elements that lie one behind the other, and the number that the first has in the input of a rank,
 * or in the reduction of the inputs. */
struct ko_perf_piece {
    void *at;
    size_t count, from;
};

/* This rank's input of a tensor. */
struct ko_perf_piece ko_perf_call_in(const struct ko_perf_case *row,
                                     const struct ko_perf_call *call, int tensor);

/* A block of a tensor's output, of ko_perf_call_blocks(); from is in the input of its source. */
struct ko_perf_piece ko_perf_call_out(const struct ko_perf_case *row,
                                      const struct ko_perf_call *call, int tensor, int block);
int ko_perf_call_blocks(const struct ko_perf_case *row, const struct ko_perf_call *call);

#endif
