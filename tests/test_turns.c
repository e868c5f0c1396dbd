/* SPDX-License-Identifier: MIT
 *
 * When a rank that shares its core keeps its turn, to wait for what may be about to come from
 * another core. Whether it looks is seen by what comes and goes all the time, put there by a
 * thread.
 */
#include "channel_parts.h"
#include "group.h"
#include "window.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    AWAITED = 1,
    OTHER = 2, /* waits too */
    N = 3,
    SLOTS = 2,
    CALL = 7,
    ENOUGH = 20000, /* calls and changes, so that many calls would see one */
    LIMIT_MS = 20000
};

struct bench {
    cpu_set_t all; /* before it sat down */
    kolo_group group;
    struct ko_channel channel;
    struct ko_port ports[N];
    struct ko_link links[N];
    struct ko_window *in[N], *out[N];
    uint64_t core; /* of this thread */
};

/* On one core, whose number is told as windows tell it. */
static uint64_t sit_down(cpu_set_t *all)
{
    cpu_set_t one;
    const int core = sched_getcpu();

    if (core < 0)
        skip(); /* nobody can say where he is */
    assert_int_equal(sched_getaffinity(0, sizeof *all, all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    return (uint64_t)core + 1;
}

static struct ko_window *make_window(void)
{
    struct ko_window *window = aligned_alloc(KO_LINE, ko_window_bytes(SLOTS, KO_LINE));

    assert_non_null(window);
    *window = (struct ko_window){.credit = 0};
    for (uint32_t i = 0; i < SLOTS; i++)
        *ko_window_slot(window, i) = (struct ko_slot){.step = 0};
    return window;
}

/* Rank 0 of three, whose peers wait on other cores than its own, in the same call. */
static struct bench *make(void)
{
    struct bench *bench = calloc(1, sizeof *bench);

    assert_non_null(bench);
    bench->core = sit_down(&bench->all);
    bench->group.size = N;
    bench->channel = (struct ko_channel){
        .group = &bench->group, .ports = bench->ports, .seq = CALL, .is_crowded = true};
    for (int i = 1; i < N; i++) {
        bench->in[i] = make_window();
        bench->out[i] = make_window();
        bench->out[i]->receiver_core = bench->core + 1;
        bench->out[i]->receiver_call = CALL;
        bench->links[i] = (struct ko_link){.inbox = bench->in[i],
                                           .outbox = bench->out[i],
                                           .next_in = ko_window_slot(bench->in[i], 0),
                                           .slots = SLOTS,
                                           .peer = i};
        bench->ports[i] = (struct ko_port){.link = &bench->links[i], .is_open = true};
    }
    return bench;
}

static void drop(struct bench *bench)
{
    assert_int_equal(sched_setaffinity(0, sizeof bench->all, &bench->all), 0);
    for (int i = 1; i < N; i++) {
        free(bench->in[i]);
        free(bench->out[i]);
    }
    free(bench);
}

static bool keeps_turn(struct bench *bench, int peer, unsigned turns)
{
    const struct ko_wait wait = {.peer = peer, .turns = turns, .is_for_slice = true};

    return ko_channel_keeps_turn(&bench->channel, &wait);
}

/* ---- what comes and goes --------------------------------------------------------------------- */

struct flicker {
    uint64_t *step;
    atomic_int nchanges;
    atomic_bool is_over;
};

static void *flicker(void *argument)
{
    struct flicker *light = argument;
    unsigned seed = 1;

    while (!atomic_load(&light->is_over)) {
        seed = seed * 1103515245 + 12345;
        for (unsigned i = seed >> 26; i; i--)
            ko_pause();
        ko_store_release(light->step, ko_load_relaxed(light->step) ^ 1);
        atomic_fetch_add(&light->nchanges, 1);
    }
    return NULL;
}

/* Whether the call looks: what was not there when it began is seen. After some turns, since the
 * first also sees what is there then. */
static void expect_looks(struct bench *bench, unsigned turns, bool expected)
{
    struct flicker light = {.step = &bench->links[AWAITED].next_in->step};
    const ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    pthread_attr_t anywhere;
    pthread_t thread;
    bool has_seen = false;
    int ncalls = 0;

    assert_int_equal(pthread_attr_init(&anywhere), 0);
    assert_int_equal(pthread_attr_setaffinity_np(&anywhere, sizeof bench->all, &bench->all), 0);
    assert_int_equal(pthread_create(&thread, &anywhere, flicker, &light), 0);
    for (; !has_seen && !ko_deadline_passed(&deadline) &&
           (expected || ncalls < ENOUGH || atomic_load(&light.nchanges) < ENOUGH);
         ncalls++)
        has_seen = keeps_turn(bench, AWAITED, turns);
    atomic_store(&light.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&anywhere);
    *light.step = 0;
    assert_int_equal(has_seen, expected);
    assert_true(expected || ncalls >= ENOUGH);
}

static void what_is_to_come_from_another_core_is_looked_for(void **state)
{
    struct bench *bench = make();

    (void)state;
    expect_looks(bench, 1, true);
    bench->out[OTHER]->receiver_core = bench->core; /* as far as we are */
    expect_looks(bench, 1, true);
    bench->out[OTHER]->receiver_call = CALL + 1;
    expect_looks(bench, 1, true);
    drop(bench);
}

static void who_is_behind_has_the_turn(void **state)
{
    struct bench *bench = make();

    (void)state;
    bench->out[OTHER]->receiver_core = bench->core;
    bench->out[OTHER]->receiver_call = CALL - 1;
    expect_looks(bench, 1, false);
    bench->out[OTHER]->receiver_call = 0; /* who has not said it yet */
    expect_looks(bench, 1, false);
    drop(bench);
}

static void who_is_waited_for_here_has_the_turn(void **state)
{
    struct bench *bench = make();

    (void)state;
    bench->out[AWAITED]->receiver_core = bench->core;
    expect_looks(bench, 1, false);
    drop(bench);
}

static void nobody_looks_for_long(void **state)
{
    struct bench *bench = make();

    (void)state;
    expect_looks(bench, 3, true);
    expect_looks(bench, 4, false);
    expect_looks(bench, 1000, false);
    drop(bench);
}

/* What has come since the caller looked is worth another look, once: it may be no slice that is
 * waited for. */
static void what_has_come_meanwhile_keeps_the_turn(void **state)
{
    struct bench *bench = make();

    (void)state;
    bench->out[AWAITED]->receiver_core = bench->core;
    assert_false(keeps_turn(bench, AWAITED, 0));
    bench->links[AWAITED].next_in->step = 1;
    assert_true(keeps_turn(bench, AWAITED, 0));
    assert_false(keeps_turn(bench, AWAITED, 1));
    drop(bench);
}

static void who_waits_for_anything_else_leaves_it(void **state)
{
    struct bench *bench = make();
    const struct ko_wait for_room = {.peer = AWAITED};

    (void)state;
    bench->links[AWAITED].next_in->step = 1;
    assert_false(keeps_turn(bench, -1, 0)); /* for anybody */
    assert_false(ko_channel_keeps_turn(&bench->channel, &for_room));
    bench->ports[AWAITED].is_open = false;
    assert_false(keeps_turn(bench, AWAITED, 0));
    bench->ports[AWAITED].is_open = true;
    bench->links[AWAITED].inbox = NULL; /* through no window */
    assert_false(keeps_turn(bench, AWAITED, 0));
    drop(bench);
}

/* Where it is not known who waits here, or in what: he may be behind. */
static void who_is_not_known_has_the_turn(void **state)
{
    struct bench *bench = make();

    (void)state;
    bench->out[OTHER]->receiver_core = 0;
    bench->out[OTHER]->receiver_call = 0;
    expect_looks(bench, 1, false);
    bench->out[OTHER]->receiver_core = bench->core + 1;
    bench->links[OTHER].inbox = NULL;
    expect_looks(bench, 1, false);
    bench->links[OTHER].inbox = bench->in[OTHER];
    bench->ports[OTHER] = (struct ko_port){.link = NULL};
    expect_looks(bench, 1, false);
    bench->group.size = 2; /* who has no other peers */
    expect_looks(bench, 1, true);
    bench->out[AWAITED]->receiver_core = 0;
    expect_looks(bench, 1, false);
    drop(bench);
}

/* The core all peers, the call those who wait on it; whatever is waited for. */
static void peers_are_told(void **state)
{
    struct bench *bench = make();

    (void)state;
    bench->out[OTHER]->receiver_core = bench->core;
    bench->in[AWAITED]->receiver_core = bench->core + 2; /* where this rank was before */
    (void)keeps_turn(bench, -1, 0);
    assert_int_equal(bench->in[AWAITED]->receiver_core, bench->core);
    assert_int_equal(bench->in[AWAITED]->receiver_call, 0);
    assert_int_equal(bench->in[OTHER]->receiver_core, bench->core);
    assert_int_equal(bench->in[OTHER]->receiver_call, CALL);
    drop(bench);
}

/* In messages, which are in no call. */
static void nobody_is_behind_in_messages(void **state)
{
    struct bench *bench = make();

    (void)state;
    bench->channel.seq = 0;
    bench->out[OTHER]->receiver_core = bench->core;
    bench->out[OTHER]->receiver_call = 0;
    expect_looks(bench, 1, true);
    drop(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_to_come_from_another_core_is_looked_for),
        cmocka_unit_test(who_is_behind_has_the_turn),
        cmocka_unit_test(who_is_waited_for_here_has_the_turn),
        cmocka_unit_test(nobody_looks_for_long),
        cmocka_unit_test(what_has_come_meanwhile_keeps_the_turn),
        cmocka_unit_test(who_waits_for_anything_else_leaves_it),
        cmocka_unit_test(who_is_not_known_has_the_turn),
        cmocka_unit_test(nobody_is_behind_in_messages),
        cmocka_unit_test(peers_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
