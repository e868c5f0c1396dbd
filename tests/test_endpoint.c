/* SPDX-License-Identifier: MIT
 *
 * An endpoint and those who knock at it: honest ranks, silent ones, talkers of nonsense, and a
 * flood of them.
 */
#include "clock.h"
#include "endpoint.h"
#include "log.h"
#include "socket.h"
#include "status.h"

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
#include <unistd.h>

enum { GROUP = 77, CHANNEL = 3 };

struct fixture {
    kolo_store *store;
    struct ko_endpoint *left, *right; /* ranks 0 and 1 of 2 */
};

static struct ko_endpoint *open_endpoint(kolo_store *store, int rank)
{
    struct ko_endpoint *endpoint;
    kolo_store *own;

    assert_int_equal(kolo_store_open_prefix(store, "test", &own), KOLO_OK);
    assert_int_equal(ko_endpoint_open(own, rank, 2, &endpoint), KOLO_OK);
    return endpoint;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    setenv("KOLO_TRANSPORT", "tcp", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    assert_int_equal(kolo_store_open_local(&fixture->store), KOLO_OK);
    fixture->left = open_endpoint(fixture->store, 0);
    fixture->right = open_endpoint(fixture->store, 1);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    ko_endpoint_release(fixture->left);
    ko_endpoint_release(fixture->right);
    kolo_store_close(fixture->store);
    free(fixture);
    unsetenv("KOLO_TRANSPORT");
    return 0;
}

static struct ko_wire *begin(struct fixture *fixture, uint64_t group, uint32_t channel)
{
    struct ko_hello hello = {.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .group = group,
                             .from = 0,
                             .to = 1,
                             .channel = channel,
                             .slots = 8,
                             .slice_bytes = 131072};
    struct ko_wire *wire;

    assert_int_equal(ko_endpoint_connect(fixture->left, 1, &hello, &wire), KOLO_OK);
    return wire;
}

/* Waits for the wire to be claimable at right, and claims it. */
static struct ko_wire *claim(struct fixture *fixture, struct ko_wire *from, uint64_t group)
{
    ko_deadline deadline = ko_deadline_in(5000);
    struct ko_wire *wire = NULL;

    while (ko_endpoint_claim(fixture->right, group, 0, CHANNEL, &wire)) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(from->transport->drive(from), KOLO_OK);
        ko_endpoint_accept(fixture->right);
        poll(NULL, 0, 1);
    }
    assert_int_equal(wire->hello.from, 0);
    return wire;
}

static void honest(struct fixture *fixture)
{
    struct ko_wire *from = begin(fixture, GROUP, CHANNEL);
    struct ko_wire *to = claim(fixture, from, GROUP);

    to->transport->hangup(to);
    from->transport->hangup(from);
}

/* A bare connection to right's tcp device. */
static int knock(const struct fixture *fixture)
{
    const struct ko_contact *own = &fixture->right->own;
    struct sockaddr_in where = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port;

    for (uint32_t i = 0; i < own->naddresses; i++)
        if (!strcmp(own->addresses[i].transport, "tcp")) {
            memcpy(&port, own->addresses[i].bytes + 64, sizeof port);
            where.sin_port = htons(port);
            inet_pton(AF_INET, (const char *)own->addresses[i].bytes, &where.sin_addr);
        }
    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    return fd;
}

/* True when the other end has closed fd, within timeout_ms of accepting. */
static bool is_closed(struct fixture *fixture, int fd, int timeout_ms)
{
    ko_deadline deadline = ko_deadline_in(timeout_ms);
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    while (!ko_deadline_passed(&deadline)) {
        ko_endpoint_accept(fixture->right);
        if (poll(&entry, 1, 10) == 1)
            return true;
    }
    return false;
}

static void claims(void **state)
{
    struct fixture *fixture = *state;
    struct ko_wire *first = begin(fixture, GROUP, CHANNEL), *to;
    struct ko_wire *other = begin(fixture, GROUP + 1, CHANNEL);
    struct ko_wire *elsewhere = begin(fixture, GROUP, CHANNEL + 1);
    struct ko_hello hellos[4];

    assert_int_equal(ko_endpoint_claim(fixture->right, GROUP, 0, CHANNEL, &to), KO_AGAIN);
    to = claim(fixture, other, GROUP + 1);
    to->transport->hangup(to);
    to = claim(fixture, first, GROUP);
    assert_int_equal(ko_endpoint_unclaimed(fixture->right, GROUP, CHANNEL, hellos, 4), 0);
    assert_int_equal(ko_endpoint_claim(fixture->right, GROUP, 1, CHANNEL, &to), KO_AGAIN);
    assert_int_equal(elsewhere->transport->drive(elsewhere), KOLO_OK);
    while (!ko_endpoint_unclaimed(fixture->right, GROUP, CHANNEL + 1, hellos, 4))
        ko_endpoint_accept(fixture->right);
    assert_int_equal(hellos[0].channel, CHANNEL + 1);
    assert_int_equal(ko_endpoint_unclaimed(fixture->right, GROUP, CHANNEL + 1, hellos, 0), 0);
    to->transport->hangup(to);
    first->transport->hangup(first);
    other->transport->hangup(other);
    elsewhere->transport->hangup(elsewhere); /* unclaimed: closed with the endpoint */
}

