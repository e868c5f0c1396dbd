/* SPDX-License-Identifier: MIT
 *
 * The wire format, byte by byte, in all numberings: whole conversations as clients of PyTorch have
 * them, each message of them cut at every place; and what clients of all kinds do to one another.
 * Sessions without sockets.
 */
#include "status.h"
#include "store.h"
#include "store_session.h"
#include "store_words.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, TABLE_CAP = 1 << 20, BUFFERS_CAP = 1 << 20 };

/* A server without sockets. */
struct bench {
    struct ko_service service;
    struct ko_session clients[CLIENTS];
};

static void open_bench(struct bench *bench)
{
    *bench = (struct bench){.service.budget.cap = BUFFERS_CAP};
    assert_int_equal(ko_table_open(TABLE_CAP, &bench->service.table), KOLO_OK);
    for (int i = 0; i < CLIENTS; i++)
        ko_session_open(&bench->clients[i], &bench->service, NULL);
}

static void close_bench(struct bench *bench)
{
    for (int i = 0; i < CLIENTS; i++)
        ko_session_close(&bench->clients[i]);
    assert_int_equal(bench->service.budget.used, 0);
    ko_table_free(bench->service.table);
}

static int feed(struct ko_session *client, const uint8_t *bytes, size_t n)
{
    assert_int_equal(ko_buffer_reserve(&client->in, n), KOLO_OK);
    if (n > 0)
        memcpy(client->in.data + client->in.tail, bytes, n);
    client->in.tail += n;
    return ko_session_run(client);
}

static void asks(struct ko_session *client, const char *hex)
{
    uint8_t bytes[WIRE_LONGEST];

    assert_int_equal(feed(client, bytes, wire_unhex(hex, bytes)), KOLO_OK);
}

/* Exactly these bytes are there for the client, once it has been run if it was woken. */
static void gets(struct ko_session *client, const char *hex)
{
    uint8_t bytes[WIRE_LONGEST];
    size_t n = wire_unhex(hex, bytes);

    assert_int_equal(ko_session_run(client), KOLO_OK);
    assert_int_equal(ko_buffer_fill(&client->out), n);
    if (n > 0)
        assert_memory_equal(ko_buffer_bytes(&client->out), bytes, n);
    ko_buffer_consume(&client->out, n);
}

/* ---- conversations ------------------------------------------------------------------------ */

struct step {
    const char *say, *hear;
};

/* Steps with no answer are checked by the answers of the next. */
static const struct step modern[] = {
    {"00 cef7853c", ""},
    {"0d 39300000", "39300000"},
    /* the counter of workers, which clients of PyTorch add to first, has no "/" before it */
    {"04" INIT ONE, ONE},
    {"01" K V, ""},
    {"06" ONE K, "00"},
    {"03" K, V},
    {"04" N "f9ffffffffffffff", "f9ffffffffffffff"},
    {"03" N, "0200000000000000 2d37"}, /* a number is decimal text */
    {"02" K V W, W},
    {"02" X V W, V}, /* compare_set of an absent key */
    {"05" TWO K X, "01"},
    {"05" ONE K, "00"},
    {"07", "0300000000000000"},
    {"09" K "0100000000000000 21", ""},
    {"0a" TWO N K, "0200000000000000 2d37 0200000000000000 7721"},
    {"0b" TWO A EMPTY B "0100000000000000 31", ""},
    {"0a" TWO A B, EMPTY "0100000000000000 31"},
    {"08" K, ONE},
    {"08" K, EMPTY},
    {"06" EMPTY, "00"}, /* of no keys */
    {"05" EMPTY, "00"},
    {"0a" EMPTY, ""},
    {"0c", "01"},
    {"0e" X V, ""},
    {"0e" X EMPTY, ""},
    {"10" X, TWO},
    {"05" ONE X, "00"},
    {"07", "0400000000000000"}, /* queues do not count */
    {"0f" X, TWO V},
    {"0f" X, ONE EMPTY},
    {"0f" X, EMPTY},
    {"10" X, EMPTY},
    {"05" ONE X, "01"},
    {"08" A, ONE},
    {"08" B, ONE},
    {"08" N, ONE},
    {"11", ONE INIT},
    {"12" B ONE, "00"},
    {"03" B, "0100000000000000 31"},
    {"f0" X V, ""},
    {"10" X, EMPTY}, /* nothing is done of a will while its maker is there */
};

