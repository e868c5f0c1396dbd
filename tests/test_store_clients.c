/* SPDX-License-Identifier: MIT
 *
 * Sixteen clients of all numberings do random operations, cancel, hang up and watch, on few keys;
 * after each operation every client must have got exactly what a simple model of a store says.
 * Sessions without sockets. All operations are done, a thousandth of the whole each at least. The
 * first argument is the number of operations, the second the seed.
 */
#include "status.h"
#include "store.h"
#include "store_model.h"

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

/* ---- requests ----------------------------------------------------------------------------- */

static void say(struct model *model, const void *data, size_t nbytes)
{
    assert_true(model->nsaid + nbytes <= SAID);
    if (nbytes > 0)
        memcpy(model->said + model->nsaid, data, nbytes);
    model->nsaid += nbytes;
}

static void say_number(struct model *model, int64_t number)
{
    say(model, &number, 8);
}

static void say_text(struct model *model, const struct text *text)
{
    say_number(model, (int64_t)text->nbytes);
    say(model, text->bytes, text->nbytes);
}

static void say_key(struct model *model, int k)
{
    say_text(model, &(struct text){2, {'/', (char)('a' + k)}});
}

static bool lacks(const struct client *client, enum ko_store_op op)
{
    return ko_wire_opcode(client->numbering, op) < 0;
}

static void say_opcode(struct model *model, const struct client *client, enum ko_store_op op)
{
    int opcode = ko_wire_opcode(client->numbering, op);
    uint8_t byte = (uint8_t)opcode;

    assert_true(opcode >= 0);
    say(model, &byte, 1);
    model->counts[op]++;
}

/* Mostly short numbers, so that sums and comparisons succeed at times. */
static struct text draw_text(struct model *model)
{
    struct text text = {0};

    if (draw(model, 8) == 0)
        text.bytes[text.nbytes++] = 'x';
    else if (draw(model, 4))
        text.bytes[text.nbytes++] = (char)('0' + draw(model, 3));
    return text;
}

static bool number_of(const struct key *key, int64_t *number)
{
    char text[LONGEST + 1];

    *number = 0;
    if (!key->has_value)
        return true;
    if (key->value.nbytes == 0 || key->value.nbytes > 17 ||
        memchr(key->value.bytes, 'x', key->value.nbytes) ||
        memchr(key->value.bytes, 'w', key->value.nbytes))
        return false;
    snprintf(text, sizeof text, "%.*s", (int)key->value.nbytes, key->value.bytes);
    *number = atoll(text);
    return true;
}

static struct text text_of(int64_t number)
{
    struct text text = {0};

    text.nbytes = (size_t)snprintf(text.bytes, sizeof text.bytes, "%lld", (long long)number);
    return text;
}

/* Each step says a request of client c about key k and what all clients are to get. False if the
 * server is to hang up. */
static bool step_set(struct model *model, int c, int k)
{
    const struct text value = draw_text(model);

    say_opcode(model, &model->clients[c], KO_STORE_SET);
    say_key(model, k);
    say_text(model, &value);
    store(model, k, &value);
    return true;
}

static bool step_append(struct model *model, int c, int k)
{
    const struct text value = draw_text(model);
    struct text joined = {0};

    if (model->keys[k].has_value)
        joined = model->keys[k].value;
    if (lacks(&model->clients[c], KO_STORE_APPEND) || joined.nbytes + value.nbytes > 15)
        return step_set(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_APPEND);
    say_key(model, k);
    say_text(model, &value);
    memcpy(joined.bytes + joined.nbytes, value.bytes, value.nbytes);
    joined.nbytes += value.nbytes;
    store(model, k, &joined);
    return true;
}

/* One that is no number: what is appended to often enough stays short, since all others set. */
static bool step_will(struct model *model, int c, int k)
{
    static const struct text value = {1, "w"};

    if (lacks(&model->clients[c], KO_STORE_WILL))
        return step_set(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_WILL);
    say_key(model, k);
    say_text(model, &value);
    model->clients[c].will = k;
    return true;
}

static void carry_out_will(struct model *model, int c)
{
    const int k = model->clients[c].will;
    struct text joined = {0};

    model->clients[c].will = -1;
    if (k < 0)
        return;
    if (model->keys[k].has_value)
        joined = model->keys[k].value;
    assert_true(joined.nbytes < LONGEST);
    joined.bytes[joined.nbytes++] = 'w';
    store(model, k, &joined);
}

