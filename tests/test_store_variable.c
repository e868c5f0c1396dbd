/* SPDX-License-Identifier: MIT
 *
 * Whose limit it was that a call on a store has reached: the environment's, or a caller's.
 */
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of a handle that has been given no limit, and of one on top of it. */
static void the_limit_that_has_passed_is_named(void **state)
{
    kolo_store *stores[2];
    void *value;
    size_t nbytes;

    (void)state;
    setenv("KOLO_TIMEOUT_MS", "20", 1);
    assert_int_equal(kolo_store_open_local(&stores[0]), KOLO_OK);
    unsetenv("KOLO_TIMEOUT_MS");
    assert_int_equal(kolo_store_open_prefix(stores[0], "p", &stores[1]), KOLO_OK);
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(kolo_store_get(stores[i], "rank/1", &value, &nbytes), KOLO_E_TIMEOUT);
        assert_non_null(strstr(kolo_last_error(), "waited 20 ms"));
        assert_non_null(strstr(kolo_last_error(), "started? KOLO_TIMEOUT_MS is the limit"));
        assert_int_equal(kolo_store_barrier(stores[i], "b", 2, 10), KOLO_E_TIMEOUT);
        assert_non_null(strstr(kolo_last_error(), "(the timeout_ms that was given is the limit)"));
        kolo_store_close(stores[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_limit_that_has_passed_is_named)};

    return cmocka_run_group_tests_name("store variable", tests, NULL, NULL);
}
