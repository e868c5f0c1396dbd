/* SPDX-License-Identifier: MIT
 *
 * The fixture: two devices of one process, and the steps that most cases begin with. All waits end
 * after LIMIT_MS, and each test checks that it has left no descriptor open.
 */
#include "transport_suite.h"

#include "clock.h"
#include "poller.h"
#include "ranks.h"
#include "sanitized.h"
#include "status.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 10000 };

struct ko_site transport_suite_site(void)
{
    const char *address = getenv("RDMA_ADDR");
    struct ko_site site = {.rank = 0};

    snprintf(site.listen_host, sizeof site.listen_host, "%s", address ? address : "127.0.0.1");
    return site;
}

/* The environment's KOLO_IB_HCA is for rows that have none, on a machine of other adapters. */
static void choose_rails(const struct transport_traits *traits)
{
    if (traits->hca)
        setenv("KOLO_IB_HCA", traits->hca, 1);
    if (traits->qps)
        setenv("KOLO_IB_QPS_PER_CONNECTION", traits->qps, 1);
}

/* A case over a transport, of which set_up makes a struct suite. */
struct entry {
    const struct transport_traits *traits;
    const struct suite_case *under_test;
};

static int set_up(void **state)
{
    const struct entry *entry = *state;
    const struct transport_traits *traits = entry->traits;
    struct suite *suite = calloc(1, sizeof *suite);
    const struct ko_site site = transport_suite_site();

    *suite = (struct suite){
        .traits = traits, .transport = traits->transport, .under_test = entry->under_test};
    if (traits->sockets) {
        char text[8];

        snprintf(text, sizeof text, "%d", traits->sockets);
        setenv("KOLO_TCP_SOCKETS", text, 1);
    }
    if (traits->rdma)
        setenv("FAKEVERBS_DEVICES", traits->rdma, 1);
    choose_rails(traits);
    setenv("KOLO_ENCRYPT", traits->is_sealed ? "1" : "0", 1);
    if (traits->token)
        setenv("KOLO_AUTH_TOKEN", traits->token, 1);
    else
        unsetenv("KOLO_AUTH_TOKEN");
    /* What libraries open at their first use, and keep, is not the transport's. */
    assert_int_equal(suite->transport->open(&site, &suite->left), KOLO_OK);
    suite->transport->close(suite->left);
    suite->nfds = ranks_count_entries("/proc/self/fd");
    assert_int_equal(suite->transport->open(&site, &suite->left), KOLO_OK);
    assert_int_equal(suite->transport->open(&site, &suite->right), KOLO_OK);
    suite->address_bytes = suite->transport->address(suite->right, suite->address);
    assert_in_range(suite->address_bytes, 0, KO_ADDRESS_BYTES);
    *state = suite;
    return 0;
}

static void run_case(void **state)
{
    struct suite *suite = *state;

    suite->under_test->run(state);
    suite->has_ended = true;
}

/* A case that has failed has left its wires open. Closing their devices would end the process, and
 * cmocka says what has failed only after this. */
static int tear_down(void **state)
{
    struct suite *suite = *state;
    int nfds;

    if (suite->traits->hca)
        unsetenv("KOLO_IB_HCA");
    if (suite->traits->qps)
        unsetenv("KOLO_IB_QPS_PER_CONNECTION");
    if (!suite->has_ended)
        return 0;
    suite->transport->close(suite->left);
    suite->transport->close(suite->right);
    nfds = ranks_count_entries("/proc/self/fd");
    if (nfds != suite->nfds)
        print_message("# %d descriptors before, %d after\n", suite->nfds, nfds);
    nfds -= suite->nfds;
    free(suite);
    return nfds;
}

static size_t add_list(struct CMUnitTest *tests, const struct transport_traits *traits,
                       const struct suite_case *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct entry *entry = malloc(sizeof *entry);
        char *name, sockets[24] = "", adapters[48] = "";

        if (traits->sockets)
            snprintf(sockets, sizeof sockets, " with %d sockets", traits->sockets);
        if (traits->rdma)
            snprintf(adapters, sizeof adapters, " by %s", traits->rdma);
        if (!entry || asprintf(&name, "%s%s%s%s: %s", traits->transport->name, adapters, sockets,
                               traits->is_sealed ? ", encrypted"
                               : traits->token   ? " and a token"
                                                 : "",
                               list[i].name) < 0)
            abort();
        *entry = (struct entry){traits, &list[i]};
        tests[i] = (struct CMUnitTest){name, run_case, set_up, tear_down, entry};
    }
    return n;
}