static bool step_compare_set(struct model *model, int c, int k)
{
    const struct text expected = draw_text(model), desired = draw_text(model);
    const struct key *key = &model->keys[k];
    const struct text now = key->has_value ? key->value : (struct text){0};

    say_opcode(model, &model->clients[c], KO_STORE_COMPARE_SET);
    say_key(model, k);
    say_text(model, &expected);
    say_text(model, &desired);
    if (now.nbytes == expected.nbytes && !memcmp(now.bytes, expected.bytes, now.nbytes)) {
        store(model, k, &desired);
        expect_text(&model->clients[c], &desired);
    } else {
        expect_text(&model->clients[c], key->has_value ? &now : &expected);
    }
    return true;
}

static bool step_add(struct model *model, int c, int k)
{
    int64_t delta = (int64_t)draw(model, 7) - 3;
    struct text sum;
    int64_t number;

    say_opcode(model, &model->clients[c], KO_STORE_ADD);
    say_key(model, k);
    say_number(model, delta);
    if (!number_of(&model->keys[k], &number))
        return false;
    sum = text_of(number + delta);
    store(model, k, &sum); /* of which one who watches hears before the answer */
    expect_i64(&model->clients[c], number + delta);
    return true;
}

static unsigned say_keys(struct model *model)
{
    unsigned wanted = draw(model, 1 << KEYS);
    unsigned n = 0;

    for (int i = 0; i < KEYS; i++)
        n += (wanted >> i) & 1u;
    say_number(model, n);
    for (int i = 0; i < KEYS; i++)
        if (wanted & 1u << i)
            say_key(model, i);
    return wanted;
}

static bool step_check(struct model *model, int c, int k)
{
    unsigned wanted;
    bool all = true;

    (void)k;
    say_opcode(model, &model->clients[c], KO_STORE_CHECK);
    wanted = say_keys(model);
    for (int i = 0; i < KEYS; i++)
        all &= !(wanted & 1u << i) || is_there(&model->keys[i]);
    expect_byte(&model->clients[c], all ? KO_WIRE_READY : KO_WIRE_NOT_READY);
    return true;
}

static bool step_wait(struct model *model, int c, int k)
{
    static const enum ko_store_op ops[] = {KO_STORE_WAIT, KO_STORE_GET, KO_STORE_MULTI_GET};
    struct client *client = &model->clients[c];

    client->waits_in = ops[draw(model, lacks(client, KO_STORE_MULTI_GET) ? 2 : 3)];
    say_opcode(model, client, client->waits_in);
    if (client->waits_in == KO_STORE_GET) {
        say_key(model, k);
        client->wanted = 1u << k;
        if (client->numbering == KO_WIRE_MODERN && !is_there(&model->keys[k])) {
            client->waits_in = KO_STORE_PING;
            expect_text(client, &(struct text){0});
            return true;
        }
    } else {
        client->wanted = say_keys(model);
    }
    wait_or_answer(model, c);
    return true;
}

static bool step_count(struct model *model, int c, int k)
{
    int n = 0;

    (void)k;
    say_opcode(model, &model->clients[c], KO_STORE_NUM_KEYS);
    for (int i = 0; i < KEYS; i++)
        n += model->keys[i].has_value;
    expect_i64(&model->clients[c], n);
    return true;
}

/* The keys come in no order: compare() sorts what has come. */
static bool step_list(struct model *model, int c, int k)
{
    struct client *client = &model->clients[c];
    int64_t n = 0;

    if (lacks(client, KO_STORE_LIST_KEYS))
        return step_count(model, c, k);
    say_opcode(model, client, KO_STORE_LIST_KEYS);
    for (int i = 0; i < KEYS; i++)
        n += model->keys[i].has_value;
    expect_i64(client, n);
    for (int i = 0; i < KEYS; i++)
        if (model->keys[i].has_value)
            expect_text(client, &(struct text){2, {'/', (char)('a' + i)}});
    client->has_listed = true;
    return true;
}

static bool step_ping(struct model *model, int c, int k)
{
    struct text nonce = {4, {(char)draw(model, 256), (char)draw(model, 256), (char)k, 0}};

    if (lacks(&model->clients[c], KO_STORE_PING))
        return step_count(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_PING);
    say(model, nonce.bytes, nonce.nbytes);
    expect_bytes(&model->clients[c], nonce.bytes, nonce.nbytes);
    return true;
}

static bool step_delete(struct model *model, int c, int k)
{
    const bool was_there = is_there(&model->keys[k]);

    say_opcode(model, &model->clients[c], KO_STORE_DELETE);
    say_key(model, k);
    drop(model, k);
    expect_i64(&model->clients[c], was_there);
    return true;
}

