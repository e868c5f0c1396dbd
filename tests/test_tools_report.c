/* SPDX-License-Identifier: MIT
 *
 * What kolo-perf makes of its samples: the statistics, against figures worked out on paper;
 * reports, written and read.
 */
#include "tools/perf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- statistics -------------------------------------------------------------------------- */

static void test_summary_of_known_samples(void **state)
{
    double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, hundred[100], one[] = {7};
    struct ko_perf_stats stats;

    (void)state;
    ko_perf_summarise(odd, 5, &stats);
    assert_true(stats.median == 3 && stats.mean == 3 && stats.least == 1 && stats.most == 5);
    assert_true(odd[0] == 1 && odd[4] == 5);
    ko_perf_summarise(even, 4, &stats);
    assert_true(stats.median == 2.5 && stats.p90 == 4);
    for (int i = 0; i < 100; i++)
        hundred[i] = 100 - i;
    ko_perf_summarise(hundred, 100, &stats);
    assert_true(stats.median == 50.5 && stats.p90 == 90 && stats.p99 == 99 && stats.most == 100);
    ko_perf_summarise(one, 1, &stats);
    assert_true(stats.median == 7 && stats.p90 == 7 && stats.p99 == 7);
    assert_true(ko_perf_quantile(odd, 5, 0) == 1 && ko_perf_quantile(odd, 5, 1) == 5);
}

static void test_intervals_and_verdicts(void **state)
{
    double base[40], same[40], slow[40], noisy[40];
    struct ko_perf_ratio ratio;

    (void)state;
    for (int i = 0; i < 40; i++) {
        base[i] = 100 + i * 0.1;
        same[i] = 101 + i * 0.1;
        slow[i] = 1.2 * base[i];
        noisy[i] = 60 + i * 3;
    }
    ratio = ko_perf_ratio_of(same, 40, base, 40);
    assert_true(ratio.low <= ratio.value && ratio.value <= ratio.high);
    assert_true(fabs(ratio.value - 102.95 / 101.95) < 1e-12);
    assert_int_equal(ko_perf_judge(&ratio, 0.05), KO_PERF_SAME);
    ratio = ko_perf_ratio_of(slow, 40, base, 40);
    assert_true(fabs(ratio.value - 1.2) < 1e-12);
    assert_true(ratio.low > 1.17 && ratio.high < 1.23);
    assert_int_equal(ko_perf_judge(&ratio, 0.05), KO_PERF_SLOWER);
    assert_int_equal(ko_perf_judge(&ratio, 0.25), KO_PERF_SAME);
    ratio = ko_perf_ratio_of(base, 40, slow, 40);
    assert_int_equal(ko_perf_judge(&ratio, 0.05), KO_PERF_FASTER);
    ratio = ko_perf_ratio_of(noisy, 40, base, 40); /* 118.5 to 101.95, and it cannot be sure */
    assert_true(ratio.low < 1.05 && ratio.high > 1.2);
    assert_int_equal(ko_perf_judge(&ratio, 0.05), KO_PERF_SAME);
}

/* Of 1 sample the interval would be a point, and everything a difference. */
static void test_few_samples_and_zeros_decide_nothing(void **state)
{
    static const double base[5] = {1, 1, 1, 1, 1}, slow[5] = {2, 2, 2, 2, 2}, zeros[5];
    struct ko_perf_ratio ratio;

    (void)state;
    for (int n = 1; n <= 5; n++) {
        ratio = ko_perf_ratio_of(slow, n, base, 5);
        assert_true(ratio.value == 2);
        assert_int_equal(ko_perf_judge(&ratio, 0.05), n < 5 ? KO_PERF_UNKNOWN : KO_PERF_SLOWER);
        ratio = ko_perf_ratio_of(base, 5, slow, n);
        assert_int_equal(ko_perf_judge(&ratio, 0.05), n < 5 ? KO_PERF_UNKNOWN : KO_PERF_FASTER);
    }
    ratio = ko_perf_ratio_of(base, 5, zeros, 5);
    assert_int_equal(ko_perf_judge(&ratio, 0.05), KO_PERF_UNKNOWN);
    ratio = ko_perf_ratio_of(zeros, 5, zeros, 5);
    assert_int_equal(ko_perf_judge(&ratio, 0.05), KO_PERF_UNKNOWN);
}

/* Six samples, one of which is 3: of six that are drawn of them three or more are 3 in 6 % of all
 * cases, and more than three in less than 1. The median of three and three lies between. */
static void test_medians_that_are_drawn_lie_between(void **state)
{
    static const double now[] = {1, 1, 1, 1, 1, 3}, base[] = {1, 1, 1, 1, 1, 1};
    const struct ko_perf_ratio ratio = ko_perf_ratio_of(now, 6, base, 6);

    (void)state;
    assert_true(ratio.value == 1 && ratio.low == 1 && ratio.high == 2);
}

/* Both sets are of one distribution: most intervals hold 1. */
static void test_intervals_hold_what_they_promise(void **state)
{
    enum { TRIALS = 200, N = 25 };
    unsigned seed = 11;
    int held = 0;

    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        double sets[2][N];
        struct ko_perf_stats stats;
        struct ko_perf_ratio ratio;

        for (int s = 0; s < 2; s++) {
            for (int i = 0; i < N; i++)
                sets[s][i] = 10 - 2 * log((rand_r(&seed) + 1.0) / (RAND_MAX + 2.0));
            ko_perf_summarise(sets[s], N, &stats);
        }
        ratio = ko_perf_ratio_of(sets[0], N, sets[1], N);
        held += ratio.low <= 1 && 1 <= ratio.high;
    }
    assert_in_range(held, TRIALS * 90 / 100, TRIALS);
}

