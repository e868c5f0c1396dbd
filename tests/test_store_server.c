/* SPDX-License-Identifier: MIT
 *
 * The server as strangers see it: the bytes of the wire format, written by hand, and clients that
 * misbehave while an honest one works.
 */
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_server.h"
#include "store_session.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char validate[] = "00 cef7853c";

static kolo_bytes text(const char *s)
{
    return (kolo_bytes){s, strlen(s)};
}

static int open_store(void **state)
{
    kolo_store *store = NULL;
    int err = kolo_store_open_tcp("127.0.0.1", 0, 1, 60000, &store);

    *state = store;
    return err;
}

static int close_store(void **state)
{
    kolo_store_close(*state);
    return 0;
}

static int dial(void **state)
{
    ko_deadline deadline = ko_deadline_in(30000);
    int fd = -1;

    assert_int_equal(ko_socket_connect("127.0.0.1", kolo_store_port(*state), &deadline, &fd),
                     KOLO_OK);
    return fd;
}

/* Nothing is there to read, and after a PING only its echo is. */
static void hear_nothing(int fd)
{
    say(fd, "0d 78563412");
    hear(fd, "78563412");
}

static void work_honestly(void **state)
{
    void *value;
    size_t nbytes;
    int64_t sum = 0;

    for (int i = 0; i < 20; i++) {
        assert_int_equal(kolo_store_set(*state, "honest", text("work")), KOLO_OK);
        assert_int_equal(kolo_store_get(*state, "honest", &value, &nbytes), KOLO_OK);
        assert_string_equal(value, "work");
        kolo_free(value);
        assert_int_equal(kolo_store_add(*state, "count", 1, &sum), KOLO_OK);
    }
    assert_int_equal(kolo_store_delete(*state, "count", NULL), KOLO_OK);
    assert_int_equal(sum, 20);
}

/* ---- requests ----------------------------------------------------------------------------- */

static void test_wait_and_cancel(void **state)
{
    int waits = dial(state);
    int sets = dial(state);

    say(waits, validate);
    say(sets, validate);
    say(waits, "06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62"); /* wait a b */
    say(waits, "0c");
    hear(waits, "01");
    say(waits, "0c"); /* nothing to cancel: the same answer */
    hear(waits, "01");
    say(waits, "06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62");
    say(sets, "01 0200000000000000 2f61 0000000000000000"); /* set a: not enough */
    hear_nothing(sets);
    say(waits, "0c");
    hear(waits, "01");
    say(sets, "01 0200000000000000 2f62 0000000000000000"); /* set b: nobody waits any more */
    hear_nothing(sets);
    hear_nothing(waits);
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

/* A GET of what is not there is answered when it is, and can be taken back. */
static void test_get_waits(void **state)
{
    int gets = dial(state);

    say(gets, validate);
    say(gets, "03 0200000000000000 2f67"); /* get g */
    say(gets, "0c");
    hear(gets, "01");
    say(gets, "03 0200000000000000 2f67");
    assert_int_equal(kolo_store_set(*state, "g", text("G")), KOLO_OK);
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
    int fd = dial(state);

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
    int fd = dial(state);

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
        fds[i] = dial(state);
        say(fds[i], validate);
        hear_nothing(fds[i]);
        say(fds[i], wait_q);
        work_honestly(state); /* by then the server has read it */
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

/* What came before a client's end counts. */
static void test_set_and_hang_up(void **state)
{
    int fd = dial(state);
    void *value;
    size_t nbytes;

    say(fd, "00 cef7853c 01 0200000000000000 2f6b 0100000000000000 76");
    close(fd);
    assert_int_equal(kolo_store_get(*state, "k", &value, &nbytes), KOLO_OK);
    assert_string_equal(value, "v");
    kolo_free(value);
}

/* ---- clients that misbehave --------------------------------------------------------------- */

static void test_garbage_is_cut_off(void **state)
{
    static const char *const garbage[] = {
        "47455420 2f20 48545450 2f312e31 0d0a 0d0a", /* GET / HTTP/1.1 */
        "00 cef7853d 00000000",                      /* nearly the magic: a key of 1 GB */
        "00 cef7853c 00 cef7853d",                   /* nearly the magic, later */
        "00 cef7853c 13",                            /* unknown opcodes */
        "00 cef7853c ff",
        "0c",                                                  /* unknown in 2.1 */
        "00 cef7853c 01 0000008000000000",                     /* a key of 2 GiB */
        "00 cef7853c 01 0220000000000000",                     /* a key one too long */
        "00 cef7853c 01 ffffffffffffffff",                     /* a key of "-1" */
        "00 cef7853c 01 0100000000000000 6b 0100800000000000", /* a value one too long */
        "00 cef7853c 06 0100020000000000",                     /* one key too many */
        "00 cef7853c 0b ffffffffffffffff",                     /* -1 pairs */
        /* set k, which is then no number to add to */
        "00cef7853c0101000000000000006b00000000000000000401000000000000006b0000000000000000",
    };
    int fd;

    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        fd = dial(state);
        say(fd, garbage[i]);
        hear_end(fd);
        work_honestly(state);
    }
}

/* Half-silent strangers go after their time; a silent one, or one that is introduced, may be. */
static void test_silence(void **state)
{
    int silent = dial(state);
    int half = dial(state);
    int idle = dial(state);

    say(half, "00 cef7");
    say(idle, validate);
    say(idle, "01 0200000000000000 2f6b 0100800000000000"); /* too long: that one goes at once */
    hear_end(idle);
    idle = dial(state);
    say(idle, validate);
    say(idle, "01 0200000000000000 2f6b 0000800000000000 7676"); /* 2 bytes of 8 MiB */
    work_honestly(state);
    hear_end(half);
    work_honestly(state);
    say(silent, validate);
    hear_nothing(silent);
    close(silent);
    close(idle);
}

/* Asks for far more than it reads. The server stops to listen to it, and to no one else. */
static void test_never_reads(void **state)
{
    enum { ASKED = 2000000, MESSAGE = 11 }; /* more than the system's own buffers hold */
    ko_deadline deadline;
    uint8_t ask[MESSAGE];
    uint8_t *asks = malloc((size_t)ASKED * MESSAGE);
    char *big = calloc(1, 1 << 20);
    uint8_t *answer = malloc((1 << 20) + 8);
    int fd = dial(state);

    assert_int_equal(kolo_store_set(*state, "b", (kolo_bytes){big, 1 << 20}), KOLO_OK);
    say(fd, validate);
    wire_unhex("03 0200000000000000 2f62", ask);
    for (size_t i = 0; i < ASKED; i++)
        memcpy(asks + i * MESSAGE, ask, MESSAGE);
    deadline = ko_deadline_in(300);
    assert_int_equal(ko_socket_send_all(fd, asks, (size_t)ASKED * MESSAGE, &deadline),
                     KOLO_E_TIMEOUT);
    work_honestly(state);
    deadline = ko_deadline_in(60000); /* once it reads, it is served */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ko_socket_recv_all(fd, answer, (1 << 20) + 8, &deadline), KOLO_OK);
        assert_int_equal(ko_wire_u64(answer), 1 << 20);
    }
    close(fd);
    work_honestly(state);
    free(asks);
    free(big);
    free(answer);
}