static const struct step of_1_13[] = {
    {"03" INIT ONE, ONE},
    {"00" K V, ""},
    {"05" ONE K, "00"},
    {"02" K, V},
    {"03" N "f9ffffffffffffff", "f9ffffffffffffff"},
    {"01" K V W, W},
    {"01" X V W, V},
    {"04" TWO K X, "01"},
    {"04" ONE N, "00"},
    {"06", "0300000000000000"},
    {"08" K, ONE},
    {"08" K, EMPTY},
    {"05" ONE N, "00"},
};

/* On its second connection. */
static const struct step watches_of_1_13[] = {{"07" A, "03"}, {"07" K, "03"}};

/* As a client of PyTorch 2.1.2 and its server said it. */
static const struct step of_2_1[] = {
    {"03" INIT ONE, ONE},
    {"00" K V, ""},
    {"05" ONE K, "00"},
    {"02" K, V},
    {"03" N "f9ffffffffffffff", "f9ffffffffffffff"},
    {"01" K V W, W},
    {"01" X V W, V},
    {"04" TWO K X, "01"},
    {"06", "0300000000000000"},
    {"07" K, ONE},
    {"07" K, EMPTY},
    {"08" A V, ""},
    {"08" A W, ""},
    {"05" ONE A, "00"},
    {"02" A, "0200000000000000 7677"},
    {"0a" TWO A EMPTY B W, ""},
    {"05" TWO A B, "00"},
    {"09" TWO A B, EMPTY W},
    {"05" ONE K, ""},
    {"0b", "01"},
    {"0b", "01"},
    {"06", "0400000000000000"},
};
/* With what means something else in 1.13 as the first message of all. */
static const struct step deletes_of_2_1[] = {{"07" K, EMPTY}, {"08" K V, ""}, {"07" K, ONE}};
static const struct step appends_of_2_1[] = {{"08" K V, ""}, {"08" K EMPTY, ""}, {"02" K, V}};

static bool has_other_half(struct ko_session *session, enum ko_half half)
{
    (void)session;
    (void)half;
    return true;
}

static void play(struct ko_session *client, const struct step *steps, size_t nsteps)
{
    for (size_t i = 0; i < nsteps; i++) {
        asks(client, steps[i].say);
        gets(client, steps[i].hear);
    }
}

struct conversation {
    const struct step *steps;
    size_t nsteps;
    bool is_of_two; /* the client has another connection */
};
#define CONVERSATION(steps, is_of_two)                    \
    &(const struct conversation)                          \
    {                                                     \
        steps, sizeof(steps) / sizeof *(steps), is_of_two \
    }

static void begin(const struct conversation *all, struct bench *bench)
{
    open_bench(bench);
    bench->service.has_other_half = all->is_of_two ? has_other_half : NULL;
}

/* The conversation with one message in two pieces. */
static void play_cut(const struct conversation *all, size_t which, size_t at)
{
    struct bench bench;
    struct ko_session *client = &bench.clients[0];
    const struct step *cut = all->steps + which;
    uint8_t bytes[WIRE_LONGEST];
    size_t n = wire_unhex(cut->say, bytes);

    begin(all, &bench);
    play(client, all->steps, which);
    assert_int_equal(feed(client, bytes, at), KOLO_OK);
    gets(client, "");
    assert_true(ko_session_wants(client) > 0);
    assert_int_equal(feed(client, bytes + at, n - at), KOLO_OK);
    gets(client, cut->hear);
    play(client, cut + 1, all->nsteps - which - 1);
    close_bench(&bench);
}

static void play_all(const struct conversation *all)
{
    struct bench bench;
    uint8_t bytes[WIRE_LONGEST];
    size_t n;

    begin(all, &bench);
    play(&bench.clients[0], all->steps, all->nsteps);
    close_bench(&bench);
    for (size_t i = 0; i < all->nsteps; i++)
        for (size_t at = 0; at < wire_unhex(all->steps[i].say, bytes); at++)
            play_cut(all, i, at);
    begin(all, &bench); /* byte by byte */
    for (size_t i = 0; i < all->nsteps; i++) {
        n = wire_unhex(all->steps[i].say, bytes);
        for (size_t at = 0; at < n; at++)
            assert_int_equal(feed(&bench.clients[0], bytes + at, 1), KOLO_OK);
        gets(&bench.clients[0], all->steps[i].hear);
    }
    close_bench(&bench);
}

