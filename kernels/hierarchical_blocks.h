/* SPDX-License-Identifier: MIT
 *
 * hierarchical_blocks.h: collectives with a block for each rank, over several hosts (see
 * hierarchical.h). A host's blocks are cut into rows, a row into lanes: the lane's block is carried
 * by its owner at home and by the ranks of place `lane` on other hosts.
 */
#ifndef KO_HIERARCHICAL_BLOCKS_H
#define KO_HIERARCHICAL_BLOCKS_H

#include "hierarchical.h"

/* The blocks of a row of a host, slice s of each: one in each lane, if the host has so many. */
struct ko_row {
    int home, row;
    size_t s;
};

KO_FN int rows_of(const struct ko_hosts *hosts)
{
    int most = 0;

    for (int h = 0; h < hosts->n; h++)
        most = host_size(hosts, h) > most ? host_size(hosts, h) : most;
    return (most - 1) / hosts->least + 1;
}

/* Whose block that is; -1 if there is none. */
KO_FN int owner_of(const struct ko_hosts *hosts, const struct ko_row *row, int lane)
{
    const int place = row->row * hosts->least + lane;
    const bool is_one = lane >= 0 && lane < hosts->least && place < host_size(hosts, row->home);

    return is_one ? rank_at(hosts, row->home, place) : -1;
}

/* Who carries it on a host: at home its owner. */
KO_FN int carrier_of(const struct ko_hosts *hosts, const struct ko_row *row, int lane, int host)
{
    return host == row->home ? owner_of(hosts, row, lane) : rank_at(hosts, host, lane);
}

/* The lane that a rank carries, if owner_of has a block there. */
KO_FN int lane_of(const struct ko_hosts *hosts, const struct ko_row *row, int rank)
{
    const int place = hosts->place[rank];

    return hosts->host[rank] == row->home ? place - row->row * hosts->least : place;
}

/* What the own host has for a row's blocks. */
KO_FN void hierarchical_add_row(verbs *v, struct ko_row row)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], own = lane_of(hosts, &row, v->rank);
    const int before = around(host - 1, hosts->n), after = around(host + 1, hosts->n);
    const struct ko_part out = slice_of((struct ko_part){0, v->count}, v->slice, row.s);

#define SLICE(lane) slice_of(block_of(&v->in_blocks, owner_of(hosts, &row, lane)), v->slice, row.s)
    for (int lane = 0; lane < hosts->least; lane++)
        if (lane != own && owner_of(hosts, &row, lane) >= 0)
            send(v, carrier_of(hosts, &row, lane, host), IN, SLICE(lane));
    if (owner_of(hosts, &row, own) >= 0) {
        const int from = rank_at(hosts, before, own);

        hierarchical_add(v, &from, before != row.home,
                         host == row.home ? -1 : carrier_of(hosts, &row, own, after), -1,
                         SLICE(own), out);
    }
#undef SLICE
}

/* Row i of all, counted through the slices, each of which has so many. */
KO_FN struct ko_row row_at(int home, size_t i, int rows)
{
    const struct ko_row row = {home, (int)(i % (size_t)rows), i / (size_t)rows};

    return row;
}

/* Each host adds up inside what it has for a block, and adds that to the sum which comes along the
 * hosts: it sends every block but its own ranks' once. The own blocks are the last of a row, and
 * wait for what the host before sends: the next row begins before. */
KO_FN void hierarchical_reduce_scatter(verbs *v)
{
    const int n = v->hosts->n, host = v->hosts->host[v->rank];
    const size_t slices = slices_of(longest_of(&v->in_blocks, v->n), v->slice);
    const int each = rows_of(v->hosts);
    const size_t rows = slices * (size_t)each;

    for (size_t i = 0; i <= rows; i++) {
        if (i < rows && n > 1)
            hierarchical_add_row(v, row_at(around(host - 1, n), i, each));
        if (i > 0)
            hierarchical_add_row(v, row_at(host, i - 1, each));
        for (int k = 2; k < n && i < rows; k++)
            hierarchical_add_row(v, row_at(around(host - k, n), i, each));
    }
}

/* A row's blocks to all of the own host and to the next. */
KO_FN void hierarchical_tell_row(verbs *v, struct ko_row row)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], own = lane_of(hosts, &row, v->rank);
    const int before = around(host - 1, hosts->n), after = around(host + 1, hosts->n);

#define SLICE(lane) slice_of(block_of(&v->out_blocks, owner_of(hosts, &row, lane)), v->slice, row.s)
    if (owner_of(hosts, &row, own) >= 0) {
        if (host != row.home)
            recv(v, carrier_of(hosts, &row, own, before), SLICE(own));
        if (after != row.home)
            send(v, rank_at(hosts, after, own), OUT, SLICE(own));
        hierarchical_tell(v, -1, SLICE(own));
    }
    for (int lane = 0; lane < hosts->least; lane++)
        if (lane != own && owner_of(hosts, &row, lane) >= 0)
            recv(v, carrier_of(hosts, &row, lane, host), SLICE(lane));
#undef SLICE
}

/* Blocks go along the hosts, and inside each to all: a host sends every block once, but for those
 * of the host after it. Those are the last of a row; before they come, the next row begins. */
KO_FN void hierarchical_all_gather(verbs *v)
{
    const int n = v->hosts->n, host = v->hosts->host[v->rank];
    const size_t slices = slices_of(longest_of(&v->out_blocks, v->n), v->slice);
    const int each = rows_of(v->hosts);
    const size_t rows = slices * (size_t)each;

    keep(v, (struct ko_part){0, v->count}, block_of(&v->out_blocks, v->rank));
    for (size_t i = 0; i <= rows; i++) {
        if (i < rows && n > 1)
            hierarchical_tell_row(v, row_at(host, i, each));
        if (i > 0)
            hierarchical_tell_row(v, row_at(around(host + 1, n), i - 1, each));
        for (int k = 1; k < n - 1 && i < rows; k++)
            hierarchical_tell_row(v, row_at(around(host - k, n), i, each));
    }
}

#endif
