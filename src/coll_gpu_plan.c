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

/* What the rank gives to rank i, or gets from it. */
static struct ko_part block(const struct ko_gpu_plan *plan, int rank, enum buffer which, int i)
{
    const size_t index = ko_has_blocks(plan->what, which != IN) ? (size_t)i : 0;
    const struct ko_part even = {index * plan->count, plan->count};

    return plan->blocks ? plan->blocks[rank].parts[which][i] : even;
}

static uint64_t block_at(const struct ko_gpu_plan *plan, int rank, enum buffer which, int i)
{
    const uint64_t buffer = which == IN ? plan->ins[rank] : plan->outs[rank];

    return buffer + ((uint64_t)block(plan, rank, which, i).at << plan->shift);
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
    fold->count = block(plan, i, OUT, i).count;
    for (int r = 0; r < plan->n; r++)
        add_part(fold, block_at(plan, r, IN, i));
    fold->outs[fold->nouts++] = plan->outs[i];
}

/* All elements, or a share of them. */
static struct ko_part part_of(const struct ko_gpu_plan *plan, int i)
{
    const struct ko_part all = {0, plan->count};

    return plan->is_spread ? share_of(plan, i) : all;
}

static void plan_reduction(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    const struct ko_part part = part_of(plan, i);
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

/* What one rank gives to another. */
static void plan_passing(const struct ko_gpu_plan *plan, int from, int to, struct ko_fold *fold)
{
    fold->count = block(plan, from, IN, to).count;
    add_part(fold, block_at(plan, from, IN, to));
    add_out(fold, block_at(plan, to, OUT, from));
}

static void plan_copy(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    const int n = plan->n;

    switch (plan->what) {
    case KO_BROADCAST:
        plan_broadcast(plan, i, fold);
        break;
    case KO_ALL_GATHER:
        fold->count = block(plan, i, IN, i).count;
        add_part(fold, plan->ins[i]);
        for (int k = 0; k < n; k++)
            add_out(fold, block_at(plan, behind(plan, i, k), OUT, i));
        break;
    case KO_GATHER:
        plan_passing(plan, i, plan->root, fold);
        break;
    case KO_SCATTER:
        plan_passing(plan, plan->root, i, fold);
        break;
    default:
        plan_passing(plan, i / n, behind(plan, i / n, i % n), fold);
    }
}

void ko_gpu_step(const struct ko_gpu_plan *plan, int i, struct ko_fold *fold)
{
    *fold = (struct ko_fold){.count = plan->count};
    if (plan->what == KO_REDUCE_SCATTER)
        plan_blocks(plan, i, fold);
    else if (ko_is_reducing(plan->what))
        plan_reduction(plan, i, fold);
    else
        plan_copy(plan, i, fold);
}

void ko_gpu_plan_step(const struct ko_gpu_plan *plan, int i, int rank, struct ko_step *step)
{
    const struct ko_part part = part_of(plan, i);
    const uint64_t at = (uint64_t)part.at * sizeof(float);

    step->count = part.count;
    step->nparts = step->nouts = (uint32_t)plan->n;
    for (int r = 0; r < plan->n; r++)
        step->parts[r] = plan->ins[r] + ((uint64_t)part.at << plan->shift);
    for (int k = 0; k < plan->n; k++) {
        const int r = around(rank + k, plan->n);

        step->outs[k] = plan->outs[r] + at;
        for (int s = 0; s < 2; s++)
            step->states[s][k] = plan->states[s][r] + at;
    }
}

/* ---- pushes ---------------------------------------------------------------------------------- */

bool ko_gpu_can_push(const struct ko_gpu_plan *plan)
{
    return !plan->blocks && !plan->is_fused && plan->count << plan->shift <= KO_PUSH_BYTES &&
           (plan->what == KO_ALL_REDUCE || plan->what == KO_ALL_GATHER ||
            plan->what == KO_REDUCE_SCATTER || plan->what == KO_ALL_TO_ALL);
}

void ko_gpu_plan_push(const struct ko_gpu_plan *plan, int rank, uint64_t scratch,
                      struct ko_push *push, struct ko_fold *fold)
{
    *fold = (struct ko_fold){.count = plan->count};
    push->nbytes = plan->count << plan->shift;
    for (int r = 0; r < plan->n; r++) {
        push->from[r] = block_at(plan, rank, IN, r);
        if (!ko_is_reducing(plan->what))
            push->to[r] = block_at(plan, rank, OUT, r);
        else /* one's own stays where it is */
            push->to[r] = r == rank ? push->from[r] : scratch + (uint64_t)r * KO_PUSH_BYTES;
        add_part(fold, push->to[r]);
    }
    if (ko_is_reducing(plan->what))
        fold->outs[fold->nouts++] = plan->outs[rank];
}
