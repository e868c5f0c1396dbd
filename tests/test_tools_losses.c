/* SPDX-License-Identifier: MIT
 *
 * How the kolorun that serves others notices that one of them has gone: by its silence, the time
 * that has passed being given by hand, and by what the store says of its connection.
 */
#include "clock.h"
#include "tools/launch_losses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <string.h>

enum { MOST_LOST_AFTER_MS = INT_MAX / 1000 * 1000, A_TURN_MS = 1000 };

static struct ko_nodes nodes;

/* Three machines that have met; this one serves the others. */
static void open_three(int lost_after_ms)
{
    const char *const places[] = {"where/0", "where/1", "where/2"};

    nodes = (struct ko_nodes){.nnodes = 3,
                              .nprocs = 1,
                              .is_server = true,
                              .is_admitted = true,
                              .lost_after_ms = lost_after_ms};
    assert_int_equal(kolo_store_open_local(&nodes.store), KOLO_OK);
    assert_int_equal(kolo_store_open_prefix(nodes.store, "job", &nodes.keys), KOLO_OK);
    for (int i = 0; i < nodes.nnodes; i++)
        assert_int_equal(kolo_store_set(nodes.keys, places[i], (kolo_bytes){"there", 5}), KOLO_OK);
    assert_int_equal(ko_losses_open(&nodes), KOLO_OK);
    ko_losses_begin(&nodes);
}

static void close_three(void)
{
    ko_losses_close(&nodes);
    kolo_store_close(nodes.keys);
    kolo_store_close(nodes.store);
}

static void speak(int machine)
{
    const char *const keys[] = {"alive/0", "alive/1", "alive/2"};
    int64_t beats;

    assert_int_equal(kolo_store_add(nodes.keys, keys[machine], 1, &beats), KOLO_OK);
}

/* The server looks at the others, so long after it did so last: it counts a turn at most. */
static void look_after(int64_t ms)
{
    nodes.beat = ko_deadline_in(0);
    nodes.listened_ns = ko_now_ns() - ms * 1000000;
    assert_int_equal(ko_losses_tend(&nodes, 0), KOLO_OK);
}

static void expect_loss(const char *text)
{
    char how[KO_NODES_TEXT + 16];
    int err;

    assert_true(ko_nodes_has(&nodes, 0, "lost", &err));
    assert_int_equal(ko_nodes_get(&nodes, 0, "lost", how), KOLO_OK);
    assert_string_equal(how, text);
}

static void expect_no_loss(void)
{
    int err;

    assert_false(ko_nodes_has(&nodes, 0, "lost", &err));
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(ko_losses_count(&nodes), 0);
}

/* ---- silence --------------------------------------------------------------------------------- */

static void silence_is_a_loss_when_its_limit_is_reached(void **state)
{
    (void)state;
    open_three(4 * A_TURN_MS);
    for (int i = 0; i < 3; i++) {
        speak(2);
        look_after(A_TURN_MS);
    }
    expect_no_loss();
    speak(2);
    look_after(A_TURN_MS);
    expect_loss("machine 1 (there) was lost: its kolorun has said nothing for 4 s (--lost-after)");
    assert_int_equal(ko_losses_count(&nodes), 1);
    close_three();
}

/* A server that was stopped itself hears of others only what they say afterwards. */
static void absence_of_the_server_is_one_turn(void **state)
{
    (void)state;
    open_three(4 * A_TURN_MS);
    for (int i = 0; i < 3; i++)
        look_after(3600 * 1000);
    expect_no_loss();
    close_three();
}

static void who_speaks_begins_anew(void **state)
{
    (void)state;
    open_three(4 * A_TURN_MS);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++)
            look_after(A_TURN_MS);
        speak(1);
        speak(2);
        look_after(A_TURN_MS);
    }
    expect_no_loss();
    close_three();
}

static void without_a_limit_nobody_is_lost(void **state)
{
    (void)state;
    open_three(0);
    for (int i = 0; i < 100; i++)
        look_after(A_TURN_MS);
    expect_no_loss();
    close_three();
}

/* The longest that --lost-after takes: what has been counted and a turn are more than an int. */
static void the_longest_limit_is_reached(void **state)
{
    (void)state;
    open_three(MOST_LOST_AFTER_MS);
    nodes.lives[1].silent_ms = MOST_LOST_AFTER_MS - A_TURN_MS - 1;
    look_after(A_TURN_MS);
    expect_no_loss();
    look_after(A_TURN_MS);
    expect_loss("machine 1 (there) was lost: its kolorun has said nothing for 2.14748e+06 s "
                "(--lost-after)");
    assert_int_equal(ko_losses_count(&nodes), 1);
    close_three();
}

/* ---- ends of connections --------------------------------------------------------------------- */

static void end(const char *text)
{
    assert_int_equal(kolo_store_append(nodes.keys, "gone", (kolo_bytes){text, strlen(text)}),
                     KOLO_OK);
    look_after(0);
}

static void an_end_is_a_loss_at_once(void **state)
{
    (void)state;
    open_three(0);
    end(" 2.0");
    expect_loss("machine 2 (there) was lost: its kolorun has ended, or its connection");
    end(" 2.0");
    assert_int_equal(ko_losses_count(&nodes), 1);
    close_three();
}

/* Of one that was lost before and whose place is taken, of itself, and of who cannot be. */
static void ends_of_others_are_none(void **state)
{
    (void)state;
    open_three(0);
    end(" 1.1");
    end(" 0.0");
    end(" 3.0");
    end(" -1.0");
    end(" 2147483647.0 nonsense");
    expect_no_loss();
    close_three();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_is_a_loss_when_its_limit_is_reached),
        cmocka_unit_test(absence_of_the_server_is_one_turn),
        cmocka_unit_test(who_speaks_begins_anew),
        cmocka_unit_test(without_a_limit_nobody_is_lost),
        cmocka_unit_test(the_longest_limit_is_reached),
        cmocka_unit_test(an_end_is_a_loss_at_once),
        cmocka_unit_test(ends_of_others_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
