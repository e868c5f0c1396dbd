/* SPDX-License-Identifier: MIT
 *
 * Wires of rdma with several queue pairs, on one adapter or on several: who goes with whom, what
 * each carries, and that a message has come when all of it has, whichever rail is the slowest, or
 * fails. The adapters are those of tests/fakeverbs; a0 and b0 are on networks of their own.
 */
#include "rdma_pair.h"

#include "clock.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char left_devices[] = "a0:roce@10.77.1.1,b0:roce@10.77.2.1";

static int set_up(void **state)
{
    static const char *const names[] = {
        "FAKEVERBS_BREAK", "FAKEVERBS_STATUS", "FAKEVERBS_EVENT", "FAKEVERBS_JITTER",
        "FAKEVERBS_HELD",  "FAKEVERBS_ONLY",   "FAKEVERBS_DOWN",  "KOLO_IB_QPS_PER_CONNECTION"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("FAKEVERBS_DEVICES", left_devices, 1);
    setenv("KOLO_IB_HCA", "a0,b0", 1);
    return 0;
}

static uint64_t sent_by(const char *device)
{
    uint64_t (*sent)(const char *);

    *(void **)&sent = rdma_pair_find("fakeverbs_sent");
    return sent(device);
}

/* A pair whose ends have other adapters; the ends of KOLO_IB_HCA are the names. */
static int open_between(struct rdma_pair *pair, const char *left, const char *left_hca,
                        const char *right, const char *right_hca)
{
    *pair = (struct rdma_pair){.left = NULL};
    setenv("FAKEVERBS_DEVICES", left, 1);
    setenv("KOLO_IB_HCA", left_hca, 1);
    assert_int_equal(rdma->open(&rdma_pair_site, &pair->left), KOLO_OK);
    setenv("FAKEVERBS_DEVICES", right, 1);
    setenv("KOLO_IB_HCA", right_hca, 1);
    assert_int_equal(rdma->open(&rdma_pair_site, &pair->right), KOLO_OK);
    return rdma_pair_open_wire(pair);
}

/* ---- stripes --------------------------------------------------------------------------------- */

static void stripes_are_whole_lines_and_cover_all(void **state)
{
    (void)state;
    for (int nrails = 1; nrails <= KO_RDMA_RAILS; nrails++)
        for (size_t nbytes = KO_RDMA_DIRECT; nbytes < 1 << 20; nbytes += 1 + nbytes / 37) {
            const size_t stripe = ko_rdma_stripe(nbytes, nrails);

            assert_int_equal(stripe % 128, 0);
            assert_true(stripe * (size_t)nrails >= nbytes);
            assert_true(stripe == KO_RDMA_STRIPE || stripe < nbytes / (size_t)nrails + 129);
        }
}

/* What a message of nbytes puts on each of two rails: the first one has the lines, too. */
static void expect_shares(struct rdma_pair *pair, size_t nbytes)
{
    const uint64_t a = sent_by("a0"), b = sent_by("b0");
    const size_t stripe = ko_rdma_stripe(nbytes, 2);

    rdma_pair_pass(pair, nbytes); /* in each direction */
    assert_int_equal(sent_by("a0") - a, 2 * (stripe + sizeof(struct ko_rdma_line)));
    assert_int_equal(sent_by("b0") - b, 2 * (nbytes - stripe));
}

static void each_adapter_carries_its_share(void **state)
{
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    assert_int_equal(rdma_pair_of(pair.from)->nrails, 2);
    expect_shares(&pair, KO_RDMA_DIRECT);
    expect_shares(&pair, KO_RDMA_DIRECT + 1);
    expect_shares(&pair, 99991);
    expect_shares(&pair, RDMA_SLICE - 3);
    rdma_pair_pass(&pair, KO_RDMA_DIRECT - 1);
    rdma_pair_pass(&pair, 0);
    rdma_pair_close(&pair);
}

static void several_queue_pairs_on_each(void **state)
{
    static const struct {
        const char *qps, *hca;
        int nrails;
    } rows[] = {{"1", "a0", 1}, {"3", "a0", 3}, {"2", "b0,a0", 4}, {"8", "a0,b0", KO_RDMA_RAILS}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rdma_pair pair;

        setenv("KOLO_IB_QPS_PER_CONNECTION", rows[i].qps, 1);
        setenv("KOLO_IB_HCA", rows[i].hca, 1);
        pair = rdma_pair_new();
        assert_int_equal(rdma_pair_of(pair.from)->nrails, rows[i].nrails);
        assert_int_equal(rdma_pair_of(pair.to)->nrails, rows[i].nrails);
        for (size_t nbytes = 1; nbytes < RDMA_SLICE; nbytes = 5 * nbytes + 3)
            rdma_pair_pass(&pair, nbytes);
        rdma_pair_pass(&pair, RDMA_SLICE);
        rdma_pair_close(&pair);
    }
}

/* Writes that have no immediates are followed by words of their own, on each rail. */
static void rails_without_immediates(void **state)
{
    struct rdma_pair pair;

    (void)state;
    setenv("FAKEVERBS_DEVICES", "a0:plain@10.77.1.1,b0:plain@10.77.2.1", 1);
    setenv("KOLO_IB_QPS_PER_CONNECTION", "2", 1);
    pair = rdma_pair_new();
    for (int i = 0; i < 20; i++)
        rdma_pair_pass(&pair, RDMA_SLICE - (size_t)i);
    rdma_pair_close(&pair);
}

/* ---- who goes with whom ---------------------------------------------------------------------- */

static void rails_are_matched_by_address(void **state)
{
    struct rdma_pair pair;

    (void)state;
    assert_int_equal(
        open_between(&pair, left_devices, "a0,b0", "c0:roce@10.77.2.9,d0:roce@10.77.1.9", "c0,d0"),
        KOLO_OK);
    assert_string_equal(rdma_pair_of(pair.to)->rails[0].adapter->port.device, "d0");
    assert_string_equal(rdma_pair_of(pair.to)->rails[1].adapter->port.device, "c0");
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
}

/* In one network any two reach each other: none is left out. */
static void no_adapter_is_left_out(void **state)
{
    struct rdma_pair pair;

    (void)state;
    assert_int_equal(open_between(&pair, "a0:roce@10.77.1.1,b0:roce@10.77.1.2", "a0,b0",
                                  "c0:roce@10.77.1.3,d0:roce@10.77.1.4", "c0,d0"),
                     KOLO_OK);
    assert_ptr_not_equal(rdma_pair_of(pair.to)->rails[0].adapter,
                         rdma_pair_of(pair.to)->rails[1].adapter);
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
}

static void hosts_with_unequal_numbers_of_adapters(void **state)
{
    struct rdma_pair pair;

    (void)state;
    assert_int_equal(open_between(&pair, "a0:roce@10.77.1.1", "a0",
                                  "c0:roce@10.77.1.3,d0:roce@10.77.1.4", "c0,d0"),
                     KOLO_OK);
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
    assert_int_equal(open_between(&pair, "c0:roce@10.77.1.3,d0:roce@10.77.1.4", "c0,d0",
                                  "a0:roce@10.77.1.1", "a0"),
                     KOLO_OK);
    assert_int_equal(rdma_pair_of(pair.to)->nrails, 2);
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
}

/* The link is not made without it. */
static void a_rail_that_reaches_nobody(void **state)
{
    static const char *const words[] = {
        "the first write ended with", "b0 port 1, GID 3", "10.77.2.1", "d0", "10.77.3.9",
        "KOLO_IB_GID_INDEX"};
    struct rdma_pair pair;

    (void)state;
    assert_int_equal(
        open_between(&pair, left_devices, "a0,b0", "c0:roce@10.77.1.9,d0:roce@10.77.3.9", "c0,d0"),
        KOLO_E_SYSTEM);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(kolo_last_error(), words[i]))
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), words[i]);
    rdma_pair_close(&pair);
}

