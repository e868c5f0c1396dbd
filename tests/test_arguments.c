/* SPDX-License-Identifier: MIT
 *
 * Collectives that are called wrongly: each mistake is named, and harms nothing.
 */
#include "exam.h"
#include "ranks.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The rank and the count are named of the first block that memory has no end of. */
static int list_too_much(kolo_group *group, void *argument)
{
    const size_t last[] = {SIZE_MAX - 1, 2}, late[] = {0, SIZE_MAX}, counts[] = {2, 2};
    const size_t wide[] = {SIZE_MAX / 8, 1}, too_wide[] = {SIZE_MAX / 8 + 1, 1};
    const kolo_blocks few = {counts, NULL}, sum = {last, NULL}, far_ones = {counts, late};
    const kolo_blocks wide_sum = {wide, NULL}, wide_one = {too_wide, NULL};
    const int mine = kolo_group_rank(group);
    char in[8] = {0}, out[8];
    int failed = 0;

    (void)argument;
    failed |=
        ranks_expect(kolo_all_gather_v(group, in, out, &sum, KOLO_INT8), KOLO_E_INVALID,
                     "all_gather_v: rank 1's block of 2 elements, behind 18446744073709551614 of "
                     "the ranks before it, is more than memory has");
    failed |= ranks_expect(kolo_all_to_all_v(group, in, &sum, out, &few, KOLO_INT8), KOLO_E_INVALID,
                           "all_to_all_v: rank 1's block of 2 elements, behind 184467440737095516");
    failed |=
        ranks_expect(kolo_all_gather_v(group, in, out, &far_ones, KOLO_INT8), KOLO_E_INVALID,
                     "all_gather_v: rank 1's block in out, of 2 elements of int8 from element "
                     "18446744073709551615 on, is more than memory has");
    failed |=
        ranks_expect(kolo_all_gather_v(group, in, out, &wide_sum, KOLO_FLOAT64), KOLO_E_INVALID,
                     "all_gather_v: rank 1's block in out, of 1 elements of float64 from "
                     "element 2305843009213693951 on, is more than memory has");
    failed |= ranks_expect(
        kolo_all_gather_v(group, in, out, &wide_one, KOLO_FLOAT64), KOLO_E_INVALID,
        mine ? "all_gather_v: rank 0's block in out, of 2305843009213693952 elements of float64 "
               "from element 0 on"
             : "all_gather_v: rank 0's block in in, of 2305843009213693952 elements of float64 "
               "from element 0 on");
    failed |= ranks_expect(kolo_reduce_scatter_v(group, in, &wide_sum, out, KOLO_FLOAT64, KOLO_SUM),
                           KOLO_E_INVALID,
                           "reduce_scatter_v: rank 1's block in in, of 1 elements of float64");
    failed |= ranks_expect(kolo_gather_v(group, in, wide[mine], out, &wide_sum, KOLO_FLOAT64, mine),
                           KOLO_E_INVALID, "gather_v: rank 1's block in out, of 1 elements");
    failed |=
        ranks_expect(kolo_scatter_v(group, in, &wide_sum, out, wide[mine], KOLO_FLOAT64, mine),
                     KOLO_E_INVALID, "scatter_v: rank 1's block in in, of 1 elements");
    return failed;
}

/* What is float32 in one of the two buffers alone has twice the length there. */
static int train_too_much(kolo_group *group, void *argument)
{
    const size_t half = SIZE_MAX / 4 + 2; /* of elements of two bytes memory might have so many */
    const kolo_step step = {.optimizer = KOLO_SGD, .number = 1};
    const kolo_cast cast = {.from = KOLO_BFLOAT16, .to = KOLO_FLOAT32, .factor = 1};
    float grad[2] = {0}, param[2] = {0}, found = 0;
    const kolo_update update = {.grad = grad, .param = param, .count = half};
    const kolo_tensor tensors[] = {{grad, param, 2}, {grad, param, half}};
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(
        kolo_all_reduce_step(group, &update, KOLO_FLOAT16, KOLO_SUM, &step), KOLO_E_INVALID,
        "all_reduce_step: 4611686018427387905 elements of float16 for 2 ranks are more than");
    failed |=
        ranks_expect(kolo_all_reduce_compressed(group, grad, param, half, KOLO_FLOAT16, KOLO_SUM),
                     KOLO_E_INVALID, "elements of float32 for 2 ranks are more than memory has");
    failed |=
        ranks_expect(kolo_unscale(group, tensors, 2, &cast, &found), KOLO_E_INVALID,
                     "unscale: tensor 1 of 4611686018427387905 elements is more than memory has");
    return failed;
}

