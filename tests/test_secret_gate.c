/* SPDX-License-Identifier: MIT
 *
 * Gates over sockets: in pieces, at odd times, with failures of the system, and up to the byte.
 */
#include "fault.h"
#include "kolo.h"
#include "poller.h"
#include "secret_gate.h"
#include "socket.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

static const struct ko_claim claim = {KO_PURPOSE_WIRE, 7, KO_ANY_RANK, 2, false};

struct pair {
    struct ko_gate caller, acceptor;
    int fds[2]; /* the caller's, the acceptor's */
};

static struct ko_guard guard_of(const char *token)
{
    struct ko_guard guard = {.has_secret = true};

    assert_int_equal(ko_secret_make(token, strlen(token), &guard.secret), KOLO_OK);
    return guard;
}

/* Over TCP on loopback, gates as the guard has them. */
static struct pair open_pair(const struct ko_guard *guard)
{
    ko_deadline deadline = ko_deadline_in(20000);
    struct pair pair;
    int listener, port, err;

    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    assert_int_equal(ko_socket_connect("127.0.0.1", port, &deadline, &pair.fds[0]), KOLO_OK);
    while ((err = ko_socket_accept(listener, &pair.fds[1])) == KO_AGAIN)
        continue;
    assert_int_equal(err, KOLO_OK);
    close(listener);
    memset(&pair.caller, 0, sizeof pair.caller);
    memset(&pair.acceptor, 0, sizeof pair.acceptor);
    assert_int_equal(ko_gate_begin(&pair.caller, guard, &claim, true), KOLO_OK);
    assert_int_equal(ko_gate_begin(&pair.acceptor, guard, &claim, false), KOLO_OK);
    return pair;
}

static void close_pair(struct pair *pair)
{
    close(pair->fds[0]);
    close(pair->fds[1]);
}

/* Both, until both have passed or one has failed. */
static int pass(struct pair *pair)
{
    ko_deadline deadline = ko_deadline_in(20000);
    int callers = KO_AGAIN, acceptors = KO_AGAIN;

    while (callers == KO_AGAIN || acceptors == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        if (callers == KO_AGAIN)
            callers = ko_gate_pass(&pair->caller, pair->fds[0]);
        if (acceptors == KO_AGAIN)
            acceptors = ko_gate_pass(&pair->acceptor, pair->fds[1]);
        if (callers > 0 || acceptors > 0)
            return callers > 0 ? callers : acceptors;
    }
    return KOLO_OK;
}

/* What follows the proof at once is still there afterwards, to the byte. */
static void not_one_byte_more(void **state)
{
    static const struct ko_guard open = {.is_open = true}, machine = {.is_open = false};
    const struct ko_guard secret = guard_of("the token of this test");
    const struct ko_guard *const guards[] = {&open, &machine, &secret};
    char text[16];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct pair pair = open_pair(guards[i]);

        assert_int_equal(ko_gate_wanted(&pair.caller), i == 2 ? KO_POLL_OUT : 0);
        assert_int_equal(ko_gate_wanted(&pair.acceptor), i == 2 ? KO_POLL_IN : 0);
        while (ko_gate_pass(&pair.caller, pair.fds[0]) == KO_AGAIN)
            assert_true(ko_gate_pass(&pair.acceptor, pair.fds[1]) <= 0);
        assert_int_equal(send(pair.fds[0], "payload", 7, 0), 7);
        while (ko_gate_pass(&pair.acceptor, pair.fds[1]) == KO_AGAIN)
            continue;
        assert_int_equal(recv(pair.fds[1], text, sizeof text, 0), 7);
        assert_memory_equal(text, "payload", 7);
        assert_int_equal(ko_gate_wanted(&pair.caller), 0);
        assert_int_equal(ko_gate_wanted(&pair.acceptor), 0);
        assert_int_equal(ko_gate_pass(&pair.acceptor, pair.fds[1]), KOLO_OK); /* again */
        close_pair(&pair);
    }
}

static void until_a_deadline(void **state)
{
    const struct ko_guard secret = guard_of("the token of this test");
    struct pair pair = open_pair(&secret);
    ko_deadline soon = ko_deadline_in(20), late = ko_deadline_in(20000);

    (void)state;
    assert_int_equal(ko_gate_pass_until(&pair.caller, pair.fds[0], &soon), KOLO_E_TIMEOUT);
    assert_int_equal(ko_gate_pass(&pair.acceptor, pair.fds[1]), KO_AGAIN);
    assert_int_equal(ko_gate_pass_until(&pair.caller, pair.fds[0], &late), KOLO_OK);
    assert_int_equal(ko_gate_pass_until(&pair.acceptor, pair.fds[1], &late), KOLO_OK);
    close_pair(&pair);
}

/* Each read and each write fails once; an end that is gone is lost, not hostile. */
static void failures(void **state)
{
    const struct ko_guard secret = guard_of("the token of this test");

    (void)state;
    for (int i = 0; i < 2; i++)
        for (int nth = 1; nth <= 3; nth++) {
            struct pair pair = open_pair(&secret);

            ko_fault_arm(i ? KO_FAULT_SEND : KO_FAULT_RECV, nth);
            assert_int_equal(pass(&pair), KOLO_E_PEER_LOST);
            ko_fault_arm(i ? KO_FAULT_SEND : KO_FAULT_RECV, 0);
            close_pair(&pair);
        }
    for (int end = 0; end < 2; end++) {
        struct pair pair = open_pair(&secret);

        assert_int_equal(ko_gate_pass(&pair.caller, pair.fds[0]), KO_AGAIN);
        shutdown(pair.fds[end], SHUT_RDWR);
        assert_int_equal(pass(&pair), KOLO_E_PEER_LOST);
        close_pair(&pair);
    }
}

/* On a socket that leads nowhere there is no machine to be the same. */
static void no_connection(void **state)
{
    static const struct ko_guard machine = {.is_open = false};
    struct ko_gate gate;

    (void)state;
    assert_int_equal(ko_gate_begin(&gate, &machine, &claim, true), KOLO_OK);
    assert_int_equal(ko_gate_pass(&gate, -1), KOLO_E_PROTOCOL);
}

/* IPv6 knows one loopback address, and writes those of IPv4 in its way. */
static void addresses_of_ipv6(void **state)
{
    static const struct ko_guard machine = {.is_open = false};
    static const char *const hosts[] = {"::1", "127.0.0.1", "127.0.0.2"};
    ko_deadline deadline = ko_deadline_in(20000);
    struct ko_gate gate;
    int listener, port, fds[2];

    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        if (ko_socket_listen(i ? "::" : hosts[i], 0, &listener, &port)) {
            print_message("# no IPv6 here\n");
            skip();
        }
        assert_int_equal(ko_socket_connect(hosts[i], port, &deadline, &fds[0]), KOLO_OK);
        while (ko_socket_accept(listener, &fds[1]) == KO_AGAIN)
            continue;
        for (int end = 0; end < 2; end++) {
            assert_int_equal(ko_gate_begin(&gate, &machine, &claim, !end), KOLO_OK);
            assert_int_equal(ko_gate_pass(&gate, fds[end]), KOLO_OK);
            close(fds[end]);
        }
        close(listener);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_one_byte_more),
                                       cmocka_unit_test(until_a_deadline),
                                       cmocka_unit_test(failures), cmocka_unit_test(no_connection),
                                       cmocka_unit_test(addresses_of_ipv6)};

    return cmocka_run_group_tests_name("secret gate", tests, NULL, NULL);
}
