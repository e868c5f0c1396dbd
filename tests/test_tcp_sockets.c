/* SPDX-License-Identifier: MIT
 *
 * Wires over several TCP connections: who is let in, order, sleeping, and the loss of one of them.
 */
#include "clock.h"
#include "kolo.h"
#include "poller.h"
#include "status.h"
#include "transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 20000, SLICE = 256 << 10, MOST_FD = 256 };

static const struct ko_transport *const tcp = &ko_transport_tcp;

static struct ko_device *open_device(const char *sockets)
{
    const struct ko_site site = {.listen_host = "127.0.0.1"};
    struct ko_device *device;

    setenv("KOLO_TCP_SOCKETS", sockets, 1);
    assert_int_equal(tcp->open(&site, &device), KOLO_OK);
    return device;
}

static struct ko_hello hello_from(int rank, uint16_t sockets)
{
    return (struct ko_hello){.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .group = 77,
                             .from = rank,
                             .to = 3 - rank,
                             .slots = 8,
                             .slice_bytes = SLICE,
                             .sockets = sockets};
}

/* Drives a wire, and another if there is one, until it is open or has failed. */
static int drive_open(struct ko_wire *wire, struct ko_wire *other)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    int err = KOLO_OK;

    while (!err && wire->state != KO_WIRE_OPEN) {
        assert_false(ko_deadline_passed(&deadline));
        err = tcp->drive(wire);
        if (other && !err)
            err = tcp->drive(other);
        usleep(100);
    }
    return err;
}

/* An accepted wire with its hello. */
static struct ko_wire *accept_wire(struct ko_device *device, struct ko_wire *from)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    struct ko_wire *wire;

    while (tcp->accept(device, &wire) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    while (!wire->has_hello) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(tcp->drive(wire), KOLO_OK);
        if (from)
            assert_int_equal(tcp->drive(from), KOLO_OK);
    }
    return wire;
}

struct ends {
    struct ko_device *left, *right;
    struct ko_wire *from, *to;
};

static struct ends open_ends(const char *left_sockets, const char *right_sockets)
{
    struct ends ends = {.left = open_device(left_sockets), .right = open_device(right_sockets)};
    const struct ko_hello hello = hello_from(1, 0), answer = hello_from(2, 0);
    unsigned char address[KO_ADDRESS_BYTES];
    const size_t nbytes = tcp->address(ends.right, address);

    assert_int_equal(tcp->connect(ends.left, address, nbytes, &hello, &ends.from), KOLO_OK);
    ends.to = accept_wire(ends.right, ends.from);
    assert_int_equal(tcp->answer(ends.to, &answer), KOLO_OK);
    assert_int_equal(drive_open(ends.to, ends.from), KOLO_OK);
    assert_int_equal(drive_open(ends.from, ends.to), KOLO_OK);
    return ends;
}

static void close_ends(struct ends *ends)
{
    tcp->hangup(ends->from);
    tcp->hangup(ends->to);
    tcp->close(ends->left);
    tcp->close(ends->right);
}

/* Connected TCP sockets of this process, at most cap. */
static int list_sockets(int *fds, int cap)
{
    struct sockaddr_in peer = {.sin_family = AF_UNSPEC};
    int n = 0;

    for (int fd = 3; fd < MOST_FD && n < cap; fd++) {
        socklen_t length = sizeof peer;

        if (!getpeername(fd, (struct sockaddr *)&peer, &length) && peer.sin_family == AF_INET)
            fds[n++] = fd;
    }
    return n;
}

static void the_lower_count_holds(void **state)
{
    static const struct {
        const char *left, *right;
        int n;
    } rows[] = {{"1", "1", 1}, {"4", "2", 2}, {"2", "4", 2}, {"1", "4", 1}, {"16", "16", 16}};
    int fds[64];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ends ends = open_ends(rows[i].left, rows[i].right);

        assert_int_equal(ends.from->hello.sockets, rows[i].n);
        assert_int_equal(list_sockets(fds, 64), 2 * rows[i].n);
        close_ends(&ends);
        assert_int_equal(list_sockets(fds, 64), 0);
    }
}

/* Whatever the system's choice is. */
static void wires_within_a_machine_go_by_reno(void **state)
{
    struct ends ends = open_ends("3", "3");
    int fds[6];

    (void)state;
    assert_int_equal(list_sockets(fds, 6), 6);
    for (int i = 0; i < 6; i++) {
        char name[16] = "";
        socklen_t length = sizeof name - 1;

        assert_return_code(getsockopt(fds[i], IPPROTO_TCP, TCP_CONGESTION, name, &length), errno);
        assert_string_equal(name, "reno");
    }
    close_ends(&ends);
}

