/* SPDX-License-Identifier: MIT
 *
 * Who gets to a store over TCP: with the token whoever knows it, and not a byte of what anybody
 * else says is looked at; without one only this machine; and PyTorch's clients where that is
 * chosen.
 */
#include "clock.h"
#include "descriptors.h"
#include "folder.h"
#include "kolo.h"
#include "log_file.h"
#include "networks.h"
#include "secret.h"
#include "socket.h"
#include "store_server.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 20000 };

static const char token[] = "the token of this test";
static const kolo_bytes value = {"value", 5};

static void use_token(const char *text)
{
    if (text)
        setenv("KOLO_AUTH_TOKEN", text, 1);
    else
        unsetenv("KOLO_AUTH_TOKEN");
}

static int forget_all(void **state)
{
    (void)state;
    unsetenv("KOLO_AUTH");
    unsetenv("KOLO_AUTH_STORE");
    unsetenv("KOLO_AUTH_TOKEN");
    return 0;
}

static kolo_store *serve(const char *host)
{
    kolo_store *store;

    assert_int_equal(kolo_store_open_tcp(host, 0, 1, LIMIT_MS, &store), KOLO_OK);
    assert_int_equal(kolo_store_set(store, "key", value), KOLO_OK);
    return store;
}

/* Joins and reads; the status of joining. */
static int join(const char *host, int port)
{
    kolo_store *store;
    void *got;
    size_t nbytes;
    int err = kolo_store_open_tcp(host, port, 0, LIMIT_MS, &store);

    if (err)
        return err;
    assert_int_equal(kolo_store_get(store, "key", &got, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, value.nbytes);
    assert_memory_equal(got, value.data, nbytes);
    kolo_free(got);
    kolo_store_close(store);
    return KOLO_OK;
}

static int dial_port(int port)
{
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ko_descriptors_note(fd); /* the server lives in the same process */
    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    return fd;
}

static int dial(kolo_store *store)
{
    return dial_port(kolo_store_port(store));
}

/* PyTorch's clients do not say why they were refused: the server's log does, by their address, and
 * once for many. */
static void who_is_refused_is_named(void **state)
{
    enum { N = 20 };
    static const char words[] = "of anybody who has no token";
    char line[LOG_LINE], name[KO_SOCKET_NAME], byte;
    kolo_store *store;

    (void)state;
    log_file_open("WARN");
    use_token(token);
    store = serve("127.0.0.1");
    for (int i = 0; i < N; i++) {
        const int fd = dial(store);

        if (i == 0)
            ko_socket_own_name(fd, name);
        assert_int_equal(send(fd, words, sizeof words, MSG_NOSIGNAL), sizeof words);
        while (recv(fd, &byte, 1, 0) > 0)
            ;
        close(fd);
    }
    kolo_store_close(store);
    assert_int_equal(log_file_close("to the store was closed: ", line), 1);
    assert_non_null(strstr(line, name));
}

/* A client with another token is gone as soon as it sees that; one that only knocks is not named.
 */
static void who_has_another_token_is_named(void **state)
{
    char line[LOG_LINE];
    kolo_store *store;
    int64_t nkeys;

    (void)state;
    log_file_open("WARN");
    use_token(token);
    store = serve("127.0.0.1");
    close(dial(store));
    use_token("another one of some length");
    assert_int_equal(join("127.0.0.1", kolo_store_port(store)), KOLO_E_PROTOCOL);
    assert_int_equal(kolo_store_num_keys(store, &nkeys), KOLO_OK); /* behind that one's end */
    kolo_store_close(store);
    assert_int_equal(log_file_close("to the store was closed: ", line), 1);
    assert_non_null(strstr(line, "ended while the token was to be proven"));
    assert_non_null(strstr(line, "does the other end have the same?"));
}

/* The clients' words and errors, each within the first moments of LIMIT_MS. */
static void tokens(void **state)
{
    static const struct {
        const char *servers, *clients;
        int status;
        const char *text;
    } rows[] = {
        {token, token, KOLO_OK, ""},
        {NULL, NULL, KOLO_OK, ""},
        {token, NULL, KOLO_E_PROTOCOL, "asks for a token"},
        {token, "another one of some length", KOLO_E_PROTOCOL, "another token than this one"},
        {NULL, token, KOLO_E_PROTOCOL,
         "refuses this one's token, or has none, or KOLO_ENCRYPT differs"},
    };
    kolo_store *store;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        use_token(rows[i].servers);
        store = serve("127.0.0.1");
        use_token(rows[i].clients);
        assert_int_equal(join("127.0.0.1", kolo_store_port(store)), rows[i].status);
        if (rows[i].status)
            assert_non_null(strstr(kolo_last_error(), rows[i].text));
        kolo_store_close(store);
    }
    use_token("short");
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, LIMIT_MS, &store), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 1, 0, LIMIT_MS, &store), KOLO_E_INVALID);
}

