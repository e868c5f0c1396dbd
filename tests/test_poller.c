/* SPDX-License-Identifier: MIT
 *
 * The poller, on socket pairs.
 */
#include "clock.h"
#include "poller.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CAP = 80 };

struct fixture {
    struct ko_poller poller;
    int near, far; /* two ends */
    struct ko_event events[CAP];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    int pair[2];

    *state = fixture;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
        return -1;
    fixture->near = pair[0];
    fixture->far = pair[1];
    return ko_poller_open(&fixture->poller);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    ko_poller_close(&fixture->poller);
    close(fixture->near);
    if (fixture->far >= 0)
        close(fixture->far);
    free(fixture);
    return 0;
}

static int wait_for(struct fixture *fixture, int timeout_ms)
{
    return ko_poller_wait(&fixture->poller, timeout_ms, fixture->events, CAP);
}

static void says_what_happened_and_to_whom(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(ko_poller_add(&fixture->poller, fixture->near, KO_POLL_IN, fixture), KOLO_OK);
    assert_int_equal(wait_for(fixture, 0), 0);
    assert_int_equal(write(fixture->far, "x", 1), 1);
    for (int i = 0; i < 2; i++) { /* level-triggered: as long as it is so */
        assert_int_equal(wait_for(fixture, 1000), 1);
        assert_ptr_equal(fixture->events[0].owner, fixture);
        assert_int_equal(fixture->events[0].happened, KO_POLL_IN);
    }
    assert_int_equal(ko_poller_change(&fixture->poller, fixture->near, KO_POLL_OUT, &fixture->near),
                     KOLO_OK);
    assert_int_equal(wait_for(fixture, 1000), 1);
    assert_ptr_equal(fixture->events[0].owner, &fixture->near);
    assert_int_equal(fixture->events[0].happened, KO_POLL_OUT);
    ko_poller_remove(&fixture->poller, fixture->near);
    assert_int_equal(wait_for(fixture, 0), 0);
}

/* In, with other bits, out, and in again, by what is wanted alone. */
static void keeps_what_is_wanted(void **state)
{
    static const int wanted[] = {0, KO_POLL_IN, KO_POLL_IN, KO_POLL_OUT, 0, 0, KO_POLL_OUT};
    struct fixture *fixture = *state;
    int polled = 0;

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(
            ko_poller_keep(&fixture->poller, fixture->near, wanted[i], fixture, &polled), KOLO_OK);
        assert_int_equal(polled, wanted[i]);
        assert_int_equal(wait_for(fixture, 0), wanted[i] == KO_POLL_OUT);
    }
    assert_int_equal(ko_poller_keep(&fixture->poller, -1, KO_POLL_IN, fixture, &polled),
                     KOLO_E_SYSTEM);
    assert_int_equal(polled, KO_POLL_OUT); /* as it is */
}

static void hang_up_comes_unasked(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(ko_poller_add(&fixture->poller, fixture->near, 0, fixture), KOLO_OK);
    close(fixture->far);
    fixture->far = -1;
    assert_int_equal(wait_for(fixture, 1000), 1);
    assert_int_equal(fixture->events[0].happened, KO_POLL_HUP);
}

static void times_out(void **state)
{
    struct fixture *fixture = *state;
    int64_t begin = ko_now_ns();

    assert_int_equal(wait_for(fixture, 20), 0);
    assert_true(ko_now_ns() - begin >= 19000000);
}

static void wake_is_kept_and_used_up(void **state)
{
    struct fixture *fixture = *state;

    ko_poller_wake(&fixture->poller);
    ko_poller_wake(&fixture->poller);
    assert_int_equal(wait_for(fixture, 1000), 1);
    assert_null(fixture->events[0].owner);
    assert_int_equal(fixture->events[0].happened, KO_POLL_IN);
    assert_int_equal(wait_for(fixture, 0), 0);
}

static void *wake_soon(void *argument)
{
    usleep(10000);
    ko_poller_wake(argument);
    return NULL;
}

static void wakes_from_another_thread(void **state)
{
    struct fixture *fixture = *state;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, wake_soon, &fixture->poller), 0);
    assert_int_equal(wait_for(fixture, 20000), 1);
    pthread_join(thread, NULL);
}

static void on_signal(int number)
{
    (void)number;
}

static void *signal_soon(void *argument)
{
    usleep(10000);
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
    return NULL;
}

static void a_signal_is_no_error(void **state)
{
    struct fixture *fixture = *state;
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t self = pthread_self(), thread;

    sigaction(SIGUSR1, &action, NULL);
    assert_int_equal(pthread_create(&thread, NULL, signal_soon, &self), 0);
    assert_int_equal(wait_for(fixture, 20000), 0);
    pthread_join(thread, NULL);
}

static void errors_are_told(void **state)
{
    struct fixture *fixture = *state;
    struct ko_poller closed = {-1, -1};

    assert_int_equal(ko_poller_add(&fixture->poller, -1, KO_POLL_IN, fixture), KOLO_E_SYSTEM);
    assert_string_equal(
        kolo_last_error(),
        "epoll_ctl on descriptor -1: Bad file descriptor (has the program closed one of kolo's?)");
    assert_int_equal(ko_poller_change(&fixture->poller, fixture->near, 0, fixture), KOLO_E_SYSTEM);
    assert_int_equal(ko_poller_wait(&closed, 0, fixture->events, CAP), -1);
    assert_string_equal(kolo_last_error(),
                        "epoll_wait: Bad file descriptor (has the program closed one of kolo's?)");
    ko_poller_wake(&closed);
}

static void out_of_descriptors(void **state)
{
    struct rlimit limit, none;
    struct ko_poller poller;
    int lowest = dup(0);
    int errors[2];

    (void)state;
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    for (rlim_t spare = 0; spare < 2; spare++) { /* 0: no epoll; 1: no eventfd */
        none.rlim_cur = (rlim_t)lowest + spare;
        setrlimit(RLIMIT_NOFILE, &none);
        errors[spare] = ko_poller_open(&poller);
        setrlimit(RLIMIT_NOFILE, &limit);
        assert_int_equal(errors[spare], KOLO_E_SYSTEM);
        assert_non_null(strstr(kolo_last_error(), spare ? "eventfd" : "epoll_create1"));
        ko_poller_close(&poller);
    }
    assert_int_equal(dup(0), lowest); /* nothing is left open */
    close(lowest);
}

static void closes_what_was_never_opened(void **state)
{
    struct ko_poller poller = {0};

    (void)state;
    ko_poller_close(&poller);
    ko_poller_close(&poller);
    assert_int_equal(poller.epoll_fd, -1);
}

#define POLLER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        POLLER_TEST(says_what_happened_and_to_whom),
        POLLER_TEST(keeps_what_is_wanted),
        POLLER_TEST(hang_up_comes_unasked),
        POLLER_TEST(times_out),
        POLLER_TEST(wake_is_kept_and_used_up),
        POLLER_TEST(wakes_from_another_thread),
        POLLER_TEST(a_signal_is_no_error),
        POLLER_TEST(errors_are_told),
        POLLER_TEST(out_of_descriptors),
        cmocka_unit_test(closes_what_was_never_opened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
