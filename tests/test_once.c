/* SPDX-License-Identifier: MIT
 *
 * What is done once: by one of several threads, whose outcome all get, each with the sentence.
 */
#include "once.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { NTHREADS = 8 };

static atomic_int nacts, nwrong;
static struct ko_once inner = {.first = PTHREAD_ONCE_INIT}, outer = {.first = PTHREAD_ONCE_INIT},
                      well = {.first = PTHREAD_ONCE_INIT};

static int act_inner(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* others come meanwhile */
    nacts++;
    return ko_fail(KOLO_E_UNSUPPORTED, "attempt %d", (int)nacts);
}

static int act_outer(void)
{
    nacts++;
    return ko_once(&inner, act_inner);
}

static int act_well(void)
{
    nacts++;
    return KOLO_OK;
}

static void *ask(void *unused)
{
    for (int turn = 0; turn < 2; turn++) {
        (void)ko_fail(KOLO_E_INVALID, "something else");
        nwrong += ko_once(&outer, act_outer) != KOLO_E_UNSUPPORTED ||
                  strcmp(kolo_last_error(), "attempt 2") != 0;
        nwrong += ko_once(&inner, act_inner) != KOLO_E_UNSUPPORTED;
    }
    return unused;
}

static void test_all_get_the_outcome_of_one(void **state)
{
    pthread_t threads[NTHREADS];

    (void)state;
    for (int i = 0; i < NTHREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, NULL), 0);
    for (int i = 0; i < NTHREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(nwrong, 0);
    assert_int_equal(nacts, 2);
}

static void test_what_went_well_leaves_the_text_alone(void **state)
{
    (void)state;
    nacts = 0;
    (void)ko_fail(KOLO_E_INVALID, "something else");
    for (int turn = 0; turn < 3; turn++)
        assert_int_equal(ko_once(&well, act_well), KOLO_OK);
    assert_int_equal(nacts, 1);
    assert_string_equal(kolo_last_error(), "something else");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_get_the_outcome_of_one),
        cmocka_unit_test(test_what_went_well_leaves_the_text_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
