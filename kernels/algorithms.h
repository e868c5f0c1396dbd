/* SPDX-License-Identifier: MIT
 *
 * algorithms.h: every algorithm, one row each: X(collective, name, text, flags, why). A call takes
 * the one that is predicted to be the fastest (src/choice.h), among equals the first.
 */
#ifndef KO_ALGORITHMS_H
#define KO_ALGORITHMS_H

#include <stdbool.h>

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
    X(ALL_REDUCE, "one_shot", one_shot_all_reduce, KO_ORDERED | KO_BY_ALL, "short: one hop beats moving fewer bytes") \
    X(ALL_REDUCE, "doubling", doubling_all_reduce, KO_REREADS, "short and many ranks: the fewest steps") \
    X(ALL_REDUCE, "hierarchical", hierarchical_all_reduce, KO_SPREAD | KO_REREADS, "the fewest bytes between hosts") \
    X(ALL_REDUCE, "hierarchical_doubling", hierarchical_doubling_all_reduce, KO_SPREAD | KO_REREADS, "short and many hosts: log2(hosts) steps between them") \
    X(ALL_REDUCE, "two_shot", two_shot_all_reduce, KO_ORDERED, "long and few ranks: the fewest bytes in two hops") \
    X(ALL_REDUCE, "halving", halving_all_reduce, KO_REREADS, "the fewest bytes in 2 log2(n) steps") \
    X(ALL_REDUCE, "ring", ring_all_reduce, 0, "long: the fewest bytes per rank, to one neighbour") \
    X(ALL_REDUCE, "ring_both", ring_both_all_reduce, KO_MANY, "a ring in each direction, half of the buffer each") \
    X(ALL_REDUCE, "binomial", binomial_all_reduce, KO_REREADS, "up a tree and down again") \
    X(ALL_REDUCE, "knomial", knomial_all_reduce, KO_REREADS, "a tree of half the depth, with three times the children") \
    X(ALL_REDUCE, "double_tree", double_tree_all_reduce, KO_REREADS, "two trees, half of the buffer each: log2(n) steps at full speed") \
    X(REDUCE, "direct", direct_reduce, KO_ORDERED, "short: one hop") \
    X(REDUCE, "binomial", binomial_reduce, 0, "short and many ranks: log2(n) steps") \
    X(REDUCE, "hierarchical", hierarchical_reduce, KO_SPREAD, "the fewest bytes between hosts") \
    X(REDUCE, "hierarchical_tree", hierarchical_tree_reduce, KO_SPREAD, "short and many hosts: log2(hosts) steps between them") \
    X(REDUCE, "ring", ring_reduce, 0, "a chain of slices: nobody receives from two") \
    X(REDUCE, "knomial", knomial_reduce, 0, "a tree of half the depth, with three times the children") \
    X(REDUCE, "double_tree", double_tree_reduce, 0, "two trees, half of the slices each") \
    X(BROADCAST, "direct", direct_broadcast, KO_BLOCKS, "one hop; the root sends everything") \
    X(BROADCAST, "binomial", binomial_broadcast, 0, "short: log2(n) steps") \
    X(BROADCAST, "hierarchical", hierarchical_broadcast, KO_SPREAD | KO_REREADS, "the fewest bytes between hosts") \
    X(BROADCAST, "hierarchical_tree", hierarchical_tree_broadcast, KO_SPREAD | KO_REREADS, "short and many hosts: log2(hosts) steps between them") \
    X(BROADCAST, "ring", ring_broadcast, 0, "a chain of slices: nobody sends to two") \
    X(BROADCAST, "knomial", knomial_broadcast, 0, "a tree of half the depth, with three times the children") \
    X(BROADCAST, "double_tree", double_tree_broadcast, 0, "two trees, half of the slices each") \
    X(BROADCAST, "scatter", scatter_broadcast, KO_REREADS | KO_MANY, "dealt out, then once around the ring") \
    X(ALL_GATHER, "hierarchical", hierarchical_all_gather, KO_SPREAD | KO_REREADS, "the fewest bytes between hosts") \
    X(ALL_GATHER, "direct", direct_all_gather, KO_BLOCKS, "few ranks: one hop") \
    X(ALL_GATHER, "bruck", bruck_all_gather, KO_EVEN, "short: log2(n) steps") \
    X(ALL_GATHER, "ring", ring_all_gather, 0, "each link carries each block once") \
    X(ALL_GATHER, "ring_both", ring_both_all_gather, KO_MANY, "a ring in each direction, half of each block") \
    X(REDUCE_SCATTER, "hierarchical", hierarchical_reduce_scatter, KO_SPREAD, "the fewest bytes between hosts") \
    X(REDUCE_SCATTER, "direct", direct_reduce_scatter, KO_ORDERED, "few ranks: one hop") \
    X(REDUCE_SCATTER, "bruck", bruck_reduce_scatter, KO_EVEN, "short and many ranks: log2(n) steps") \
    X(REDUCE_SCATTER, "ring", ring_reduce_scatter, 0, "each link carries each block once") \
    X(GATHER, "direct", direct_gather, 0, "each block travels once") \
    X(GATHER, "hierarchical", hierarchical_gather, KO_SPREAD | KO_EVEN | KO_SMALL, "short: a message from each other host, not from each rank there") \
    X(GATHER, "binomial", binomial_gather, KO_EVEN, "log2(n) steps") \
    X(SCATTER, "direct", direct_scatter, 0, "each block travels once") \
    X(SCATTER, "hierarchical", hierarchical_scatter, KO_SPREAD | KO_EVEN | KO_SMALL, "short: a message to each other host, not to each rank there") \
    X(SCATTER, "binomial", binomial_scatter, KO_EVEN, "log2(n) steps") \
    X(ALL_TO_ALL, "pairwise", pairwise_all_to_all, KO_BLOCKS, "one peer after the other, no rank the target of two") \
    X(ALL_TO_ALL, "direct", direct_all_to_all, KO_BLOCKS, "all peers at once") \
    X(ALL_TO_ALL, "hierarchical", hierarchical_all_to_all, KO_SPREAD | KO_EVEN | KO_SMALL, "short: a message to each other host, not to each rank there") \
    X(ALL_TO_ALL, "bruck", bruck_all_to_all, KO_EVEN | KO_SMALL, "short and many ranks: log2(n) messages") \
    X(BARRIER, "hierarchical", hierarchical_barrier, KO_SPREAD, "the fewest rounds between hosts") \
    X(BARRIER, "dissemination", dissemination_barrier, 0, "log2(n) rounds") \
    X(BARRIER, "direct", direct_barrier, KO_FEW, "few ranks that share cores: one hop") \
    X(BARRIER, "binomial", binomial_barrier, 0, "2 (n - 1) messages in all, up a tree and down again")
