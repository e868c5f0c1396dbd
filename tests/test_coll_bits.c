/* SPDX-License-Identifier: MIT
 *
 * The results of all_reduce have the same bits on all ranks and from run to run, by every
 * algorithm: of floats whose sums depend on their order, and of NaNs.
 */
#include "algorithms.h"
#include "exam.h"
#include "ranks.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE_BYTES = 192 };

static const struct row {
    enum ko_collective what;
    const char *name;
    unsigned flags;
} rows[] = {
#define ROW(what, name, text, flags, why) {KO_##what, name, flags},
    KO_ALGORITHM_LIST(ROW)
#undef ROW
};

enum { RANDOM_BYTES = 2048 };

/* Of which one element of seven has a NaN of each rank: of two, an addition gives one back. */
enum { NAN_OF = 7 };

/* The bytes of one element, which are any: makes it a quiet NaN, in every format. */
static void make_nan(unsigned char *element, size_t size)
{
    element[size - 1] |= 0x7f;
    if (size > 1)
        element[size - 2] |= 0xf8;
}

/* Any floats: of finite ones the exponent's middle bits vary, of NaNs sign and payload. */
static void fill_randomly(kolo_dtype dtype, int rank, unsigned char *to)
{
    const size_t size = kolo_dtype_size(dtype);
    unsigned state = 12345u + 777u * (unsigned)rank;

    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (unsigned char)(state >> 24);
        if (i % size == size - 1) /* the highest byte: sign, and an exponent near 1 */
            to[i] = (unsigned char)((to[i] & 0x80) | 0x3c);
    }
    for (size_t i = 0; i < RANDOM_BYTES / size; i += NAN_OF)
        make_nan(to + i * size, size);
}

static int compare_bits(kolo_group *group, kolo_dtype dtype, kolo_op op)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t count = RANDOM_BYTES / kolo_dtype_size(dtype);
    unsigned char in[RANDOM_BYTES], out[2][RANDOM_BYTES];
    unsigned char *all = malloc((size_t)n * RANDOM_BYTES);
    int failed = !all;

    fill_randomly(dtype, rank, in);
    for (int i = 0; i < 2 && !failed; i++)
        failed = kolo_all_reduce(group, in, out[i], count, dtype, op);
    if (!failed && memcmp(out[0], out[1], RANDOM_BYTES) != 0)
        failed = ranks_fail("%s %s: other bits in the second run", kolo_dtype_name(dtype),
                            kolo_op_name(op));
    if (!failed)
        failed = kolo_all_gather(group, out[0], all, RANDOM_BYTES, KOLO_UINT8);
    for (int r = 0; r < n && !failed; r++)
        if (memcmp(all + (size_t)r * RANDOM_BYTES, out[0], RANDOM_BYTES) != 0)
            failed = ranks_fail("%s %s: rank %d has other bits than rank %d",
                                kolo_dtype_name(dtype), kolo_op_name(op), r, rank);
    free(all);
    return failed;
}

static int compare_all_bits(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int dtype = KOLO_FLOAT16; dtype < KOLO_NDTYPES && !failed; dtype++)
        for (int op = 0; op < KOLO_BAND && !failed; op++)
            if (exam_allows((kolo_dtype)dtype, (kolo_op)op))
                failed = compare_bits(group, (kolo_dtype)dtype, (kolo_op)op);
    return failed;
}

static void run(int n)
{
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, compare_all_bits, NULL), 0);
}

static void results_have_the_same_bits_on_all_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].what != KO_ALL_REDUCE)
            continue;
        exam_set_variables("shm", rows[i].name, SLICE_BYTES);
        run(5);
        exam_set_variables("tcp", rows[i].name, SLICE_BYTES);
        run(IS_SANITIZED ? 3 : 8);
    }
}

/* ---- hosts ------------------------------------------------------------------------------- */

enum { MIXED_RANKS = 8 };

/* Of the second ranks of the four hosts some are in another order than the hosts. */
static int settle_mixed(int rank, void *unused)
{
    static const char *const hosts[MIXED_RANKS] = {"0", "1", "2", "3", "0", "2", "3", "1"};

    (void)unused;
    return setenv("KOLO_HOST", hosts[rank], 1);
}

static void nor_does_it_matter_which_ranks_a_host_has(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = MIXED_RANKS, .settle = settle_mixed};

    (void)state;
    SKIP_PROCESSES_UNDER_TSAN();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].what != KO_ALL_REDUCE || !(rows[i].flags & KO_SPREAD))
            continue;
        exam_set_variables("shm,tcp", rows[i].name, SLICE_BYTES);
        assert_int_equal(ranks_run(&ranks, compare_all_bits, NULL), 0);
    }
}

/* ---- in place on some ranks alone --------------------------------------------------------- */

/* By one long call, of two ranks. */
static int compare_places(kolo_group *group, kolo_dtype dtype)
{
    const size_t nbytes = group->endpoint->cache_bytes + RANDOM_BYTES;
    const size_t count = nbytes / RANDOM_BYTES * RANDOM_BYTES / kolo_dtype_size(dtype);
    unsigned char *in = malloc(nbytes), *other = malloc(nbytes);
    unsigned char *out = kolo_group_rank(group) ? other : in;
    int failed = !in || !other;

    for (size_t at = 0; at + RANDOM_BYTES <= nbytes && !failed; at += RANDOM_BYTES)
        fill_randomly(dtype, kolo_group_rank(group), in + at);
    failed = failed || kolo_all_reduce(group, in, out, count, dtype, KOLO_SUM);
    failed = failed || kolo_all_reduce(group, out, out, nbytes / RANDOM_BYTES * RANDOM_BYTES,
                                       KOLO_UINT8, KOLO_BXOR); /* of two that are equal is 0 */
    for (size_t at = 0; at + RANDOM_BYTES <= nbytes && !failed; at++)
        failed = out[at] != 0;
    free(in);
    free(other);
    return failed ? ranks_fail("%s: other bits in place", kolo_dtype_name(dtype)) : 0;
}

static int compare_both_places(kolo_group *group, void *argument)
{
    (void)argument;
    return compare_places(group, KOLO_FLOAT32) || compare_places(group, KOLO_FLOAT64);
}

static void nor_which_ranks_reduce_in_place(void **state)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].what != KO_ALL_REDUCE || (IS_SANITIZED && !(rows[i].flags & KO_BY_ALL)))
            continue;
        exam_set_variables("shm", rows[i].name, 1 << 17);
        assert_int_equal(ranks_run(&ranks, compare_both_places, NULL), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_have_the_same_bits_on_all_ranks),
        cmocka_unit_test(nor_does_it_matter_which_ranks_a_host_has),
        cmocka_unit_test(nor_which_ranks_reduce_in_place),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
