/* SPDX-License-Identifier: MIT */
#include "clock.h"
#include "cuda_kernels.h"
#include "launch.h"
#include "probes.h"
#include "ranks.h"
#include "report.h"
#include "watch.h"

#include <stdatomic.h>
#include <stddef.h>

enum { SPIN_MS = 3000, SPIN_ROUNDS = 50 };

/* ---- streams that wait ----------------------------------------------------------------------- */

/* All processes' streams in turns, by words that wait and are written on the GPU; with_kernels: a
 * little one of each process's in each turn. */
static int bounce(kolo_group *group, ko_cu_ptr shared, bool with_kernels, double *us)
{
    const int rank = kolo_group_rank(group), next = (rank + 1) % kolo_group_size(group);
    const ko_cu_ptr mine = shared + 256 * (unsigned)rank, other = shared + 256 * (unsigned)next;
    struct ko_fold fold = {.count = 256, .nparts = 1, .nouts = 1};
    static uint32_t turn;
    int64_t began_ns;

    fold.parts[0] = fold.outs[0] = shared + 4096 * (1 + (unsigned)rank);
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    began_ns = ko_now_ns();
    for (int i = 0; i < PROBE_TURNS; i++) {
        turn++;
        if (rank > 0 && gpu.cuda->stream_await_word(gpu.stream, mine, turn, KO_CU_WAIT_GEQ))
            return ranks_fail("a wait");
        if (with_kernels && ko_cuda_fold(KOLO_INT32, KOLO_SUM, fold, 1, gpu.stream))
            return ranks_fail("a kernel");
        if (gpu.cuda->stream_put_word(gpu.stream, other, turn, 0))
            return ranks_fail("a word");
        if (rank == 0 && gpu.cuda->stream_await_word(gpu.stream, mine, turn, KO_CU_WAIT_GEQ))
            return ranks_fail("a wait");
    }
    if (!watch_ends(gpu.cuda, gpu.stream, WATCH_MS))
        return ranks_fail("the streams stand still");
    *us = watch_us_since(began_ns) / PROBE_TURNS;
    return 0;
}

/* ---- kernels that spin ----------------------------------------------------------------------- */

/* What host and kernel tell each other. */
struct talk {
    _Atomic uint32_t stop, done;
};

/* All processes' kernels in turns, each waiting for the one before it: where one has the GPU at a
 * time, it has to lose it first. How many rounds there were in time, and how long one was. */
static int spin(kolo_group *group, ko_cu_ptr shared, uint32_t *rounds, double *us)
{
    const unsigned rank = (unsigned)kolo_group_rank(group), n = (unsigned)kolo_group_size(group);
    struct watch_page page;
    struct talk *talk;
    struct check_spin args = {.mine = shared + 256 * rank,
                              .next = shared + 256 * ((rank + 1) % n),
                              .rounds = SPIN_ROUNDS,
                              .begins = rank == 0};
    int64_t began_ns;

    if (launch_open(gpu.cuda) || !watch_page_make(gpu.cuda, false, &page))
        return ranks_fail("no kernel that spins");
    talk = page.host;
    args.stop = page.at + offsetof(struct talk, stop);
    args.done = page.at + offsetof(struct talk, done);
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    began_ns = ko_now_ns();
    if (launch(LAUNCH_check_spin_rounds, 1, 1, &args, gpu.stream))
        return ranks_fail("a kernel that spins");
    (void)watch_or_stop(gpu.cuda, gpu.stream, SPIN_MS, &talk->stop);
    if (gpu.cuda->stream_query(gpu.stream))
        return ranks_fail("the kernel that spins");
    *rounds = atomic_load(&talk->done);
    *us = watch_us_since(began_ns) / (*rounds ? *rounds : 1);
    return 0;
}

static int report_spin(kolo_group *group, ko_cu_ptr shared)
{
    uint32_t rounds = 0;
    double us = 0;
    char what[64], note[64];
    const int failed = spin(group, shared, &rounds, &us);

    snprintf(what, sizeof what, "once around %d processes' kernels that spin",
             kolo_group_size(group));
    if (failed)
        snprintf(note, sizeof note, "FAILED");
    else if (rounds)
        snprintf(note, sizeof note, "%u rounds%s", rounds,
                 rounds < SPIN_ROUNDS ? " until they were stopped" : "");
    else
        snprintf(note, sizeof note, "not one round in that time");
    if (kolo_group_rank(group) == 0)
        report(what, us, "us", note);
    return failed;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* The words are 0 again. */
static int clear(kolo_group *group, ko_cu_ptr shared)
{
    if (kolo_barrier(group))
        return ranks_fail("barrier");
    if (kolo_group_rank(group) == 0 &&
        (gpu.cuda->fill(shared, 0, PROBE_BYTES, gpu.stream) || gpu.cuda->stream_sync(gpu.stream)))
        return ranks_fail("memory cannot be filled");
    return 0;
}

int probe_turns(kolo_group *group, ko_cu_ptr shared)
{
    char what[64];
    double us = 0;
    int failed = 0;

    for (int i = 0; i < 2 && !failed; i++) {
        failed = (i && ko_cuda_kernels_open()) || bounce(group, shared, i, &us);
        snprintf(what, sizeof what, "once around the streams of %d processes%s",
                 kolo_group_size(group), i ? ", a kernel of each" : "");
        if (kolo_group_rank(group) == 0)
            report(what, us, "us", failed ? "FAILED" : "ok");
    }
    if (!failed)
        failed = clear(group, shared);
    return failed ? failed : report_spin(group, shared);
}