/* clang-format on */

/* What is special about a row. */
enum ko_algorithm_flag {
    KO_SPREAD = 1,   /* for groups of several hosts, of which one at least has several ranks */
    KO_ORDERED = 2,  /* adds up in the order of the ranks */
    KO_EVEN = 4,     /* only where all blocks have one length */
    KO_SMALL = 8,    /* only where a buffer of all blocks fits into a slice */
    KO_REREADS = 16, /* sends or adds to what verbs for final results (verbs.h) have put into OUT */
    KO_MANY = 32,    /* among two ranks nothing but another row in more messages */
    KO_FEW = 64,     /* only where a link to every rank costs little: up to KO_FEW_RANKS */
    KO_BLOCKS = 128, /* sends a rank its block slice after slice, and takes those of OUT so */
    KO_BY_ALL = 256  /* each rank works out the whole result by itself, all by the same loops: of
                        two NaNs compilers let one or the other be the sum */
};

enum { KO_FEW_RANKS = 8 };

enum ko_collective {
#define KO_COLLECTIVE_ID(id, name) KO_##id,
    KO_COLLECTIVE_LIST(KO_COLLECTIVE_ID)
#undef KO_COLLECTIVE_ID
        KO_NCOLLECTIVES
};

static inline bool ko_is_reducing(enum ko_collective what)
{
    return what == KO_ALL_REDUCE || what == KO_REDUCE || what == KO_REDUCE_SCATTER;
}

/* Whether ranks wait for the slices of such a call, of few, one after the other: they go in pieces
 * then (window_pieces.h), and so do all that one of two ranks adds to its own. */
static inline bool ko_is_passed(enum ko_collective what, int n, bool is_few)
{
    if (what == KO_REDUCE)
        return n == 2;
    return is_few && (what == KO_BROADCAST || what == KO_GATHER || what == KO_SCATTER);
}

static inline bool ko_has_root(enum ko_collective what)
{
    return what == KO_REDUCE || what == KO_BROADCAST || what == KO_GATHER || what == KO_SCATTER;
}

/* Whether the buffer, out or in, has a block for each rank; of gather and scatter the root's. */
static inline bool ko_has_blocks(enum ko_collective what, bool is_out)
{
    if (what == KO_ALL_TO_ALL)
        return true;
    return is_out ? what == KO_ALL_GATHER || what == KO_GATHER
                  : what == KO_REDUCE_SCATTER || what == KO_SCATTER;
}

/* Calls are told apart by the size of a block: nothing, up to each power of two, not known. */
enum { KO_SIZE_CLASSES = 66 };

#endif
