/* SPDX-License-Identifier: MIT
 *
 * Error codes, error texts and the allocation that fails on demand.
 */
#include "fault.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>

static void every_code_has_its_name(void **state)
{
    static const struct {
        int code;
        const char *name;
    } expected[] = {
        {KOLO_OK, "KOLO_OK"},
        {KOLO_E_INVALID, "KOLO_E_INVALID"},
        {KOLO_E_NOMEM, "KOLO_E_NOMEM"},
        {KOLO_E_SYSTEM, "KOLO_E_SYSTEM"},
        {KOLO_E_TIMEOUT, "KOLO_E_TIMEOUT"},
        {KOLO_E_PEER_LOST, "KOLO_E_PEER_LOST"},
        {KOLO_E_ABORTED, "KOLO_E_ABORTED"},
        {KOLO_E_MISMATCH, "KOLO_E_MISMATCH"},
        {KOLO_E_UNSUPPORTED, "KOLO_E_UNSUPPORTED"},
        {KOLO_E_PROTOCOL, "KOLO_E_PROTOCOL"},
        {KOLO_E_TRUNCATED, "KOLO_E_TRUNCATED"},
        {KOLO_E_INTERNAL, "KOLO_E_INTERNAL"},
        {KOLO_E_INTERNAL + 1, "unknown"},
        {KO_AGAIN, "unknown"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(kolo_status_name(expected[i].code), expected[i].name);
}

static void version_is_the_headers(void **state)
{
    char text[32];

    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", KOLO_VERSION_MAJOR, KOLO_VERSION_MINOR,
             KOLO_VERSION_PATCH);
    assert_string_equal(kolo_version(), text);
}

static void fail_keeps_code_and_text(void **state)
{
    (void)state;
    assert_int_equal(ko_fail(KOLO_E_TIMEOUT, "rank %d of %s", 3, "x"), KOLO_E_TIMEOUT);
    assert_string_equal(kolo_last_error(), "rank 3 of x");
    assert_int_equal(ko_fail_again(KOLO_E_MISMATCH, "another's"), KOLO_E_MISMATCH);
    assert_string_equal(kolo_last_error(), "another's");
    assert_int_equal(ko_fail_again(KOLO_E_ABORTED, kolo_last_error()), KOLO_E_ABORTED);
    assert_string_equal(kolo_last_error(), "another's");
}

static void fail_errno_appends_the_reason(void **state)
{
    (void)state;
    assert_int_equal(ko_fail_errno(ENOENT, "open %s", "f"), KOLO_E_SYSTEM);
    assert_string_equal(kolo_last_error(), "open f: No such file or directory");
    assert_int_equal(ko_fail_errno(ENOMEM, "map"), KOLO_E_NOMEM);
    assert_string_equal(kolo_last_error(), "map: Cannot allocate memory");
}

/* That one can be mended, if one knows what by. */
static void too_many_files_are_how_many(void **state)
{
    struct rlimit limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 345;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(ko_fail_errno(EMFILE, "memfd_create"), KOLO_E_SYSTEM);
    assert_string_equal(kolo_last_error(),
                        "memfd_create: Too many open files (the limit is 345: ulimit -n)");
}

static void long_texts_are_cut(void **state)
{
    char text[2 * KO_ERROR_TEXT];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ko_fail(KOLO_E_INVALID, "%s", text);
    assert_int_equal(strlen(kolo_last_error()), KO_ERROR_TEXT - 1);
    ko_fail_again(KOLO_E_INVALID, "short");
    ko_fail_again(KOLO_E_INVALID, text);
    assert_int_equal(strlen(kolo_last_error()), KO_ERROR_TEXT - 1);
    ko_fail_errno(ENOENT, "%s", text);
    assert_non_null(strstr(kolo_last_error(), "x: No such file")); /* the reason is not cut off */
}

static void *fail_elsewhere(void *argument)
{
    *(bool *)argument = *kolo_last_error() == '\0'; /* new threads have no error */
    ko_fail(KOLO_E_INVALID, "elsewhere");
    return NULL;
}

static void texts_are_the_threads_own(void **state)
{
    pthread_t thread;
    bool was_clean = false;

    (void)state;
    ko_fail(KOLO_E_INVALID, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &was_clean), 0);
    pthread_join(thread, NULL);
    assert_true(was_clean);
    assert_string_equal(kolo_last_error(), "here");
}

static void alloc_gives_zeroed_memory(void **state)
{
    static const char zeros[100];
    char *memory = ko_alloc(100, "a test");
    void *nothing = ko_alloc(0, "nothing");

    (void)state;
    assert_non_null(memory);
    assert_memory_equal(memory, zeros, 100);
    assert_non_null(nothing);
    kolo_free(memory);
    kolo_free(nothing);
    kolo_free(NULL);
}

static void alloc_says_what_for(void **state)
{
    (void)state;
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    assert_null(ko_alloc(48, "a test"));
    assert_string_equal(kolo_last_error(), "no memory for a test (48 bytes)");
}

/* Armed for the third passage, only that fails, and the point is disarmed by it. */
static void faults_come_when_armed(void **state)
{
    (void)state;
    ko_fault_arm(KO_FAULT_ALLOC, 3);
    for (int i = 1; i < 6; i++) {
        void *memory = ko_alloc(8, "a test");

        assert_int_equal(memory == NULL, i == 3);
        kolo_free(memory);
    }
    ko_fault_arm(KO_FAULT_SEND, 1);
    ko_fault_arm(KO_FAULT_SEND, 0);
    assert_false(ko_fault(KO_FAULT_SEND));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_name),
        cmocka_unit_test(version_is_the_headers),
        cmocka_unit_test(fail_keeps_code_and_text),
        cmocka_unit_test(fail_errno_appends_the_reason),
        cmocka_unit_test(too_many_files_are_how_many),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(texts_are_the_threads_own),
        cmocka_unit_test(alloc_gives_zeroed_memory),
        cmocka_unit_test(alloc_says_what_for),
        cmocka_unit_test(faults_come_when_armed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
