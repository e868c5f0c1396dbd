/* SPDX-License-Identifier: MIT
 *
 * push.cuh: small messages between GPUs that wait for each other inside of a kernel (kernel_args.h
 * says how); a line carries a pair of words, and beside each the flag. And words that tell other
 * ranks' streams how far this one is. C++.
 */
#ifndef KO_PUSH_CUH
#define KO_PUSH_CUH

#include "device.cuh"
#include "kernel_args.h"

enum { KO_PUSH_TURNS = 1024 }; /* between looks whether to stop */

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Eight bytes of an array, from byte `at` on; what is beyond its end is 0, and stays. */
KO_DEVICE uint64_t ko_load_pair(uint64_t array, uint64_t at, uint64_t nbytes)
{
    uint64_t pair = 0;

    if (array % 8 == 0 && at + 8 <= nbytes)
        return ko_load_one((const uint64_t *)(array + at));
    for (unsigned i = 0; i < 8 && at + i < nbytes; i++)
        pair |= (uint64_t)ko_load_one((const uint8_t *)(array + at + i)) << 8 * i;
    return pair;
}

KO_DEVICE void ko_store_pair(uint64_t array, uint64_t at, uint64_t nbytes, uint64_t pair)
{
    if (array % 8 == 0 && at + 8 <= nbytes) {
        ko_store_one((uint64_t *)(array + at), pair);
        return;
    }
    for (unsigned i = 0; i < 8 && at + i < nbytes; i++)
        ko_store_one((uint8_t *)(array + at + i), (uint8_t)(pair >> 8 * i));
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* In the boxes of `owner`: what `source` sends to this block. */
KO_DEVICE ko_line *ko_push_box(const ko_push &push, uint32_t owner, uint32_t source, uint32_t epoch)
{
    const uint64_t box = ((uint64_t)ko_block() * 2 + (epoch & 1)) * push.n + source;

    return (ko_line *)push.boxes[owner] + box * KO_PUSH_PAIRS;
}

KO_DEVICE ko_line ko_line_of(uint64_t pair, uint32_t epoch)
{
    const uint64_t flag = (uint64_t)epoch << 32;

    return {{flag | (uint32_t)pair, flag | pair >> 32}};
}

KO_DEVICE bool ko_push_is_over(const ko_push &push, uint32_t from, uint32_t epoch)
{
    if (ko_load_word((const uint32_t *)push.stop)) {
        ko_release_word((uint32_t *)push.given_up, 1);
        return true;
    }
    ko_release_word((uint32_t *)push.stalled + ko_block(), epoch << 8 | (from + 1));
    return false;
}

/* What the other threads of the block still wait for they say again. */
KO_DEVICE void ko_push_goes_on(const ko_push &push)
{
    ko_release_word((uint32_t *)push.stalled + ko_block(), 0);
}

/* Pair i of what `from` sends. False: the wait was given up. */
KO_DEVICE bool ko_await_pair(const ko_push &push, uint32_t from, uint64_t i, uint32_t epoch,
                             uint64_t *pair)
{
    const ko_line *const line = ko_push_box(push, push.rank, from, epoch) + i;

    for (unsigned turn = 1;; turn++) {
        const ko_line seen = ko_look_at_line(line);

        if (seen.halves[0] >> 32 == epoch && seen.halves[1] >> 32 == epoch) {
            *pair = (uint32_t)seen.halves[0] | seen.halves[1] << 32;
            if (turn > KO_PUSH_TURNS)
                ko_push_goes_on(push);
            return true;
        }
        if (turn % KO_PUSH_TURNS == 0 && ko_push_is_over(push, from, epoch))
            return false;
        ko_rest();
    }
}

/* ---- the exchange ---------------------------------------------------------------------------- */

/* Pair i of the block's, to all others; each rank begins with the one behind it. */
KO_DEVICE void ko_push_pair(const ko_push &push, uint64_t first, uint64_t i, uint32_t epoch)
{
    KO_ROLLED
    for (uint32_t k = 1; k < push.n; k++) {
        const uint32_t to = (push.rank + k) % push.n;
        const uint64_t pair = ko_load_pair(push.from[to], (first + i) * 8, push.nbytes);

        ko_send_line(ko_push_box(push, to, push.rank, epoch) + i, ko_line_of(pair, epoch));
    }
}

KO_DEVICE bool ko_pull_pair(const ko_push &push, uint64_t first, uint64_t i, uint32_t epoch)
{
    uint64_t pair;

    KO_ROLLED
    for (uint32_t k = 1; k < push.n; k++) {
        const uint32_t from = (push.rank + k) % push.n;

        if (!ko_await_pair(push, from, i, epoch, &pair))
            return false;
        ko_store_pair(push.to[from], (first + i) * 8, push.nbytes, pair);
    }
    return true;
}

KO_DEVICE void ko_keep_pair(const ko_push &push, uint64_t at)
{
    ko_store_pair(push.to[push.rank], at, push.nbytes,
                  ko_load_pair(push.from[push.rank], at, push.nbytes));
}

KO_DEVICE void ko_push_all(const ko_push &push)
{
    uint32_t *const counter = (uint32_t *)push.epochs + ko_block();
    const uint32_t epoch = ko_load_word(counter) + 1;
    const uint64_t first = (uint64_t)ko_block() * KO_PUSH_PAIRS;
    const uint64_t left = (push.nbytes + 7) / 8 - first, most = KO_PUSH_PAIRS;
    const bool is_over = ko_load_word((const uint32_t *)push.given_up);
    const uint64_t n = is_over ? 0 : left < most ? left : most;
    bool goes_on = true;

    ko_sync_block(); /* all have seen the counter before it changes */
    KO_ROLLED
    for (uint64_t i = ko_thread(); i < n; i += ko_nthreads())
        ko_push_pair(push, first, i, epoch);
    KO_ROLLED
    for (uint64_t i = ko_thread(); i < n && push.to[push.rank] != push.from[push.rank];
         i += ko_nthreads())
        ko_keep_pair(push, (first + i) * 8);
    KO_ROLLED
    for (uint64_t i = ko_thread(); i < n && goes_on; i += ko_nthreads())
        goes_on = ko_pull_pair(push, first, i, epoch);
    ko_sync_block();
    if (ko_thread() == 0)
        ko_release_word(counter, epoch);
}

/* ---- words ----------------------------------------------------------------------------------- */

KO_DEVICE bool ko_is_given_up(uint64_t word)
{
    return ko_load_word((const uint32_t *)word);
}

KO_DEVICE void ko_tell_all(const ko_tell &tell)
{
    bool is_over = ko_is_given_up(tell.given_up);

    KO_ROLLED
    for (uint32_t i = 0; i < tell.ntheirs && !is_over; i++)
        if (ko_is_given_up(tell.theirs[i])) {
            ko_release_word((uint32_t *)tell.given_up, 1);
            is_over = true;
        }
    KO_ROLLED
    for (uint32_t i = ko_thread(); i < tell.n && !is_over; i += ko_nthreads())
        ko_release_word((uint32_t *)tell.words[i], 1);
}

#endif
