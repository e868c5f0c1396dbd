/* SPDX-License-Identifier: MIT
 *
 * What kolo-perf measures and checks; its table of operations, against kolo.h's rules for buffers;
 * its options.
 */
#include "clock.h"
#include "ranks.h"
#include "tools/options.h"
#include "tools/perf.h"
#include "tools/perf_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- a group of one -------------------------------------------------------------------------- */

/* Every element of out is replaced by another after the operation. */
static int spoil(const struct ko_perf_call *call, kolo_work **work)
{
    (void)work;
    memset(call->out, 0x11, call->count * kolo_dtype_size(call->dtype));
    return KOLO_OK;
}

static int mine(const struct ko_perf_call *call, int block)
{
    (void)block;
    return call->rank;
}

/* A sum of one rank, which in each check comes out otherwise the second time, by one bit. */
static int calls;

static int waver(const struct ko_perf_call *call, kolo_work **work)
{
    (void)work;
    calls++;
    memcpy(call->out, call->in, call->count * kolo_dtype_size(call->dtype));
    if (calls == 2 || calls == 5)
        *(unsigned char *)call->out ^= 1;
    return KOLO_OK;
}

static int measure_in(kolo_group *group, const struct ko_perf_case *row,
                      const struct ko_perf_options *options, struct ko_perf_figures *figures)
{
    struct ko_perf_rank rank = {
        .options = options, .group = group, .is_first = true, .syscalls_fd = -1};
    struct ko_perf_call call;
    static _Thread_local float a[512], b[512], copy[512]; /* with what was there before */
    int err;

    if (ko_perf_call_open(&call, group, row, 1))
        return KOLO_E_NOMEM;
    rank.a = a;
    rank.b = b;
    rank.copy = copy;
    call.count = 100;
    call.dtype = KOLO_FLOAT32;
    err = ko_perf_measure(&rank, row, KO_PERF_OUT_OF_PLACE, &call, figures);
    ko_perf_call_close(&call);
    return err;
}

static int measure(const struct ko_perf_case *row, const struct ko_perf_options *options,
                   struct ko_perf_figures *figures)
{
    kolo_group *group;
    int err;

    assert_int_equal(kolo_group_join(NULL, 1000, &group), KOLO_OK);
    err = measure_in(group, row, options, figures);
    kolo_group_free(group);
    return err;
}

static void test_wrong_results_of_an_operation_are_counted(void **state)
{
    const struct ko_perf_case spoiling = {"spoil", 0, 1, spoil, mine};
    struct ko_perf_options options = {.nsamples = 3, .check = 2, .unalign = 3};
    struct ko_perf_figures figures = {0};

    (void)state;
    assert_int_equal(measure(&spoiling, &options, &figures), KOLO_OK);
    assert_int_equal(figures.nwrong, 3 * 100); /* after two checks and after the time */
    assert_true(figures.is_measured && figures.nsamples == 3);
    free(figures.samples);
    options.check = 0;
    assert_int_equal(measure(&spoiling, &options, &figures), KOLO_OK);
    assert_int_equal(figures.nwrong, -1);
    free(figures.samples);
}

/* A copy, but the later ones are of what was there before, or are none. */
static int copies;

static int copy_once(const struct ko_perf_call *call, kolo_work **work)
{
    (void)work;
    if (copies++ == 0)
        memcpy(call->out, call->in, call->count * kolo_dtype_size(call->dtype));
    return KOLO_OK;
}

static int copy_stale(const struct ko_perf_call *call, kolo_work **work)
{
    static float first[128];

    (void)work;
    if (copies++ == 0)
        memcpy(first, call->in, sizeof first);
    memcpy(call->out, first, call->count * sizeof *first);
    return KOLO_OK;
}

