/* SPDX-License-Identifier: MIT
 *
 * Calls that a graph takes in. The ranks agree while it is being captured; afterwards only streams
 * wait for each other, by words in GPU memory of rank 0's, two for each rank: that it has arrived,
 * and that the call is done for it. One rank's part of the graph has the kernels. A word is 1 until
 * who waited for it makes it 0 again, so that a graph may be launched any number of times, and
 * nobody arrives for the next call before this one is done for him.
 */
#include "coll_gpu_graph.h"

#include "coll_gpu_shared.h"
#include "gpu_share.h"

enum word { ARRIVED, DONE, NWORDS };

static ko_cu_ptr word_of(const kolo_group *group, int rank, enum word word)
{
    return ko_gpu_share_words(group->share) +
           sizeof(uint32_t) * (NWORDS * (unsigned)rank + (unsigned)word);
}

static int put(kolo_group *group, int rank, enum word word, uint32_t value)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);

    return ko_cuda_check(
        cuda,
        cuda->stream_put_word(ko_gpu_user_stream(group->gpu), word_of(group, rank, word), value, 0),
        "a graph cannot write a word");
}

/* Until the word is 1; then it is 0. */
static int await(kolo_group *group, int rank, enum word word)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);
    int err = ko_cuda_check(cuda,
                            cuda->stream_await_word(ko_gpu_user_stream(group->gpu),
                                                    word_of(group, rank, word), 1, KO_CU_WAIT_EQ),
                            "a graph cannot wait for a word");

    return err ? err : put(group, rank, word, 0);
}

static int capture_all(kolo_group *group, const struct ko_call *call,
                       const struct ko_gpu_plan *plan)
{
    int err = KOLO_OK;

    for (int r = 0; r < group->size && !err; r++)
        if (r != group->rank)
            err = await(group, r, ARRIVED);
    if (!err)
        err = ko_coll_begin_plan(group, call, plan, ko_gpu_user_stream(group->gpu));
    for (int r = 0; r < group->size && !err; r++)
        if (r != group->rank)
            err = put(group, r, DONE, 1);
    return err;
}

static int capture_own(kolo_group *group)
{
    int err = put(group, group->rank, ARRIVED, 1);

    return err ? err : await(group, group->rank, DONE);
}

int ko_coll_capture(kolo_group *group, const struct ko_call *call, const struct ko_gpu_plan *plan,
                    int carrier)
{
    int err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    err = group->rank == carrier ? capture_all(group, call, plan) : capture_own(group);
    ko_gpu_leave(group->gpu);
    return err;
}