static void test_modern(void **state)
{
    (void)state;
    play_all(CONVERSATION(modern, false));
}

static void test_1_13(void **state)
{
    (void)state;
    play_all(CONVERSATION(of_1_13, true));
    play_all(CONVERSATION(watches_of_1_13, true));
}

static void test_2_1(void **state)
{
    (void)state;
    play_all(CONVERSATION(of_2_1, false));
    play_all(CONVERSATION(deletes_of_2_1, false));
    play_all(CONVERSATION(appends_of_2_1, false));
}

/* All messages in one piece are answered as one by one. */
static void test_pipelined(void **state)
{
    struct bench bench;
    struct ko_buffer said = {0};
    struct ko_buffer heard = {0};
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof modern / sizeof *modern; i++) {
        assert_int_equal(ko_buffer_reserve(&said, WIRE_LONGEST), KOLO_OK);
        said.tail += wire_unhex(modern[i].say, said.data + said.tail);
        assert_int_equal(ko_buffer_reserve(&heard, WIRE_LONGEST), KOLO_OK);
        heard.tail += wire_unhex(modern[i].hear, heard.data + heard.tail);
    }
    open_bench(&bench);
    assert_int_equal(feed(&bench.clients[0], ko_buffer_bytes(&said), ko_buffer_fill(&said)),
                     KOLO_OK);
    n = ko_buffer_fill(&heard);
    assert_int_equal(ko_buffer_fill(&bench.clients[0].out), n);
    assert_memory_equal(ko_buffer_bytes(&bench.clients[0].out), ko_buffer_bytes(&heard), n);
    close_bench(&bench);
    ko_buffer_free(&said);
    ko_buffer_free(&heard);
}

/* ---- several clients ---------------------------------------------------------------------- */

static void open_two(struct bench *bench)
{
    open_bench(bench);
    asks(&bench->clients[0], "00 cef7853c");
    asks(&bench->clients[1], "00 cef7853c");
}

/* Clients of both kinds see each other's keys, and wake each other. */
static void test_both_kinds(void **state)
{
    struct bench bench;
    struct ko_session *new_one = &bench.clients[0];
    struct ko_session *old_one = &bench.clients[1];

    (void)state;
    open_bench(&bench);
    asks(new_one, "00 cef7853c 06" ONE K);
    gets(new_one, "");
    asks(old_one, "00" K V);
    gets(new_one, "00");
    asks(old_one, "05" ONE A);
    gets(old_one, "");
    asks(new_one, "01" A V);
    gets(old_one, "00");
    asks(old_one, "02" K);
    gets(old_one, V);
    assert_int_equal(new_one->numbering, KO_WIRE_MODERN);
    assert_int_equal(old_one->numbering, KO_WIRE_OLD);
    close_bench(&bench);
}

/* Clients of 2.1 that have said what only they say are served as such beside those of 1.13, who may
 * be on the same host. */
static void test_2_1_beside_1_13(void **state)
{
    static const char *const tells[] = {"08" K V, "09" EMPTY, "0a" EMPTY, "0b", "06 07" X};
    static const char *const hears[] = {"", "", "", "01", "0000000000000000" EMPTY};
    struct bench bench;
    struct ko_session *client = &bench.clients[0];

    (void)state;
    for (size_t i = 0; i < sizeof tells / sizeof *tells; i++) {
        begin(CONVERSATION(of_2_1, true), &bench);
        asks(client, tells[i]);
        gets(client, hears[i]);
        assert_int_equal(client->numbering, KO_WIRE_2_1);
        asks(client, "00" A V "08" A); /* where a client of 1.13 would wait for its answer */
        gets(client, "");
        asks(client, W "02" A "07" A);
        gets(client, "0200000000000000 7677" ONE);
        assert_int_equal(feed(client, (const uint8_t *)"\x0c", 1), KOLO_E_PROTOCOL);
        close_bench(&bench);
    }
}