static void test_what_was_right_before_is_wrong(void **state)
{
    const struct ko_perf_case once = {"copy_once", 0, 1, copy_once, mine};
    const struct ko_perf_case stale = {"copy_stale", 0, 1, copy_stale, mine};
    struct ko_perf_options options = {.nsamples = 3, .check = 1};
    struct ko_perf_figures figures = {0};

    (void)state;
    copies = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(measure(&once, &options, &figures), KOLO_OK);
        assert_int_equal(figures.nwrong, i ? 2 * 100 : 0);
        free(figures.samples);
    }
    copies = 0;
    options.check = 2;
    assert_int_equal(measure(&stale, &options, &figures), KOLO_OK);
    assert_int_equal(figures.nwrong, 2 * 100); /* in the second check and after the time */
    free(figures.samples);
}

/* Each is right within what rounding allows, but they are not the same. */
static void test_bits_that_differ_from_run_to_run_are_counted(void **state)
{
    const struct ko_perf_case wavering = {"waver", KO_PERF_REDUCES, 1, waver, mine};
    const struct ko_perf_options options = {.nsamples = 3, .check = 2};
    struct ko_perf_figures figures = {0};

    (void)state;
    assert_int_equal(measure(&wavering, &options, &figures), KOLO_OK);
    assert_true(calls > 6);
    assert_int_equal(figures.nwrong, 2);
    free(figures.samples);
}

static int time_out(const struct ko_perf_call *call, kolo_work **work)
{
    (void)call, (void)work;
    return KOLO_E_TIMEOUT;
}

static void test_failures_are_passed_on(void **state)
{
    const struct ko_perf_case failing = {"time_out", 0, 1, time_out, mine};
    const struct ko_perf_options options = {.nsamples = 3, .check = 1};
    struct ko_perf_figures figures = {0};

    (void)state;
    assert_int_equal(measure(&failing, &options, &figures), KOLO_E_TIMEOUT);
    assert_false(figures.is_measured);
}

/* ---- a group of two -------------------------------------------------------------------------- */

enum { SLOW_US = 3000 };

/* Rank 1 is late, and its result is wrong. */
static int fail_on_one(const struct ko_perf_call *call, kolo_work **work)
{
    const struct timespec nap = {.tv_nsec = SLOW_US * 1000};

    (void)work;
    memcpy(call->out, call->in, call->count * kolo_dtype_size(call->dtype));
    if (call->rank == 0)
        return KOLO_OK;
    nanosleep(&nap, NULL);
    return spoil(call, NULL);
}

struct joint {
    const struct ko_perf_case *row;
    struct ko_perf_options options;
    struct ko_perf_figures figures; /* rank 0's */
};

static int measure_jointly(kolo_group *group, void *argument)
{
    struct joint *joint = argument;
    struct ko_perf_figures figures = {0};
    int err = measure_in(group, joint->row, &joint->options, &figures);

    if (kolo_group_rank(group) == 0)
        joint->figures = figures;
    return err;
}

static double median_of_two(enum ko_perf_average average)
{
    static const struct ko_perf_case failing = {"fail_on_one", 0, 1, fail_on_one, mine};
    struct joint joint = {
        .row = &failing,
        .options = {
            .nsamples = 5, .check = 1, .percentiles = true, .cost = true, .average = average}};
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};

    assert_int_equal(ranks_run(&ranks, measure_jointly, &joint), 0);
    assert_int_equal(joint.figures.nwrong, 2 * 100); /* rank 1's, after the check and the time */
    assert_true(joint.figures.cost.syscalls == -1);  /* nobody has counted them */
    free(joint.figures.samples);
    return joint.figures.stats.median;
}

static void test_all_ranks_count(void **state)
{
    (void)state;
    assert_true(median_of_two(KO_PERF_RANK_0) < SLOW_US);
    assert_true(median_of_two(KO_PERF_LEAST) < SLOW_US);
    assert_true(median_of_two(KO_PERF_MOST) >= SLOW_US);
    assert_true(median_of_two(KO_PERF_MEAN) >= SLOW_US / 2.0);
}

/* ---- operations -------------------------------------------------------------------------- */

static const struct ko_perf_case *find_case(const char *name)
{
    int ncases;
    const struct ko_perf_case *cases = ko_perf_cases(&ncases);

    for (int i = 0; i < ncases; i++)
        if (!strcmp(cases[i].name, name))
            return &cases[i];
    fail_msg("no %s", name);
    return NULL;
}

