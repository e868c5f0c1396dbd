/* SPDX-License-Identifier: MIT
 *
 * A client whose server is killed, frozen, never there, or none that it knows.
 */
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_served.h"
#include "store_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void *kill_soon(void *argument)
{
    usleep(50000);
    kill(*(pid_t *)argument, SIGKILL);
    return NULL;
}

static void test_server_is_killed(void **state)
{
    static const char *const keys[] = {"never"};
    kolo_store *store;
    pthread_t killer;
    int port = 0;
    pid_t child = store_start_process(&port, 0);
    char where[32];

    (void)state;
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 60000, &store), KOLO_OK);
    assert_int_equal(pthread_create(&killer, NULL, kill_soon, &child), 0);
    assert_int_equal(kolo_store_wait(store, keys, 1, 60000), KOLO_E_PEER_LOST);
    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    assert_non_null(strstr(kolo_last_error(), where));
    assert_non_null(strstr(kolo_last_error(), "never"));
    pthread_join(killer, NULL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    kolo_store_set_timeout(store, 200);
    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_E_PEER_LOST); /* nobody there */
    assert_non_null(strstr(kolo_last_error(), where));
    assert_non_null(strstr(kolo_last_error(), "tried"));
    kolo_store_set_timeout(store, 600000); /* a server that is gone is not waited for so long */
    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_E_PEER_LOST);
    assert_non_null(strstr(kolo_last_error(), where));
    assert_non_null(strstr(kolo_last_error(), "connecting again"));
    child = store_start_process(&port, 0); /* and somebody there again */
    kolo_store_set_timeout(store, 30000);
    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
    store_stop_process(child);
    kolo_store_close(store);
}

static void test_server_is_frozen(void **state)
{
    static const char *const keys[] = {"a", "n", "c"};
    kolo_store *store;
    int port = 0;
    pid_t child = store_start_process(&port, 0);
    int64_t sum;

    (void)state;
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 30000, &store), KOLO_OK);
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    kolo_store_set_timeout(store, 50);
    assert_int_equal(kolo_store_add(store, "n", 5, &sum), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "\"n\""));
    kill(child, SIGCONT);
    kolo_store_set_timeout(store, 30000);
    assert_int_equal(kolo_store_set(store, "n", text("0")), KOLO_OK);
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    assert_int_equal(kolo_store_wait(store, keys, 3, 50), KOLO_E_TIMEOUT);
    assert_non_null(
        strstr(kolo_last_error(), " does not answer: waited 50 ms for \"a\" and 2 more "));
    assert_null(strstr(kolo_last_error(), "timed out after"));
    kill(child, SIGCONT);
    kolo_store_set_timeout(store, 30000);
    assert_int_equal(kolo_store_set(store, "n", text("1")), KOLO_OK); /* in step: not the add's */
    assert_int_equal(kolo_store_add(store, "n", 1, &sum), KOLO_OK);
    assert_int_equal(sum, 2);
    store_stop_process(child);
    kolo_store_close(store);
}

struct caller {
    kolo_store *store;
    int err;
    char text[300];
};

static void *call(void *argument)
{
    struct caller *caller = argument;

    caller->err = kolo_store_set(caller->store, "k", (kolo_bytes){"v", 1});
    snprintf(caller->text, sizeof caller->text, "%s", kolo_last_error());
    return NULL;
}

/* A call that connects again ends when its store is closed: where nobody is at the address, and
 * where somebody takes connections and says nothing. */
static void test_closed_while_connecting_again(void **state)
{
    struct caller caller;
    pthread_t thread;
    ko_deadline soon;
    pid_t server;

    (void)state;
    for (int is_mute = 0; is_mute < 2; is_mute++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
        int port = 0;

        server = store_start_process(&port, 0);
        assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 20000, &caller.store), 0);
        store_stop_process(server);
        assert_int_equal(kolo_store_num_keys(caller.store, &(int64_t){0}), KOLO_E_PEER_LOST);
        address.sin_port = htons((uint16_t)port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(is_mute && listen(fd, 8), 0);
        assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
        usleep(200000);
        soon = ko_deadline_in(3000);
        kolo_store_close(caller.store);
        pthread_join(thread, NULL);
        if (caller.err != KOLO_E_ABORTED || !strstr(caller.text, "was closed during the call"))
            fail_msg("status %d: %s", caller.err, caller.text);
        assert_false(ko_deadline_passed(&soon));
        close(fd);
    }
}

/* Takes connections until its listener is shut down; hangs up at the first bytes, or says nothing.
 */
struct stranger {
    int listener, port;
    bool is_mute;
    pthread_t thread;
};

static void *be_a_stranger(void *argument)
{
    const struct stranger *stranger = argument;
    int fds[64], n = 0;
    char bytes[256];

    while (n < 64 && (fds[n] = accept(stranger->listener, NULL, NULL)) >= 0) {
        (void)!recv(fds[n], bytes, sizeof bytes, 0);
        if (stranger->is_mute)
            n++;
        else
            close(fds[n]);
    }
    while (n > 0)
        close(fds[--n]);
    return NULL;
}

