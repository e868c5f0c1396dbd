/* SPDX-License-Identifier: MIT
 *
 * Calls that a graph takes in, or a stream. The ranks agree beforehand; afterwards only streams
 * wait for each other, by words in GPU memory of those that wait: that another rank has arrived,
 * and that it has done its work. On one GPU one rank's part of the graph has the kernels: not that
 * of the rank that comes last, as of other calls, since at a launch no host is there to see who
 * does, but always the first rank's, so that the GPU has no other context to change to between two
 * calls (which takes 150 us, measured on an H200). A kernel in each part could see that, but would
 * need its process's turn on the GPU, of all in each call, where a word that tells of an arrival is
 * written without; and who copies, by engines, could not be settled by a kernel at all. On several
 * GPUs each part has its own. A word is 1 until who waited for it makes it 0 again, so that a graph
 * may be launched any number of times, and nobody arrives for the next call before this one is done
 * for him. All words of a wait become 0 together behind it, so that those which are 0 meanwhile
 * show who is waited for; that there is a wait the graph tells its host (group_watch.h). Where each
 * rank has a GPU of its own, what is small goes by kernels that send it and wait for the others'.
 */
#include "coll_gpu_graph.h"

#include "coll_gpu_shared.h"
#include "coll_gpu_writers.h"
#include "gpu_batch.h"
#include "gpu_share.h"
#include "group_watch.h"

enum { CARRIER = 0 }; /* the rank that does the work of all, on one GPU */

/* The words that a rank has about the others. */
struct wait {
    enum ko_gpu_round round;
    enum ko_collective what;
    enum ko_gpu_word word;
    int owner; /* of those that tell who is missing */
    int first, end;
};

static ko_cu_ptr own_word(const kolo_group *group, const struct wait *wait, int rank)
{
    return ko_gpu_share_word(group->share, wait->round, group->rank, rank, wait->word);
}

/* For the host, of a call that is in the stream but once: its number. */
static void say_done(kolo_group *group, struct ko_gpu_batch *batch, const struct ko_call *call)
{
    if (!call->is_captured)
        ko_gpu_batch_put(batch, ko_gpu_page_at(group->gpu) + offsetof(struct ko_gpu_page, done),
                         group->nstreamed);
}

/* For itself a rank waits only where it waits for one. */
static int await_all(kolo_group *group, struct ko_gpu_batch *batch, const struct wait *wait)
{
    const bool is_for_one = wait->end == wait->first + 1;

    ko_gpu_batch_say(batch, wait->round, ko_awaited(wait->what, wait->word, wait->owner));
    for (int r = wait->first; r < wait->end; r++)
        if (r != group->rank || is_for_one)
            ko_gpu_batch_await(batch, own_word(group, wait, r));
    for (int r = wait->first; r < wait->end; r++)
        ko_gpu_batch_put(batch, own_word(group, wait, r), 0);
    if (wait->round == KO_GPU_CALLS && wait->word == KO_GPU_DONE)
        ko_gpu_batch_await_number(batch, ko_gpu_share_passable(group->share, group->rank),
                                  ko_gpu_passage(group->nstreamed));
    ko_gpu_batch_say(batch, wait->round, 0);
    return ko_gpu_batch_end(batch);
}

static int await_others(kolo_group *group, struct ko_gpu_batch *batch, const struct ko_call *call,
                        enum ko_gpu_word word)
{
    const struct wait wait = {ko_call_round(call), call->what, word, group->rank, 0, group->size};

    return await_all(group, batch, &wait);
}

/* All ranks, this one too. */
static int tell_all(kolo_group *group, const struct ko_call *call, enum ko_gpu_word word,
                    struct ko_tell *tell, ko_cu_stream stream)
{
    tell->given_up = ko_gpu_share_given_up(group->share, group->rank);
    for (int r = 0; r < group->size; r++)
        tell->words[tell->n++] =
            ko_gpu_share_word(group->share, ko_call_round(call), r, group->rank, word);
    return ko_cuda_tell(*tell, stream);
}

/* Until the carrier is done: it hears of itself, too, so that where it tells nobody, since another
 * rank has given up, its own stream stands still until the host knows why. */
