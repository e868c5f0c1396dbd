/* SPDX-License-Identifier: MIT
 *
 * coll.h: a collective call: its arguments, its algorithm, who runs it.
 */
#ifndef KO_COLL_H
#define KO_COLL_H

#include "algorithms.h"
#include "chunk.h"
#include "group.h"
#include "reduce.h"

/* All that there is to say of most calls: what a user gives whose blocks, if the call has any, have
 * all the same length. */
struct ko_plain_call {
    enum ko_collective what;
    kolo_dtype dtype;
    kolo_op op;
    int root;
    const void *in;
    void *out;
    size_t count;
};

/* One call as the user made it. */
struct ko_call {
    enum ko_collective what;
    const void *in;
    void *out;
    size_t count;
    kolo_dtype dtype;
    kolo_op op;
    bool is_scaled; /* op was a group's own: in times factor, summed */
    double factor;
    int root;
    /* Blocks may differ, on all ranks or on none: then count is this rank's own, and the buffers
     * that have a block for each rank, where this rank knows them, list them. */
    bool is_uneven;
    bool is_on_gpu;       /* the buffers are in GPU memory */
    struct ko_held *held; /* then, for ko_coll_run: the adapters of links to other hosts reach
                             both themselves, and all that goes to a rank of this host is
                             empty; NULL: as usual, the buffers are in host memory */
    bool is_captured;     /* the stream is being captured: the call is to be part of a graph */
    bool is_streamed;     /* it is to go into the stream of its caller */
    struct ko_handoff *handoff; /* and is on its way there; NULL: it is not */
    struct ko_gpu_mark *mark;   /* then: what the call comes behind in the stream; NULL: nothing */
    bool is_coalesced;          /* of several tensors, instead of in, out and count */
    const kolo_tensor *tensors;
    size_t ntensors; /* also where one of them is called alone, or some together */
    struct ko_blocks in_blocks, out_blocks;
    const struct ko_epilogue *epilogue; /* coll_epilogue.h; NULL: none */
    uint32_t options; /* a number for its options, by which ranks notice that theirs differ, or 0 */
};

/* Whether all that it has the GPU do is to come into the user's stream. */
static inline bool ko_call_is_in_stream(const struct ko_call *call)
{
    return call->is_captured || call->handoff;
}

/* As stamps have it. */
static inline uint8_t ko_call_what(const struct ko_call *call)
{
    return (uint8_t)(call->what | (call->is_uneven ? KO_UNEVEN : 0) |
                     (call->ntensors ? KO_COALESCED : 0));
}

struct ko_epilogue;
struct ko_verbs;

/* A row of algorithms.h, with its text's body on the host. */
struct ko_algorithm {
    enum ko_collective what;
    const char *name;
    void (*run)(struct ko_verbs *verbs);
    unsigned flags; /* enum ko_algorithm_flag */
    const char *why;
};

extern const struct ko_algorithm ko_algorithms[];
extern const int ko_nalgorithms;

/* "all_reduce" */
const char *ko_collective_name(enum ko_collective what);

/* "all_gather", "all_gather_v", "all_gather_coalesced" */
const char *ko_call_name(const struct ko_call *call);

/* Bytes of a checked call's buffer on this rank, from its beginning to its last block's end; of one
 * that this rank has. */
size_t ko_call_bytes(const kolo_group *group, const struct ko_call *call, bool is_out);

/* KOLO_E_INVALID or KOLO_E_UNSUPPORTED if the arguments cannot be. */
int ko_call_check(kolo_group *group, const struct ko_call *call);

/* Puts a name before what went wrong: err. */
int ko_call_say_where(const char *name, int err);

/* Checks the arguments, then runs the call (work NULL) or submits it. */
int ko_coll_call(kolo_group *group, const struct ko_call *call, kolo_work **work);

/* Carries a checked call out whose buffers are in host memory; for whoever has the engine's turn.
 */
typedef int ko_run(kolo_group *group, const struct ko_call *call);

/* Carries out a call of this rank's whose buffers may be in GPU memory; by `run` what is in the
 * host's, or goes that way. */
typedef int ko_way(kolo_group *group, const struct ko_call *call, ko_run *run);

/* A ko_run, of one buffer: by the algorithm that all ranks choose alike. */
int ko_coll_run_chosen(kolo_group *group, const struct ko_call *call);

/* coll_tensors.c: makes it a call of several tensors, of which the user's list stays his. */
void ko_call_set_tensors(struct ko_call *call, const kolo_tensor *tensors, size_t ntensors);

/* The call for tensor i alone; and all of it, for whoever has the engine's turn. */
struct ko_call ko_coll_tensor(const struct ko_call *call, size_t i);
int ko_coll_run_tensors(kolo_group *group, const struct ko_call *call);

/* With the engine's turn: a group that has failed meanwhile is this thread's to tell of. */
static inline void ko_coll_tell_failure(kolo_group *group)
{
    if (ko_group_has_failed(group))
        ko_channel_tell_failure(&group->collectives);
}

/* coll_host.c: carries a checked call out in this thread, over the group's links; for whoever has
 * the engine's turn. */
int ko_coll_run(kolo_group *group, const struct ko_call *call, int algorithm);

/* Carries the call out in a group of one rank. */
int ko_coll_run_alone(const struct ko_call *call);

/* Carries a blocking call out that differs from the last of its collective by buffers and root at
 * most: then it is right too, goes by the same algorithm, and what was found then is left out.
 * KO_AGAIN: it does not, or nothing can be carried out at once, and it takes a ko_coll_call. */
int ko_coll_again(kolo_group *group, const struct ko_plain_call *call);

#endif
