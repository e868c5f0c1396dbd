/* SPDX-License-Identifier: MIT
 *
 * Calls that a graph takes in. The ranks agree while it is being captured; afterwards only streams
 * wait for each other, by words in GPU memory of those that wait: that another rank has arrived,
 * and that it has done its work. On one GPU one rank's part of the graph has the kernels: not that
 * of the rank that comes last, as of other calls, but one that is settled, by turns, while the call
 * is captured, since at a launch no host is there to see who comes last. A kernel in each part
 * could see that, but would need its process's turn on the GPU, of all in each call, where a word
 * that tells of an arrival is written without; and who copies, by engines, could not be settled by
 * a kernel at all. On several GPUs each part has its own. A word is 1 until who waited for it makes
 * it 0 again, so that a graph may be launched any number of times, and nobody arrives for the next
 * call before this one is done for him. All words of a wait become 0 together behind it, so that
 * those which are 0 meanwhile show who is waited for; that there is a wait the graph tells its host
 * (group_watch.h). Where each rank has a GPU of its own, what is small goes by kernels that send it
 * and wait for the others'.
 */
#include "coll_gpu_graph.h"

#include "coll_gpu_shared.h"
#include "gpu_share.h"
#include "group_watch.h"

static int put(kolo_group *group, ko_cu_ptr word, uint32_t value)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);

    return ko_cuda_check(cuda,
                         cuda->stream_put_word(ko_gpu_user_stream(group->gpu), word, value, 0),
                         "a graph cannot write a word");
}

/* The words that a rank has about the others. */
struct wait {
    enum ko_collective what;
    enum ko_gpu_word word;
    int owner; /* of those that tell who is missing */
    int first, end;
};

static int say(kolo_group *group, uint32_t awaited)
{
    return put(group, ko_gpu_page_at(group->gpu) + offsetof(struct ko_gpu_page, awaited), awaited);
}

/* Until a word is 1. */
static int await(kolo_group *group, int rank, enum ko_gpu_word word)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);
    const ko_cu_ptr at = ko_gpu_share_word(group->share, group->rank, rank, word);

    return ko_cuda_check(
        cuda, cuda->stream_await_word(ko_gpu_user_stream(group->gpu), at, 1, KO_CU_WAIT_EQ),
        "a graph cannot wait for a word");
}

/* For itself a rank waits only where it waits for one. */
static int await_all(kolo_group *group, const struct wait *wait)
{
    const bool is_for_one = wait->end == wait->first + 1;
    int err = say(group, ko_awaited(wait->what, wait->word, wait->owner));

    for (int r = wait->first; r < wait->end && !err; r++)
        if (r != group->rank || is_for_one)
            err = await(group, r, wait->word);
    for (int r = wait->first; r < wait->end && !err; r++)
        err = put(group, ko_gpu_share_word(group->share, group->rank, r, wait->word), 0);
    return err ? err : say(group, 0);
}

static int await_others(kolo_group *group, const struct ko_call *call, enum ko_gpu_word word)
{
    const struct wait wait = {call->what, word, group->rank, 0, group->size};

    return await_all(group, &wait);
}

/* All ranks, this one too. */
static int tell_all(kolo_group *group, enum ko_gpu_word word, struct ko_tell *tell)
{
    tell->given_up = ko_gpu_share_given_up(group->share, group->rank);
    for (int r = 0; r < group->size; r++)
        tell->words[tell->n++] = ko_gpu_share_word(group->share, r, group->rank, word);
    return ko_cuda_tell(*tell, ko_gpu_user_stream(group->gpu));
}

/* Until the carrier is done: it hears of itself, too, so that where it tells nobody, since another
 * rank has given up, its own stream stands still until the host knows why. */
static int await_carrier(kolo_group *group, const struct ko_call *call, int carrier)
{
    const struct wait wait = {call->what, KO_GPU_DONE, carrier, carrier, carrier + 1};

    return await_all(group, &wait);
}

/* On one GPU by a word that the stream writes itself, since a kernel would have to wait for its
 * turn there. So it comes of a rank too that has given up, which the carrier sees in the end. */
static int tell_carrier(kolo_group *group, int carrier)
{
    return put(group, ko_gpu_share_word(group->share, carrier, group->rank, KO_GPU_ARRIVED), 1);
}

/* Its own arrival is for the others to see. */
static int capture_carrier(kolo_group *group, const struct ko_call *call,
                           const struct ko_gpu_plan *plan)
{
    struct ko_tell tell = {.ntheirs = (uint32_t)group->size};
    int err = tell_carrier(group, group->rank);

    for (int r = 0; r < group->size; r++)
        tell.theirs[r] = ko_gpu_share_given_up(group->share, r);
    if (!err)
        err = await_others(group, call, KO_GPU_ARRIVED);
    if (!err)
        err = ko_coll_begin_plan(group, call, plan, ko_gpu_user_stream(group->gpu));
    if (!err)
        err = tell_all(group, KO_GPU_DONE, &tell);
    return err ? err : await_carrier(group, call, group->rank);
}

static int capture_own(kolo_group *group, const struct ko_call *call, int carrier)
{
    int err = tell_carrier(group, carrier);

    return err ? err : await_carrier(group, call, carrier);
}

static int capture_share(kolo_group *group, const struct ko_call *call,
                         const struct ko_gpu_plan *plan)
{
    struct ko_tell arrived = {.n = 0}, done = {.n = 0};
    int err = tell_all(group, KO_GPU_ARRIVED, &arrived);

    if (!err)
        err = await_others(group, call, KO_GPU_ARRIVED);
    if (!err)
        err = ko_coll_begin_plan(group, call, plan, ko_gpu_user_stream(group->gpu));
    if (!err)
        err = tell_all(group, KO_GPU_DONE, &done);
    return err ? err : await_others(group, call, KO_GPU_DONE);
}

static int capture(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan,
                   int carrier)
{
    if (group->size == 1)
        return ko_coll_begin_plan(group, call, plan, ko_gpu_user_stream(group->gpu));
    if (ko_coll_pushes(group, plan))
        return ko_coll_begin_push(group, call, plan, ko_gpu_user_stream(group->gpu));
    if (plan->is_spread)
        return capture_share(group, call, plan);
    return group->rank == carrier ? capture_carrier(group, call, plan)
                                  : capture_own(group, call, carrier);
}

int ko_coll_capture(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan,
                    int carrier)
{
    int err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    err = capture(group, call, plan, carrier);
    ko_gpu_leave(group->gpu);
    return err;
}
