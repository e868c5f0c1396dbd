/* SPDX-License-Identifier: MIT
 *
 * Who gets a wire over tcp: with the token whoever knows it, as the rank that he is and to the rank
 * that he means, and nobody else; without one only this machine.
 */
#include "clock.h"
#include "folder.h"
#include "kolo.h"
#include "log.h"
#include "networks.h"
#include "ranks.h"
#include "secret.h"
#include "status.h"
#include "transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 20000 };

static const struct ko_transport *const tcp = &ko_transport_tcp;
static const char token[] = "the token of this test";

/* As tcp.c's address is laid out. */
struct address {
    char host[64];
    uint16_t port;
    int32_t rank;
    uint64_t id;
};

static struct ko_device *open_device(const char *host, int rank, const char *its_token)
{
    struct ko_site site = {.rank = rank};
    struct ko_device *device;

    snprintf(site.listen_host, sizeof site.listen_host, "%s", host);
    if (its_token)
        setenv("KOLO_AUTH_TOKEN", its_token, 1);
    else
        unsetenv("KOLO_AUTH_TOKEN");
    assert_int_equal(tcp->open(&site, &device), KOLO_OK);
    return device;
}

static struct address address_of(struct ko_device *device)
{
    unsigned char bytes[KO_ADDRESS_BYTES];
    struct address address;

    assert_int_equal(tcp->address(device, bytes), sizeof address);
    memcpy(&address, bytes, sizeof address);
    return address;
}

static struct ko_wire *connect_to(struct ko_device *from, const struct address *to)
{
    const struct ko_hello hello = {.magic = KO_HELLO_MAGIC,
                                   .version = KO_HELLO_VERSION,
                                   .group = 7,
                                   .from = 1,
                                   .to = 2,
                                   .slots = 2,
                                   .slice_bytes = 64};
    struct ko_wire *wire;

    assert_int_equal(tcp->connect(from, (const unsigned char *)to, sizeof *to, &hello, &wire),
                     KOLO_OK);
    return wire;
}

static struct ko_wire *accept_from(struct ko_device *device, struct ko_wire *caller)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    struct ko_wire *wire;
    int err;

    while ((err = tcp->accept(device, &wire)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        if (caller)
            (void)tcp->drive(caller);
        poll(NULL, 0, 1);
    }
    assert_int_equal(err, KOLO_OK);
    return wire;
}

/* Drives the caller, who hangs up when he fails. */
static void drive_caller(struct ko_wire **caller, int *status)
{
    if (*caller)
        *status = tcp->drive(*caller);
    if (*caller && *status) {
        tcp->hangup(*caller);
        *caller = NULL;
    }
}

/* Drives both until the acceptor has failed or has its hello, then hangs up. The acceptor's status,
 * and the caller's. */
static int meet(struct ko_wire *caller, struct ko_wire *acceptor, int *callers)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    int err = KOLO_OK;

    *callers = KOLO_OK;
    while (!acceptor->has_hello && !err) {
        assert_false(ko_deadline_passed(&deadline));
        drive_caller(&caller, callers);
        err = tcp->drive(acceptor);
        poll(NULL, 0, 1);
    }
    drive_caller(&caller, callers);
    assert_int_equal(acceptor->has_hello, err == KOLO_OK);
    tcp->hangup(caller);
    tcp->hangup(acceptor);
    return err;
}

/* ---- ranks ------------------------------------------------------------------------------- */

/* A caller of rank 1 with its token, towards that address, and an acceptor of rank 2 with another.
 */
static int attempt(const char *callers_token, const char *acceptors_token,
                   void (*change)(struct address *), int *callers)
{
    struct ko_device *left = open_device("127.0.0.1", 1, callers_token);
    struct ko_device *right = open_device("127.0.0.1", 2, acceptors_token);
    struct address address = address_of(right);
    struct ko_wire *caller, *acceptor;
    int err;

    if (change)
        change(&address);
    caller = connect_to(left, &address);
    acceptor = accept_from(right, caller);
    err = meet(caller, acceptor, callers);
    tcp->close(left);
    tcp->close(right);
    return err;
}

static void change_rank(struct address *address)
{
    address->rank = 1;
}

static void change_id(struct address *address)
{
    address->id ^= 1;
}

