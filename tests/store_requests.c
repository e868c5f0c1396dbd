/* SPDX-License-Identifier: MIT */
#include "store_requests.h"

#include "status.h"
#include "store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void say_bytes(struct model *model, const void *data, size_t nbytes)
{
    assert_true(model->nsaid + nbytes <= SAID);
    if (nbytes > 0)
        memcpy(model->said + model->nsaid, data, nbytes);
    model->nsaid += nbytes;
}

static void say_number(struct model *model, int64_t number)
{
    say_bytes(model, &number, 8);
}

static void say_text(struct model *model, const struct text *text)
{
    say_number(model, (int64_t)text->nbytes);
    say_bytes(model, text->bytes, text->nbytes);
}

void say_key(struct model *model, int k)
{
    say_text(model, &(struct text){2, {'/', (char)('a' + k)}});
}

bool lacks(const struct client *client, enum ko_store_op op)
{
    return ko_wire_opcode(client->numbering, op) < 0;
}

void say_opcode(struct model *model, const struct client *client, enum ko_store_op op)
{
    int opcode = ko_wire_opcode(client->numbering, op);
    uint8_t byte = (uint8_t)opcode;

    assert_true(opcode >= 0);
    say_bytes(model, &byte, 1);
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

void carry_out_will(struct model *model, int c)
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
bool step_list(struct model *model, int c, int k)
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
    say_bytes(model, nonce.bytes, nonce.nbytes);
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

bool step_pop(struct model *model, int c, int k)
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

void say_much(struct model *model, int c)
{
    const enum ko_store_op op = KO_STORE_NUM_KEYS;
    struct client *client = &model->clients[c];
    const uint8_t opcode = (uint8_t)ko_wire_opcode(client->numbering, op);
    int64_t nkeys = 0;

    for (int k = 0; k < KEYS; k++)
        nkeys += model->keys[k].has_value;
    for (uint32_t n = 26 + draw(model, 6); n > 0; n--) {
        say_bytes(model, &opcode, 1);
        expect_i64(client, nkeys);
    }
    model->says_much = true;
}

store_step draw_step(struct model *model)
{
    static const store_step steps[] = {step_set,   step_append, step_compare_set, step_add,
                                       step_check, step_wait,   step_wait,        step_count,
                                       step_list,  step_ping,   step_delete,      step_multi_set,
                                       step_push,  step_pop,    step_barrier,     step_will};

    return steps[draw(model, sizeof steps / sizeof *steps)];
}
