/* SPDX-License-Identifier: MIT
 *
 * Clients of a store's server that misbehave while an honest one works.
 */
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_served.h"
#include "store_server.h"
#include "store_text.h"
#include "store_wire.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char validate[] = "00 cef7853c";

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
        fd = store_dial(state);
        say(fd, garbage[i]);
        hear_end(fd);
        store_work_honestly(state);
    }
}

/* Half-silent strangers go after their time; a silent one, or one that is introduced, may be. */
static void test_silence(void **state)
{
    int silent = store_dial(state);
    int half = store_dial(state);
    int idle = store_dial(state);

    say(half, "00 cef7");
    say(idle, validate);
    say(idle, "01 0200000000000000 2f6b 0100800000000000"); /* too long: that one goes at once */
    hear_end(idle);
    idle = store_dial(state);
    say(idle, validate);
    say(idle, "01 0200000000000000 2f6b 0000800000000000 7676"); /* 2 bytes of 8 MiB */
    store_work_honestly(state);
    hear_end(half);
    store_work_honestly(state);
    say(silent, validate);
    store_hear_nothing(silent);
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
    int fd = store_dial(state);

    assert_int_equal(kolo_store_set(*state, "b", (kolo_bytes){big, 1 << 20}), KOLO_OK);
    say(fd, validate);
    wire_unhex("03 0200000000000000 2f62", ask);
    for (size_t i = 0; i < ASKED; i++)
        memcpy(asks + i * MESSAGE, ask, MESSAGE);
    deadline = ko_deadline_in(300);
    assert_int_equal(ko_socket_send_all(fd, asks, (size_t)ASKED * MESSAGE, &deadline),
                     KOLO_E_TIMEOUT);
    store_work_honestly(state);
    deadline = ko_deadline_in(60000); /* once it reads, it is served */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ko_socket_recv_all(fd, answer, (1 << 20) + 8, &deadline), KOLO_OK);
        assert_int_equal(ko_wire_u64(answer), 1 << 20);
    }
    close(fd);
    store_work_honestly(state);
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
    fd = store_dial(&honest_state);
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
        store_work_honestly(&honest_state);
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
    close(store_dial(state));
}

/* More strangers than are kept: the oldest go, and a newcomer who introduces himself is served.
 */
static void test_flood_of_connections(void **state)
{
    enum { FLOOD = 300 };
    kolo_store *late;
    int fds[FLOOD];

    for (int i = 0; i < FLOOD; i++)
        fds[i] = store_dial(state);
    outlast_silence(state);
    store_work_honestly(state);
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
    int first = store_dial(state);
    int second = store_dial(state);
    int fds[FLOOD];

    say(first, "06");
    hear(first, "0000000000000000");
    for (int i = 0; i < FLOOD; i++)
        fds[i] = store_dial(state);
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
    int first = store_dial(state);
    int second = store_dial(state);
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
    first = store_dial(state);
    say(first, "06 08 0200000000000000 2f6b");
    hear(first, "0000000000000000");
    assert_int_equal(kolo_store_num_keys(*state, &nkeys), 0); /* it has read what it cannot tell */
    second = store_dial(state);
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
        firsts[i] = store_dial(state);
        say(firsts[i], "06");
        hear(firsts[i], "0000000000000000");
        seconds[i] = store_dial(state);
    }
    for (int i = 1; i >= 0; i--) {
        say(firsts[i], "08 0200000000000000 2f6b");
        hear(firsts[i], "0000000000000000");
        close(firsts[i]);
        close(seconds[i]);
        store_work_honestly(state);
    }
}

/* One that watches before its first connection has said anything. */
static void test_watch_first(void **state)
{
    int first = store_dial(state);
    int second = store_dial(state);

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
    int first = store_dial(state);
    int second = store_dial(state);
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
    int fd = store_dial(state);
    void *value;
    size_t nbytes;
    int64_t nkeys;

    say(fd, "07 0200000000000000 2f6b");
    hear(fd, "0000000000000000");
    close(fd);
    fd = store_dial(state);
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
    int fd = store_dial(state);
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
    int known = store_dial(state);
    int waiting = socket(AF_INET, SOCK_STREAM, 0);
    int lowest_free;
    int err;

    say(known, validate);
    store_hear_nothing(known);
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
    store_hear_nothing(known);
    say(waiting, validate); /* the queue has not forgotten it */
    store_hear_nothing(waiting);
    close(known);
    close(waiting);
}

/* The silent take half of its descriptors, however few that is. */
static void test_few_descriptors(void **state)
{
    enum { FEW = 64, SILENT = 2 * FEW };
    int fds[SILENT], port = 0;
    pid_t server = store_start_process(&port, FEW);
    ko_deadline deadline = ko_deadline_in(30000);
    kolo_store *honest;
    void *honest_state;

    (void)state;
    for (int i = 0; i < SILENT; i++)
        assert_int_equal(ko_socket_connect("127.0.0.1", port, &deadline, &fds[i]), KOLO_OK);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 10000, &honest), KOLO_OK);
    honest_state = honest;
    store_work_honestly(&honest_state);
    kolo_store_close(honest);
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
    store_stop_process(server);
}

/* Clients that leave large messages half-sent fill the server's memory until the largest go. */
static void test_hoarders(void **state)
{
    enum { HOARDERS = 12, HALF = 5 << 20 };
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
        fds[i] = store_dial(&honest_state);
        say(fds[i], "00 cef7853c 01 0200000000000000 2f6b 0000800000000000");
        ko_socket_send_all(fds[i], half, HALF, &deadline); /* some are cut off meanwhile */
        store_work_honestly(&honest_state);
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        STORE_SERVED(test_garbage_is_cut_off),
        STORE_SERVED(test_silence),
        STORE_SERVED(test_never_reads),
        cmocka_unit_test(test_multi_get_is_bounded),
        STORE_SERVED(test_flood_of_connections),
        STORE_SERVED(test_silent_second_connection),
        STORE_SERVED(test_delete_of_1_13),
        STORE_SERVED(test_delete_of_two_1_13),
        STORE_SERVED(test_watch_first),
        STORE_SERVED(test_watch_beside_half_a_message),
        STORE_SERVED(test_2_1),
        STORE_SERVED(test_unsure_for_too_long),
        STORE_SERVED(test_no_descriptors),
        cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_hoarders),
    };
    return cmocka_run_group_tests_name("store strangers", tests, NULL, NULL);
}