/* What an all_reduce refuses, and what is not as long in one buffer as in the other. */
static int train_in_each_other(kolo_group *group, void *argument)
{
    const kolo_cast widen = {KOLO_FLOAT16, KOLO_FLOAT32, .factor = 1};
    const kolo_cast same = {KOLO_FLOAT32, KOLO_FLOAT32, .factor = 1};
    float memory[8] = {0}, found = 0;
    const kolo_tensor there = {memory, memory, 4}, behind = {memory, memory + 2, 4};
    const kolo_tensor before = {memory + 4, memory + 1, 4};
    kolo_work *work;
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(
        kolo_all_reduce_compressed(group, memory, memory + 3, 4, KOLO_BFLOAT16, KOLO_SUM),
        KOLO_E_INVALID, "all_reduce_compressed: in and out overlap, and are not the same");
    failed |= ranks_expect(kolo_all_reduce_compressed_async(group, memory + 3, memory, 4,
                                                            KOLO_BFLOAT16, KOLO_SUM, &work),
                           KOLO_E_INVALID, "all_reduce_compressed: in and out overlap");
    failed |= ranks_expect(kolo_unscale(group, &there, 1, &widen, &found), KOLO_E_INVALID,
                           "unscale: in and out of tensor 0 overlap, and are not both the same "
                           "memory and of one type");
    failed |= ranks_expect(kolo_unscale(group, &before, 1, &widen, &found), KOLO_E_INVALID,
                           "unscale: in and out of tensor 0 overlap");
    failed |= ranks_expect(kolo_unscale_async(group, &behind, 1, &same, &found, &work),
                           KOLO_E_INVALID, "unscale: in and out of tensor 0 overlap");
    failed |= ranks_expect(kolo_unscale(group, &there, 1, &same, NULL), KOLO_E_INVALID,
                           "unscale: found_inf is NULL");
    failed |= kolo_all_reduce_compressed(group, memory, memory, 4, KOLO_BFLOAT16, KOLO_SUM);
    failed |= kolo_unscale(group, &behind, 1, &widen, &found);
    failed |= kolo_unscale(group, &there, 1, &same, &found);
    return failed;
}

