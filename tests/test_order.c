/* SPDX-License-Identifier: MIT
 *
 * KOLO_DETERMINISTIC: sums of floats have the bits of one sum in the order of the ranks, whatever
 * the count, the type, the collective, the algorithm asked for, the transport and the hosts: so do
 * averages, products, and sums of what each rank multiplies. Smaller floats are summed in float32.
 */
#include "dtype.h"
#include "elements.h"
#include "kolo.h"
#include "ranks.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 40000, MOST_RANKS = 16 };

/* What is reduced, and how. */
struct kind {
    kolo_dtype dtype;
    kolo_op op;     /* SUM, AVG or PROD */
    bool is_scaled; /* each rank multiplies first */
};

/* ---- what must come out ---------------------------------------------------------------------- */

static void store(kolo_dtype dtype, void *buffer, size_t i, double value)
{
    switch (dtype) {
    case KOLO_FLOAT8_E4M3:
        ((uint8_t *)buffer)[i] = ko_float8_e4m3_of_float((float)value);
        return;
    case KOLO_FLOAT8_E5M2:
        ((uint8_t *)buffer)[i] = ko_float8_e5m2_of_float((float)value);
        return;
    case KOLO_FLOAT16:
        ((uint16_t *)buffer)[i] = ko_float16_of_float((float)value);
        return;
    case KOLO_BFLOAT16:
        ((uint16_t *)buffer)[i] = ko_bfloat16_of_float((float)value);
        return;
    case KOLO_FLOAT32:
        ((float *)buffer)[i] = (float)value;
        return;
    default:
        ((double *)buffer)[i] = value;
    }
}

static double rounded(kolo_dtype dtype, double value)
{
    switch (dtype) {
    case KOLO_FLOAT8_E4M3:
        return (double)ko_float_of_float8_e4m3(ko_float8_e4m3_of_float((float)value));
    case KOLO_FLOAT8_E5M2:
        return (double)ko_float_of_float8_e5m2(ko_float8_e5m2_of_float((float)value));
    case KOLO_FLOAT16:
        return (double)ko_float_of_float16(ko_float16_of_float((float)value));
    case KOLO_BFLOAT16:
        return (double)ko_float_of_bfloat16(ko_bfloat16_of_float((float)value));
    case KOLO_FLOAT32:
        return (double)(float)value;
    default:
        return value;
    }
}

