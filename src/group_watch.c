/* SPDX-License-Identifier: MIT
 *
 * A graph says that it waits by one word for all its launches, so that a look cannot tell one wait
 * from the next: the watch sets a bit in it, which the graph's next word takes away. If the bit is
 * still there, so is the wait. Kernels that wait say so themselves, once they have for long, with a
 * number that is another one in each launch. Who is waited for the words show that ranks set for
 * each other.
 */
#include "group_watch.h"

#include "group_let_go.h"
#include "log.h"
#include "status.h"
#include "thread.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_NAP_MS = 50,
    URGENT_NAP_MS = 1,    /* while other ranks wait for this one's streams, or these to be let go */
    NAPS = 8,             /* at least, in the group's limit */
    ASK_MS = 200,         /* between questions to the store, while something waits */
    GRACE_MS = 2000,      /* for another rank that has given up to tell why */
    LAST_LOOKS_MS = 1000, /* of a call, which has not seen its kernels wait from the beginning */
    QUIET_MS = 200,       /* without a wait: the graphs of a group that has failed have ended */
    MOST_QUIET_MS = 2500  /* longer than streams may stay */
};

/* One thing that waits, since when. */
struct sight {
    uint32_t number; /* of a kernel's launch */
    int64_t since_ns;
};

struct ko_watch {
    kolo_group *group;
    struct ko_gpu_page *page;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_ending;         /* under the lock */
    bool has_turn;          /* it looks in a call, which has the engine's */
    const char *kernels_of; /* a call's name */
    struct sight waits[KO_GPU_NROUNDS], kernels[KO_GPU_NROUNDS][KO_PUSH_BLOCKS];
    unsigned looks;                    /* so far, this one with them */
    unsigned gone_since[KO_FOLD_MOST]; /* by rank: the look that found it gone; 0: none has */
    int64_t asked_ns;                  /* the store, last */
};

static int nap_ms(const kolo_group *group)
{
    const int part_ms = kolo_group_timeout(group) / NAPS;

    if (part_ms < 1)
        return 1;
    return part_ms < MOST_NAP_MS ? part_ms : MOST_NAP_MS;
}

/* ---- judgement ------------------------------------------------------------------------------- */

static bool is_gone(const struct ko_watch *watch, int rank)
{
    return ko_endpoint_is_gone(watch->group->endpoint, watch->group->world_ranks[rank]);
}

static bool any_is_gone(const struct ko_watch *watch)
{
    for (int r = 0; r < watch->group->size; r++)
        if (is_gone(watch, r))
            return true;
    return false;
}

/* Whether what waits for a rank does so in vain, as it has gone. What has been read of the wait may
 * be older than the rank's last deed, unless a whole look lies between. */
static bool is_lost(struct ko_watch *watch, int rank)
{
    if (!is_gone(watch, rank))
        return false;
    if (!watch->gone_since[rank])
        watch->gone_since[rank] = watch->looks;
    return watch->looks - watch->gone_since[rank] > 1;
}

/* Milliseconds that the group's limit has been over for. */
static int64_t lateness(const struct ko_watch *watch, const struct sight *sight)
{
    return (ko_now_ns() - sight->since_ns) / 1000000 - kolo_group_timeout(watch->group);
}

/* For what ranks say that have failed. KO_AGAIN: a call is under way, and listens itself. */
static int listen_to_ranks(const struct ko_watch *watch)
{
    kolo_group *group = watch->group;
    int err;

    if (ko_group_has_failed(group))
        return ko_group_check(group);
    if (!watch->has_turn && !ko_engine_try_turn(&group->engine))
        return KO_AGAIN;
    err = ko_channel_turn(&group->collectives);
    if (err)
        ko_channel_tell_failure(&group->collectives);
    if (!watch->has_turn)
        ko_engine_finish(&group->engine);
    return err;
}

/* Before one is said to be late or lost: it has told why before it ended. */
static int hear_last_words(const struct ko_watch *watch)
{
    const struct timespec nap = {.tv_nsec = 2 * MOST_NAP_MS * 1000000L};

    if (listen_to_ranks(watch) == KO_AGAIN)
        nanosleep(&nap, NULL);
    return ko_group_check(watch->group);
}

/* While something waits: a rank that has failed tells the others, and leaves word in the store,
 * which may end with it. */