/* Of each name the best port, and none of another kind; without names one. */
static void which_adapters_are_taken(void **state)
{
    static const struct {
        const char *devices, *hca, *down;
        int n;
        const char *first;
    } rows[] = {{"a0,b0,c0", "", "", 1, "a0"},
                {"a0,b0,c0", "^a0", "", 1, "b0"},
                {"a0,b0,c0", "c0,a0", "", 2, "a0"},
                {"a0,b0,c0", "c0,a0:1,a0", "", 2, "a0"},
                {"a0,b0,c0", "a0,b0,c0", "a0", 2, "b0"},
                {"a0,b0,c0,d0,e0,f0", "f0,e0,d0,c0,b0,a0", "", KO_IB_CHOSEN_CAP, "a0"},
                {"w0:iwarp,a0:ib,b0:roce,c0:ib", "w0,a0,b0,c0", "", 2, "a0"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ko_device *device;
        const struct ko_rdma_device *own;

        setenv("FAKEVERBS_DEVICES", rows[i].devices, 1);
        setenv("FAKEVERBS_DOWN", rows[i].down, 1);
        setenv("KOLO_IB_HCA", rows[i].hca, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
        own = (const struct ko_rdma_device *)device;
        assert_int_equal(own->nadapters, rows[i].n);
        assert_string_equal(own->adapters[0].port.device, rows[i].first);
        rdma->close(device);
    }
}

/* ---- slow rails ------------------------------------------------------------------------------ */

static void await_only(struct rdma_pair *pair, unsigned rails, void *got)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    while (rdma_pair_of(pair->to)->in.awaited != rails) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(rdma->drive(pair->from), KOLO_OK);
        assert_int_equal(rdma->land(pair->to, got), KO_AGAIN);
    }
}

