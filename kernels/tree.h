/* SPDX-License-Identifier: MIT
 *
 * tree.h: collectives on trees of ranks, one slice behind the other. Ranks are numbered from the
 * root: the root is 0, the rank after it 1, and so on around.
 *   k-nomial: in digits of base k, a rank's parent has its lowest digit that is not 0 set to 0.
 *   double binary (Sanders, Speck and Traeff 2009): two binary trees over all but the root, each of
 * which carries every other slice. In the first the children of i are 2 i and 2 i + 1. The second
 * is the first with the ranks numbered the other way around, so that who is inside one tree is a
 * leaf of the other.
 */
#ifndef KO_TREE_H
#define KO_TREE_H

#include "verbs.h"

/* Children at most: 3 for each of 9 digits of base 4, or one for each of 31 of base 2. */
enum { KO_MOST_CHILDREN = 32, KO_TREE_LAG = 2, KO_FIRST_TREE = 0, KO_SECOND_TREE = 1 };

struct ko_tree {
    int parent; /* -1 at the root */
    int depth;  /* hops from the root */
    int nchildren;
    int children[KO_MOST_CHILDREN];
};

KO_FN void add_child(struct ko_tree *tree, int child)
{
    tree->children[tree->nchildren++] = child;
}

KO_FN struct ko_tree knomial_tree(int n, int number, int k)
{
    struct ko_tree tree = {.parent = -1};
    int unit = 1;

    for (int rest = number; rest > 0; rest /= k)
        tree.depth += rest % k > 0;
    while (unit < n && number % (unit * k) == 0)
        unit *= k;
    if (unit < n)
        tree.parent = number - number % (unit * k);
    for (unit /= k; unit > 0; unit /= k)
        for (int digit = 1; digit < k; digit++)
            if (number + digit * unit < n)
                add_child(&tree, number + digit * unit);
    return tree;
}

/* The tree over all but the root, and the root above it. `first`, 0 or 1: the child that is served
 * first is of even or of odd number. */
KO_FN struct ko_tree binary_tree(int n, int number, int first)
{
    struct ko_tree tree = {.parent = number / 2};

    if (number == 0)
        tree.parent = -1;
    for (int rest = number; rest > 0; rest /= 2)
        tree.depth++;
    for (int i = 0; i < 2; i++) {
        const int child = 2 * number + (first + i) % 2;

        if (child > number && child < n) /* the root is no child of its own */
            add_child(&tree, child);
    }
    return tree;
}

/* A tree whose inner numbers have one child each. */
KO_FN struct ko_tree chain_of(int n, int number)
{
    struct ko_tree chain = {.parent = number - 1, .depth = number};

    if (number + 1 < n)
        add_child(&chain, number + 1);
    return chain;
}

/* From numbers, 0 for the root, to what is counted around n from there. way: 1 upwards, -1
 * downwards. */
KO_FN void renumber(struct ko_tree *tree, int root, int way, int n)
{
    if (tree->parent >= 0)
        tree->parent = around(root + way * tree->parent, n);
    for (int i = 0; i < tree->nchildren; i++)
        tree->children[i] = around(root + way * tree->children[i], n);
}

/* base 2, 4: the k-nomial tree; 0, 1: one of the two binary trees. In ranks. The odd children go
 * first, but in the second tree of an odd number of ranks: so no rank is the first child in one
 * tree and the second in the other, and its slices come in turn. */
KO_FN struct ko_tree tree_of(const verbs *v, int base)
{
    const int way = base == KO_SECOND_TREE ? -1 : 1;
    const int number = around(way * (v->rank - v->root), v->n);
    struct ko_tree tree = base > KO_SECOND_TREE
                              ? knomial_tree(v->n, number, base)
                              : binary_tree(v->n, number, way > 0 || v->n % 2 == 0);

    renumber(&tree, v->root, way, v->n);
    return tree;
}

