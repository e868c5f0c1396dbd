/* SPDX-License-Identifier: MIT */
#include "coll_gpu_plan.h"

int ko_gpu_nsteps(const struct ko_gpu_plan *plan)
{
    switch (plan->what) {
    case KO_ALL_TO_ALL:
        return plan->n * plan->n;
    case KO_ALL_GATHER:
    case KO_REDUCE_SCATTER:
    case KO_GATHER:
    case KO_SCATTER:
        return plan->n;
    case KO_ALL_REDUCE:
    case KO_REDUCE:
    case KO_BROADCAST:
        return 1;
    default:
        return 0;
    }
}

/* Block i of a buffer. */
static uint64_t block(const struct ko_gpu_plan *plan, uint64_t buffer, int i)
{
    return buffer + ((uint64_t)i * plan->count << plan->shift);
}

static void add_part(struct ko_fold *fold, uint64_t at)
{
    fold->parts[fold->nparts++] = at;
}

/* Of copies: one to where it is already is none. */
static void add_out(struct ko_fold *fold, uint64_t at)
{
    if (fold->nparts > 1 || at != fold->parts[0])
        fold->outs[fold->nouts++] = at;
}

static void plan_reduction(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    const bool has_blocks = plan->what == KO_REDUCE_SCATTER;

    for (int r = 0; r < plan->n; r++)
        add_part(fold, has_blocks ? block(plan, plan->ins[r], i) : plan->ins[r]);
    if (plan->what == KO_ALL_REDUCE)
        for (int r = 0; r < plan->n; r++)
            fold->outs[fold->nouts++] = plan->outs[r];
    else
        fold->outs[fold->nouts++] = plan->outs[has_blocks ? i : plan->root];
}

static void plan_copy(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    const int n = plan->n;

    switch (plan->what) {
    case KO_BROADCAST:
        add_part(fold, plan->ins[plan->root]);
        for (int r = 0; r < n; r++)
            if (r != plan->root)
                add_out(fold, plan->outs[r]);
        break;
    case KO_ALL_GATHER:
        add_part(fold, plan->ins[i]);
        for (int r = 0; r < n; r++)
            add_out(fold, block(plan, plan->outs[r], i));
        break;
    case KO_GATHER:
        add_part(fold, plan->ins[i]);
        add_out(fold, block(plan, plan->outs[plan->root], i));
        break;
    case KO_SCATTER:
        add_part(fold, block(plan, plan->ins[plan->root], i));
        add_out(fold, plan->outs[i]);
        break;
    default:
        add_part(fold, block(plan, plan->ins[i / n], i % n));
        add_out(fold, block(plan, plan->outs[i % n], i / n));
    }
}

void ko_gpu_step(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    *fold = (struct ko_fold){.count = plan->count};
    if (is_reducing(plan->what))
        plan_reduction(plan, i, fold);
    else
        plan_copy(plan, i, fold);
}