static void contacts(void **state)
{
    struct fixture *fixture = *state;
    const struct ko_contact *contact, *again;

    assert_null(ko_endpoint_known(fixture->left, 1));
    assert_int_equal(ko_endpoint_contact(fixture->left, 1, &contact), KOLO_OK);
    assert_memory_equal(contact, &fixture->right->own, sizeof *contact);
    assert_int_equal(ko_endpoint_contact(fixture->left, 1, &again), KOLO_OK);
    assert_ptr_equal(again, contact);
    assert_ptr_equal(ko_endpoint_known(fixture->left, 1), contact);
}

static void wrong_contact(void **state)
{
    struct fixture *fixture = *state;
    const struct ko_contact *contact = NULL;

    assert_int_equal(kolo_store_set(fixture->store, "test/rank/1", (kolo_bytes){"junk", 4}),
                     KOLO_OK);
    assert_int_equal(ko_endpoint_contact(fixture->left, 1, &contact), KOLO_E_PROTOCOL);
    assert_null(contact);
    assert_null(ko_endpoint_known(fixture->left, 1));
}

static void garbage(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: somewhere.example\r\nAccept: */*\r\n"
                               "User-Agent: a scanner of ports, or a browser gone astray\r\n\r\n";
    struct fixture *fixture = *state;
    int fd = knock(fixture);

    assert_int_equal(send(fd, http, sizeof http, MSG_NOSIGNAL), (ssize_t)sizeof http);
    (void)ko_fail_again(KOLO_E_INVALID, "the last error");
    assert_true(is_closed(fixture, fd, 3000));
    assert_string_equal(kolo_last_error(),
                        "the last error"); /* a stranger's is not this thread's */
    close(fd);
    honest(fixture);
}

/* What has been logged since. */
static FILE *log_into(char *path, const char *level)
{
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    setenv("KOLO_DEBUG", level, 1);
    setenv("KOLO_DEBUG_FILE", path, 1);
    ko_log_reopen();
    return fopen(path, "r");
}

static void log_no_more(const char *path)
{
    setenv("KOLO_DEBUG", "NONE", 1);
    unsetenv("KOLO_DEBUG_FILE");
    ko_log_reopen();
    unlink(path);
}

/* Who talks nonsense again and again is named, but once: his lines would fill a disk. */
static void nonsense_is_logged_once(void **state)
{
    enum { N = 200 };
    static const char nonsense[64] = "nonsense";
    struct fixture *fixture = *state;
    char path[] = "/tmp/test-endpoint-XXXXXX", line[600], name[KO_SOCKET_NAME];
    FILE *log = log_into(path, "WARN");
    int nlines = 0;

    assert_non_null(log);
    for (int i = 0; i < N; i++) {
        int fd = knock(fixture);

        if (i == 0)
            ko_socket_own_name(fd, name);
        assert_int_equal(send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL),
                         (ssize_t)sizeof nonsense);
        assert_true(is_closed(fixture, fd, 3000));
        close(fd);
        assert_true(fixture->right->turned_away.quiet_until_ns > 0);
        fixture->right->turned_away.quiet_until_ns = INT64_MAX; /* however long this takes */
    }
    while (fgets(line, sizeof line, log))
        if (strstr(line, "a connection over tcp from ") && !nlines++)
            assert_non_null(strstr(line, name));
    assert_int_equal(nlines, 1);
    assert_int_equal(fixture->right->turned_away.nunsaid, N - 1);
    fixture->right->turned_away.quiet_until_ns = 0;
    fixture->right->turned_away.nunsaid = 7;
    garbage(state);
    clearerr(log); /* it has been read to its end before */
    assert_non_null(fgets(line, sizeof line, log));
    assert_non_null(strstr(line, "(as were 7 others, which KOLO_DEBUG=DEBUG names)"));
    fclose(log);
    log_no_more(path);
}

