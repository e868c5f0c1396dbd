/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices of one message that are read out of their sender's process at once.
 */
#include "transport_suite.h"

#include "foreign.h"
#include "status.h"
#include "window_slots.h"

#include <string.h>

enum { SLICE = 4096 };

/* The next slot but `number` is left, with SLICE bytes at the address. */
static void put(const struct puppet *puppet, uint32_t number, const unsigned char *address)
{
    struct ko_link *link = puppet->link;
    struct ko_slot *slot =
        ko_window_slot(link->inbox, (uint32_t)(link->received + number) % link->slots);

    slot->frame = (struct ko_frame){.kind = KO_FRAME_FOREIGN, .nbytes = SLICE};
    slot->foreign = (struct ko_foreign_slice){(uintptr_t)address, 0, KO_FOREIGN_FREE};
    ko_store_ordered(&slot->step, link->received + number + 1);
}

/* Lands the next slice, behind which there is so much room. */
static int land(const struct puppet *puppet, unsigned char *to, size_t ahead)
{
    struct ko_link *link = puppet->link;
    const struct ko_frame *frame;
    int err = link->ops->next(link, &frame);

    link->ahead = ahead;
    if (!err)
        err = link->ops->land(link, to, false);
    link->ahead = 0;
    return err;
}

/* Two slices, one behind the other, of bytes that are 1. */
static void put_two(const struct puppet *puppet, unsigned char *from)
{
    memset(from, 1, 2 * SLICE);
    put(puppet, 0, from);
    put(puppet, 1, from + SLICE);
}

/* What lies behind a slice, in both processes, is read with it. */
static void what_follows_is_read_with_it(void **state)
{
    unsigned char from[3 * SLICE], to[3 * SLICE];
    struct suite *suite = *state;
    struct puppet puppet;

    puppet = suite_open_reading(suite, "cma", SLICE);
    for (int i = 0; i < 4; i++) { /* 0: all is well; 1: no room; 2: not behind; 3: another call */
        struct ko_slot *second;

        memset(from, 1, sizeof from);
        memset(to, 0, sizeof to);
        put(&puppet, 0, from);
        put(&puppet, 1, from + (i == 2 ? 2 * SLICE : SLICE));
        second = ko_window_slot(puppet.link->inbox, (uint32_t)(puppet.link->received + 1) % 2);
        second->frame.stamp.seq = i == 3;
        assert_int_equal(land(&puppet, to, i == 1 ? SLICE - 1 : SLICE), KOLO_OK);
        assert_int_equal(to[SLICE], i == 0);
        assert_int_equal(second->foreign.state, i == 0 ? KO_FOREIGN_READ : KO_FOREIGN_FREE);
        memset(from, 2, sizeof from);
        assert_int_equal(land(&puppet, to + SLICE, 0), KOLO_OK);
        assert_int_equal(to[0], 1);
        assert_int_equal(to[SLICE], i == 0 ? 1 : 2); /* it is not read again */
        assert_int_equal(to[2 * SLICE], 0);
    }
    suite_close_puppet(&puppet);
}

/* What is used where it is read has room for one slice. */
static void what_follows_is_not_read_to_be_used(void **state)
{
    unsigned char from[2 * SLICE];
    struct suite *suite = *state;
    const struct ko_frame *frame;
    const void *body = NULL;
    struct puppet puppet;
    struct ko_link *link;

    puppet = suite_open_reading(suite, "cma", SLICE);
    link = puppet.link;
    put_two(&puppet, from);
    assert_int_equal(link->ops->next(link, &frame), KOLO_OK);
    link->ahead = SLICE;
    assert_int_equal(link->ops->peek(link, &body), KOLO_OK);
    assert_memory_equal(body, from, SLICE);
    assert_int_equal(ko_window_slot(link->inbox, (uint32_t)(link->received + 1) % 2)->foreign.state,
                     KO_FOREIGN_FREE);
    suite_close_puppet(&puppet);
}

/* It is read again where it goes elsewhere, and not any more where it was withdrawn. */
static void what_was_read_ahead_may_change(void **state)
{
    unsigned char from[2 * SLICE], to[3 * SLICE] = {0};
    struct suite *suite = *state;
    struct puppet puppet;

    puppet = suite_open_reading(suite, "cma", SLICE);
    put_two(&puppet, from);
    assert_int_equal(land(&puppet, to, SLICE), KOLO_OK);
    memset(from, 2, sizeof from);
    assert_int_equal(land(&puppet, to + 2 * SLICE, 0), KOLO_OK);
    assert_int_equal(to[2 * SLICE], 2);
    put_two(&puppet, from);
    assert_int_equal(land(&puppet, to, SLICE), KOLO_OK);
    puppet.link->next_in->foreign.state = KO_FOREIGN_WITHDRAWN;
    assert_int_equal(land(&puppet, to + SLICE, 0), KO_AGAIN);
    suite_close_puppet(&puppet);
}

/* Two slices are read at once by who has stood still, or runs on a machine that was started, so
 * long ago. */
static void long_times_are_times(void **state)
{
    enum { ENOUGH = 20 };
    static const int64_t began_ns[] = {-(INT64_MAX / 2), INT64_MAX / 2};
    unsigned char from[2 * SLICE], to[2 * SLICE];
    struct suite *suite = *state;
    struct puppet puppet;

    puppet = suite_open_reading(suite, "cma", SLICE);
    for (int i = 0; i < 2 * ENOUGH; i++) {
        const struct ko_frame *frame;
        const void *body = NULL;
        struct ko_moment began;

        put_two(&puppet, from);
        assert_int_equal(puppet.link->ops->next(puppet.link, &frame), KOLO_OK);
        puppet.link->ahead = SLICE;
        assert_int_equal(ko_foreign_take(puppet.link, to, &body), KOLO_OK);
        puppet.link->ahead = 0;
        began = ko_moment_now();
        began.ns = began_ns[i / ENOUGH];
        began.faults -= i / ENOUGH; /* what there is before it is long, not what it takes */
        ko_foreign_watched(puppet.link, &began, true);
        assert_int_equal(land(&puppet, to, 0), KOLO_OK);
        assert_int_equal(land(&puppet, to + SLICE, 0), KOLO_OK);
        assert_memory_equal(to, from, sizeof from);
    }
    suite_close_puppet(&puppet);
}

#define CASE(name)              \
    {                           \
        "foreign: " #name, name \
    }
const struct suite_case suite_ahead_cases[] = {
    CASE(what_follows_is_read_with_it), CASE(what_follows_is_not_read_to_be_used),
    CASE(what_was_read_ahead_may_change), CASE(long_times_are_times)};
const size_t suite_nahead_cases = sizeof suite_ahead_cases / sizeof *suite_ahead_cases;