static int ask(struct ko_watch *watch)
{
    const int64_t now_ns = ko_now_ns();
    const int heard = listen_to_ranks(watch), err = heard == KO_AGAIN ? KOLO_OK : heard;

    if (err || now_ns - watch->asked_ns < ASK_MS * INT64_C(1000000))
        return err;
    watch->asked_ns = now_ns;
    return ko_group_check_store(watch->group);
}

static int fail_late(struct ko_watch *watch, int64_t late_ms, int rank, int nothers,
                     const char *what)
{
    kolo_group *group = watch->group;
    char who[160], others[32] = "", text[KO_ERROR_TEXT];

    if (hear_last_words(watch))
        return ko_group_check(group);
    if (late_ms < GRACE_MS && ko_gpu_share_has_given_up(group->share, rank))
        return KOLO_OK;
    ko_group_describe_rank(group, rank, who, sizeof who);
    if (nothers)
        snprintf(others, sizeof others, " and %d more", nothers);
    snprintf(text, sizeof text,
             "rank %d waited %d ms for %s%s in %s; KOLO_TIMEOUT_MS or kolo_group_set_timeout sets "
             "the limit",
             group->rank, kolo_group_timeout(group), who, others, what);
    return ko_group_fail_for(group, rank, KOLO_E_TIMEOUT, text);
}

/* The wait is too long, whoever it is for. */
static int fail_unanswered(const struct ko_watch *watch, const char *what)
{
    kolo_group *group = watch->group;
    char text[KO_ERROR_TEXT];

    if (hear_last_words(watch))
        return ko_group_check(group);
    snprintf(text, sizeof text,
             "rank %d waited %d ms in %s, for which ranks is not known: the GPU has not answered "
             "within %d ms more, as what looks there may stand behind streams that wait "
             "(CUDA_DEVICE_MAX_CONNECTIONS); KOLO_TIMEOUT_MS or kolo_group_set_timeout sets the "
             "limit",
             group->rank, kolo_group_timeout(group), what, KO_GPU_LOOK_MS);
    return ko_group_fail_for(group, -1, KOLO_E_TIMEOUT, text);
}

static int fail_lost(const struct ko_watch *watch, int rank, const char *what)
{
    char who[160], text[KO_ERROR_TEXT];
    const int err = hear_last_words(watch);

    if (err)
        return err;
    ko_group_describe_rank(watch->group, rank, who, sizeof who);
    snprintf(text, sizeof text,
             "%s was lost in %s: its process has ended, while rank %d waits for it", who, what,
             watch->group->rank);
    return ko_group_fail_for(watch->group, rank, KOLO_E_PEER_LOST, text);
}

/* ---- what waits, in streams and graphs ------------------------------------------------------- */

static bool is_of_message(uint32_t awaited)
{
    return (awaited >> 16 & 0xff) == KO_POINT_TO_POINT;
}

static const char *name_of(enum ko_gpu_round round, uint32_t awaited)
{
    static const char *const names[][KO_GPU_NROUNDS] = {
#define COLLECTIVE_NAME(id, name) {#name, #name " of a launched CUDA graph"},
        KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
    };
    return is_of_message(awaited) ? "a message of a launched CUDA graph"
                                  : names[awaited >> 16 & 0xff][round];
}

/* Where this rank itself works for all: who has given up. */
static void find_given_up(const struct ko_watch *watch, bool *is_missing)
{
    for (int r = 0; r < watch->group->size; r++)
        is_missing[r] =
            r != watch->group->rank && ko_gpu_share_has_given_up(watch->group->share, r);
}

/* Of a rank that works for all: who has not come to it, as far as it has not begun; else itself. */
static void find_missing_there(const struct ko_watch *watch, int owner, ko_gpu_words words,
                               bool *is_missing)
{
    bool is_any = false;

    for (int r = 0; r < watch->group->size; r++) {
        is_missing[r] = words[watch->group->rank][KO_GPU_ARRIVED] && !words[r][KO_GPU_ARRIVED];
        is_any |= is_missing[r];
    }
    is_missing[owner] |= !is_any;
}

static int find_missing(const struct ko_watch *watch, enum ko_gpu_round round, uint32_t awaited,
                        bool *is_missing)
{
    const int owner = (int)(awaited & 0xff) - 1, word = (int)ko_awaited_word(awaited);
    ko_gpu_words words;
    int err;

    for (int r = 0; r < watch->group->size; r++)
        is_missing[r] = r == owner;
    if (is_of_message(awaited))
        return KOLO_OK;
    if (owner == watch->group->rank && word == KO_GPU_DONE &&
        !ko_gpu_share_is_spread(watch->group->share)) {
        find_given_up(watch, is_missing);
        return KOLO_OK;
    }
    err = ko_gpu_share_read(watch->group->share, round, owner, words);
    if (err)
        return err;
    if (owner != watch->group->rank) {
        find_missing_there(watch, owner, words, is_missing);
        return KOLO_OK;
    }
    for (int r = 0; r < watch->group->size; r++)
        is_missing[r] = r != watch->group->rank && !words[r][word];
    return KOLO_OK;
}

