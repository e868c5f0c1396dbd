/* SPDX-License-Identifier: MIT
 *
 * The device's reductions against the host's, bit by bit: every dtype and op, odd counts, any
 * alignment, one to sixteen parts, several outputs, in place, and not a byte beyond; sums of what
 * has been multiplied by factors.
 */
#include "bits.h"
#include "gpu_rank.h"
#include "reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST_BYTES = 40000 };

static int start(void **state)
{
    (void)state;
    return gpu_rank.cuda ? 0 : gpu_rank_enter(NULL);
}

static void take(const struct bits_fold *fold, unsigned *seed)
{
    assert_int_equal(bits_take_fold(fold, seed), 0);
}

static bool allows(kolo_dtype dtype, kolo_op op)
{
    return ko_reduction_of(dtype, op) != NULL;
}

static void test_every_dtype_and_op(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
        for (int op = 0; op < KOLO_NOPS; op++)
            for (int nparts = 1; nparts <= 5; nparts++) {
                const struct bits_fold trial = {.dtype = (kolo_dtype)dtype,
                                                .op = (kolo_op)op,
                                                .count = 4000 + (size_t)nparts,
                                                .nparts = nparts,
                                                .nouts = 1,
                                                .is_tame = nparts % 2};

                if (allows(trial.dtype, trial.op))
                    take(&trial, &seed);
            }
}

static void test_counts_and_places(void **state)
{
    static const size_t counts[] = {0, 1, 2, 15, 16, 17, 31, 127, 511, 512, 513, 1023, 2049};
    unsigned seed = 2;

    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        struct bits_fold trial = {.dtype = (kolo_dtype)(i % KOLO_NDTYPES),
                                  .op = i % 3 ? KOLO_SUM : KOLO_MAX,
                                  .count = counts[i % (sizeof counts / sizeof *counts)],
                                  .nparts = 1 + (int)(i / 7 % KO_FOLD_MOST),
                                  .is_in_place = i % 5 == 0,
                                  .is_uneven = i % 4 == 1};
        const size_t width = kolo_dtype_size(trial.dtype);

        trial.shift = i / 13 % 17 * width % 48;
        trial.nouts = 1 + (int)(i / 3) % trial.nparts;
        if (trial.count * width > MOST_BYTES)
            trial.count = MOST_BYTES / width;
        take(&trial, &seed);
    }
}

static void test_factors(void **state)
{
    static const double factors[] = {3, -2, 0.3, 0, 1e-3, -1.75, 1, 100, 0.5};
    unsigned seed = 3;

    (void)state;
    for (unsigned i = 0; i < 10 * KOLO_NDTYPES; i++) {
        const struct bits_fold trial = {.dtype = (kolo_dtype)(i % KOLO_NDTYPES),
                                        .op = KOLO_SUM,
                                        .count = i < 20 ? i : 1000 + i,
                                        .shift = i % 3 * 8,
                                        .nparts = 1 + (int)(i % 7),
                                        .nouts = 1 + (int)(i % 3 > 1),
                                        .is_in_place = i % 5 == 0,
                                        .is_uneven = i % 4 == 1,
                                        .factors = factors + i % 3};

        take(&trial, &seed);
    }
}

static void test_what_cannot_be_reduced(void **state)
{
    const struct ko_fold fold = {.count = 1, .nparts = 1, .nouts = 1};

    (void)state;
    assert_int_equal(ko_cuda_fold(KOLO_FLOAT32, KOLO_BXOR, fold, 1, NULL), KOLO_E_UNSUPPORTED);
    assert_int_equal(ko_cuda_fold((kolo_dtype)99, KOLO_SUM, fold, 1, NULL), KOLO_E_INVALID);
    assert_int_equal(ko_cuda_premul((kolo_dtype)99, &fold, NULL, NULL), KOLO_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_dtype_and_op, start),
        cmocka_unit_test_setup(test_counts_and_places, start),
        cmocka_unit_test_setup(test_factors, start),
        cmocka_unit_test_setup(test_what_cannot_be_reduced, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