/* ---- reports ----------------------------------------------------------------------------- */

static void add_row(struct ko_perf_report *report, size_t nbytes, double us, int64_t nwrong)
{
    struct ko_perf_row row = {"all_reduce", "float32", "sum", nbytes, nbytes / 4, -1, {{0}}};
    struct ko_perf_figures *figures = &row.forms[KO_PERF_IN_PLACE];

    row.forms[KO_PERF_OUT_OF_PLACE].nwrong = -1;
    *figures = (struct ko_perf_figures){.is_measured = true,
                                        .nwrong = nwrong,
                                        .nsamples = 3,
                                        .algbw = 2,
                                        .busbw = 3,
                                        .cost = {1.5, -1, -1}};
    figures->samples = malloc(3 * sizeof(double));
    assert_non_null(figures->samples);
    for (int i = 0; i < 3; i++)
        figures->samples[i] = us + i;
    ko_perf_summarise(figures->samples, 3, &figures->stats);
    assert_int_equal(ko_perf_report_add(report, &row), KOLO_OK);
}

static void test_reports_add_up(void **state)
{
    struct ko_perf_report report = {.nranks = 2};

    (void)state;
    assert_true(ko_perf_report_busbw(&report, 0) == 0);
    for (int i = 0; i < 100; i++)
        add_row(&report, 8, 1, i == 50 ? 7 : i == 51 ? -1 : 0);
    assert_int_equal(ko_perf_report_wrong(&report, 0), 7);
    assert_int_equal(ko_perf_report_wrong(&report, 51), 0);
    assert_true(ko_perf_report_busbw(&report, 0) == 3);
    ko_perf_report_free(&report);
    assert_int_equal(report.nrows, 0);
}

static void test_what_is_written_can_be_read(void **state)
{
    const struct ko_perf_options options = {.nsamples = 3, .shared = true, .unalign = 4};
    struct ko_perf_report written = {.nranks = 5}, read = {0};
    const struct ko_perf_figures *figures;
    char path[] = "/tmp/test-perf-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");

    (void)state;
    assert_non_null(file);
    add_row(&written, 8, 1.5, 0);
    add_row(&written, 1 << 20, 1234.5, 9);
    ko_perf_settings_take(&written.settings, &options);
    ko_perf_print_json(file, &options, &written);
    fclose(file);
    assert_int_equal(ko_perf_json_read(path, &read), KOLO_OK);
    unlink(path);
    assert_int_equal(read.nranks, 5);
    assert_memory_equal(&read.settings, &written.settings, sizeof read.settings);
    assert_int_equal(read.nrows, 2);
    assert_string_equal(read.rows[1].collective, "all_reduce");
    assert_true(read.rows[1].nbytes == 1 << 20 && read.rows[1].root == -1);
    assert_false(read.rows[1].forms[KO_PERF_OUT_OF_PLACE].is_measured);
    figures = &read.rows[1].forms[KO_PERF_IN_PLACE];
    assert_true(figures->nwrong == 9 && figures->nsamples == 3 && figures->samples[2] == 1236.5);
    assert_true(figures->stats.median == 1235.5 && figures->busbw == 3);
    assert_true(figures->cost.cpu_us == 1.5 && figures->cost.syscalls == -1);
    ko_perf_report_free(&written);
    ko_perf_report_free(&read);
}

/* Of one row with these three numbers; "": it is one. */
static const char *read_numbers(const char *root, const char *wrong, const char *sample)
{
    struct ko_perf_report read = {0};
    char path[] = "/tmp/test-perf-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    int err;

    assert_non_null(file);
    fprintf(file,
            "{\"ranks\": 2, \"rows\": [{\"collective\": \"a\", \"type\": \"b\", \"redop\": \"c\", "
            "\"bytes\": 8, \"count\": 1, \"root\": %s, "
            "\"in_place\": {\"wrong\": %s, \"samples_us\": [%s]}}]}",
            root, wrong, sample);
    fclose(file);
    err = ko_perf_json_read(path, &read);
    unlink(path);
    ko_perf_report_free(&read);
    return err ? kolo_last_error() : "";
}

static void test_numbers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    assert_string_equal(read_numbers("-1", "0", "0"), "");
    assert_string_equal(read_numbers("2147483647", "null", "1e15"), "");
    assert_non_null(strstr(read_numbers("2147483648", "0", "1"), "a row has no root"));
    assert_non_null(strstr(read_numbers("-1e300", "0", "1"), "a row has no root"));
    assert_non_null(strstr(read_numbers("-1", "1e300", "1"), "a row has no number of wrong"));
    assert_non_null(strstr(read_numbers("-1", "0", "1e300"), "a sample is not a number"));
    assert_non_null(strstr(read_numbers("-1", "0", "-1"), "a sample is not a number"));
    assert_non_null(strstr(read_numbers("-1", "0", "1e999"), "too large"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary_of_known_samples),
        cmocka_unit_test(test_intervals_and_verdicts),
        cmocka_unit_test(test_few_samples_and_zeros_decide_nothing),
        cmocka_unit_test(test_medians_that_are_drawn_lie_between),
        cmocka_unit_test(test_intervals_hold_what_they_promise),
        cmocka_unit_test(test_reports_add_up),
        cmocka_unit_test(test_what_is_written_can_be_read),
        cmocka_unit_test(test_numbers_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
