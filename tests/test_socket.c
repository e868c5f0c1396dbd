/* SPDX-License-Identifier: MIT */
#include "fault.h"
#include "poller.h"
#include "socket.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two ends of one connection. */
static void make_pair(int ends[2])
{
    ko_deadline deadline = ko_deadline_in(30000);
    int listener;
    int port;

    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    assert_int_equal(ko_socket_connect("127.0.0.1", port, &deadline, &ends[0]), KOLO_OK);
    assert_int_equal(ko_socket_wait(listener, KO_POLL_IN, &deadline), KOLO_OK);
    assert_int_equal(ko_socket_accept(listener, &ends[1]), KOLO_OK);
    close(listener);
}

/* More often than firewalls forget connections, which is after 240 s at the least. */
static void check_probes(int fd)
{
    static const int names[] = {TCP_KEEPIDLE, TCP_KEEPINTVL};
    int seconds, on;
    socklen_t length = sizeof on;

    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &length), 0);
    assert_true(on);
    for (int i = 0; i < 2; i++) {
        length = sizeof seconds;
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, names[i], &seconds, &length), 0);
        assert_in_range(seconds, 1, 120);
    }
}

static void test_properties(void **state)
{
    int ends[2];
    int on;
    socklen_t length;
    char own[KO_SOCKET_NAME];
    char peer[KO_SOCKET_NAME];

    (void)state;
    make_pair(ends);
    for (int i = 0; i < 2; i++) {
        on = 0;
        length = sizeof on;
        assert_int_equal(getsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
        assert_true(on);
        check_probes(ends[i]);
        assert_true(fcntl(ends[i], F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
        ko_socket_own_name(ends[i], own);
        ko_socket_peer_name(ends[!i], peer);
        assert_string_equal(own, peer);
        assert_memory_equal(own, "127.0.0.1:", 10);
    }
    close(ends[0]);
    close(ends[1]);
    ko_socket_own_name(-1, own);
    assert_string_equal(own, "unknown");
    ko_socket_peer_name(-1, own);
    assert_string_equal(own, "unknown");
}

static void test_listen_errors(void **state)
{
    char where[32];
    int listener;
    int port;
    int fd = -7;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    assert_in_range(port, 1, 65535);
    assert_int_equal(ko_socket_listen("127.0.0.1", port, &fd, &port), KOLO_E_SYSTEM);
    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    assert_non_null(strstr(kolo_last_error(), where));
    assert_non_null(strstr(kolo_last_error(), "another port"));
    assert_int_equal(ko_socket_listen("192.0.2.1", 0, &fd, &port), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "no such address"));
    assert_int_equal(ko_socket_listen("no-such-host.invalid", 0, &fd, &port), KOLO_E_SYSTEM);
    assert_int_equal(ko_socket_listen("127.0.0.1", 65536, &fd, &port), KOLO_E_INVALID);
    assert_int_equal(ko_socket_listen("127.0.0.1", -1, &fd, &port), KOLO_E_INVALID);
    assert_int_equal(fd, -7);
    close(listener);
    assert_int_equal(ko_socket_listen(NULL, 0, &fd, &port), KOLO_OK);
    close(fd);
    assert_int_equal(ko_socket_listen("", 0, &fd, &port), KOLO_OK);
    close(fd);
}

static void test_accept(void **state)
{
    int listener;
    int port;
    int fd = -7;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    assert_int_equal(ko_socket_accept(listener, &fd), KO_AGAIN);
    close(listener);
    assert_int_equal(ko_socket_accept(listener, &fd), KOLO_E_SYSTEM);
    assert_int_equal(fd, -7);
}

static void test_connect_errors(void **state)
{
    ko_deadline soon = ko_deadline_in(150);
    char where[32];
    int fd = -7;
    int port;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &port), KOLO_OK);
    close(fd);
    fd = -7;
    assert_int_equal(ko_socket_connect("127.0.0.1", port, &soon, &fd), KOLO_E_TIMEOUT);
    snprintf(where, sizeof where, "127.0.0.1:%d within 150 ms", port);
    assert_non_null(strstr(kolo_last_error(), where));
    assert_non_null(strstr(kolo_last_error(), "refused"));
    assert_null(strstr(kolo_last_error(), "tried 1 time)")); /* it did not give up at once */
    assert_non_null(strstr(kolo_last_error(), " times)"));
    soon = ko_deadline_in(0);
    assert_int_equal(ko_socket_connect("127.0.0.1", port, &soon, &fd), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "(tried 1 time)"));
    soon = ko_deadline_in(1);
    assert_int_equal(ko_socket_connect("no-such-host.invalid", 1, &soon, &fd), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "no-such-host.invalid:1"));
    assert_int_equal(ko_socket_connect("127.0.0.1", 0, &soon, &fd), KOLO_E_INVALID);
    assert_int_equal(ko_socket_connect("", 1, &soon, &fd), KOLO_E_INVALID);
    assert_int_equal(ko_socket_connect(NULL, 1, &soon, &fd), KOLO_E_INVALID);
    assert_int_equal(fd, -7);
}

