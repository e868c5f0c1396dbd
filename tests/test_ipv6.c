/* SPDX-License-Identifier: MIT
 *
 * Hosts of both families, as a name that has an address of each: whoever serves there is found by
 * all. Skipped where there is no IPv6.
 */
#include "kolo.h"
#include "ranks.h"
#include "socket.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MS = 20000 };

/* In libc's place: one name that no file of hosts has to have, twice one of its addresses, and one
 * that is not this machine's. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    static const char *const addresses[] = {"::1", "127.0.0.1", "::1", "192.0.2.1"};
    int (*const real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
            RTLD_NEXT, "getaddrinfo");
    int error = 0;

    if (!host || strcmp(host, "both.test") != 0)
        return real(host, service, hints, list);
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses && !error; i++) {
        error = real(addresses[i], service, hints, list);
        while (!error && *list)
            list = &(*list)->ai_next;
    }
    return error;
}

static bool lacks_ipv6(void)
{
    int fd, port;

    if (ko_socket_listen("::1", 0, &fd, &port))
        return true;
    close(fd);
    return false;
}

static int join(const char *host, int port)
{
    kolo_store *store;
    int err = kolo_store_open_tcp(host, port, 0, LIMIT_MS, &store);

    if (err)
        return err;
    err = kolo_store_set(store, host, (kolo_bytes){"v", 1});
    kolo_store_close(store);
    return err;
}

static void a_name_is_served_at_all_its_addresses(void **state)
{
    kolo_store *store;
    int64_t nkeys;
    int port;

    (void)state;
    if (lacks_ipv6())
        skip();
    assert_int_equal(kolo_store_open_tcp("both.test", 0, 1, LIMIT_MS, &store), KOLO_OK);
    port = kolo_store_port(store);
    assert_int_equal(join("127.0.0.1", port), KOLO_OK);
    assert_int_equal(join("::1", port), KOLO_OK);
    assert_int_equal(join("both.test", port), KOLO_OK);
    assert_int_equal(kolo_store_num_keys(store, &nkeys), KOLO_OK);
    assert_int_equal(nkeys, 3);
    kolo_store_close(store);
    /* and on a port that is given, all of it or nothing */
    assert_int_equal(kolo_store_open_tcp("both.test", port, 1, LIMIT_MS, &store), KOLO_OK);
    kolo_store_close(store);
}

static void nobody_else_answers_at_one_of_them(void **state)
{
    kolo_store *store;
    int fd, port;

    (void)state;
    if (lacks_ipv6())
        skip();
    assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fd, &port), KOLO_OK);
    assert_int_not_equal(kolo_store_open_tcp("both.test", port, 1, LIMIT_MS, &store), KOLO_OK);
    assert_non_null(strstr(kolo_last_error(), "another process has this port"));
    close(fd);
    assert_int_equal(kolo_store_open_tcp("both.test", port, 1, LIMIT_MS, &store), KOLO_OK);
    kolo_store_close(store);
}

enum { RANGE = 4 };

/* Ports in a row that are free in both families; and sets KOLO_PORT_RANGE to them. */
static int free_range(void)
{
    char range[32];
    int fds[2 * RANGE], low = 0, port, n = 0;

    while (n < 2 * RANGE) {
        unsetenv("KOLO_PORT_RANGE");
        assert_int_equal(ko_socket_listen("127.0.0.1", 0, &fds[0], &low), KOLO_OK);
        close(fds[0]);
        low = low > 65000 ? low - RANGE : low;
        for (n = 0; n < 2 * RANGE; n++)
            if (ko_socket_listen(n % 2 ? "127.0.0.1" : "::1", low + n / 2, &fds[n], &port))
                break;
        for (int i = 0; i < n; i++)
            close(fds[i]);
    }
    snprintf(range, sizeof range, "%d-%d", low, low + RANGE - 1);
    setenv("KOLO_PORT_RANGE", range, 1);
    return low;
}

/* Whichever port of a range is the only one that is free at all addresses, it is found. */
static void a_port_that_is_free_at_each_address(void **state)
{
    kolo_store *store;
    int fds[RANGE], low, port;

    (void)state;
    if (lacks_ipv6())
        skip();
    low = free_range();
    for (int i = 0; i < RANGE; i++)
        assert_int_equal(ko_socket_listen("127.0.0.1", low + i, &fds[i], &port), KOLO_OK);
    for (int i = 0; i < RANGE; i++) {
        close(fds[i]);
        assert_int_equal(kolo_store_open_tcp("both.test", 0, 1, LIMIT_MS, &store), KOLO_OK);
        assert_int_equal(kolo_store_port(store), low + i);
        kolo_store_close(store);
        assert_int_equal(ko_socket_listen("127.0.0.1", low + i, &fds[i], &port), KOLO_OK);
    }
    assert_int_equal(kolo_store_open_tcp("both.test", 0, 1, LIMIT_MS, &store), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "all ports of KOLO_PORT_RANGE"));
    for (int i = 0; i < RANGE; i++)
        close(fds[i]);
    unsetenv("KOLO_PORT_RANGE");
}

/* The wildcard of one family that is named, and that of all. */
static void wildcards_take_both(void **state)
{
    static const char *const hosts[] = {"::", ""};

    (void)state;
    if (lacks_ipv6())
        skip();
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        const ko_deadline soon = ko_deadline_in(LIMIT_MS);
        int fds[8], n, port, fd;

        assert_int_equal(ko_socket_listen_all(hosts[i], 0, &soon, fds, 8, &n, &port), KOLO_OK);
        for (int six = 0; six < 2; six++) {
            const ko_deadline deadline = ko_deadline_in(LIMIT_MS);

            assert_int_equal(ko_socket_connect(six ? "::1" : "127.0.0.1", port, &deadline, &fd),
                             KOLO_OK);
            close(fd);
        }
        while (n > 0)
            close(fds[--n]);
    }
}

static int sum_and_pass(kolo_group *group, void *unused)
{
    int value = kolo_group_rank(group) + 1;

    (void)unused;
    if (kolo_all_reduce(group, &value, &value, 1, KOLO_INT32, KOLO_SUM) || value != 6)
        return ranks_fail("all_reduce gave %d", value);
    return kolo_group_rank(group) < 2 ? ranks_exchange(group) : 0;
}

static void groups_over_ipv6(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .store = "[::1]"};

    (void)state;
    if (lacks_ipv6())
        skip();
    setenv("KOLO_TRANSPORT", "tcp", 1);
    assert_int_equal(ranks_run(&ranks, sum_and_pass, NULL), 0);
    unsetenv("KOLO_TRANSPORT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_served_at_all_its_addresses),
        cmocka_unit_test(nobody_else_answers_at_one_of_them),
        cmocka_unit_test(a_port_that_is_free_at_each_address),
        cmocka_unit_test(wildcards_take_both),
        cmocka_unit_test(groups_over_ipv6),
    };

    return cmocka_run_group_tests_name("ipv6", tests, NULL, NULL);
}
