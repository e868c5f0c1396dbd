/* SPDX-License-Identifier: MIT
 *
 * The wire format, byte by byte, in all numberings: whole conversations as clients of PyTorch have
 * them, each message of them cut at every place. A session without sockets.
 */
#include "status.h"
#include "store_bench.h"
#include "store_words.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
    {"03" X, EMPTY}, /* get of an absent key, which a client of PyTorch has waited for before */
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

static void play(struct ko_session *client, const struct step *steps, size_t nsteps)
{
    for (size_t i = 0; i < nsteps; i++) {
        store_asks(client, steps[i].say);
        store_gets(client, steps[i].hear);
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

static void begin(const struct conversation *all, struct store_bench *bench)
{
    store_bench_open(bench);
    bench->service.has_other_half = all->is_of_two ? store_has_other_half : NULL;
}

/* The conversation with one message in two pieces. */
static void play_cut(const struct conversation *all, size_t which, size_t at)
{
    struct store_bench bench;
    struct ko_session *client = &bench.clients[0];
    const struct step *cut = all->steps + which;
    uint8_t bytes[WIRE_LONGEST];
    size_t n = wire_unhex(cut->say, bytes);

    begin(all, &bench);
    play(client, all->steps, which);
    assert_int_equal(store_feed(client, bytes, at), KOLO_OK);
    store_gets(client, "");
    assert_true(ko_session_wants(client) > 0);
    assert_int_equal(store_feed(client, bytes + at, n - at), KOLO_OK);
    store_gets(client, cut->hear);
    play(client, cut + 1, all->nsteps - which - 1);
    store_bench_close(&bench);
}

static void play_all(const struct conversation *all)
{
    struct store_bench bench;
    uint8_t bytes[WIRE_LONGEST];
    size_t n;

    begin(all, &bench);
    play(&bench.clients[0], all->steps, all->nsteps);
    store_bench_close(&bench);
    for (size_t i = 0; i < all->nsteps; i++)
        for (size_t at = 0; at < wire_unhex(all->steps[i].say, bytes); at++)
            play_cut(all, i, at);
    begin(all, &bench); /* byte by byte */
    for (size_t i = 0; i < all->nsteps; i++) {
        n = wire_unhex(all->steps[i].say, bytes);
        for (size_t at = 0; at < n; at++)
            assert_int_equal(store_feed(&bench.clients[0], bytes + at, 1), KOLO_OK);
        store_gets(&bench.clients[0], all->steps[i].hear);
    }
    store_bench_close(&bench);
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
    struct store_bench bench;
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
    store_bench_open(&bench);
    assert_int_equal(store_feed(&bench.clients[0], ko_buffer_bytes(&said), ko_buffer_fill(&said)),
                     KOLO_OK);
    n = ko_buffer_fill(&heard);
    assert_int_equal(ko_buffer_fill(&bench.clients[0].out), n);
    assert_memory_equal(ko_buffer_bytes(&bench.clients[0].out), ko_buffer_bytes(&heard), n);
    store_bench_close(&bench);
    ko_buffer_free(&said);
    ko_buffer_free(&heard);
}

/* Clients of 2.1 that have said what only they say are served as such beside those of 1.13, who may
 * be on the same host. */
static void test_2_1_beside_1_13(void **state)
{
    static const char *const tells[] = {"08" K V, "09" EMPTY, "0a" EMPTY, "0b", "06 07" X};
    static const char *const hears[] = {"", "", "", "01", "0000000000000000" EMPTY};
    struct store_bench bench;
    struct ko_session *client = &bench.clients[0];

    (void)state;
    for (size_t i = 0; i < sizeof tells / sizeof *tells; i++) {
        begin(CONVERSATION(of_2_1, true), &bench);
        store_asks(client, tells[i]);
        store_gets(client, hears[i]);
        assert_int_equal(client->numbering, KO_WIRE_2_1);
        store_asks(client, "00" A V "08" A); /* where a client of 1.13 would wait for its answer */
        store_gets(client, "");
        store_asks(client, W "02" A "07" A);
        store_gets(client, "0200000000000000 7677" ONE);
        assert_int_equal(store_feed(client, (const uint8_t *)"\x0c", 1), KOLO_E_PROTOCOL);
        store_bench_close(&bench);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modern),
        cmocka_unit_test(test_1_13),
        cmocka_unit_test(test_2_1),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_2_1_beside_1_13),
    };
    return cmocka_run_group_tests_name("store wire", tests, NULL, NULL);
}
