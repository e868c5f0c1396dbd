/* SPDX-License-Identifier: MIT
 *
 * hierarchical_all_to_all.h: short blocks from every rank to every rank over several hosts (see
 * hierarchical.h). Two hosts have as many lanes between them as the smaller has ranks; the block
 * for place p goes over lane p modulo lanes. Who carries a lane has a message for the other host,
 * of all that its own ranks have for that lane, and what comes it deals out.
 *
 * It works in TMP, where blocks are numbered by what follows. Each message has at most as many
 * blocks as there are ranks, which fit into one slice.
 */
#ifndef KO_HIERARCHICAL_ALL_TO_ALL_H
#define KO_HIERARCHICAL_ALL_TO_ALL_H

#include "hierarchical.h"

KO_FN int lanes_between(const struct ko_hosts *hosts, int a, int b)
{
    const int sizes[] = {host_size(hosts, a), host_size(hosts, b)};

    return sizes[sizes[1] < sizes[0]];
}

/* The ranks of host `to` whose blocks come from host `from` over that lane. */
KO_FN int ranks_of_lane(const struct ko_hosts *hosts, int from, int to, int lane)
{
    const int lanes = lanes_between(hosts, from, to);

    return lane < lanes ? (host_size(hosts, to) - 1 - lane) / lanes + 1 : 0;
}

/* Blocks that a rank of the host has for that lane, to all other hosts. */
KO_FN int blocks_for_lane(const struct ko_hosts *hosts, int host, int lane)
{
    int n = 0;

    for (int k = 1; k < hosts->n; k++)
        n += ranks_of_lane(hosts, host, around(host + k, hosts->n), lane);
    return n;
}

KO_FN struct ko_part blocks_at(const verbs *v, int at, int n)
{
    const struct ko_part part = {(size_t)at * v->count, (size_t)n * v->count};

    return part;
}

/* n blocks from `at` on, and as many every `stride`, before `end`. */
KO_FN struct ko_comb comb_of_blocks(const verbs *v, int at, int n, int stride, int end)
{
    const struct ko_comb comb = {(size_t)at * v->count, (size_t)n * v->count,
                                 (size_t)stride * v->count, (size_t)end * v->count};

    return comb;
}

/* What this rank has for a lane, from block `at` of TMP on: host by host, beginning with the next.
 */
KO_FN void stage_for_lane(verbs *v, int lane, int at)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank];

    for (int k = 1; k < hosts->n; k++) {
        const int host = around(own + k, hosts->n), lanes = lanes_between(hosts, own, host);

        for (int place = lane; lane < lanes && place < host_size(hosts, host); place += lanes)
            move(v, IN, block_of(&v->in_blocks, rank_at(hosts, host, place)), TMP,
                 blocks_at(v, at++, 1));
    }
}

/* To the mates their own blocks, and what is for the lanes that they carry. Of its own lane the
 * rank has then what each of its host has for it, from block `lane_at` on. */
KO_FN void meet_mates(verbs *v, int lane_at)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], own = hosts->place[v->rank];
    const int size = host_size(hosts, host), mine = blocks_for_lane(hosts, host, own);
    int at = 0;

    keep(v, block_of(&v->in_blocks, v->rank), block_of(&v->out_blocks, v->rank));
    stage_for_lane(v, own, lane_at + own * mine);
    for (int k = 1; k < size; k++) {
        const int place = around(own + k, size), mate = rank_at(hosts, host, place);
        const int theirs = blocks_for_lane(hosts, host, place);

        send(v, mate, IN, block_of(&v->in_blocks, mate));
        if (theirs) {
            stage_for_lane(v, place, at);
            send(v, mate, TMP, blocks_at(v, at, theirs));
            at += theirs;
        }
    }
    for (int k = 1; k < size; k++) {
        const int place = around(own - k, size), mate = rank_at(hosts, host, place);

        recv(v, mate, block_of(&v->out_blocks, mate));
        if (mine)
            recv_to(v, mate, TMP, blocks_at(v, lane_at + place * mine, mine));
    }
}

/* To each host in one message what all of the own host have for it on the own lane. */
KO_FN void send_lane(verbs *v, int lane_at)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], lane = hosts->place[v->rank];
    const int mine = blocks_for_lane(hosts, own, lane),
              end = lane_at + mine * host_size(hosts, own);
    int at = lane_at;

    for (int k = 1; k < hosts->n; k++) {
        const int host = around(own + k, hosts->n), n = ranks_of_lane(hosts, own, host, lane);

        if (n)
            send_comb(v, rank_at(hosts, host, lane), comb_of_blocks(v, at, n, mine, end));
        at += n;
    }
}

