/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices that are left to be read, and that their sender helps to copy.
 */
#include "transport_suite.h"

#include "clock.h"
#include "foreign.h"
#include "foreign_out.h"
#include "foreign_share.h"
#include "ranks.h"
#include "status.h"
#include "window_slots.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { PAGE = 4096, PAGES = 16, SLICE = PAGES * PAGE };

static uint64_t offer(uint64_t step, unsigned first, unsigned end)
{
    return step << 32 | (uint64_t)first << 16 | end;
}

static unsigned first_of(uint64_t share)
{
    return (uint16_t)(share >> 16);
}

static unsigned end_of(uint64_t share)
{
    return (uint16_t)share;
}

/* ---- the sender helps ------------------------------------------------------------------------ */

/* Two slices, side by side, are left to a peer whose end is ours to play. */
struct helper {
    struct puppet puppet;
    struct ko_window *window;
    unsigned char *from, *to; /* three slices each */
};

static struct helper open_helper(struct suite *suite)
{
    struct helper helper;

    suite_needs_dial(suite);
    helper.puppet = suite_open_reading(suite, "cma", SLICE);
    helper.window = helper.puppet.link->outbox;
    helper.from = malloc(3 * SLICE);
    helper.to = calloc(3, SLICE);
    assert_true(helper.from && helper.to);
    suite_fill(helper.from, 3 * SLICE, 1);
    helper.window->reading = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(helper.puppet.link->ops->post(helper.puppet.link,
                                                       &(const struct ko_stamp){.seq = 1},
                                                       helper.from + i * SLICE, SLICE),
                         KOLO_OK);
    return helper;
}

static void close_helper(struct helper *helper)
{
    suite_close_puppet(&helper->puppet);
    free(helper->from);
    free(helper->to);
}

/* Whether those pages, and no others, are at the peer, where nothing is from then on. */
static void expect_written(struct helper *helper, size_t first, size_t end)
{
    static const unsigned char nothing[3 * SLICE];
    const size_t at = first * PAGE, behind = end * PAGE;

    assert_memory_equal(helper->to, nothing, at);
    assert_memory_equal(helper->to + at, helper->from + at, behind - at);
    assert_memory_equal(helper->to + behind, nothing, 3 * SLICE - behind);
    memset(helper->to, 0, 3 * SLICE);
}

static void help_with(struct helper *helper, uint64_t share)
{
    helper->window->share_to = (uintptr_t)helper->to;
    ko_store_release(&helper->window->share, share);
    ko_foreign_help(helper->puppet.link);
}

static void who_waits_writes_what_is_on_offer(void **state)
{
    struct suite *suite = *state;
    struct helper helper = open_helper(suite);

    help_with(&helper, 0);
    expect_written(&helper, 0, 0);
    help_with(&helper, offer(1, 0, 2 * PAGES));
    expect_written(&helper, 0, 2 * PAGES);
    assert_int_equal(first_of(helper.window->share), 2 * PAGES);
    assert_int_equal(helper.window->written, 2 * PAGES);
    help_with(&helper, offer(1, 3, PAGES)); /* the peer has the rest */
    expect_written(&helper, 3, PAGES);
    assert_int_equal(helper.window->written, 3 * PAGES - 3);
    help_with(&helper, offer(1, PAGES, PAGES));
    expect_written(&helper, 0, 0);
    ko_store_release(&helper.window->share, offer(1, 0, 5));
    assert_int_equal(ko_link_is_flushed(helper.puppet.link), KO_AGAIN); /* as who waits asks */
    expect_written(&helper, 0, 5);
    close_helper(&helper);
}

/* Who frees a link takes what it has left out of its peer's reach, but not what is there already.
 */
static void who_ends_withdraws_what_is_left(void **state)
{
    struct suite *suite = *state;
    struct helper helper = open_helper(suite);
    const size_t nbytes = ko_window_front(2);
    struct ko_window *window; /* which stays */

    window = mremap(helper.window, 0, nbytes, MREMAP_MAYMOVE);
    assert_ptr_not_equal(window, MAP_FAILED);
    assert_int_equal(ko_window_slot(window, 0)->foreign.state, KO_FOREIGN_FREE);
    assert_int_equal(ko_window_slot(window, 1)->foreign.state, KO_FOREIGN_FREE);
    ko_store_release(&ko_window_slot(window, 0)->foreign.state, KO_FOREIGN_MOVED);
    close_helper(&helper);
    assert_int_equal(ko_window_slot(window, 0)->foreign.state, KO_FOREIGN_MOVED);
    assert_int_equal(ko_window_slot(window, 1)->foreign.state, KO_FOREIGN_WITHDRAWN);
    munmap(window, nbytes);
}