static int list_wrongly(kolo_group *group, void *argument)
{
    const size_t counts[] = {2, 2};
    const size_t threes[] = {3, 3};
    const kolo_blocks some = {counts, NULL}, none = {NULL, NULL};
    const kolo_blocks three = {threes, NULL};
    const int mine = kolo_group_rank(group);
    char in[8] = {0}, out[8];
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(kolo_all_gather_v(NULL, in, out, &some, KOLO_INT8), KOLO_E_INVALID,
                           "all_gather_v: group is NULL");
    failed |= ranks_expect(kolo_all_gather_v(group, in, out, NULL, KOLO_INT8), KOLO_E_INVALID,
                           "all_gather_v: blocks is NULL");
    failed |= ranks_expect(kolo_reduce_scatter_v(group, in, &none, out, KOLO_INT8, KOLO_SUM),
                           KOLO_E_INVALID, "reduce_scatter_v: counts is NULL");
    failed |= ranks_expect(kolo_gather_v(group, in, 2, out, NULL, KOLO_INT8, mine), KOLO_E_INVALID,
                           "gather_v: blocks is NULL");
    failed |= ranks_expect(kolo_gather_v(group, in, 2, NULL, &some, KOLO_INT8, mine),
                           KOLO_E_INVALID, "gather_v: out is NULL, with 4 elements");
    failed |= ranks_expect(kolo_scatter_v(group, NULL, &some, out, 2, KOLO_INT8, mine),
                           KOLO_E_INVALID, "scatter_v: in is NULL, with 4 elements");
    failed |= ranks_expect(kolo_all_to_all_v(group, in, &some, out, NULL, KOLO_INT8),
                           KOLO_E_INVALID, "all_to_all_v: blocks is NULL");
    failed |= ranks_expect(kolo_all_to_all_v(group, in, &some, in, &some, KOLO_INT8),
                           KOLO_E_INVALID, "all_to_all_v: in and out must be different buffers");
    failed |= ranks_expect(kolo_gather_v(group, in, 3, out, &some, KOLO_INT8, mine), KOLO_E_INVALID,
                           "gather_v: this rank's own block has 3 elements in in, 2 in out");
    failed |=
        ranks_expect(kolo_scatter_v(group, in, &some, out, 1, KOLO_INT8, mine), KOLO_E_INVALID,
                     "scatter_v: this rank's own block has 2 elements in in, 1 in out");
    failed |=
        ranks_expect(kolo_all_to_all_v(group, in, &some, out, &three, KOLO_INT8), KOLO_E_INVALID,
                     "all_to_all_v: this rank's own block has 2 elements in in, 3 in out");
    failed |= ranks_expect(kolo_all_gather_v_async(group, in, out, &some, KOLO_INT8, NULL),
                           KOLO_E_INVALID, "all_gather_v_async: work is NULL");
    failed |= exam_take(group, &(struct exam){.what = KO_ALL_GATHER, .count = 9, .is_uneven = 1});
    return failed;
}

/* Of elements of two bytes: one too near before, and behind; and in the place of the other rank. */
static int overlap(kolo_group *group, char *in, int mine)
{
    static const char same[] = "in and out overlap, and are not the same";
    static const char of_out[] = "in and out overlap, and in is not out + rank*count";
    static const char of_in[] = "in and out overlap, and out is not in + rank*count";
    static const char apart[] = "all_to_all: in and out must be different buffers";
    kolo_tensor tensors[] = {{in, in, 3}, {in, in + 5, 3}};
    char *theirs = in + 6 * (1 - mine);
    int failed = 0;

    for (int by = -5; by <= 5; by += 10)
        failed |=
            ranks_expect(kolo_all_reduce(group, in + 8, in + 8 + by, 3, KOLO_FLOAT16, KOLO_SUM),
                         KOLO_E_INVALID, same);
    failed |= ranks_expect(kolo_reduce(group, in, in + 2, 3, KOLO_FLOAT16, KOLO_SUM, mine),
                           KOLO_E_INVALID, same);
    failed |=
        ranks_expect(kolo_all_gather(group, theirs, in, 3, KOLO_FLOAT16), KOLO_E_INVALID, of_out);
    failed |=
        ranks_expect(kolo_gather(group, theirs, in, 3, KOLO_FLOAT16, mine), KOLO_E_INVALID, of_out);
    failed |= ranks_expect(kolo_reduce_scatter(group, in, theirs, 3, KOLO_FLOAT16, KOLO_SUM),
                           KOLO_E_INVALID, of_in);
    failed |=
        ranks_expect(kolo_scatter(group, in, theirs, 3, KOLO_FLOAT16, mine), KOLO_E_INVALID, of_in);
    failed |=
        ranks_expect(kolo_all_to_all(group, in, in + 11, 3, KOLO_FLOAT16), KOLO_E_INVALID, apart);
    failed |= ranks_expect(kolo_all_reduce_coalesced(group, tensors, 2, KOLO_FLOAT16, KOLO_SUM),
                           KOLO_E_INVALID, same);
    /* side by side, and in place */
    failed |= kolo_all_reduce(group, in, in + 6, 3, KOLO_FLOAT16, KOLO_SUM);
    failed |= kolo_all_reduce(group, in + 6, in, 3, KOLO_FLOAT16, KOLO_SUM);
    failed |= kolo_all_to_all(group, in + 12, in, 3, KOLO_FLOAT16);
    failed |= kolo_all_gather(group, in + 6 * mine, in, 3, KOLO_FLOAT16);
    failed |= kolo_reduce_scatter(group, in, in + 6 * mine, 3, KOLO_FLOAT16, KOLO_SUM);
    return failed;
}

