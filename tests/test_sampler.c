/* SPDX-License-Identifier: MIT
 *
 * The sampler against what PyTorch's drew (tests/golden/sampler.py), and the generator against
 * numbers that its authors published.
 */
#include "ddp/mt19937.h"
#include "fault.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char golden_file[] = "tests/golden/sampler.txt";

/* FNV-1a over the bytes of the numbers, the lowest first. */
static uint64_t checksum(const uint32_t *indices, size_t length)
{
    uint64_t value = 0xcbf29ce484222325;

    for (size_t i = 0; i < length; i++)
        for (int shift = 0; shift < 32; shift += 8)
            value = (value ^ (indices[i] >> shift & 0xff)) * 0x100000001b3;
    return value;
}

/* One line: what was asked for, and length, checksum and first indices of the answer. */
static void check_line(char *line)
{
    kolo_sampler_options options = {0};
    size_t nsamples, length;
    uint64_t epoch, sum;
    uint32_t *indices;
    int used;

    assert_int_equal(sscanf(line, "%zu %d %d %d %d %lu %lu %zu %lx%n", &nsamples, &options.size,
                            &options.rank, &options.shuffle, &options.drop_last, &options.seed,
                            &epoch, &length, &sum, &used),
                     9);
    assert_int_equal(kolo_sampler_length(nsamples, &options), length);
    indices = test_malloc((length + 1) * sizeof *indices);
    indices[length] = 0xabcdef;
    assert_int_equal(kolo_sampler_indices(nsamples, &options, epoch, indices), KOLO_OK);
    assert_int_equal(indices[length], 0xabcdef);
    line += used;
    for (size_t i = 0; i < length && i < 8; i++)
        if (strtoul(line, &line, 10) != indices[i])
            fail_msg("n %zu size %d rank %d: index %zu is %u", nsamples, options.size, options.rank,
                     i, indices[i]);
    assert_int_equal(checksum(indices, length), sum);
    test_free(indices);
}

static void draws_what_pytorch_draws(void **state)
{
    char line[256];
    int nlines = 0;
    FILE *file = fopen(golden_file, "r");

    (void)state;
    if (!file)
        fail_msg("%s is missing; run from the top of the source tree", golden_file);
    for (; fgets(line, sizeof line, file); nlines++)
        check_line(line);
    fclose(file);
    assert_true(nlines > 600);
}

/* Matsumoto and Nishimura's reference program, init_genrand(5489): its first and 10000th number. */
static void generator_is_the_published_one(void **state)
{
    struct ko_mt19937 generator;
    uint32_t number = 0;

    (void)state;
    ko_mt19937_seed(&generator, 5489);
    assert_int_equal(ko_mt19937_next(&generator), 3499211612u);
    for (int i = 1; i < 10000; i++)
        number = ko_mt19937_next(&generator);
    assert_int_equal(number, 4123659995u);
}

static void refuses_bad_options(void **state)
{
    static const int bad[][2] = {{0, 0}, {-1, 2}, {2, 2}, {0, -3}};
    kolo_sampler_options options = {0};
    uint32_t index = 77;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.rank = bad[i][0];
        options.size = bad[i][1];
        assert_int_equal(kolo_sampler_indices(1, &options, 0, &index), KOLO_E_INVALID);
        assert_int_equal(kolo_sampler_length(1, &options), 0);
    }
    assert_string_equal(kolo_last_error(), "kolo_sampler_length: -3 ranks cannot share a data set");
    options = (kolo_sampler_options){.rank = 5, .size = 2};
    assert_int_equal(kolo_sampler_length(100, &options), 0);
    assert_string_equal(kolo_last_error(),
                        "kolo_sampler_length: rank 5 of 2 ranks; it takes 0 <= rank < size");
    options = (kolo_sampler_options){.size = 1};
    assert_int_equal(kolo_sampler_indices((size_t)UINT32_MAX + 1, &options, 0, &index),
                     KOLO_E_INVALID);
    assert_int_equal(kolo_sampler_length((size_t)UINT32_MAX + 1, &options), 0);
    assert_string_equal(kolo_last_error(), "kolo_sampler_length: 4294967296 samples, but their "
                                           "numbers have 32 bits");
    assert_int_equal(kolo_sampler_length(UINT32_MAX, &options), UINT32_MAX);
    assert_int_equal(index, 77);
}

static void tells_what_is_missing(void **state)
{
    kolo_sampler_options options = {.size = 2};
    uint32_t index = 77;

    (void)state;
    assert_int_equal(kolo_sampler_length(10, NULL), 0);
    assert_string_equal(kolo_last_error(), "kolo_sampler_length: options is NULL");
    assert_int_equal(kolo_sampler_indices(1, NULL, 0, &index), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(), "kolo_sampler_indices: options is NULL");
    assert_int_equal(kolo_sampler_indices(1, &options, 0, NULL), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(), "kolo_sampler_indices: indices is NULL");
    assert_int_equal(kolo_sampler_indices(0, &options, 0, NULL), KOLO_OK);
    options.size = 0;
    assert_int_equal(kolo_sampler_length(10, &options), 0);
    assert_string_equal(kolo_last_error(), "kolo_sampler_length: 0 ranks cannot share a data set");
}

static void survives_having_no_memory(void **state)
{
    kolo_sampler_options options = {.size = 1, .shuffle = 1};
    uint32_t index = 77;

    (void)state;
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    assert_int_equal(kolo_sampler_indices(1, &options, 0, &index), KOLO_E_NOMEM);
    assert_int_equal(index, 77);
    assert_int_equal(kolo_sampler_indices(1, &options, 0, &index), KOLO_OK);
    assert_int_equal(index, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_what_pytorch_draws),
        cmocka_unit_test(generator_is_the_published_one),
        cmocka_unit_test(refuses_bad_options),
        cmocka_unit_test(tells_what_is_missing),
        cmocka_unit_test(survives_having_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