/* The peer is done with a slice, and has come to the next, before its sender comes to help. */
static void another_offer_is_left_alone(void **state)
{
    struct suite *suite = *state;
    struct helper helper = open_helper(suite);
    struct ko_link *link = helper.puppet.link;

    help_with(&helper, 0); /* finds the process */
    ko_store_release(&helper.window->share, offer(2, 0, PAGES));
    assert_true(ko_foreign_share_help(link, ko_foreign_process_of(link), 1, helper.from, SLICE));
    expect_written(&helper, 0, 0);
    assert_int_equal(helper.window->share, offer(2, 0, PAGES));
    assert_int_equal(helper.window->written, 0);
    assert_true(ko_foreign_share_help(link, ko_foreign_process_of(link), 2, helper.from, SLICE));
    expect_written(&helper, 0, PAGES);
    close_helper(&helper);
}

/* Its owner copies it then, who would wait for it. */
static void what_cannot_be_written_is_given_back(void **state)
{
    struct suite *suite = *state;
    struct helper helper = open_helper(suite);
    struct ko_foreign_process nobody = {.pid = INT_MAX}; /* further than a system counts */

    ko_store_release(&helper.window->share, offer(1, 2, PAGES));
    assert_false(ko_foreign_share_help(helper.puppet.link, &nobody, 1, helper.from, SLICE));
    expect_written(&helper, 0, 0);
    assert_int_equal(helper.window->share, offer(1, 2, PAGES));
    assert_int_equal(helper.window->written, 0);
    close_helper(&helper);
}

/* Nothing but what has been left there. */
static void hostile_offers(void **state)
{
    struct suite *suite = *state;
    struct helper helper = open_helper(suite);

    help_with(&helper, offer(3, 0, PAGES)); /* which has not been sent */
    expect_written(&helper, 0, 0);
    help_with(&helper, offer(UINT32_MAX, 0, PAGES));
    expect_written(&helper, 0, 0);
    help_with(&helper, offer(0, 0, PAGES));
    expect_written(&helper, 0, 0);
    help_with(&helper, offer(1, 2 * PAGES, UINT16_MAX));
    expect_written(&helper, 0, 0);
    help_with(&helper, offer(2, 0, PAGES + 1)); /* 13 of these 17, and then no others */
    assert_memory_equal(helper.to, helper.from + SLICE, 13 * PAGE);
    assert_int_equal(helper.to[SLICE], 0);
    assert_true(helper.window->written <= PAGES);
    close_helper(&helper);
}

/* ---- the receiver has help ------------------------------------------------------------------- */

enum deed { WRITES, GIVES_BACK, HANGS_UP, OVERREACHES, STANDS_STILL };

struct giver {
    struct ko_window *window;
    const unsigned char *from;
    unsigned char *to;
    enum deed deed;
    int socket;
    uint64_t is_over, has_taken;
};

static void write_page(const struct giver *giver, unsigned page)
{
    memcpy(giver->to + page * PAGE, giver->from + page * PAGE, PAGE);
    ko_store_release(&giver->window->written, ko_load_acquire(&giver->window->written) + 1);
}

static void give_page_back(struct ko_window *window)
{
    uint64_t share;

    do
        share = ko_load_acquire(&window->share);
    while (!ko_swap(&window->share, share, share - offer(0, 1, 0)));
}

/* Takes the first page of an offer, if it comes in time. */
static void *give(void *argument)
{
    struct giver *giver = argument;
    uint64_t *const word = &giver->window->share;
    uint64_t share = 0, taken;

    do {
        if (ko_load_acquire(&giver->is_over))
            return NULL;
        share = ko_load_acquire(word);
        taken =
            giver->deed == OVERREACHES ? offer(share >> 32, 1, UINT16_MAX) : share + offer(0, 1, 0);
    } while (first_of(share) >= end_of(share) || !ko_swap(word, share, taken));
    giver->has_taken = 1;
    if (giver->deed == WRITES)
        write_page(giver, first_of(share));
    else if (giver->deed == GIVES_BACK)
        give_page_back(giver->window);
    else if (giver->deed == HANGS_UP)
        assert_int_equal(shutdown(giver->socket, SHUT_RDWR), 0);
    return NULL;
}

static int land_one(const struct puppet *puppet, const unsigned char *from, unsigned char *to)
{
    struct ko_link *link = puppet->link;
    struct ko_slot *slot = link->next_in;
    const struct ko_frame *frame;

    slot->frame = (struct ko_frame){.kind = KO_FRAME_FOREIGN, .nbytes = SLICE};
    slot->foreign = (struct ko_foreign_slice){(uintptr_t)from, 0, KO_FOREIGN_FREE};
    ko_store_ordered(&slot->step, link->received + 1);
    assert_int_equal(link->ops->next(link, &frame), KOLO_OK);
    return link->ops->land(link, to, false);
}

