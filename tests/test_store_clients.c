/* SPDX-License-Identifier: MIT
 *
 * Sixteen clients of all numberings do random operations, cancel, hang up and watch, on few keys;
 * after each operation every client must have got exactly what a simple model of a store says.
 * Some have so much else to do in a turn that it is over before all have been woken, or told, whom
 * it concerns: others act before it goes on. Sessions without sockets. All operations are done, a
 * thousandth of the whole each at least. The first argument is the number of operations, the second
 * the seed.
 */
#include "status.h"
#include "store.h"
#include "store_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of keys: its count, and each key with its length. */
enum { COUNT = 8, LISTED = 8 + 2 };

/* Turns until it has said all and, unless it may be left busy, all whom that concerns have been
 * woken and told. */
static int run(struct model *model, int c)
{
    struct ko_session *session = &model->clients[c].session;
    const bool may_be_busy = model->busy < 0 || model->busy == c;
    int err;

    do
        err = ko_session_run(session);
    while (!err && session->has_more && (!may_be_busy || ko_buffer_fill(&session->in) > 0));
    if (may_be_busy)
        model->busy = session->has_more && !err ? c : -1;
    wake_so_far(model, c);
    return err;
}

static int send_said(struct model *model, int c)
{
    struct ko_buffer *in = &model->clients[c].session.in;
    size_t cut = model->nsaid > 0 && !model->says_much ? draw(model, (uint32_t)model->nsaid) : 0;
    size_t at = 0;
    int err = KOLO_OK;

    while (at < model->nsaid && !err) {
        cut = at > 0 || cut == 0 ? model->nsaid : cut;
        assert_int_equal(ko_buffer_reserve(in, cut - at), KOLO_OK);
        memcpy(in->data + in->tail, model->said + at, cut - at);
        in->tail += cut - at;
        at = cut;
        err = run(model, c);
    }
    model->nsaid = 0;
    model->says_much = false;
    return err;
}

static void woken(struct ko_session *session)
{
    ((struct client *)session)->is_ready = true;
}

static void join(struct model *model, int c)
{
    struct client *client = &model->clients[c];

    ko_session_open(&client->session, &model->service, woken);
    client->nexpected = 0;
    client->watched = 0;
    client->claim = -1;
    client->will = -1;
    client->waits_in = KO_STORE_PING;
    if (!lacks(client, KO_STORE_VALIDATE)) {
        say_opcode(model, client, KO_STORE_VALIDATE);
        say_bytes(model, "\xce\xf7\x85\x3c", 4);
        assert_int_equal(send_said(model, c), KOLO_OK);
    }
    if (c >= CLIENTS - WATCHERS) {
        for (int k = 0; k < KEYS; k++) {
            say_opcode(model, client, KO_STORE_WATCH);
            say_key(model, k);
            expect_byte(client, KO_WIRE_WATCHING);
        }
        assert_int_equal(send_said(model, c), KOLO_OK);
        client->watched = (1u << KEYS) - 1;
    }
}

static void leave(struct model *model, int c)
{
    model->actor = c;
    stop_waiting(model, c);
    ko_session_close(&model->clients[c].session);
    carry_out_will(model, c);
    wake_so_far(model, c);
    if (model->busy == c)
        model->busy = -1;
}

static void come_again(struct model *model, int c)
{
    leave(model, c);
    join(model, c);
}

/* A client that waits cancels, hangs up, or goes on waiting. */
static void fidget(struct model *model, int c)
{
    struct client *client = &model->clients[c];
    uint32_t whim = draw(model, 8);

    if (whim == 0 && !lacks(client, KO_STORE_CANCEL_WAIT)) {
        say_opcode(model, client, KO_STORE_CANCEL_WAIT);
        stop_waiting(model, c);
        expect_byte(client, KO_WIRE_WAIT_CANCELED);
        assert_int_equal(send_said(model, c), KOLO_OK);
    } else if (whim == 1) {
        come_again(model, c);
    }
}

/* Whose turn was over has another one, or goes. */
static void go_on(struct model *model, int c)
{
    if (draw(model, 8) == 0) {
        come_again(model, c);
        return;
    }
    assert_int_equal(ko_session_run(&model->clients[c].session), KOLO_OK);
    wake_so_far(model, c);
    if (!model->clients[c].session.has_more)
        model->busy = -1;
}

static bool is_anybody_untold(const struct model *model)
{
    for (int c = CLIENTS - WATCHERS; c < CLIENTS; c++)
        if (model->clients[c].nexpected > 0)
            return true;
    return false;
}

static void count_busy(struct model *model)
{
    model->nunwoken += model->clients[model->busy].ncoming > 0;
    model->nuntold += is_anybody_untold(model);
}

