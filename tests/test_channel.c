/* SPDX-License-Identifier: MIT
 *
 * How a thread waits on a channel: it polls for a bounded time, then sleeps, unless what would wake
 * it was taken in while it looked for the last time; and who sleeps leaves the processor to others.
 */
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000, MOST_TURNS = 64, LATE_MS = 400 };

/* How far the two ranks are. */
struct steps {
    atomic_int is_armed, has_heard;
};

static int await_step(atomic_int *step)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);

    while (!atomic_load(step) && !ko_deadline_passed(&deadline))
        ranks_nap_ms(1);
    return atomic_load(step) ? 0 : ranks_fail("the other rank does not get on");
}

static int arm(struct ko_channel *channel, struct ko_wait *wait)
{
    int err = KOLO_OK;

    while (!err && !wait->is_armed)
        err = ko_channel_wait_awake(channel, wait);
    return err ? ranks_fail("waiting") : 0;
}

static int listen(struct ko_channel *channel)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    const uint64_t noticed = channel->ports[1].link->noticed;
    int err = KOLO_OK;

    while (!err && channel->ports[1].link->noticed == noticed && !ko_deadline_passed(&deadline))
        err = ko_channel_listen(channel, 1);
    return err || channel->ports[1].link->noticed == noticed ? ranks_fail("no bell is heard") : 0;
}

static int wait_and_hear(struct ko_channel *channel, struct steps *steps)
{
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    struct ko_wait wait = {.deadline = &deadline, .peer = 1, .what = "for a message from"};
    int err = arm(channel, &wait);

    if (!err && !ko_channel_may_sleep(channel, &wait))
        err = ranks_fail("who has heard nothing may not sleep");
    if (!err && ko_channel_may_sleep(channel, &wait))
        err = ranks_fail("a wait that is not armed may sleep");
    err = err ? err : arm(channel, &wait);
    atomic_store(&steps->is_armed, 1);
    err = err ? err : listen(channel);
    if (!err && ko_channel_may_sleep(channel, &wait))
        err = ranks_fail("who has heard the only bell may sleep");
    atomic_store(&steps->has_heard, 1);
    return err;
}

/* A peer rings once for a sleeper, who then looks, and perhaps once more: a bell that is heard in
 * between is the last one. */
static int hear_the_only_bell(kolo_group *group, void *argument)
{
    struct steps *steps = argument;
    int err = kolo_barrier(group) ? ranks_fail("barrier") : 0;

    if (err || kolo_group_rank(group) == 0)
        return err ? err : wait_and_hear(&group->collectives, steps);
    err = await_step(&steps->is_armed);
    if (!err && ko_link_tell(group->collectives.ports[0].link, KO_FRAME_BELL, NULL, NULL, 0))
        err = ranks_fail("ringing");
    return err ? err : await_step(&steps->has_heard);
}

static void a_bell_that_is_heard_wakes_nobody(void **state)
{
    struct steps steps = {0};

    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, hear_the_only_bell, &steps), 0);
    unsetenv("KOLO_TRANSPORT");
}

/* Turns of a wait until it is armed, MOST_TURNS at most. */
static int count_turns(kolo_group *group, void *argument)
{
    struct ko_channel *channel = &group->collectives;
    const ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    struct ko_wait wait = {.deadline = &deadline, .peer = 1 - kolo_group_rank(group)};
    int *turns = argument;
    int err = kolo_barrier(group), n;

    for (n = 0; !err && !wait.is_armed && n < MOST_TURNS; n++)
        err = ko_channel_wait_awake(channel, &wait);
    if (kolo_group_rank(group) == 0)
        *turns = n;
    return err || kolo_barrier(group) ? ranks_fail("waiting") : 0;
}

static int turns_of(const char *spin_us)
{
    int turns = 0;

    setenv("KOLO_SPIN_US", spin_us, 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, count_turns, &turns),
                     0);
    unsetenv("KOLO_SPIN_US");
    return turns;
}

static void who_waits_polls_for_as_long_as_he_is_to(void **state)
{
    (void)state;
    assert_in_range(turns_of("0"), 1, MOST_TURNS / 2);
    assert_int_equal(turns_of("1000000"), MOST_TURNS);
}

static double cpu_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int call(kolo_group *group, bool is_message)
{
    const int rank = kolo_group_rank(group);
    char byte = 0;

    if (!is_message)
        return kolo_barrier(group);
    return rank == 0 ? kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 0)
                     : kolo_send(group, &byte, 1, KOLO_UINT8, 0, 0);
}

/* Rank 1 comes late to the second call. */
static int wait_for_the_late(kolo_group *group, void *argument)
{
    const bool is_message = *(const bool *)argument;
    int err = call(group, is_message);
    double began;

    if (kolo_group_rank(group) == 1)
        ranks_nap_ms(LATE_MS);
    began = cpu_ms();
    err = err ? err : call(group, is_message);
    if (err)
        return ranks_fail("waiting");
    return kolo_group_rank(group) == 0 && cpu_ms() - began > LATE_MS / 4.0
               ? ranks_fail("a wait of %d ms took %.0f ms of a processor", LATE_MS,
                            cpu_ms() - began)
               : 0;
}

static void who_waits_long_leaves_the_processor_to_others(void **state)
{
    static const char *const ways[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        bool is_message = i % 2;

        setenv("KOLO_TRANSPORT", ways[i / 2], 1);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2},
                                   wait_for_the_late, &is_message),
                         0);
    }
    unsetenv("KOLO_TRANSPORT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bell_that_is_heard_wakes_nobody),
        cmocka_unit_test(who_waits_polls_for_as_long_as_he_is_to),
        cmocka_unit_test(who_waits_long_leaves_the_processor_to_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