/* A host's blocks for this rank, every `stride` of TMP from `at` on. */
KO_FN void take_from_host(verbs *v, int host, int at, int stride)
{
    for (int place = 0; place < host_size(v->hosts, host); place++)
        move(v, TMP, blocks_at(v, at + place * stride, 1), OUT,
             block_of(&v->out_blocks, rank_at(v->hosts, host, place)));
}

/* From each host in one message what it has for the own lane, from block `at` on: a row for each of
 * its ranks, a column for each rank here. */
KO_FN void receive_lane(verbs *v, int at)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], lane = hosts->place[v->rank];

    for (int k = 1; k < hosts->n; k++) {
        const int host = around(own - k, hosts->n), n = ranks_of_lane(hosts, host, own, lane);
        const int all = n * host_size(hosts, host);

        if (!n)
            continue;
        recv_comb(v, rank_at(hosts, host, lane), comb_of_blocks(v, at, all, all, at + all));
        take_from_host(v, host, at, n);
        at += all;
    }
}

/* Whether what a host has for a place of this one comes to another first, its lane's carrier. */
KO_FN bool is_dealt(const verbs *v, int host, int carrier, int place)
{
    const int lanes = lanes_between(v->hosts, host, v->hosts->host[v->rank]);

    return place >= lanes && place % lanes == carrier;
}

/* Blocks that a carrier has for a place of the same host in the end. */
KO_FN int dealt_blocks(const verbs *v, int carrier, int place)
{
    int n = 0;

    for (int host = 0; host < v->hosts->n; host++)
        if (host != v->hosts->host[v->rank] && is_dealt(v, host, carrier, place))
            n += host_size(v->hosts, host);
    return n;
}

/* The columns for a place, from what receive_lane has put from block `from` on, one behind the
 * other from `to` on. */
KO_FN void stage_for_place(verbs *v, int place, int from, int to)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], lane = hosts->place[v->rank];

    for (int k = 1; k < hosts->n; k++) {
        const int host = around(own - k, hosts->n), lanes = lanes_between(hosts, host, own);
        const int n = ranks_of_lane(hosts, host, own, lane), rows = host_size(hosts, host);

        for (int row = 0; row < rows && is_dealt(v, host, lane, place); row++)
            move(v, TMP, blocks_at(v, from + row * n + place / lanes, 1), TMP,
                 blocks_at(v, to++, 1));
        from += n * rows;
    }
}

/* To each mate that another host's lanes do not reach, in one message, what came for it. */
KO_FN void deal_out(verbs *v, int from, int at)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], lane = hosts->place[v->rank];

    for (int place = lane + 1; place < host_size(hosts, own); place++) {
        const int n = dealt_blocks(v, lane, place);

        if (!n)
            continue;
        stage_for_place(v, place, from, at);
        send(v, rank_at(hosts, own, place), TMP, blocks_at(v, at, n));
        at += n;
    }
}

/* From each carrier what came for this rank. */
KO_FN void take_dealt(verbs *v, int at)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], place = hosts->place[v->rank];

    for (int carrier = 0; carrier < place; carrier++) {
        const int n = dealt_blocks(v, carrier, place);

        if (!n)
            continue;
        recv_to(v, rank_at(hosts, own, carrier), TMP, blocks_at(v, at, n));
        for (int k = 1; k < hosts->n; k++) {
            const int host = around(own - k, hosts->n);

            if (!is_dealt(v, host, carrier, place))
                continue;
            take_from_host(v, host, at, 1);
            at += host_size(hosts, host);
        }
    }
}

/* Where in TMP a rank's blocks are: what it has for its mates' lanes is the first; what its host
 * has for its own lane; what came on that; of this what it deals out; and what is dealt to it. */
struct ko_stages {
    int lane, arrived, dealt, taken, end;
};

KO_FN struct ko_stages stages_of(const verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], place = hosts->place[v->rank];
    const int size = host_size(hosts, own);
    struct ko_stages at = {.lane = v->n - size};

    at.arrived = at.lane + blocks_for_lane(hosts, own, place) * size;
    at.dealt = at.arrived;
    for (int host = 0; host < hosts->n; host++)
        if (host != own)
            at.dealt += ranks_of_lane(hosts, host, own, place) * host_size(hosts, host);
    at.taken = at.dealt;
    for (int mate = place + 1; mate < size; mate++)
        at.taken += dealt_blocks(v, place, mate);
    at.end = at.taken;
    for (int carrier = 0; carrier < place; carrier++)
        at.end += dealt_blocks(v, carrier, place);
    return at;
}

/* A rank sends a message to each other host at most, not to each rank there. */
KO_FN void hierarchical_all_to_all(verbs *v)
{
    const struct ko_stages at = stages_of(v);

    scratch(v, (size_t)at.end * v->count);
    meet_mates(v, at.lane);
    send_lane(v, at.lane);
    receive_lane(v, at.arrived);
    deal_out(v, at.arrived, at.dealt);
    take_dealt(v, at.taken);
}

#endif
