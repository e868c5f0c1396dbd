/* SPDX-License-Identifier: MIT
 *
 * reducer_parts.h: what the files of the reducer share. One thread.
 */
#ifndef KO_REDUCER_PARTS_H
#define KO_REDUCER_PARTS_H

#include "ddp/agree.h"
#include "ddp/parts.h"

/* What a bucket goes through in each step. */
struct ko_pending {
    struct ko_gpu *gpu; /* the group's, if any of its arrays is there; else NULL */
    char *memory;       /* where it is averaged; NULL in a group of one rank, unless in place */
    bool in_place;      /* memory is the gradients', not ours */
    bool in_arenas;     /* parameters and states lie side by side too: */
    kolo_update update;
    char *copies[KO_NPARTS]; /* of parameters and states on a GPU that do not, once there is a step:
                              */
    bool has_copies;         /* then update is of those */
    size_t missing;          /* gradients not ready yet */
    kolo_work *work;         /* NULL before submission */
    int64_t submitted_ns;
};

struct kolo_ddp {
    kolo_group *group;
    bool is_alone; /* one rank */
    bool no_overlap;
    kolo_param *params;
    size_t nparams;
    struct ko_description description; /* holds the names */
    struct ko_bucket_plan plan;
    struct ko_gpu *gpu;         /* the group's; NULL: it has no stream */
    struct ko_pending *pending; /* of each bucket */
    bool *is_ready;             /* of each parameter, in this step */
    size_t nready;
    char *scratch[2]; /* while being created; the second on the GPU */
    size_t next;      /* the first bucket not submitted in this step */
    kolo_dtype wire;  /* or 0 */
    bool has_step;
    kolo_step step;
    kolo_ddp_stats stats;
    int64_t communication_ns, exposed_ns;
};

/* Gives back err; before that, one of a GPU's driver fails the group: in the midst of a collective
 * call it leaves the other ranks waiting. */
int ko_ddp_check_copies(struct kolo_ddp *ddp, int err);

/* For a bucket that takes the step on copies: parameters and states, not gradients, go there, or
 * come back. */
int ko_ddp_copy(struct kolo_ddp *ddp, size_t b, bool is_in);

/* The step on the host, by averages that lie where they belong. */
void ko_ddp_step_members(const struct kolo_ddp *ddp, size_t b);

#endif