static void test_bandwidths_of_a_time(void **state)
{
    struct joint joint = {.row = find_case("all_gather"), .options = {.nsamples = 5, .check = 1}};
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};
    const struct ko_perf_figures *figures = &joint.figures;

    (void)state;
    assert_int_equal(ranks_run(&ranks, measure_jointly, &joint), 0);
    assert_int_equal(figures->nwrong, 0);
    assert_true(fabs(figures->algbw * figures->stats.median * 1000 - 2 * 100 * 4) < 1e-6);
    assert_true(figures->busbw == 0.5 * figures->algbw);
    free(figures->samples);
}

/* 64 messages are one operation, of which each message has its part of the time: all samples
 * together are no longer than what there was. */
static void test_each_message_has_its_part_of_the_time(void **state)
{
    enum { MESSAGES = 64, SAMPLES = 400 };
    struct joint joint = {.row = find_case("one_way"),
                          .options = {.nsamples = SAMPLES, .check = 1, .percentiles = true}};
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2};
    const int64_t began_ns = ko_now_ns();
    double us = 0;

    (void)state;
    assert_int_equal(ranks_run(&ranks, measure_jointly, &joint), 0);
    for (int i = 0; i < SAMPLES; i++)
        us += joint.figures.samples[i];
    assert_true(us * MESSAGES <= (double)(ko_now_ns() - began_ns) / 1000);
    assert_true(joint.figures.stats.median > 0);
    free(joint.figures.samples);
}

static void test_bandwidth_factors(void **state)
{
    static const struct {
        const char *name;
        double of_four;
    } factors[] = {{"all_reduce", 1.5},
                   {"reduce", 1},
                   {"broadcast", 1},
                   {"all_gather", 0.75},
                   {"gather", 0.75},
                   {"scatter", 0.75},
                   {"sendrecv", 1},
                   {"ping_pong", 1},
                   {"one_way", 1},
                   {"all_to_all", 0.75},
                   {"reduce_scatter", 0.75},
                   {"all_reduce_coalesced", 1.5},
                   {"all_gather_v", 0.75},
                   {"batch", 0.75},
                   {"broadcast_coalesced", 1}};

    (void)state;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        assert_true(ko_perf_case_factor(find_case(factors[i].name), 4) == factors[i].of_four);
}

static void test_sizes_are_of_the_larger_buffer(void **state)
{
    const struct ko_perf_case *gather = find_case("all_gather"), *sum = find_case("all_reduce");

    (void)state;
    assert_int_equal(ko_perf_case_count(gather, 1024, KOLO_FLOAT32, 4), 64);
    assert_int_equal(ko_perf_case_bytes(gather, 64, KOLO_FLOAT32, 4), 1024);
    assert_int_equal(ko_perf_case_count(sum, 1027, KOLO_FLOAT32, 4), 256);
    assert_int_equal(ko_perf_case_bytes(sum, 256, KOLO_FLOAT32, 4), 1024);
    assert_int_equal(ko_perf_case_count(gather, 15, KOLO_FLOAT32, 4), 0);
    assert_int_equal(ko_perf_case_count(find_case("barrier"), 1024, KOLO_FLOAT32, 4), 0);
}

/* A call of one rank of several that are not there, with its lists. */
struct lone_call {
    struct ko_perf_call call;
    kolo_tensor tensors[3];
    size_t lengths[5], starts[5];
    kolo_p2p messages[10];
};

static struct ko_perf_call *be_rank(struct lone_call *lone, int rank, int n, int ntensors)
{
    lone->call = (struct ko_perf_call){.rank = rank,
                                       .nranks = n,
                                       .dtype = KOLO_FLOAT32,
                                       .tensors = lone->tensors,
                                       .ntensors = ntensors,
                                       .lengths = lone->lengths,
                                       .starts = lone->starts,
                                       .messages = lone->messages};
    return &lone->call;
}

