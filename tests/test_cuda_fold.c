/* SPDX-License-Identifier: MIT
 *
 * The device's reductions against the host's, bit by bit: every dtype and op, odd counts, any
 * alignment, one to sixteen parts, several outputs, in place, and not a byte beyond; sums of what
 * has been multiplied by factors; blocks of many threads, for whom packs make no whole turns.
 */
#include "bits.h"
#include "gpu_double.h"
#include "gpu_rank.h"
#include "reduce.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

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
                                        .nouts = 1 + (i % 3 > 1 && i % 7),
                                        .is_in_place = i % 5 == 0,
                                        .is_uneven = i % 4 == 1,
                                        .factors = factors + i % 3};

        take(&trial, &seed);
    }
}

/* What of the arrays makes no pack: less than one at either end of each. */
static uint64_t count_narrow(const struct bits_fold *fold)
{
    const size_t width = kolo_dtype_size(fold->dtype), pack = 16;
    const size_t ahead = (pack - fold->shift % pack) % pack;
    const size_t behind = (fold->count * width - ahead) % pack;

    return (uint64_t)(fold->nparts + fold->nouts) * (ahead + behind);
}

/* Two blocks of 512 threads, each of which takes one pack or two in a turn: sizes around whole
 * turns of one block and of both. */
static void take_turns(unsigned i, unsigned *seed)
{
    static const size_t sizes[] = {8192, 16384, 24576, 32768, 65536};
    static const int more[] = {-16, 0, 1, -48, 16}; /* bytes; 1: an element */
    const kolo_dtype dtype = (kolo_dtype)(i % KOLO_NDTYPES);
    const int width = (int)kolo_dtype_size(dtype), by = more[i / 5 % 5];
    const struct bits_fold trial = {.dtype = dtype,
                                    .op = i % 2 ? KOLO_SUM : KOLO_MAX,
                                    .count = sizes[i % 5] / (size_t)width +
                                             (size_t)(by == 1 ? 1 : by / width),
                                    .shift = i % 4 == 3 ? (size_t)width % 16 : 0,
                                    .nparts = 2 << i / KOLO_NDTYPES % 3,
                                    .nouts = 1 + (int)(i % 2),
                                    .is_in_place = i % 3 == 2};
    const uint64_t narrow = gpu_bytes_narrow();

    take(&trial, seed);
    assert_int_equal(gpu_bytes_narrow() - narrow, count_narrow(&trial));
}

static void test_turns(void **state)
{
    unsigned seed = 4;

    (void)state;
    setenv("FAKECUDA_MULTIPROCESSORS", "1", 1);
    setenv("FAKECUDA_THREADS", IS_SANITIZED ? "0" : "1", 1);
    for (unsigned i = 0; i < 3 * KOLO_NDTYPES; i++)
        take_turns(i, &seed);
    unsetenv("FAKECUDA_THREADS");
    unsetenv("FAKECUDA_MULTIPROCESSORS");
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
        cmocka_unit_test_setup(test_turns, start),
        cmocka_unit_test_setup(test_what_cannot_be_reduced, start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