struct late {
    int port;
    int fd;
    int err;
};

static void *listen_late(void *argument)
{
    struct late *late = argument;
    int port;

    usleep(100000);
    late->err = ko_socket_listen("127.0.0.1", late->port, &late->fd, &port);
    return NULL;
}

/* Who connects may start before who listens. */
static void test_connect_retries(void **state)
{
    ko_deadline deadline = ko_deadline_in(30000);
    struct late late = {.err = -1};
    pthread_t thread;
    int fd;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &late.port), KOLO_OK);
    close(fd);
    assert_int_equal(pthread_create(&thread, NULL, listen_late, &late), 0);
    assert_int_equal(ko_socket_connect("127.0.0.1", late.port, &deadline, &fd), KOLO_OK);
    pthread_join(thread, NULL);
    assert_int_equal(late.err, KOLO_OK);
    close(fd);
    close(late.fd);
}

/* localhost is 127.0.0.1 and often ::1 too; only one of them listens. */
static void test_connect_tries_all_addresses(void **state)
{
    ko_deadline deadline = ko_deadline_in(30000);
    char name[KO_SOCKET_NAME];
    int listener;
    int port;
    int fd;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    assert_int_equal(ko_socket_connect("localhost", port, &deadline, &fd), KOLO_OK);
    close(fd);
    close(listener);
    if (ko_socket_listen("::1", 0, &listener, &port))
        return; /* no IPv6 here */
    assert_int_equal(ko_socket_connect("::1", port, &deadline, &fd), KOLO_OK);
    ko_socket_peer_name(fd, name);
    assert_memory_equal(name, "[::1]:", 6);
    close(fd);
    close(listener);
}

static void test_connect_start(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    ko_deadline deadline = ko_deadline_in(30000);
    int listener;
    int port;
    int fd;

    (void)state;
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    address.sin_port = htons((uint16_t)port);
    assert_int_equal(ko_socket_connect_start((struct sockaddr *)&address, sizeof address, &fd),
                     KOLO_OK);
    assert_int_equal(ko_socket_wait(fd, KO_POLL_OUT, &deadline), KOLO_OK);
    assert_int_equal(ko_socket_connected(fd), KOLO_OK);
    close(fd);
    close(listener);
    assert_int_equal(ko_socket_connect_start((struct sockaddr *)&address, sizeof address, &fd),
                     KOLO_OK);
    assert_int_equal(ko_socket_wait(fd, KO_POLL_OUT, &deadline), KOLO_OK);
    assert_int_equal(ko_socket_connected(fd), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "refused"));
    close(fd);
    assert_int_equal(ko_socket_connected(fd), KOLO_E_SYSTEM);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(ko_socket_connected(fd), KO_AGAIN);
    close(fd);
    address.sin_family = AF_UNIX;
    assert_int_equal(ko_socket_connect_start((struct sockaddr *)&address, sizeof address, &fd),
                     KOLO_E_SYSTEM);
}

enum { BULK = 16 << 20 };

static void *send_bulk(void *argument)
{
    ko_deadline deadline = ko_deadline_in(60000);
    int *fd = argument;
    uint8_t *bytes = malloc(BULK);

    for (size_t i = 0; i < BULK; i++)
        bytes[i] = (uint8_t)(i * 31 >> 7);
    *fd = ko_socket_send_all(*fd, bytes, BULK, &deadline);
    free(bytes);
    return NULL;
}

/* More than the system buffers, so that both ends have to wait in between. */
static void test_bulk(void **state)
{
    ko_deadline deadline = ko_deadline_in(60000);
    uint8_t *bytes = malloc(BULK);
    pthread_t thread;
    int ends[2];
    int sender;

    (void)state;
    make_pair(ends);
    sender = ends[0];
    assert_int_equal(pthread_create(&thread, NULL, send_bulk, &sender), 0);
    assert_int_equal(ko_socket_recv_all(ends[1], bytes, BULK, &deadline), KOLO_OK);
    pthread_join(thread, NULL);
    assert_int_equal(sender, KOLO_OK);
    for (size_t i = 0; i < BULK; i++)
        if (bytes[i] != (uint8_t)(i * 31 >> 7))
            fail_msg("byte %zu differs", i);
    free(bytes);
    close(ends[0]);
    close(ends[1]);
}

