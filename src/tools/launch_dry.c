/* SPDX-License-Identifier: MIT
 *
 * What would be started, in words that a shell takes: the port is one that is free now, as it would
 * be chosen. Of machines that are to agree on their numbers and on rank 0's port, what cannot be
 * known yet is said.
 */
#include "launch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say_unknown(const struct ko_launch_options *options)
{
    fprintf(stderr,
            "kolorun: MASTER_ADDR and MASTER_PORT are where machines meet, in place of what "
            "machine 0 will choose%s\n",
            options->node_rank < 0 ? ", and this machine is taken for machine 0" : "");
}

int ko_launch_dry(const struct ko_launch_options *options)
{
    struct ko_logs logs = {.is_kept = false};
    struct ko_attempt attempt = {.node_rank = options->node_rank < 0 ? 0 : options->node_rank,
                                 .master_addr = options->master_addr,
                                 .port = options->master_port,
                                 .logs = &logs};
    int port_fd = -1;

    if (options->meets)
        say_unknown(options);
    else if (options->master_port == 0 && (port_fd = ko_port_hold(&attempt.port)) < 0)
        return KO_EXIT_SELF;
    for (int i = 0; i < options->nprocs; i++) {
        const struct ko_worker worker = {.local_rank = i,
                                         .rank = attempt.node_rank * options->nprocs + i};

        ko_worker_print(&worker, options, &attempt);
    }
    if (port_fd >= 0)
        close(port_fd);
    if (!fflush(stdout))
        return 0;
    fprintf(stderr, "kolorun: standard output: %s\n", strerror(errno));
    return KO_EXIT_SELF;
}