static void those_who_know(void **state)
{
    int callers;

    (void)state;
    assert_int_equal(attempt(token, token, NULL, &callers), KOLO_OK);
    assert_int_equal(callers, KOLO_OK);
    assert_int_equal(attempt(NULL, NULL, NULL, &callers), KOLO_OK);
}

static void those_who_do_not(void **state)
{
    int callers;

    (void)state;
    assert_int_equal(attempt("the token of that test", token, NULL, &callers), KOLO_E_PEER_LOST);
    assert_int_equal(callers, KOLO_E_PROTOCOL); /* he learns nothing, and says no more */
    assert_int_equal(attempt(NULL, token, NULL, &callers), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "token"));
    assert_int_equal(attempt(token, NULL, NULL, &callers), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "token"));
}

static void to_another_than_was_meant(void **state)
{
    int callers;

    (void)state;
    assert_int_equal(attempt(token, token, change_rank, &callers), KOLO_E_PROTOCOL);
    assert_int_equal(callers, KOLO_E_PROTOCOL);
    assert_int_equal(attempt(token, token, change_id, &callers), KOLO_E_PROTOCOL);
    assert_int_equal(callers, KOLO_E_PROTOCOL);
}

/* ---- strangers --------------------------------------------------------------------------- */

static int dial(const struct address *address)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(inet_pton(AF_INET, address->host, &where.sin_addr), 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    return fd;
}

/* Sends nbytes and closes; what the device makes of it. */
static int knock(struct ko_device *device, const void *bytes, size_t nbytes)
{
    const struct address address = address_of(device);
    int fd = dial(&address), ignored, err;
    struct ko_wire *wire = accept_from(device, NULL);

    assert_int_equal(send(fd, bytes, nbytes, MSG_NOSIGNAL), (ssize_t)nbytes);
    shutdown(fd, SHUT_WR);
    err = meet(NULL, wire, &ignored);
    close(fd);
    return err;
}

/* Takes down all that an honest caller says to somebody in the middle, who passes everything on. */
static size_t listen_in(struct ko_device *left, struct ko_device *right, unsigned char *heard,
                        size_t cap)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof where;
    struct address address = address_of(right);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ends[2];
    struct ko_wire *caller, *acceptor;
    size_t n = 0;

    ends[1] = dial(&address);
    acceptor = accept_from(right, NULL);
    assert_int_equal(bind(listener, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&where, &length), 0);
    address.port = ntohs(where.sin_port);
    caller = connect_to(left, &address);
    ends[0] = accept(listener, NULL, NULL);
    while (!acceptor->has_hello) {
        unsigned char bytes[256];
        ssize_t got = recv(ends[0], heard + n, cap - n, MSG_DONTWAIT);

        if (got > 0)
            assert_int_equal(send(ends[1], heard + n, (size_t)got, 0), got);
        n += got > 0 ? (size_t)got : 0;
        got = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0)
            assert_int_equal(send(ends[0], bytes, (size_t)got, 0), got);
        assert_int_equal(tcp->drive(caller), KOLO_OK);
        assert_int_equal(tcp->drive(acceptor), KOLO_OK);
    }
    tcp->hangup(caller);
    tcp->hangup(acceptor);
    close(ends[0]);
    close(ends[1]);
    close(listener);
    return n;
}

static bool contains(const unsigned char *bytes, size_t nbytes, const char *text)
{
    return memmem(bytes, nbytes, text, strlen(text)) != NULL;
}

/* What somebody in the middle sees of a hello, without and with KOLO_ENCRYPT; and the same again.
 */
static void encrypted(void **state)
{
    struct ko_device *device;
    int callers;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ko_device *left, *right;
        unsigned char heard[1024];
        size_t n;

        setenv("KOLO_ENCRYPT", i ? "1" : "0", 1);
        left = open_device("127.0.0.1", 1, token);
        right = open_device("127.0.0.1", 2, token);
        n = listen_in(left, right, heard, sizeof heard);
        assert_int_equal(contains(heard, n, "kolo"), !i); /* KO_HELLO_MAGIC */
        assert_int_equal(knock(right, heard, n), KOLO_E_PROTOCOL);
        tcp->close(left);
        tcp->close(right);
    }
    assert_int_equal(attempt(token, token, NULL, &callers), KOLO_OK);
    unsetenv("KOLO_AUTH_TOKEN");
    assert_int_equal(tcp->open(&(struct ko_site){.listen_host = "127.0.0.1"}, &device),
                     KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "KOLO_ENCRYPT=1 takes a token"));
    unsetenv("KOLO_ENCRYPT");
}

