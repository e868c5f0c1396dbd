/* SPDX-License-Identifier: MIT
 *
 * rdma over iWARP, whose queue pairs librdmacm joins: what goes another way there, and each of its
 * calls failing. The adapters are those of tests/fakeverbs.
 */
#include "rdma_pair.h"

#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int set_up(void **state)
{
    (void)state;
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("FAKEVERBS_DEVICES", "w0:iwarp", 1);
    unsetenv("FAKEVERBS_BREAK");
    unsetenv("FAKEVERBS_JITTER");
    return 0;
}

static void messages_pass(void **state)
{
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    for (size_t nbytes = 0; nbytes < 3 * KO_RDMA_DIRECT; nbytes = 3 * nbytes + 1)
        rdma_pair_pass(&pair, nbytes);
    rdma_pair_pass(&pair, RDMA_SLICE);
    setenv("FAKEVERBS_JITTER", "300", 1);
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
}

/* siw raises it in a thread that posts to a peer who has closed. */
static void a_signal_of_the_adapter_is_not_seen(void **state)
{
    struct rdma_pair pair;
    sigset_t pending;

    (void)state;
    setenv("FAKEVERBS_DEVICES", "siw0:iwarp", 1);
    assert_int_not_equal(signal(SIGPIPE, SIG_DFL), SIG_ERR);
    pair = rdma_pair_new();
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
}

/* As siw tells of what it could not send because the connection had ended. */
static void a_send_whose_connection_has_ended(void **state)
{
    static const char *const words[] = {"LOC_QP_OP_ERR", "or over iWARP the other end", NULL};
    struct rdma_pair pair = rdma_pair_new();
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};

    (void)state;
    setenv("FAKEVERBS_STATUS", "1=2/0", 1);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    rdma_pair_expect(pair.from, KOLO_E_PEER_LOST, words);
    unsetenv("FAKEVERBS_STATUS");
    rdma_pair_close(&pair);
}

/* RoCE is taken before it; it is taken where there is nothing else, and its address is ours. */
static void which_adapter_is_taken(void **state)
{
    const struct ko_site elsewhere = {.listen_host = "127.0.0.2"}, nowhere = {.listen_host = ""};
    struct ko_device *device;

    (void)state;
    assert_int_equal(rdma->open(&elsewhere, &device), KOLO_E_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "w0 is an iWARP adapter that does not have"));
    assert_non_null(strstr(kolo_last_error(), "127.0.0.2"));
    assert_int_equal(rdma->open(&nowhere, &device), KOLO_E_UNSUPPORTED);
    setenv("FAKEVERBS_DEVICES", "w0:iwarp,w1:iwarp", 1);
    setenv("KOLO_IB_HCA", "w1", 1); /* librdmacm takes w0 for the address */
    assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_E_UNSUPPORTED);
    unsetenv("KOLO_IB_HCA");
    setenv("FAKEVERBS_DEVICES", "w0:iwarp,fake0:roce", 1);
    assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
    assert_string_equal(((struct ko_rdma_device *)device)->adapters[0].port.device, "fake0");
    rdma->close(device);
}

/* Such an errno says that it is the other end that has failed. */
static void refused(int error)
{
    struct rdma_pair pair;
    char wish[64];

    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    snprintf(wish, sizeof wish, "rdma_connect=%d", error);
    setenv("FAKEVERBS_BREAK", wish, 1);
    assert_int_equal(rdma_pair_open_wire(&pair), KOLO_E_PEER_LOST);
    rdma_pair_close(&pair);
    unsetenv("FAKEVERBS_BREAK");
}

static void every_call_can_fail(void **state)
{
    static const char *const calls[] = {
        "rdma_create_event_channel", "rdma_create_id",     "rdma_bind_addr", "rdma_listen",
        "rdma_resolve_addr",         "rdma_resolve_route", "rdma_connect",   "rdma_accept",
        "rdma_get_cm_event"};

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct rdma_pair pair;
        char wish[64];

        assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
        snprintf(wish, sizeof wish, "%s=5", calls[i]);
        setenv("FAKEVERBS_BREAK", wish, 1);
        if (rdma_pair_open_wire(&pair) != KOLO_E_SYSTEM)
            fail_msg("%s: %s", calls[i], kolo_last_error());
        assert_non_null(strstr(kolo_last_error(), "over iWARP with w0"));
        rdma_pair_close(&pair);
        unsetenv("FAKEVERBS_BREAK");
    }
    refused(ECONNREFUSED);
    refused(EHOSTUNREACH);
    messages_pass(state);
}

/* Connects as the double's librdmacm does, without knowing what the card says. */
static int come_as_a_stranger(uint16_t port)
{
    const struct sockaddr_in where = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const uint32_t wish[16] = {77, 8, 1, 2};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (const struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(send(fd, wish, sizeof wish, MSG_NOSIGNAL), sizeof wish);
    return fd;
}

static void a_stranger_is_sent_away(void **state)
{
    struct rdma_pair pair;
    char byte;
    int fd;

    (void)state;
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    assert_int_equal(rdma_pair_begin(&pair), KOLO_OK);
    fd = come_as_a_stranger(rdma_pair_of(pair.from)->card.cm_port);
    assert_int_equal(rdma_pair_end(&pair), KOLO_OK);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
    rdma_pair_pass(&pair, 100);
    rdma_pair_close(&pair);
}

/* The port that the card names is nobody's any more. */
static void nobody_listens(void **state)
{
    struct rdma_pair pair;
    struct ko_rdma_meeting *meeting;

    (void)state;
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    assert_int_equal(rdma_pair_begin(&pair), KOLO_OK);
    meeting = &rdma_pair_of(pair.from)->meeting;
    rdma_pair_of(pair.from)->device->cm->destroy_id(meeting->listener);
    meeting->listener = NULL;
    assert_int_equal(rdma_pair_end(&pair), KOLO_E_PEER_LOST);
    assert_non_null(strstr(kolo_last_error(), "w0 cannot be joined to w0 of rank 1 over iWARP: "
                                              "RDMA_CM_EVENT_REJECTED"));
    rdma_pair_close(&pair);
}

/* A port that the kernel gives may be TCP's already. */
static void another_port_is_tried(void **state)
{
    struct rdma_pair pair;

    (void)state;
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    setenv("FAKEVERBS_BREAK", "rdma_listen@1-2=98,rdma_connect@1-1=98", 1); /* EADDRINUSE */
    assert_int_equal(rdma_pair_open_wire(&pair), KOLO_OK);
    rdma_pair_pass(&pair, 1000);
    rdma_pair_close(&pair);
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    setenv("FAKEVERBS_BREAK", "rdma_listen=98", 1);
    assert_int_equal(rdma_pair_open_wire(&pair), KOLO_E_SYSTEM);
    rdma_pair_close(&pair);
    unsetenv("FAKEVERBS_BREAK");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_pass),           TEST(a_signal_of_the_adapter_is_not_seen),
        TEST(which_adapter_is_taken),  TEST(every_call_can_fail),
        TEST(a_stranger_is_sent_away), TEST(nobody_listens),
        TEST(another_port_is_tried),   TEST(a_send_whose_connection_has_ended)};

    return cmocka_run_group_tests_name("rdma over iWARP", tests, NULL, NULL);
}