/* A reply of n times a large value comes whole, and yet takes no more memory than one of them. */
static void test_multi_get_is_bounded(void **state)
{
    static const struct ko_server_limits limits = {.table_bytes = 16 << 20,
                                                   .buffer_bytes = 48 << 20};
    ko_deadline deadline = ko_deadline_in(60000);
    char *big = calloc(1, KO_STORE_VALUE_MAX), *got = calloc(1, KO_STORE_VALUE_MAX);
    struct ko_server *server;
    kolo_store *honest;
    void *honest_state;
    uint8_t key[10];
    int fd;

    (void)state;
    assert_int_equal(ko_server_open("127.0.0.1", 0, &limits, &deadline, &server), KOLO_OK);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", ko_server_port(server), 0, 60000, &honest),
                     KOLO_OK);
    honest_state = honest;
    fd = dial(&honest_state);
    memset(big, 'b', KO_STORE_VALUE_MAX);
    assert_int_equal(kolo_store_set(honest, "b", (kolo_bytes){big, KO_STORE_VALUE_MAX}), KOLO_OK);
    say(fd, validate);
    say(fd, "0a 0900000000000000");
    wire_unhex("0200000000000000 2f62", key);
    for (int i = 0; i < 9; i++)
        assert_int_equal(ko_socket_send_all(fd, key, sizeof key, &deadline), KOLO_OK);
    for (int i = 0; i < 9; i++) {
        hear(fd, "0000800000000000");
        assert_int_equal(ko_socket_recv_all(fd, got, KO_STORE_VALUE_MAX, &deadline), KOLO_OK);
        assert_memory_equal(got, big, KO_STORE_VALUE_MAX);
        work_honestly(&honest_state);
    }
    close(fd);
    kolo_store_close(honest);
    ko_server_close(server);
    free(got);
    free(big);
}

/* Who is still silent after two seconds goes when there are too many such and another one comes. */
static void outlast_silence(void **state)
{
    sleep(2);
    usleep(100000);
    close(dial(state));
}

/* More strangers than are kept: the oldest go, and a newcomer who introduces himself is served.
 */
