/* SPDX-License-Identifier: MIT
 *
 * KOLO_* variables: defaults, units, bounds, and the warning about those that do not exist.
 */
#include "config.h"
#include "log.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

extern char **environ;

static int forget_all(void **state)
{
    (void)state;
    for (int i = 0; i < KO_CONFIG_COUNT; i++)
        unsetenv(ko_config_table[i].name);
    return 0;
}

static int64_t number(enum ko_config_id id, const char *text)
{
    int64_t value = -12345;

    setenv(ko_config_table[id].name, text, 1);
    return ko_config_number(id, &value) == KOLO_OK ? value : -1;
}

static void assert_refused(enum ko_config_id id, const char *text)
{
    int64_t value = -12345;

    setenv(ko_config_table[id].name, text, 1);
    assert_int_equal(ko_config_number(id, &value), KOLO_E_INVALID);
    assert_int_equal(value, -12345);
    assert_non_null(strstr(kolo_last_error(), ko_config_table[id].name));
}

static void defaults_are_within_their_bounds(void **state)
{
    int64_t value;

    (void)state;
    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        assert_false(ko_config_is_set((enum ko_config_id)i));
        assert_string_equal(ko_config_text((enum ko_config_id)i), ko_config_table[i].standard);
        assert_true(!strncmp(ko_config_table[i].name, "KOLO_", 5) && *ko_config_table[i].help);
        if (ko_config_is_number((enum ko_config_id)i))
            assert_int_equal(ko_config_number((enum ko_config_id)i, &value), KOLO_OK);
    }
    assert_int_equal(ko_config_check(), KOLO_OK);
}

static void environment_wins_unless_empty(void **state)
{
    (void)state;
    setenv("KOLO_ALGO", "ring", 1);
    assert_true(ko_config_is_set(KO_CONFIG_ALGO));
    assert_string_equal(ko_config_text(KO_CONFIG_ALGO), "ring");
    setenv("KOLO_DEBUG", "", 1);
    assert_false(ko_config_is_set(KO_CONFIG_DEBUG));
    assert_string_equal(ko_config_text(KO_CONFIG_DEBUG), "WARN");
}

static void sizes_take_suffixes(void **state)
{
    (void)state;
    assert_int_equal(number(KO_CONFIG_SLICE_BYTES, "64"), 64);
    assert_int_equal(number(KO_CONFIG_SLICE_BYTES, "8k"), 8192);
    assert_int_equal(number(KO_CONFIG_SLICE_BYTES, "8K"), 8192);
    assert_int_equal(number(KO_CONFIG_SLICE_BYTES, "2m"), 2 << 20);
    assert_refused(KO_CONFIG_SLICE_BYTES, "2G");
    assert_non_null(strstr(kolo_last_error(), "is \"2G\"; it takes a whole number from 64 to "
                                              "16777216 (K, M, G may follow)"));
    assert_refused(KO_CONFIG_SLICE_BYTES, "9223372036854775807K");
    assert_refused(KO_CONFIG_SLICE_BYTES, "128KB");
    assert_refused(KO_CONFIG_SLICE_BYTES, "128 ");
    assert_refused(KO_CONFIG_SLICE_BYTES, "K");
}

static void numbers_keep_to_their_bounds(void **state)
{
    (void)state;
    assert_int_equal(number(KO_CONFIG_SLOTS, "2"), 2);
    assert_int_equal(number(KO_CONFIG_SLOTS, "64"), 64);
    assert_refused(KO_CONFIG_SLOTS, "1");
    assert_refused(KO_CONFIG_SLOTS, "65");
    assert_string_equal(kolo_last_error(),
                        "KOLO_SLOTS is \"65\"; it takes a whole number from 2 to 64");
    assert_refused(KO_CONFIG_SLOTS, "8K"); /* no size */
    assert_refused(KO_CONFIG_SLOTS, "8.5");
    assert_refused(KO_CONFIG_SLOTS, "many");
    assert_refused(KO_CONFIG_SLOTS, "99999999999999999999");
    assert_refused(KO_CONFIG_SLOTS, "-8");
    assert_int_equal(number(KO_CONFIG_CHECK, "1"), 1);
    assert_refused(KO_CONFIG_CHECK, "yes");
    assert_int_equal(ko_config_check(), KOLO_E_INVALID);
}

static void words_are_those_of_the_table(void **state)
{
    const char *word = NULL;

    (void)state;
    assert_int_equal(ko_config_word(KO_CONFIG_CUDA_IPC, &word), KOLO_OK);
    assert_string_equal(word, "all");
    setenv("KOLO_CUDA_IPC", "vmm", 1);
    assert_int_equal(ko_config_word(KO_CONFIG_CUDA_IPC, &word), KOLO_OK);
    assert_string_equal(word, "vmm");
    assert_int_equal(ko_config_check(), KOLO_OK);
    setenv("KOLO_CUDA_IPC", "q", 1);
    assert_int_equal(ko_config_word(KO_CONFIG_CUDA_IPC, &word), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(),
                        "KOLO_CUDA_IPC is \"q\"; it takes all, legacy, vmm or off");
    assert_int_equal(ko_config_check(), KOLO_E_INVALID);
    assert_int_equal(ko_config_check_one(KO_CONFIG_CUDA_IPC), KOLO_E_INVALID);
    assert_int_equal(ko_config_check_one(KO_CONFIG_GPUDIRECT), KOLO_OK);
    assert_int_equal(ko_config_check_one(KO_CONFIG_ALGO), KOLO_OK);
    setenv("KOLO_CUDA_IPC", "off", 1);
    setenv("KOLO_GPUDIRECT", "1", 1);
    assert_int_equal(ko_config_check(), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(), "KOLO_GPUDIRECT is \"1\"; it takes auto or 0");
}

static void types_have_names(void **state)
{
    (void)state;
    assert_string_equal(ko_config_type_name(KO_CONFIG_TYPE_TEXT), "TEXT");
    assert_string_equal(ko_config_type_name(KO_CONFIG_TYPE_INT), "INT");
    assert_string_equal(ko_config_type_name(KO_CONFIG_TYPE_SIZE), "SIZE");
    assert_string_equal(ko_config_type_name(KO_CONFIG_TYPE_BOOL), "BOOL");
}

static void strangers_are_warned_of(void **state)
{
    char path[] = "/tmp/test-XXXXXX";
    char log[4096] = "";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    setenv("KOLO_DEBUG_FILE", path, 1);
    setenv("KOLO_SLOT", "4", 1);
    ko_log_reopen();
    assert_int_equal(ko_config_check(), KOLO_OK);
    unsetenv("KOLO_SLOT");
    unsetenv("KOLO_DEBUG_FILE");
    ko_log_reopen();
    assert_true(read(fd, log, sizeof log - 1) > 0);
    close(fd);
    unlink(path);
    assert_non_null(strstr(log, "KOLO_SLOT is no variable of kolo's"));
    assert_null(strstr(log, "KOLO_DEBUG_FILE is no"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(defaults_are_within_their_bounds, forget_all),
        cmocka_unit_test_setup(environment_wins_unless_empty, forget_all),
        cmocka_unit_test_setup(sizes_take_suffixes, forget_all),
        cmocka_unit_test_setup(numbers_keep_to_their_bounds, forget_all),
        cmocka_unit_test_setup(words_are_those_of_the_table, forget_all),
        cmocka_unit_test_setup(types_have_names, forget_all),
        cmocka_unit_test_setup(strangers_are_warned_of, forget_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
