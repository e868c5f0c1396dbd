/* SPDX-License-Identifier: MIT
 *
 * Messages between GPUs are lines of 16 bytes, stored at once, of which each half has its own flag:
 * kolo relies on halves that come as a whole, and could do with one flag if lines did
 * (kernels/push.cuh). No number of looks proves that; one can disprove it.
 */
#include "launch.h"
#include "probes.h"
#include "ranks.h"
#include "report.h"
#include "watch.h"

#include <stddef.h>

enum { TIMES = 50000, LINES_MS = 5000, LINES_BYTES = CHECK_LINES * 16 /* no more than a page */ };

/* What host and kernels tell each other. */
struct talk {
    _Atomic uint32_t stop, ready;
};

static int sum_up(ko_cu_ptr looks, struct check_looks *sum)
{
    static struct check_looks each[CHECK_LINES];

    if (gpu.cuda->copy((uintptr_t)each, looks, sizeof each, gpu.stream) ||
        gpu.cuda->stream_sync(gpu.stream))
        return ranks_fail("no looks");
    *sum = (struct check_looks){0};
    for (int i = 0; i < CHECK_LINES; i++) {
        sum->n += each[i].n;
        sum->differ += each[i].differ;
        sum->torn += each[i].torn;
    }
    return 0;
}

/* Who looks is there first. */
static int watch_lines(ko_cu_ptr lines, struct check_looks *sum)
{
    struct check_lines args = {.lines = lines, .times = TIMES};
    struct watch_page page;
    struct talk *talk;
    ko_cu_stream writer;
    ko_cu_ptr looks;

    if (!watch_page_make(gpu.cuda, false, &page) ||
        gpu.cuda->stream_create(&writer, KO_CU_STREAM_NON_BLOCKING) ||
        gpu.cuda->alloc(&looks, CHECK_LINES * sizeof *sum) ||
        gpu.cuda->fill(looks, 0, CHECK_LINES * sizeof *sum, gpu.stream) ||
        gpu.cuda->fill(lines, 0, LINES_BYTES, gpu.stream) || gpu.cuda->stream_sync(gpu.stream))
        return ranks_fail("no lines");
    talk = page.host;
    args.looks = looks;
    args.stop = page.at + offsetof(struct talk, stop);
    args.ready = page.at + offsetof(struct talk, ready);
    if (launch(LAUNCH_check_look_at_lines, 1, CHECK_LINES, &args, gpu.stream) ||
        launch(LAUNCH_check_write_lines, 1, CHECK_LINES, &args, writer))
        return ranks_fail("no kernels with lines");
    (void)watch_or_stop(gpu.cuda, gpu.stream, LINES_MS, &talk->stop);
    (void)watch_or_stop(gpu.cuda, writer, LINES_MS, &talk->stop);
    return sum_up(looks, sum);
}

static int report_lines(const char *memory, ko_cu_ptr lines)
{
    struct check_looks sum = {0};
    const int failed = watch_lines(lines, &sum);
    char what[96], note[96];

    snprintf(what, sizeof what, "lines of %s, looked at while they are written", memory);
    if (failed)
        snprintf(note, sizeof note, "FAILED");
    else if (sum.torn)
        snprintf(note, sizeof note, "FAILED: %llu halves are torn", (unsigned long long)sum.torn);
    else if (!sum.n)
        snprintf(note, sizeof note, "they were not written meanwhile");
    else
        snprintf(note, sizeof note, "ok: no half is torn; %llu have halves that differ",
                 (unsigned long long)sum.differ);
    report(what, (double)sum.n, "looks", note);
    return failed;
}

int probe_lines(void)
{
    struct watch_page page;
    ko_cu_ptr memory;
    int failed;

    if (launch_open(gpu.cuda) || !watch_page_make(gpu.cuda, false, &page) ||
        gpu.cuda->alloc(&memory, LINES_BYTES))
        return ranks_fail("no memory for lines");
    failed = report_lines("device memory", memory);
    return failed ? failed : report_lines("the host's memory", page.at);
}