/* Sums up what the children send with the own part: to the parent, or, at the root, complete. */
KO_FN void tree_up(verbs *v, const struct ko_tree *tree, struct ko_part part)
{
    int ranks[KO_MOST_CHILDREN + 1];

    ranks[0] = v->rank;
    for (int i = 0; i < tree->nchildren; i++)
        ranks[i + 1] = tree->children[i];
    if (tree->parent < 0)
        reduce_from(v, ranks, tree->nchildren + 1, part, part, true);
    else if (!tree->nchildren)
        send(v, tree->parent, IN, part);
    else
        reduce_from_send(v, ranks, tree->nchildren + 1, tree->parent, part);
}

KO_FN void tree_down(verbs *v, const struct ko_tree *tree, struct ko_part part)
{
    if (tree->parent >= 0 && tree->nchildren)
        recv_to(v, tree->parent, OUT, part);
    else if (tree->parent >= 0)
        recv(v, tree->parent, part);
    for (int i = 0; i < tree->nchildren; i++)
        send(v, tree->children[i], OUT, part);
}

/* Slice s goes over trees[s % ntrees]; up, down, or up and down again. What is due at a rank is a
 * matter of its depth: on its way down, slice s is at depth d in step s + d * KO_TREE_LAG, which
 * leaves a parent time to serve two children; on its way up, as long before the root has it. In
 * that order no rank waits for one tree while it could serve the other. */
KO_FN void over_trees(verbs *v, const struct ko_tree *trees, size_t ntrees, bool goes_up,
                      bool goes_down)
{
    const struct ko_part whole = {0, v->count};
    const size_t slices = slices_of(v->count, v->slice);
    size_t most = 0; /* steps from the root */

    for (size_t i = 0; i < ntrees; i++)
        if (most < (size_t)trees[i].depth * KO_TREE_LAG)
            most = (size_t)trees[i].depth * KO_TREE_LAG;
    for (size_t step = 0; step < slices + 2 * most; step++) {
        const struct ko_tree *tree = &trees[step % ntrees];
        const size_t lag = (size_t)tree->depth * KO_TREE_LAG;
        const size_t up = step - most + lag, down = step - most - lag; /* huge below 0 */

        if (goes_up && up < slices)
            tree_up(v, tree, slice_of(whole, v->slice, up));
        if (goes_down && down < slices)
            tree_down(v, tree, slice_of(whole, v->slice, down));
    }
}

KO_FN void over_tree(verbs *v, int base, bool goes_up, bool goes_down)
{
    const struct ko_tree tree = tree_of(v, base);

    over_trees(v, &tree, 1, goes_up, goes_down);
}

KO_FN void over_two_trees(verbs *v, bool goes_up, bool goes_down)
{
    const struct ko_tree trees[2] = {tree_of(v, KO_FIRST_TREE), tree_of(v, KO_SECOND_TREE)};

    over_trees(v, trees, 2, goes_up, goes_down);
}

/* Sums go up the tree to the root and the result down again. */
KO_FN void binomial_all_reduce(verbs *v)
{
    over_tree(v, 2, true, true);
}

/* Each rank adds up what its children send, and sends that to its parent: with every step half of
 * the ranks are done. */
KO_FN void binomial_reduce(verbs *v)
{
    over_tree(v, 2, true, false);
}

/* Whoever has it passes it on, the largest subtree first: with every step twice as many ranks have
 * it. */
KO_FN void binomial_broadcast(verbs *v)
{
    over_tree(v, 2, false, true);
}

/* Sums go up a tree with up to three children on each level, and down again: half as many hops as
 * with one, but each waits for more. */
KO_FN void knomial_all_reduce(verbs *v)
{
    over_tree(v, 4, true, true);
}

/* Each rank adds up what up to three children on each level send, and sends that to its parent. */
KO_FN void knomial_reduce(verbs *v)
{
    over_tree(v, 4, true, false);
}

/* Whoever has it passes it on to up to three children on each level. */
KO_FN void knomial_broadcast(verbs *v)
{
    over_tree(v, 4, false, true);
}

/* Sums go up both trees and down again, every other slice over the one and the rest over the
 * other: who is inside one tree is a leaf of the other. */
