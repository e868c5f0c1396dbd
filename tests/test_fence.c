/* SPDX-License-Identifier: MIT
 *
 * Of two threads that each store a word and then look at the other's, one sees the other's store:
 * with the cheap store on one side and the fence on the other, and with ordered stores.
 */
#include "fence.h"

#include "fault.h"
#include "portable.h"
#include "thread.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 20000, MANY_LOOKS = 100 };

/* Words that change apart from each other. */
struct word {
    _Alignas(64) uint64_t value;
};

struct meeting {
    struct word often, seldom, at[2]; /* at: the round that a side has ended */
    uint64_t seen[2];                 /* the other's word, in this round */
    int is_split;
};

/* Both sides begin a round at about the same time, and end it before the next one. Who has looked
 * so often waits for one that has no processor. */
static void meet(struct meeting *meeting, int side, uint64_t round)
{
    unsigned looks = 0;

    ko_store_ordered(&meeting->at[side].value, round);
    while (ko_load_ordered(&meeting->at[!side].value) < round)
        if (++looks % MANY_LOOKS)
            ko_pause();
        else
            sched_yield();
}

static void *be_seldom(void *argument)
{
    struct meeting *meeting = argument;

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        meet(meeting, 1, 2 * round - 1);
        ko_store_ordered(&meeting->seldom.value, round);
        ko_fence_others();
        meeting->seen[1] = ko_load_ordered(&meeting->often.value);
        meet(meeting, 1, 2 * round);
    }
    return NULL;
}

static int count_missed(int is_split)
{
    struct meeting meeting = {.is_split = is_split};
    pthread_t thread;
    int missed = 0;

    if (ko_thread_start(&thread, be_seldom, &meeting, "the one who looks seldom"))
        return -1;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        meet(&meeting, 0, 2 * round - 1);
        ko_store_first(&meeting.often.value, round, is_split);
        meeting.seen[0] = ko_load_ordered(&meeting.seldom.value);
        meet(&meeting, 0, 2 * round);
        missed += meeting.seen[0] != round && meeting.seen[1] != round;
    }
    pthread_join(thread, NULL);
    return missed;
}

static void one_of_two_sees_the_other(void **state)
{
    (void)state;
    assert_int_equal(count_missed(ko_fence_is_split()), 0);
    assert_int_equal(count_missed(0), 0);
}

/* In a process of its own, since the answer stays. */
static int child_exit(void (*body)(void))
{
    const pid_t pid = fork();
    int status = -1;

    if (!pid) {
        body();
        _exit(9);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void ask_without_kernel(void)
{
    ko_fault_arm(KO_FAULT_FENCE, 1);
    if (ko_fence_is_split())
        _exit(1);
    ko_fault_arm(KO_FAULT_FENCE, 1);
    ko_fence_others(); /* asks nobody */
    _exit(ko_fence_is_split() || !ko_fault(KO_FAULT_FENCE) || count_missed(0) ? 2 : 0);
}

static void the_second_command_fails(void)
{
    ko_fault_arm(KO_FAULT_FENCE, 2);
    _exit(ko_fence_is_split() ? 1 : 0);
}

static void kernels_that_cannot_are_done_without(void **state)
{
    (void)state;
    assert_int_equal(child_exit(ask_without_kernel), 0);
    assert_int_equal(child_exit(the_second_command_fails), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            kernels_that_cannot_are_done_without), /* before the answer is known here */
        cmocka_unit_test(one_of_two_sees_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
