/* SPDX-License-Identifier: MIT
 *
 * What becomes of ranks that share a GPU when the last of them ends in a collective of the stream:
 * its process is killed, or another thread of it aborts the group. The others' streams come to
 * their end in time, their calls fail with an error that names it, their processes live, and all
 * who are left make a new group, in which the same streams do what they are to do.
 *   ends processes|threads RANKS      threads: aborts alone, a process dies with all of them
 * The rank ends while its own stream stands still, so that the others wait in the call for sure,
 * and once more somewhere in calls that follow each other.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "report.h"
#include "watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { COUNT = 1000003, AT_ONCE = 4, SOON_MS = 150, AGAIN_MS = 20000 };

enum end { KILLED, ABORTED, NENDS };
enum moment { HELD, RUNNING, NMOMENTS };

static const char *const end_names[NENDS] = {"is killed", "aborts"};
static const char *const moment_names[NMOMENTS] = {"before its part of a call",
                                                   "somewhere in many calls"};

static struct wish {
    enum ranks_kind kind;
    const char *kind_name;
    int n, port; /* where those meet who are left */
    enum end end;
    enum moment moment;
} wish;

/* Of all ranks, also those that are processes. */
static struct found {
    _Atomic int64_t ended_ns, longest_ns; /* till a stream had come to its end */
    atomic_int went_on;
} * found;

/* Of a rank. */
struct side {
    kolo_group *group;
    void *memory;
    struct watch_page gate; /* for which its stream waits, if it is to stand still */
};

static bool is_last(const kolo_group *group)
{
    return kolo_group_rank(group) == wish.n - 1;
}

