/* SPDX-License-Identifier: MIT
 *
 * The words by which ranks know of each other's GPUs who writes: how they come to all, whoever else
 * connects, and what they say.
 */
#include "gpu_writers.h"
#include "sanitized.h"
#include "socket.h"
#include "status.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 3, SHORT_MS = 300, LONG_MS = 20000, SOON_MS = IS_SANITIZED ? 10000 : 2000 };

static struct ko_gpu_writers *make(struct ko_gpu_writers_place *place)
{
    struct ko_gpu_writers *writers;

    assert_int_equal(ko_gpu_writers_make(N, &writers, place), KOLO_OK);
    return writers;
}

static int hand(struct ko_gpu_writers *writers, int n, int limit_ms)
{
    const ko_deadline deadline = ko_deadline_in(limit_ms);
    const int err = ko_gpu_writers_hand(writers, n, &deadline);

    assert_true(ko_now_ns() < deadline.at_ns + SOON_MS * INT64_C(1000000));
    return err;
}

/* ---- how all come by them -------------------------------------------------------------------- */

static void two_processes(void **state)
{
    const ko_deadline deadline = ko_deadline_in(LONG_MS);
    struct ko_gpu_writers_place place;
    struct ko_gpu_writers *maker = make(&place), *other, *taker;

    (void)state;
    assert_int_equal(ko_gpu_writers_find(&place, &other), KOLO_OK);
    assert_int_equal(ko_gpu_writers_ask(&place, &taker), KOLO_OK);
    assert_int_equal(hand(maker, 1, LONG_MS), KOLO_OK);
    assert_int_equal(ko_gpu_writers_take(taker, N, &deadline), KOLO_OK);
    ko_gpu_writers_give_up(taker, 2);
    for (int i = 0; i < 2; i++) {
        int which = -1;

        assert_false(ko_gpu_writers_begin(i ? maker : other, N, i, &which));
        assert_int_equal(which, 2);
    }
    ko_gpu_writers_free(taker);
    ko_gpu_writers_free(other);
    ko_gpu_writers_free(maker);
}

static void nobody_asks(void **state)
{
    struct ko_gpu_writers_place place;
    struct ko_gpu_writers *maker = make(&place);

    (void)state;
    assert_int_equal(hand(maker, 1, SHORT_MS), KOLO_E_TIMEOUT);
    ko_gpu_writers_free(maker);
}

/* They need none. */
static void some_hang_up(void **state)
{
    struct ko_gpu_writers_place place;
    struct ko_gpu_writers *maker = make(&place), *taker;

    (void)state;
    for (int i = 0; i < N; i++) {
        assert_int_equal(ko_gpu_writers_ask(&place, &taker), KOLO_OK);
        ko_gpu_writers_free(taker);
    }
    assert_int_equal(hand(maker, N, LONG_MS), KOLO_OK);
    ko_gpu_writers_free(maker);
}

/* ---- strangers ------------------------------------------------------------------------------- */

enum { NOBODY = 65534, KEPT = 100 };

/* For both processes. */
struct flood {
    struct ko_gpu_writers_place place;
    atomic_int nconnections;
};

/* Hangs up, or, of connections that are kept, says nothing. */
static void connect_again_and_again(struct flood *flood)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(flood->place.socket);
    int fds[KEPT] = {0};

    memcpy(address.sun_path + 1, flood->place.socket, length);
    for (unsigned i = 0;; i++) {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        if (!connect(fd, (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)))
            atomic_fetch_add(&flood->nconnections, 1);
        if (i % 2 == 0 || fds[i / 2 % KEPT])
            close(i % 2 ? fds[i / 2 % KEPT] : fd);
        if (i % 2)
            fds[i / 2 % KEPT] = fd;
    }
}

static pid_t flood_as_nobody(struct flood *flood)
{
    const ko_deadline deadline = ko_deadline_in(LONG_MS);
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid && !setgid(NOBODY) && !setuid(NOBODY))
        connect_again_and_again(flood);
    if (!pid)
        _exit(1);
    while (atomic_load(&flood->nconnections) < KEPT && !ko_deadline_passed(&deadline))
        poll(NULL, 0, 1);
    assert_true(atomic_load(&flood->nconnections) >= KEPT);
    return pid;
}