/* What may be a DELETE is none until its client is seen to be one of two connections. */
static void test_unsure(void **state)
{
    struct bench bench;
    struct ko_session *client = &bench.clients[0];

    (void)state;
    open_bench(&bench);
    asks(client, "00" K V);
    assert_false(ko_session_is_unsure(client));
    asks(client, "08" K);
    gets(client, "");
    assert_true(ko_session_is_unsure(client));
    bench.service.has_other_half = has_other_half;
    gets(client, ONE);
    assert_false(ko_session_is_unsure(client));
    assert_int_equal(client->numbering, KO_WIRE_1_13);
    bench.service.has_other_half = NULL;
    asks(client, "08" K);
    gets(client, EMPTY);
    assert_int_equal(feed(client, (const uint8_t *)"\x09", 1), KOLO_E_PROTOCOL);
    close_bench(&bench);
}

/* A client of 1.13 or 2.0 whose wait has taken too long goes on, and is told nothing of it later.
 */
static void test_1_13_goes_on(void **state)
{
    struct bench bench;
    struct ko_session *waits = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    open_bench(&bench);
    asks(waits, "05" TWO K A);
    gets(waits, "");
    asks(waits, "06");
    gets(waits, EMPTY);
    asks(waits, "05" ONE K);
    asks(sets, "00" X V);
    asks(waits, "02" X);
    gets(waits, V);
    asks(sets, "00" K V "00" A V);
    gets(waits, "");
    asks(waits, "05" TWO K A);
    gets(waits, "00");
    close_bench(&bench);
}

/* A compare_set that stores wakes, one that does not wakes nobody. */
static void test_compare_set_wakes(void **state)
{
    struct bench bench;
    struct ko_session *waits = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    open_two(&bench);
    asks(waits, "06" ONE K);
    asks(sets, "02" K V W);
    gets(sets, V);
    gets(waits, "");
    asks(sets, "02" K EMPTY W);
    gets(sets, W);
    gets(waits, "00");
    close_bench(&bench);
}

/* A client's last will is done when it ends, and wakes; a client of 1.13 has none. */
static void test_will(void **state)
{
    struct bench bench;
    struct ko_session *dies = &bench.clients[0];
    struct ko_session *waits = &bench.clients[1];

    (void)state;
    open_two(&bench);
    asks(dies, "f0" X W "f0" K V "01" A V);
    asks(waits, "06" ONE K);
    gets(waits, "");
    ko_session_close(dies);
    gets(waits, "00");
    asks(waits, "03" K "05" ONE X);
    gets(waits, V "01"); /* the one made last */
    ko_session_open(dies, &bench.service, NULL);
    asks(dies, "00 cef7853c f0" K W);
    ko_session_close(dies);
    asks(waits, "03" K);
    gets(waits, "0200000000000000 7677");
    ko_session_open(dies, &bench.service, NULL);
    asks(dies, "00" A V);
    assert_int_equal(feed(dies, (const uint8_t *)"\xf0", 1), KOLO_E_PROTOCOL);
    close_bench(&bench);
}

static void test_queue_wakes_one(void **state)
{
    struct bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];
    struct ko_session *pushes = &bench.clients[2];

    (void)state;
    open_two(&bench);
    asks(pushes, "00 cef7853c");
    asks(first, "06" ONE K);
    asks(second, "06" ONE K);
    asks(pushes, "0e" K V);
    gets(first, "00"); /* it came first */
    gets(second, "");
    asks(first, "0f" K);
    gets(first, ONE V);
    asks(pushes, "0e" K W); /* the first waits no more: nothing comes to it unasked */
    gets(first, "");
    gets(second, "00");
    asks(second, "06" ONE K); /* a queue that is not empty is there */
    gets(second, "00");
    asks(first, "0f" K "06" ONE K);
    gets(first, ONE W);
    asks(first, "0c");
    gets(first, "01");
    asks(second, "03" X); /* a get of what is a queue only has an empty value */
    asks(pushes, "0e" X V);
    gets(second, EMPTY);
    asks(second, "08" X);
    gets(second, ONE);
    asks(second, "10" X);
    gets(second, EMPTY);
    close_bench(&bench);
}