/* A message whose stripe on one adapter is held back has not come, whatever the other says. */
static void hold_back(const char *held, unsigned awaited)
{
    static unsigned char body[RDMA_SLICE], got[RDMA_SLICE];
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = RDMA_SLICE}, .body = body};
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    struct rdma_pair pair = rdma_pair_new();
    const struct ko_frame *frame;
    int err;

    rdma_pair_fill(body, sizeof body, 5);
    memset(got, 0, sizeof got);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    while ((err = rdma->next(pair.to, &frame)) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    assert_int_equal(rdma->land(pair.to, got), KO_AGAIN);
    setenv("FAKEVERBS_HELD", held, 1);
    await_only(&pair, awaited, got);
    for (int i = 0; i < 100; i++)
        assert_int_equal(rdma->land(pair.to, got), KO_AGAIN);
    assert_true(post.is_queued);
    unsetenv("FAKEVERBS_HELD");
    while ((err = rdma->land(pair.to, got)) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    assert_int_equal(err, KOLO_OK);
    assert_memory_equal(got, body, sizeof body);
    while (post.is_queued) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(rdma->drive(pair.from), KOLO_OK);
    }
    rdma_pair_close(&pair);
}

static void the_slowest_rail_ends_a_message(void **state)
{
    (void)state;
    hold_back("b0", 2);
    hold_back("a0", 1);
}

/* Completions of several messages come in any order between the rails. */
static void delays_change_nothing(void **state)
{
    static const char *const slow[] = {"a0", "b0", ""};

    (void)state;
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        struct rdma_pair pair = rdma_pair_new();

        setenv("FAKEVERBS_ONLY", slow[i], 1);
        setenv("FAKEVERBS_JITTER", "3000", 1);
        for (size_t nbytes = RDMA_SLICE; nbytes > KO_RDMA_DIRECT; nbytes -= nbytes / 7)
            rdma_pair_pass(&pair, nbytes);
        rdma_pair_close(&pair);
        unsetenv("FAKEVERBS_JITTER");
    }
}