static int call_wrongly(kolo_group *group, void *argument)
{
    const size_t huge = SIZE_MAX / 6;
    char in[64] = {0}, out[64];
    const int mine = kolo_group_rank(group);
    int failed = 0;

    (void)argument;
    failed |= ranks_expect(kolo_all_reduce(NULL, in, out, 1, KOLO_INT8, KOLO_SUM), KOLO_E_INVALID,
                           "all_reduce: group is NULL");
    failed |= ranks_expect(kolo_barrier(NULL), KOLO_E_INVALID, "barrier: group is NULL");
    failed |= ranks_expect(kolo_all_gather(group, in, out, 1, (kolo_dtype)99), KOLO_E_INVALID,
                           "all_gather: 99 is no dtype");
    failed |= ranks_expect(kolo_all_reduce(group, in, out, 1, (kolo_dtype)-1, KOLO_SUM),
                           KOLO_E_INVALID, "all_reduce: -1 is no dtype");
    failed |= ranks_expect(kolo_all_reduce(group, in, out, 1, KOLO_INT8, KOLO_NOPS), KOLO_E_INVALID,
                           "all_reduce: 8 is no reduction; enum kolo_op lists them");
    failed |= ranks_expect(kolo_all_reduce(group, in, out, 1, KOLO_INT8, (kolo_op)INT_MIN),
                           KOLO_E_INVALID, "-2147483648 is no reduction");
    failed |= ranks_expect(kolo_op_free(group, (kolo_op)INT_MIN), KOLO_E_INVALID,
                           "-2147483648 is no reduction");
    failed |=
        ranks_expect(kolo_reduce_scatter(group, in, out, 1, KOLO_FLOAT32, KOLO_BXOR),
                     KOLO_E_UNSUPPORTED, "reduce_scatter: bxor is for integers, not for float32");
    failed |= ranks_expect(kolo_broadcast(group, NULL, 1, KOLO_INT8, 0), KOLO_E_INVALID,
                           "broadcast: buffer is NULL, with 1 elements");
    failed |= ranks_expect(kolo_group_error(NULL, NULL), KOLO_E_INVALID,
                           "kolo_group_error: group is NULL");
    failed |= ranks_expect(kolo_broadcast(group, out, 1, KOLO_INT8, 2), KOLO_E_INVALID,
                           "broadcast: the root is rank 2; the group has ranks 0 to 1");
    failed |= ranks_expect(kolo_reduce(group, in, out, 1, KOLO_INT8, KOLO_SUM, -1), KOLO_E_INVALID,
                           "reduce: the root is rank -1; the group has ranks 0 to 1");
    failed |=
        ranks_expect(kolo_all_reduce(group, in, out, huge, KOLO_FLOAT64, KOLO_SUM), KOLO_E_INVALID,
                     "elements of float64 for 2 ranks are more than memory has");
    failed |= ranks_expect(
        kolo_all_reduce(group, in, out, (size_t)1 << 61, KOLO_FLOAT64, KOLO_SUM), KOLO_E_INVALID,
        "elements of float64 for 2 ranks are more than memory has"); /* whose bytes wrap to none */
    failed |= ranks_expect(kolo_all_gather(group, in, out, SIZE_MAX / 2 + 1, KOLO_INT8),
                           KOLO_E_INVALID, "elements of int8 for 2 ranks are more than memory has");
    failed |= ranks_expect(kolo_all_reduce(group, NULL, out, 1, KOLO_INT8, KOLO_SUM),
                           KOLO_E_INVALID, "all_reduce: in is NULL, with 1 elements");
    failed |= ranks_expect(kolo_all_reduce(group, in, NULL, 3, KOLO_INT8, KOLO_SUM), KOLO_E_INVALID,
                           "all_reduce: out is NULL, with 3 elements");
    failed |= ranks_expect(kolo_reduce(group, in, NULL, 3, KOLO_INT8, KOLO_SUM, mine),
                           KOLO_E_INVALID, "reduce: out is NULL");
    failed |= ranks_expect(kolo_scatter(group, NULL, out, 3, KOLO_INT8, mine), KOLO_E_INVALID,
                           "scatter: in is NULL");
    failed |= ranks_expect(kolo_scatter(group, NULL, NULL, 3, KOLO_INT8, 1 - mine), KOLO_E_INVALID,
                           "scatter: out is NULL");
    failed |= ranks_expect(kolo_gather(group, in, NULL, 3, KOLO_INT8, mine), KOLO_E_INVALID,
                           "gather: out is NULL");
    failed |= ranks_expect(kolo_all_to_all(group, in, in, 3, KOLO_INT8), KOLO_E_INVALID,
                           "all_to_all: in and out must be different buffers");
    failed |= overlap(group, in, mine);
    failed |= ranks_expect(kolo_all_reduce_async(group, in, out, 1, KOLO_INT8, KOLO_SUM, NULL),
                           KOLO_E_INVALID, "all_reduce_async: work is NULL");
    failed |= ranks_expect(kolo_barrier_async(group, NULL), KOLO_E_INVALID,
                           "barrier_async: work is NULL");
    /* None of this has harmed the group, nor may NULL buffers of no elements. */
    failed |= kolo_all_reduce(group, NULL, NULL, 0, KOLO_INT8, KOLO_SUM);
    failed |= exam_take(group, &(struct exam){.what = KO_ALL_REDUCE, .count = 9});
    return failed;
}

