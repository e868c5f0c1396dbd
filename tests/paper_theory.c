/* SPDX-License-Identifier: MIT */
#include "paper_theory.h"

#include "doubling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

size_t power_below(size_t n)
{
    return (size_t)power_within((int)n);
}

/* floor and ceiling of log2(n). */
static size_t lg(size_t n)
{
    return (size_t)__builtin_ctzll(power_below(n));
}

static size_t lg_up(size_t n)
{
    return lg(n) + (power_below(n) < n);
}

/* Bits that are set in all numbers below n together. */
static size_t bits_below(size_t n)
{
    size_t bits = 0;

    for (size_t i = 1; i < n; i++)
        bits += (size_t)__builtin_popcountll(i);
    return bits;
}

/* Elements that all ranks send together, and messages in the longest chain if none is cut into
 * slices, from the theory of each algorithm; c elements, n ranks, equal blocks. */
static size_t once(size_t n, size_t c)
{
    return (n - 1) * c;
}

static size_t twice(size_t n, size_t c)
{
    return 2 * (n - 1) * c;
}

static size_t all_pairs(size_t n, size_t c)
{
    return n * (n - 1) * c;
}

static size_t nothing(size_t n, size_t c)
{
    (void)n;
    return 0 * c;
}

static size_t doubling_sends(size_t n, size_t c)
{
    const size_t p = power_below(n);

    return (2 * (n - p) + p * lg(p)) * c;
}

static size_t halving_sends(size_t n, size_t c)
{
    const size_t p = power_below(n);

    return (2 * (n - p) + 2 * (p - 1)) * c;
}

static size_t bruck_sends(size_t n, size_t c)
{
    return n * bits_below(n) * c;
}

static size_t subtree_sends(size_t n, size_t c)
{
    return bits_below(n) * c;
}

static size_t one(size_t n)
{
    (void)n;
    return 1;
}

static size_t two(size_t n)
{
    (void)n;
    return 2;
}

static size_t around_once(size_t n)
{
    return n - 1;
}

static size_t around_twice(size_t n)
{
    return 2 * (n - 1);
}

/* What comes from a rank beyond the power p goes to the opposite of the rank that stands for it
 * last; from there it goes to a rank beyond p only if most have one. */
static size_t doubling_steps(size_t n)
{
    const size_t p = power_below(n), extras = n - p;

    return lg(n) + (extras > 0) + (2 * extras > p);
}

static size_t halving_steps(size_t n)
{
    return 2 * lg(n) + (power_below(n) < n ? 2 : 0);
}

static size_t up_and_down(size_t n)
{
    return 2 * lg(n);
}

/* The most digits of base 4, none of them 0, that a number below n has. */
static size_t flat_depth(size_t n)
{
    size_t most = 0;

    for (size_t i = 1; i < n; i++) {
        size_t digits = 0;

        for (size_t rest = i; rest; rest /= 4)
            digits += rest % 4 != 0;
        most = digits > most ? digits : most;
    }
    return most;
}

static size_t flat_up_and_down(size_t n)
{
    return 2 * flat_depth(n);
}

/* The tree over all but the root is full but for its last level; the root is above it. */
static size_t binary_depth(size_t n)
{
    return lg(n - 1) + 1;
}

static size_t binary_up_and_down(size_t n)
{
    return 2 * binary_depth(n);
}

static const struct theory theories[] = {
    {KO_ALL_REDUCE, "one_shot", all_pairs, one, ALIKE},
    {KO_ALL_REDUCE, "doubling", doubling_sends, doubling_steps, ALIKE_IF_POWER},
    {KO_ALL_REDUCE, "two_shot", twice, two, ALIKE},
    {KO_ALL_REDUCE, "halving", halving_sends, halving_steps, ALIKE_IF_POWER},
    {KO_ALL_REDUCE, "ring", twice, around_twice, ALIKE},
    {KO_ALL_REDUCE, "ring_both", twice, around_twice, ALIKE_BY_HALVES},
    {KO_ALL_REDUCE, "binomial", twice, up_and_down, BY_TREE},
    {KO_ALL_REDUCE, "knomial", twice, flat_up_and_down, BY_TREE},
    {KO_ALL_REDUCE, "double_tree", twice, binary_up_and_down, BY_TREE},
    {KO_REDUCE, "direct", once, one, NOT_ROOT},
    {KO_REDUCE, "binomial", once, lg, NOT_ROOT},
    {KO_REDUCE, "ring", once, around_once, NOT_ROOT},
    {KO_REDUCE, "knomial", once, flat_depth, NOT_ROOT},
    {KO_REDUCE, "double_tree", once, binary_depth, NOT_ROOT},
    {KO_BROADCAST, "binomial", once, lg, BY_TREE},
    {KO_BROADCAST, "ring", once, around_once, BY_TREE},
    {KO_BROADCAST, "direct", once, one, ROOT},
    {KO_BROADCAST, "knomial", once, flat_depth, BY_TREE},
    {KO_BROADCAST, "double_tree", once, binary_depth, BY_TREE},
    {KO_BROADCAST, "scatter", once, around_once, BY_TREE},
    {KO_ALL_GATHER, "direct", all_pairs, one, ALIKE},
    {KO_ALL_GATHER, "bruck", all_pairs, lg_up, ALIKE},
    {KO_ALL_GATHER, "ring", all_pairs, around_once, ALIKE},
    {KO_ALL_GATHER, "ring_both", all_pairs, around_once, ALIKE},
    {KO_REDUCE_SCATTER, "direct", all_pairs, one, ALIKE},
    {KO_REDUCE_SCATTER, "bruck", all_pairs, lg_up, ALIKE},
    {KO_REDUCE_SCATTER, "ring", all_pairs, around_once, ALIKE},
    {KO_GATHER, "direct", once, one, NOT_ROOT},
    {KO_GATHER, "binomial", subtree_sends, lg, BY_TREE},
    {KO_SCATTER, "direct", once, one, ROOT},
    {KO_SCATTER, "binomial", subtree_sends, lg, BY_TREE},
    {KO_ALL_TO_ALL, "pairwise", all_pairs, around_once, ALIKE},
    {KO_ALL_TO_ALL, "direct", all_pairs, one, ALIKE},
    {KO_ALL_TO_ALL, "bruck", bruck_sends, lg_up, ALIKE},
    {KO_BARRIER, "dissemination", nothing, lg_up, BY_TREE},
    {KO_BARRIER, "direct", nothing, one, BY_TREE},
    {KO_BARRIER, "binomial", nothing, up_and_down, BY_TREE},
};

const struct theory *theory_of(const struct ko_paper_text *text)
{
    for (size_t i = 0; i < sizeof theories / sizeof *theories; i++)
        if (theories[i].what == text->what && !strcmp(theories[i].name, text->name))
            return &theories[i];
    fail_msg("%s has no theory", text->name);
    return NULL;
}