static void test_flood_of_connections(void **state)
{
    enum { FLOOD = 300 };
    kolo_store *late;
    int fds[FLOOD];

    for (int i = 0; i < FLOOD; i++)
        fds[i] = dial(state);
    outlast_silence(state);
    work_honestly(state);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", kolo_store_port(*state), 0, 60000, &late),
                     KOLO_OK);
    kolo_store_close(late);
    hear_end(fds[0]);
    for (int i = 1; i < FLOOD; i++)
        close(fds[i]);
}

/* The second connection of a client of PyTorch 1.13 may be silent however many others are. */
static void test_silent_second_connection(void **state)
{
    enum { FLOOD = 300 };
    int first = dial(state);
    int second = dial(state);
    int fds[FLOOD];

    say(first, "06");
    hear(first, "0000000000000000");
    for (int i = 0; i < FLOOD; i++)
        fds[i] = dial(state);
    outlast_silence(state);
    hear_end(fds[0]); /* the oldest of the others */
    say(second, "07 0200000000000000 2f6b");
    hear(second, "03");
    say(first, "00 0200000000000000 2f6b 0100000000000000 76");
    hear(second, "01 0200000000000000 2f6b 0000000000000000 0100000000000000 76");
    for (int i = 1; i < FLOOD; i++)
        close(fds[i]);
    close(first);
    close(second);
}

/* What a client of 1.13 deletes is answered, not cut off, as soon as its second connection is
 * there. */
static void test_delete_of_1_13(void **state)
{
    int first = dial(state);
    int second = dial(state);
    int64_t nkeys;

    assert_int_equal(kolo_store_set(*state, "k", text("v")), KOLO_OK);
    say(first, "06");
    hear(first, "0100000000000000");
    say(first, "08 0200000000000000 2f6b");
    hear(first, "0100000000000000");
    close(second);
    say(first, "08 0200000000000000 2f6b"); /* it is known from then on */
    hear(first, "0000000000000000");
    close(first);
    first = dial(state);
    say(first, "06 08 0200000000000000 2f6b");
    hear(first, "0000000000000000");
    assert_int_equal(kolo_store_num_keys(*state, &nkeys), 0); /* it has read what it cannot tell */
    second = dial(state);
    hear(first, "0000000000000000");
    say(second, "07 0200000000000000 2f6b");
    hear(second, "03");
    close(first);
    close(second);
}

/* Of two clients of 1.13 on one host one may go with what the other was told from. */
static void test_delete_of_two_1_13(void **state)
{
    int firsts[2], seconds[2];

    for (int i = 0; i < 2; i++) {
        firsts[i] = dial(state);
        say(firsts[i], "06");
        hear(firsts[i], "0000000000000000");
        seconds[i] = dial(state);
    }
    for (int i = 1; i >= 0; i--) {
        say(firsts[i], "08 0200000000000000 2f6b");
        hear(firsts[i], "0000000000000000");
        close(firsts[i]);
        close(seconds[i]);
        work_honestly(state);
    }
}

/* One that watches before its first connection has said anything. */
static void test_watch_first(void **state)
{
    int first = dial(state);
    int second = dial(state);

    say(second, "07 0200000000000000 2f6b");
    hear(second, "03");
    say(first, "08 0200000000000000 2f6b");
    hear(first, "0000000000000000");
    close(first);
    close(second);
}

/* Or while that is saying it. */
static void test_watch_beside_half_a_message(void **state)
{
    int first = dial(state);
    int second = dial(state);
    int64_t nkeys;

    assert_int_equal(kolo_store_set(*state, "k", text("v")), KOLO_OK);
    say(first, "00 0200000000000000 2f6b 0200000000000000 77");
    assert_int_equal(kolo_store_num_keys(*state, &nkeys), 0); /* it has read so far */
    say(second, "07 0200000000000000 2f6b");
    hear(second, "03");
    say(first, "77");
    hear(second, "00 0200000000000000 2f6b 0100000000000000 76 0200000000000000 7777");
    close(first);
    close(second);
}

/* A client of 2.1 has one connection, and its DELETE and APPEND are never taken for what 1.13
 * means, however they are cut. */
static void test_2_1(void **state)
{
    int fd = dial(state);
    void *value;
    size_t nbytes;
    int64_t nkeys;

    say(fd, "07 0200000000000000 2f6b");
    hear(fd, "0000000000000000");
    close(fd);
    fd = dial(state);
    say(fd, "06 08 0200000000000000 2f6b");
    hear(fd, "0000000000000000");
    assert_int_equal(kolo_store_num_keys(*state, &nkeys), 0); /* it has read so far */
    say(fd, "01000000");
    assert_int_equal(kolo_store_num_keys(*state, &nkeys), 0);
    say(fd, "00000000 76 09 0100000000000000 0200000000000000 2f6b");
    hear(fd, "0100000000000000 76");
    say(fd, "05 0100000000000000 0200000000000000 2f6e"); /* wait n */
    say(fd, "0b");
    hear(fd, "01");
    close(fd);
    assert_int_equal(kolo_store_get(*state, "k", &value, &nbytes), KOLO_OK);
    assert_string_equal(value, "v");
    kolo_free(value);
}