/* PyTorch's client is told at once, before anything that it has said is carried out. */
static void clients_of_pytorch(void **state)
{
    kolo_store *store;
    int64_t nkeys;
    int fd;

    (void)state;
    use_token(token);
    store = serve("127.0.0.1");
    fd = dial(store);
    say(fd, "00 cef7853c 01 0200000000000000 2f6b 0100000000000000 76");
    hear(fd, "4b4f4c4f64656e79");
    hear_end(fd);
    fd = dial(store); /* 1.13: SET */
    say(fd, "00 0200000000000000 2f6b 0100000000000000 76");
    hear(fd, "4b4f4c4f64656e79");
    hear_end(fd);
    assert_int_equal(kolo_store_num_keys(store, &nkeys), KOLO_OK);
    assert_int_equal(nkeys, 1);
    kolo_store_close(store);
}

static void where_that_is_chosen(void **state)
{
    kolo_store *store;
    int fd;

    (void)state;
    use_token(token);
    setenv("KOLO_AUTH_STORE", "none", 1);
    store = serve("127.0.0.1");
    fd = dial(store);
    say(fd, "00 cef7853c 0d 01020304");
    hear(fd, "01020304");
    close(fd);
    assert_int_equal(join("127.0.0.1", kolo_store_port(store)), KOLO_OK);
    kolo_store_close(store);
}

/* ---- by hand ------------------------------------------------------------------------------ */

static struct ko_handshake begin(const struct ko_claim *claim)
{
    struct ko_handshake handshake;
    struct ko_secret secret;

    assert_int_equal(ko_secret_make(token, strlen(token), &secret), KOLO_OK);
    assert_int_equal(ko_handshake_begin(&handshake, &secret, claim, true), KOLO_OK);
    return handshake;
}

static void send_pieces(int fd, const unsigned char *bytes, size_t nbytes, size_t cut)
{
    assert_int_equal(send(fd, bytes, cut, MSG_NOSIGNAL), (ssize_t)cut);
    if (cut && cut < nbytes)
        usleep(200); /* so that it most often comes in two pieces */
    assert_int_equal(send(fd, bytes + cut, nbytes - cut, MSG_NOSIGNAL), (ssize_t)(nbytes - cut));
}

/* Says hello and proof, each cut at a byte, and PyTorch's first words behind the proof at once. */
static int come(kolo_store *store, size_t cut, unsigned char heard[KO_HANDSHAKE_BYTES])
{
    struct ko_handshake handshake = begin(&ko_claim_store);
    unsigned char bytes[KO_HANDSHAKE_PROOF + 10];
    int fd = dial(store);
    size_t n;

    send_pieces(fd, ko_handshake_says(&handshake, &n), KO_HANDSHAKE_HELLO, cut);
    ko_handshake_said(&handshake, KO_HANDSHAKE_HELLO);
    n = ko_handshake_wants(&handshake);
    assert_int_equal(recv(fd, heard, n, MSG_WAITALL), (ssize_t)n);
    assert_int_equal(ko_handshake_hears(&handshake, heard, n), KOLO_OK);
    memcpy(bytes, ko_handshake_says(&handshake, &n), KO_HANDSHAKE_PROOF);
    assert_int_equal(wire_unhex("00 cef7853c 0d 01020304", bytes + KO_HANDSHAKE_PROOF), 10);
    send_pieces(fd, bytes, sizeof bytes, cut % sizeof bytes);
    hear(fd, "01020304");
    memcpy(heard, handshake.bytes, sizeof handshake.bytes);
    return fd;
}

