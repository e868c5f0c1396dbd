/* SPDX-License-Identifier: MIT
 *
 * What a group that fails leaves for its launcher: one JSON document, the first error's.
 */
#include "error_file.h"
#include "folder.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *use(const char *name)
{
    const char *path = folder_path(name);

    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    return path;
}

static void expect(const char *path, const char *begin)
{
    char text[4000];

    folder_read(path, text, sizeof text);
    if (strncmp(text, begin, strlen(begin)) != 0 || !strstr(text, "\"timestamp\": \"") ||
        strcmp(text + strlen(text) - 4, "}}}\n") != 0)
        fail_msg("not as it should begin, %s: %s", begin, text);
}

static void the_first_error_is_kept(void **state)
{
    const char *path = use("first");

    (void)state;
    ko_error_file_write("rank 3 was lost");
    ko_error_file_write("so rank 4 was lost too");
    expect(path, "{\"message\": {\"message\": \"rank 3 was lost\", \"extraInfo\": {");
}

static void any_text_is_json(void **state)
{
    const char *path = use("odd");
    char text[4000];

    (void)state;
    ko_error_file_write("a \"b\" \\ \n\x1b \xc3\xa9");
    expect(path, "{\"message\": {\"message\": \"a \\\"b\\\" \\\\ \\u000a\\u001b \xc3\xa9\", ");
    path = use("broken"); /* text that was cut, bytes that begin nothing, a surrogate */
    ko_error_file_write("\xc3 \xa9\xff \xed\xa0\x80 \xe2\x82");
    expect(path, "{\"message\": {\"message\": \"\\ufffd \\ufffd\\ufffd \\ufffd\\ufffd\\ufffd "
                 "\\ufffd\\ufffd\", ");
    memset(text, '\n', sizeof text);
    text[sizeof text - 1] = 0;
    path = use("long");
    ko_error_file_write(text);
    expect(path, "{\"message\": {\"message\": \"\\u000a\\u000a");
}

/* Whatever its length: with one byte more or less before it, the cut would be within a character.
 */
static void text_is_cut_between_characters(void **state)
{
    char text[4000], got[8000], *end;
    const char *path;

    (void)state;
    for (int before = 0; before < 3; before++) {
        memset(text, 'x', (size_t)before);
        for (size_t i = (size_t)before; i < sizeof text - 1; i++)
            text[i] = "\xe2\x82\xac"[(i - (size_t)before) % 3];
        text[sizeof text - 1] = 0;
        path = use("cut");
        unlink(path);
        ko_error_file_write(text);
        folder_read(path, got, sizeof got);
        end = strstr(got, "\", \"extraInfo\"");
        assert_non_null(end);
        assert_memory_equal(end - 3, "\xe2\x82\xac", 3);
    }
}

static void a_rank_that_cannot_join_says_why(void **state)
{
    const char *path = use("join");
    kolo_group *group;

    (void)state;
    setenv("RANK", "1", 1);
    unsetenv("WORLD_SIZE");
    assert_int_equal(kolo_group_join(NULL, 100, &group), KOLO_E_INVALID);
    unsetenv("RANK");
    expect(path, "{\"message\": {\"message\": \"WORLD_SIZE is not set, but RANK is");
}

static void a_group_that_fails_says_why(void **state)
{
    const char *path = use("group");
    kolo_group *group;

    (void)state;
    assert_int_equal(kolo_group_join(NULL, 1000, &group), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    kolo_group_abort(group, "enough");
    kolo_group_free(group);
    expect(path, "{\"message\": {\"message\": \"");
}

/* A program that has met an error may go on: what ends it later is another one. */
static void who_joins_after_all_has_no_error(void **state)
{
    static const char others[] = "{\"message\": \"the program's own\"}\n";
    const char *path = use("again");
    kolo_group *group;
    kolo_store *store;
    char text[200];

    (void)state;
    assert_int_equal(kolo_group_join("foo://", 100, &group), KOLO_E_INVALID);
    expect(path, "{\"message\": {\"message\": \"the init method");
    assert_int_equal(kolo_group_join(NULL, 1000, &group), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    kolo_group_abort(group, "enough");
    kolo_group_free(group);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(kolo_store_open_local(&store), 0);
    assert_int_equal(kolo_group_join_store(store, 0, 1, 1000, &group), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    kolo_group_free(group);
    folder_write(path, others, strlen(others));
    assert_int_equal(kolo_group_join(NULL, 1000, &group), 0);
    kolo_group_free(group);
    folder_read(path, text, sizeof text);
    assert_string_equal(text, others);
    kolo_store_close(store);
}

static void without_a_place_nothing_happens(void **state)
{
    (void)state;
    setenv("TORCHELASTIC_ERROR_FILE", "/proc/no/such", 1);
    ko_error_file_write("x");
    setenv("TORCHELASTIC_ERROR_FILE", "", 1);
    ko_error_file_write("x");
    ko_error_file_take_back();
    unsetenv("TORCHELASTIC_ERROR_FILE");
    ko_error_file_write("x");
    ko_error_file_take_back();
}

/* As TORCHELASTIC_ERROR_FILE=/dev/stderr is. */
static void a_pipe_keeps_nobody(void **state)
{
    const char *pipe = folder_path("pipe");

    (void)state;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    setenv("TORCHELASTIC_ERROR_FILE", pipe, 1);
    ko_error_file_write("x");
    alarm(20);
    ko_error_file_take_back();
    alarm(0);
    assert_int_equal(access(pipe, F_OK), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_is_kept),
        cmocka_unit_test(any_text_is_json),
        cmocka_unit_test(text_is_cut_between_characters),
        cmocka_unit_test(a_rank_that_cannot_join_says_why),
        cmocka_unit_test(a_group_that_fails_says_why),
        cmocka_unit_test(who_joins_after_all_has_no_error),
        cmocka_unit_test(without_a_place_nothing_happens),
        cmocka_unit_test(a_pipe_keeps_nobody),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("error file", tests, folder_make, folder_remove);
}