static void begin_stranger(struct stranger *stranger)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    stranger->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(stranger->listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(stranger->listener, 64), 0);
    assert_int_equal(getsockname(stranger->listener, (struct sockaddr *)&address, &length), 0);
    stranger->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&stranger->thread, NULL, be_a_stranger, stranger), 0);
}

static void end_stranger(struct stranger *stranger)
{
    shutdown(stranger->listener, SHUT_RDWR);
    pthread_join(stranger->thread, NULL);
    close(stranger->listener);
}

/* The text of opening a store there, in vain. */
static const char *open_at_stranger(bool is_mute, int timeout_ms)
{
    struct stranger stranger = {.is_mute = is_mute};
    kolo_store *store;

    begin_stranger(&stranger);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", stranger.port, 0, timeout_ms, &store),
                     KOLO_E_TIMEOUT);
    end_stranger(&stranger);
    return kolo_last_error();
}

/* However little time the last of its tries had. */
static void test_server_hangs_up(void **state)
{
    (void)state;
    for (int timeout_ms = 300; timeout_ms <= 500; timeout_ms += 50) {
        const char *text = open_at_stranger(false, timeout_ms);

        if (!strstr(text, "it closed the connection") || strstr(text, "timed out"))
            fail_msg("%s", text);
        assert_non_null(strstr(text, "answers connections, but not with the store's handshake"));
        assert_null(strstr(text, "token"));
    }
}

/* As one of PyTorch's does, by its version. */
static void test_server_knows_no_token(void **state)
{
    static const char advice[] = "asks and shows no proof: set KOLO_AUTH_STORE=none on all ranks";

    (void)state;
    setenv("KOLO_AUTH_TOKEN", "the token of this test", 1);
    assert_non_null(strstr(open_at_stranger(false, 300), advice));
    assert_non_null(strstr(kolo_last_error(), "the connection ended while the token was to be"));
    assert_non_null(strstr(open_at_stranger(true, 300), advice));
    unsetenv("KOLO_AUTH_TOKEN");
    assert_null(strstr(open_at_stranger(true, 300), advice));
}

static void test_nobody_there(void **state)
{
    kolo_store *store = NULL;
    char where[32];
    int port;
    int fd;

    (void)state;
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &port), KOLO_OK);
    close(fd);
    snprintf(where, sizeof where, "127.0.0.1:%d", port);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 120, &store), KOLO_E_TIMEOUT);
    assert_null(store);
    assert_non_null(strstr(kolo_last_error(), where));
    assert_non_null(strstr(kolo_last_error(), "refused"));
    assert_non_null(strstr(kolo_last_error(), "tried"));
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 0, 120, &store), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 65536, 1, 120, &store), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_tcp("", 1, 0, 120, &store), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_tcp("localhost", 1, 0, 120, NULL), KOLO_E_INVALID);
}

/* How many of this process's descriptors are a connection of the server at port. */
static int count_connections(int port)
{
    struct sockaddr_in ends[2] = {0};
    socklen_t length;
    int n = 0;

    for (int fd = 3; fd < 256; fd++) {
        length = sizeof *ends;
        if (getpeername(fd, (struct sockaddr *)&ends[0], &length))
            continue;
        length = sizeof *ends;
        assert_int_equal(getsockname(fd, (struct sockaddr *)&ends[1], &length), 0);
        n += ends[0].sin_port == htons((uint16_t)port) || ends[1].sin_port == htons((uint16_t)port);
    }
    return n;
}

/* A child of fork that lives on does not keep the connections of its parent, which may die. */
static void test_children_keep_no_connection(void **state)
{
    kolo_store *server, *client;
    pid_t child;
    int port, how;

    (void)state;
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, 60000, &server), KOLO_OK);
    port = kolo_store_port(server);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 60000, &client), KOLO_OK);
    assert_int_equal(kolo_store_set(client, "k", text("v")), KOLO_OK);
    assert_int_equal(count_connections(port), 4); /* both ends of two clients' */
    child = fork();
    if (child == 0)
        _exit(count_connections(port));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    assert_int_equal(kolo_store_set(client, "k", text("w")), KOLO_OK); /* the parent's live on */
    assert_int_equal(kolo_store_set(server, "k", text("x")), KOLO_OK);
    kolo_store_close(client);
    kolo_store_close(server);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_is_killed),
        cmocka_unit_test(test_server_is_frozen),
        cmocka_unit_test(test_closed_while_connecting_again),
        cmocka_unit_test(test_server_hangs_up),
        cmocka_unit_test(test_server_knows_no_token),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_children_keep_no_connection),
    };
    return cmocka_run_group_tests_name("store lost", tests, NULL, NULL);
}