/* Of very different sizes, so that nearly every other order rounds otherwise. */
static double mixed(int rank, size_t i)
{
    uint64_t bits = ((uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)rank * 40503u + 12345u);
    double value;

    bits ^= bits >> 31;
    bits *= 0x94d049bb133111ebu;
    bits ^= bits >> 29;
    bits = (bits & 0x800fffffffffffffu) | (1016u + (bits >> 52 & 15u)) << 52;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Of every second sum the last rank takes away what the first began with: what is lost between them
 * shows even in smaller floats, whose sums of nothing but such elements are nearly exact. */
static double element(kolo_dtype dtype, int n, int rank, size_t i)
{
    const bool is_byte = kolo_dtype_size(dtype) == 1;
    const double first = 128 * (1 + mixed(0, i) * 0x1p-10), value = mixed(rank, i) * 0x1p-6;
    const double large = is_byte ? 1 : dtype == KOLO_FLOAT16 ? 128 : 1e6;

    if (i % 2)
        return rounded(dtype, mixed(rank, i) * (is_byte ? 0x1p-5 : 1));
    if (rank % (n - 1) == 0)
        return rounded(dtype, (rank ? -1 : 1) * large * first);
    return rounded(dtype, value);
}

/* From a half to one, with as many digits as the type has: what a product loses depends on where.
 */
static double part(kolo_dtype dtype, int rank, size_t i)
{
    const double value = mixed(rank, i) * 0x1p7;

    return rounded(dtype, 0.5 + 0.5 * (value - (double)(int64_t)value) * (value < 0 ? -1 : 1));
}

/* The same for the first and the last. */
static double factor(int n, int rank)
{
    return 1 + 0.37 * (rank % (n - 1));
}

/* What a rank adds. */
static double summand(const struct kind *kind, int n, int rank, size_t i)
{
    const double value =
        kind->op == KOLO_PROD ? part(kind->dtype, rank, i) : element(kind->dtype, n, rank, i);

    if (!kind->is_scaled)
        return value;
    return kind->dtype == KOLO_FLOAT64
               ? value * factor(n, rank)
               : rounded(kind->dtype, (double)((float)value * (float)factor(n, rank)));
}

static double sum_of_doubles(const struct kind *kind, int n, size_t i)
{
    double sum = summand(kind, n, 0, i);

    for (int rank = 1; rank < n; rank++)
        if (kind->op == KOLO_PROD)
            sum *= summand(kind, n, rank, i);
        else
            sum += summand(kind, n, rank, i);
    return kind->op == KOLO_AVG ? sum / n : sum;
}

static float sum_of_floats(const struct kind *kind, int n, size_t i)
{
    float sum = (float)summand(kind, n, 0, i);

    for (int rank = 1; rank < n; rank++)
        if (kind->op == KOLO_PROD)
            sum *= (float)summand(kind, n, rank, i);
        else
            sum += (float)summand(kind, n, rank, i);
    return kind->op == KOLO_AVG ? sum / (float)n : sum;
}

static const kolo_dtype dtypes[] = {KOLO_FLOAT32, KOLO_FLOAT16,     KOLO_BFLOAT16,
                                    KOLO_FLOAT64, KOLO_FLOAT8_E4M3, KOLO_FLOAT8_E5M2};
enum { NFORMS = 4, NKINDS = NFORMS * sizeof dtypes / sizeof *dtypes };

static struct kind kind_of(int k)
{
    static const struct kind forms[NFORMS] = {
        {.op = KOLO_SUM}, {.op = KOLO_AVG}, {.op = KOLO_SUM, .is_scaled = true}, {.op = KOLO_PROD}};
    struct kind kind = forms[k % NFORMS];

    kind.dtype = dtypes[k / NFORMS];
    return kind;
}

/* The same for all ranks, and worked out before they begin. */
static unsigned char expected[NKINDS][MOST * sizeof(double)];

static void expect(int n)
{
    static int last;

    for (int k = 0; k < NKINDS && last != n; k++) {
        const struct kind kind = kind_of(k);

        for (size_t i = 0; i < MOST; i++)
            store(kind.dtype, expected[k], i,
                  kind.dtype == KOLO_FLOAT64 ? sum_of_doubles(&kind, n, i)
                                             : (double)sum_of_floats(&kind, n, i));
    }
    last = n;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* One rank's buffers, of MOST elements each. */
struct buffers {
    unsigned char in[MOST * sizeof(double)], out[MOST * sizeof(double)];
    const unsigned char *expected;
    size_t counts[MOST_RANKS]; /* of blocks */
};

static int check(const char *what, const struct kind *kind, const struct buffers *buffers,
                 size_t first, size_t count)
{
    const size_t nbytes = kolo_dtype_size(kind->dtype);

    for (size_t i = 0; i < count; i++)
        if (memcmp(buffers->out + i * nbytes, buffers->expected + (first + i) * nbytes, nbytes))
            return ranks_fail("%s, %s, %s%s: element %zu of %zu has other bits", what,
                              kolo_dtype_name(kind->dtype), kolo_op_name(kind->op),
                              kind->is_scaled ? " of what is multiplied" : "", first + i, count);
    return 0;
}

static int reduce_all_ways(kolo_group *group, const struct kind *kind, struct buffers *buffers,
                           kolo_op op, size_t count)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const size_t share = count / (size_t)n;
    const kolo_dtype dtype = kind->dtype;
    int failed = 0;

    if (kolo_all_reduce(group, buffers->in, buffers->out, count, dtype, op))
        return ranks_fail("all_reduce");
    failed = check("all_reduce", kind, buffers, 0, count);
    if (!failed && kolo_reduce(group, buffers->in, buffers->out, count, dtype, op, n - 1))
        return ranks_fail("reduce");
    if (!failed && rank == n - 1)
        failed = check("reduce", kind, buffers, 0, count);
    if (!failed && kolo_reduce_scatter(group, buffers->in, buffers->out, share, dtype, op))
        return ranks_fail("reduce_scatter");
    return failed ? failed : check("reduce_scatter", kind, buffers, (size_t)rank * share, share);
}

/* A block for each rank but the last, which has the rest. */
static int reduce_blocks(kolo_group *group, const struct kind *kind, struct buffers *buffers,
                         kolo_op op, size_t count)
{
    const size_t n = (size_t)kolo_group_size(group), rank = (size_t)kolo_group_rank(group);
    const size_t each = count / (2 * n);
    const kolo_blocks blocks = {.counts = buffers->counts};

    for (size_t r = 0; r < n; r++)
        buffers->counts[r] = r < n - 1 ? each : count - (n - 1) * each;
    if (kolo_reduce_scatter_v(group, buffers->in, &blocks, buffers->out, kind->dtype, op))
        return ranks_fail("reduce_scatter_v");
    return check("reduce_scatter_v", kind, buffers, rank * each, buffers->counts[rank]);
}

/* Short ones, which travel together, and the rest; asynchronously. */
static int reduce_tensors(kolo_group *group, const struct kind *kind, struct buffers *buffers,
                          kolo_op op, size_t count)
{
    const size_t nbytes = kolo_dtype_size(kind->dtype), few = count / 8;
    const size_t counts[] = {few, few, count - 2 * few};
    kolo_tensor tensors[3];
    kolo_work *work;
    size_t at = 0;
    int err;

    for (int t = 0; t < 3; at += counts[t++] * nbytes)
        tensors[t] = (kolo_tensor){buffers->in + at, buffers->out + at, counts[t]};
    err = kolo_all_reduce_coalesced_async(group, tensors, 3, kind->dtype, op, &work);
    if (!err)
        err = kolo_work_wait(work, -1);
    if (err)
        return ranks_fail("all_reduce_coalesced_async");
    kolo_work_free(work);
    return check("all_reduce_coalesced", kind, buffers, 0, count);
}

static int reduce_all_counts(kolo_group *group, const struct kind *kind, struct buffers *buffers)
{
    static const size_t counts[] = {1, 10, 2049, MOST};
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_op op = kind->op;
    int failed = 0;

    if (kind->is_scaled && kolo_op_premul_sum(group, factor(n, rank), &op))
        return ranks_fail("premul_sum");
    for (size_t i = 0; i < MOST; i++)
        store(kind->dtype, buffers->in, i,
              summand(&(struct kind){kind->dtype, kind->op, false}, n, rank, i));
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !failed; i++)
        failed = reduce_all_ways(group, kind, buffers, op, counts[i]) ||
                 reduce_blocks(group, kind, buffers, op, counts[i]) ||
                 reduce_tensors(group, kind, buffers, op, counts[i]);
    if (kind->is_scaled)
        (void)kolo_op_free(group, op);
    return failed;
}

