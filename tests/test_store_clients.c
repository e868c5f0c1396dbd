/* SPDX-License-Identifier: MIT
 *
 * Sixteen clients of both numberings do random operations, cancel, hang up and watch, on few keys;
 * after each operation every client must have got exactly what a simple model of a store says.
 * Sessions without sockets. The first argument is the number of operations.
 */
#include "status.h"
#include "store.h"
#include "store_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 16, WATCHERS = 2, KEYS = 5, QUEUE = 8, LONGEST = 300, SAID = 8192 };

struct text {
    size_t nbytes;
    char bytes[LONGEST];
};

/* ---- the model --------------------------------------------------------------------------------
 */

struct key {
    bool has_value;
    struct text value;
    int nqueued;
    struct text queue[QUEUE];
    int nwaits, nmeets; /* clients, those who came first in front */
    int waits[CLIENTS], meets[CLIENTS];
};

struct client {
    struct ko_session session; /* first, so that a session is its client */
    bool is_ready;
    bool is_old;
    enum ko_store_op waits_in; /* PING: in nothing */
    unsigned wanted;           /* keys of that request, as bits, in rising order */
    unsigned missing;
    unsigned watched;
    size_t nexpected;
    uint8_t expected[SAID]; /* what it is to get */
};

struct model {
    struct ko_service service;
    uint64_t random;
    struct key keys[KEYS];
    struct client clients[CLIENTS];
    int woken[CLIENTS]; /* to be answered when the operation is over */
    int nwoken;
    size_t nsaid;
    uint8_t said[SAID]; /* the request that is put together */
};

static uint32_t draw(struct model *model, uint32_t below)
{
    model->random = model->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(model->random >> 33) % below;
}

static void put(uint8_t *bytes, size_t *n, const void *data, size_t nbytes)
{
    assert_true(*n + nbytes <= SAID);
    if (nbytes > 0)
        memcpy(bytes + *n, data, nbytes);
    *n += nbytes;
}

static void expect(struct client *client, const void *data, size_t nbytes)
{
    put(client->expected, &client->nexpected, data, nbytes);
}

static void expect_byte(struct client *client, uint8_t byte)
{
    expect(client, &byte, 1);
}

static void expect_i64(struct client *client, int64_t number)
{
    expect(client, &number, 8); /* tests run on little-endian machines only */
}

static void expect_text(struct client *client, const struct text *text)
{
    expect_i64(client, (int64_t)text->nbytes);
    expect(client, text->bytes, text->nbytes);
}

static bool is_there(const struct key *key)
{
    return key->has_value || key->nqueued > 0;
}

static void expect_held(struct client *client, const struct key *key)
{
    static const struct text empty;

    expect_text(client, key->has_value ? &key->value : &empty);
}

static void take_out(int *list, int *n, int client)
{
    int kept = 0;

    for (int i = 0; i < *n; i++)
        if (list[i] != client)
            list[kept++] = list[i];
    *n = kept;
}

static void stop_waiting(struct model *model, int c)
{
    for (int k = 0; k < KEYS; k++) {
        take_out(model->keys[k].waits, &model->keys[k].nwaits, c);
        take_out(model->keys[k].meets, &model->keys[k].nmeets, c);
    }
    model->clients[c].waits_in = KO_STORE_PING;
}

/* Answers a WAIT, GET or MULTI_GET, or lists the client under the keys that are missing. */
static void wait_or_answer(struct model *model, int c)
{
    struct client *client = &model->clients[c];

    client->missing = 0;
    for (int k = 0; k < KEYS; k++)
        if (client->wanted & 1u << k && !is_there(&model->keys[k])) {
            client->missing |= 1u << k;
            model->keys[k].waits[model->keys[k].nwaits++] = c;
        }
    if (client->missing)
        return;
    if (client->waits_in == KO_STORE_WAIT)
        expect_byte(client, KO_WIRE_STOP_WAITING);
    for (int k = 0; k < KEYS && client->waits_in != KO_STORE_WAIT; k++)
        if (client->wanted & 1u << k)
            expect_held(client, &model->keys[k]);
    client->waits_in = KO_STORE_PING;
}