/* On one core nobody comes in between. */
static void needs_two_cores(struct suite *suite)
{
    cpu_set_t cores;

    suite_needs_dial(suite);
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    if (CPU_COUNT(&cores) < 2)
        suite_skip(suite, "there is one core");
}

/* What the owner of a link sets. */
struct terms {
    atomic_int limit_ms, failed;
};

static const struct terms patient = {10000, 0}, impatient = {20, 0}, failed = {10000, 1};

/* Lands slices until the giver has had a part in one: what the last one ended with. */
static int land_with(struct suite *suite, enum deed deed, const struct terms *terms)
{
    static unsigned char from[SLICE], to[SLICE];
    const ko_deadline limit = ko_deadline_in(10000);
    struct puppet puppet = suite_open_reading(suite, "cma", SLICE);
    struct giver giver = {puppet.link->inbox, from, to, deed, puppet.socket, 0, 0};
    int status;

    puppet.link->limit_ms = &terms->limit_ms;
    puppet.link->failed = &terms->failed;
    do {
        pthread_t thread;

        suite_fill(from, SLICE, puppet.link->received);
        assert_int_equal(pthread_create(&thread, NULL, give, &giver), 0);
        sched_yield();
        status = land_one(&puppet, from, to);
        ko_store_release(&giver.is_over, 1);
        assert_int_equal(pthread_join(thread, NULL), 0);
        giver.is_over = 0;
        if (!status)
            assert_memory_equal(to, from, SLICE);
    } while (!giver.has_taken && !ko_deadline_passed(&limit));
    assert_true(giver.has_taken);
    suite_close_puppet(&puppet);
    return status;
}

static void what_is_taken_is_waited_for(void **state)
{
    struct suite *suite = *state;

    needs_two_cores(suite);
    assert_int_equal(land_with(suite, WRITES, &patient), KOLO_OK);
    assert_int_equal(land_with(suite, GIVES_BACK, &patient), KOLO_OK);
}

static void who_takes_and_ends_is_noticed(void **state)
{
    struct suite *suite = *state;

    needs_two_cores(suite);
    assert_int_equal(land_with(suite, HANGS_UP, &patient), KOLO_E_PEER_LOST);
    assert_int_equal(land_with(suite, OVERREACHES, &patient), KOLO_E_PROTOCOL);
}

static void who_takes_and_stands_still_is_not_waited_for_for_ever(void **state)
{
    struct suite *suite = *state;

    needs_two_cores(suite);
    assert_int_equal(land_with(suite, STANDS_STILL, &impatient), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "rank 1 stood still for 20 ms"));
    assert_int_equal(land_with(suite, STANDS_STILL, &failed), KOLO_E_TIMEOUT);
}

/* Whether a slice that is landed has been on offer. */
static bool is_offered(const struct puppet *puppet)
{
    static unsigned char from[SLICE], to[SLICE];
    struct ko_window *window = puppet->link->inbox;

    suite_fill(from, SLICE, puppet->link->received);
    ko_store_release(&window->share, 0);
    assert_int_equal(land_one(puppet, from, to), KOLO_OK);
    assert_memory_equal(to, from, SLICE);
    return window->share != 0;
}

static void only_who_is_idle_is_asked(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;

    suite_needs_dial(suite);
    puppet = suite_open_reading(suite, "cma", SLICE);
    puppet.link->flow = KO_STREAM;
    assert_true(is_offered(&puppet));
    puppet.link->flow = KO_MUTUAL; /* the sender reads as much here */
    assert_false(is_offered(&puppet));
    puppet.link->flow = KO_ADDED; /* what it wrote would have to be fetched from its core */
    assert_false(is_offered(&puppet));
    puppet.link->flow = KO_STREAM;
    puppet.link->is_crowded = true; /* it may have no core */
    assert_false(is_offered(&puppet));
    puppet.link->is_crowded = false;
    puppet.link->inbox->sender_sleeps = 1;
    assert_false(is_offered(&puppet));
    puppet.link->inbox->sender_sleeps = 0;
    assert_true(is_offered(&puppet));
    suite_close_puppet(&puppet);
}

#define CASE(name)            \
    {                         \
        "share: " #name, name \
    }
const struct suite_case suite_share_cases[] = {
    CASE(who_waits_writes_what_is_on_offer),
    CASE(who_ends_withdraws_what_is_left),
    CASE(another_offer_is_left_alone),
    CASE(what_cannot_be_written_is_given_back),
    CASE(hostile_offers),
    CASE(what_is_taken_is_waited_for),
    CASE(who_takes_and_ends_is_noticed),
    CASE(who_takes_and_stands_still_is_not_waited_for_for_ever),
    CASE(only_who_is_idle_is_asked)};
const size_t suite_nshare_cases = sizeof suite_share_cases / sizeof *suite_share_cases;