static int await_carrier(kolo_group *group, struct ko_gpu_batch *batch, const struct ko_call *call)
{
    const struct wait wait = {ko_call_round(call), call->what, KO_GPU_DONE, CARRIER, CARRIER,
                              CARRIER + 1};

    return await_all(group, batch, &wait);
}

/* On one GPU by a word that the stream writes itself, since a kernel would have to wait for its
 * turn there. So it comes of a rank too that has given up, which the carrier sees in the end. */
static void tell_carrier(kolo_group *group, struct ko_gpu_batch *batch, const struct ko_call *call)
{
    ko_gpu_batch_put(
        batch,
        ko_gpu_share_word(group->share, ko_call_round(call), CARRIER, group->rank, KO_GPU_ARRIVED),
        1);
}

/* Its own arrival is for the others to see. */
static int capture_carrier(kolo_group *group, const struct ko_call *call,
                           const struct ko_gpu_plan *plan, ko_cu_stream stream)
{
    struct ko_tell tell = {.ntheirs = (uint32_t)group->size};
    struct ko_gpu_batch begin = ko_gpu_batch(group->gpu, stream), end = begin;
    int err;

    for (int r = 0; r < group->size; r++)
        tell.theirs[r] = ko_gpu_share_given_up(group->share, r);
    tell_carrier(group, &begin, call);
    err = await_others(group, &begin, call, KO_GPU_ARRIVED);
    if (!err)
        err = ko_coll_begin_plan(group, call, plan, stream);
    if (!err)
        err = tell_all(group, call, KO_GPU_DONE, &tell, stream);
    say_done(group, &end, call);
    return err ? err : await_carrier(group, &end, call);
}

static int capture_own(kolo_group *group, const struct ko_call *call, ko_cu_stream stream)
{
    struct ko_gpu_batch batch = ko_gpu_batch(group->gpu, stream);

    tell_carrier(group, &batch, call);
    say_done(group, &batch, call);
    return await_carrier(group, &batch, call);
}

static int capture_share(kolo_group *group, const struct ko_call *call,
                         const struct ko_gpu_plan *plan, ko_cu_stream stream)
{
    struct ko_tell arrived = {.n = 0}, done = {.n = 0};
    struct ko_gpu_batch begin = ko_gpu_batch(group->gpu, stream), end = begin;
    int err = tell_all(group, call, KO_GPU_ARRIVED, &arrived, stream);

    if (!err)
        err = await_others(group, &begin, call, KO_GPU_ARRIVED);
    if (!err)
        err = ko_coll_begin_plan(group, call, plan, stream);
    if (!err)
        err = tell_all(group, call, KO_GPU_DONE, &done, stream);
    say_done(group, &end, call);
    return err ? err : await_others(group, &end, call, KO_GPU_DONE);
}

static int capture(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan,
                   ko_cu_stream stream)
{
    if (group->size == 1)
        return ko_coll_begin_plan(group, call, plan, stream);
    if (ko_coll_pushes(group, plan))
        return ko_coll_begin_push(group, call, plan, stream);
    if (plan->is_spread)
        return capture_share(group, call, plan, stream);
    return group->rank == CARRIER ? capture_carrier(group, call, plan, stream)
                                  : capture_own(group, call, stream);
}

/* What has begun ends, whatever has become of it. */
static int put_between(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan, ko_cu_stream stream)
{
    int err = ko_gpu_begin_in_stream(group->gpu, stream), end;

    if (err)
        return err;
    err = capture(group, call, plan, stream);
    end = ko_gpu_end_in_stream(group->gpu, stream);
    return err ? err : end;
}

/* A group of one waits for nobody, and kernels that send and wait write into no buffer of others.
 */
static int begin(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan)
{
    if (call->is_captured || group->size == 1 || ko_coll_pushes(group, plan))
        return KOLO_OK;
    return ko_coll_begin_streaming(group, plan->is_spread || group->rank == CARRIER);
}

int ko_coll_put_in_stream(kolo_group *group, const struct ko_call *call,
                          const struct ko_gpu_plan *plan, ko_cu_stream stream)
{
    int err = begin(group, call, plan);

    if (!err)
        err = ko_gpu_enter(group->gpu);
    if (err)
        return err;
    err = call->is_captured ? capture(group, call, plan, stream)
                            : put_between(group, call, plan, stream);
    ko_gpu_leave(group->gpu);
    return err;
}
