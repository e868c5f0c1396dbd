/* SPDX-License-Identifier: MIT
 *
 * The server as strangers see it: the bytes of the wire format, written by hand.
 */
#include "sanitized.h"
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_served.h"
#include "store_text.h"
#include "store_wire.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char validate[] = "00 cef7853c";

/* ---- requests ----------------------------------------------------------------------------- */

static void test_wait_and_cancel(void **state)
{
    int waits = store_dial(state);
    int sets = store_dial(state);

    say(waits, validate);
    say(sets, validate);
    say(waits, "06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62"); /* wait a b */
    say(waits, "0c");
    hear(waits, "01");
    say(waits, "0c"); /* nothing to cancel: the same answer */
    hear(waits, "01");
    say(waits, "06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62");
    say(sets, "01 0200000000000000 2f61 0000000000000000"); /* set a: not enough */
    store_hear_nothing(sets);
    say(waits, "0c");
    hear(waits, "01");
    say(sets, "01 0200000000000000 2f62 0000000000000000"); /* set b: nobody waits any more */
    store_hear_nothing(sets);
    store_hear_nothing(waits);
    say(waits, "06 0100000000000000 0200000000000000 2f63"); /* wait c, which an add makes */
    say(sets, "04 0200000000000000 2f63 0100000000000000");
    hear(sets, "0100000000000000");
    hear(waits, "00");
    /* Requests behind a wait are answered behind it. */
    say(waits, "06 0100000000000000 0200000000000000 2f64 03 0200000000000000 2f64 07");
    say(sets, "01 0200000000000000 2f64 0100000000000000 44");
    hear(waits, "00 0100000000000000 44 0400000000000000");
    close(waits);
    close(sets);
}

/* A GET of what is not there is answered at once, that of a client of 1.13 when it is; a MULTI_GET
 * as well, which can be taken back. */
static void test_get_waits(void **state)
{
    int gets = store_dial(state), old = store_dial(state);

    say(gets, validate);
    say(gets, "03 0200000000000000 2f67"); /* get g */
    hear(gets, "0000000000000000");
    say(gets, "0a 0100000000000000 0200000000000000 2f67");
    say(gets, "0c");
    hear(gets, "01");
    say(old, "00 0200000000000000 2f7a 0000000000000000 02 0200000000000000 2f67"); /* set z */
    store_hear_nothing(gets);
    assert_int_equal(kolo_store_set(*state, "g", text("G")), KOLO_OK);
    hear(old, "0100000000000000 47");
    close(old);
    say(gets, "03 0200000000000000 2f67");
    hear(gets, "0100000000000000 47");
    say(gets, "0a 0200000000000000 0200000000000000 2f67 0200000000000000 2f68"); /* multi_get */
    assert_int_equal(kolo_store_set(*state, "h", text("H")), KOLO_OK);
    hear(gets, "0100000000000000 47 0100000000000000 48");
    close(gets);
}

static void test_bytes_one_by_one(void **state)
{
    static const char all[] = "00 cef7853c 0d 01020304"
                              "01 0200000000000000 2f6b 0100000000000000 76"
                              "05 0200000000000000 0200000000000000 2f6b 0200000000000000 2f6b"
                              "02 0200000000000000 2f6b 0100000000000000 76 0100000000000000 77"
                              "04 0200000000000000 2f6e f9ffffffffffffff 07 0c";
    ko_deadline deadline = ko_deadline_in(30000);
    uint8_t bytes[256];
    size_t n = wire_unhex(all, bytes);
    int fd = store_dial(state);

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ko_socket_send_all(fd, bytes + i, 1, &deadline), KOLO_OK);
        if (i < 5) /* the handshake above all must survive being cut */
            usleep(2000);
    }
    hear(fd, "01020304 00 0100000000000000 77 f9ffffffffffffff 0200000000000000 01");
    close(fd);
}

static void test_many_in_one_write(void **state)
{
    enum { N = 5000, MESSAGE = 19 }; /* add n 1 */
    ko_deadline deadline = ko_deadline_in(30000);
    uint8_t *bytes = malloc((size_t)N * MESSAGE);
    uint8_t *answers = malloc((size_t)N * 8);
    int fd = store_dial(state);

    for (size_t i = 0; i < N; i++)
        assert_int_equal(
            wire_unhex("04 0200000000000000 2f6e 0100000000000000", bytes + i * MESSAGE), MESSAGE);
    say(fd, validate);
    assert_int_equal(ko_socket_send_all(fd, bytes, (size_t)N * MESSAGE, &deadline), KOLO_OK);
    assert_int_equal(ko_socket_recv_all(fd, answers, (size_t)N * 8, &deadline), KOLO_OK);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(ko_wire_u64(answers + i * 8), i + 1);
    close(fd);
    free(bytes);
    free(answers);
}

