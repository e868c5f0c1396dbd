/* SPDX-License-Identifier: MIT
 *
 * What the trainer is told and tells: the command line, progress, curves.
 */
#include "../examples/ddp/curve.h"
#include "../examples/ddp/failure.h"
#include "../examples/ddp/options.h"
#include "../examples/ddp/progress.h"

#include "folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- curve and progress ---------------------------------------------------------------------- */

static size_t occurrences(const char *text, const char *part)
{
    size_t n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static void test_curve(void **state)
{
    static char text[20000];
    struct curve curve = {0};

    (void)state;
    for (int i = 1; i <= 100; i++)
        assert_int_equal(curve_add(&curve.loss, i / 50.0, 2.3 / i), 0);
    assert_int_equal(curve_add(&curve.loss, 2, (double)NAN), 0);
    assert_int_equal(curve_add(&curve.accuracy, 1, 0.81), 0);
    assert_int_equal(curve_add(&curve.accuracy, 2, 0.86), 0);
    assert_int_equal(curve_write(&curve, folder_path("run.svg")), 0);
    folder_read(folder_path("run.svg"), text, sizeof text);
    assert_int_equal(occurrences(text, "<polyline"), 2);
    assert_int_equal(occurrences(text, "<circle"), 3); /* two points, one in the legend */
    assert_int_equal(occurrences(text, "nan"), 0);
    assert_non_null(strstr(text, ">training loss<"));
    assert_non_null(strstr(text, ">test accuracy<"));
    assert_non_null(strstr(text, ">epoch<"));
    assert_non_null(strstr(text, "730.0,")); /* the last point lies on the right edge */
    curve_free(&curve);
}

static void test_curve_of_nothing(void **state)
{
    static char text[20000];
    struct curve curve = {0};

    (void)state;
    assert_int_equal(curve_write(&curve, folder_path("empty.svg")), 0);
    folder_read(folder_path("empty.svg"), text, sizeof text);
    assert_int_equal(occurrences(text, "nan") + occurrences(text, "inf"), 0);
    stderr_listen();
    assert_int_equal(curve_write(&curve, "/nowhere/x.svg"), TRAIN_FAILED);
    stderr_assert("cannot create curve /nowhere/x.svg");
    stderr_listen();
    assert_int_equal(curve_write(&curve, "/dev/full"), TRAIN_FAILED);
    stderr_assert("cannot write curve /dev/full: No space left");
}

static void test_progress(void **state)
{
    struct progress progress = {1, 3, 0, 200, 0.5, 1234, 0.056};
    char *text;
    size_t nbytes;
    FILE *out = open_memstream(&text, &nbytes);

    (void)state;
    for (uint64_t batch = 4; batch <= 200; batch += 4) {
        progress.batch = batch;
        progress_print(out, false, &progress, batch - 4);
    }
    fflush(out);
    assert_int_equal(occurrences(text, "\n"), 10);
    assert_non_null(strstr(text, "epoch 1/3 100 %  loss 0.5000  1234 images/s  5.6 % waiting"));
    progress.batch = 100;
    progress_print(out, true, &progress, 99);
    progress_clear(out, true);
    fflush(out);
    assert_non_null(strstr(text, "[===============               ]  50 %"));
    fclose(out);
    free(text);
}

/* ---- options --------------------------------------------------------------------------------- */

static int parse(const char *first, const char *second, struct options *options)
{
    char name[] = "kolo-train", one[80] = "", two[80] = "";
    char *argv[] = {name, one, two, NULL};

    if (first)
        snprintf(one, sizeof one, "%s", first);
    if (second)
        snprintf(two, sizeof two, "%s", second);
    return options_parse(1 + (first != NULL) + (second != NULL), argv, options);
}

static void test_options(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(NULL, NULL, &options), 0);
    assert_int_equal(options.batch, 64);
    assert_true(options.rate == 0.01f && options.momentum == 0.9f);
    assert_false(options.is_seed_given);
    assert_int_equal(parse("--seed=18446744073709551615", "--no-shuffle", &options), 0);
    assert_true(options.seed == UINT64_MAX && options.is_seed_given && options.no_shuffle);
    assert_int_equal(parse("--no-overlap", "--no-dropout", &options), 0);
    assert_true(options.no_overlap && !options.dropout_percent && !options.no_shuffle);
    assert_int_equal(parse("--lr=2e-3", "--momentum=0", &options), 0);
    assert_true(options.rate == 2e-3f && options.momentum == 0);
    assert_int_equal(parse("--max-steps=7", "--epochs=2", &options), 0);
    assert_true(options.max_steps == 7 && options.epochs == 2);
    assert_int_equal(parse("--bucket-kb=8", "--batch=128", &options), 0);
    assert_true(options.bucket_kb == 8 && options.batch == 128);
}

static void test_options_refuse(void **state)
{
    static const char *const bad[][2] = {
        {"--epochs=0", "--epochs must be a whole number from 1 to 2147483647, not '0'"},
        {"--epochs=3x", "not '3x'"},
        {"--batch=", "--batch must be"},
        {"--batch=-4", "not '-4'"},
        {"--batch=99999999999", "--batch must be"},
        {"--max-steps=0", "--max-steps must be"},
        {"--bucket-kb=none", "--bucket-kb must be"},
        {"--lr=0,1", "--lr must be a number from 0 to below 1000, not '0,1'"},
        {"--lr=nan", "--lr must be"},
        {"--lr=-1", "--lr must be"},
        {"--momentum=1", "--momentum must be a number from 0 to below 1, not '1'"},
        {"--seed=-1", "--seed must be"},
        {"--seed=18446744073709551616", "--seed must be"},
        {"data", "'data' is none"},
    };
    struct options options = {.epochs = 55};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        stderr_listen();
        assert_int_equal(parse(bad[i][0], NULL, &options), TRAIN_USAGE);
        stderr_assert(bad[i][1]);
    }
    stderr_listen();
    assert_int_equal(parse("--init=a", "--resume=b", &options), TRAIN_USAGE);
    stderr_assert("--init and --resume both bring weights");
    assert_int_equal(options.epochs, 55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curve),          cmocka_unit_test(test_curve_of_nothing),
        cmocka_unit_test(test_progress),       cmocka_unit_test(test_options),
        cmocka_unit_test(test_options_refuse),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
