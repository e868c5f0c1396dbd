/* SPDX-License-Identifier: MIT
 *
 * hierarchical_gather.h: short blocks to one rank, and from one rank, over several hosts (see
 * hierarchical.h). The first rank of each host has a message with the root for all that sit there;
 * on the root's own host all have one with the root itself.
 */
#ifndef KO_HIERARCHICAL_GATHER_H
#define KO_HIERARCHICAL_GATHER_H

#include "hierarchical.h"

/* Who meets the root for a host, in TMP, where the host's blocks lie in the order of its ranks. */
KO_FN int agent_of(const verbs *v, int host)
{
    return host == v->hosts->host[v->root] ? v->root : rank_at(v->hosts, host, 0);
}

/* n blocks of TMP from block `at` on. */
KO_FN struct ko_part blocks_of_host(const verbs *v, int at, int n)
{
    const struct ko_part part = {(size_t)at * v->count, (size_t)n * v->count};

    return part;
}

/* What the host's ranks have, in one message to the root. */
KO_FN void gather_for_root(verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], size = host_size(hosts, host);
    const struct ko_part all = blocks_of_host(v, 0, size);

    if (size == 1) {
        send(v, v->root, IN, (struct ko_part){0, v->count});
        return;
    }
    scratch(v, all.count);
    move(v, IN, (struct ko_part){0, v->count}, TMP, blocks_of_host(v, 0, 1));
    for (int place = 1; place < size; place++)
        recv_to(v, rank_at(hosts, host, place), TMP, blocks_of_host(v, place, 1));
    send(v, v->root, TMP, all);
}

/* The root's: the own host's blocks come first, while the others' are on their way. */
KO_FN void gather_hosts(verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], size = host_size(hosts, own);
    int at = 0;

    keep(v, (struct ko_part){0, v->count}, block_of(&v->out_blocks, v->rank));
    scratch(v, (size_t)(v->n - size) * v->count);
    for (int place = 0; place < size; place++)
        if (place != hosts->place[v->rank])
            recv(v, rank_at(hosts, own, place),
                 block_of(&v->out_blocks, rank_at(hosts, own, place)));
    for (int k = 1; k < hosts->n; k++) {
        const int host = around(own + k, hosts->n), n = host_size(hosts, host);

        recv_to(v, agent_of(v, host), TMP, blocks_of_host(v, at, n));
        for (int place = 0; place < n; place++)
            move(v, TMP, blocks_of_host(v, at++, 1), OUT,
                 block_of(&v->out_blocks, rank_at(hosts, host, place)));
    }
}

/* Each host sends the root its blocks in one message. */
KO_FN void hierarchical_gather(verbs *v)
{
    const int agent = agent_of(v, v->hosts->host[v->rank]);

    if (v->rank == v->root)
        gather_hosts(v);
    else if (v->rank == agent)
        gather_for_root(v);
    else
        send(v, agent, IN, (struct ko_part){0, v->count});
}

/* The root's: what has the longest way goes first. */
KO_FN void scatter_hosts(verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int own = hosts->host[v->rank], size = host_size(hosts, own);
    int at = 0;

    scratch(v, (size_t)(v->n - size) * v->count);
    for (int k = 1; k < hosts->n; k++) {
        const int host = around(own + k, hosts->n), n = host_size(hosts, host), begins = at;

        for (int place = 0; place < n; place++)
            move(v, IN, block_of(&v->in_blocks, rank_at(hosts, host, place)), TMP,
                 blocks_of_host(v, at++, 1));
        send(v, agent_of(v, host), TMP, blocks_of_host(v, begins, n));
    }
    for (int place = 0; place < size; place++)
        if (place != hosts->place[v->rank])
            send(v, rank_at(hosts, own, place), IN,
                 block_of(&v->in_blocks, rank_at(hosts, own, place)));
    keep(v, block_of(&v->in_blocks, v->rank), (struct ko_part){0, v->count});
}

/* Deals out what came from the root for the host's ranks. */
KO_FN void scatter_from_root(verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], size = host_size(hosts, host);
    const struct ko_part all = blocks_of_host(v, 0, size);

    if (size == 1) {
        recv(v, v->root, (struct ko_part){0, v->count});
        return;
    }
    scratch(v, all.count);
    recv_to(v, v->root, TMP, all);
    for (int place = 1; place < size; place++)
        send(v, rank_at(hosts, host, place), TMP, blocks_of_host(v, place, 1));
    move(v, TMP, blocks_of_host(v, 0, 1), OUT, (struct ko_part){0, v->count});
}

/* The root sends each host its blocks in one message. */
KO_FN void hierarchical_scatter(verbs *v)
{
    const int agent = agent_of(v, v->hosts->host[v->rank]);

    if (v->rank == v->root)
        scatter_hosts(v);
    else if (v->rank == agent)
        scatter_from_root(v);
    else
        recv(v, agent, (struct ko_part){0, v->count});
}

#endif
