/* SPDX-License-Identifier: MIT
 *
 * Training's calls on host memory, by ranks that are threads and processes, over shared memory and
 * TCP; what they refuse; ranks that give different options.
 */
#include "gradient_exam.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SLICE_BYTES = 4096, EXAMS = 24 };

static int take_exams(kolo_group *group, void *unused)
{
    int failed = 0;

    (void)unused;
    for (unsigned seed = 0; seed < EXAMS && !failed; seed++) {
        failed = gradient_exam_step(group, NULL, seed);
        if (!failed)
            failed = gradient_exam_compressed(group, NULL, seed);
        if (!failed)
            failed = gradient_exam_unscale(group, NULL, seed);
    }
    return failed;
}

static void test_exams(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};
    static const int sizes[] = {1, 2, 3, 5};

    (void)state;
    for (int t = 0; t < 2; t++) {
        exam_set_variables(transports[t], "", SLICE_BYTES);
        for (int i = 0; i < 4; i++)
            for (int kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++)
                assert_int_equal(
                    ranks_run(&(struct ranks){.kind = (enum ranks_kind)kind, .n = sizes[i]},
                              take_exams, NULL),
                    0);
    }
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static const kolo_step plain_sgd = {.optimizer = KOLO_SGD, .number = 1, .rate = 0.1F};

static int refuse_steps(kolo_group *group)
{
    float grad = 1, param = 1;
    const kolo_update update = {.grad = &grad, .param = &param, .count = 1};
    const kolo_update without_param = {.grad = &grad, .count = 1};
    kolo_step step = plain_sgd;
    int failed = 0;

    failed |= ranks_expect(kolo_all_reduce_step(group, NULL, KOLO_FLOAT32, KOLO_SUM, &step),
                           KOLO_E_INVALID, "all_reduce_step: update is NULL");
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, NULL),
                           KOLO_E_INVALID, "step is NULL");
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_MAX, &step),
                           KOLO_E_INVALID, "op must be KOLO_SUM or KOLO_AVG");
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT64, KOLO_SUM, &step),
                           KOLO_E_UNSUPPORTED, "not float64");
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, (kolo_dtype)77, KOLO_SUM, &step),
                           KOLO_E_INVALID, "77 is no dtype");
    failed |=
        ranks_expect(kolo_all_reduce_step(group, &without_param, KOLO_FLOAT32, KOLO_SUM, &step),
                     KOLO_E_INVALID, "out is NULL");
    failed |= ranks_expect(
        kolo_all_reduce_step_async(group, &update, KOLO_FLOAT32, KOLO_SUM, &step, NULL),
        KOLO_E_INVALID, "work is NULL");
    step.momentum = 0.9F;
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step),
                           KOLO_E_INVALID, "states[0] is NULL");
    step.wire = KOLO_FLOAT64;
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step),
                           KOLO_E_INVALID, "not as float64");
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT16, KOLO_SUM, &step),
                           KOLO_E_INVALID, "wire is for float32");
    step.number = 0;
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step),
                           KOLO_E_INVALID, "from 1 on");
    step.optimizer = (kolo_optimizer)2;
    failed |= ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step),
                           KOLO_E_INVALID, "2 is no optimizer");
    return failed || grad != 1 || param != 1;
}

static int refuse_others(kolo_group *group)
{
    float x = 1, found = 0;
    const kolo_tensor tensors[] = {{&x, &x, 1}, {NULL, &x, 1}};
    kolo_cast cast = {.from = KOLO_FLOAT32, .to = KOLO_FLOAT32, .factor = 2};
    int failed = 0;

    failed |= ranks_expect(
        kolo_all_reduce_compressed(group, &x, &x, 1, KOLO_FLOAT32, KOLO_SUM), KOLO_E_INVALID,
        "all_reduce_compressed: float32 travels as float16 or bfloat16, not as float32");
    failed |= ranks_expect(kolo_all_reduce_compressed(group, &x, &x, 1, KOLO_FLOAT16, KOLO_PROD),
                           KOLO_E_INVALID, "op must be");
    failed |= ranks_expect(
        kolo_all_reduce_compressed_async(group, &x, &x, 1, KOLO_FLOAT16, KOLO_SUM, NULL),
        KOLO_E_INVALID, "work is NULL");
    failed |= ranks_expect(kolo_unscale(group, tensors, 2, &cast, &found), KOLO_E_INVALID,
                           "unscale: tensor 1 has no in");
    failed |= ranks_expect(kolo_unscale(group, NULL, 2, &cast, &found), KOLO_E_INVALID,
                           "tensors is NULL");
    failed |=
        ranks_expect(kolo_unscale(group, tensors, 1, NULL, &found), KOLO_E_INVALID, "cast is NULL");
    failed |= ranks_expect(kolo_unscale_async(group, tensors, 1, &cast, &found, NULL),
                           KOLO_E_INVALID, "work is NULL");
    cast.to = KOLO_INT8;
    failed |= ranks_expect(kolo_unscale(group, tensors, 1, &cast, &found), KOLO_E_UNSUPPORTED,
                           "not int8");
    return failed || x != 1;
}

static int refuse(kolo_group *group, void *unused)
{
    (void)unused;
    return refuse_steps(group) || refuse_others(group) ? ranks_fail("not refused") : 0;
}

static void test_wrong_calls(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, refuse, NULL), 0);
}

static int differ(kolo_group *group, void *unused)
{
    const bool is_last = kolo_group_rank(group) == kolo_group_size(group) - 1;
    float grad = 1, param = 1;
    const kolo_update update = {.grad = &grad, .param = &param, .count = 1};
    kolo_step step = plain_sgd;

    (void)unused;
    step.rate = is_last ? 0.2F : 0.1F;
    return ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step),
                        KOLO_E_MISMATCH, "with options ");
}

static void test_options_that_differ(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, differ, NULL),
                         0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exams),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_options_that_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
