/* SPDX-License-Identifier: MIT
 *
 * kernels.h: the kernels of tests/gpu and the argument of each, for the host that fills it in.
 * Plain structs, whose members lie alike in C, C++ and CUDA; addresses are the GPU's. A wait of
 * theirs ends in any case: when the word at `stop` is not 0, at which it looks now and again, or
 * after CHECK_TURNS looks at what it waits for.
 */
#ifndef CHECK_KERNELS_H
#define CHECK_KERNELS_H

#include <stdint.h>

enum {
    CHECK_TURNS = 1 << 25,
    CHECK_LOOKS = 1024 /* at what is waited for, between two at stop */
};

/* `rounds` times: waits for the word at mine to be the round's number, from 1 on, and makes that at
 * next the same; who begins does so in the other order. One thread; done: how many rounds it has
 * been through. */
struct check_spin {
    uint64_t mine, next, stop, done;
    uint32_t rounds, begins;
};

/* One block of each, of CHECK_LINES threads. One writes CHECK_LINES lines of 16 bytes, 0 at first,
 * `times` over, each time all four words of each the same, from 1 on; it begins when the word at
 * ready is not 0. The other makes it 1, and looks at the lines until they are written for the last
 * time; each of its threads leaves a check_looks at `looks`. */
enum { CHECK_LINES = 256 };
struct check_lines {
    uint64_t lines, ready, stop, looks;
    uint32_t times, unused;
};

/* How many looks at a line there were in the middle of this; in how many its halves differed; and
 * how many halves had words that did. */
struct check_looks {
    uint64_t n, differ, torn;
};

/* The well-known all_reduce in one shot, of float32: block b of a rank tells block b of the others
 * that its input is there, waits for theirs, adds all inputs in the order of ranks, and in the end
 * tells them, and waits for them to say, that inputs are no longer wanted. flags, 0 at first, is
 * [2][CHECK_BLOCKS][CHECK_RANKS] words of each rank's memory; they become epoch, which is 1, 2, ...
 * from call to call. Addresses suit packs of 16 bytes. Blocks of any number of threads; at most
 * CHECK_BLOCKS, alike on all ranks. */
enum { CHECK_RANKS = 4, CHECK_BLOCKS = 36 };
struct check_one_shot {
    uint64_t ins[CHECK_RANKS], flags[CHECK_RANKS]; /* by rank */
    uint64_t out, stop;
    uint64_t count; /* floats */
    uint32_t epoch, rank, n, unused;
};

/* X(kernel's name, its argument) */
#define CHECK_KERNELS(X)                \
    X(check_spin_rounds, check_spin)    \
    X(check_write_lines, check_lines)   \
    X(check_look_at_lines, check_lines) \
    X(check_one_shot_sum, check_one_shot)

#endif