/* A value that the one it woke does not take wakes the next, as soon as that is known. */
static void test_queue_hands_on(void **state)
{
    static const char *const ends[] = {"", "0d 01020304", "10" K, "0c", "06" ONE K};
    struct bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];
    struct ko_session *pushes = &bench.clients[2];

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        open_two(&bench);
        asks(first, "06" ONE K);
        asks(second, "06" ONE K);
        asks(pushes, "00 cef7853c 0e" K V);
        gets(first, "00");
        gets(second, "");
        if (*ends[i])
            asks(first, ends[i]); /* it says something else */
        else
            ko_session_close(first); /* it has died */
        gets(second, "00");
        asks(second, "0f" K);
        gets(second, ONE V);
        close_bench(&bench);
    }
}

/* Two values wake two, of whom one takes none; a third is there for the second value then. */
static void test_queue_hands_on_to_one(void **state)
{
    struct bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];
    struct ko_session *third = &bench.clients[2];

    (void)state;
    open_two(&bench);
    asks(third, "00 cef7853c");
    asks(first, "06" ONE K);
    asks(second, "06" ONE K);
    asks(third, "0e" K V "0e" K W "06" ONE K "0f" K "06" ONE X);
    gets(third, "00" TWO V); /* it came when there was one, and was faster */
    gets(first, "00");
    gets(second, "00");
    asks(first, "0f" K "06" ONE X);
    gets(first, ONE W);
    asks(second, "0f" K "06" ONE X);
    gets(second, EMPTY);
    asks(second, "0c 0e" X V);
    gets(second, "01");
    gets(third, "00"); /* it has waited for longer */
    asks(second, "08" X);
    gets(second, ONE);
    asks(third, "10" X); /* what it was to take is gone: there is nothing to hand on */
    gets(third, EMPTY);
    gets(first, "");
    close_bench(&bench);
}

/* Those who cannot be about to pop are all woken, and do not keep the value from one who is. */
static void test_queue_wakes_who_looks(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    asks(&bench.clients[0], "05" ONE K); /* clients of 1.13 know no queues */
    asks(&bench.clients[1], "00 cef7853c 03" K);
    asks(&bench.clients[2], "00 cef7853c 06" ONE K);
    assert_int_equal(
        ko_table_queue_push(bench.service.table, (kolo_bytes){"/k", 2}, (kolo_bytes){"v", 1}),
        KOLO_OK);
    gets(&bench.clients[0], "00");
    gets(&bench.clients[1], EMPTY);
    gets(&bench.clients[2], "00");
    close_bench(&bench);
}

/* One who waits for two keys does not keep a queue's value from those behind it. */
static void test_queue_passes_over(void **state)
{
    struct bench bench;

    (void)state;
    open_two(&bench);
    asks(&bench.clients[0], "06" TWO K X);
    asks(&bench.clients[1], "06" ONE K);
    asks(&bench.clients[2], "00 cef7853c 0e" K V);
    gets(&bench.clients[0], "");
    gets(&bench.clients[1], "00");
    asks(&bench.clients[2], "01" X V);
    gets(&bench.clients[0], "00");
    close_bench(&bench);
}

/* A long reply stops where the client does not read. A key that is deleted meanwhile is waited for
 * anew, which cannot be taken back within a reply. */
static void test_multi_get_in_pieces(void **state)
{
    enum { LARGE = 400 << 10 };
    char *large = calloc(1, LARGE);
    struct bench bench;
    struct ko_session *reads = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    open_two(&bench);
    bench.service.budget.cap = 4 * BUFFERS_CAP;
    assert_int_equal(
        ko_table_set(bench.service.table, (kolo_bytes){"/k", 2}, (kolo_bytes){large, LARGE}),
        KOLO_OK);
    asks(sets, "01" X V);
    asks(reads, "0a 0500000000000000" K K K K X);
    assert_int_equal(ko_buffer_fill(&reads->out), 3 * (8 + LARGE));
    asks(sets, "08" X);
    gets(sets, ONE);
    ko_buffer_consume(&reads->out, 3 * (8 + LARGE));
    assert_int_equal(ko_session_run(reads), KOLO_OK);
    assert_int_equal(ko_buffer_fill(&reads->out), 8 + LARGE);
    assert_int_equal(ko_wire_u64(ko_buffer_bytes(&reads->out)), LARGE);
    ko_buffer_consume(&reads->out, 8 + LARGE);
    asks(reads, "0c");
    gets(reads, "");
    asks(sets, "01" X W);
    gets(reads, W "01"); /* and the answer to what stood behind it */
    asks(reads, "0a 0100000000000000" X);
    gets(reads, W);
    close_bench(&bench);
    free(large);
}

