/* SPDX-License-Identifier: MIT */
#include "coll_gpu_plan.h"

enum { LINE_BYTES = 128 };

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
        return plan->is_spread ? plan->n : 1;
    default:
        return 0;
    }
}

int ko_gpu_step_rank(const struct ko_gpu_plan *plan, int i)
{
    return plan->what == KO_ALL_TO_ALL ? i / plan->n : i;
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

/* Share i of the elements: whole lines of memory, so that no two GPUs write one. */
static struct ko_part share_of(const struct ko_gpu_plan *plan, int i)
{
    const size_t line = LINE_BYTES >> plan->shift;
    struct ko_part share = chunk_of((plan->count + line - 1) / line, plan->n, i);

    share.at *= line;
    share.count *= line;
    if (share.count && share.at + share.count > plan->count)
        share.count = plan->count - share.at;
    return share;
}

static void plan_blocks(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    for (int r = 0; r < plan->n; r++)
        add_part(fold, block(plan, plan->ins[r], i));
    fold->outs[fold->nouts++] = plan->outs[i];
}

/* All elements, or a share of them. */
static void plan_reduction(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    const struct ko_part all = {0, plan->count}, part = plan->is_spread ? share_of(plan, i) : all;
    const uint64_t at = (uint64_t)part.at << plan->shift;

    fold->count = part.count;
    for (int r = 0; r < plan->n; r++)
        add_part(fold, plan->ins[r] + at);
    if (plan->what == KO_REDUCE)
        fold->outs[fold->nouts++] = plan->outs[plan->root] + at;
    else
        for (int r = 0; r < plan->n; r++)
            fold->outs[fold->nouts++] = plan->outs[r] + at;
}

/* Each rank begins with the one behind it, so that not all send to one at a time. */
static int behind(const struct ko_gpu_plan *plan, int rank, int k)
{
    return around(rank + 1 + k, plan->n);
}

static void plan_broadcast(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    add_part(fold, plan->ins[plan->root]);
    for (int r = 0; r < plan->n; r++)
        if (r != plan->root && (r == i || !plan->is_spread))
            add_out(fold, plan->outs[r]);
}

static void plan_copy(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    const int n = plan->n, to = behind(plan, i / n, i % n);

    switch (plan->what) {
    case KO_BROADCAST:
        plan_broadcast(plan, i, fold);
        break;
    case KO_ALL_GATHER:
        add_part(fold, plan->ins[i]);
        for (int k = 0; k < n; k++)
            add_out(fold, block(plan, plan->outs[behind(plan, i, k)], i));
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
        add_part(fold, block(plan, plan->ins[i / n], to));
        add_out(fold, block(plan, plan->outs[to], i / n));
    }
}

void ko_gpu_step(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    *fold = (struct ko_fold){.count = plan->count};
    if (plan->what == KO_REDUCE_SCATTER)
        plan_blocks(plan, i, fold);
    else if (is_reducing(plan->what))
        plan_reduction(plan, i, fold);
    else
        plan_copy(plan, i, fold);
}

/* ---- pushes ---------------------------------------------------------------------------------- */

bool ko_gpu_can_push(const struct ko_gpu_plan *plan)
{
    return plan->count << plan->shift <= KO_PUSH_BYTES &&
           (plan->what == KO_ALL_REDUCE || plan->what == KO_ALL_GATHER ||
            plan->what == KO_REDUCE_SCATTER || plan->what == KO_ALL_TO_ALL);
}

void ko_gpu_plan_push(const struct ko_gpu_plan *plan, int rank, uint64_t scratch,
                      struct ko_push *push, struct ko_fold *fold)
{
    const bool has_blocks = plan->what == KO_REDUCE_SCATTER || plan->what == KO_ALL_TO_ALL;

    *fold = (struct ko_fold){.count = plan->count};
    push->nbytes = plan->count << plan->shift;
    for (int r = 0; r < plan->n; r++) {
        push->from[r] = has_blocks ? block(plan, plan->ins[rank], r) : plan->ins[rank];
        if (!is_reducing(plan->what))
            push->to[r] = block(plan, plan->outs[rank], r);
        else /* one's own stays where it is */
            push->to[r] = r == rank ? push->from[r] : scratch + (uint64_t)r * KO_PUSH_BYTES;
        add_part(fold, push->to[r]);
    }
    if (is_reducing(plan->what))
        fold->outs[fold->nouts++] = plan->outs[rank];
}