static void test_deadlines_and_ends(void **state)
{
    const struct linger at_once = {.l_onoff = 1};
    ko_deadline soon = ko_deadline_in(20);
    char *bytes = calloc(1, BULK);
    int ends[2];

    (void)state;
    make_pair(ends);
    assert_int_equal(ko_socket_recv_all(ends[0], bytes, 1, &soon), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "127.0.0.1:"));
    assert_non_null(strstr(kolo_last_error(), "20 ms"));
    assert_int_equal(ko_socket_wait(ends[0], KO_POLL_IN, &soon), KOLO_E_TIMEOUT);
    assert_int_equal(ko_socket_wait(ends[0], KO_POLL_OUT, &soon), KOLO_OK);
    assert_int_equal(ko_socket_send_all(ends[0], bytes, BULK, &soon), KOLO_E_TIMEOUT);
    assert_int_equal(ko_socket_recv_all(ends[0], bytes, 0, &soon), KOLO_OK);
    close(ends[1]);
    soon = ko_deadline_in(30000);
    assert_int_equal(ko_socket_recv_all(ends[0], bytes, 1, &soon), KOLO_E_PEER_LOST);
    assert_int_equal(ko_socket_send_all(ends[0], bytes, BULK, &soon), KOLO_E_PEER_LOST);
    close(ends[0]);
    make_pair(ends);
    shutdown(ends[1], SHUT_WR);
    assert_int_equal(ko_socket_recv_all(ends[0], bytes, 1, &soon), KOLO_E_PEER_LOST);
    assert_non_null(strstr(kolo_last_error(), "closed the connection"));
    close(ends[0]);
    close(ends[1]);
    make_pair(ends);
    setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(ends[1]); /* a reset, after which the system does not know any more who was there */
    assert_int_equal(ko_socket_recv_all(ends[0], bytes, 1, &soon), KOLO_E_PEER_LOST);
    assert_non_null(strstr(kolo_last_error(), "receiving from the other end: "));
    assert_int_equal(ko_socket_recv_all(ends[0], bytes, 1, &soon), KOLO_E_PEER_LOST);
    assert_non_null(strstr(kolo_last_error(), "receiving from the other end: it closed the conn"));
    close(ends[0]);
    free(bytes);
}

static void test_faults(void **state)
{
    ko_deadline deadline = ko_deadline_in(30000);
    ko_deadline passed = ko_deadline_in(0);
    char byte = 0;
    int ends[2];
    int listener;
    int port;
    int fd;

    (void)state;
    ko_fault_arm(KO_FAULT_SOCKET, 1);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_E_SYSTEM);
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &listener, &port), KOLO_OK);
    ko_fault_arm(KO_FAULT_SOCKET, 1);
    assert_int_equal(ko_socket_connect("127.0.0.1", port, &deadline, &fd), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "127.0.0.1"));
    assert_int_equal(ko_socket_connect("127.0.0.1", port, &deadline, &fd), KOLO_OK);
    assert_int_equal(ko_socket_wait(listener, KO_POLL_IN, &deadline), KOLO_OK);
    ko_fault_arm(KO_FAULT_SOCKET, 1);
    assert_int_equal(ko_socket_accept(listener, &ends[1]), KO_AGAIN);
    close(fd);
    close(listener);
    make_pair(ends);
    ko_fault_arm(KO_FAULT_SEND, 1);
    assert_int_equal(ko_socket_send_all(ends[0], &byte, 1, &deadline), KOLO_E_PEER_LOST);
    ko_fault_arm(KO_FAULT_RECV, 1);
    assert_int_equal(ko_socket_recv_all(ends[0], &byte, 1, &passed), KOLO_E_PEER_LOST);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_listen_errors),
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_connect_errors),
        cmocka_unit_test(test_connect_retries),
        cmocka_unit_test(test_connect_tries_all_addresses),
        cmocka_unit_test(test_connect_start),
        cmocka_unit_test(test_bulk),
        cmocka_unit_test(test_deadlines_and_ends),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("socket", tests, NULL, NULL);
}
