/* SPDX-License-Identifier: MIT
 *
 * What kolo takes for granted about GPUs, or would like to know: each probe is a fact about the
 * driver and the GPU at hand. What may hang is watched: it is said to, and the next probe goes on.
 *   probes [--name|--kernels|--streams]
 */
#include "probes.h"

#include "clock.h"
#include "cuda_kernels.h"
#include "launch.h"
#include "ranks.h"
#include "report.h"
#include "watch.h"

#include <string.h>

struct probe_gpu gpu;

static int enter(void)
{
    return ko_cuda_open(&gpu.cuda) || gpu.cuda->context_retain(&gpu.context, 0) ||
                   gpu.cuda->context_push(gpu.context) ||
                   gpu.cuda->stream_create(&gpu.stream, KO_CU_STREAM_NON_BLOCKING)
               ? ranks_fail("no stream")
               : 0;
}

static void probe_loading(void)
{
    const int64_t began_ns = ko_now_ns();
    const bool is_right = !ko_cuda_kernels_open();

    report("loading the kernels", watch_us_since(began_ns) / 1000, "ms",
           is_right ? "ok" : "FAILED");
}

static int probe_alone(kolo_group *group, void *unused)
{
    (void)group;
    (void)unused;
    if (enter())
        return 1;
    probe_loading();
    return probe_waits() || probe_lines();
}

static int probe_queues(kolo_group *group, void *unused)
{
    (void)group;
    (void)unused;
    return enter() || probe_streams();
}

static int probe_together(kolo_group *group, void *unused)
{
    ko_cu_ptr shared = 0;
    int failed = enter();

    (void)unused;
    if (!failed)
        failed = probe_shared_memory(group, &shared);
    if (!failed)
        failed = probe_turns(group, shared);
    if (!failed && kolo_group_size(group) == 2)
        failed = probe_opening(group) || probe_pieces(group);
    return failed;
}

/* Alone on its line: what tests/gpu/check calls its records by. */
static int tell_name(void)
{
    char name[128];
    ko_cu_device device;

    if (enter() || gpu.cuda->device(&device, 0) ||
        gpu.cuda->device_name(name, sizeof name, device)) {
        fprintf(stderr, "%s\n", kolo_last_error());
        return 1;
    }
    puts(name);
    return 0;
}

/* Whether the build has kernels, and why not. */
static int tell_kernels(void)
{
    const struct ko_cuda *cuda;

    if (!ko_cuda_kernels_open() && !ko_cuda_open(&cuda) && !launch_open(cuda))
        return 0;
    fprintf(stderr, "%s\n", kolo_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    int failed;

    if (argc > 1 && !strcmp(argv[1], "--kernels"))
        return tell_kernels();
    if (argc > 1 && !strcmp(argv[1], "--streams"))
        return ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 1}, probe_queues, NULL) != 0;
    if (argc > 1)
        return strcmp(argv[1], "--name") ? 2 : tell_name();
    failed = ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 1}, probe_alone, NULL);

    for (int n = 2; n <= 4; n += 2)
        failed |= ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, probe_together, NULL);
    return failed != 0;
}