static bool step_multi_set(struct model *model, int c, int k)
{
    struct text values[2];

    if (lacks(&model->clients[c], KO_STORE_MULTI_SET))
        return step_set(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_MULTI_SET);
    say_number(model, 2);
    for (int i = 0; i < 2; i++) {
        values[i] = draw_text(model);
        say_key(model, (k + i) % KEYS);
        say_text(model, &values[i]);
    }
    store(model, k, &values[0]);
    store(model, (k + 1) % KEYS, &values[1]);
    return true;
}

static bool step_push(struct model *model, int c, int k)
{
    const struct text value = draw_text(model);
    struct key *key = &model->keys[k];

    if (lacks(&model->clients[c], KO_STORE_QUEUE_PUSH) || key->nqueued == QUEUE)
        return step_delete(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_QUEUE_PUSH);
    say_key(model, k);
    say_text(model, &value);
    key->queue[key->nqueued++] = value;
    come_into_queue(model, k);
    return true;
}

static bool step_pop(struct model *model, int c, int k)
{
    struct key *key = &model->keys[k];
    bool is_pop = draw(model, 2);

    if (lacks(&model->clients[c], KO_STORE_QUEUE_POP))
        return step_check(model, c, k);
    say_opcode(model, &model->clients[c], is_pop ? KO_STORE_QUEUE_POP : KO_STORE_QUEUE_LEN);
    say_key(model, k);
    expect_i64(&model->clients[c], key->nqueued);
    if (!is_pop || key->nqueued == 0)
        return true;
    expect_text(&model->clients[c], &key->queue[0]);
    key->nqueued--;
    memmove(&key->queue[0], &key->queue[1], (size_t)key->nqueued * sizeof key->queue[0]);
    return true;
}

static bool step_barrier(struct model *model, int c, int k)
{
    struct key *key = &model->keys[k];
    int size = 1 + (int)draw(model, 4);
    struct text sum;
    int64_t number;

    if (lacks(&model->clients[c], KO_STORE_BARRIER))
        return step_add(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_BARRIER);
    say_key(model, k);
    say_number(model, size);
    if (!number_of(key, &number))
        return false;
    sum = text_of(number + 1);
    store(model, k, &sum);
    meet(model, c, k, number, size);
    return true;
}

/* ---- clients ------------------------------------------------------------------------------ */

/* As many turns as it takes to wake all whom it concerns. */
static int run(struct ko_session *session)
{
    int err;

    do
        err = ko_session_run(session);
    while (!err && session->has_more);
    return err;
}

static int send_said(struct model *model, int c)
{
    struct ko_buffer *in = &model->clients[c].session.in;
    size_t cut = model->nsaid > 0 ? draw(model, (uint32_t)model->nsaid) : 0;
    size_t at = 0;
    int err = KOLO_OK;

    while (at < model->nsaid && !err) {
        cut = at > 0 || cut == 0 ? model->nsaid : cut;
        assert_int_equal(ko_buffer_reserve(in, cut - at), KOLO_OK);
        memcpy(in->data + in->tail, model->said + at, cut - at);
        in->tail += cut - at;
        at = cut;
        err = run(&model->clients[c].session);
    }
    model->nsaid = 0;
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
        say(model, "\xce\xf7\x85\x3c", 4);
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
    stop_waiting(model, c);
    ko_session_close(&model->clients[c].session);
    carry_out_will(model, c);
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

static void act(struct model *model, int c)
{
    static bool (*const steps[])(struct model *, int, int) = {
        step_set,  step_append, step_compare_set, step_add,  step_check,  step_wait,
        step_wait, step_count,  step_list,        step_ping, step_delete, step_multi_set,
        step_push, step_pop,    step_barrier,     step_will};
    bool (*step)(struct model *, int, int);
    bool stays;

    if (model->clients[c].watched && draw(model, 64) == 0) {
        come_again(model, c);
        return;
    }
    if (model->clients[c].waits_in != KO_STORE_PING) {
        fidget(model, c);
        return;
    }
    step = steps[draw(model, sizeof steps / sizeof *steps)];
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

static void compare(struct model *model, long step)
{
    for (int c = 0; c < CLIENTS; c++) {
        struct client *client = &model->clients[c];
        struct ko_buffer *out = &client->session.out;

        if (client->is_ready)
            assert_int_equal(ko_session_run(&client->session), KOLO_OK);
        client->is_ready = false;
        if (client->has_listed)
            sort_list(out);
        client->has_listed = false;
        if (ko_buffer_fill(out) != client->nexpected ||
            (client->nexpected > 0 &&
             memcmp(ko_buffer_bytes(out), client->expected, client->nexpected) != 0))
            fail_msg("step %ld: client %d got %zu bytes, not these %zu", step, c,
                     ko_buffer_fill(out), client->nexpected);
        ko_buffer_consume(out, client->nexpected);
        client->nexpected = 0;
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
