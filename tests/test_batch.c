/* SPDX-License-Identifier: MIT
 *
 * Several messages as one call: batches and exchanges, blocking and as a work.
 */
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 20000, MOST_OPS = 16 };

/* Which all wrap. */
static void set_small_slots(void)
{
    setenv("KOLO_SLICE_BYTES", "256", 1);
    setenv("KOLO_SLOTS", "2", 1);
}

/* What rank `from` sends to rank `to`. */
static int32_t element(int from, int to, size_t i)
{
    return (int32_t)(i * 7) + 1000 * from + 31 * to;
}

static void fill(int32_t *numbers, size_t count, int from, int to)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = element(from, to, i);
}

static int check(const int32_t *numbers, size_t count, int from, int to)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] != element(from, to, i))
            return ranks_fail("element %zu of what rank %d sent to rank %d is %d", i, from, to,
                              numbers[i]);
    return 0;
}

static int32_t *numbers(size_t count)
{
    int32_t *memory = calloc(count + 1, sizeof *memory);

    if (!memory)
        abort();
    return memory;
}

/* ---- batches ----------------------------------------------------------------------------- */

/* Every rank sends much to every other, and posts the sends first. */
static size_t list_cross(const kolo_group *group, kolo_p2p *ops)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    size_t nops = 0;

    for (int peer = 0; peer < n; peer++) {
        ops[nops] = (kolo_p2p){1, peer, rank, KOLO_INT32, COUNT, numbers(COUNT), NULL};
        fill(ops[nops++].buffer, COUNT, rank, peer);
    }
    for (int peer = 0; peer < n; peer++)
        ops[nops++] = (kolo_p2p){0, peer, peer, KOLO_INT32, COUNT, numbers(COUNT), NULL};
    return nops;
}

static int end_cross(const kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    int failed = 0;

    for (int peer = 0; peer < n && !failed; peer++)
        failed = check(ops[n + peer].buffer, COUNT, peer, rank);
    for (size_t i = 0; i < nops; i++)
        free(ops[i].buffer);
    return failed;
}

static int cross(kolo_group *group, void *argument)
{
    kolo_p2p ops[MOST_OPS];
    const size_t nops = list_cross(group, ops);

    (void)argument;
    if (kolo_batch(group, ops, nops))
        return ranks_fail("batch");
    return end_cross(group, ops, nops);
}

/* The list may change while the work goes on; it is asked for twice. */
static int cross_as_work(kolo_group *group, void *argument)
{
    kolo_p2p ops[MOST_OPS], gone[MOST_OPS];
    const size_t nops = list_cross(group, ops);
    kolo_work *work;
    int done = 0;

    (void)argument;
    memcpy(gone, ops, sizeof gone);
    if (kolo_batch_async(group, gone, nops, &work))
        return ranks_fail("batch_async");
    memset(gone, 0, sizeof gone);
    if (kolo_work_test(work, &done))
        return ranks_fail("test");
    if (kolo_work_wait(work, -1) || kolo_work_test(work, &done) || !done)
        return ranks_fail("wait");
    kolo_work_free(work);
    return end_cross(group, ops, nops);
}

static int batch_wrongly(kolo_group *group, void *argument)
{
    char byte = 1, room = 0;
    const int rank = kolo_group_rank(group);
    const kolo_p2p ops[] = {{1, rank, 0, KOLO_INT8, 1, &byte, NULL},
                            {0, rank, 0, KOLO_INT8, 1, &room, NULL},
                            {1, 7, 0, KOLO_INT8, 1, &byte, NULL}};
    kolo_work *work;

    (void)argument;
    if (kolo_batch(group, ops, 3) != KOLO_E_INVALID ||
        !strstr(kolo_last_error(), "the receiver is rank 7") || room != 0)
        return ranks_fail("a bad third of a batch");
    if (kolo_batch_async(group, ops, 3, &work) != KOLO_E_INVALID || room != 0)
        return ranks_fail("a bad third of a batch as a work");
    if (kolo_batch(group, NULL, 1) != KOLO_E_INVALID ||
        kolo_batch_async(group, NULL, 1, &work) != KOLO_E_INVALID)
        return ranks_fail("a batch of NULL");
    if (kolo_batch_async(group, ops, 2, NULL) != KOLO_E_INVALID ||
        !strstr(kolo_last_error(), "kolo_batch_async: work is NULL"))
        return ranks_fail("no work");
    if (kolo_batch(group, NULL, 0) || kolo_batch_async(group, NULL, 0, &work) ||
        kolo_work_wait(work, -1))
        return ranks_fail("an empty batch");
    kolo_work_free(work);
    return 0;
}

