/* SPDX-License-Identifier: MIT
 *
 * tree.h: collectives on trees of ranks, one slice behind the other. Ranks are numbered from the
 * root: the root is 0, the rank after it 1, and so on around.
 *   k-nomial: in digits of base k, a rank's parent has its lowest digit that is not 0 set to 0.
 *   double binary (Sanders, Speck and Traeff 2009): two binary trees over all but the root,
 * numbered in order so that odd numbers are leaves; the second is shifted by one, so that who is
 * inside one tree is a leaf of the other. Each carries every other slice.
 */
#ifndef KO_TREE_H
#define KO_TREE_H

#include "verbs.h"

/* Children at most: 3 for each of 9 digits of base 4, or one for each of 31 of base 2. */
enum { KO_MOST_CHILDREN = 32, KO_TREE_LAG = 2 };

struct ko_tree {
    int parent; /* -1 at the root */
    int nchildren;
    int children[KO_MOST_CHILDREN];
};

KO_FN void add_child(struct ko_tree *tree, int child)
{
    tree->children[tree->nchildren++] = child;
}

KO_FN struct ko_tree knomial_tree(int n, int number, int k)
{
    struct ko_tree tree = {.parent = -1, .nchildren = 0};
    int unit = 1;

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

KO_FN int lowest_bit(int x)
{
    return x & -x;
}

/* The binary tree over 1 ... n in order: the parent of x, 0 at the top. */
KO_FN int inorder_parent(int n, int x)
{
    do {
        const int bit = lowest_bit(x);

        if (bit > n)
            return 0;
        x = x & (2 * bit) ? x - bit : x + bit;
    } while (x > n);
    return x;
}

/* The right child is what there is of the right half: 0 if there is nothing. */
KO_FN int inorder_right(int n, int x)
{
    int child = x + lowest_bit(x) / 2;

    while (child > n && lowest_bit(child) > 1)
        child -= lowest_bit(child) / 2;
    return child > x && child <= n ? child : 0;
}

/* One of the two trees (shift 0 or 1) over n ranks with the root. */
KO_FN struct ko_tree binary_tree(int n, int number, int shift)
{
    struct ko_tree tree = {.parent = -1, .nchildren = 0};
    const int m = n - 1;
    const int x = (number - 1 + shift) % m + 1; /* its number in the tree */
    int top = 1;

#define NUMBER_OF(y) (((y)-1 + m - shift) % m + 1)
    if (number == 0) {
        while (2 * top <= m)
            top *= 2;
        add_child(&tree, NUMBER_OF(top));
        return tree;
    }
    tree.parent = inorder_parent(m, x) ? NUMBER_OF(inorder_parent(m, x)) : 0;
    if (lowest_bit(x) > 1)
        add_child(&tree, NUMBER_OF(x - lowest_bit(x) / 2));
    if (inorder_right(m, x))
        add_child(&tree, NUMBER_OF(inorder_right(m, x)));
#undef NUMBER_OF
    return tree;
}

/* base 2, 4: the k-nomial tree; 0, 1: one of the two binary trees. In ranks. */
KO_FN struct ko_tree tree_of(const verbs *v, int base)
{
    const int number = around(v->rank - v->root, v->n);
    struct ko_tree tree =
        base > 1 ? knomial_tree(v->n, number, base) : binary_tree(v->n, number, base);

    if (tree.parent >= 0)
        tree.parent = around(tree.parent + v->root, v->n);
    for (int i = 0; i < tree.nchildren; i++)
        tree.children[i] = around(tree.children[i] + v->root, v->n);
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
    if (tree->parent >= 0)
        recv(v, tree->parent, part);
    for (int i = 0; i < tree->nchildren; i++)
        send(v, tree->children[i], OUT, part);
}

/* Slice s goes over trees[s % ntrees]; up, and down again a little later, or one of the two. */
KO_FN void over_trees(verbs *v, const struct ko_tree *trees, size_t ntrees, bool goes_up,
                      bool goes_down)
{
    const struct ko_part whole = {0, v->count};
    const size_t slices = slices_of(v->count, v->slice);
    const size_t lag = goes_up && goes_down ? KO_TREE_LAG : 0;

    for (size_t s = 0; s < slices + lag; s++) {
        const size_t back = s - lag;

        if (goes_up && s < slices)
            tree_up(v, &trees[s % ntrees], slice_of(whole, v->slice, s));
        if (goes_down && s >= lag)
            tree_down(v, &trees[back % ntrees], slice_of(whole, v->slice, back));
    }
}

KO_FN void over_tree(verbs *v, int base, bool goes_up, bool goes_down)
{
    const struct ko_tree tree = tree_of(v, base);

    over_trees(v, &tree, 1, goes_up, goes_down);
}

KO_FN void over_two_trees(verbs *v, bool goes_up, bool goes_down)
{
    const struct ko_tree trees[2] = {tree_of(v, 0), tree_of(v, 1)};

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