size_t transport_suite_add(struct CMUnitTest *tests, const struct transport_traits *traits)
{
    size_t n = 0;

    n += add_list(tests + n, traits, suite_wire_cases, suite_nwire_cases);
    n += add_list(tests + n, traits, suite_loss_cases, suite_nloss_cases);
    n += add_list(tests + n, traits, suite_bare_cases, suite_nbare_cases);
    n += add_list(tests + n, traits, suite_link_cases, suite_nlink_cases);
    if (traits->transport->give)
        n += add_list(tests + n, traits, suite_short_cases, suite_nshort_cases);
    if (traits->transport->kind != KO_WINDOW)
        return n;
    n += add_list(tests + n, traits, suite_window_cases, suite_nwindow_cases);
    n += add_list(tests + n, traits, suite_reference_cases, suite_nreference_cases);
    n += add_list(tests + n, traits, suite_foreign_cases, suite_nforeign_cases);
    n += add_list(tests + n, traits, suite_ahead_cases, suite_nahead_cases);
    n += add_list(tests + n, traits, suite_share_cases, suite_nshare_cases);
    n += add_list(tests + n, traits, suite_piece_cases, suite_npiece_cases);
    return n;
}

/* ---- skipping ------------------------------------------------------------------------------- */

void suite_skip(struct suite *suite, const char *why)
{
    print_message("# %s: %s\n", suite->transport->name, why);
    suite->has_ended = true;
    skip();
}

void suite_needs_peer(struct suite *suite)
{
    if (suite->traits->alone)
        suite_skip(suite, suite->traits->alone);
}

void suite_needs_child(struct suite *suite)
{
    suite_needs_peer(suite);
    if (HAS_TSAN && suite->traits->rdma)
        suite_skip(suite, "ThreadSanitizer bears no threads in a child, and adapters are such");
}

void suite_needs_dial(struct suite *suite)
{
    suite_needs_peer(suite);
    if (!suite->traits->dial)
        suite_skip(suite, "no bare socket leads to a device");
}

/* ---- steps ---------------------------------------------------------------------------------- */

struct ko_hello suite_hello(uint32_t slice_bytes)
{
    return (struct ko_hello){.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .group = 0x1234567890abcdefU,
                             .from = 1,
                             .to = 2,
                             .channel = 7,
                             .slots = 2,
                             .slice_bytes = slice_bytes,
                             .stamp = {.seq = 11, .count = 12}};
}

struct ko_hello suite_answer(uint32_t slice_bytes)
{
    struct ko_hello hello = suite_hello(slice_bytes);

    hello.from = 2;
    hello.to = 1;
    hello.stamp.seq = 21;
    return hello;
}

static void nap(const struct ko_wire *const *wires, int n)
{
    struct pollfd entries[2];

    for (int i = 0; i < n; i++) {
        entries[i] = (struct pollfd){.fd = wires[i] ? wires[i]->fd : -1};
        if (wires[i] && wires[i]->wanted & KO_POLL_IN)
            entries[i].events |= POLLIN;
        if (wires[i] && wires[i]->wanted & KO_POLL_OUT)
            entries[i].events |= POLLOUT;
    }
    poll(entries, (nfds_t)n, 1);
}

static bool has_more(struct ko_wire *wire)
{
    return wire && wire->transport->arm && wire->transport->arm(wire);
}

int suite_settle(struct ko_wire *a, struct ko_wire *b)
{
    const struct ko_wire *const both[] = {a, b};
    int err = a ? a->transport->drive(a) : KOLO_OK;
    int other = b ? b->transport->drive(b) : KOLO_OK;

    if (err || other)
        print_message("a wire failed: %s\n", kolo_last_error());
    else if (!has_more(a) && !has_more(b))
        nap(both, 2);
    return err ? err : other;
}

struct ko_wire *suite_connect(struct suite *suite, uint32_t slice_bytes)
{
    struct ko_hello hello = suite_hello(slice_bytes);
    struct ko_wire *wire = NULL;

    assert_int_equal(
        suite->transport->connect(suite->left, suite->address, suite->address_bytes, &hello, &wire),
        KOLO_OK);
    assert_non_null(wire);
    assert_ptr_equal(wire->transport, suite->transport);
    return wire;
}

struct ko_wire *suite_accept(struct suite *suite, struct ko_wire *from)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    struct ko_wire *to = NULL;
    int err;

    while ((err = suite->transport->accept(suite->right, &to)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(from, NULL), KOLO_OK);
    }
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(to->state, KO_WIRE_OPENING);
    while (!to->has_hello) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(to, from), KOLO_OK);
    }
    return to;
}

struct ends suite_open(struct suite *suite, uint32_t slice_bytes)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    struct ko_hello answer = suite_answer(slice_bytes);
    struct ends ends = {.from = suite_connect(suite, slice_bytes)};

    if (suite->traits->alone) {
        ends.to = ends.from;
        return ends;
    }
    ends.to = suite_accept(suite, ends.from);
    assert_int_equal(suite->transport->answer(ends.to, &answer), KOLO_OK);
    while (ends.from->state != KO_WIRE_OPEN || ends.to->state != KO_WIRE_OPEN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(ends.from, ends.to), KOLO_OK);
    }
    return ends;
}

