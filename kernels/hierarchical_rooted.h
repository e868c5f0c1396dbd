/* SPDX-License-Identifier: MIT
 *
 * hierarchical_rooted.h: to one rank, and from one rank, over several hosts (see hierarchical.h).
 * The hosts are a chain with the root's at its end, which suits long buffers, or a tree: either way
 * each but the root's sends, or is sent, the buffer once.
 */
#ifndef KO_HIERARCHICAL_ROOTED_H
#define KO_HIERARCHICAL_ROOTED_H

#include "hierarchical.h"

/* Of the hosts, seen from the own one: a chain if base is 1, or a k-nomial tree. way: 1 if they are
 * numbered from the root's host upwards, -1 if downwards. */
KO_FN struct ko_tree tree_of_hosts(const verbs *v, int base, int way)
{
    const struct ko_hosts *hosts = v->hosts;
    const int home = hosts->host[v->root];
    const int number = around(way * (hosts->host[v->rank] - home), hosts->n);
    struct ko_tree tree =
        base == 1 ? chain_of(hosts->n, number) : knomial_tree(hosts->n, number, base);

    renumber(&tree, home, way, hosts->n);
    return tree;
}

/* The ranks that this one meets, of its lane on the hosts above and below; who carries no lane
 * meets none. On the root's host the root is above. */
struct ko_meets {
    int above, nbelow;
    int below[KO_MOST_CHILDREN];
};

KO_FN struct ko_meets meets_of(const verbs *v, const struct ko_tree *tree)
{
    const struct ko_hosts *hosts = v->hosts;
    const int lane = hosts->place[v->rank];
    struct ko_meets meets = {.above = v->root};

    if (lane >= hosts->least)
        return meets;
    if (tree->parent >= 0)
        meets.above = rank_at(hosts, tree->parent, lane);
    for (; meets.nbelow < tree->nchildren; meets.nbelow++)
        meets.below[meets.nbelow] = rank_at(hosts, tree->children[meets.nbelow], lane);
    return meets;
}

#define LANE(lane) slice_of(chunk_of(v->count, v->hosts->least, lane), v->slice, s)

/* Each host adds up inside, lane by lane, with what the hosts below send, and sends the sums to the
 * one above; on the root's host the root adds its own. */
KO_FN void reduce_over_hosts(verbs *v, const struct ko_tree *tree)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], place = hosts->place[v->rank], lanes = hosts->least;
    const bool is_root = v->rank == v->root;
    const struct ko_meets meets = meets_of(v, tree);

    for (size_t s = 0; s < slices_of(chunk_of(v->count, lanes, 0).count, v->slice); s++) {
        for (int lane = 0; lane < lanes && !is_root; lane++)
            if (lane != place)
                send(v, rank_at(hosts, host, lane), IN, LANE(lane));
        if (place < lanes)
            hierarchical_add(v, meets.below, meets.nbelow, is_root ? -1 : meets.above, v->root,
                             LANE(place), LANE(place));
        for (int lane = 0; lane < lanes && is_root; lane++)
            if (lane != place)
                recv_reduce(v, rank_at(hosts, host, lane), IN, LANE(lane), LANE(lane));
    }
}

/* The root deals the lanes out to its host. Each host sends what it has to those below, and lane by
 * lane to all inside. */
KO_FN void broadcast_over_hosts(verbs *v, const struct ko_tree *tree)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], place = hosts->place[v->rank], lanes = hosts->least;
    const bool is_root = v->rank == v->root;
    const struct ko_meets meets = meets_of(v, tree);

    for (size_t s = 0; s < slices_of(chunk_of(v->count, lanes, 0).count, v->slice); s++) {
        for (int lane = 0; lane < lanes && is_root; lane++)
            if (lane != place)
                send(v, rank_at(hosts, host, lane), OUT, LANE(lane));
        if (place < lanes && !is_root)
            recv(v, meets.above, LANE(place));
        for (int i = 0; i < meets.nbelow; i++)
            send(v, meets.below[i], OUT, LANE(place));
        if (place < lanes)
            hierarchical_tell(v, v->root, LANE(place));
        for (int lane = 0; lane < lanes && !is_root; lane++)
            if (lane != place)
                recv(v, rank_at(hosts, host, lane), LANE(lane));
    }
}

#undef LANE

/* Each host sends its sums to the next, once the buffer; the root's is the last. */
KO_FN void hierarchical_reduce(verbs *v)
{
    const struct ko_tree chain = tree_of_hosts(v, 1, -1);

    reduce_over_hosts(v, &chain);
}

/* Each host sends what it has to the next, once the buffer; the root's is the first. */
KO_FN void hierarchical_broadcast(verbs *v)
{
    const struct ko_tree chain = tree_of_hosts(v, 1, 1);

    broadcast_over_hosts(v, &chain);
}

/* Each host sends its sums up a binomial tree: with every step half of the hosts are done. */
KO_FN void hierarchical_tree_reduce(verbs *v)
{
    const struct ko_tree tree = tree_of_hosts(v, 2, 1);

    reduce_over_hosts(v, &tree);
}

/* Each host that has it sends it on, the largest subtree first: with every step twice as many hosts
 * have it. */
KO_FN void hierarchical_tree_broadcast(verbs *v)
{
    const struct ko_tree tree = tree_of_hosts(v, 2, 1);

    broadcast_over_hosts(v, &tree);
}

#endif