/* ---- order and sleeping ------------------------------------------------------------------- */

enum { NMESSAGES = 400 };

/* Message i is of so many bytes, now short, now long. */
static size_t length_of(unsigned i)
{
    static const size_t lengths[] = {0, 1, 300, 8191, 8192, 65536, 131071, 131072, SLICE};
    uint32_t mixed = (i + 1) * 2654435761U;

    mixed ^= mixed >> 15;
    return lengths[mixed % (sizeof lengths / sizeof *lengths)];
}

/* Sleeps for the wire as its user does: on its one descriptor alone. */
static int sleep_for(struct ko_wire *wire)
{
    struct pollfd entry = {.fd = wire->fd};

    entry.events = (short)((wire->wanted & KO_POLL_IN ? POLLIN : 0) |
                           (wire->wanted & KO_POLL_OUT ? POLLOUT : 0));
    return poll(&entry, 1, LIMIT_MS) == 1 ? tcp->drive(wire) : -1;
}

struct way {
    struct ko_wire *wire;
    bool is_slow;
    int failed;
};

static void *send_all(void *argument)
{
    struct way *way = argument;
    unsigned char *body = malloc(SLICE);
    struct ko_post posts[8] = {0};

    memset(body, 0x35, SLICE);
    for (unsigned i = 0; i < NMESSAGES + 8 && !way->failed; i++) {
        struct ko_post *post = &posts[i % 8];

        while (post->is_queued && !way->failed)
            way->failed = sleep_for(way->wire);
        if (i >= NMESSAGES || way->failed)
            continue;
        *post = (struct ko_post){
            .frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)length_of(i), .stamp = {.seq = i}},
            .body = body,
            .may_wait = i % 3 == 0 && i + 1 < NMESSAGES};
        way->failed = tcp->send(way->wire, post);
        if (way->is_slow && i % 16 == 0)
            usleep(1000);
    }
    free(body);
    return NULL;
}

static int take_one(struct ko_wire *wire, unsigned i, unsigned char *got)
{
    const struct ko_frame *frame;
    int err;

    while ((err = tcp->next(wire, &frame)) == KO_AGAIN)
        if (sleep_for(wire))
            return -2;
    if (err || frame->stamp.seq != i || frame->nbytes != length_of(i))
        return -3;
    memset(got, 0, SLICE);
    while ((err = tcp->land(wire, got)) == KO_AGAIN)
        if (sleep_for(wire))
            return -4;
    for (size_t k = 0; k < length_of(i); k++)
        if (got[k] != 0x35)
            return -5;
    return err;
}

static void *take_all(void *argument)
{
    struct way *way = argument;
    unsigned char *got = malloc(SLICE);

    for (unsigned i = 0; i < NMESSAGES && !way->failed; i++) {
        if (!way->is_slow && i % 16 == 0)
            usleep(1000);
        way->failed = take_one(way->wire, i, got);
    }
    free(got);
    return NULL;
}

/* Both ends sleep whenever they must; one of them is slow. */
static void in_order_with_sleeps(void **state)
{
    static const char *const sockets[] = {"1", "2", "3", "5"};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof sockets / sizeof *sockets; i++) {
        struct ends ends = open_ends(sockets[i / 2], sockets[i / 2]);
        struct way out = {ends.from, i % 2, 0}, in = {ends.to, i % 2, 0};
        pthread_t sender, taker;

        assert_int_equal(pthread_create(&sender, NULL, send_all, &out), 0);
        assert_int_equal(pthread_create(&taker, NULL, take_all, &in), 0);
        pthread_join(sender, NULL);
        pthread_join(taker, NULL);
        assert_int_equal(out.failed, 0);
        assert_int_equal(in.failed, 0);
        close_ends(&ends);
    }
}

/* ---- who is let in ------------------------------------------------------------------------ */

static int dial(int port)
{
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    return fd;
}

static void put(int fd, const void *bytes, size_t nbytes)
{
    assert_int_equal(send(fd, bytes, nbytes, MSG_NOSIGNAL), (ssize_t)nbytes);
}

/* Drives until the other end of fd has been closed. */
static void expect_refusal(struct ko_wire *wire, int fd)
{
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    char byte;

    while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(tcp->drive(wire), KOLO_OK);
    }
    assert_int_equal(wire->state, KO_WIRE_OPENING);
    close(fd);
}