/* Posts are given back one by one although a later message's stripes have all arrived before. */
static void many_messages_in_flight(void **state)
{
    enum { MANY = 24, NBYTES = 70001 };
    static unsigned char body[NBYTES], got[NBYTES];
    static struct ko_post posts[MANY];
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    struct rdma_pair pair = rdma_pair_new();
    const struct ko_frame *frame;

    (void)state;
    setenv("FAKEVERBS_ONLY", "b0", 1);
    setenv("FAKEVERBS_JITTER", "4000", 1);
    rdma_pair_fill(body, sizeof body, 9);
    for (int i = 0; i < MANY; i++) {
        posts[i] = (struct ko_post){
            .frame = {.kind = KO_FRAME_DATA, .nbytes = NBYTES, .stamp = {.seq = (uint64_t)i}},
            .body = body};
        assert_int_equal(rdma->send(pair.from, &posts[i]), KOLO_OK);
    }
    for (int i = 0; i < MANY; i++) {
        int err = KO_AGAIN;

        memset(got, 0, sizeof got);
        while (err == KO_AGAIN) {
            assert_false(ko_deadline_passed(&deadline));
            assert_int_equal(rdma->drive(pair.from), KOLO_OK);
            err = rdma->next(pair.to, &frame);
            if (!err)
                err = rdma->land(pair.to, got);
        }
        assert_int_equal(err, KOLO_OK);
        assert_memory_equal(got, body, sizeof got);
    }
    while (rdma->deliver(pair.from) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    for (int i = 0; i < MANY; i++)
        assert_false(posts[i].is_queued);
    rdma_pair_close(&pair);
}

/* ---- rails that fail ------------------------------------------------------------------------- */

/* Begins a long message, up to where it is to be written. */
static void begin_long(struct rdma_pair *pair, struct ko_post *post, void *got)
{
    rdma_pair_announce(pair, post);
    assert_int_equal(rdma->land(pair->to, got), KO_AGAIN);
}

static void the_second_rail_fails(void **state)
{
    static const char *const words[] = {"writing ended with",
                                        "between b0 port 1, GID 3 = ::ffff:10.77.2.1",
                                        "RETRY_EXC_ERR (12, vendor error 129)", NULL};
    static unsigned char body[RDMA_SLICE], got[RDMA_SLICE];
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = RDMA_SLICE}, .body = body};
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    struct rdma_pair pair = rdma_pair_new();
    int err;

    (void)state;
    setenv("FAKEVERBS_ONLY", "b0", 1);
    setenv("FAKEVERBS_STATUS", "1=12/129", 1);
    begin_long(&pair, &post, got);
    rdma_pair_expect(pair.from, KOLO_E_PEER_LOST, words);
    assert_false(post.is_queued);
    rdma->hangup(pair.from);
    pair.from = NULL;
    while ((err = rdma->land(pair.to, got)) == KO_AGAIN) {
        assert_false(ko_deadline_passed(&deadline));
        (void)rdma->arm(pair.to);
    }
    assert_int_equal(err, KOLO_E_PEER_LOST);
    assert_false(pair.to->is_written_to);
    rdma_pair_close(&pair);
}

static void the_second_adapter_is_removed(void **state)
{
    static const char *const words[] = {"the RDMA adapter b0 has failed or been removed", NULL};
    static unsigned char body[RDMA_SLICE], got[RDMA_SLICE];
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = RDMA_SLICE}, .body = body};
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    setenv("FAKEVERBS_ONLY", "b0", 1);
    setenv("FAKEVERBS_EVENT", "1=8", 1);
    begin_long(&pair, &post, got);
    rdma_pair_expect(pair.from, KOLO_E_SYSTEM, words);
    rdma_pair_close(&pair);
}

