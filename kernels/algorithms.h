/* SPDX-License-Identifier: MIT
 *
 * algorithms.h: every algorithm, one row each; the first row whose limits admit a call is taken.
 * X(collective, name, text, most_bytes, most_ranks, hosts, why)
 * most_bytes: of the caller's count; 0 is no limit. hosts: KO_SPREAD rows are for groups of several
 * hosts of which one at least has several ranks.
 */
#ifndef KO_ALGORITHMS_H
#define KO_ALGORITHMS_H

/* clang-format off */
#define KO_COLLECTIVE_LIST(X) \
    X(ALL_REDUCE, all_reduce) \
    X(REDUCE, reduce) \
    X(BROADCAST, broadcast) \
    X(ALL_GATHER, all_gather) \
    X(REDUCE_SCATTER, reduce_scatter) \
    X(GATHER, gather) \
    X(SCATTER, scatter) \
    X(ALL_TO_ALL, all_to_all) \
    X(BARRIER, barrier)

#define KO_ALGORITHM_LIST(X) \
    X(ALL_REDUCE, "direct", direct_all_reduce, 8192, 8, KO_ANYWHERE, "short: one hop beats moving fewer bytes") \
    X(ALL_REDUCE, "hierarchical", hierarchical_all_reduce, 0, 64, KO_SPREAD, "the fewest bytes between hosts") \
    X(ALL_REDUCE, "ring", ring_all_reduce, 0, 0, KO_ANYWHERE, "long: the fewest bytes per rank") \
    X(REDUCE, "ring", ring_reduce, 0, 0, KO_ANYWHERE, "a chain of slices") \
    X(BROADCAST, "ring", ring_broadcast, 0, 0, KO_ANYWHERE, "a chain of slices") \
    X(ALL_GATHER, "ring", ring_all_gather, 0, 0, KO_ANYWHERE, "each link carries each chunk once") \
    X(REDUCE_SCATTER, "ring", ring_reduce_scatter, 0, 0, KO_ANYWHERE, "each link carries each chunk once") \
    X(GATHER, "direct", direct_gather, 0, 0, KO_ANYWHERE, "each chunk travels once") \
    X(SCATTER, "direct", direct_scatter, 0, 0, KO_ANYWHERE, "each chunk travels once") \
    X(ALL_TO_ALL, "direct", direct_all_to_all, 0, 0, KO_ANYWHERE, "each chunk travels once") \
    X(BARRIER, "direct", direct_barrier, 0, 0, KO_ANYWHERE, "log2(n) rounds")
/* clang-format on */

enum ko_algorithm_hosts { KO_ANYWHERE, KO_SPREAD };

enum ko_collective {
#define KO_COLLECTIVE_ID(id, name) KO_##id,
    KO_COLLECTIVE_LIST(KO_COLLECTIVE_ID)
#undef KO_COLLECTIVE_ID
        KO_NCOLLECTIVES
};

#endif
