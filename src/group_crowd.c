/* SPDX-License-Identifier: MIT
 *
 * Counting what stands in the store would cost each rank a request for each other, so that is left
 * to the first collective. Until then a pair tells what it can: two that may run on the same
 * processors share those with all ranks of the host, two that may not are bound, each to its own.
 */
#include "group.h"
#include "hosts.h"

#include <string.h>
#include <unistd.h>

static bool is_crowded_host(const kolo_group *group)
{
    const int host = group->hosts->host[group->rank];

    return host_size(group->hosts, host) > ko_group_count_cores(group, host);
}

void ko_group_note_crowd(kolo_group *group)
{
    struct ko_endpoint *endpoint = group->endpoint;

    if (group->size == endpoint->size && is_crowded_host(group))
        atomic_store(&endpoint->is_crowded, true);
}

/* As far as a launcher has said it. */
static int count_ranks(const kolo_group *group)
{
    const int local = group->endpoint->local_size;

    return local > 0 ? local : group->size;
}

static bool are_crowded(const kolo_group *group, const struct ko_contact *peer)
{
    const struct ko_contact *own = &group->endpoint->own;
    const bool are_threads = ko_contact_is_here(own, peer); /* launchers count processes */
    int ncores = 0;

    if (strcmp(own->machine, peer->machine) != 0 ||
        memcmp(own->cores, peer->cores, sizeof own->cores) != 0)
        return false;
    for (size_t w = 0; w < KO_CONTACT_CORES / 64; w++)
        ncores += __builtin_popcountll(own->cores[w]);
    return ncores > 0 && (are_threads ? group->size : count_ranks(group)) > ncores;
}

bool ko_group_is_crowded(const kolo_group *group, const struct ko_contact *peer)
{
    if (atomic_load(&group->endpoint->is_crowded))
        return true;
    if (group->hosts)
        return is_crowded_host(group);
    return peer ? are_crowded(group, peer) : count_ranks(group) > sysconf(_SC_NPROCESSORS_ONLN);
}