void suite_hang_up(struct suite *suite, struct ends *ends)
{
    suite->transport->hangup(ends->from);
    if (ends->to != ends->from)
        suite->transport->hangup(ends->to);
    *ends = (struct ends){NULL, NULL};
}

struct links suite_open_links(struct suite *suite, uint32_t slice_bytes)
{
    const struct ends ends = suite_open(suite, slice_bytes);
    const uint32_t slots = suite_hello(slice_bytes).slots;
    struct links links;

    assert_int_equal(ko_link_create(2, slots, slice_bytes, &links.from), KOLO_OK);
    assert_int_equal(ko_link_open(links.from, ends.from), KOLO_OK);
    links.to = links.from;
    if (ends.to == ends.from)
        return links;
    assert_int_equal(ko_link_create(1, slots, slice_bytes, &links.to), KOLO_OK);
    assert_int_equal(ko_link_open(links.to, ends.to), KOLO_OK);
    return links;
}

void suite_free_links(const struct links *links)
{
    if (links->to != links->from)
        ko_link_free(links->to);
    ko_link_free(links->from);
}

void suite_expect_failure(struct ko_wire *wire, int status)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    do {
        assert_false(ko_deadline_passed(&deadline));
        err = suite_settle(wire, NULL);
        if (!err && wire->state == KO_WIRE_OPEN)
            err = wire->transport->next(wire, &frame);
    } while (err == KO_AGAIN || err == KOLO_OK);
    if (err != status)
        print_message("# %s\n", kolo_last_error());
    assert_int_equal(err, status);
    assert_true(strlen(kolo_last_error()) > 0);
}

void suite_expect_loss(struct ko_wire *wire)
{
    suite_expect_failure(wire, KOLO_E_PEER_LOST);
}

const struct ko_frame *suite_next(struct ko_wire *wire, struct ko_wire *other)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    const struct ko_frame *frame = NULL;
    int err;

    while ((err = wire->transport->next(wire, &frame)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(suite_settle(wire, other), KOLO_OK);
    }
    assert_int_equal(err, KOLO_OK);
    return frame;
}

void suite_land(struct ko_wire *wire, struct ko_wire *other, void *to)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    int err;

    while ((err = wire->transport->land(wire, to)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_true(wire->wanted & KO_POLL_IN); /* somebody waits for the rest */
        assert_int_equal(suite_settle(wire, other), KOLO_OK);
    }
    assert_int_equal(err, KOLO_OK);
}

/* ---- patterns ------------------------------------------------------------------------------- */

unsigned char suite_byte(uint64_t key, size_t i)
{
    uint64_t mixed = (key * 0x9e3779b97f4a7c15U) ^ ((i + 1) * 0xd1342543de82ef95U);

    return (unsigned char)(mixed >> 41);
}

void suite_fill(unsigned char *bytes, size_t nbytes, uint64_t key)
{
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = suite_byte(key, i);
}

int suite_matches(const unsigned char *bytes, size_t nbytes, uint64_t key)
{
    for (size_t i = 0; i < nbytes; i++)
        if (bytes[i] != suite_byte(key, i))
            return 0;
    return 1;
}

/* ---- processes ------------------------------------------------------------------------------ */

/* In the child: a device of its own, whose address goes up the pipe; then the role; then nothing,
 * or what drives a wire. */
static void child_main(struct suite *suite, suite_role role, int up)
{
    unsigned char message[KO_ADDRESS_BYTES] = {0};
    const struct ko_site site = transport_suite_site();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    suite->transport->close(suite->right);
    if (suite->transport->open(&site, &suite->right))
        _exit(2);
    suite->address_bytes = suite->transport->address(suite->left, suite->address);
    suite->transport->address(suite->right, message);
    if (write(up, message, sizeof message) != sizeof message || role(suite) ||
        write(up, "", 1) != 1) {
        fprintf(stderr, "the child has failed; its last error: %s\n", kolo_last_error());
        _exit(3);
    }
    for (;;)
        if (!suite->driven || suite_settle(suite->driven, NULL))
            pause();
}

struct suite_child suite_fork(struct suite *suite, suite_role role)
{
    struct suite_child child;
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        close(ends[0]);
        child_main(suite, role, ends[1]);
    }
    close(ends[1]);
    child.ready = ends[0];
    assert_int_equal(read(child.ready, suite->address, sizeof suite->address),
                     (ssize_t)sizeof suite->address);
    return child;
}

void suite_await(const struct suite_child *child)
{
    char byte;

    assert_int_equal(read(child->ready, &byte, 1), 1);
}

void suite_kill(const struct suite_child *child)
{
    int status;

    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(WIFSIGNALED(status));
    close(child->ready);
}
