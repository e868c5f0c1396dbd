/* SPDX-License-Identifier: MIT
 *
 * hierarchical.h: collectives over several hosts that send as little as possible between them. The
 * verbs are those of verbs.h; v->hosts says where the ranks sit.
 *
 * A buffer is cut into lanes, as many as the smallest host has ranks: lane l is carried between the
 * hosts by the ranks of place l, so that all of a host's processors, and all its network cards,
 * have their share. For all_reduce a lane has a chunk for each host.
 */
#ifndef KO_HIERARCHICAL_H
#define KO_HIERARCHICAL_H

#include "tree.h"

/* ---- all_reduce -------------------------------------------------------------------------- */

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

/* A turn of ring_all_reduce among the carriers of one lane: the first gives the host's chunk, the
 * next add to those that come, the rest pass on the results. `mine` has the host's sums. */
KO_FN void hierarchical_turn(verbs *v, enum buffer mine, size_t s, int turn)
{
    const int n = v->hosts->n, host = v->hosts->host[v->rank], lane = v->hosts->place[v->rank];
    const int next = rank_at(v->hosts, around(host + 1, n), lane);
    const int prev = rank_at(v->hosts, around(host - 1, n), lane);
    const struct ko_part part = lane_slice(v, lane, around(host - turn % n, n), s);

    if (turn == 0) {
        send(v, next, mine, part);
    } else if (turn < n - 1) { /* which leaves the slot before it needs one, of two */
        recv_add(v, prev, mine, part, OUT, part);
        send(v, next, OUT, part);
    } else if (turn == n - 1) {
        recv_reduce_send_all(v, prev, next, mine, part);
    } else if (turn < 2 * n - 2) {
        recv_send(v, prev, next, part);
    } else {
        recv(v, prev, part);
    }
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

/* What is due of slice s at a turn: before the first the host adds up inside, after the last it
 * spreads the result. */
KO_FN void hierarchical_step(verbs *v, size_t s, int turn)
{
    const int host = v->hosts->host[v->rank], last = 2 * v->hosts->n - 2;
    const bool is_alone = host_size(v->hosts, host) == 1;

    if (turn == 0 && !is_alone)
        hierarchical_collect(v, s);
    if (v->hosts->n > 1 && v->hosts->place[v->rank] < v->hosts->least)
        hierarchical_turn(v, is_alone ? IN : OUT, s, turn);
    if (turn == last && !is_alone)
        hierarchical_spread(v, s);
}

/* The buffer has as many lanes as the smallest host has ranks: in each host one rank adds up what
 * all have of a lane, with its like on the other hosts all-reduces that by a ring, and gives the
 * result to its host. Each host sends 2 (hosts - 1) / hosts of the buffer, the least possible.
 * While one slice comes back around, the next is added up on its way, the one after inside the
 * hosts, and the one before is spread. */
KO_FN void hierarchical_all_reduce(verbs *v)
{
    const struct ko_part longest = chunk_of(v->count, v->hosts->least, 0);
    const size_t slices = slices_of(chunk_of(longest.count, v->hosts->n, 0).count, v->slice);
    const size_t turns = 2 * (size_t)v->hosts->n - 1;
    /* the second half of a slice's turns is the first half of the next one's */
    const size_t gap = v->hosts->n > 1 ? (size_t)v->hosts->n - 1 : 1;

    for (size_t step = 0; step < (slices - 1) * gap + turns; step++) {
        size_t s = step < turns ? 0 : (step - turns) / gap + 1;

        for (; s < slices && s * gap <= step; s++)
            hierarchical_step(v, s, (int)(step - s * gap));
    }
}

/* ---- inside a host ----------------------------------------------------------------------- */

/* Adds up what all ranks of the own host have, but for one, and what comes from nfrom ranks of
 * other hosts: for another rank or, with the result complete, for itself. to, but: -1 for none. */
KO_FN void hierarchical_add(verbs *v, const int *from, int nfrom, int to, int but,
                            struct ko_part mine, struct ko_part part)
{
    const int host = v->hosts->host[v->rank];
    int n = 0;

    v->ranks[n++] = v->rank;
    for (int i = 0; i < nfrom; i++)
        v->ranks[n++] = from[i];
    for (int place = 0; place < host_size(v->hosts, host); place++)
        if (place != v->hosts->place[v->rank] && rank_at(v->hosts, host, place) != but)
            v->ranks[n++] = rank_at(v->hosts, host, place);
    if (to < 0)
        reduce_from(v, v->ranks, n, mine, part, true);
    else if (n == 1)
        send(v, to, IN, mine);
    else
        reduce_from_send(v, v->ranks, n, to, mine);
}

/* To all ranks of the own host, but for one; -1: for none. */
KO_FN void hierarchical_tell(verbs *v, int but, struct ko_part part)
{
    const int host = v->hosts->host[v->rank], size = host_size(v->hosts, host);

    for (int k = 1; k < size; k++) {
        const int mate = rank_at(v->hosts, host, around(v->hosts->place[v->rank] + k, size));

        if (mate != but)
            send(v, mate, OUT, part);
    }
}

/* ---- barrier ----------------------------------------------------------------------------- */

/* Inside each host up a tree and down again; the first ranks of the hosts in between hear of each
 * other by dissemination. */
KO_FN void hierarchical_barrier(verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], place = hosts->place[v->rank];
    const struct ko_tree tree = knomial_tree(host_size(hosts, host), place, 4);
    const struct ko_part nothing = {0, 0};

    for (int i = 0; i < tree.nchildren; i++)
        recv(v, rank_at(hosts, host, tree.children[i]), nothing);
    if (place > 0) {
        send(v, rank_at(hosts, host, tree.parent), IN, nothing);
        recv(v, rank_at(hosts, host, tree.parent), nothing);
    }
    for (int k = 1; k < hosts->n && place == 0; k *= 2) {
        send(v, rank_at(hosts, around(host + k, hosts->n), 0), IN, nothing);
        recv(v, rank_at(hosts, around(host - k, hosts->n), 0), nothing);
    }
    for (int i = 0; i < tree.nchildren; i++)
        send(v, rank_at(hosts, host, tree.children[i]), IN, nothing);
}

#endif