KO_FN void double_tree_all_reduce(verbs *v)
{
    over_two_trees(v, true, true);
}

/* Sums go up both trees, every other slice over the one and the rest over the other. */
KO_FN void double_tree_reduce(verbs *v)
{
    over_two_trees(v, true, false);
}

/* Both trees carry the buffer down, every other slice over the one and the rest over the other. */
KO_FN void double_tree_broadcast(verbs *v)
{
    over_two_trees(v, false, true);
}

/* Empty messages go up the tree, then down: who hears from above knows that all have come. */
KO_FN void binomial_barrier(verbs *v)
{
    const struct ko_tree tree = tree_of(v, 2);
    const struct ko_part nothing = {0, 0};

    for (int i = 0; i < tree.nchildren; i++)
        recv(v, tree.children[i], nothing);
    if (tree.parent >= 0) {
        send(v, tree.parent, IN, nothing);
        recv(v, tree.parent, nothing);
    }
    for (int i = 0; i < tree.nchildren; i++)
        send(v, tree.children[i], IN, nothing);
}

/* ---- blocks: a subtree's lie one behind the other in TMP, numbered from the root ----------- */

KO_FN int lowest_bit(int x)
{
    return x & -x;
}

/* How many ranks the subtree of a number has in the binomial tree. */
KO_FN int subtree_size(int n, int number)
{
    const int size = number ? lowest_bit(number) : n;

    return size < n - number ? size : n - number;
}

KO_FN struct ko_part subtree_part(const verbs *v, int base, int number)
{
    struct ko_part part = {(size_t)(number - base) * v->count,
                           (size_t)subtree_size(v->n, number) * v->count};
    return part;
}

/* Each rank collects the blocks of its subtree and sends them to its parent in one go. */
KO_FN void binomial_gather(verbs *v)
{
    const int number = around(v->rank - v->root, v->n);
    const struct ko_tree tree = tree_of(v, 2);
    const struct ko_part mine = {0, v->count}, all = subtree_part(v, number, number);

    scratch(v, all.count);
    move(v, IN, mine, TMP, mine);
    for (int i = tree.nchildren - 1; i >= 0; i--) {
        const int child = around(tree.children[i] - v->root, v->n);
        const struct ko_part part = subtree_part(v, number, child);

        for (size_t s = 0; s < slices_of(part.count, v->slice); s++)
            recv_to(v, tree.children[i], TMP, slice_of(part, v->slice, s));
    }
    for (size_t s = 0; tree.parent >= 0 && s < slices_of(all.count, v->slice); s++)
        send(v, tree.parent, TMP, slice_of(all, v->slice, s));
    for (int i = 0; tree.parent < 0 && i < v->n; i++)
        move(v, TMP, (struct ko_part){(size_t)i * v->count, v->count}, OUT,
             block_of(&v->out_blocks, around(i + v->root, v->n)));
}

/* Each rank passes on to its children the blocks of their subtrees. */
KO_FN void binomial_scatter(verbs *v)
{
    const int number = around(v->rank - v->root, v->n);
    const struct ko_tree tree = tree_of(v, 2);
    const struct ko_part mine = {0, v->count}, all = subtree_part(v, number, number);

    scratch(v, all.count);
    for (int i = 0; tree.parent < 0 && i < v->n; i++)
        move(v, IN, block_of(&v->in_blocks, around(i + v->root, v->n)), TMP,
             (struct ko_part){(size_t)i * v->count, v->count});
    for (size_t s = 0; tree.parent >= 0 && s < slices_of(all.count, v->slice); s++)
        recv_to(v, tree.parent, TMP, slice_of(all, v->slice, s));
    for (int i = 0; i < tree.nchildren; i++) {
        const int child = around(tree.children[i] - v->root, v->n);
        const struct ko_part part = subtree_part(v, number, child);

        for (size_t s = 0; s < slices_of(part.count, v->slice); s++)
            send(v, tree.children[i], TMP, slice_of(part, v->slice, s));
    }
    move(v, TMP, mine, OUT, mine);
}

#endif
