/* SPDX-License-Identifier: MIT
 *
 * gpu_hosts.h: ranks with GPUs on several hosts, on the double of NVIDIA's driver, and what each of
 * them brings by way of its host's memory.
 */
#ifndef GPU_HOSTS_H
#define GPU_HOSTS_H

#include "ranks.h"

#include <stdint.h>

enum { GPU_HOSTS_SLICE_BYTES = 4096 };

/* Runs the body on processes, of which rank r sits on the host that hosts[r] names, with so many
 * GPUs each; it gets hosts as its argument. Asserts. */
void gpu_hosts_run_with(const char *ngpus, const char *hosts, ranks_body body);
/* With one GPU, and with three. */
void gpu_hosts_run(const char *hosts, ranks_body body);

/* For struct ranks: rank 0 has a host to itself, and the others share one. */
int gpu_hosts_settle_apart(int rank, void *unused);

/* Runs the body on `ranks`, processes, in so many places: with one GPU, with ngpus, and with as
 * many on each of two hosts, of which rank 0 has one to itself. Asserts. */
enum { GPU_HOSTS_PLACES = 3 };
void gpu_hosts_run_places(const struct ranks *ranks, int nplaces, const char *ngpus,
                          ranks_body body);

/* How many of the ranks sit where rank r does, itself too. */
uint64_t gpu_hosts_mates(const char *hosts, int r);

/* 0 if since `before` (gpu_bytes_now().with_host) this rank has copied `share` bytes by way of its
 * host's memory, and no more than `slack` beside that or less; else ranks_fail, of `what`. */
int gpu_hosts_expect(kolo_group *group, const char *what, const char *hosts, uint64_t before,
                     uint64_t share, uint64_t slack);

#endif
