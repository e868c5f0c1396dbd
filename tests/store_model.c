/* SPDX-License-Identifier: MIT */
#include "store_model.h"

#include "seeded.h"
#include "status.h"
#include "store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

uint32_t draw(struct model *model, uint32_t below)
{
    return (uint32_t)seeded_next(&model->random) % below;
}

void expect_bytes(struct client *client, const void *data, size_t nbytes)
{
    assert_true(client->nexpected + nbytes <= SAID);
    if (nbytes > 0)
        memcpy(client->expected + client->nexpected, data, nbytes);
    client->nexpected += nbytes;
}

void expect_byte(struct client *client, uint8_t byte)
{
    expect_bytes(client, &byte, 1);
}

void expect_i64(struct client *client, int64_t number)
{
    expect_bytes(client, &number, 8); /* tests run on little-endian machines only */
}

void expect_text(struct client *client, const struct text *text)
{
    expect_i64(client, (int64_t)text->nbytes);
    expect_bytes(client, text->bytes, text->nbytes);
}

bool is_there(const struct key *key)
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

static void take_out_coming(struct client *by, int client)
{
    int kept = 0;

    for (int i = 0; i < by->ncoming; i++)
        if (by->coming[i].client != client)
            by->coming[kept++] = by->coming[i];
    by->ncoming = kept;
}

void stop_waiting(struct model *model, int c)
{
    for (int i = 0; i < CLIENTS; i++)
        take_out_coming(&model->clients[i], c);
    for (int k = 0; k < KEYS; k++) {
        take_out(model->keys[k].waits, &model->keys[k].nwaits, c);
        take_out(model->keys[k].pops, &model->keys[k].npops, c);
        take_out(model->keys[k].meets, &model->keys[k].nmeets, c);
    }
    model->clients[c].waits_in = KO_STORE_PING;
    end_claim(model, c);
}

/* A WAIT for one key may be that of a client that is about to pop. */
static void list_waiting(struct model *model, int c, int k)
{
    const struct client *client = &model->clients[c];
    struct key *key = &model->keys[k];

    if (client->waits_in == KO_STORE_WAIT && client->numbering == KO_WIRE_MODERN &&
        client->wanted == 1u << k)
        key->pops[key->npops++] = c;
    else
        key->waits[key->nwaits++] = c;
}

void wait_or_answer(struct model *model, int c)
{
    struct client *client = &model->clients[c];

    client->missing = 0;
    for (int k = 0; k < KEYS; k++)
        if (client->wanted & 1u << k && !is_there(&model->keys[k])) {
            client->missing |= 1u << k;
            list_waiting(model, c, k);
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

/* Key k has come for client c. */
static void come(struct model *model, int c, int k)
{
    model->clients[c].missing &= ~(1u << k);
    if (!model->clients[c].missing)
        model->woken[model->nwoken++] = c;
}

static void come_later(struct model *model, int k, int *list, int *n)
{
    struct client *by = &model->clients[model->actor];

    assert_true(by->ncoming + *n <= 2 * CLIENTS);
    for (int i = 0; i < *n; i++)
        by->coming[by->ncoming++] = (struct coming){list[i], k};
    *n = 0;
}

static void end_meeting(struct model *model, int c)
{
    expect_byte(&model->clients[c], KO_WIRE_STOP_WAITING);
    model->clients[c].waits_in = KO_STORE_PING;
}

/* What the session lacks tells. */
static bool is_woken(const struct model *model, const struct coming *coming)
{
    const struct client *client = &model->clients[coming->client];
    const int lacks = coming->key < 0 ? 1 : __builtin_popcount(client->missing);

    assert_true(client->session.waiter.nmissing <= (size_t)lacks);
    return client->session.waiter.nmissing < (size_t)lacks;
}

void wake_so_far(struct model *model, int c)
{
    struct client *by = &model->clients[c];
    int n = 0;

    for (; n < by->ncoming && is_woken(model, &by->coming[n]); n++)
        if (by->coming[n].key < 0)
            end_meeting(model, by->coming[n].client);
        else
            come(model, by->coming[n].client, by->coming[n].key);
    by->ncoming -= n;
    memmove(by->coming, by->coming + n, (size_t)by->ncoming * sizeof *by->coming);
    for (int i = 0; i < by->ncoming; i++)
        assert_false(is_woken(model, &by->coming[i]));
}

static void wake_poppers(struct model *model, int k)
{
    struct key *key = &model->keys[k];
    int c;

    while (key->nclaims < key->nqueued && key->npops > 0) {
        c = key->pops[0];
        take_out(key->pops, &key->npops, c);
        key->nclaims++;
        model->clients[c].claim = k;
        come(model, c, k);
    }
}

void come_into_queue(struct model *model, int k)
{
    come_later(model, k, model->keys[k].waits, &model->keys[k].nwaits);
    wake_poppers(model, k);
}

void end_claim(struct model *model, int c)
{
    int k = model->clients[c].claim;

    if (k < 0)
        return;
    model->clients[c].claim = -1;
    model->keys[k].nclaims--;
    wake_poppers(model, k);
}

void answer_woken(struct model *model)
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

void store(struct model *model, int k, const struct text *value)
{
    static const struct text empty;
    struct key *key = &model->keys[k];
    const struct text is = *value;

    tell_watchers(model, k, key->has_value ? KO_CHANGE_UPDATED : KO_CHANGE_CREATED,
                  key->has_value ? &key->value : &empty, &is);
    key->has_value = true;
    key->value = is;
    come_later(model, k, key->waits, &key->nwaits);
    come_later(model, k, key->pops, &key->npops);
}

void drop(struct model *model, int k)
{
    struct key *key = &model->keys[k];

    if (key->has_value)
        tell_watchers(model, k, KO_CHANGE_DELETED, &key->value, &(struct text){0});
    key->has_value = false;
    key->nqueued = 0;
}

void meet(struct model *model, int c, int k, int64_t n, int64_t size)
{
    struct key *key = &model->keys[k];

    if (n + 1 < size) {
        key->meets[key->nmeets++] = c;
        model->clients[c].waits_in = KO_STORE_BARRIER;
        return;
    }
    expect_byte(&model->clients[c], KO_WIRE_STOP_WAITING);
    come_later(model, -1, key->meets, &key->nmeets);
}