static int enter(kolo_group *group, struct side *side)
{
    ko_cu_ptr memory;

    if (gpu_rank_enter(group))
        return 1;
    side->group = group;
    if (!watch_page_make(gpu_rank.cuda, false, &side->gate) ||
        gpu_rank.cuda->alloc(&memory, COUNT * sizeof(int)))
        return ranks_fail("no memory");
    side->memory = (void *)(uintptr_t)memory;
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void note_latency(void)
{
    const int64_t ended_ns = atomic_load(&found->ended_ns), ns = ko_now_ns() - ended_ns;
    int64_t longest = atomic_load(&found->longest_ns);

    while (ended_ns && ns > longest &&
           !atomic_compare_exchange_weak(&found->longest_ns, &longest, ns))
        ;
}

/* Several calls, of which the stream comes to an end in time, whatever comes of them: *status and
 * kolo_last_error are the first failed one's. */
static int reduce(struct side *side, int *status)
{
    kolo_work *works[AT_ONCE] = {NULL};
    int errors[AT_ONCE];

    for (int k = 0; k < AT_ONCE; k++)
        errors[k] = kolo_all_reduce_async(side->group, side->memory, side->memory, COUNT,
                                          KOLO_INT32, KOLO_SUM, &works[k]);
    if (!watch_patiently(gpu_rank.cuda, gpu_rank.stream, WATCH_MS))
        return ranks_fail("the stream of rank %d stands still", kolo_group_rank(side->group));
    for (int k = AT_ONCE - 1; k >= 0; k--) {
        if (!errors[k])
            errors[k] = kolo_work_wait(works[k], -1);
        kolo_work_free(works[k]);
        *status = errors[k] ? errors[k] : *status;
    }
    return 0;
}

static void *end_soon(void *argument)
{
    struct side *side = argument;

    ranks_nap_ms(SOON_MS + (int)(ko_now_ns() % 20));
    atomic_store(&found->ended_ns, ko_now_ns());
    if (wish.end == KILLED)
        raise(SIGKILL);
    kolo_group_abort(side->group, "as the exam has it");
    atomic_store((_Atomic uint32_t *)side->gate.host, 1);
    return NULL;
}

static int prepare_end(struct side *side, pthread_t *thread)
{
    if (wish.moment == HELD &&
        gpu_rank.cuda->stream_await_word(gpu_rank.stream, side->gate.at, 1, KO_CU_WAIT_EQ))
        return ranks_fail("no gate");
    return pthread_create(thread, NULL, end_soon, side) ? ranks_fail("no thread") : 0;
}

/* The rank that aborts knows that it was itself. */
static int expect_name(struct side *side, int status)
{
    char name[24];

    snprintf(name, sizeof name, "rank %d", wish.n - 1);
    return ranks_expect(status, wish.end == KILLED ? KOLO_E_PEER_LOST : KOLO_E_ABORTED,
                        is_last(side->group) ? "as the exam has it" : name);
}

/* Calls until one fails. */
static int reduce_to_the_end(struct side *side)
{
    int failed = 0, status = KOLO_OK;

    while (!failed && !status)
        failed = reduce(side, &status);
    note_latency();
    return failed ? failed : expect_name(side, status);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static int go_on(int rank, int n)
{
    const struct exam exam = {.what = KO_ALL_REDUCE,
                              .dtype = KOLO_FLOAT32,
                              .op = KOLO_SUM,
                              .count = COUNT,
                              .memory = &gpu_rank_memory};
    char method[96];
    kolo_group *group;
    int failed;

    snprintf(method, sizeof method, "tcp://127.0.0.1:%d?rank=%d&world_size=%d", wish.port, rank, n);
    if (kolo_group_join(method, AGAIN_MS, &group))
        return ranks_fail("rank %d makes no new group", rank);
    failed = kolo_group_set_stream(group, gpu_rank.stream)
                 ? ranks_fail("a new group takes no stream")
                 : exam_take(group, &exam);
    atomic_fetch_add(&found->went_on, !failed);
    kolo_group_free(group);
    return failed;
}

static int live_through(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    struct side side = {0};
    pthread_t thread;
    int status = KOLO_OK, failed = enter(group, &side) || reduce(&side, &status);

    (void)unused;
    if (!failed && (status || kolo_barrier(group)))
        failed = ranks_fail("calls before");
    if (!failed && is_last(group))
        failed = prepare_end(&side, &thread);
    if (failed)
        return failed;
    failed = reduce_to_the_end(&side);
    if (is_last(group))
        pthread_join(thread, NULL);
    if (!failed)
        failed = go_on(rank, wish.end == KILLED ? wish.n - 1 : wish.n);
    return gpu_rank_leave(failed);
}

/* ---- the run --------------------------------------------------------------------------------- */

static int run(void)
{
    const int left = wish.end == KILLED ? wish.n - 1 : wish.n;
    const struct ranks ranks = {
        .kind = wish.kind, .n = wish.n, .tolerated = wish.end == KILLED ? 1 : 0};
    char what[96], note[96];
    bool is_right;

    memset(found, 0, sizeof *found);
    wish.port = ranks_reserve_port();
    is_right = !ranks_run(&ranks, live_through, NULL) && atomic_load(&found->went_on) == left;
    snprintf(what, sizeof what, "streams' ends when one of %d %s %s %s", wish.n, wish.kind_name,
             end_names[wish.end], moment_names[wish.moment]);
    snprintf(note, sizeof note, "%s: %d of %d name it and go on in a new group",
             is_right ? "ok" : "FAILED", atomic_load(&found->went_on), left);
    report(what, (double)atomic_load(&found->longest_ns) / 1e6, "ms", note);
    return !is_right;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc < 3 || atoi(argv[2]) < 2)
        return 2;
    wish.kind = strcmp(argv[1], "threads") ? RANKS_PROCESSES : RANKS_THREADS;
    wish.kind_name = argv[1];
    wish.n = atoi(argv[2]);
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return 2;
    exam_set_variables("shm", "", 65536);
    for (int end = wish.kind == RANKS_THREADS ? ABORTED : KILLED; end < NENDS; end++)
        for (int moment = 0; moment < NMOMENTS; moment++) {
            wish.end = (enum end)end;
            wish.moment = (enum moment)moment;
            failed |= run();
        }
    return failed;
}