static void end_flood(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* Of another user there may be any number: they get nothing, and take no more than the time. */
static void strangers(void **state)
{
    struct flood *flood =
        mmap(NULL, sizeof *flood, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const ko_deadline deadline = ko_deadline_in(LONG_MS);
    struct ko_gpu_writers *maker, *taker;

    (void)state;
    if (geteuid()) {
        print_message("# only root can become another user\n");
        skip();
    }
    for (int asks = 0; asks < 2; asks++) {
        pid_t pid;

        atomic_store(&flood->nconnections, 0);
        maker = make(&flood->place);
        if (asks)
            assert_int_equal(ko_gpu_writers_ask(&flood->place, &taker), KOLO_OK);
        pid = flood_as_nobody(flood);
        assert_int_equal(hand(maker, 1, asks ? LONG_MS : SHORT_MS),
                         asks ? KOLO_OK : KOLO_E_TIMEOUT);
        end_flood(pid);
        if (asks) {
            assert_int_equal(ko_gpu_writers_take(taker, N, &deadline), KOLO_OK);
            ko_gpu_writers_free(taker);
        }
        ko_gpu_writers_free(maker);
    }
    munmap(flood, sizeof *flood);
}

/* ---- what they say --------------------------------------------------------------------------- */

static void calls(void **state)
{
    struct ko_gpu_writers_place place;
    struct ko_gpu_writers *writers = make(&place);
    int which = -1;

    (void)state;
    assert_true(ko_gpu_writers_begin(writers, N, 1, &which));
    assert_true(ko_gpu_writers_has_begun(writers, 1));
    assert_false(ko_gpu_writers_has_begun(writers, 0));
    ko_gpu_writers_end(writers, 1);
    assert_false(ko_gpu_writers_has_begun(writers, 1));
    ko_gpu_writers_give_up(writers, 1);
    assert_true(ko_gpu_writers_begin(writers, N, 1, &which)); /* its own call */
    assert_false(ko_gpu_writers_begin(writers, N, 0, &which));
    assert_false(ko_gpu_writers_has_begun(writers, 0));
    assert_int_equal(which, 1);
    ko_gpu_writers_free(writers);
}

/* Also where their numbers come round. */
static void calls_in_streams(void **state)
{
    struct ko_gpu_writers_place place;
    struct ko_gpu_writers *writers = make(&place);
    uint32_t call = 0;
    int which = -1;

    (void)state;
    for (int i = 0; i < 5; i++, call += UINT32_MAX / 4) {
        ko_gpu_writers_have_done(writers, 0, call); /* it has no part in this one */
        assert_false(ko_gpu_writers_stream(writers, 0, call));
        assert_true(ko_gpu_writers_put(writers, N, 0, call + 1, &which));
        assert_true(ko_gpu_writers_put(writers, N, 0, call + 3, &which));
        ko_gpu_writers_have_done(writers, 0, call + 2);
        ko_gpu_writers_have_done(writers, 0, call + 1);
        assert_false(ko_gpu_writers_stream(writers, 0, call + 2));
        assert_true(ko_gpu_writers_stream(writers, 0, call + 3));
        assert_true(ko_gpu_writers_stream(writers, 0, call + 4));
        assert_false(ko_gpu_writers_stream(writers, 1, call + 4));
        ko_gpu_writers_have_done(writers, 0, call + 3);
        assert_false(ko_gpu_writers_stream(writers, 0, call + 4));
    }
    ko_gpu_writers_give_up(writers, 2);
    assert_false(ko_gpu_writers_put(writers, N, 0, call + 1, &which));
    assert_int_equal(which, 2);
    assert_false(ko_gpu_writers_stream(writers, 0, call + 1));
    ko_gpu_writers_free(writers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes), cmocka_unit_test(nobody_asks),
        cmocka_unit_test(some_hang_up),  cmocka_unit_test(strangers),
        cmocka_unit_test(calls),         cmocka_unit_test(calls_in_streams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