static void test_barrier(void **state)
{
    struct bench bench;
    uint8_t bytes[WIRE_LONGEST];
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];

    (void)state;
    open_two(&bench);
    asks(first, "12" K TWO);
    gets(first, "");
    asks(second, "01" X V "05" ONE K "03" K); /* its counter is a key like others */
    gets(second, "00 0100000000000000 31");
    asks(second, "12" K TWO);
    gets(second, "00");
    gets(first, "00");
    assert_int_equal(feed(second, bytes, wire_unhex("12" X TWO, bytes)), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "not a decimal number"));
    close_bench(&bench);
}

static void test_barrier_cancelled(void **state)
{
    struct bench bench;
    struct ko_session *first = &bench.clients[0];
    struct ko_session *second = &bench.clients[1];

    (void)state;
    open_two(&bench);
    asks(first, "12" K TWO);
    asks(first, "0c");
    gets(first, "01");
    asks(second, "12" K TWO); /* it has come once, and need not wait */
    gets(second, "00");
    gets(first, "");
    close_bench(&bench);
}

/* ---- watching ----------------------------------------------------------------------------- */

static void test_watch(void **state)
{
    struct bench bench;
    struct ko_session *watches = &bench.clients[0];
    struct ko_session *sets = &bench.clients[1];

    (void)state;
    open_bench(&bench);
    bench.service.has_other_half = has_other_half;
    asks(sets, "00 cef7853c");
    asks(watches, "07" K);
    gets(watches, "03");
    asks(watches, "07" K "07" N); /* twice is once */
    gets(watches, "03 03");
    asks(sets, "01" K V);
    gets(watches, "01" K EMPTY V);
    asks(sets, "09" K W);
    gets(watches, "00" K V "0200000000000000 7677");
    asks(sets, "02" K V W); /* stores nothing */
    gets(sets, "0200000000000000 7677");
    gets(watches, "");
    asks(sets, "0b" ONE K V);
    gets(watches, "00" K "0200000000000000 7677" V);
    asks(sets, "08" K "08" K);
    gets(watches, "02" K V EMPTY);
    asks(sets, "04" N ONE);
    gets(watches, "01" N EMPTY "0100000000000000 31");
    ko_session_close(watches);
    asks(sets, "01" K V);
    assert_int_equal(ko_buffer_fill(&watches->out), 0);
    close_bench(&bench);
}

/* One that watches and does not read is cut off when the memory for it has run out. */
static void test_watch_swamped(void **state)
{
    struct bench bench;
    struct ko_session *watches = &bench.clients[0];
    char *large = calloc(1, BUFFERS_CAP / 4);
    kolo_bytes key = {"/k", 2};
    int err = KOLO_OK;

    (void)state;
    open_bench(&bench);
    bench.service.has_other_half = has_other_half;
    asks(watches, "07" K);
    for (int i = 0; i < 8 && !err; i++) {
        assert_int_equal(
            ko_table_set(bench.service.table, key, (kolo_bytes){large, BUFFERS_CAP / 4}), KOLO_OK);
        err = ko_session_run(watches);
    }
    assert_int_equal(err, KOLO_E_NOMEM);
    close_bench(&bench);
    free(large);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modern),
        cmocka_unit_test(test_1_13),
        cmocka_unit_test(test_2_1),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_both_kinds),
        cmocka_unit_test(test_2_1_beside_1_13),
        cmocka_unit_test(test_unsure),
        cmocka_unit_test(test_1_13_goes_on),
        cmocka_unit_test(test_compare_set_wakes),
        cmocka_unit_test(test_will),
        cmocka_unit_test(test_queue_wakes_one),
        cmocka_unit_test(test_queue_hands_on),
        cmocka_unit_test(test_queue_hands_on_to_one),
        cmocka_unit_test(test_queue_wakes_who_looks),
        cmocka_unit_test(test_queue_passes_over),
        cmocka_unit_test(test_multi_get_in_pieces),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_barrier_cancelled),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_swamped),
    };
    return cmocka_run_group_tests_name("store wire", tests, NULL, NULL);
}
