/* SPDX-License-Identifier: MIT
 *
 * The lines that a receiver writes into its sender's memory, to say where a message is to go: that
 * they are written, in turn, and that none is believed that does not fit the message announced. The
 * adapters are those of tests/fakeverbs.
 */
#include "rdma_pair.h"

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

static const char *const devices[] = {"fake0:roce", "fake0:plain", "fake0:iwarp"};
enum { NDEVICES = sizeof devices / sizeof *devices };

static int forget_wishes(void **state)
{
    static const char *const names[] = {"FAKEVERBS_DEVICES", "FAKEVERBS_BREAK", "FAKEVERBS_STATUS"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("KOLO_DEBUG", "NONE", 1);
    return 0;
}

static unsigned char body[RDMA_SLICE], got[RDMA_SLICE];

static struct ko_post post_of(size_t nbytes)
{
    return (struct ko_post){.frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes},
                            .body = body};
}

/* ---- what is written ------------------------------------------------------------------------- */

/* Each message's goes into the next line, and says all that the sender has to know. */
static void each_message_has_its_line(void **state)
{
    (void)state;
    for (int i = 0; i < NDEVICES; i++) {
        struct rdma_pair pair;

        setenv("FAKEVERBS_DEVICES", devices[i], 1);
        pair = rdma_pair_new();
        for (unsigned number = 1; number <= 2 * KO_RDMA_LINES + 3; number++) {
            const size_t nbytes = KO_RDMA_DIRECT + number;
            const struct ko_rdma_line *line =
                &rdma_pair_of(pair.from)->lines.come[number % KO_RDMA_LINES];

            rdma_pair_fill(body, nbytes, number);
            rdma_pair_pass_bytes(pair.from, pair.to, body, got, nbytes);
            assert_int_equal(line->at, (uintptr_t)got);
            assert_int_equal(line->nbytes, nbytes);
            assert_int_equal(line->number, number);
        }
        rdma_pair_pass(&pair, RDMA_SLICE);
        rdma_pair_close(&pair);
    }
}

/* Where the adapter takes nothing inline a line is read from where it lies. */
static void lines_that_are_not_inline(void **state)
{
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    rdma_pair_of(pair.from)->slots.inline_bytes = rdma_pair_of(pair.to)->slots.inline_bytes = 0;
    for (int i = 0; i < 2 * KO_RDMA_LINES; i++)
        rdma_pair_pass(&pair, RDMA_SLICE - (size_t)i);
    rdma_pair_close(&pair);
}

/* Writes 8 bytes from one end to where the other may not be written. */
static void break_in(struct rdma_pair *pair, uint64_t at, uint32_t key)
{
    static const char *const words[] = {"writing ended with REM_ACCESS_ERR", NULL};
    const struct ko_rdma_wire *own = rdma_pair_of(pair->to);
    struct ko_ib_sge piece = {(uintptr_t)own->slots.memory, 8, own->slots.mr->lkey};
    struct ko_ib_send *bad, send = {.wr_id = own->rails[0].id | (uint64_t)KO_RDMA_WROTE << 56,
                                    .sg_list = &piece,
                                    .num_sge = 1,
                                    .opcode = KO_IB_WRITE,
                                    .send_flags = KO_IB_SIGNALED,
                                    .remote_addr = at,
                                    .rkey = key};

    assert_int_equal(own->rails[0].qp->context->ops.post_send(own->rails[0].qp, &send, &bad), 0);
    rdma_pair_expect(pair->to, KOLO_E_PEER_LOST, words);
}

/* What may be written is the lines alone: not a byte before or behind them, and no slot, even if
 * somebody had its key. */
static void slots_are_closed(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rdma_pair pair = rdma_pair_new();
        const struct ko_rdma_wire *victim = rdma_pair_of(pair.from);
        const struct ko_rdma_card *card = &rdma_pair_of(pair.to)->theirs;
        const uint64_t slots = (uintptr_t)victim->slots.memory, lines = card->lines_at;

        assert_int_equal(lines, (uintptr_t)victim->lines.come);
        if (i == 0)
            break_in(&pair, slots, card->lines_key);
        else if (i == 1)
            break_in(&pair, lines - 1, card->lines_key);
        else if (i == 2)
            break_in(&pair, lines + KO_RDMA_LINES * sizeof(struct ko_rdma_line) - 7,
                     card->lines_key);
        else
            break_in(&pair, slots, victim->slots.mr->rkey);
        rdma_pair_close(&pair);
    }
}