static void test_in_place_is_where_kolo_allows_it(void **state)
{
    char a[64], b[64];
    struct lone_call lone;
    struct ko_perf_call *call = be_rank(&lone, 2, 4, 1);

    (void)state;
    call->count = 3;
    ko_perf_call_place(find_case("all_reduce"), KO_PERF_OUT_OF_PLACE, a, b, call);
    assert_true(call->in == a && call->out == b);
    ko_perf_call_place(find_case("all_reduce"), KO_PERF_IN_PLACE, a, b, call);
    assert_true(call->in == call->out);
    ko_perf_call_place(find_case("all_gather"), KO_PERF_IN_PLACE, a, b, call);
    assert_true((char *)call->in == (char *)call->out + 24);
    ko_perf_call_place(find_case("reduce_scatter"), KO_PERF_IN_PLACE, a, b, call);
    assert_true((char *)call->out == (char *)call->in + 24);
    ko_perf_call_place(find_case("all_gather_v"), KO_PERF_IN_PLACE, a, b, call);
    assert_true((char *)call->in == (char *)call->out + 24); /* 1 and 5 of 3 and 3 */
}

/* What a rank has to find in a block is what the block's source has there for it. */
static void check_blocks(const struct ko_perf_case *row, int n, size_t count)
{
    char a[400], b[400];
    struct lone_call mine, theirs;

    for (int rank = 0; rank < n; rank++) {
        struct ko_perf_call *call = be_rank(&mine, rank, n, 1);
        size_t sum = 0;

        call->count = count;
        ko_perf_call_place(row, KO_PERF_OUT_OF_PLACE, a, b, call);
        for (int r = 0; r < n; r++) {
            const struct ko_perf_piece piece = ko_perf_call_out(row, call, 0, r);
            struct ko_perf_call *other = be_rank(&theirs, r, n, 1);

            other->count = count;
            ko_perf_call_place(row, KO_PERF_OUT_OF_PLACE, a, b, other);
            assert_int_equal(call->starts[r], sum);
            assert_true(piece.at == b + 4 * sum);
            assert_int_equal(piece.count, other->lengths[rank]);
            assert_int_equal(piece.from, other->starts[rank]);
            sum += call->lengths[r];
        }
        assert_int_equal(sum, (size_t)n * count);
    }
}

static void test_uneven_blocks_fit_together(void **state)
{
    struct lone_call lone;
    struct ko_perf_call *call = be_rank(&lone, 0, 5, 1);
    static const size_t lengths[] = {3, 11, 3, 11, 7}, starts[] = {0, 3, 14, 17, 28};

    (void)state;
    call->count = 7;
    ko_perf_call_place(find_case("gather_v"), KO_PERF_OUT_OF_PLACE, NULL, NULL, call);
    assert_memory_equal(call->lengths, lengths, sizeof lengths);
    assert_memory_equal(call->starts, starts, sizeof starts);
    for (int n = 1; n <= 5; n++)
        for (size_t count = 0; count < 12; count++) {
            check_blocks(find_case("all_to_all_v"), n, count);
            check_blocks(find_case("batch"), n, count);
        }
}

static void test_tensors_cover_the_buffers(void **state)
{
    char a[400], b[400];
    struct lone_call lone;
    struct ko_perf_call *call = be_rank(&lone, 1, 4, 3);
    struct ko_perf_piece piece;

    (void)state;
    call->count = 8; /* 3 and 3 and 2 */
    ko_perf_call_place(find_case("all_reduce_coalesced"), KO_PERF_OUT_OF_PLACE, a, b, call);
    piece = ko_perf_call_out(find_case("all_reduce_coalesced"), call, 2, 0);
    assert_true(piece.at == b + 24 && piece.count == 2 && piece.from == 6);
    ko_perf_call_place(find_case("all_gather_coalesced"), KO_PERF_IN_PLACE, a, b, call);
    piece = ko_perf_call_in(find_case("all_gather_coalesced"), call, 1);
    assert_true(piece.at == b + 4 * (3 * 4 + 3) && piece.count == 3 && piece.from == 3);
    piece = ko_perf_call_out(find_case("all_gather_coalesced"), call, 1, 2);
    assert_true(piece.at == b + 4 * (3 * 4 + 6) && piece.count == 3 && piece.from == 3);
    ko_perf_call_place(find_case("reduce_scatter_coalesced"), KO_PERF_IN_PLACE, a, b, call);
    piece = ko_perf_call_out(find_case("reduce_scatter_coalesced"), call, 2, 0);
    assert_true(piece.at == a + 4 * (6 * 4 + 2) && piece.count == 2 && piece.from == 6 * 4 + 2);
}

