/* SPDX-License-Identifier: MIT */
#include "gpu_hosts.h"

#include "exam.h"
#include "gpu_double.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int settle(int rank, void *host)
{
    const char name[] = {((const char *)host)[rank], 0};

    return setenv("KOLO_HOST", name, 1);
}

void gpu_hosts_run_with(const char *ngpus, const char *hosts, ranks_body body)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = (int)strlen(hosts), .settle = settle};

    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm,tcp", "", GPU_HOSTS_SLICE_BYTES);
    assert_int_equal(ranks_run(&ranks, body, (void *)(uintptr_t)hosts), 0);
}

void gpu_hosts_run(const char *hosts, ranks_body body)
{
    gpu_hosts_run_with("1", hosts, body);
    gpu_hosts_run_with("3", hosts, body);
}

int gpu_hosts_settle_apart(int rank, void *unused)
{
    (void)unused;
    return setenv("KOLO_HOST", rank ? "north" : "south", 1);
}

void gpu_hosts_run_places(const struct ranks *ranks, int nplaces, const char *ngpus,
                          ranks_body body)
{
    struct ranks there = *ranks;

    exam_set_variables("shm,tcp", "", GPU_HOSTS_SLICE_BYTES);
    for (int place = 0; place < nplaces; place++) {
        setenv("FAKECUDA_DEVICES", place ? ngpus : "1", 1);
        there.settle = place == 2 ? gpu_hosts_settle_apart : NULL;
        assert_int_equal(ranks_run(&there, body, NULL), 0);
    }
}

uint64_t gpu_hosts_mates(const char *hosts, int r)
{
    uint64_t mates = 0;

    for (const char *host = hosts; *host; host++)
        mates += *host == hosts[r];
    return mates;
}

int gpu_hosts_expect(kolo_group *group, const char *what, const char *hosts, uint64_t before,
                     uint64_t share, uint64_t slack)
{
    const uint64_t have = gpu_bytes_now().with_host - before;

    return have <= share + slack && have + slack >= share
               ? 0
               : ranks_fail("%s on %s: rank %d copies %zu bytes, its share is %zu", what, hosts,
                            kolo_group_rank(group), (size_t)have, (size_t)share);
}
