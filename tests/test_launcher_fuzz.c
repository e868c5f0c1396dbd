/* SPDX-License-Identifier: MIT
 *
 * Some thousands of environments put together from what launchers set, with a few bytes changed,
 * the same in every run, and the kept ones, through the fuzz target. The sanitizers and the
 * target's checks are the oracle.
 */
#include "corpus.h"
#include "fuzz_launcher.c"
#include "seeded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { ROUNDS = 20000 };

static uint64_t seed = 0x1234567;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)seeded_next(&seed) % below;
}

static const char *const values[] = {"0",    "1",           "2",         "4",         "",
                                     "True", "h:5",         "[::1]:80",  "n[01-3,7]", "3(x2),1",
                                     "-1",   "99999999999", "localhost", "4294967291"};
enum { VALUES = sizeof values / sizeof *values };

/* A line of text. Names may stand in full or as their byte. */
static size_t print_variable(char *text)
{
    uint32_t name = draw(KNOWN_NAMES);
    const char *value = values[draw(VALUES)];

    return draw(2) ? (size_t)sprintf(text, "%s=%s\n", known_names[name], value)
                   : (size_t)sprintf(text, "%c%s\n", (int)(FIRST_CODE + name), value);
}

static void test_environments(void **state)
{
    char text[LONGEST_INPUT];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = 0;

        for (uint32_t i = draw(16); i > 0; i--)
            n += print_variable(text + n);
        for (uint32_t i = draw(4); i > 1 && n > 0; i--)
            text[draw((uint32_t)n)] = (char)draw(256);
        assert_int_equal(LLVMFuzzerTestOneInput((const uint8_t *)text, n), 0);
    }
}

static void test_kept(void **state)
{
    (void)state;
    assert_in_range(corpus_replay("tests/corpus/launcher", LLVMFuzzerTestOneInput), 1, 10000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_environments),
                                              cmocka_unit_test(test_kept)};

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("launcher fuzz", tests, NULL, NULL);
}
