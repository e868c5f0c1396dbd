/* SPDX-License-Identifier: MIT
 *
 * In its stream a rank's part in a call ends with a wait for the others to be done with theirs.
 * Those that have failed do not tell that any more, nor does who has told it know what has been let
 * go meanwhile; so behind the wait is another one, for a word that lets all pass until the group
 * has failed, and then as many calls as this rank's host says. It sees by words of the hosts'
 * (gpu_writers.h) how far the others are, which follow what their streams say. Who waits there has
 * its own part behind it, and said so, and what comes before in a stream is let go at once: so
 * ranks that have all failed do not wait for each other in a circle, however many calls they have
 * in their streams.
 */
#include "group_let_go.h"

#include "gpu_writers.h"
#include "group_watch.h"
#include "log.h"

static int own_place(const kolo_group *group)
{
    return ko_group_place_of(group, group->rank);
}

static bool has_anyone_given_up(const kolo_group *group)
{
    int which;

    return ko_group_has_failed(group) ||
           ko_gpu_writers_any_gave_up(group->writers, ko_group_count_mates(group), own_place(group),
                                      &which);
}

void ko_group_tell_last_progress(kolo_group *group)
{
    if (group->writers)
        ko_gpu_writers_have_done(group->writers, own_place(group),
                                 atomic_load(&ko_gpu_page(group->gpu)->done));
}

bool ko_group_tell_progress(kolo_group *group)
{
    if (!group->writers || !has_anyone_given_up(group))
        return false;
    ko_group_tell_last_progress(group);
    return ko_gpu_writers_stream(group->writers, own_place(group), group->nstreamed);
}

bool ko_group_is_streaming(const kolo_group *group, int rank, uint32_t call)
{
    return ko_gpu_writers_stream(group->writers, ko_group_place_of(group, rank), call) &&
           !ko_endpoint_is_gone(group->endpoint, group->world_ranks[rank]);
}

/* Of the others. -1: none. */
static int find_streaming(const kolo_group *group, uint32_t call)
{
    for (int i = 0; i < ko_group_count_mates(group); i++) {
        const int rank = ko_group_mate_at(group, i);

        if (rank != group->rank && ko_group_is_streaming(group, rank, call))
            return rank;
    }
    return -1;
}

void ko_group_warn_of_writer(kolo_group *group, int rank)
{
    if (!atomic_exchange(&group->has_warned, true))
        ko_log(KO_LOG_WARN,
               "rank %d still has a GPU write into buffers of a call that has failed here", rank);
}

/* Whether streams may go past the call. */
static bool is_settled(kolo_group *group, uint32_t call)
{
    const ko_deadline settling = ko_gpu_settling(group->gpu);
    const int rank = group->writers ? find_streaming(group, call) : -1;

    if (rank >= 0 && ko_deadline_passed(&settling))
        ko_group_warn_of_writer(group, rank);
    return rank < 0 || ko_deadline_passed(&settling);
}

/* The stream says first that its part is done, and then what it waits for. */
static bool is_at_end(const struct ko_gpu_page *page)
{
    const uint32_t awaited = atomic_load(&page->awaited[KO_GPU_CALLS]);

    return awaited && ko_awaited_word(awaited) == KO_GPU_DONE;
}

/* What is let go at once; LEFT has to wait for others; the GPU does not do it. */
enum outcome { WENT, LEFT, UNANSWERED };

/* A call before the last that this rank's part is done of it has passed. */
static enum outcome let_go_once(kolo_group *group)
{
    const struct ko_gpu_page *page = ko_gpu_page(group->gpu);
    const bool is_last = is_at_end(page);
    const uint32_t done = atomic_load(&page->done);
    const bool may_pass = is_settled(group, done);

    if (!ko_gpu_share_let_go(group->share, group->rank, may_pass ? done : done - 1))
        return UNANSWERED;
    return may_pass || !is_last || atomic_load(&page->awaited[KO_GPU_GRAPHS]) ? WENT : LEFT;
}

bool ko_group_let_go(kolo_group *group)
{
    const ko_deadline deadline = ko_deadline_in(KO_GPU_LET_GO_MS);
    enum outcome outcome = WENT;

    if (!group->share || !ko_gpu_share_stop(group->share))
        return true;
    if (group->writers)
        ko_gpu_writers_give_up(group->writers, own_place(group));
    while (outcome == WENT && ko_gpu_page_is_awaited(ko_gpu_page(group->gpu)) &&
           !ko_deadline_passed(&deadline)) {
        (void)ko_group_tell_progress(group);
        outcome = let_go_once(group);
    }
    (void)ko_group_tell_progress(group);
    (void)ko_group_check(group); /* the thread's text again */
    return outcome != UNANSWERED;
}
