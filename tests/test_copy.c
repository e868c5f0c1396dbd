/* SPDX-License-Identifier: MIT
 *
 * Copies of few bytes, of many, around the caches, and into a peer's window: every alignment of
 * both sides, every length around lines.
 */
#include "copy.h"
#include "link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 1024 };

/* width < 0: in pieces. */
static void check(int width, size_t to, size_t from, size_t nbytes)
{
    static unsigned char source[ROOM], got[ROOM], expected[ROOM];

    for (size_t i = 0; i < ROOM; i++)
        source[i] = (unsigned char)(i * 7 + i / 256);
    memset(got, 0xa5, ROOM);
    memset(expected, 0xa5, ROOM);
    memcpy(expected + to, source + from, nbytes);
    if (width < 0) {
        ko_copy_streaming_piece(got + to, source + from, nbytes);
        ko_copy_streaming_end();
    } else {
        ko_copy_streaming_at(width, got + to, source + from, nbytes);
    }
    assert_memory_equal(got, expected, ROOM);
}

static void every_alignment_and_length(void **state)
{
    static const size_t lengths[] = {0, 1, 15, 63, 64, 65, 127, 128, 129, 200, 500, 512};

    (void)state;
    for (size_t to = 0; to < 130; to++)
        for (size_t from = 0; from < 66; from += 13)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                for (int width = -1; width < ko_copy_nwidths(); width++)
                    check(width, to, from, lengths[i]);
}

/* Short ones: every length, and nothing beside it. */
static void every_short_length(void **state)
{
    unsigned char source[256], got[256], expected[256];

    (void)state;
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (unsigned char)(i * 11 + 3);
    for (size_t nbytes = 0; nbytes <= 200; nbytes++)
        for (size_t at = 0; at < 9; at++) {
            memset(got, 0xa5, sizeof got);
            memset(expected, 0xa5, sizeof expected);
            memcpy(expected + at, source + 8 - at, nbytes);
            ko_copy_short(got + at, source + 8 - at, nbytes);
            assert_memory_equal(got, expected, sizeof got);
        }
}

/* Around where one way of copying begins and another ends, with nothing beside it. */
static void every_alignment_of_long_ones(void **state)
{
    enum { LONG = 8193, BESIDE = 64 };
    static unsigned char source[LONG + 2 * BESIDE], got[LONG + 2 * BESIDE], expected[sizeof got];
    static const size_t lengths[] = {1535, 1536, 1663, 1664, 1665, 2047, 2048,
                                     2049, 2111, 2112, 5000, 8191, 8192, LONG};

    (void)state;
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (unsigned char)(i * 13 + i / 256);
    for (size_t to = 0; to <= BESIDE; to++)
        for (size_t from = 0; from <= BESIDE; from += 7)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                memset(got, 0xa5, sizeof got);
                memset(expected, 0xa5, sizeof expected);
                memcpy(expected + to, source + from, lengths[i]);
                ko_copy(got + to, source + from, lengths[i]);
                assert_memory_equal(got, expected, sizeof got);
                memset(got, 0xa5, sizeof got);
                ko_copy_far(got + to, source + from, lengths[i]);
                assert_memory_equal(got, expected, sizeof got);
            }
}

static void fill(struct ko_link *link, size_t nbytes, int times)
{
    enum { MOST = 9000 };
    static unsigned char source[MOST], got[MOST + 1];

    for (int i = 0; i < times; i++) {
        for (size_t k = 0; k < nbytes; k++)
            source[k] = (unsigned char)(k * 13 + k / 256 + (size_t)i);
        memset(got, 0xa5, sizeof got);
        ko_window_fill(link, got, source, nbytes);
        assert_memory_equal(got, source, nbytes);
        assert_int_equal(got[nbytes], 0xa5);
    }
}

/* Whatever is thought of the distance, and while it is found out. */
static void a_place_is_filled(void **state)
{
    enum { TIMES = 80 };
    static const size_t lengths[] = {0, 1, 1536, 2048, 2049, 3583, 3584, 4096, 8191, 8192, 9000};
    struct ko_link link = {.peer = 1};

    (void)state;
    for (int is_far = 0; is_far < 2; is_far++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            link.distance = (struct ko_window_distance){.is_far = is_far};
            fill(&link, lengths[i], TIMES);
            if (lengths[i] >= 3584 && ko_copy_depends_on_distance(lengths[i]))
                assert_int_equal(link.distance.ncopies, TIMES);
            else
                assert_int_equal(link.distance.is_far, is_far);
        }
}

static void nothing_needs_no_memory(void **state)
{
    (void)state;
    ko_copy(NULL, NULL, 0);
    ko_copy_streaming(NULL, NULL, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_alignment_and_length),   cmocka_unit_test(every_short_length),
        cmocka_unit_test(every_alignment_of_long_ones), cmocka_unit_test(a_place_is_filled),
        cmocka_unit_test(nothing_needs_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
