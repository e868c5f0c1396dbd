/* SPDX-License-Identifier: MIT
 *
 * Windows of groups that are not in use give back what long slices have taken of memory
 * (group_idle.h): that it is bounded, that nothing is lost by it, whoever is at work meanwhile.
 */
#include "clock.h"
#include "exam.h"
#include "group_idle.h"
#include "link.h"
#include "mailbox_parts.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Bytes: a message of one slice, of some, and of many. */
enum { MOST_GROUPS = HAS_TSAN ? 8 : 20, SHORTER = 20000, LONG = 300000, LONGER = 1 << 19 };

struct plan {
    const char *idle_bytes;
    int ngroups, rounds;
    size_t nbytes; /* of each call */
    size_t most; /* bytes that all links of a process may hold in the end; 0: they are to hold more
                    than KOLO_IDLE_BYTES */
};

/* A message of so many bytes to the next rank, and from the one before. */
static int pass_on(kolo_group *group, size_t nbytes, unsigned seed)
{
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);
    const unsigned before = (unsigned)(rank + n - 1) % (unsigned)n;
    unsigned char *bytes = malloc(2 * nbytes);
    int failed = !bytes;

    for (size_t i = 0; i < nbytes && !failed; i++)
        bytes[i] = (unsigned char)(seed + (unsigned)rank + i % 251);
    failed |= failed || kolo_sendrecv(group, bytes, nbytes, (rank + 1) % n, bytes + nbytes, nbytes,
                                      (int)before, KOLO_UINT8, 5);
    for (size_t i = 0; i < nbytes && !failed; i++)
        failed = bytes[nbytes + i] != (unsigned char)(seed + before + i % 251);
    free(bytes);
    return failed ? ranks_fail("a message of %zu bytes", nbytes) : 0;
}

static int use(kolo_group *group, size_t nbytes, unsigned seed)
{
    const struct exam exam = {
        .what = KO_ALL_REDUCE, .dtype = KOLO_INT32, .count = nbytes / 4 + seed % 7, .seed = seed};

    return exam_take(group, &exam) || pass_on(group, nbytes, seed);
}

static size_t held_by(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    return atomic_load(&group->collectives.held) +
           (mailbox ? atomic_load(&mailbox->channel.held) : 0);
}

static int expect_held(const struct plan *plan, kolo_group *const *groups)
{
    const size_t held = ko_links_held();
    size_t sum = 0;

    if (plan->most ? held > plan->most : held <= strtoull(plan->idle_bytes, NULL, 10) << 20)
        return ranks_fail("%d groups hold %zu bytes, KOLO_IDLE_BYTES=%s", plan->ngroups, held,
                          plan->idle_bytes);
    for (int g = 0; g < plan->ngroups; g++)
        sum += held_by(groups[g]);
    return sum > held ? ranks_fail("groups hold %zu bytes of %zu", sum, held) : 0;
}

static int use_in_turns(kolo_group *world, void *argument)
{
    const struct plan *plan = argument;
    kolo_group *groups[MOST_GROUPS] = {0};
    int failed = ranks_duplicate(world, groups, plan->ngroups);

    for (int i = 0; i < plan->rounds * plan->ngroups && !failed; i++)
        failed = use(groups[i % plan->ngroups], plan->nbytes, (unsigned)i);
    failed |= failed || expect_held(plan, groups);
    ranks_free_all(groups, plan->ngroups);
    return failed;
}

static int run(enum ranks_kind kind, int n, const char *idle_bytes, ranks_body body, void *argument)
{
    int nfailed;

    setenv("KOLO_IDLE_BYTES", idle_bytes, 1);
    nfailed = ranks_run(&(struct ranks){.kind = kind, .n = n, .timeout_ms = 60000}, body, argument);
    unsetenv("KOLO_IDLE_BYTES");
    return nfailed;
}

/* In the end there are 4 MiB, and what the group that was used last has taken: a process's or, of
 * threads, all four ranks', who each look at their own. So it is also where a group has been used
 * too little for its receivers to say soon what they have read. */
static void what_idle_groups_hold_is_bounded(void **state)
{
    enum { MIB = 1 << 20 };
    static const struct {
        const char *transport;
        size_t of_a_group;
    } ways[] = {{"shm", 4 * MIB}, {"tcp", 4 * MIB}};
    static const size_t lengths[] = {LONG, SHORTER, LONGER}; /* a sanitizer takes its time */

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan unbounded = {"8M", MOST_GROUPS, 1, LONGER, 0};

        setenv("KOLO_TRANSPORT", ways[i].transport, 1);
        for (int l = 0; l < (IS_SANITIZED ? 1 : 3); l++) {
            struct plan bounded = {"4M", MOST_GROUPS, 1, lengths[l],
                                   4 * (size_t)MIB + ways[i].of_a_group};

            assert_int_equal(run(RANKS_PROCESSES, 4, "4M", use_in_turns, &bounded), 0);
            bounded.most *= 4;
            assert_int_equal(run(RANKS_THREADS, 4, "4M", use_in_turns, &bounded), 0);
        }
        assert_int_equal(run(RANKS_PROCESSES, 4, "1G", use_in_turns, &unbounded), 0);
        assert_int_equal(ko_links_held(), 0); /* of the threads' groups, which are freed */
    }
    setenv("KOLO_TRANSPORT", "shm", 1);
}

