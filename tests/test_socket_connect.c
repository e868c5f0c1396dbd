/* SPDX-License-Identifier: MIT
 *
 * Hosts with several addresses, some of which lead nowhere, and ways to say where to listen.
 */
#include "socket.h"
#include "status.h"
#include "store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ADDRESSES = 20 };

/* What getaddrinfo might give. */
struct book {
    int n;
    struct addrinfo entries[ADDRESSES];
    struct sockaddr_storage addresses[ADDRESSES];
};

static void add(struct book *book, const char *host, int port)
{
    struct addrinfo *entry = &book->entries[book->n];
    struct sockaddr_in *four = (struct sockaddr_in *)&book->addresses[book->n];
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&book->addresses[book->n];

    entry->ai_addr = (struct sockaddr *)four;
    if (strchr(host, ':')) {
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        assert_int_equal(inet_pton(AF_INET6, host, &six->sin6_addr), 1);
        entry->ai_addrlen = sizeof *six;
    } else {
        *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        assert_int_equal(inet_pton(AF_INET, host, &four->sin_addr), 1);
        entry->ai_addrlen = sizeof *four;
    }
    entry->ai_family = entry->ai_addr->sa_family;
    if (book->n > 0)
        book->entries[book->n - 1].ai_next = entry;
    book->n++;
}

/* A port that nobody listens on. */
static int dead_port(void)
{
    int fd, port;

    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &port), KOLO_OK);
    close(fd);
    return port;
}

/* A listener whose queue is full: connections to it neither fail nor come about. */
struct hole {
    int port;
    int fds[8];
};

static void dig(struct hole *hole)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    hole->fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(hole->fds[0], (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(hole->fds[0], 0), 0);
    assert_int_equal(getsockname(hole->fds[0], (struct sockaddr *)&address, &length), 0);
    hole->port = ntohs(address.sin_port);
    for (int i = 1; i < 8; i++)
        assert_int_equal(
            ko_socket_start((struct sockaddr *)&address, sizeof address, &hole->fds[i]), 0);
    usleep(50000);
}

static void fill_in(struct hole *hole)
{
    for (int i = 0; i < 8; i++)
        close(hole->fds[i]);
}

/* Addresses that lead nowhere cost a moment each, not their time-out. */
static void test_black_holes(void **state)
{
    ko_deadline limit = ko_deadline_in(60000);
    struct book book = {0};
    struct hole hole;
    char cause[200];
    char name[KO_SOCKET_NAME], expected[KO_SOCKET_NAME];
    int listener, port, fd = -1;

    (void)state;
    dig(&hole);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    add(&book, "127.0.0.1", hole.port);
    add(&book, "127.0.0.1", dead_port());
    add(&book, "127.0.0.1", hole.port);
    add(&book, "127.0.0.1", port);
    assert_int_equal(ko_socket_race(book.entries, &limit, &fd, cause, sizeof cause), 0);
    assert_true(ko_deadline_left_ms(&limit) > 30000);
    ko_socket_peer_name(fd, name);
    snprintf(expected, sizeof expected, "127.0.0.1:%d", port);
    assert_string_equal(name, expected);
    close(fd);
    close(listener);
    fill_in(&hole);
}

/* However many addresses of one family there are, the other one gets its turn. */
static void test_families_take_turns(void **state)
{
    ko_deadline limit = ko_deadline_in(60000);
    struct book book = {0};
    char cause[200];
    int listener, port, fd = -1;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    for (int i = 0; i < 18; i++)
        add(&book, "::1", dead_port());
    add(&book, "127.0.0.1", port);
    assert_int_equal(ko_socket_race(book.entries, &limit, &fd, cause, sizeof cause), 0);
    close(fd);
    close(listener);
}

static void test_causes(void **state)
{
    ko_deadline limit = ko_deadline_in(2000);
    struct book book = {0};
    struct hole hole;
    char cause[200] = "";
    int fd = -7;

    (void)state;
    dig(&hole);
    add(&book, "127.0.0.1", hole.port);
    add(&book, "127.0.0.2", dead_port());
    assert_int_equal(ko_socket_race(book.entries, &limit, &fd, cause, sizeof cause), EAGAIN);
    assert_string_equal(cause, "127.0.0.1: Connection timed out, 127.0.0.2: Connection refused");
    assert_int_equal(fd, -7);
    fill_in(&hole);
}