/* Nothing of a call that was right goes for one that looks like it. */
static int call_wrongly_after(kolo_group *group, void *argument)
{
    char in[8] = {0}, out[8];
    const int mine = kolo_group_rank(group);
    int failed = 0;

    (void)argument;
    failed |= kolo_all_reduce(group, in, out, 3, KOLO_INT8, KOLO_SUM);
    failed |= kolo_broadcast(group, out, 3, KOLO_INT8, 1);
    failed |= kolo_all_to_all(group, in, out, 3, KOLO_INT8);
    failed |= kolo_gather(group, in, mine ? NULL : out, 3, KOLO_INT8, 0);
    failed |= ranks_expect(kolo_all_reduce(NULL, in, out, 3, KOLO_INT8, KOLO_SUM), KOLO_E_INVALID,
                           "all_reduce: group is NULL");
    failed |= ranks_expect(kolo_all_reduce(group, NULL, out, 3, KOLO_INT8, KOLO_SUM),
                           KOLO_E_INVALID, "all_reduce: in is NULL, with 3 elements");
    failed |= ranks_expect(kolo_all_reduce(group, in, NULL, 3, KOLO_INT8, KOLO_SUM), KOLO_E_INVALID,
                           "all_reduce: out is NULL, with 3 elements");
    failed |= ranks_expect(kolo_all_reduce(group, in, in + 2, 3, KOLO_INT8, KOLO_SUM),
                           KOLO_E_INVALID, "all_reduce: in and out overlap, and are not the same");
    failed |= ranks_expect(kolo_gather(group, out, out + 1, 3, KOLO_INT8, mine), KOLO_E_INVALID,
                           "gather: in and out overlap");
    failed |=
        ranks_expect(kolo_all_reduce(group, in, out, 3, (kolo_dtype)(KOLO_INT8 + 256), KOLO_SUM),
                     KOLO_E_INVALID, "all_reduce: 256 is no dtype");
    failed |= ranks_expect(kolo_all_reduce(group, in, out, 3, KOLO_INT8, (kolo_op)(KOLO_SUM + 256)),
                           KOLO_E_INVALID, "256 is no reduction");
    failed |= ranks_expect(kolo_broadcast(group, out, 3, KOLO_INT8, 2), KOLO_E_INVALID,
                           "broadcast: the root is rank 2; the group has ranks 0 to 1");
    failed |= ranks_expect(kolo_broadcast(group, out, 3, KOLO_INT8, -1), KOLO_E_INVALID,
                           "broadcast: the root is rank -1; the group has ranks 0 to 1");
    failed |= ranks_expect(kolo_all_to_all(group, in, in, 3, KOLO_INT8), KOLO_E_INVALID,
                           "all_to_all: in and out must be different buffers");
    failed |= ranks_expect(kolo_gather(group, in, NULL, 3, KOLO_INT8, mine), KOLO_E_INVALID,
                           "gather: out is NULL");
    return failed;
}

