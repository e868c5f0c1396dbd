/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_plan.h: a collective among ranks that share one GPU, as reductions and copies that read
 * each input once and write each output once.
 */
#ifndef KO_COLL_GPU_PLAN_H
#define KO_COLL_GPU_PLAN_H

#include "coll.h"
#include "kernel_args.h"

struct ko_gpu_plan {
    enum ko_collective what;
    int n, root;
    uint64_t count; /* of a call's elements */
    unsigned shift; /* log2 of an element's bytes */
    uint64_t ins[KO_FOLD_MOST],
        outs[KO_FOLD_MOST]; /* addresses, by rank; those that the call has */
};

/* How many steps there are, one after another. */
int ko_gpu_nsteps(const struct ko_gpu_plan *plan);

/* Step i of them, but for the divisor; nouts is 0 if it has nothing to do, as for what is in its
 * place already. */
void ko_gpu_step(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold);

#endif