/* ---- options ----------------------------------------------------------------------------- */

static void test_sizes_are_read(void **state)
{
    static const struct {
        const char *text;
        size_t nbytes;
    } right[] = {{"0", 0},
                 {"8", 8},
                 {"4K", 4096},
                 {"4k", 4096},
                 {"1.5M", 3 << 19},
                 {"64M", 64 << 20},
                 {"2G", (size_t)2 << 30},
                 {"1T", (size_t)1 << 40}};
    static const char *const wrong[] = {"",    "-1",  "x",    "8B", "1.3",      "1KK",
                                        "nan", "inf", "1e99", "K",  "9999999T", "1 "};
    size_t nbytes;

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_int_equal(ko_bytes_read(right[i].text, &nbytes), 0);
        assert_int_equal(nbytes, right[i].nbytes);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(ko_bytes_read(wrong[i], &nbytes), -1);
}

static void test_sizes_always_grow(void **state)
{
    struct ko_perf_options options = {.step_factor = 2};

    (void)state;
    assert_int_equal(ko_perf_next_size(&options, 8), 16);
    assert_int_equal(ko_perf_next_size(&options, 0), 1);
    options.step_factor = 1;
    assert_int_equal(ko_perf_next_size(&options, 8), 9);
    options.step_factor = 1e9;
    assert_true(ko_perf_next_size(&options, (size_t)1 << 60) == SIZE_MAX);
    options.step_factor = 0;
    options.step_bytes = 100;
    assert_int_equal(ko_perf_next_size(&options, 8), 108);
    options.step_bytes = 0;
    assert_int_equal(ko_perf_next_size(&options, 8), 9);
}

static void test_names_of_types_of_both_worlds(void **state)
{
    (void)state;
    assert_int_equal(ko_perf_dtype_find("half"), KOLO_FLOAT16);
    assert_int_equal(ko_perf_dtype_find("float16"), KOLO_FLOAT16);
    assert_int_equal(ko_perf_dtype_find("float"), KOLO_FLOAT32);
    assert_int_equal(ko_perf_dtype_find("double"), KOLO_FLOAT64);
    assert_int_equal(ko_perf_dtype_find("bfloat16"), KOLO_BFLOAT16);
    assert_int_equal(ko_perf_dtype_find("fp8"), -1);
    assert_string_equal(ko_perf_dtype_shown("float32"), "float");
    assert_string_equal(ko_perf_dtype_shown("uint8"), "uint8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_results_of_an_operation_are_counted),
        cmocka_unit_test(test_bits_that_differ_from_run_to_run_are_counted),
        cmocka_unit_test(test_what_was_right_before_is_wrong),
        cmocka_unit_test(test_failures_are_passed_on),
        cmocka_unit_test(test_all_ranks_count),
        cmocka_unit_test(test_bandwidths_of_a_time),
        cmocka_unit_test(test_each_message_has_its_part_of_the_time),
        cmocka_unit_test(test_bandwidth_factors),
        cmocka_unit_test(test_sizes_are_of_the_larger_buffer),
        cmocka_unit_test(test_in_place_is_where_kolo_allows_it),
        cmocka_unit_test(test_uneven_blocks_fit_together),
        cmocka_unit_test(test_tensors_cover_the_buffers),
        cmocka_unit_test(test_sizes_are_read),
        cmocka_unit_test(test_sizes_always_grow),
        cmocka_unit_test(test_names_of_types_of_both_worlds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
