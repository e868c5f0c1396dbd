/* SPDX-License-Identifier: MIT
 *
 * A wall clock that is set, forwards and back, by hours, at each look at it: no wait ends by that,
 * or lasts longer. The functions below stand before the C library's, for kolo too.
 */
#include "clock.h"
#include "folder.h"
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { JUMP_S = 5 * 3600, WAIT_MS = 300, LATE_MS = IS_SANITIZED ? 20000 : 5000 };

static atomic_int looks; /* at the wall clock */

static void jump(struct timespec *now)
{
    now->tv_sec += atomic_fetch_add(&looks, 1) % 2 ? JUMP_S : -JUMP_S;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int err = (int)syscall(SYS_clock_gettime, clock, now);

    if (!err && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        jump(now);
    return err;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec at;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    *now = (struct timeval){.tv_sec = at.tv_sec, .tv_usec = at.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now)
{
    struct timespec at;

    clock_gettime(CLOCK_REALTIME, &at);
    if (now)
        *now = at.tv_sec;
    return at.tv_sec;
}

/* 0 if what began then has lasted for as long as it was to wait. */
static int expect_wait(int64_t began_ns, int err, const char *what)
{
    const int64_t ms = (ko_now_ns() - began_ns) / 1000000;

    if (ranks_expect(err, KOLO_E_TIMEOUT, ""))
        return 1;
    return ms >= WAIT_MS && ms < LATE_MS ? 0 : ranks_fail("%s: %d ms", what, (int)ms);
}

/* ---- groups ------------------------------------------------------------------------------- */

static int wait_for_works(kolo_group *group)
{
    kolo_work *works[2];
    size_t index;
    int64_t began_ns = ko_now_ns();
    char byte;
    int failed = kolo_irecv(group, &byte, 1, KOLO_INT8, 1, 5, &works[0]) ||
                 kolo_barrier_async(group, &works[1]);

    failed = failed || expect_wait(began_ns, kolo_work_wait(works[0], WAIT_MS), "a message");
    began_ns = ko_now_ns();
    failed = failed || expect_wait(began_ns, kolo_work_wait(works[1], WAIT_MS), "a barrier");
    began_ns = ko_now_ns();
    failed = failed || expect_wait(began_ns, kolo_work_wait_any(works, 2, WAIT_MS, &index), "any");
    failed = failed || kolo_send(group, NULL, 0, KOLO_INT8, 1, 6) || kolo_work_wait(works[0], -1) ||
             kolo_work_wait(works[1], -1);
    kolo_work_free(works[0]);
    kolo_work_free(works[1]);
    return failed;
}

/* Rank 1 lets rank 0 wait, for works with a limit, then for one call past the group's. */
static int wait_in_group(kolo_group *group, void *unused)
{
    const char byte = 1;
    int64_t began_ns;
    int failed;

    (void)unused;
    if (kolo_group_rank(group) == 0) {
        failed = wait_for_works(group);
        began_ns = ko_now_ns();
        kolo_group_set_timeout(group, WAIT_MS);
        return failed ||
               expect_wait(began_ns, kolo_recv(group, NULL, 0, KOLO_INT8, 1, 7), "a call");
    }
    failed = kolo_recv(group, NULL, 0, KOLO_INT8, 0, 6) ||
             kolo_send(group, &byte, 1, KOLO_INT8, 0, 5) || kolo_barrier(group);
    ranks_nap_ms(WAIT_MS + 500);
    return failed ? ranks_fail("answering") : 0;
}

static void waits_of_groups_last(void **state)
{
    (void)state;
    setenv("KOLO_DEBUG", "NONE", 1);
    assert_int_equal(ranks_run_all_ways(2, wait_in_group), 0);
    unsetenv("KOLO_DEBUG");
}

/* ---- joining, and stores ------------------------------------------------------------------ */

static void joining_lasts(void **state)
{
    kolo_store *store;
    kolo_group *world;
    int64_t began_ns;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), 0);
    began_ns = ko_now_ns();
    assert_int_equal(
        expect_wait(began_ns, kolo_group_join_store(store, 0, 2, WAIT_MS, &world), "joining"), 0);
    kolo_store_close(store);
    began_ns = ko_now_ns();
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", ranks_reserve_port(), 0, WAIT_MS, &store),
                     KOLO_E_TIMEOUT);
    assert_int_equal(expect_wait(began_ns, KOLO_E_TIMEOUT, "connecting"), 0);
}

static void wait_in_store(kolo_store *store, const char *what)
{
    const char *const keys[] = {"absent"};
    int64_t began_ns = ko_now_ns();

    assert_int_equal(expect_wait(began_ns, kolo_store_wait(store, keys, 1, WAIT_MS), what), 0);
    assert_int_equal(kolo_store_set(store, "there", (kolo_bytes){"1", 1}), 0);
    assert_int_equal(kolo_store_wait(store, (const char *const[]){"there"}, 1, WAIT_MS), 0);
    kolo_store_close(store);
}

static void waits_of_stores_last(void **state)
{
    kolo_store *store, *client;

    (void)state;
    assert_int_equal(kolo_store_open_local(&store), 0);
    wait_in_store(store, "local");
    assert_int_equal(kolo_store_open_file(folder_path("store"), -1, LATE_MS, &store), 0);
    wait_in_store(store, "file");
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, LATE_MS, &store), 0);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", kolo_store_port(store), 0, LATE_MS, &client),
                     0);
    wait_in_store(client, "tcp");
    wait_in_store(store, "tcp, where it is served");
}

static void the_clock_jumps(void **state)
{
    const time_t first = time(NULL), second = time(NULL);

    (void)state;
    assert_int_equal(llabs((long long)second - (long long)first) / JUMP_S, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_jumps),
        cmocka_unit_test(waits_of_groups_last),
        cmocka_unit_test(joining_lasts),
        cmocka_unit_test(waits_of_stores_last),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
