/* SPDX-License-Identifier: MIT
 *
 * A rank that is killed is missed by those, too, who wait for others, and whom no link tells of it;
 * one that has freed its groups is not.
 */
#include "clock.h"
#include "folder.h"
#include "letters.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Binomial trees: root 1 gives to 2 and to 3, which gives to 0. */
enum { RANKS = 4, ROOT = 1, LEAF = 2, INNER = 3 };

static int broadcast(kolo_group *world)
{
    int word = 7;

    return kolo_broadcast(world, &word, 1, KOLO_INT32, ROOT);
}

/* Rank 0 waits for one that comes when rank 0 has given up; so does the root, which alone has to do
 * with the one that dies. */
static int wait_for_who_lives(kolo_group *world, void *argument)
{
    atomic_bool *has_given_up = argument;
    const int rank = kolo_group_rank(world);
    int64_t began_ns;
    int err, failed;

    if (rank == LEAF)
        return raise(SIGKILL);
    while (rank != 0 && !atomic_load(has_given_up))
        ranks_nap_ms(10);
    began_ns = ko_now_ns();
    err = broadcast(world);
    if (!err && rank != 0)
        return 0; /* its part may have been done */
    failed = ranks_expect_soon(began_ns, err, KOLO_E_PEER_LOST, "rank 2 (");
    atomic_store(has_given_up, true);
    return failed;
}

/* The others have done their part, and gone, when the inner one comes. */
static int wait_for_who_is_late(kolo_group *world, void *argument)
{
    (void)argument;
    if (broadcast(world))
        return ranks_fail("a first broadcast");
    if (kolo_group_rank(world) == INNER)
        ranks_nap_ms(3500);
    return broadcast(world) ? ranks_fail("a broadcast") : 0;
}

static int settle_apart(int rank, void *argument)
{
    (void)argument;
    setenv("KOLO_HOST", rank % 2 ? "odd" : "even", 1);
    return 0;
}

/* ---- stores that rank 0 does not serve ------------------------------------------------------- */

static char file[100];     /* of a file store */
static int port;           /* of one that a process serves which is no rank */
static kolo_store *handed; /* of a rank's */

static int join_by_file(int rank, int n, int timeout_ms, kolo_group **group)
{
    char method[160];

    snprintf(method, sizeof method, "file://%s?rank=%d&world_size=%d", file, rank, n);
    return kolo_group_join(method, timeout_ms, group);
}

static int join_by_store(int rank, int n, int timeout_ms, kolo_group **group)
{
    return kolo_store_open_tcp("127.0.0.1", port, 0, timeout_ms, &handed) ||
           kolo_group_join_store(handed, rank, n, timeout_ms, group);
}

/* That of a launcher's agent. */
static int join_by_agent(int rank, int n, int timeout_ms, kolo_group **group)
{
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    ranks_set_number("MASTER_PORT", port);
    ranks_set_number("RANK", rank);
    ranks_set_number("WORLD_SIZE", n);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    return kolo_group_join(NULL, timeout_ms, group);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const struct way {
    const char *transport;
    int (*settle)(int rank, void *argument);
    int (*join)(int rank, int n, int timeout_ms, kolo_group **group);
} ways[] = {{"shm", NULL, NULL},
            {"tcp", settle_apart, NULL},
            {"shm", NULL, join_by_file},
            {"tcp", settle_apart, join_by_store},
            {"shm", NULL, join_by_agent}};

/* A thread of this program's would be missing in the ranks, which confuses leak checks. */
static pid_t serve(void)
{
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        kolo_store *store;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        port = kolo_store_open_tcp("127.0.0.1", 0, 1, 30000, &store) ? 0 : kolo_store_port(store);
        for (ssize_t n = write(ends[1], &port, sizeof port); n;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &port, sizeof port), sizeof port);
    close(ends[0]);
    return pid;
}

static void run_so(const struct way *way, ranks_body body, int tolerated, void *argument)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES,
                                .n = RANKS,
                                .timeout_ms = 30000,
                                .tolerated = tolerated,
                                .settle = way->settle,
                                .join = way->join};
    const pid_t server = serve();

    snprintf(file, sizeof file, "%s", folder_path("store"));
    letters_set(way->transport, false);
    assert_int_equal(ranks_run(&ranks, body, argument), 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    remove(file);
}

static void run(ranks_body body, int tolerated)
{
    atomic_bool *flag =
        mmap(NULL, sizeof *flag, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(flag != MAP_FAILED);
    setenv("KOLO_ALGO", "broadcast=binomial", 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        atomic_store(flag, false);
        run_so(&ways[i], body, tolerated, flag);
    }
    munmap(flag, sizeof *flag);
}

static void who_is_lost_is_missed_by_all(void **state)
{
    (void)state;
    run(wait_for_who_lives, 1);
}

static void who_has_left_is_missed_by_none(void **state)
{
    (void)state;
    run(wait_for_who_is_late, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_lost_is_missed_by_all),
                                       cmocka_unit_test(who_has_left_is_missed_by_none)};

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
