/* SPDX-License-Identifier: MIT
 *
 * The kernels of tests/gpu, which wait for each other on one GPU as kolo's own never do, or look
 * how it stores. Compiled for GPUs, and for the double of the driver.
 */
#include "kernels.h"

#include "device.cuh"
#include "elements.h"

#include <string.h>

/* Until the word is `value` or beyond it; what was written before it is there then. False: given
 * up. */
KO_DEVICE bool await_word(uint64_t word, uint32_t value, uint64_t stop)
{
    KO_ROLLED
    for (uint32_t turn = 1; turn < CHECK_TURNS; turn++) {
        if ((int32_t)(ko_acquire_word((const uint32_t *)word) - value) >= 0)
            return true;
        if (turn % CHECK_LOOKS == 0 && ko_load_word((const uint32_t *)stop))
            return false;
        ko_rest();
    }
    return false;
}

/* ---- in turns -------------------------------------------------------------------------------- */

KO_KERNEL(check_spin_rounds, check_spin, spin)
{
    bool goes_on = true;

    KO_ROLLED
    for (uint32_t round = 1; round <= spin.rounds && goes_on; round++) {
        if (spin.begins)
            ko_release_word((uint32_t *)spin.next, round);
        goes_on = await_word(spin.mine, round, spin.stop);
        if (goes_on && !spin.begins)
            ko_release_word((uint32_t *)spin.next, round);
        if (goes_on)
            ko_release_word((uint32_t *)spin.done, round);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

KO_DEVICE uint64_t half_of(uint32_t time)
{
    return (uint64_t)time << 32 | time;
}

KO_DEVICE void write_lines(ko_line *lines, uint64_t half)
{
    KO_ROLLED
    for (unsigned i = ko_thread(); i < CHECK_LINES; i += ko_nthreads())
        ko_send_line(lines + i, {{half, half}});
}

KO_KERNEL(check_write_lines, check_lines, args)
{
    const bool is_watched = await_word(args.ready, 1, args.stop);

    KO_ROLLED
    for (uint32_t time = 1; time <= args.times && is_watched; time++)
        write_lines((ko_line *)args.lines, half_of(time));
}

KO_DEVICE bool is_torn(uint64_t half)
{
    return (uint32_t)half != half >> 32;
}

/* Whether the line has been written for the last time. */
KO_DEVICE bool look_at(const ko_line *at, uint32_t times, check_looks *looks)
{
    const ko_line line = ko_look_at_line(at);
    const uint64_t last = half_of(times);

    if (line.halves[0] == last && line.halves[1] == last)
        return true;
    looks->n += line.halves[0] || line.halves[1];
    looks->differ += line.halves[0] != line.halves[1];
    looks->torn += is_torn(line.halves[0]) + is_torn(line.halves[1]);
    return false;
}

KO_KERNEL(check_look_at_lines, check_lines, args)
{
    check_looks looks = {};
    bool goes_on = true;

    if (ko_thread() == 0)
        ko_release_word((uint32_t *)args.ready, 1);
    KO_ROLLED
    for (uint32_t turn = 1; turn < CHECK_TURNS && goes_on; turn++) {
        goes_on = false;
        KO_ROLLED
        for (unsigned i = ko_thread(); i < CHECK_LINES; i += ko_nthreads())
            goes_on |= !look_at((const ko_line *)args.lines + i, args.times, &looks);
        if (turn % CHECK_LOOKS == 0 && ko_load_word((const uint32_t *)args.stop))
            goes_on = false;
        ko_rest();
    }
    ko_store_one((uint64_t *)args.looks + 3 * ko_thread(), looks.n);
    ko_store_one((uint64_t *)args.looks + 3 * ko_thread() + 1, looks.differ);
    ko_store_one((uint64_t *)args.looks + 3 * ko_thread() + 2, looks.torn);
}

/* ---- one shot -------------------------------------------------------------------------------- */

/* all[rank], out of registers. */
KO_DEVICE uint64_t of_rank(const uint64_t (&all)[CHECK_RANKS], uint32_t rank)
{
    uint64_t one = all[0];

    KO_UNROLLED
    for (uint32_t r = 1; r < CHECK_RANKS; r++)
        one = r == rank ? all[r] : one;
    return one;
}

/* Which `source` makes the epoch in the memory of `owner`. */
KO_DEVICE uint64_t flag_of(const check_one_shot &args, uint32_t owner, uint32_t round,
                           uint32_t source)
{
    const uint64_t flag = (round * CHECK_BLOCKS + ko_block()) * CHECK_RANKS + source;

    return of_rank(args.flags, owner) + flag * sizeof(uint32_t);
}

/* The block, with all ranks' like it; thread r with rank r. */
KO_DEVICE void meet(const check_one_shot &args, uint32_t round)
{
    ko_sync_block();
    KO_ROLLED
    for (uint32_t r = ko_thread(); r < args.n; r += ko_nthreads())
        ko_release_word((uint32_t *)flag_of(args, r, round, args.rank), args.epoch);
    KO_ROLLED
    for (uint32_t r = ko_thread(); r < args.n; r += ko_nthreads())
        (void)await_word(flag_of(args, args.rank, round, r), args.epoch, args.stop);
    ko_sync_block();
}

KO_DEVICE void add_pack(ko_pack *sum, const ko_pack &pack)
{
    KO_UNROLLED
    for (int k = 0; k < 4; k++)
        sum->words[k] =
            ko_float_bits(ko_float_of_bits(sum->words[k]) + ko_float_of_bits(pack.words[k]));
}

/* All loads are on their way before the first sum. */
KO_DEVICE void sum_pack(const check_one_shot &args, uint64_t i)
{
    ko_pack packs[CHECK_RANKS];

    KO_UNROLLED
    for (uint32_t r = 0; r < CHECK_RANKS; r++)
        if (r < args.n)
            packs[r] = ko_load_pack((const ko_pack *)args.ins[r] + i);
    KO_UNROLLED
    for (uint32_t r = 1; r < CHECK_RANKS; r++)
        if (r < args.n)
            add_pack(&packs[0], packs[r]);
    ko_store_pack((ko_pack *)args.out + i, packs[0]);
}

KO_DEVICE void sum_one(const check_one_shot &args, uint64_t i)
{
    float sum = 0;

    KO_ROLLED
    for (uint32_t r = 0; r < args.n; r++)
        sum += ko_load_one((const float *)of_rank(args.ins, r) + i);
    ko_store_one((float *)args.out + i, sum);
}

KO_KERNEL(check_one_shot_sum, check_one_shot, args)
{
    const uint64_t nthreads = (uint64_t)ko_nblocks() * ko_nthreads();
    const uint64_t self = (uint64_t)ko_block() * ko_nthreads() + ko_thread();
    const uint64_t npacks = args.count / 4;

    meet(args, 0);
    KO_ROLLED
    for (uint64_t i = self; i < npacks; i += nthreads)
        sum_pack(args, i);
    KO_ROLLED
    for (uint64_t i = npacks * 4 + self; i < args.count; i += nthreads)
        sum_one(args, i);
    meet(args, 1);
}