static void what_was_overheard(void **state)
{
    struct ko_device *left = open_device("127.0.0.1", 1, token);
    struct ko_device *right = open_device("127.0.0.1", 2, token);
    unsigned char heard[1024];
    size_t n = listen_in(left, right, heard, sizeof heard);

    (void)state;
    assert_int_equal(n, KO_HANDSHAKE_HELLO + KO_HANDSHAKE_PROOF + sizeof(struct ko_hello));
    /* all of it again, to the same rank and back to the one who said it; then cut short */
    assert_int_equal(knock(right, heard, n), KOLO_E_PROTOCOL);
    assert_int_equal(knock(left, heard, n), KOLO_E_PROTOCOL);
    for (size_t cut = 0; cut < KO_HANDSHAKE_HELLO + KO_HANDSHAKE_PROOF; cut++)
        assert_int_equal(knock(right, heard, cut), KOLO_E_PEER_LOST);
    /* the hello of a wire without what comes before it */
    assert_int_equal(knock(right, heard + n - sizeof(struct ko_hello), sizeof(struct ko_hello)),
                     KOLO_E_PROTOCOL);
    tcp->close(left);
    tcp->close(right);
}

/* A stranger is told why he is not let in. */
static void refusals_are_said(void **state)
{
    static const char *const words[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "x"};
    struct ko_device *device = open_device("127.0.0.1", 2, token);
    const struct address address = address_of(device);

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        unsigned char answer[KO_REFUSAL_BYTES + 1];
        int fd = dial(&address), ignored;
        struct ko_wire *wire = accept_from(device, NULL);

        assert_int_equal(send(fd, words[i], strlen(words[i]), 0), (ssize_t)strlen(words[i]));
        assert_int_equal(meet(NULL, wire, &ignored), KOLO_E_PROTOCOL);
        assert_int_equal(recv(fd, answer, sizeof answer, MSG_DONTWAIT), KO_REFUSAL_BYTES);
        assert_memory_equal(answer, ko_refusal, KO_REFUSAL_BYTES);
        close(fd);
    }
    tcp->close(device);
}

/* ---- nobody is asked ---------------------------------------------------------------------- */

static void join_as(const char *place, int rank)
{
    kolo_group *group = NULL;
    char url[300];
    int err;

    ko_log_reopen();
    snprintf(url, sizeof url, "%s?rank=%d&world_size=2", place, rank);
    err = kolo_group_join(url, LIMIT_MS, &group);
    if (!err)
        err = kolo_barrier(group);
    if (err)
        fprintf(stderr, "# rank %d: %s\n", rank, kolo_last_error());
    kolo_group_free(group);
    _exit(err);
}

