/* SPDX-License-Identifier: MIT
 *
 * Some thousands of lists of hosts and tasks, put together from pieces of them with a few bytes
 * changed, the same in every run, and the kept ones, through the fuzz target. The sanitizers and
 * the target's checks are the oracle.
 */
#include "corpus.h"
#include "fuzz_hostlist.c"
#include "seeded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { ROUNDS = 20000 };

static uint64_t seed = 0x1234567;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)seeded_next(&seed) % below;
}

static const char *const pieces[] = {"n", "[", "]", "1", "07-12", ",", "-", "x[1-3]", "9", "(x2)"};
enum { PIECES = sizeof pieces / sizeof *pieces };

static void test_lists(void **state)
{
    char text[256];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        text[0] = (char)draw(256);
        text[1] = 0;
        for (uint32_t i = draw(24); i > 0; i--)
            strcat(text + 1, pieces[draw(PIECES)]);
        n = strlen(text + 1) + 1;
        for (uint32_t i = draw(4); i > 1 && n > 1; i--)
            text[1 + draw((uint32_t)n - 1)] =
                (char)(draw(2) ? draw(256) : (uint32_t) "[]-,(x"[draw(6)]);
        assert_int_equal(LLVMFuzzerTestOneInput((const uint8_t *)text, n), 0);
    }
}

static void test_kept(void **state)
{
    (void)state;
    assert_in_range(corpus_replay("tests/corpus/hostlist", LLVMFuzzerTestOneInput), 1, 10000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists),
                                              cmocka_unit_test(test_kept)};

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("hostlist fuzz", tests, NULL, NULL);
}