static int judge_missing(struct ko_watch *watch, int64_t late_ms, const bool *is_missing,
                         const char *what)
{
    int first = -1, nothers = 0;

    for (int r = 0; r < watch->group->size; r++) {
        if (is_missing[r] && is_lost(watch, r))
            return fail_lost(watch, r, what);
        nothers += is_missing[r] && first >= 0;
        first = is_missing[r] && first < 0 ? r : first;
    }
    if (late_ms < 0 || first < 0)
        return ask(watch);
    return fail_late(watch, late_ms, first, nothers, what);
}

static int judge_wait(struct ko_watch *watch, enum ko_gpu_round round, uint32_t awaited)
{
    const int64_t late_ms = lateness(watch, &watch->waits[round]);
    const char *const what = name_of(round, awaited);
    bool is_missing[KO_FOLD_MOST];
    int err;

    if (late_ms < 0 && !any_is_gone(watch))
        return ask(watch);
    err = find_missing(watch, round, awaited, is_missing);
    if (err && err != KO_AGAIN)
        return ko_group_fail(watch->group, err, kolo_last_error());
    if (atomic_load(&watch->page->awaited[round]) != awaited) /* it has gone on meanwhile */
        return KOLO_OK;
    if (err)
        return late_ms < 0 ? ask(watch) : fail_unanswered(watch, what);
    return judge_missing(watch, late_ms, is_missing, what);
}

