/* SPDX-License-Identifier: MIT
 *
 * Calls that a graph takes in. The ranks agree while it is being captured; afterwards only streams
 * wait for each other, by words in GPU memory of those that wait: that another rank has arrived,
 * and that it has done its work. On one GPU one rank's part of the graph has the kernels; on
 * several each has its own. A word is 1 until who waited for it makes it 0 again, so that a graph
 * may be launched any number of times, and nobody arrives for the next call before this one is done
 * for him. Where each rank has a GPU of its own, what is small goes by kernels that send it and
 * wait for the others'.
 */
#include "coll_gpu_graph.h"

#include "coll_gpu_shared.h"
#include "gpu_share.h"

enum word { ARRIVED, DONE };

/* In memory of `owner`'s, about `rank`. */
static ko_cu_ptr word_of(const kolo_group *group, int owner, int rank, enum word word)
{
    return ko_gpu_share_words(group->share, owner) +
           sizeof(uint32_t) * (KO_GPU_WORDS_OF_RANK * (unsigned)rank + (unsigned)word);
}

static int put(kolo_group *group, ko_cu_ptr word, uint32_t value)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);

    return ko_cuda_check(cuda,
                         cuda->stream_put_word(ko_gpu_user_stream(group->gpu), word, value, 0),
                         "a graph cannot write a word");
}

static int tell(kolo_group *group, int rank, enum word word)
{
    return put(group, word_of(group, rank, group->rank, word), 1);
}

/* Until the word about a rank is 1; then it is 0. */
static int await(kolo_group *group, int rank, enum word word)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);
    const ko_cu_ptr at = word_of(group, group->rank, rank, word);
    int err = ko_cuda_check(
        cuda, cuda->stream_await_word(ko_gpu_user_stream(group->gpu), at, 1, KO_CU_WAIT_EQ),
        "a graph cannot wait for a word");

    return err ? err : put(group, at, 0);
}

/* Of all other ranks. */
static int for_others(kolo_group *group, enum word word,
                      int (*one)(kolo_group *group, int rank, enum word word))
{
    int err = KOLO_OK;

    for (int r = 0; r < group->size && !err; r++)
        if (r != group->rank)
            err = one(group, r, word);
    return err;
}

static int capture_all(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan)
{
    int err = for_others(group, ARRIVED, await);

    if (!err)
        err = ko_coll_begin_plan(group, call, plan, ko_gpu_user_stream(group->gpu));
    return err ? err : for_others(group, DONE, tell);
}

static int capture_own(kolo_group *group, int carrier)
{
    int err = tell(group, carrier, ARRIVED);

    return err ? err : await(group, carrier, DONE);
}

static int capture_share(kolo_group *group, const struct ko_call *call,
                         const struct ko_gpu_plan *plan)
{
    int err = for_others(group, ARRIVED, tell);

    if (!err)
        err = capture_all(group, call, plan);
    return err ? err : for_others(group, DONE, await);
}

/* Kernels that wait for each other, instead of streams. */
static int capture_push(kolo_group *group, const struct ko_call *call,
                        const struct ko_gpu_plan *plan, struct ko_push *push, uint64_t scratch)
{
    struct ko_fold fold;
    int err;

    ko_gpu_plan_push(plan, group->rank, scratch, push, &fold);
    push->limit_ns = (uint64_t)kolo_group_timeout(group) * 1000000;
    err = ko_cuda_push(*push, ko_gpu_user_stream(group->gpu));
    if (err || !fold.nouts)
        return err;
    return ko_coll_begin_fold(call, plan, &fold, ko_gpu_user_stream(group->gpu));
}

int ko_coll_capture(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan,
                    int carrier)
{
    struct ko_push push;
    uint64_t scratch;
    int err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    if (ko_gpu_can_push(plan) && ko_gpu_share_push(group->share, group->rank, &push, &scratch))
        err = capture_push(group, call, plan, &push, scratch);
    else if (plan->is_spread)
        err = capture_share(group, call, plan);
    else
        err = group->rank == carrier ? capture_all(group, call, plan) : capture_own(group, carrier);
    ko_gpu_leave(group->gpu);
    return err;
}
