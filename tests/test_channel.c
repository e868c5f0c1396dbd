/* SPDX-License-Identifier: MIT
 *
 * When a thread that waits on a channel may sleep: what would wake it must not have been taken in
 * while it looked for the last time.
 */
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_bell_that_is_heard_wakes_nobody)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