static int look_at_wait(struct ko_watch *watch, enum ko_gpu_round round)
{
    uint32_t awaited = atomic_load(&watch->page->awaited[round]);

    if (!awaited)
        return KOLO_OK;
    if (awaited & KO_AWAITED_SEEN)
        return judge_wait(watch, round, awaited);
    watch->waits[round].since_ns = ko_now_ns();
    (void)atomic_compare_exchange_strong(&watch->page->awaited[round], &awaited,
                                         awaited | KO_AWAITED_SEEN);
    return KOLO_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The block has waited for long, and does still. */
static int judge_kernel(struct ko_watch *watch, const struct sight *sight, int from)
{
    const int64_t late_ms = lateness(watch, sight);

    if (is_lost(watch, from))
        return fail_lost(watch, from, watch->kernels_of);
    return late_ms < 0 ? ask(watch) : fail_late(watch, late_ms, from, 0, watch->kernels_of);
}

/* What a kernel has said is taken away: it says it again as long as it waits. */
static int look_at_kernel(struct ko_watch *watch, int round, int block)
{
    const uint32_t stalled = atomic_exchange(&watch->page->stalled[round][block], 0);
    struct sight *sight = &watch->kernels[round][block];

    if (!stalled)
        return KOLO_OK;
    if (sight->since_ns && sight->number == stalled >> 8)
        return judge_kernel(watch, sight, (int)(stalled & 0xff) - 1);
    sight->number = stalled >> 8;
    sight->since_ns = ko_now_ns();
    return KOLO_OK;
}

static int look_at_kernels(struct ko_watch *watch)
{
    int err = KOLO_OK;

    for (int i = 0; i < KO_GPU_NROUNDS * KO_PUSH_BLOCKS && !err; i++)
        err = look_at_kernel(watch, i / KO_PUSH_BLOCKS, i % KO_PUSH_BLOCKS);
    return err;
}

/* The call has the turn, and so listens itself. Without the thread, which would have to be told of
 * each call, it looks at the kernels, too. What it finds has failed the group, and ends the waits,
 * whose results are none then. */
int ko_group_await_kernels(kolo_group *group, const char *name, const ko_deadline *deadline)
{
    const ko_deadline last = {.at_ns = deadline->at_ns + LAST_LOOKS_MS * INT64_C(1000000),
                              .timeout_ms = deadline->timeout_ms};
    struct ko_watch watch = {
        .group = group, .page = ko_gpu_page(group->gpu), .kernels_of = name, .has_turn = true};
    int err;

    do {
        const ko_deadline soon = ko_deadline_within(&last, nap_ms(group));

        err = ko_gpu_finish(group->gpu, &soon);
        if (err != KOLO_E_TIMEOUT)
            break;
        (void)listen_to_ranks(&watch);
        watch.looks++;
        if (!group->watch)
            (void)look_at_kernels(&watch);
    } while (!ko_deadline_passed(&last));
    return err ? err : ko_group_check(group);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void look(struct ko_watch *watch)
{
    int err = ko_group_has_failed(watch->group) ? KOLO_E_ABORTED : KOLO_OK;

    watch->looks++;
    for (int round = 0; round < KO_GPU_NROUNDS && !err; round++)
        err = look_at_wait(watch, (enum ko_gpu_round)round);
    if (!err)
        err = look_at_kernels(watch);
    if (err) /* also for graphs that are launched from now on */
        (void)ko_group_let_go(watch->group);
}

/* Whether there is something to be done soon. */
static bool is_urgent(const struct ko_watch *watch)
{
    return ko_group_tell_progress(watch->group) ||
           (ko_group_has_failed(watch->group) && ko_gpu_page_is_awaited(watch->page));
}

/* With the lock. */
static void nap(struct ko_watch *watch)
{
    const ko_deadline deadline =
        ko_deadline_in(is_urgent(watch) ? URGENT_NAP_MS : nap_ms(watch->group));
    const struct timespec until = ko_deadline_timespec(&deadline);

    while (!watch->is_ending && !ko_deadline_passed(&deadline))
        pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
}

static void *keep_watch(void *argument)
{
    struct ko_watch *watch = argument;

    ko_log_set_rank(watch->group->rank);
    pthread_mutex_lock(&watch->lock);
    while (!watch->is_ending) {
        pthread_mutex_unlock(&watch->lock);
        look(watch);
        pthread_mutex_lock(&watch->lock);
        nap(watch);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static void warn_of_gpu(void)
{
    ko_log(KO_LOG_WARN,
           "the GPU has not done in %d ms what ends the waits of streams in a group that has "
           "failed, and may stand behind other streams (CUDA_DEVICE_MAX_CONNECTIONS); the group's "
           "memory is left to it",
           KO_GPU_LET_GO_MS);
}

/* What has been launched comes to its end before the watch does, one wait after another. */
static void let_graphs_end(struct ko_watch *watch)
{
    const ko_deadline deadline = ko_deadline_in(MOST_QUIET_MS);
    const struct timespec nap = {.tv_nsec = 1000000};
    int64_t quiet_ns = ko_now_ns();

    while (ko_now_ns() - quiet_ns < QUIET_MS * INT64_C(1000000) && !ko_deadline_passed(&deadline)) {
        if (ko_gpu_page_is_awaited(watch->page)) {
            if (!ko_group_let_go(watch->group)) {
                warn_of_gpu();
                return;
            }
            quiet_ns = ko_now_ns();
        }
        nanosleep(&nap, NULL);
    }
}

static void free_watch(struct ko_watch *watch)
{
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

/* Under the group's lock. */
static int begin(kolo_group *group, enum ko_gpu_round round)
{
    struct ko_watch *watch;
    int err;

    ko_gpu_share_has_round(group->share, round);
    if (group->watch || group->size == 1)
        return KOLO_OK;
    watch = ko_alloc(sizeof *watch, "a watch over graphs");
    if (!watch)
        return KOLO_E_NOMEM;
    watch->group = group;
    watch->page = ko_gpu_page(group->gpu);
    watch->kernels_of = "a short call or launched CUDA graph";
    pthread_mutex_init(&watch->lock, NULL);
    ko_condition_init(&watch->changed);
    err = ko_thread_start(&watch->thread, keep_watch, watch, "a watch over graphs");
    if (err)
        free_watch(watch);
    else
        group->watch = watch;
    return err;
}

int ko_group_watch(kolo_group *group, enum ko_gpu_round round)
{
    int err;

    pthread_mutex_lock(&group->lock);
    err = begin(group, round);
    pthread_mutex_unlock(&group->lock);
    return err;
}

bool ko_group_has_waiting_graph(const kolo_group *group)
{
    return group->watch && ko_gpu_page_is_awaited(group->watch->page);
}

void ko_group_watch_end(kolo_group *group)
{
    struct ko_watch *watch = group->watch;

    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->is_ending = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    atomic_store(&watch->page->stop, 1);
    if (ko_group_has_failed(group))
        let_graphs_end(watch);
    free_watch(watch);
    group->watch = NULL;
}