/* Whatever is not in use has no memory when it is used again. */
static void groups_are_used_again(void **state)
{
    static const char *const transports[] = {"tcp", "rdma", "shm"}; /* that of the next cases */
    struct plan plan = {"0", 3, 2, LONG, SIZE_MAX};

    (void)state;
    for (int i = 0; i < 2 * 3; i++) {
        const int n = i % 2 ? 5 : 2;

        setenv("KOLO_TRANSPORT", transports[i / 2], 1);
        assert_int_equal(run(RANKS_PROCESSES, n, "0", use_in_turns, &plan), 0);
        assert_int_equal(run(RANKS_THREADS, n, "0", use_in_turns, &plan), 0);
    }
}

/* ---- several threads of each rank ------------------------------------------------------------ */

enum { NTHREADS = 4, NCALLS = IS_SANITIZED ? 4 : 8 };

struct user {
    pthread_t thread;
    kolo_group *group;
    int failed;
};

static void *use_own(void *argument)
{
    struct user *user = argument;

    for (int i = 0; i < NCALLS && !user->failed; i++)
        user->failed = use(user->group, LONG, (unsigned)i);
    return NULL;
}

static int use_at_once(kolo_group *world, void *argument)
{
    kolo_group *groups[NTHREADS] = {0};
    struct user users[NTHREADS] = {0};
    int failed = ranks_duplicate(world, groups, NTHREADS), nstarted = 0;

    (void)argument;
    for (; nstarted < NTHREADS && !failed; nstarted++) {
        users[nstarted].group = groups[nstarted];
        if (pthread_create(&users[nstarted].thread, NULL, use_own, &users[nstarted]))
            break;
    }
    for (int t = 0; t < nstarted; t++)
        failed |= pthread_join(users[t].thread, NULL) || users[t].failed;
    ranks_free_all(groups, NTHREADS);
    return failed || nstarted < NTHREADS ? ranks_fail("of %d threads", nstarted) : 0;
}

static void threads_use_groups_at_once(void **state)
{
    (void)state;
    assert_int_equal(run(RANKS_THREADS, 2, "0", use_at_once, NULL), 0);
    assert_int_equal(run(RANKS_PROCESSES, 3, "0", use_at_once, NULL), 0);
}

/* ---- who gives back -------------------------------------------------------------------------- */

/* Those that have sent nothing since the last look. */
static void look_at(kolo_group *group)
{
    ko_channel_give_back(&group->collectives, false);
    ko_mailbox_give_back(group, false);
}

/* Two groups are used again, and there is room for what these hold, and for more than the slices of
 * the others of which receivers have not said yet that they are free. */
static int keep_the_used(kolo_group *world, void *argument)
{
    enum { NIDLE = 2, NGROUPS = 4 };
    struct ko_endpoint *endpoint = world->endpoint;
    kolo_group *groups[NGROUPS] = {0};
    size_t held[NGROUPS], idle = 0;
    int failed = ranks_duplicate(world, groups, NGROUPS);

    (void)argument;
    for (int i = 0; i < NGROUPS && !failed; i++)
        failed = use(groups[i], LONG, (unsigned)i);
    failed |= failed || kolo_barrier(world); /* all slices have been released */
    for (int i = 0; i < NGROUPS && !failed; i++)
        look_at(groups[i]);
    for (int i = NIDLE; i < NGROUPS && !failed; i++)
        failed = use(groups[i], LONG, (unsigned)i);
    failed |= failed || kolo_barrier(world);
    for (int i = 0; i < NGROUPS && !failed; i++) {
        held[i] = held_by(groups[i]);
        idle += i < NIDLE ? held[i] : 0;
        failed = held[i] ? 0 : ranks_fail("group %d holds nothing", i);
    }
    if (!failed) {
        endpoint->idle_bytes = 4 * ((ko_links_held() - idle / 3) / 3 + 1);
        ko_group_empty_others(world);
    }
    for (int i = NIDLE; i < NGROUPS && !failed; i++)
        if (held_by(groups[i]) != held[i])
            failed = ranks_fail("group %d holds %zu bytes of %zu", i, held_by(groups[i]), held[i]);
    if (!failed && held_by(groups[0]) + held_by(groups[1]) > idle - idle / 3)
        failed = ranks_fail("idle groups hold %zu and %zu bytes of %zu", held_by(groups[0]),
                            held_by(groups[1]), idle);
    ranks_free_all(groups, NGROUPS);
    return failed;
}

static void groups_in_use_keep_theirs(void **state)
{
    (void)state;
    assert_int_equal(run(RANKS_PROCESSES, 2, "1G", keep_the_used, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_idle_groups_hold_is_bounded),
        cmocka_unit_test(groups_are_used_again),
        cmocka_unit_test(threads_use_groups_at_once),
        cmocka_unit_test(groups_in_use_keep_theirs),
    };

    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_PROTO", "inline", 1); /* all go through windows */
    setenv("KOLO_DEBUG", "ERROR", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
