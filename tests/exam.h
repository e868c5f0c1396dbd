/* SPDX-License-Identifier: MIT
 *
 * exam.h: one collective call with inputs and an oracle of its own. Each input element is a
 * function of (rank, index); every output is computed from those alone and compared bit for bit.
 */
#ifndef EXAM_H
#define EXAM_H

#include "coll.h"
#include "sanitized.h"

#include <stdbool.h>

enum { EXAM_MOST_RANKS = 64 };

/* Memory that this program's threads cannot touch themselves. */
struct exam_memory {
    /* New memory with this content, or with what will be there soon. */
    void *(*make)(const void *content, size_t nbytes);
    /* Its content; the memory goes. */
    void (*fetch)(void *content, void *memory, size_t nbytes);
    /* What is done before and after the call; 0, or it has failed. NULL: nothing. */
    int (*before)(void);
    int (*after)(void);
};

struct exam {
    enum ko_collective what;
    kolo_dtype dtype;
    kolo_op op;
    size_t count;
    int root;
    unsigned seed;    /* of the contents; the same on all ranks */
    bool is_in_place; /* as kolo.h allows it for the collective */
    bool is_async;
    bool is_uneven; /* blocks of different lengths around count, see exam_can_be_uneven */
    size_t shift;   /* bytes by which the buffers are off alignment */
    bool has_shared_in, has_shared_out; /* memory of kolo_mem_alloc */
    const struct exam_memory *memory;   /* of the buffers; NULL: the host's */
};

bool exam_has_root(enum ko_collective what);
bool exam_can_be_uneven(enum ko_collective what);
bool exam_is_reducing(enum ko_collective what);

/* True if dtype has the op. */
bool exam_allows(kolo_dtype dtype, kolo_op op);

/* What the ranks to come find in their environment: links of two slots, so that short exams wrap
 * around them, and no log. */
void exam_set_variables(const char *transport, const char *algorithm, int slice_bytes);

/* An exam under way. */
struct exam_run;

/* Makes the buffers and begins the call (blocking: does it). NULL after ranks_fail. */
struct exam_run *exam_begin(kolo_group *group, const struct exam *exam);

/* Waits, compares, frees. 0, or ranks_fail. */
int exam_end(struct exam_run *run);

/* Both. */
int exam_take(kolo_group *group, const struct exam *exam);

/* By how much those go on who go through many exams: under a sanitizer they take one in five, which
 * has no divisor in common with what exams turn by. */
enum { EXAM_STEP = IS_SANITIZED ? 5 : 1 };

/* Of each count four: in and out of place, blocking and not, off alignment, of several types and
 * ops, with roots in turn. */
int exam_take_forms(kolo_group *group, enum ko_collective what, const size_t *counts,
                    size_t ncounts, const struct exam_memory *memory);

/* all_reduce or reduce_scatter of every type with every op that it has. */
int exam_take_types(kolo_group *group, size_t count, const struct exam_memory *memory);

/* Makes the call, compares nothing, returns its status (for calls that are to fail). */
int exam_try(kolo_group *group, const struct exam *exam);

#endif