/* One of which it cannot be told what it wants is told so, and loses nothing. */
static void test_unsure_for_too_long(void **state)
{
    int fd = dial(state);
    int is_there;

    assert_int_equal(kolo_store_set(*state, "k", text("v")), KOLO_OK);
    say(fd, "06");
    hear(fd, "0100000000000000");
    say(fd, "08 0200000000000000 2f6b");
    hear_end(fd);
    assert_int_equal(kolo_store_check(*state, (const char *[]){"k"}, 1, &is_there), KOLO_OK);
    assert_true(is_there);
    close(fd);
}

/* A process whose descriptors have run out still serves those whom it has. */
static void test_no_descriptors(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)kolo_store_port(*state)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rlimit limit;
    int known = dial(state);
    int waiting = socket(AF_INET, SOCK_STREAM, 0);
    int lowest_free;
    int err;

    say(known, validate);
    hear_nothing(known);
    lowest_free = dup(0);
    assert_true(lowest_free >= 0);
    close(lowest_free);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)lowest_free, limit.rlim_max});
    err = connect(waiting, (struct sockaddr *)&address, sizeof address);
    for (int i = 0; i < 20 && !err; i++)
        err = kolo_store_set(*state, "k", text("v"));
    setrlimit(RLIMIT_NOFILE, &limit); /* before anything is asserted: other tests need some */
    assert_int_equal(err, 0);
    hear_nothing(known);
    say(waiting, validate); /* the queue has not forgotten it */
    hear_nothing(waiting);
    close(known);
    close(waiting);
}

/* Clients that leave large messages half-sent fill the server's memory until the largest go. */
static void test_hoarders(void **state)
{
    enum { HOARDERS = 8, HALF = 5 << 20 };
    static const struct ko_server_limits limits = {.table_bytes = 64 << 20,
                                                   .buffer_bytes = 64 << 20};
    ko_deadline deadline = ko_deadline_in(60000);
    ko_deadline now = ko_deadline_in(0);
    char *half = calloc(1, HALF);
    struct ko_server *server;
    kolo_store *honest;
    void *honest_state;
    int fds[HOARDERS];
    char byte;
    int cut = 0;

    (void)state;
    assert_int_equal(ko_server_open("127.0.0.1", 0, &limits, &deadline, &server), KOLO_OK);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", ko_server_port(server), 0, 60000, &honest),
                     KOLO_OK);
    honest_state = honest;
    for (int i = 0; i < HOARDERS; i++) {
        fds[i] = dial(&honest_state);
        say(fds[i], "00 cef7853c 01 0200000000000000 2f6b 0000800000000000");
        ko_socket_send_all(fds[i], half, HALF, &deadline); /* some are cut off meanwhile */
        work_honestly(&honest_state);
    }
    assert_int_equal(kolo_store_set(honest, "large", (kolo_bytes){half, HALF}), KOLO_OK);
    for (int i = 0; i < HOARDERS; i++) {
        cut += ko_socket_recv_all(fds[i], &byte, 1, &now) == KOLO_E_PEER_LOST;
        close(fds[i]);
    }
    assert_in_range(cut, 1, HOARDERS);
    kolo_store_close(honest);
    ko_server_close(server);
    free(half);
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
    work_honestly(state);
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

int main(void)
{
#define SERVED(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    static const struct CMUnitTest tests[] = {
        SERVED(test_wait_and_cancel),
        SERVED(test_get_waits),
        SERVED(test_bytes_one_by_one),
        SERVED(test_many_in_one_write),
        SERVED(test_queue_hands_on),
        SERVED(test_set_and_hang_up),
        SERVED(test_garbage_is_cut_off),
        SERVED(test_silence),
        SERVED(test_never_reads),
        cmocka_unit_test(test_multi_get_is_bounded),
        SERVED(test_flood_of_connections),
        SERVED(test_silent_second_connection),
        SERVED(test_delete_of_1_13),
        SERVED(test_delete_of_two_1_13),
        SERVED(test_watch_first),
        SERVED(test_watch_beside_half_a_message),
        SERVED(test_2_1),
        SERVED(test_unsure_for_too_long),
        SERVED(test_no_descriptors),
        cmocka_unit_test(test_hoarders),
        SERVED(test_port_is_taken),
        SERVED(test_address),
    };
    return cmocka_run_group_tests_name("store server", tests, NULL, NULL);
}