static void act(struct model *model, int c)
{
    store_step step;
    bool stays;

    model->actor = c;
    if (model->busy == c) {
        go_on(model, c);
        return;
    }
    if (model->busy >= 0)
        count_busy(model);
    if (model->clients[c].watched && draw(model, 64) == 0) {
        come_again(model, c);
        return;
    }
    if (model->clients[c].waits_in != KO_STORE_PING) {
        fidget(model, c);
        return;
    }
    step = draw_step(model);
    if (model->busy < 0 && step != step_list && step != step_pop && draw(model, 6) == 0)
        say_much(model, c);
    if (step != step_pop)
        end_claim(model, c);
    stays = step(model, c, (int)draw(model, KEYS));
    end_claim(model, c);
    if (stays) {
        assert_int_equal(send_said(model, c), KOLO_OK);
        return;
    }
    assert_int_equal(send_said(model, c), KOLO_E_INVALID);
    come_again(model, c);
}

static int by_bytes(const void *left, const void *right)
{
    return memcmp(left, right, LISTED);
}

/* What a list says, in the order of the keys. */
static void sort_list(struct ko_buffer *out)
{
    if (ko_buffer_fill(out) > COUNT)
        qsort(out->data + out->head + COUNT, (ko_buffer_fill(out) - COUNT) / LISTED, LISTED,
              by_bytes);
}

/* What it has got is what it is to get; of one who watches, while somebody is busy, the first of
 * that. */
static void compare_client(struct model *model, int c, long step)
{
    struct client *client = &model->clients[c];
    struct ko_buffer *out = &client->session.out;
    const size_t fill = ko_buffer_fill(out);
    const bool may_lack = model->busy >= 0 && client->watched;

    if (client->has_listed)
        sort_list(out);
    client->has_listed = false;
    if ((may_lack ? fill > client->nexpected : fill != client->nexpected) ||
        (fill > 0 && memcmp(ko_buffer_bytes(out), client->expected, fill) != 0))
        fail_msg("step %ld: client %d got %zu bytes, not these %zu", step, c, fill,
                 client->nexpected);
    ko_buffer_consume(out, fill);
    client->nexpected -= fill;
    memmove(client->expected, client->expected + fill, client->nexpected);
}

static void compare(struct model *model, long step)
{
    for (int c = 0; c < CLIENTS; c++) {
        struct client *client = &model->clients[c];

        if (client->is_ready && c != model->busy)
            assert_int_equal(ko_session_run(&client->session), KOLO_OK);
        client->is_ready = false;
        compare_client(model, c, step);
    }
}

static long operations = 1000000;
static unsigned long long seed = 4711;

static long count_all(const struct model *model)
{
    long sum = 0;

    for (int op = 0; op < KO_STORE_NOPS; op++)
        sum += model->counts[op];
    return sum;
}

/* Clients of 1.13 alone have two connections. */
static bool has_other_half(struct ko_session *session, enum ko_half half)
{
    (void)half;
    return ((const struct client *)session)->numbering == KO_WIRE_1_13;
}

static void test_clients(void **state)
{
    static const enum ko_wire_numbering numberings[] = {KO_WIRE_1_13, KO_WIRE_MODERN, KO_WIRE_2_1,
                                                        KO_WIRE_MODERN};
    struct model *model = calloc(1, sizeof *model);

    (void)state;
    assert_non_null(model);
    model->random = seed;
    model->busy = -1;
    model->service.budget.cap = 1 << 24;
    model->service.has_other_half = has_other_half;
    assert_int_equal(ko_table_open(1 << 24, &model->service.table), KOLO_OK);
    for (int c = 0; c < CLIENTS; c++) {
        model->clients[c].numbering = c >= CLIENTS - WATCHERS ? KO_WIRE_1_13 : numberings[c % 4];
        join(model, c);
    }
    for (long step = 0; count_all(model) < operations; step++) {
        act(model, (int)draw(model, CLIENTS));
        answer_woken(model);
        compare(model, step);
    }
    for (int op = 0; op < KO_STORE_NOPS; op++)
        assert_in_range(model->counts[op], operations / 1000, operations / 2);
    assert_in_range(model->nunwoken, operations / 1000, operations);
    assert_in_range(model->nuntold, operations / 1000, operations);
    for (int c = 0; c < CLIENTS; c++)
        leave(model, c);
    assert_int_equal(model->service.budget.used, 0);
    ko_table_free(model->service.table);
    free(model);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients)};

    if (argc > 1)
        operations = atol(argv[1]);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests_name("store clients", tests, NULL, NULL);
}
