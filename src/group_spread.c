/* SPDX-License-Identifier: MIT */
#include "caches.h"
#include "group.h"
#include "hosts.h"

#include <string.h>

/* The CPUs on which two ranks may run; how many they are. */
static int join_cores(const struct ko_contact *a, const struct ko_contact *b,
                      uint64_t both[KO_CONTACT_CORES / 64])
{
    int n = 0;

    for (size_t w = 0; w < KO_CONTACT_CORES / 64; w++) {
        both[w] = a->cores[w] | b->cores[w];
        n += __builtin_popcountll(both[w]);
    }
    return n;
}

/* More than two ranks take turns on a core. While hosts are not known the two tell: ranks that may
 * run on the same cores share those with all others, ranks that are bound have some for themselves.
 */
static bool is_crowded(const kolo_group *group, const struct ko_contact *peer, int nranks,
                       int ncores)
{
    struct ko_costs costs = {.cores = ncores};

    if (group->hosts)
        ko_group_costs(group, &costs);
    else if (memcmp(group->endpoint->own.cores, peer->cores, sizeof peer->cores) != 0)
        return false;
    return nranks > 2 * costs.cores;
}

uint32_t ko_group_spread(const kolo_group *group, const struct ko_contact *peer)
{
    const struct ko_endpoint *endpoint = group->endpoint;
    const struct ko_hosts *hosts = group->hosts;
    const int nranks = hosts ? host_size(hosts, hosts->host[group->rank]) : group->size;
    uint64_t both[KO_CONTACT_CORES / 64];
    const int ncores = join_cores(&endpoint->own, peer, both);
    const size_t one = (size_t)(nranks - 1) * endpoint->own.slice_bytes; /* place of each peer */

    if (nranks < 2 || !ncores || ko_cache_is_one(both, KO_CONTACT_CORES / 64) ||
        is_crowded(group, peer, nranks, ncores))
        return 1;
    return (uint32_t)((endpoint->places_bytes + one - 1) / one);
}
