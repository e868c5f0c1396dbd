/* SPDX-License-Identifier: MIT
 *
 * The device's reductions against the host's, bit by bit: every dtype and op, odd counts, any
 * alignment, one to sixteen parts, several outputs, in place, and not a byte beyond; sums of what
 * has been multiplied by factors.
 */
#include "cuda_kernels.h"
#include "reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_BYTES = 40000, GUARD = 64, STRIDE = MOST_BYTES + 2 * GUARD, GUARD_BYTE = 0x5c };

/* One reduction: arrays lie STRIDE bytes apart, part p `shift` bytes (and p more if it is uneven,
 * times the element) beyond the guard. */
struct trial {
    kolo_dtype dtype;
    kolo_op op;
    size_t count, shift;
    int nparts, nouts;
    bool is_in_place, is_uneven;
    const double *factors; /* NULL: none */
};

static const struct ko_cuda *cuda;
static ko_cu_ptr memory; /* of 2 * KO_FOLD_MOST arrays */
static unsigned char host[2 * KO_FOLD_MOST][STRIDE];
static unsigned char expected[STRIDE], scaled[KO_FOLD_MOST][STRIDE];

static int start(void **state)
{
    ko_cu_context context;

    (void)state;
    return cuda ? 0
                : ko_cuda_open(&cuda) || cuda->context_retain(&context, 0) ||
                      cuda->context_push(context) || cuda->alloc(&memory, sizeof host);
}

static size_t offset_of(const struct trial *trial, int array)
{
    const size_t uneven = trial->is_uneven ? (size_t)array * kolo_dtype_size(trial->dtype) : 0;

    return GUARD + trial->shift + uneven % GUARD;
}

/* Any bits, but floats that are no NaN, whose payload differs between processors. */
static void randomize(const struct trial *trial, unsigned char *bytes, unsigned *seed)
{
    const size_t width = kolo_dtype_size(trial->dtype);

    for (size_t i = 0; i < trial->count * width; i++)
        bytes[i] = (unsigned char)(rand_r(seed) >> 8);
    if (trial->dtype == KOLO_FLOAT32 || trial->dtype == KOLO_FLOAT64)
        for (size_t i = width - 1; i < trial->count * width; i += width)
            bytes[i] &= 0xbf; /* at most 2, so that products stay finite too */
}

static bool is_nan(kolo_dtype dtype, const unsigned char *at)
{
    uint64_t bits = 0;

    memcpy(&bits, at, kolo_dtype_size(dtype));
    switch (dtype) {
    case KOLO_FLOAT16:
        return (bits & 0x7fff) > 0x7c00;
    case KOLO_BFLOAT16:
        return (bits & 0x7fff) > 0x7f80;
    case KOLO_FLOAT8_E4M3:
        return (bits & 0x7f) == 0x7f;
    case KOLO_FLOAT8_E5M2:
        return (bits & 0x7f) > 0x7c;
    default:
        return false;
    }
}

static void compare(const struct trial *trial, const unsigned char *out)
{
    const size_t width = kolo_dtype_size(trial->dtype);

    for (size_t i = 0; i < trial->count; i++) {
        const unsigned char *have = out + i * width, *want = expected + i * width;

        if (memcmp(have, want, width) != 0 &&
            !(is_nan(trial->dtype, have) && is_nan(trial->dtype, want)))
            fail_msg("%s %s of %d parts: element %zu of %zu is wrong",
                     kolo_dtype_name(trial->dtype), kolo_op_name(trial->op), trial->nparts, i,
                     trial->count);
    }
}

static void check_guards(const struct trial *trial, int array)
{
    const size_t begin = offset_of(trial, array),
                 end = begin + trial->count * kolo_dtype_size(trial->dtype);

    for (size_t i = 0; i < STRIDE; i++)
        if ((i < begin || i >= end) && host[array][i] != GUARD_BYTE)
            fail_msg("array %d was touched outside, at byte %zu of %zu..%zu", array, i, begin, end);
}

static struct ko_fold lay_out(const struct trial *trial)
{
    struct ko_fold fold = {
        .count = trial->count, .nparts = (uint32_t)trial->nparts, .nouts = (uint32_t)trial->nouts};

    for (int p = 0; p < trial->nparts; p++)
        fold.parts[p] = memory + (size_t)p * STRIDE + offset_of(trial, p);
    for (int o = 0; o < trial->nouts; o++) {
        const int array = trial->is_in_place ? o : KO_FOLD_MOST + o;

        fold.outs[o] = memory + (size_t)array * STRIDE + offset_of(trial, array);
    }
    return fold;
}

static void begin(const struct trial *trial)
{
    const struct ko_fold fold = lay_out(trial);
    int err = trial->factors ? ko_cuda_premul(trial->dtype, &fold, trial->factors, NULL)
                             : ko_cuda_fold(trial->dtype, trial->op, fold, trial->nparts + 1, NULL);

    assert_int_equal(err, KOLO_OK);
}

static void take(const struct trial *trial, unsigned *seed)
{
    const void *parts[KO_FOLD_MOST];
    struct ko_reduction reduction;

    assert_int_equal(ko_reduction_find(trial->dtype, trial->op, &reduction), KOLO_OK);
    memset(host, GUARD_BYTE, sizeof host);
    for (int p = 0; p < trial->nparts; p++) {
        parts[p] = host[p] + offset_of(trial, p);
        randomize(trial, host[p] + offset_of(trial, p), seed);
        if (trial->factors) {
            reduction.scale(scaled[p], parts[p], trial->count, trial->factors[p]);
            parts[p] = scaled[p];
        }
    }
    reduction.many(expected, parts, trial->nparts, trial->count, trial->nparts + 1);
    assert_int_equal(cuda->copy(memory, (uintptr_t)host, sizeof host, NULL), 0);
    begin(trial);
    assert_int_equal(cuda->copy((uintptr_t)host, memory, sizeof host, NULL), 0);
    assert_int_equal(cuda->stream_sync(NULL), 0);
    for (int o = 0; o < trial->nouts; o++) {
        const int array = trial->is_in_place ? o : KO_FOLD_MOST + o;

        compare(trial, host[array] + offset_of(trial, array));
        check_guards(trial, array);
    }
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
                const struct trial trial = {.dtype = (kolo_dtype)dtype,
                                            .op = (kolo_op)op,
                                            .count = 4000 + (size_t)nparts,
                                            .nparts = nparts,
                                            .nouts = 1};

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
        struct trial trial = {.dtype = (kolo_dtype)(i % KOLO_NDTYPES),
                              .op = i % 3 ? KOLO_SUM : KOLO_MAX,
                              .count = counts[i % (sizeof counts / sizeof *counts)],
                              .nparts = 1 + (int)(i / 7 % KO_FOLD_MOST),
                              .is_in_place = i % 5 == 0,
                              .is_uneven = i % 4 == 1};
        const size_t width = kolo_dtype_size(trial.dtype);

        trial.shift = i / 13 % 17 * width % 48;
        trial.nouts = 1 + (int)(i / 3) % trial.nparts;
        if (trial.count * width > MOST_BYTES - 2 * GUARD)
            trial.count = (MOST_BYTES - 2 * GUARD) / width;
        take(&trial, &seed);
    }
}

static void test_factors(void **state)
{
    static const double factors[] = {3, -2, 0.3, 0, 1e-3, -1.75, 1, 100, 0.5};
    unsigned seed = 3;

    (void)state;
    for (unsigned i = 0; i < 10 * KOLO_NDTYPES; i++) {
        const struct trial trial = {.dtype = (kolo_dtype)(i % KOLO_NDTYPES),
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
