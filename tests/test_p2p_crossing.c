/* SPDX-License-Identifier: MIT
 *
 * Two ranks that connect to each other at once: one of the two connections is given up, which is
 * nothing to warn of. Whoever else ends a connection before he has proven himself is named.
 */
#include "endpoint.h"
#include "log_file.h"
#include "ranks.h"
#include "transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 60, PATIENCE_US = 20000, STEP_US = 25, LIMIT_MS = 20000 };

static const char token[] = "the token of this test";

/* ---- ranks of a group -------------------------------------------------------------------- */

static void nap_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* The receiver, who is the higher rank, connects too when his patience has ended: about when the
 * sender does. */
static int cross(kolo_group *world, int round)
{
    const int ranks[] = {0, 1}, rank = kolo_group_rank(world);
    kolo_group *pair = NULL;
    char byte = 0;
    int err = kolo_group_new(world, ranks, 2, &pair);

    if (!err)
        err = kolo_barrier(pair);
    if (!err && rank == 0)
        nap_us(PATIENCE_US + (round - ROUNDS / 2) * STEP_US);
    if (!err)
        err = rank ? kolo_recv(pair, &byte, 1, KOLO_UINT8, 0, 0)
                   : kolo_send(pair, &byte, 1, KOLO_UINT8, 1, 0);
    kolo_group_free(pair);
    return err;
}

static int cross_again_and_again(kolo_group *world, void *argument)
{
    int err = 0;

    (void)argument;
    for (int i = 0; i < ROUNDS && !err; i++)
        err = cross(world, i);
    return err ? ranks_fail("crossing") : 0;
}

static void a_connection_given_up_is_not_warned_of(void **state)
{
    static const char *const transports[] = {"tcp", "rdma"};
    const struct ranks ranks = {.kind = RANKS_THREADS, .n = 2, .timeout_ms = LIMIT_MS};
    char line[LOG_LINE];

    (void)state;
    for (int i = 0; i < 2; i++) {
        setenv("KOLO_TRANSPORT", transports[i], 1);
        log_file_open("DEBUG");
        assert_int_equal(ranks_run(&ranks, cross_again_and_again, NULL), 0);
        assert_int_equal(log_file_close(" WARN ", line), 0);
        assert_string_equal(line, "");
    }
}

/* ---- endpoints --------------------------------------------------------------------------- */

struct pair {
    kolo_store *store;
    struct ko_endpoint *ranks[2];
};

static struct ko_endpoint *open_rank(kolo_store *store, int rank, const char *its_token)
{
    struct ko_endpoint *endpoint;
    kolo_store *own;

    setenv("KOLO_AUTH_TOKEN", its_token, 1);
    assert_int_equal(kolo_store_open_prefix(store, "test", &own), KOLO_OK);
    assert_int_equal(ko_endpoint_open(own, rank, 2, &endpoint), KOLO_OK);
    setenv("KOLO_AUTH_TOKEN", token, 1);
    return endpoint;
}

static void open_pair(struct pair *pair, const char *token_of_1)
{
    setenv("KOLO_TRANSPORT", "tcp", 1);
    assert_int_equal(kolo_store_open_local(&pair->store), KOLO_OK);
    pair->ranks[0] = open_rank(pair->store, 0, token);
    pair->ranks[1] = open_rank(pair->store, 1, token_of_1);
    log_file_open("WARN");
}

/* Returns how many ends have been warned of. */
static int close_pair(struct pair *pair)
{
    char line[LOG_LINE];

    for (int rank = 0; rank < 2; rank++)
        ko_endpoint_release(pair->ranks[rank]);
    kolo_store_close(pair->store);
    return log_file_close(" WARN a connection over tcp from 127.0.0.1:", line);
}

/* Accepts at rank 0 until there are so many arrivals. */
static void await_arrivals(struct pair *pair, int n)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);

    while (pair->ranks[0]->narrivals != n) {
        assert_false(ko_deadline_passed(&deadline));
        ko_endpoint_accept(pair->ranks[0]);
        poll(NULL, 0, 1);
    }
}

/* Rank 1 connects to rank 0 and hangs up: having said who he is, and, if he is to, having heard the
 * answer to that. The warnings of before do not silence one of this. */
static void come_and_go(struct pair *pair, bool hears)
{
    const struct ko_hello hello = {
        .magic = KO_HELLO_MAGIC, .version = KO_HELLO_VERSION, .from = 1, .to = 0};
    struct ko_wire *wire;

    pair->ranks[0]->turned_away.quiet_until_ns = 0;
    assert_int_equal(ko_endpoint_connect(pair->ranks[1], 0, &hello, &wire), KOLO_OK);
    assert_int_equal(wire->transport->drive(wire), KOLO_OK);
    await_arrivals(pair, 1);
    if (hears)
        assert_int_equal(wire->transport->drive(wire), KOLO_E_PROTOCOL);
    wire->transport->hangup(wire);
    await_arrivals(pair, 0);
}

static void only_what_may_cross_is_passed_over(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, token);
    come_and_go(&pair, false);
    assert_int_equal(close_pair(&pair), 1);

    open_pair(&pair, token);
    ko_endpoint_expect_crossing(pair.ranks[0], 1);
    come_and_go(&pair, false);
    assert_int_equal(close_pair(&pair), 0);
}

/* Nobody has proven that he is the rank: he silences no more than that could have. */
static void each_wire_excuses_one_end(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, token);
    for (int i = 0; i < 2; i++)
        ko_endpoint_expect_crossing(pair.ranks[0], 1);
    for (int i = 0; i < 5; i++)
        come_and_go(&pair, false);
    assert_int_equal(close_pair(&pair), 3);
}

/* Another rank's end, and one with another token, are as before. */
static void others_are_named(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, token);
    ko_endpoint_expect_crossing(pair.ranks[0], 0);
    come_and_go(&pair, false);
    assert_int_equal(close_pair(&pair), 1);

    open_pair(&pair, "the token of another test");
    come_and_go(&pair, true);
    assert_int_equal(close_pair(&pair), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_connection_given_up_is_not_warned_of),
                                       cmocka_unit_test(only_what_may_cross_is_passed_over),
                                       cmocka_unit_test(each_wire_excuses_one_end),
                                       cmocka_unit_test(others_are_named)};

    setenv("KOLO_AUTH_TOKEN", token, 1);
    return cmocka_run_group_tests_name("p2p crossing", tests, NULL, NULL);
}
