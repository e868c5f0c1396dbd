/* SPDX-License-Identifier: MIT
 *
 * hierarchical.h: collectives over several hosts that send as little as possible between them. The
 * verbs are those of verbs.h; v->hosts says where the ranks sit.
 *
 * A buffer is cut into lanes, as many as the smallest host has ranks: lane l is carried between the
 * hosts by the ranks of place l, so that all of a host's processors, and all its network cards,
 * have their share. A lane has a chunk for each host.
 */
#ifndef KO_HIERARCHICAL_H
#define KO_HIERARCHICAL_H

#include "verbs.h"

/* Slice s of a host's chunk of a lane. */
KO_FN struct ko_part lane_slice(const verbs *v, int lane, int host, size_t s)
{
    const struct ko_part whole = chunk_of(v->count, v->hosts->least, lane);
    struct ko_part chunk = chunk_of(whole.count, v->hosts->n, host);

    chunk.at += whole.at;
    return slice_of(chunk, v->slice, s);
}

/* Every lane's carrier sums up its host's contributions, into OUT. */
KO_FN void hierarchical_collect(verbs *v, size_t s)
{
    const int host = v->hosts->host[v->rank], place = v->hosts->place[v->rank];
    const int *mates = v->hosts->ranks + v->hosts->begins[host];
    const int nmates = host_size(v->hosts, host);

    for (int h = 0; h < v->hosts->n; h++)
        for (int lane = 0; lane < v->hosts->least; lane++)
            if (lane == place)
                reduce_from(v, mates, nmates, lane_slice(v, lane, h, s), lane_slice(v, lane, h, s),
                            v->hosts->n == 1);
            else
                send(v, mates[lane], IN, lane_slice(v, lane, h, s));
}

/* ring_all_reduce among the carriers of one lane; `mine` has the host's sums. */
KO_FN void hierarchical_ring(verbs *v, enum buffer mine, size_t s)
{
    const int n = v->hosts->n, host = v->hosts->host[v->rank], lane = v->hosts->place[v->rank];
    const int next = rank_at(v->hosts, around(host + 1, n), lane);
    const int prev = rank_at(v->hosts, around(host - 1, n), lane);

#define SLICE(chunk) lane_slice(v, lane, around(chunk, n), s)
    send(v, next, mine, SLICE(host));
    for (int k = 1; k < n - 1; k++)
        recv_reduce_send(v, prev, next, mine, SLICE(host - k));
    recv_reduce_send_all(v, prev, next, mine, SLICE(host + 1));
    for (int k = 0; k < n - 2; k++)
        recv_send(v, prev, next, SLICE(host - k));
    recv(v, prev, SLICE(host + 2));
#undef SLICE
}

/* Every lane's carrier gives the result to its host. */
KO_FN void hierarchical_spread(verbs *v, size_t s)
{
    const int host = v->hosts->host[v->rank], place = v->hosts->place[v->rank];
    const int *mates = v->hosts->ranks + v->hosts->begins[host];

    for (int h = 0; h < v->hosts->n; h++)
        for (int lane = 0; lane < v->hosts->least; lane++)
            if (lane != place)
                recv(v, mates[lane], lane_slice(v, lane, h, s));
            else
                for (int m = 1; m < host_size(v->hosts, host); m++)
                    send(v, mates[around(place + m, host_size(v->hosts, host))], OUT,
                         lane_slice(v, lane, h, s));
}

/* Each host sends 2 (hosts - 1) / hosts of the buffer, the least possible, whatever its number of
 * ranks. */
KO_FN void hierarchical_all_reduce(verbs *v)
{
    const struct ko_part longest = chunk_of(v->count, v->hosts->least, 0);
    const size_t slices = slices_of(chunk_of(longest.count, v->hosts->n, 0).count, v->slice);
    const bool is_alone = host_size(v->hosts, v->hosts->host[v->rank]) == 1;

    for (size_t s = 0; s < slices; s++) {
        if (!is_alone)
            hierarchical_collect(v, s);
        if (v->hosts->n > 1 && v->hosts->place[v->rank] < v->hosts->least)
            hierarchical_ring(v, is_alone ? IN : OUT, s);
        if (!is_alone)
            hierarchical_spread(v, s);
    }
}

#endif
