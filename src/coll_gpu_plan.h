/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_plan.h: a collective of GPU memory that all ranks reach, as reductions and copies that
 * write each output once. On one GPU each input is read once, and one rank does everything. Spread
 * over several, each rank has steps of its own, which do not depend on each other, so that all can
 * be carried out at once: a share of the elements that are reduced; what it sends, or receives from
 * a root.
 */
#ifndef KO_COLL_GPU_PLAN_H
#define KO_COLL_GPU_PLAN_H

#include "coll.h"
#include "kernel_args.h"

/* What one rank gives to each and gets from each, as places in its IN and OUT. */
struct ko_gpu_blocks {
    struct ko_part parts[2][KO_FOLD_MOST];
};

struct ko_gpu_plan {
    enum ko_collective what;
    bool is_spread;
    int n, root;
    uint64_t count;                     /* of a call's elements, unless blocks differ */
    unsigned shift;                     /* log2 of an element's bytes */
    const struct ko_gpu_blocks *blocks; /* by rank; NULL: all of a call are of one length */
    const double *factors;              /* by rank, of its input; NULL: none has one */
    uint64_t ins[KO_FOLD_MOST],
        outs[KO_FOLD_MOST]; /* addresses, by rank; those that the call has */
    bool is_fused;          /* the reduction does more (coll_epilogue.h): */
    uint64_t states[2][KO_FOLD_MOST];
};

/* How many steps there are. */
int ko_gpu_nsteps(const struct ko_gpu_plan *plan);

/* The rank that carries out step i of a plan that is spread. */
int ko_gpu_step_rank(const struct ko_gpu_plan *plan, int i);

/* Step i of them, but for the divisor; nouts or count is 0 if it has nothing to do, as for what is
 * in its place already. Of copies each goes from parts[0]. */
void ko_gpu_step(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold);

/* Of an all_reduce with an optimizer's step, instead: the arrays of step i; the rank that asks has
 * the parameters that are read. */
void ko_gpu_plan_step(const struct ko_gpu_plan *plan, int i, int rank, struct ko_step *step);

/* Whether the call is an exchange of everybody with everybody, of so little that it goes by a push
 * (kernel_args.h). If so: what the rank sends, and where what it gets goes, for the reduction that
 * follows to scratch; and this reduction, which has no outputs if nothing is reduced. */
bool ko_gpu_can_push(const struct ko_gpu_plan *plan);
void ko_gpu_plan_push(const struct ko_gpu_plan *plan, int rank, uint64_t scratch,
                      struct ko_push *push, struct ko_fold *fold);

#endif
