/* SPDX-License-Identifier: MIT
 *
 * Where the bodies of long slices lie, beside a list of those that are under way.
 */
#include "link.h"
#include "seeded.h"
#include "window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLICE = 4096, STEPS = 4000 };

struct body {
    uint64_t at;
    size_t nbytes;
};

static bool is_trading; /* with the peer of all links here */

static struct ko_link link_of(uint32_t slots, uint32_t spread)
{
    return (struct ko_link){.slots = slots,
                            .slice_bytes = SLICE,
                            .places = {.spread = spread},
                            .is_trading = &is_trading,
                            .peer = 1};
}

/* As window_link.c fills the next slot. */
static struct body send_one(struct ko_link *link, size_t nbytes)
{
    struct body body = {.nbytes = nbytes};

    ko_window_places_free(link);
    body.at = ko_window_choose_place(link, nbytes);
    ko_window_take_place(link);
    link->sent++;
    return body;
}

static bool overlap(const struct body *a, const struct body *b)
{
    return a->at < b->at + b->nbytes && b->at < a->at + a->nbytes;
}

/* Fills slots and gives credit at random; bodies under way are bodies[credit % slots] and on. */
static void go_on_at_random(uint32_t slots, uint32_t spread, uint64_t *seed)
{
    struct ko_link link = link_of(slots, spread);
    struct body bodies[KO_MOST_SLOTS];

    for (int step = 0; step < STEPS; step++) {
        uint64_t released = link.credit;

        is_trading = step % 97 < 40;
        if (link.sent < released + slots && seeded_below(seed, 3)) {
            const bool is_whole = seeded_below(seed, 3) == 0;
            struct body body =
                send_one(&link, is_whole ? SLICE : 1 + (size_t)seeded_below(seed, SLICE));

            assert_int_equal(body.at % KO_LINE, 0);
            assert_true(body.at + body.nbytes <= ko_window_room(slots, SLICE));
            for (uint64_t i = released; i + 1 < link.sent; i++)
                assert_false(overlap(&body, &bodies[i % slots]));
            bodies[(link.sent - 1) % slots] = body;
        } else if (released < link.sent) {
            link.credit += 1 + (uint64_t)seeded_below(seed, (int)(link.sent - released));
        }
    }
}

static void no_two_at_one_place(void **state)
{
    uint64_t seed = 2026;

    (void)state;
    for (uint32_t slots = 2; slots <= KO_MOST_SLOTS; slots *= 2)
        for (uint32_t spread = 0; spread <= ko_window_nplaces(slots) + 1; spread++)
            go_on_at_random(slots, spread, &seed);
}

/* Marks the lines that one body at a time has touched after so many; how many lines they are. */
static size_t count_lines(uint32_t slots, uint32_t spread, size_t nbytes, int nbodies)
{
    struct ko_link link = link_of(slots, spread);
    const size_t nlines = ko_window_room(slots, SLICE) / KO_LINE;
    unsigned char *touched = calloc(nlines, 1);
    size_t count = 0;

    assert_non_null(touched);
    for (int i = 0; i < nbodies; i++) {
        struct body body = send_one(&link, nbytes);

        memset(touched + body.at / KO_LINE, 1, (nbytes + KO_LINE - 1) / KO_LINE);
        link.credit = link.sent;
    }
    for (size_t i = 0; i < nlines; i++)
        count += touched[i];
    free(touched);
    return count;
}

static void one_or_all_in_turn(void **state)
{
    const size_t place = SLICE / KO_LINE;

    (void)state;
    is_trading = false;
    for (uint32_t spread = 0; spread <= 1; spread++) {
        assert_int_equal(count_lines(8, spread, SLICE, 100), place);
        assert_int_equal(count_lines(8, spread, 1000, 100), 16);
    }
    assert_int_equal(count_lines(8, 3, SLICE, 100), 3 * place);
    assert_int_equal(count_lines(8, 16, SLICE, 16), 16 * place);
    assert_int_equal(count_lines(8, 99, SLICE, 100), 16 * place);
    assert_int_equal(count_lines(8, 16, SLICE / 2, 31), 15 * place + place / 2);
    assert_int_equal(count_lines(8, 16, SLICE / 2, 32), 16 * place);
    assert_int_equal(count_lines(8, 4, 1024, 16), 4 * place);
    assert_int_equal(count_lines(8, 4, SLICE / 2 + 1, 100), 4 * (place / 2 + 1));
}

/* Half of them, and all again afterwards. */
static void half_in_turn_while_trading(void **state)
{
    const size_t place = SLICE / KO_LINE;

    (void)state;
    is_trading = true;
    assert_int_equal(count_lines(8, 16, SLICE, 100), 8 * place);
    assert_int_equal(count_lines(8, 16, SLICE / 2, 16), 8 * place);
    assert_int_equal(count_lines(8, 3, SLICE, 100), place);
    assert_int_equal(count_lines(8, 1, SLICE, 100), place);
    is_trading = false;
    assert_int_equal(count_lines(8, 16, SLICE, 100), 16 * place);
}

/* A peer that says it has released more than was sent has released that, and no more. */
static void a_credit_that_cannot_be(void **state)
{
    struct ko_link link = link_of(4, 1);

    (void)state;
    (void)send_one(&link, SLICE);
    link.credit = 1000;
    for (uint64_t sent = 1; sent < 20; sent++) {
        assert_int_equal(send_one(&link, SLICE).at, 0);
        assert_int_equal(link.places.freed, sent);
        assert_int_equal(link.places.taken, 1);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_at_one_place),
        cmocka_unit_test(one_or_all_in_turn),
        cmocka_unit_test(half_in_turn_while_trading),
        cmocka_unit_test(a_credit_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