/* The key has come for the first that waits for it. True if that one lacks no other. */
static bool come_for_first(struct model *model, int k)
{
    int c = model->keys[k].waits[0];

    take_out(model->keys[k].waits, &model->keys[k].nwaits, c);
    model->clients[c].missing &= ~(1u << k);
    if (model->clients[c].missing)
        return false;
    model->woken[model->nwoken++] = c;
    return true;
}

static void answer_woken(struct model *model)
{
    struct client *client;

    for (int i = 0; i < model->nwoken; i++) {
        client = &model->clients[model->woken[i]];
        assert_true(client->is_ready);
        assert_int_equal(ko_session_run(&client->session), KOLO_OK); /* in this order */
        client->is_ready = false;
        if (client->waits_in != KO_STORE_WAIT) {
            wait_or_answer(model, model->woken[i]);
            continue;
        }
        expect_byte(client, KO_WIRE_STOP_WAITING); /* though a key may be gone again */
        client->waits_in = KO_STORE_PING;
    }
    model->nwoken = 0;
}

static void tell_watchers(struct model *model, int k, enum ko_change change, const struct text *was,
                          const struct text *is)
{
    const struct text name = {2, {'/', (char)('a' + k)}};

    for (int c = 0; c < CLIENTS; c++) {
        if (!(model->clients[c].watched & 1u << k))
            continue;
        expect_byte(&model->clients[c], (uint8_t)change);
        expect_text(&model->clients[c], &name);
        expect_text(&model->clients[c], was);
        expect_text(&model->clients[c], is);
    }
}