/* Calls that are alike but for what a repeated one may change, and among them others of the same
 * collective. */
static int call_again(kolo_group *group, void *argument)
{
    const size_t counts[] = {2, 3};
    const kolo_blocks blocks = {counts, NULL};
    const int mine = kolo_group_rank(group);
    int32_t in[3][2] = {{1, 2}, {3, 4}, {5, 6}}, more[] = {4, 5, 6}, out[3][5];
    kolo_op twice;
    int failed = kolo_op_premul_sum(group, 2, &twice);

    (void)argument;
    for (int i = 0; i < 12 && !failed; i++) {
        int32_t *to = out[i % 3], *from = in[i % 3], root[] = {i, 7 * i};

        failed |= kolo_all_reduce(group, from, to, 2, KOLO_INT32, KOLO_SUM);
        failed |= to[0] != 2 * from[0] || to[1] != 2 * from[1];
        failed |= i % 4 == 1 && kolo_all_reduce(group, from, to, 2, KOLO_INT32, KOLO_PROD);
        failed |= i % 4 == 2 && kolo_all_reduce(group, from, to, 1, KOLO_INT64, KOLO_MAX);
        for (int k = 0; k < 2 && i % 4 == 3; k++)
            failed |= kolo_all_reduce(group, from, to, 2, KOLO_INT32, twice);
        failed |= i % 4 == 3 && (to[0] != 4 * from[0] || to[1] != 4 * from[1]);
        to[0] = to[1] = -1;
        failed |= kolo_broadcast(group, mine == i % 2 ? root : to, 2, KOLO_INT32, i % 2);
        failed |= mine != i % 2 && (to[0] != i || to[1] != 7 * i);
        failed |= kolo_all_gather(group, from, to, 2, KOLO_INT32);
        failed |= to[2] != from[0] || to[3] != from[1];
        failed |= i % 3 == 2 &&
                  kolo_all_gather_v(group, mine ? more : in[0], out[1], &blocks, KOLO_INT32);
        failed |= i % 3 == 2 && (out[1][1] != 2 || out[1][2] != 4 || out[1][4] != 6);
        failed |= kolo_barrier(group);
    }
    return failed ? ranks_fail("a call went wrong: %s", kolo_last_error())
                  : kolo_op_free(group, twice);
}

static void repeated_calls_are_told_apart(void **state)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};

    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    assert_int_equal(ranks_run(&ranks, call_wrongly_after, NULL), 0);
    assert_int_equal(ranks_run(&ranks, call_again, NULL), 0);
    setenv("KOLO_CHECK", "1", 1);
    assert_int_equal(ranks_run(&ranks, call_again, NULL), 0);
    unsetenv("KOLO_CHECK");
}

static void wrong_arguments_are_named(void **state)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};
    int done;

    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    assert_int_equal(ranks_run(&ranks, call_wrongly, NULL), 0);
    assert_int_equal(ranks_run(&ranks, list_wrongly, NULL), 0);
    assert_int_equal(ranks_run(&ranks, list_too_much, NULL), 0);
    assert_int_equal(ranks_run(&ranks, train_too_much, NULL), 0);
    assert_int_equal(ranks_run(&ranks, train_in_each_other, NULL), 0);
    assert_int_equal(ranks_expect(kolo_work_wait(NULL, -1), KOLO_E_INVALID, "work is NULL"), 0);
    assert_int_equal(ranks_expect(kolo_work_test(NULL, &done), KOLO_E_INVALID, "work is NULL"), 0);
    assert_string_equal(kolo_work_error(NULL), "");
    kolo_work_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_arguments_are_named),
                                       cmocka_unit_test(repeated_calls_are_told_apart)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