static int bind_loopback(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void *listen_late(void *fd)
{
    usleep(300000);
    return listen(*(int *)fd, 5) ? fd : NULL;
}

/* One that refuses until its program has started is tried again while another leads nowhere. */
static void test_late_beside_black_hole(void **state)
{
    ko_deadline limit = ko_deadline_in(30000);
    struct book book = {0};
    struct hole hole;
    char cause[200];
    pthread_t thread;
    void *failed;
    int port, fd = -1;
    int late = bind_loopback(&port);

    (void)state;
    dig(&hole);
    add(&book, "127.0.0.1", hole.port);
    add(&book, "127.0.0.1", port);
    assert_int_equal(pthread_create(&thread, NULL, listen_late, &late), 0);
    assert_int_equal(ko_socket_race(book.entries, &limit, &fd, cause, sizeof cause), 0);
    assert_true(ko_deadline_left_ms(&limit) > 15000);
    pthread_join(thread, &failed);
    assert_null(failed);
    close(fd);
    close(late);
    fill_in(&hole);
}

/* ---- where to listen ---------------------------------------------------------------------- */

static void test_port_range(void **state)
{
    enum { N = 3 };
    char range[32];
    int fds[N], ports[N], extra = -7, low = 0, port;
    int err = KOLO_E_SYSTEM;

    (void)state;
    while (err) {                    /* three ports in a row that are free */
        unsetenv("KOLO_PORT_RANGE"); /* or that which failed is all that dead_port has */
        low = dead_port();
        low = low > 65000 ? low - N : low;
        snprintf(range, sizeof range, "%d-%d", low, low + N - 1);
        setenv("KOLO_PORT_RANGE", range, 1);
        err = KOLO_OK;
        for (int i = 0; i < N; i++) {
            fds[i] = -1;
            err = err ? err : ko_socket_listen("127.0.0.1", 0, &fds[i], &ports[i]);
        }
        for (int i = 0; err && i < N; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
    for (int i = 0; i < N; i++)
        assert_in_range(ports[i], low, low + N - 1);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &extra, &port), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "are taken"));
    close(fds[1]);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &extra, &port), KOLO_OK);
    assert_int_equal(port, ports[1]);
    close(extra);
    setenv("KOLO_PORT_RANGE", "", 1);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &extra, &port), KOLO_OK);
    close(extra);
    close(fds[0]);
    close(fds[2]);
}

static void test_port_range_wrong(void **state)
{
    static const char *const ranges[] = {"1", "a-b", "0-5", "9-5", "1-65536", "5-9x", "-1-5", "5-"};
    int given = dead_port();
    int fd = -7, port;

    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        setenv("KOLO_PORT_RANGE", ranges[i], 1);
        assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &port), KOLO_E_INVALID);
        assert_non_null(strstr(kolo_last_error(), ranges[i]));
    }
    assert_int_equal(ko_socket_listen("127.0.0.1", given, &fd, &port), KOLO_OK);
    close(fd);
    unsetenv("KOLO_PORT_RANGE");
}

/* A store is served on a socket that somebody else has made, and only on its port. */
static void test_inherited_socket(void **state)
{
    kolo_store *store, *other;
    char number[16];
    int fd, port;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &port), KOLO_OK);
    snprintf(number, sizeof number, "%d", fd);
    setenv("KOLO_STORE_FD", number, 1);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 1, 30000, &store), KOLO_OK);
    assert_int_equal(kolo_store_port(store), port);
    assert_int_equal(kolo_store_set(store, "k", (kolo_bytes){"v", 1}), KOLO_OK);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", dead_port(), 1, 30000, &other), KOLO_OK);
    assert_int_not_equal(kolo_store_port(other), port);
    kolo_store_close(other);
    /* and for one server at a time */
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, 30000, &other), KOLO_OK);
    assert_int_not_equal(kolo_store_port(other), port);
    kolo_store_close(other);
    kolo_store_close(store);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, 30000, &store), KOLO_OK);
    assert_int_equal(kolo_store_port(store), port);
    kolo_store_close(store);
    close(fd);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 1, 1000, &store), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "KOLO_STORE_FD is "));
    unsetenv("KOLO_STORE_FD");
}

static void test_own_addresses(void **state)
{
    (void)state;
    assert_int_equal(ko_socket_check_address("KOLO_X", "127.0.0.1"), KOLO_OK);
    assert_int_equal(ko_socket_check_address("KOLO_X", "localhost"), KOLO_OK);
    assert_int_equal(ko_socket_check_address("KOLO_X", "lo"), KOLO_E_INVALID);
    assert_non_null(
        strstr(kolo_last_error(), "KOLO_X is \"lo\"; it takes an address of this machine"));
    assert_int_equal(ko_socket_check_address("KOLO_X", "192.0.2.1"), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "KOLO_X is \"192.0.2.1\"; it takes an address"));
    assert_non_null(strstr(kolo_last_error(), strerror(EADDRNOTAVAIL)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_black_holes),      cmocka_unit_test(test_families_take_turns),
        cmocka_unit_test(test_causes),           cmocka_unit_test(test_late_beside_black_hole),
        cmocka_unit_test(test_port_range),       cmocka_unit_test(test_port_range_wrong),
        cmocka_unit_test(test_inherited_socket), cmocka_unit_test(test_own_addresses),
    };
    return cmocka_run_group_tests_name("socket connect", tests, NULL, NULL);
}