/* A queue's value does not stay with a client that it woke and that then says nothing, or dies. */
static void test_queue_hands_on(void **state)
{
    static const char wait_q[] = "06 0100000000000000 0200000000000000 2f71";
    int fds[3];

    for (int i = 0; i < 3; i++) {
        fds[i] = store_dial(state);
        say(fds[i], validate);
        store_hear_nothing(fds[i]);
        say(fds[i], wait_q);
        store_work_honestly(state); /* by then the server has read it */
    }
    assert_int_equal(kolo_store_queue_push(*state, "q", text("v")), KOLO_OK);
    hear(fds[0], "00");
    hear(fds[1], "00");
    close(fds[1]);
    hear(fds[2], "00");
    say(fds[2], "0f 0200000000000000 2f71");
    hear(fds[2], "0100000000000000 0100000000000000 76");
    close(fds[0]);
    close(fds[2]);
}

/* The key is there, so that its time-out does not say that nobody has set it. */
static void test_pop_of_an_empty_value(void **state)
{
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_set(*state, "e", text("")), KOLO_OK);
    assert_int_equal(kolo_store_queue_pop(*state, "e", 100, &value, &nbytes), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "or the key has an empty value and no queue"));
    assert_int_equal(kolo_store_set(*state, "e", text("v")), KOLO_OK);
    assert_int_equal(kolo_store_queue_pop(*state, "e", 60000, &value, &nbytes), KOLO_E_INVALID);
    store_work_honestly(state);
}

/* What came before a client's end counts. */
static void test_set_and_hang_up(void **state)
{
    int fd = store_dial(state);
    void *value;
    size_t nbytes;

    say(fd, "00 cef7853c 01 0200000000000000 2f6b 0100000000000000 76");
    close(fd);
    assert_int_equal(kolo_store_get(*state, "k", &value, &nbytes), KOLO_OK);
    assert_string_equal(value, "v");
    kolo_free(value);
}

/* ---- the server's end --------------------------------------------------------------------- */

static void test_port_is_taken(void **state)
{
    kolo_store *second = NULL;
    char port[16];

    snprintf(port, sizeof port, ":%d", kolo_store_port(*state));
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", kolo_store_port(*state), 1, 1000, &second),
                     KOLO_E_SYSTEM);
    assert_null(second);
    assert_non_null(strstr(kolo_last_error(), port));
    assert_non_null(strstr(kolo_last_error(), "another port"));
    store_work_honestly(state);
}

static void test_address(void **state)
{
    kolo_store *local;
    char host[64] = "?";
    int fd;
    ko_deadline soon = ko_deadline_in(0);

    assert_int_equal(ko_store_own_address(*state, host, sizeof host), KOLO_OK);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(ko_store_own_address(*state, host, 5), KOLO_E_PEER_LOST);
    assert_int_equal(ko_socket_connect("127.0.0.2", kolo_store_port(*state), &soon, &fd),
                     KOLO_E_TIMEOUT); /* only on the address named, not on all */
    assert_int_equal(kolo_store_open_local(&local), KOLO_OK);
    assert_int_equal(ko_store_own_address(local, host, sizeof host), KOLO_OK);
    assert_string_equal(host, "");
    kolo_store_close(local);
}

/* A program that becomes a daemon closes whatever is open: the service is over then, and so is the
 * thread that it has, which nobody can wake any more. */
static void closing_all_descriptors_ends_it(void **state)
{
    kolo_store *store;
    int first;

    (void)state;
    if (HAS_TSAN) /* it calls that a race, which it is */
        skip();
    first = dup(STDERR_FILENO);
    close(first);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, 5000, &store), 0);
    usleep(50000);                                /* the thread waits for somebody to come */
    for (int fd = first + 100; fd >= first; fd--) /* the server's end of the connection first */
        close(fd);
    alarm(20);
    kolo_store_close(store);
    alarm(0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        STORE_SERVED(test_wait_and_cancel),  STORE_SERVED(test_get_waits),
        STORE_SERVED(test_bytes_one_by_one), STORE_SERVED(test_many_in_one_write),
        STORE_SERVED(test_queue_hands_on),   STORE_SERVED(test_pop_of_an_empty_value),
        STORE_SERVED(test_set_and_hang_up),  STORE_SERVED(test_port_is_taken),
        STORE_SERVED(test_address),          cmocka_unit_test(closing_all_descriptors_ends_it),
    };
    return cmocka_run_group_tests_name("store server", tests, NULL, NULL);
}