struct guest {
    struct ko_device *device;
    struct ko_wire *wire;
    int first;
    struct ko_hello answer;
};

/* A bare socket that has begun a wire of `sockets` and been invited. */
static struct guest invited(uint16_t sockets)
{
    const struct ko_hello hello = hello_from(1, sockets), answer = hello_from(2, 0);
    struct guest guest = {.device = open_device("4")};
    unsigned char address[KO_ADDRESS_BYTES];
    uint16_t port;

    tcp->address(guest.device, address);
    memcpy(&port, address + 64, sizeof port);
    guest.first = dial(port);
    put(guest.first, &hello, sizeof hello);
    guest.wire = accept_wire(guest.device, NULL);
    assert_int_equal(tcp->answer(guest.wire, &answer), KOLO_OK);
    assert_int_equal(recv(guest.first, &guest.answer, sizeof guest.answer, MSG_WAITALL),
                     (ssize_t)sizeof guest.answer);
    return guest;
}

static void end_guest(struct guest *guest)
{
    tcp->hangup(guest->wire);
    tcp->close(guest->device);
    close(guest->first);
}

/* Comes to the invitation's port as the stream of that place. */
static int come(const struct guest *guest, uint64_t secret, uint16_t place)
{
    struct ko_hello hello = hello_from(1, place);
    int fd = dial(guest->answer.port);

    hello.segment = secret;
    put(fd, &hello, sizeof hello);
    return fd;
}

static void only_the_invited_are_let_in(void **state)
{
    struct guest guest = invited(3);
    static const char wish[] = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    const uint64_t secret = guest.answer.segment;
    char browser[sizeof(struct ko_hello)];
    int second, third, fd;

    (void)state;
    assert_int_equal(guest.answer.sockets, 3);
    expect_refusal(guest.wire, come(&guest, secret + 1, 1));
    expect_refusal(guest.wire, come(&guest, 0, 1));
    expect_refusal(guest.wire, come(&guest, secret, 0));
    expect_refusal(guest.wire, come(&guest, secret, 3));
    second = come(&guest, secret, 2);
    expect_refusal(guest.wire, come(&guest, secret, 2)); /* there is one already */
    fd = dial(guest.answer.port);
    memset(browser, '.', sizeof browser); /* as long as a hello is */
    memcpy(browser, wish, sizeof wish - 1);
    put(fd, browser, sizeof browser);
    expect_refusal(guest.wire, fd);
    third = come(&guest, secret, 1);
    assert_int_equal(drive_open(guest.wire, NULL), KOLO_OK);
    close(second);
    close(third);
    end_guest(&guest);
}

/* Silent strangers do not keep the invited out. */
static void strangers_make_room(void **state)
{
    enum { N = 40 };
    struct guest guest = invited(2);
    int strangers[N], second;

    (void)state;
    for (int i = 0; i < N; i++)
        strangers[i] = dial(guest.answer.port);
    assert_int_equal(tcp->drive(guest.wire), KOLO_OK);
    second = come(&guest, guest.answer.segment, 1);
    assert_int_equal(drive_open(guest.wire, NULL), KOLO_OK);
    for (int i = 0; i < N; i++)
        close(strangers[i]);
    close(second);
    end_guest(&guest);
}

static void gone_before_all_came(void **state)
{
    struct guest guest = invited(4);

    (void)state;
    close(guest.first);
    guest.first = dial(guest.answer.port);
    assert_int_equal(drive_open(guest.wire, NULL), KOLO_E_PEER_LOST);
    end_guest(&guest);
}

/* Answers of a listener that is not kolo's. */
static void bad_answer(uint16_t sockets, int status)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof where;
    const struct ko_hello hello = hello_from(1, 0);
    struct ko_hello answer = hello_from(2, sockets), heard;
    struct ko_device *device = open_device("2");
    struct {
        char host[64];
        uint16_t port;
    } address = {"127.0.0.1", 0};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
    struct ko_wire *wire;

    assert_int_equal(bind(listener, (struct sockaddr *)&where, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&where, &length), 0);
    address.port = ntohs(where.sin_port);
    assert_int_equal(tcp->connect(device, (unsigned char *)&address, sizeof address, &hello, &wire),
                     KOLO_OK);
    fd = accept(listener, NULL, NULL);
    close(listener); /* nobody is at the port of the answer */
    answer.port = address.port;
    assert_int_equal(tcp->drive(wire), KOLO_OK);
    assert_int_equal(recv(fd, &heard, sizeof heard, MSG_WAITALL), (ssize_t)sizeof heard);
    assert_int_equal(heard.sockets, 2);
    put(fd, &answer, sizeof answer);
    assert_int_equal(drive_open(wire, NULL), status);
    tcp->hangup(wire);
    tcp->close(device);
    close(fd);
}

