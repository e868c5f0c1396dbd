/* SPDX-License-Identifier: MIT
 *
 * Variables that are changed while other threads read them (environment.c).
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { READERS = 3, ROUNDS = 300, NAMES = 20 };

static atomic_bool is_over;

/* What is not changed is always there, and what is changed has one of its values. */
static void *read_all(void *argument)
{
    const char **complaint = argument;

    while (!is_over && !*complaint) {
        const char *constant = getenv("KOLO_TEST_CONSTANT");
        const char *changing = getenv("KOLO_TEST_7");

        if (!constant || strcmp(constant, "here") != 0)
            *complaint = "what nobody changes was not there";
        if (changing && (strlen(changing) > 3 || strspn(changing, "0123456789") == 0))
            *complaint = "another value than was ever set";
    }
    return NULL;
}

static void change_all(int round)
{
    char name[32], value[32];

    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "KOLO_TEST_%d", i);
        snprintf(value, sizeof value, "%d", round);
        assert_int_equal(setenv(name, value, 1), 0);
        assert_string_equal(getenv(name), value);
    }
    for (int i = round % 2; i < NAMES; i += 2) {
        snprintf(name, sizeof name, "KOLO_TEST_%d", i);
        assert_int_equal(unsetenv(name), 0);
        assert_null(getenv(name));
    }
}

static void threads_read_meanwhile(void **state)
{
    pthread_t readers[READERS];
    const char *complaints[READERS] = {NULL};

    (void)state;
    setenv("KOLO_TEST_CONSTANT", "here", 1);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_all, &complaints[i]), 0);
    for (int round = 0; round < ROUNDS; round++)
        change_all(round);
    is_over = true;
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
        if (complaints[i])
            fail_msg("%s", complaints[i]);
    }
}

static void as_libc_has_them(void **state)
{
    (void)state;
    assert_int_equal(setenv("KOLO_TEST_A", "1", 0), 0);
    assert_int_equal(setenv("KOLO_TEST_A", "2", 0), 0);
    assert_string_equal(getenv("KOLO_TEST_A"), "1");
    assert_int_equal(setenv("KOLO_TEST_A", "", 1), 0);
    assert_string_equal(getenv("KOLO_TEST_A"), "");
    assert_int_equal(unsetenv("KOLO_TEST_A"), 0);
    assert_null(getenv("KOLO_TEST_A"));
    assert_int_equal(unsetenv("KOLO_TEST_A"), 0);
    assert_int_equal(setenv("KOLO=TEST", "1", 1), -1);
    assert_int_equal(setenv("", "1", 1), -1);
    assert_int_equal(unsetenv("KOLO=TEST"), -1);
    assert_int_equal(system("test -z \"$KOLO_TEST_A\""), 0);
    assert_int_equal(setenv("KOLO_TEST_A", "for programs", 1), 0);
    assert_int_equal(system("test \"$KOLO_TEST_A\" = 'for programs'"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_read_meanwhile),
        cmocka_unit_test(as_libc_has_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
