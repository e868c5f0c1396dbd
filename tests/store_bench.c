/* SPDX-License-Identifier: MIT */
#include "store_bench.h"

#include "store_output.h"
#include "store_words.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

void store_bench_open(struct store_bench *bench)
{
    *bench = (struct store_bench){.service.budget.cap = STORE_BUFFERS_CAP};
    assert_int_equal(ko_table_open(STORE_TABLE_CAP, &bench->service.table), KOLO_OK);
    for (int i = 0; i < STORE_CLIENTS; i++)
        ko_session_open(&bench->clients[i], &bench->service, NULL);
}

void store_bench_close(struct store_bench *bench)
{
    for (int i = 0; i < STORE_CLIENTS; i++)
        ko_session_close(&bench->clients[i]);
    assert_int_equal(bench->service.budget.used, 0);
    assert_int_equal(bench->service.budget.expected, 0);
    ko_table_free(bench->service.table);
}

void store_gather(struct ko_session *client)
{
    const size_t nbytes = ko_output_nbytes(client);
    uint8_t *bytes = malloc(nbytes);
    size_t n;

    if (nbytes == 0) {
        free(bytes);
        return;
    }
    assert_non_null(bytes);
    for (size_t at = 0; at < nbytes; at += n) {
        n = ko_buffer_fill(ko_output_first(client));
        memcpy(bytes + at, ko_buffer_bytes(ko_output_first(client)), n);
        ko_output_consume(client, n);
    }
    assert_int_equal(ko_buffer_reserve(&client->out, nbytes), KOLO_OK);
    memcpy(client->out.data, bytes, nbytes);
    client->out.tail = nbytes;
    free(bytes);
}

int store_run(struct ko_session *client)
{
    int err;

    do
        err = ko_session_run(client);
    while (!err && client->has_more);
    if (!err && ko_output_nbytes(client) > ko_buffer_fill(&client->out))
        store_gather(client);
    return err;
}

static void take_in(struct ko_session *client, const uint8_t *bytes, size_t n)
{
    assert_int_equal(ko_buffer_reserve(&client->in, n), KOLO_OK);
    if (n > 0)
        memcpy(client->in.data + client->in.tail, bytes, n);
    client->in.tail += n;
}

int store_feed(struct ko_session *client, const uint8_t *bytes, size_t n)
{
    take_in(client, bytes, n);
    return store_run(client);
}

void store_asks(struct ko_session *client, const char *hex)
{
    uint8_t bytes[WIRE_LONGEST];

    assert_int_equal(store_feed(client, bytes, wire_unhex(hex, bytes)), KOLO_OK);
}

void store_begins(struct ko_session *client, const char *hex)
{
    uint8_t bytes[WIRE_LONGEST];

    take_in(client, bytes, wire_unhex(hex, bytes));
    assert_int_equal(ko_session_run(client), KOLO_OK);
}

void store_gets(struct ko_session *client, const char *hex)
{
    uint8_t bytes[WIRE_LONGEST];
    size_t n = wire_unhex(hex, bytes);

    assert_int_equal(store_run(client), KOLO_OK);
    assert_int_equal(ko_buffer_fill(&client->out), n);
    if (n > 0)
        assert_memory_equal(ko_buffer_bytes(&client->out), bytes, n);
    ko_buffer_consume(&client->out, n);
}

void store_bench_open_two(struct store_bench *bench)
{
    store_bench_open(bench);
    store_asks(&bench->clients[0], "00 cef7853c");
    store_asks(&bench->clients[1], "00 cef7853c");
}

bool store_has_other_half(struct ko_session *session, enum ko_half half)
{
    (void)session;
    (void)half;
    return true;
}

void store_goes_on(struct ko_session *client, struct ko_session *other, int fewest, int most)
{
    int turns = 0;

    while (client->has_more && turns < most) {
        turns++;
        store_asks(other, "03" X);
        store_gets(other, V);
        assert_int_equal(ko_session_run(client), KOLO_OK);
    }
    assert_in_range(turns, fewest, most - 1);
}