static int reduce_all_kinds(kolo_group *group, void *argument)
{
    struct buffers *buffers = malloc(sizeof *buffers);
    int failed = 0;

    (void)argument;
    if (!buffers)
        abort();
    for (int k = 0; k < NKINDS && !failed; k++) {
        const struct kind kind = kind_of(k);

        buffers->expected = expected[k];
        failed = reduce_all_counts(group, &kind, buffers);
    }
    free(buffers);
    return failed;
}

static void set_variables(const char *transport, const char *algorithm)
{
    setenv("KOLO_DETERMINISTIC", "1", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_ALGO", algorithm, 1);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void sums_have_one_order(void **state)
{
    static const char *const algorithms[] = {"", "ring", "halving", "binomial", "two_shot"};
    static const int sizes[] = {2, 3, 5, IS_SANITIZED ? 4 : 9, IS_SANITIZED ? 6 : 13};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect(sizes[i]);
        set_variables("shm", algorithms[i]);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = sizes[i]},
                                   reduce_all_kinds, NULL),
                         0);
        set_variables("tcp", algorithms[i]);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = sizes[i]},
                                   reduce_all_kinds, NULL),
                         0);
    }
}

/* Slots and what processes share of each other's memory. */
static void processes_share_memory_in_order(void **state)
{
    (void)state;
    expect(4);
    set_variables("shm", "");
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 4}, reduce_all_kinds, NULL), 0);
}

/* Every rank says that it sits on one of two hosts, or of three, one of which has a single rank. */
static int settle_on_two(int rank, void *argument)
{
    (void)argument;
    return setenv("KOLO_HOST", rank % 3 ? "north" : "south", 1);
}

static int settle_on_three(int rank, void *argument)
{
    static const char *const hosts[] = {"north", "south", "east"};

    (void)argument;
    return setenv("KOLO_HOST", hosts[rank * 2 / 3 % 3], 1);
}

static void hosts_do_not_matter(void **state)
{
    struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 5, .settle = settle_on_two};

    (void)state;
    expect(5);
    set_variables("shm,tcp", "");
    assert_int_equal(ranks_run(&ranks, reduce_all_kinds, NULL), 0);
    ranks.settle = settle_on_three;
    set_variables("shm,tcp", "hierarchical");
    assert_int_equal(ranks_run(&ranks, reduce_all_kinds, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_one_order),
        cmocka_unit_test(processes_share_memory_in_order),
        cmocka_unit_test(hosts_do_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