static void store(struct model *model, int k, const struct text *value)
{
    static const struct text empty;
    struct key *key = &model->keys[k];
    const struct text is = *value;

    tell_watchers(model, k, key->has_value ? KO_CHANGE_UPDATED : KO_CHANGE_CREATED,
                  key->has_value ? &key->value : &empty, &is);
    key->has_value = true;
    key->value = is;
    while (key->nwaits > 0)
        come_for_first(model, k);
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static void say(struct model *model, const void *data, size_t nbytes)
{
    put(model->said, &model->nsaid, data, nbytes);
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

static void say_opcode(struct model *model, const struct client *client, enum ko_store_op op)
{
    int opcode = ko_wire_opcode(client->is_old ? KO_WIRE_1_13 : KO_WIRE_MODERN, op);
    uint8_t byte = (uint8_t)opcode;

    assert_true(opcode >= 0);
    say(model, &byte, 1);
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
        memchr(key->value.bytes, 'x', key->value.nbytes))
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
    if (model->clients[c].is_old || joined.nbytes + value.nbytes > 15)
        return step_set(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_APPEND);
    say_key(model, k);
    say_text(model, &value);
    memcpy(joined.bytes + joined.nbytes, value.bytes, value.nbytes);
    joined.nbytes += value.nbytes;
    store(model, k, &joined);
    return true;
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
        expect_text(&model->clients[c], &desired);
        store(model, k, &desired);
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
    expect_i64(&model->clients[c], number + delta);
    sum = text_of(number + delta);
    store(model, k, &sum);
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

    client->waits_in = ops[draw(model, client->is_old ? 2 : 3)];
    say_opcode(model, client, client->waits_in);
    if (client->waits_in == KO_STORE_GET) {
        say_key(model, k);
        client->wanted = 1u << k;
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

static bool step_delete(struct model *model, int c, int k)
{
    struct key *key = &model->keys[k];

    say_opcode(model, &model->clients[c], KO_STORE_DELETE);
    say_key(model, k);
    expect_i64(&model->clients[c], is_there(key));
    if (key->has_value)
        tell_watchers(model, k, KO_CHANGE_DELETED, &key->value, &(struct text){0});
    key->has_value = false;
    key->nqueued = 0;
    return true;
}

static bool step_multi_set(struct model *model, int c, int k)
{
    struct text values[2];

    if (model->clients[c].is_old)
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

    if (model->clients[c].is_old || key->nqueued == QUEUE)
        return step_delete(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_QUEUE_PUSH);
    say_key(model, k);
    say_text(model, &value);
    key->queue[key->nqueued++] = value;
    while (key->nwaits > 0 && !come_for_first(model, k))
        continue;
    return true;
}

static bool step_pop(struct model *model, int c, int k)
{
    struct key *key = &model->keys[k];
    bool is_pop = draw(model, 2);

    if (model->clients[c].is_old)
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

    if (model->clients[c].is_old)
        return step_add(model, c, k);
    say_opcode(model, &model->clients[c], KO_STORE_BARRIER);
    say_key(model, k);
    say_number(model, size);
    if (!number_of(key, &number))
        return false;
    sum = text_of(number + 1);
    store(model, k, &sum);
    if (number + 1 < size) {
        key->meets[key->nmeets++] = c;
        model->clients[c].waits_in = KO_STORE_BARRIER;
        return true;
    }
    expect_byte(&model->clients[c], KO_WIRE_STOP_WAITING);
    while (key->nmeets > 0) {
        int met = key->meets[0];

        take_out(key->meets, &key->nmeets, met);
        expect_byte(&model->clients[met], KO_WIRE_STOP_WAITING);
        model->clients[met].waits_in = KO_STORE_PING;
    }
    return true;
}

/* ---- clients ----------------------------------------------------------------------------------
 */

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
        err = ko_session_run(&model->clients[c].session);
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
    client->waits_in = KO_STORE_PING;
    if (!client->is_old) {
        say(model, "\0\xce\xf7\x85\x3c", 5);
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
}

/* A client that waits cancels, hangs up, or goes on waiting. */
static void fidget(struct model *model, int c)
{
    struct client *client = &model->clients[c];
    uint32_t whim = draw(model, 8);

    if (whim == 0 && !client->is_old) {
        say_opcode(model, client, KO_STORE_CANCEL_WAIT);
        stop_waiting(model, c);
        expect_byte(client, KO_WIRE_WAIT_CANCELED);
        assert_int_equal(send_said(model, c), KOLO_OK);
    } else if (whim == 1) {
        leave(model, c);
        join(model, c);
    }
}

static void act(struct model *model, int c)
{
    static bool (*const steps[])(struct model *, int, int) = {
        step_set,   step_append, step_compare_set, step_add,  step_check, step_wait,   step_wait,
        step_count, step_delete, step_multi_set,   step_push, step_pop,   step_barrier};
    bool stays;

    if (model->clients[c].waits_in != KO_STORE_PING) {
        fidget(model, c);
        return;
    }
    stays = steps[draw(model, sizeof steps / sizeof *steps)](model, c, (int)draw(model, KEYS));
    if (stays) {
        assert_int_equal(send_said(model, c), KOLO_OK);
        return;
    }
    assert_int_equal(send_said(model, c), KOLO_E_INVALID);
    leave(model, c);
    join(model, c);
}

static void compare(struct model *model, long step)
{
    for (int c = 0; c < CLIENTS; c++) {
        struct client *client = &model->clients[c];
        struct ko_buffer *out = &client->session.out;

        if (client->is_ready)
            assert_int_equal(ko_session_run(&client->session), KOLO_OK);
        client->is_ready = false;
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

static void test_clients(void **state)
{
    struct model *model = calloc(1, sizeof *model);

    (void)state;
    assert_non_null(model);
    model->random = 4711;
    model->service.budget.cap = 1 << 24;
    assert_int_equal(ko_table_open(1 << 24, &model->service.table), KOLO_OK);
    for (int c = 0; c < CLIENTS; c++) {
        model->clients[c].is_old = c % 3 == 0 || c >= CLIENTS - WATCHERS;
        join(model, c);
    }
    for (long step = 0; step < operations; step++) {
        act(model, (int)draw(model, CLIENTS - WATCHERS));
        answer_woken(model);
        compare(model, step);
    }
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
    return cmocka_run_group_tests_name("store clients", tests, NULL, NULL);
}