static void cut_anywhere(void **state)
{
    unsigned char heard[KO_HANDSHAKE_BYTES];
    kolo_store *store;

    (void)state;
    use_token(token);
    store = serve("127.0.0.1");
    for (size_t cut = 0; cut <= KO_HANDSHAKE_HELLO; cut++)
        close(come(store, cut, heard));
    kolo_store_close(store);
}

static void expect_end(int fd)
{
    unsigned char byte[64];

    while (recv(fd, byte, sizeof byte, 0) > 0)
        continue;
    close(fd);
}

/* What somebody else said, said again; another purpose; and half of it, with or without an end. */
static void not_by_other_words(void **state)
{
    static const struct ko_claim wire = {KO_PURPOSE_WIRE, 0, KO_ANY_RANK, KO_ANY_RANK, false};
    unsigned char heard[KO_HANDSHAKE_BYTES], challenge[KO_HANDSHAKE_CHALLENGE];
    struct ko_handshake other = begin(&wire);
    kolo_store *store;
    size_t n;
    int fd;

    (void)state;
    use_token(token);
    store = serve("127.0.0.1");
    close(come(store, 0, heard));
    fd = dial(store);
    send_pieces(fd, heard, KO_HANDSHAKE_HELLO, 0);
    assert_int_equal(recv(fd, challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
    assert_memory_not_equal(challenge, heard + KO_HANDSHAKE_HELLO, sizeof challenge);
    send_pieces(fd, heard + KO_HANDSHAKE_HELLO + KO_HANDSHAKE_CHALLENGE, KO_HANDSHAKE_PROOF, 0);
    expect_end(fd);
    fd = dial(store);
    send_pieces(fd, ko_handshake_says(&other, &n), KO_HANDSHAKE_HELLO, 0);
    expect_end(fd);
    for (size_t cut = 0; cut < KO_HANDSHAKE_HELLO; cut += 9) {
        fd = dial(store);
        assert_int_equal(send(fd, heard, cut, MSG_NOSIGNAL), (ssize_t)cut);
        if (cut % 2)
            shutdown(fd, SHUT_WR);
        expect_end(fd); /* after its time, at the latest */
        cut += cut ? 0 : 1;
    }
    assert_int_equal(join("127.0.0.1", kolo_store_port(store)), KOLO_OK);
    kolo_store_close(store);
}

/* ---- strangers ---------------------------------------------------------------------------- */

enum { STRANGERS = 600 };

/* A server that gives strangers all the time that a test may need. */
static struct ko_server *serve_strangers(int strangers)
{
    const struct ko_server_limits limits = {.table_bytes = 1 << 20,
                                            .buffer_bytes = 16 << 20,
                                            .strangers = strangers,
                                            .introduction_ms = 100 * LIMIT_MS};
    const ko_deadline soon = ko_deadline_in(LIMIT_MS);
    struct ko_server *server;

    use_token(token);
    assert_int_equal(ko_server_open("127.0.0.1", 0, &limits, &soon, &server), KOLO_OK);
    return server;
}

/* Silent or half-way through the handshake. */
static void come_in_numbers(struct ko_server *server, int fds[STRANGERS])
{
    struct ko_handshake handshake = begin(&ko_claim_store);
    size_t n;

    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = dial_port(ko_server_port(server));
        if (i % 2)
            send_pieces(fds[i], ko_handshake_says(&handshake, &n), KO_HANDSHAKE_HELLO, 0);
    }
}

/* True if the connection is still there. */
static bool is_open(int fd)
{
    unsigned char byte;
    ssize_t n;

    do
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
    while (n > 0); /* the challenge */
    return n < 0 && errno == EAGAIN;
}

static void join_and_leave(struct ko_server *server)
{
    kolo_store *store;

    assert_int_equal(kolo_store_open_tcp("127.0.0.1", ko_server_port(server), 0, LIMIT_MS, &store),
                     KOLO_OK);
    assert_int_equal(kolo_store_set(store, "key", value), KOLO_OK);
    kolo_store_close(store);
}

/* The oldest make room for those who come, of whom one knows the token. */
static void strangers_make_room(void **state)
{
    enum { PLACES = 300 };
    static int fds[STRANGERS];
    struct ko_server *server = serve_strangers(PLACES);

    (void)state;
    come_in_numbers(server, fds);
    for (int i = 0; i < STRANGERS - PLACES; i++)
        expect_end(fds[i]);
    join_and_leave(server);
    expect_end(fds[STRANGERS - PLACES]); /* for the one who joined */
    for (int i = STRANGERS - PLACES + 1; i < STRANGERS; i++) {
        assert_true(is_open(fds[i]));
        close(fds[i]);
    }
    ko_server_close(server);
}

/* There are places for half of the descriptors that the process may come to have, not of the fewer
 * that it has at first: the ranks of a large job all come at once. */
static void a_crowd_has_places(void **state)
{
    static int fds[STRANGERS];
    struct ko_server *server;
    struct rlimit limit, low;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = STRANGERS;
    if (limit.rlim_max < 4 * STRANGERS)
        skip();
    setrlimit(RLIMIT_NOFILE, &low);
    server = serve_strangers(0);
    come_in_numbers(server, fds);
    join_and_leave(server); /* after them: all of them are known */
    for (int i = 0; i < STRANGERS; i++) {
        assert_true(is_open(fds[i]));
        close(fds[i]);
    }
    ko_server_close(server);
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Whatever they do not say, they are told to go after their time. */
static void strangers_have_their_time(void **state)
{
    int fds[2];
    kolo_store *store;

    (void)state;
    use_token(token);
    store = serve("127.0.0.1");
    for (int i = 0; i < 2; i++)
        fds[i] = dial(store);
    send_pieces(fds[1], (const unsigned char *)"half", 4, 0);
    for (int i = 0; i < 2; i++)
        expect_end(fds[i]);
    kolo_store_close(store);
}

/* ---- other machines ----------------------------------------------------------------------- */

static void other_machines(void **state)
{
    struct networks networks;
    kolo_store *store;
    char host[64];

    (void)state;
    if (networks_open(&networks, 2))
        skip();
    for (int i = 0; i < 3; i++) {
        use_token(i == 0 ? token : NULL);
        if (i == 2)
            setenv("KOLO_AUTH", "none", 1);
        assert_int_equal(networks_enter(&networks, 1), 0);
        if (i == 2)
            stderr_listen();
        store = serve(networks_address(1, host, sizeof host));
        if (i == 2)
            stderr_assert("whoever can connect to 10.77.0.2:");
        assert_int_equal(networks_enter(&networks, 0), 0);
        if (i == 1)
            stderr_listen();
        assert_int_equal(join(host, kolo_store_port(store)), i == 1 ? KOLO_E_PROTOCOL : KOLO_OK);
        if (i == 1) {
            assert_non_null(strstr(kolo_last_error(), "on another machine"));
            stderr_assert("a connection from 10.77.0.1:"); /* which may have gone by then */
        }
        assert_int_equal(networks_enter(&networks, -1), 0);
        kolo_store_close(store);
    }
    networks_close(&networks);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, forget_all, forget_all)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(tokens),
                                       CASE(who_is_refused_is_named),
                                       CASE(who_has_another_token_is_named),
                                       CASE(clients_of_pytorch),
                                       CASE(where_that_is_chosen),
                                       CASE(cut_anywhere),
                                       CASE(not_by_other_words),
                                       CASE(strangers_make_room),
                                       CASE(a_crowd_has_places),
                                       CASE(strangers_have_their_time),
                                       CASE(other_machines)};

    return cmocka_run_group_tests_name("store proof", tests, folder_make, folder_remove);
}