static void bad_answers(void **state)
{
    (void)state;
    bad_answer(3, KOLO_E_PROTOCOL);
    bad_answer(UINT16_MAX, KOLO_E_PROTOCOL);
    bad_answer(2, KOLO_E_PEER_LOST);
    bad_answer(1, KOLO_OK);
    bad_answer(0, KOLO_OK);
}

/* ---- the loss of one ---------------------------------------------------------------------- */

static void expect_loss(struct ko_wire *wire, struct ko_wire *other, struct ko_post *posts,
                        int nposts)
{
    static unsigned char got[SLICE];
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    do {
        assert_false(ko_deadline_passed(&deadline));
        (void)tcp->drive(other);
        err = tcp->drive(wire);
        if (!err)
            err = tcp->next(wire, &frame);
        if (!err)
            err = tcp->land(wire, got);
    } while (!err || err == KO_AGAIN);
    assert_int_equal(err, KOLO_E_PEER_LOST);
    assert_int_equal(tcp->drive(wire), KOLO_OK);
    for (int i = 0; i < nposts; i++)
        assert_false(posts[i].is_queued);
}

/* Both ends see the peer as lost when any of the connections ends under way. */
static void the_loss_of_one_is_the_loss_of_all(void **state)
{
    enum { N = 3, NPOSTS = 40 };
    static unsigned char body[SLICE];
    static struct ko_post posts[2][NPOSTS];
    int fds[64];

    (void)state;
    for (int victim = 0; victim < 2 * N; victim++) {
        struct ends ends = open_ends("3", "3");

        assert_int_equal(list_sockets(fds, 64), 2 * N);
        for (int i = 0; i < 2 * NPOSTS; i++) {
            struct ko_post *post = &posts[i % 2][i / 2];

            if (i == NPOSTS) /* the first half is under way */
                assert_int_equal(shutdown(fds[victim], SHUT_RDWR), 0);
            *post =
                (struct ko_post){.frame = {.kind = KO_FRAME_DATA, .nbytes = SLICE}, .body = body};
            assert_int_equal(tcp->send(i % 2 ? ends.to : ends.from, post), KOLO_OK);
        }
        expect_loss(ends.from, ends.to, posts[0], NPOSTS);
        expect_loss(ends.to, ends.from, posts[1], NPOSTS);
        close_ends(&ends);
    }
}

/* Whoever has hung up takes nothing more, also by connections whose end nobody has read: the
 * second, which has the turn here after a whole slice, is reset with a message on its way. */
static void nothing_is_delivered_to_whoever_hung_up(void **state)
{
    static unsigned char body[SLICE], got[SLICE];
    struct ends ends = open_ends("2", "2");
    struct ko_post posts[2];
    ko_deadline deadline = ko_deadline_in(LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    (void)state;
    for (int i = 0; i < 2; i++)
        posts[i] =
            (struct ko_post){.frame = {.kind = KO_FRAME_DATA, .nbytes = SLICE}, .body = body};
    assert_int_equal(tcp->send(ends.from, &posts[0]), KOLO_OK);
    do {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(tcp->drive(ends.from), KOLO_OK);
        err = tcp->next(ends.to, &frame);
        if (!err)
            err = tcp->land(ends.to, got);
    } while (err == KO_AGAIN);
    assert_int_equal(err, KOLO_OK);
    tcp->hangup(ends.to);
    assert_int_equal(tcp->send(ends.from, &posts[1]), KOLO_OK);
    while (tcp->next(ends.from, &frame) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    while ((err = tcp->deliver(ends.from)) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    assert_int_equal(err, KOLO_OK);
    tcp->hangup(ends.from);
    tcp->close(ends.left);
    tcp->close(ends.right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lower_count_holds),
        cmocka_unit_test(wires_within_a_machine_go_by_reno),
        cmocka_unit_test(in_order_with_sleeps),
        cmocka_unit_test(only_the_invited_are_let_in),
        cmocka_unit_test(strangers_make_room),
        cmocka_unit_test(gone_before_all_came),
        cmocka_unit_test(bad_answers),
        cmocka_unit_test(the_loss_of_one_is_the_loss_of_all),
        cmocka_unit_test(nothing_is_delivered_to_whoever_hung_up),
    };

    return cmocka_run_group_tests_name("tcp sockets", tests, NULL, NULL);
}