/* Where every other call is refused, so is a batch of nothing. */
static int batch_nothing_wrongly(kolo_group *group, void *argument)
{
    kolo_work *work = NULL;
    int failed;

    (void)argument;
    failed = ranks_expect(kolo_batch(NULL, NULL, 0), KOLO_E_INVALID, "kolo_batch: group is NULL") ||
             ranks_expect(kolo_batch_async(NULL, NULL, 0, &work), KOLO_E_INVALID,
                          "kolo_batch_async: group is NULL");
    kolo_group_abort(group, "enough");
    return failed ||
           ranks_expect(kolo_batch(group, NULL, 0), KOLO_E_ABORTED, "aborted the group: enough") ||
           ranks_expect(kolo_batch_async(group, NULL, 0, &work), KOLO_E_ABORTED,
                        "aborted the group: enough");
}

/* One of three does not fit: it is told, and the others have arrived. */
static int batch_too_long(kolo_group *group, void *argument)
{
    const int other = 1 - kolo_group_rank(group);
    int32_t out[6] = {1, 2, 3, 4, 5, 6}, in[6] = {0};
    const kolo_p2p ops[] = {
        {1, other, 0, KOLO_INT32, 2, out, NULL},     {1, other, 1, KOLO_INT32, 2, out + 2, NULL},
        {1, other, 2, KOLO_INT32, 2, out + 4, NULL}, {0, other, 0, KOLO_INT32, 2, in, NULL},
        {0, other, 1, KOLO_INT32, 1, in + 2, NULL},  {0, other, 2, KOLO_INT32, 2, in + 4, NULL},
    };
    kolo_work *work;

    (void)argument;
    if (kolo_batch(group, ops, 6) != KOLO_E_TRUNCATED)
        return ranks_fail("a message too long in a batch");
    if (in[0] != 1 || in[2] != 0 || in[5] != 6)
        return ranks_fail("the others have not arrived");
    if (kolo_batch_async(group, ops, 6, &work) || kolo_work_wait(work, -1) != KOLO_E_TRUNCATED)
        return ranks_fail("a message too long in a batch as a work");
    kolo_work_free(work);
    return 0;
}

static void batches_cannot_deadlock(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(2, cross), 0);
    assert_int_equal(ranks_run_all_ways(4, cross), 0);
    assert_int_equal(ranks_run_all_ways(1, cross_as_work), 0);
    assert_int_equal(ranks_run_all_ways(3, cross_as_work), 0);
}

static void wrong_batches_are_told(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(1, batch_wrongly), 0);
    assert_int_equal(ranks_run_all_ways(1, batch_nothing_wrongly), 0);
    assert_int_equal(ranks_run_all_ways(2, batch_too_long), 0);
}

/* ---- exchanges --------------------------------------------------------------------------- */

/* Each to the next, lengths that differ from rank to rank, twice. */
static int shift(kolo_group *group, void *argument)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const int next = (rank + 1) % n, prev = (rank + n - 1) % n;
    const size_t mine = 5000 + 10 * (size_t)rank, theirs = 5000 + 10 * (size_t)prev;
    int32_t *in = numbers(mine), *out = numbers(theirs);
    kolo_work *work;
    int failed = 0;

    (void)argument;
    fill(in, mine, rank, next);
    if (kolo_sendrecv(group, in, mine, next, out, theirs, prev, KOLO_INT32, 3))
        failed = ranks_fail("sendrecv");
    failed = failed ? failed : check(out, theirs, prev, rank);
    memset(out, 0, theirs * sizeof *out);
    if (!failed &&
        (kolo_sendrecv_async(group, in, mine, next, out, theirs, prev, KOLO_INT32, 4, &work) ||
         kolo_work_wait(work, -1)))
        failed = ranks_fail("sendrecv_async");
    if (!failed)
        kolo_work_free(work);
    failed = failed ? failed : check(out, theirs, prev, rank);
    free(in);
    free(out);
    return failed;
}

static int shift_wrongly(kolo_group *group, void *argument)
{
    char in = 0, out = 0;
    kolo_work *work;

    (void)argument;
    if (kolo_sendrecv(group, &in, 1, 9, &out, 1, 0, KOLO_INT8, 0) != KOLO_E_INVALID ||
        !strstr(kolo_last_error(), "the receiver is rank 9"))
        return ranks_fail("to nobody");
    if (kolo_sendrecv_async(group, &in, 1, 0, &out, 1, -2, KOLO_INT8, 0, &work) != KOLO_E_INVALID ||
        !strstr(kolo_last_error(), "the sender is rank -2"))
        return ranks_fail("from nobody");
    if (kolo_sendrecv_async(group, &in, 1, 0, &out, 1, 0, KOLO_INT8, 0, NULL) != KOLO_E_INVALID ||
        !strstr(kolo_last_error(), "kolo_sendrecv_async: work is NULL"))
        return ranks_fail("no work");
    return 0;
}

static void everybody_shifts_at_once(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_all_ways(1, shift), 0);
    assert_int_equal(ranks_run_all_ways(2, shift), 0);
    assert_int_equal(ranks_run_all_ways(5, shift), 0);
    assert_int_equal(ranks_run_all_ways(1, shift_wrongly), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_cannot_deadlock),
        cmocka_unit_test(wrong_batches_are_told),
        cmocka_unit_test(everybody_shifts_at_once),
    };

    set_small_slots();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
