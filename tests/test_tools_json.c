/* SPDX-License-Identifier: MIT
 *
 * Reading JSON: documents that RFC 8259 allows and what they say, documents that it does not, and
 * every cut and many corruptions of a good one, none of which may do harm.
 */
#include "kolo.h"
#include "tools/json.h"
#include "tools/json_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <malloc.h>

static struct ko_json *parse(const char *text)
{
    struct ko_json *document = NULL;

    if (ko_json_parse("here", text, &document))
        fail_msg("%s: %s", text, kolo_last_error());
    return document;
}

static void assert_refused(const char *text, const char *why)
{
    struct ko_json *document;

    if (ko_json_parse("here", text, &document) != KOLO_E_INVALID)
        fail_msg("%s is taken", text);
    if (!strstr(kolo_last_error(), why))
        fail_msg("%s: %s, not %s", text, kolo_last_error(), why);
}

static void test_values_are_read(void **state)
{
    struct ko_json *document =
        parse(" {\"a\": [1, -2.5e2, 0, true, false, null, {}, []], \"b\": \"x\"}\n");
    const struct ko_json *a = ko_json_member(document, "a"), *item = ko_json_first(a);

    (void)state;
    assert_int_equal(ko_json_kind(document), KO_JSON_OBJECT);
    assert_int_equal(ko_json_length(a), 8);
    assert_true(ko_json_number(item, 0) == 1);
    item = ko_json_next(item);
    assert_true(ko_json_number(item, 0) == -250);
    item = ko_json_next(ko_json_next(item));
    assert_int_equal(ko_json_kind(item), KO_JSON_TRUE);
    assert_true(ko_json_number(item, 7) == 7);
    assert_null(ko_json_text(item));
    assert_string_equal(ko_json_text(ko_json_member(document, "b")), "x");
    assert_null(ko_json_member(document, "c"));
    ko_json_free(document);
}

static void test_what_is_not_there_can_be_asked(void **state)
{
    (void)state;
    assert_null(ko_json_member(NULL, "a"));
    assert_null(ko_json_first(NULL));
    assert_null(ko_json_next(NULL));
    assert_null(ko_json_text(NULL));
    assert_int_equal(ko_json_length(NULL), 0);
    assert_int_equal(ko_json_kind(NULL), KO_JSON_NULL);
    ko_json_free(NULL);
}

static void test_strings_are_read(void **state)
{
    static const char *const pairs[][2] = {
        {"\"\"", ""},
        {"\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"", "a\"\\/\b\f\n\r\tz"},
        {"\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
        {"\"\xc3\xa9\"", "\xc3\xa9"}};

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct ko_json *document = parse(pairs[i][0]);

        assert_string_equal(ko_json_text(document), pairs[i][1]);
        ko_json_free(document);
    }
}

/* Each string takes room for itself, not for the rest of the document. */
static void test_strings_take_little(void **state)
{
    enum { N = 2000 };
    char document_text[8 * N + 16], *at = document_text;
    struct ko_json *document;
    size_t nbytes = 0;

    (void)state;
    *at++ = '[';
    for (int i = 0; i < N; i++)
        at += sprintf(at, "\"a\\\"b\",");
    snprintf(at - 1, 2, "]");
    document = parse(document_text);
    for (const struct ko_json *item = ko_json_first(document); item; item = ko_json_next(item)) {
        assert_string_equal(ko_json_text(item), "a\"b");
        nbytes += malloc_usable_size((void *)(size_t)ko_json_text(item));
    }
    assert_in_range(nbytes, 4 * N, 64 * N);
    ko_json_free(document);
}

static void test_what_is_no_json_is_refused(void **state)
{
    static const char *const pairs[][2] = {{"", "here:1: this is no value"},
                                           {"[1,]", "no value"},
                                           {"{\"a\" 1}", "':' is missing"},
                                           {"{a: 1}", "'\"' is missing"},
                                           {"[1\n2]", "here:2: ']' is missing"},
                                           {"{\"a\": 1", "'}' is missing"},
                                           {"1 2", "follows"},
                                           {"01", "no value"},
                                           {"1.", "no value"},
                                           {"1e", "no value"},
                                           {"-", "no value"},
                                           {"+1", "no value"},
                                           {"NaN", "no value"},
                                           {"[1e308, -1e309]", "too large"},
                                           {"nul", "no value"},
                                           {"\"a", "does not end"},
                                           {"\"a\nb\"", "does not end"},
                                           {"\"\\x\"", "backslash"},
                                           {"\"\\", "backslash"},
                                           {"\"\\u12\"", "hexadecimal"},
                                           {"\"\\u0000\"", "not all 0"},
                                           {"\"\\ud83d\"", "surrogate"},
                                           {"\"\\ude00\"", "surrogate"},
                                           {"\"\\ud83d\\u0041\"", "surrogate"}};
    char deep[200];

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_refused(pairs[i][0], pairs[i][1]);
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_refused(deep, "too deep");
}

static void test_damaged_documents_do_no_harm(void **state)
{
    static const char good[] =
        "{\"a\": [1, -2.5e2, {\"b\": \"\\u20ac\\n\"}], \"c\": [true, null, \"\\ud83d\\ude00\"]}";
    char text[sizeof good];
    struct ko_json *document;
    unsigned seed = 3;

    (void)state;
    for (size_t length = 0; length < sizeof good - 1; length++) {
        snprintf(text, sizeof text, "%.*s", (int)length, good);
        assert_int_equal(ko_json_parse("here", text, &document), KOLO_E_INVALID);
    }
    for (int i = 0; i < 5000; i++) {
        memcpy(text, good, sizeof good);
        for (int k = 0; k < 3; k++)
            text[(size_t)rand_r(&seed) % (sizeof good - 1)] = (char)(1 + rand_r(&seed) % 255);
        if (!ko_json_parse("here", text, &document))
            ko_json_free(document);
    }
}

static void test_files(void **state)
{
    struct ko_json *document;

    (void)state;
    assert_int_equal(ko_json_read("/nonexistent/a.json", &document), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "/nonexistent/a.json: No such file"));
    assert_int_equal(ko_json_read("/dev/null", &document), KOLO_E_INVALID);
    assert_int_equal(ko_json_read("/", &document), KOLO_E_INVALID);
}

/* What ko_json_string writes is what is read, but for bytes that are not UTF-8. */
static void test_written_strings_come_back(void **state)
{
    static const char text[] = "a\"b\\c\n\t\x01\x7f\xc3\xa9 \xf0\x9f\x98\x80";
    char *written = NULL;
    size_t length;
    FILE *file = open_memstream(&written, &length);
    struct ko_json *document;

    (void)state;
    ko_json_string(file, text);
    fclose(file);
    document = parse(written);
    assert_string_equal(ko_json_text(document), text);
    ko_json_free(document);
    free(written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_read),
        cmocka_unit_test(test_what_is_not_there_can_be_asked),
        cmocka_unit_test(test_strings_are_read),
        cmocka_unit_test(test_strings_take_little),
        cmocka_unit_test(test_what_is_no_json_is_refused),
        cmocka_unit_test(test_damaged_documents_do_no_harm),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_written_strings_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