/* With one of them it cannot be registered: it goes through slots, by the first rail. */
static void memory_that_one_adapter_does_not_take(void **state)
{
    struct rdma_pair pair = rdma_pair_new();
    uint64_t a, b;
    void *body;

    (void)state;
    assert_int_equal(kolo_mem_alloc(2 * RDMA_SLICE, &body), KOLO_OK);
    rdma_pair_fill(body, RDMA_SLICE, 3);
    setenv("FAKEVERBS_ONLY", "b0", 1);
    setenv("FAKEVERBS_BREAK", "ibv_reg_mr=12", 1);
    a = sent_by("a0");
    b = sent_by("b0");
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_pass_bytes(pair.from, pair.to, body, (unsigned char *)body + RDMA_SLICE, RDMA_SLICE);
    assert_int_equal(sent_by("a0"), a);
    assert_int_equal(sent_by("b0"), b);
    unsetenv("FAKEVERBS_BREAK");
    expect_shares(&pair, RDMA_SLICE);
    rdma_pair_pass_bytes(pair.from, pair.to, body, (unsigned char *)body + RDMA_SLICE, RDMA_SLICE);
    rdma_pair_close(&pair);
    kolo_mem_free(body);
}

/* Every call fails once on the way to a wire of two rails, and nothing is left behind. */
static void every_call_can_fail(void **state)
{
    static const char *const calls[] = {
        "ibv_open_device", "ibv_alloc_pd",  "ibv_create_comp_channel",
        "ibv_create_cq",   "ibv_create_qp", "ibv_reg_mr",
        "ibv_modify_qp",   "ibv_post_recv", "ibv_post_send"};

    (void)state;
    rdma_pair_break(calls, sizeof calls / sizeof *calls, 9);
}

/* An immediate that says nothing known, by either rail. */
static void immediates_that_kolo_never_sends(void **state)
{
    static const uint32_t immediates[] = {0, 4, UINT32_MAX};
    static const char *const words[] = {"an immediate of no known kind came, which kolo never",
                                        NULL};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct rdma_pair pair = rdma_pair_new();
        struct ko_ib_qp *qp = rdma_pair_of(pair.from)->rails[i % 2].qp;
        struct ko_ib_send *bad,
            send = {.opcode = KO_IB_WRITE_IMM, .imm_data = htonl(immediates[i / 2])};
        const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

        rdma_pair_of(pair.to)->in.awaited = 2; /* that it looks at the second, too */
        assert_int_equal(qp->context->ops.post_send(qp, &send, &bad), 0);
        while (!rdma_pair_of(pair.to)->status) {
            assert_false(ko_deadline_passed(&deadline));
            (void)rdma->arm(pair.to);
        }
        rdma_pair_expect(pair.to, KOLO_E_PROTOCOL, words);
        rdma_pair_close(&pair);
    }
}

/* A card with more rails than there can be, or than were asked for. */
static void cards_that_kolo_never_writes(void **state)
{
    static const uint16_t counts[] = {0, 3, KO_RDMA_RAILS + 1, UINT16_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct rdma_pair pair = rdma_pair_new();
        struct ko_hello hello = pair.from->hello;
        struct ko_rdma_card card = rdma_pair_of(pair.from)->card;

        card.nrails = counts[i];
        memcpy(hello.card, &card, sizeof card);
        assert_int_equal(ko_rdma_card_take(rdma_pair_of(pair.from), &hello), KOLO_E_PROTOCOL);
        rdma_pair_close(&pair);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(stripes_are_whole_lines_and_cover_all),
                                       TEST(each_adapter_carries_its_share),
                                       TEST(several_queue_pairs_on_each),
                                       TEST(rails_without_immediates),
                                       TEST(rails_are_matched_by_address),
                                       TEST(no_adapter_is_left_out),
                                       TEST(hosts_with_unequal_numbers_of_adapters),
                                       TEST(a_rail_that_reaches_nobody),
                                       TEST(which_adapters_are_taken),
                                       TEST(the_slowest_rail_ends_a_message),
                                       TEST(delays_change_nothing),
                                       TEST(many_messages_in_flight),
                                       TEST(the_second_rail_fails),
                                       TEST(the_second_adapter_is_removed),
                                       TEST(memory_that_one_adapter_does_not_take),
                                       TEST(every_call_can_fail),
                                       TEST(immediates_that_kolo_never_sends),
                                       TEST(cards_that_kolo_never_writes)};

    return cmocka_run_group_tests_name("rdma by several rails", tests, NULL, NULL);
}
