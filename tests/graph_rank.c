/* SPDX-License-Identifier: MIT */
#include "graph_rank.h"

#include "clock.h"
#include "exam.h"
#include "gpu_double.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

_Thread_local struct graph_rank graph_rank;

int graph_rank_enter(kolo_group *group)
{
    graph_rank.rank = kolo_group_rank(group);
    graph_rank.n = kolo_group_size(group);
    graph_rank.to = (graph_rank.rank + 1) % graph_rank.n;
    graph_rank.from = (graph_rank.rank + graph_rank.n - 1) % graph_rank.n;
    graph_rank.exec = NULL;
    return gpu_rank_enter(group) || gpu_rank.cuda->alloc(&graph_rank.out, GRAPH_BYTES) ||
                   gpu_rank.cuda->alloc(&graph_rank.in, GRAPH_BYTES) ||
                   gpu_rank.cuda->alloc(&graph_rank.more, (size_t)GRAPH_MOST_RANKS * GRAPH_BYTES) ||
                   gpu_rank.cuda->stream_create(&graph_rank.stream, KO_CU_STREAM_NON_BLOCKING)
               ? ranks_fail("no memory")
               : 0;
}

int graph_rank_leave(kolo_group *group, int failed)
{
    graph_rank_drop();
    return failed || !kolo_barrier(group) ? failed : ranks_fail("barrier");
}

int graph_rank_launch(void)
{
    return gpu_rank.cuda->graph_launch(graph_rank.exec, graph_rank.stream) ? ranks_fail("a launch")
                                                                           : 0;
}

int graph_rank_finish(void)
{
    return gpu_rank.cuda->stream_sync(graph_rank.stream) ? ranks_fail("the stream") : 0;
}

void graph_rank_drop(void)
{
    if (graph_rank.exec)
        (void)gpu_rank.cuda->graph_exec_destroy(graph_rank.exec);
    graph_rank.exec = NULL;
}

/* The double counts for each process. */
static int check_bytes(struct gpu_bytes before, size_t nbytes)
{
    const struct gpu_bytes now = gpu_bytes_since(before);
    const uint64_t read = now.read + now.read_there;

    /* and words */
    return read >= nbytes && read <= nbytes + 64 && !now.with_host
               ? 0
               : ranks_fail("%llu bytes were read, and %llu went by the host, of %zu",
                            (unsigned long long)read, (unsigned long long)now.with_host, nbytes);
}

int graph_rank_launch_counted(size_t nbytes)
{
    int failed = graph_rank_finish();
    const struct gpu_bytes before = gpu_bytes_now();

    failed = failed || graph_rank_launch() || graph_rank_finish();
    return failed || check_bytes(before, nbytes);
}

static unsigned char value(int rank, int round, size_t i)
{
    return (unsigned char)((size_t)rank * 50 + (size_t)round * 13 + i);
}

int graph_rank_fill(int round)
{
    unsigned char values[GRAPH_BYTES];

    for (size_t i = 0; i < GRAPH_BYTES; i++)
        values[i] = value(graph_rank.rank, round, i);
    return gpu_rank.cuda->copy(graph_rank.out, (uintptr_t)values, GRAPH_BYTES, graph_rank.stream) ||
                   gpu_rank.cuda->fill(graph_rank.in, 255, GRAPH_BYTES, graph_rank.stream) ||
                   gpu_rank.cuda->fill(graph_rank.more, 255, (size_t)GRAPH_MOST_RANKS * GRAPH_BYTES,
                                       graph_rank.stream) ||
                   graph_rank_finish()
               ? ranks_fail("content")
               : 0;
}

int graph_rank_check_part(ko_cu_ptr memory, int from, int round, size_t skipped, size_t nbytes)
{
    unsigned char values[GRAPH_BYTES];

    if (gpu_rank.cuda->copy((uintptr_t)values, memory, GRAPH_BYTES, graph_rank.stream) ||
        graph_rank_finish())
        return ranks_fail("the stream");
    for (size_t i = 0; i < GRAPH_BYTES; i++)
        if (values[i] != (i < nbytes ? value(from, round, skipped + i) : 255))
            return ranks_fail("launch %d, byte %zu of %zu from rank %d is %d", round, i, nbytes,
                              from, values[i]);
    return 0;
}

int graph_rank_check(ko_cu_ptr memory, int from, int round, size_t nbytes)
{
    return graph_rank_check_part(memory, from, round, 0, nbytes);
}

void graph_rank_run_on(enum ranks_kind kind, int n, const char *ngpus, ranks_body body,
                       void *argument)
{
    exam_set_variables("shm", "", 4096);
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, argument), 0);
}

void graph_rank_run(enum ranks_kind kind, int n, ranks_body body)
{
    graph_rank_run_on(kind, n, "1", body, NULL);
    graph_rank_run_on(kind, n, "3", body, NULL);
}

void graph_rank_lose(int n, ranks_body body)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = n, .tolerated = 1};

    exam_set_variables("shm", "", 4096);
    for (int i = 0; i < 2; i++) {
        setenv("FAKECUDA_DEVICES", i ? "3" : "1", 1);
        assert_int_equal(ranks_run(&ranks, body, NULL), 0);
    }
}

void *graph_rank_kill_soon(void *unused)
{
    ranks_nap_ms((int)(ko_now_ns() / 1000 % 50));
    raise(SIGKILL);
    return unused;
}
