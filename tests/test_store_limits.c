/* SPDX-License-Identifier: MIT
 *
 * The memory that a store's server takes, as the environment sets it.
 */
#include "log_file.h"
#include "socket.h"
#include "status.h"
#include "store.h"
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

enum { PATIENCE_MS = 60000 };

static kolo_store *serve_with(const char *variable, const char *value)
{
    kolo_store *store;

    setenv(variable, value, 1);
    log_file_open("WARN");
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, &store), KOLO_OK);
    unsetenv(variable);
    return store;
}

/* Who needs more than there is, is cut off, with a warning; what was there stays. */
static void full_store(void **state)
{
    enum { LARGE = 600 << 10 };
    kolo_store *store = serve_with("KOLO_STORE_BYTES", "1M");
    char *large = calloc(1, LARGE), line[LOG_LINE];
    const kolo_bytes value = {large, LARGE};
    void *got;
    size_t nbytes;

    (void)state;
    assert_int_equal(kolo_store_set(store, "a", value), KOLO_OK);
    assert_int_equal(kolo_store_set(store, "b", value), KOLO_E_PEER_LOST);
    assert_int_equal(kolo_store_get(store, "a", &got, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, LARGE);
    kolo_free(got);
    assert_int_equal(kolo_store_delete(store, "a", NULL), KOLO_OK);
    assert_int_equal(kolo_store_set(store, "b", value), KOLO_OK);
    kolo_store_close(store);
    assert_int_equal(log_file_close("the store is full", line), 1);
    assert_non_null(strstr(line, "of 1048576 bytes (KOLO_STORE_BYTES) are used"));
    free(large);
}

/* One message may set as many keys as it likes, within the buffers' memory. */
static void long_multi_set(void **state)
{
    enum { VALUES = 9 };
    kolo_store *store = serve_with("KOLO_STORE_BYTES", "128M");
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char *value = calloc(1, KO_STORE_VALUE_MAX), line[LOG_LINE];
    uint8_t head[25];
    int fd;

    (void)state;
    wire_unhex("0900000000000000 2f6b65792d6e6f2e30 0000800000000000", head);
    assert_int_equal(ko_socket_connect("127.0.0.1", kolo_store_port(store), &deadline, &fd),
                     KOLO_OK);
    say(fd, "00 cef7853c 0b 0900000000000000");
    for (int i = 0; i < VALUES; i++) {
        head[16] = (uint8_t)('0' + i);
        assert_int_equal(ko_socket_send_all(fd, head, sizeof head, &deadline), KOLO_OK);
        assert_int_equal(ko_socket_send_all(fd, value, KO_STORE_VALUE_MAX, &deadline), KOLO_OK);
    }
    say(fd, "07");
    hear(fd, "0900000000000000");
    close(fd);
    kolo_store_close(store);
    assert_int_equal(log_file_close("to the store was closed", line), 0);
    free(value);
}

/* Two clients leave most of a long message unsaid, which is too much together. */
static void full_buffers(void **state)
{
    enum { CLIENTS = 2, VALUE = 8 << 20, VALUES = 7 };
    kolo_store *store = serve_with("KOLO_STORE_BUFFER_BYTES", "128M");
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS), soon;
    uint8_t *values = calloc(VALUES, 17 + VALUE), byte;
    char line[LOG_LINE];
    int fds[CLIENTS], ncut = 0;

    (void)state;
    for (int i = 0; i < VALUES; i++)
        wire_unhex("0100000000000000 6b 0000800000000000", values + (size_t)i * (17 + VALUE));
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(ko_socket_connect("127.0.0.1", kolo_store_port(store), &deadline, &fds[i]),
                         KOLO_OK);
        say(fds[i], "00 cef7853c 0b 0800000000000000");
        ko_socket_send_all(fds[i], values, (size_t)VALUES * (17 + VALUE), &deadline);
        assert_int_equal(kolo_store_add(store, "n", 1, NULL), KOLO_OK); /* the server goes on */
    }
    soon = ko_deadline_in(2000);
    for (int i = 0; i < CLIENTS; i++) {
        ncut += ko_socket_recv_all(fds[i], &byte, 1, &soon) == KOLO_E_PEER_LOST;
        close(fds[i]);
    }
    assert_int_equal(ncut, 1);
    kolo_store_close(store);
    assert_int_equal(log_file_close("to the store was closed: ", line), 1);
    assert_non_null(strstr(line, "KOLO_STORE_BUFFER_BYTES"));
    free(values);
}

/* A value that an append would make too long stays as it is; who appends is told why, and so is the
 * server's log, since clients of PyTorch cannot be told. */
static void long_append(void **state)
{
    kolo_store *store = serve_with("KOLO_STORE_BYTES", "64M"), *local;
    char *large = calloc(1, KO_STORE_VALUE_MAX), line[LOG_LINE];
    const kolo_bytes value = {large, KO_STORE_VALUE_MAX}, one = {"x", 1};
    char said[512];
    void *got;
    size_t nbytes;

    (void)state;
    assert_int_equal(kolo_store_open_local(&local), KOLO_OK);
    assert_int_equal(kolo_store_set(local, "k", value), KOLO_OK);
    assert_int_equal(kolo_store_append(local, "k", one), KOLO_E_INVALID);
    snprintf(said, sizeof said, "%s", kolo_last_error());
    kolo_store_close(local);
    assert_int_equal(kolo_store_set(store, "k", value), KOLO_OK);
    assert_int_equal(kolo_store_append(store, "k", one), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(), said);
    assert_int_equal(kolo_store_get(store, "k", &got, &nbytes), KOLO_OK);
    assert_int_equal(nbytes, KO_STORE_VALUE_MAX);
    kolo_free(got);
    kolo_store_close(store);
    assert_int_equal(log_file_close("to the store was closed: append to key \"/k\"", line), 1);
    assert_non_null(strstr(line, "127.0.0.1:"));
    assert_non_null(strstr(line, "at most 8388608 bytes"));
    free(large);
}

static void wrong_limits(void **state)
{
    static const char *const names[] = {"KOLO_STORE_BYTES", "KOLO_STORE_BUFFER_BYTES"};
    kolo_store *store;

    (void)state;
    for (int i = 0; i < 2; i++) {
        setenv(names[i], "1", 1);
        assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, &store),
                         KOLO_E_INVALID);
        assert_non_null(strstr(kolo_last_error(), names[i]));
        unsetenv(names[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_store), cmocka_unit_test(long_multi_set),
        cmocka_unit_test(full_buffers), cmocka_unit_test(long_append),
        cmocka_unit_test(wrong_limits)};

    return cmocka_run_group_tests_name("store limits", tests, NULL, NULL);
}