/* ---- what kolo never writes ------------------------------------------------------------------ */

static struct ko_rdma_line line_of(size_t nbytes)
{
    return (struct ko_rdma_line){
        .at = (uintptr_t)got, .keys = {1}, .nbytes = (uint32_t)nbytes, .number = 1};
}

static void send_line(struct ko_wire *wire, const struct ko_rdma_line *line)
{
    assert_true(ko_rdma_tell_line(rdma_pair_of(wire), line));
    ko_rdma_post_list(rdma_pair_of(wire));
}

static void lines_that_do_not_fit(void **state)
{
    enum { NBYTES = KO_RDMA_DIRECT, NROWS = 6 };
    struct ko_rdma_line rows[NROWS];
    static const char *const words[] = {"which kolo never sends", NULL};

    (void)state;
    for (int i = 0; i < NROWS; i++)
        rows[i] = line_of(NBYTES);
    rows[0].number = 2;
    rows[1].number = 1 + KO_RDMA_LINES; /* the right line */
    rows[2].nbytes--;
    rows[3].nbytes++;
    rows[4].at = UINT64_MAX - NBYTES + 1; /* its end is beyond what there is */
    rows[5].credits = 2;                  /* one is taken */
    for (int i = 0; i < NROWS * NDEVICES; i++) {
        struct ko_post post = post_of(NBYTES);
        struct rdma_pair pair;

        setenv("FAKEVERBS_DEVICES", devices[i % NDEVICES], 1);
        pair = rdma_pair_new();
        rdma_pair_announce(&pair, &post);
        send_line(pair.to, &rows[i / NDEVICES]);
        rdma_pair_expect(pair.from, KOLO_E_PROTOCOL, words);
        assert_false(post.is_queued);
        rdma_pair_close(&pair);
    }
}

static void lines_that_nobody_has_asked_for(void **state)
{
    static const char *const words[] = {"a place came for a message that was not announced", NULL};
    const struct ko_rdma_line line = line_of(KO_RDMA_DIRECT);

    (void)state;
    for (int i = 0; i < NDEVICES; i++) {
        struct rdma_pair pair;

        setenv("FAKEVERBS_DEVICES", devices[i], 1);
        pair = rdma_pair_new();
        send_line(pair.to, &line);
        rdma_pair_expect(pair.from, KOLO_E_PROTOCOL, words);
        rdma_pair_close(&pair);
    }
}

/* An immediate that tells of another line than the one that is awaited. */
static void another_line_is_told_of(void **state)
{
    static const char *const words[] = {"which kolo never sends", NULL};
    struct rdma_pair pair = rdma_pair_new();
    struct ko_post post = post_of(KO_RDMA_DIRECT);
    const struct ko_rdma_rail *rail = &rdma_pair_of(pair.to)->rails[0];
    struct ko_ib_send *bad, send = {.wr_id = rail->id | (uint64_t)KO_RDMA_PROBED << 56,
                                    .opcode = KO_IB_WRITE_IMM,
                                    .send_flags = KO_IB_SIGNALED,
                                    .imm_data = htonl(3 | 2 << 8)};
    struct ko_rdma_line *lines;

    (void)state;
    rdma_pair_announce(&pair, &post);
    lines = (struct ko_rdma_line *)(uintptr_t)rdma_pair_of(pair.from)->lines.come;
    lines[1] = line_of(KO_RDMA_DIRECT);
    assert_int_equal(rail->qp->context->ops.post_send(rail->qp, &send, &bad), 0);
    rdma_pair_expect(pair.from, KOLO_E_PROTOCOL, words);
    rdma_pair_close(&pair);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(each_message_has_its_line),
                                       TEST(lines_that_are_not_inline),
                                       TEST(slots_are_closed),
                                       TEST(lines_that_do_not_fit),
                                       TEST(lines_that_nobody_has_asked_for),
                                       TEST(another_line_is_told_of)};

    return cmocka_run_group_tests_name("lines of rdma", tests, NULL, NULL);
}
