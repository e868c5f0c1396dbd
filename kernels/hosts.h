/* SPDX-License-Identifier: MIT
 *
 * hosts.h: where the ranks of a group sit. Hosts are numbered in the order of their lowest ranks,
 * the ranks of one host in their own order: a rank's place on its host.
 */
#ifndef KO_HOSTS_H
#define KO_HOSTS_H

#include "portable.h"

#include <stdbool.h>

struct ko_hosts {
    int n;             /* hosts */
    int least, most;   /* ranks of the smallest one, and of the largest */
    bool has_windows;  /* some ranks of one host share memory */
    const int *host;   /* by rank */
    const int *place;  /* by rank */
    const int *begins; /* by host, and one more: where its ranks begin in `ranks` */
    const int *ranks;  /* by host, then by place */
};

/* How many ranks sit on a host. */
KO_FN int host_size(const struct ko_hosts *hosts, int host)
{
    return hosts->begins[host + 1] - hosts->begins[host];
}

KO_FN int rank_at(const struct ko_hosts *hosts, int host, int place)
{
    return hosts->ranks[hosts->begins[host] + place];
}

#endif