static int count_closed(const int *fds, int n)
{
    int nclosed = 0;

    for (int i = 0; i < n; i++) {
        struct pollfd entry = {.fd = fds[i], .events = POLLIN};

        nclosed += poll(&entry, 1, 0) == 1;
    }
    return nclosed;
}

/* A rank that has connected and computes says nothing for as long as it likes; but of more
 * strangers than half the places those go that have been silent for long. */
static void silent(void **state)
{
    enum { HALF = 128 + 2 };
    struct fixture *fixture = *state;
    struct ko_wire *from = begin(fixture, GROUP, CHANNEL), *to;
    ko_deadline deadline = ko_deadline_in(15000);
    int fds[HALF + 1];

    for (int i = 0; i < HALF - 1; i++) {
        fds[i] = knock(fixture);
        ko_endpoint_accept(fixture->right);
    }
    assert_false(is_closed(fixture, fds[0], 5200));
    assert_int_equal(count_closed(fds, HALF - 1), 0);
    assert_int_equal(fixture->right->nstrangers, HALF);
    fds[HALF - 1] = knock(fixture);
    fds[HALF] = knock(fixture);
    while (count_closed(fds, HALF - 1) < 2) {
        assert_false(ko_deadline_passed(&deadline));
        ko_endpoint_accept(fixture->right);
    }
    to = claim(fixture, from, GROUP);
    assert_int_equal(fixture->right->nstrangers, HALF - 1);
    assert_int_equal(count_closed(fds, HALF - 1), 2);
    assert_int_equal(count_closed(fds + HALF - 1, 2), 0); /* these have just come */
    to->transport->hangup(to);
    from->transport->hangup(from);
    for (int i = 0; i <= HALF; i++)
        close(fds[i]);
}

/* As many silent strangers as there are places, and more: honest ranks get through at once, since
 * the strangers who came first make room. */
static void flood(void **state)
{
    enum { N = 300 };
    struct fixture *fixture = *state;
    ko_deadline deadline = ko_deadline_in(15000);
    struct ko_wire *from, *to = NULL;
    int fds[N];

    for (int i = 0; i < N; i++) {
        fds[i] = knock(fixture);
        if (i % 50 == 0)
            ko_endpoint_accept(fixture->right);
    }
    from = begin(fixture, GROUP, CHANNEL);
    while (ko_endpoint_claim(fixture->right, GROUP, 0, CHANNEL, &to)) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(from->transport->drive(from), KOLO_OK);
        ko_endpoint_accept(fixture->right);
        assert_in_range(fixture->right->narrivals, 0, 256 + 2);
        poll(NULL, 0, 5);
    }
    to->transport->hangup(to);
    from->transport->hangup(from);
    for (int i = 0; i < N; i++)
        close(fds[i]);
}

/* Who has slept in a poller of the endpoint's is woken when there is something to claim. */
static void arrivals_wake(void **state)
{
    struct fixture *fixture = *state;
    struct ko_poller_pool *pool = &fixture->right->pollers;
    struct ko_pooled *_Atomic pooled[2] = {NULL, NULL};
    struct ko_event events[4];
    struct ko_wire *from, *to;
    bool is_new;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(ko_pool_enter(pool, &pooled[i], &pooled[i], &is_new), KOLO_OK);
        assert_int_equal(ko_poller_wait(&pooled[i]->poller, 0, events, 4), 1); /* it is new */
        assert_int_equal(ko_poller_wait(&pooled[i]->poller, 0, events, 4), 0);
        ko_pool_leave(pool, &pooled[i], pooled[i]);
    }
    from = begin(fixture, GROUP, CHANNEL);
    to = claim(fixture, from, GROUP);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ko_poller_wait(&pooled[i]->poller, 0, events, 4), 1);
        assert_null(events[0].owner);
        ko_pool_give_back(pool, &pooled[i], pooled[i]);
    }
    to->transport->hangup(to);
    from->transport->hangup(from);
}

static void users(void **state)
{
    struct fixture *fixture = *state;

    ko_endpoint_retain(fixture->left);
    ko_endpoint_release(fixture->left);
    ko_endpoint_release(NULL);
    honest(fixture); /* it is still open */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(contacts), CASE(wrong_contact),           CASE(claims),
                                       CASE(garbage),  CASE(nonsense_is_logged_once), CASE(silent),
                                       CASE(flood),    CASE(arrivals_wake),           CASE(users)};

    return cmocka_run_group_tests_name("endpoint", tests, NULL, NULL);
}
