/* SPDX-License-Identifier: MIT
 *
 * paper_theory.h: what the texts of kernels/ send among n ranks, and how many steps they take, by
 * formulas that have nothing of the texts.
 */
#ifndef PAPER_THEORY_H
#define PAPER_THEORY_H

#include "coll.h"
#include "paper.h"
#include "verbs_paper.h"

/* How what is sent is shared out: by all alike, where chunks are equal, or halves of chunks; or
 * where the ranks are a power of two; each rank but the root sends one buffer, or block; the root
 * sends all; or as the tree has it. */
enum share { ALIKE, ALIKE_BY_HALVES, ALIKE_IF_POWER, NOT_ROOT, ROOT, BY_TREE };

struct theory {
    enum ko_collective what;
    const char *name;
    size_t (*sends)(size_t n, size_t c);
    size_t (*steps)(size_t n);
    enum share share;
};

/* The largest power of two that is not more. */
size_t power_below(size_t n);

/* Of a text of one host, which has one, or the test fails. */
const struct theory *theory_of(const struct ko_paper_text *text);

#endif