/* What both ranks of a job, which are processes of their own, log as warnings. */
static void run_job(const char *place, const char *address, char *log, size_t cap)
{
    const char *path = folder_path("log");
    int status;

    remove(folder_path("store"));
    remove(path);
    setenv("KOLO_DEBUG_FILE", path, 1);
    setenv("KOLO_IFADDR", address, 1);
    folder_write(path, "", 0);
    for (int rank = 0; rank < 2; rank++)
        if (fork() == 0)
            join_as(place, rank);
    for (int rank = 0; rank < 2; rank++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    unsetenv("KOLO_DEBUG_FILE");
    unsetenv("KOLO_IFADDR");
    folder_read(path, log, cap);
}

/* Once in all, wherever the job is open: 0.0.0.0 is beyond the loopback on any machine. */
static void an_open_job_is_warned_of_once(void **state)
{
    static const struct {
        const char *scheme, *host, *address;
        const char *warned; /* NULL: nothing is */
    } rows[] = {
        {"file", "", "0.0.0.0", "is free to take part in the job"},
        {"file", "", "127.0.0.1", NULL},
        {"tcp", "127.0.0.1", "0.0.0.0", "is free to take part in the job"},
        {"tcp", "0.0.0.0", "0.0.0.0", "is free to read and change what the ranks keep there"},
        {"tcp", "0.0.0.0", "127.0.0.1", "is free to read and change what the ranks keep there"},
        {"tcp", "127.0.0.1", "127.0.0.1", NULL}};
    char place[200], log[4096];

    (void)state;
    unsetenv("KOLO_AUTH_TOKEN");
    setenv("KOLO_AUTH", "none", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *sentence;

        if (*rows[i].host)
            snprintf(place, sizeof place, "tcp://%s:%d", rows[i].host, ranks_reserve_port());
        else
            snprintf(place, sizeof place, "file://%s", folder_path("store"));
        run_job(place, rows[i].address, log, sizeof log);
        sentence = strstr(log, "whoever can connect to");
        assert_int_equal(sentence != NULL, rows[i].warned != NULL);
        if (!sentence)
            continue;
        assert_non_null(strstr(sentence, rows[i].warned));
        assert_null(strstr(sentence + 1, "whoever can connect to"));
    }
    unsetenv("KOLO_AUTH");
}

/* Ranks prove who they are to each other; only the store is open. */
static void a_job_with_a_token_is_not(void **state)
{
    char place[200], log[4096];

    (void)state;
    setenv("KOLO_AUTH_TOKEN", token, 1);
    snprintf(place, sizeof place, "file://%s", folder_path("store"));
    run_job(place, "0.0.0.0", log, sizeof log);
    assert_null(strstr(log, "whoever can connect to"));
    unsetenv("KOLO_AUTH_TOKEN");
}

/* ---- other machines ---------------------------------------------------------------------- */

/* A caller on one host, an acceptor on another. */
static int between_hosts(const struct networks *networks, const char *its_token, int *callers)
{
    struct ko_device *left, *right;
    struct ko_wire *caller, *acceptor;
    struct address address;
    char host[64];
    int err;

    assert_int_equal(networks_enter(networks, 1), 0);
    right = open_device(networks_address(1, host, sizeof host), 2, its_token);
    assert_int_equal(networks_enter(networks, 0), 0);
    left = open_device(networks_address(0, host, sizeof host), 1, its_token);
    address = address_of(right);
    caller = connect_to(left, &address);
    acceptor = accept_from(right, caller);
    err = meet(caller, acceptor, callers);
    tcp->close(left);
    tcp->close(right);
    assert_int_equal(networks_enter(networks, -1), 0);
    return err;
}

static void other_machines(void **state)
{
    struct networks networks;
    struct ko_device *device;
    struct address address;
    struct ko_wire *caller;
    char host[64];
    int callers;

    (void)state;
    if (networks_open(&networks, 2))
        skip();
    assert_int_equal(between_hosts(&networks, token, &callers), KOLO_OK);
    assert_int_equal(callers, KOLO_OK);
    assert_int_equal(between_hosts(&networks, NULL, &callers), KOLO_E_PROTOCOL);
    assert_int_equal(callers, KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "on another machine"));
    assert_non_null(strstr(kolo_last_error(), "KOLO_AUTH=none"));
    setenv("KOLO_AUTH", "none", 1);
    assert_int_equal(between_hosts(&networks, NULL, &callers), KOLO_OK);
    unsetenv("KOLO_AUTH");
    /* A rank on the same host comes by its outer address too. */
    assert_int_equal(networks_enter(&networks, 1), 0);
    device = open_device(networks_address(1, host, sizeof host), 2, NULL);
    address = address_of(device);
    caller = connect_to(device, &address);
    assert_int_equal(meet(caller, accept_from(device, caller), &callers), KOLO_OK);
    tcp->close(device);
    assert_int_equal(networks_enter(&networks, -1), 0);
    networks_close(&networks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_know),
        cmocka_unit_test(those_who_do_not),
        cmocka_unit_test(to_another_than_was_meant),
        cmocka_unit_test(what_was_overheard),
        cmocka_unit_test(encrypted),
        cmocka_unit_test(refusals_are_said),
        cmocka_unit_test(an_open_job_is_warned_of_once),
        cmocka_unit_test(a_job_with_a_token_is_not),
        cmocka_unit_test(other_machines),
    };

    setenv("KOLO_TCP_SOCKETS", "1", 1);
    return cmocka_run_group_tests_name("tcp proof", tests, folder_make, folder_remove);
}
