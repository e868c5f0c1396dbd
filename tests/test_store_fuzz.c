/* SPDX-License-Identifier: MIT
 *
 * Some thousands of mutations of good conversations, the same in every run, and the kept ones,
 * through the fuzz target of the store's server. The sanitizers and the target's own checks are the
 * oracle.
 */
#include "corpus.h"
#include "fuzz_store.c"
#include "seeded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROUNDS = 20000, LONGEST = 1024 };

static uint64_t seed = 0x1234567;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)seeded_next(&seed) % below;
}

/* One good message each; the first of each numbering begins its conversation. */
#define KEY "\2\0\0\0\0\0\0\0"
#define MESSAGE(text)         \
    {                         \
        text, sizeof text - 1 \
    }
struct message {
    const char *bytes;
    size_t nbytes;
};
static const struct message modern[] = {
    MESSAGE("\0\xce\xf7\x85\x3c"),
    MESSAGE("\1" KEY "/k\3\0\0\0\0\0\0\0val"),
    MESSAGE("\2" KEY "/k\3\0\0\0\0\0\0\0val\1\0\0\0\0\0\0\0w"),
    MESSAGE("\3" KEY "/k"),
    MESSAGE("\4" KEY "/n\xf9\xff\xff\xff\xff\xff\xff\xff"),
    MESSAGE("\5\2\0\0\0\0\0\0\0" KEY "/k" KEY "/n"),
    MESSAGE("\6\2\0\0\0\0\0\0\0" KEY "/k" KEY "/n"),
    MESSAGE("\7"),
    MESSAGE("\10" KEY "/k"),
    MESSAGE("\11" KEY "/a\5\0\0\0\0\0\0\0again"),
    MESSAGE("\12\2\0\0\0\0\0\0\0" KEY "/k" KEY "/a"),
    MESSAGE("\13\2\0\0\0\0\0\0\0" KEY "/x\0\0\0\0\0\0\0\0" KEY "/y\1\0\0\0\0\0\0\0y"),
    MESSAGE("\14"),
    MESSAGE("\15\1\2\3\4"),
    MESSAGE("\16" KEY "/q\3\0\0\0\0\0\0\0val"),
    MESSAGE("\17" KEY "/q"),
    MESSAGE("\20" KEY "/q"),
    MESSAGE("\21"),
    MESSAGE("\22" KEY "/b\2\0\0\0\0\0\0\0"),
    MESSAGE("\360" KEY "/w\4\0\0\0\0\0\0\0gone"),
};
static const struct message of_1_13[] = {
    MESSAGE("\6"),
    MESSAGE("\0" KEY "/k\3\0\0\0\0\0\0\0val"),
    MESSAGE("\1" KEY "/k\3\0\0\0\0\0\0\0val\1\0\0\0\0\0\0\0w"),
    MESSAGE("\2" KEY "/k"),
    MESSAGE("\3" KEY "/n\xf9\xff\xff\xff\xff\xff\xff\xff"),
    MESSAGE("\4\2\0\0\0\0\0\0\0" KEY "/k" KEY "/n"),
    MESSAGE("\5\1\0\0\0\0\0\0\0" KEY "/k"),
    MESSAGE("\7" KEY "/k"),
    MESSAGE("\10" KEY "/k"),
};
static const struct message of_2_1[] = {
    MESSAGE("\6"),
    MESSAGE("\0" KEY "/k\3\0\0\0\0\0\0\0val"),
    MESSAGE("\1" KEY "/k\3\0\0\0\0\0\0\0val\1\0\0\0\0\0\0\0w"),
    MESSAGE("\2" KEY "/k"),
    MESSAGE("\3" KEY "/n\xf9\xff\xff\xff\xff\xff\xff\xff"),
    MESSAGE("\4\2\0\0\0\0\0\0\0" KEY "/k" KEY "/n"),
    MESSAGE("\5\2\0\0\0\0\0\0\0" KEY "/k" KEY "/n"),
    MESSAGE("\7" KEY "/k"),
    MESSAGE("\10" KEY "/a\5\0\0\0\0\0\0\0again"),
    MESSAGE("\11\2\0\0\0\0\0\0\0" KEY "/k" KEY "/a"),
    MESSAGE("\12\2\0\0\0\0\0\0\0" KEY "/x\0\0\0\0\0\0\0\0" KEY "/y\1\0\0\0\0\0\0\0y"),
    MESSAGE("\13"),
};
#define MESSAGES(of)                  \
    {                                 \
        of, sizeof(of) / sizeof *(of) \
    }
static const struct {
    const struct message *messages;
    uint32_t n;
} numberings[] = {MESSAGES(modern), MESSAGES(modern), MESSAGES(of_1_13), MESSAGES(of_2_1)};
enum { NNUMBERINGS = sizeof numberings / sizeof *numberings };

/* One piece of the client's; long messages are cut. */
static size_t put_piece(uint8_t *bytes, uint32_t client, const struct message *message)
{
    size_t n = message->nbytes < WHOLE_REST ? message->nbytes : WHOLE_REST - 1;

    bytes[0] = (uint8_t)(client + CLIENTS * n);
    memcpy(bytes + 1, message->bytes, n);
    return n + 1;
}

/* Clients of all kinds; at times one hangs up. */
static size_t make_conversation(uint8_t *bytes)
{
    bool has_begun[CLIENTS] = {false};
    uint32_t kinds[CLIENTS];
    size_t n = 1;

    bytes[0] = (uint8_t)draw(16);
    while (n + WHOLE_REST < LONGEST && draw(30) > 0) {
        uint32_t client = draw(CLIENTS), which = 0;

        if (draw(30) == 0) {
            has_begun[client] = false;
            bytes[n++] = (uint8_t)client;
            continue;
        }
        if (has_begun[client])
            which = draw(numberings[kinds[client]].n);
        else
            kinds[client] = draw(NNUMBERINGS);
        n += put_piece(bytes + n, client, &numberings[kinds[client]].messages[which]);
        has_begun[client] = true;
    }
    return n;
}

/* A few bytes changed. */
static void mutate(uint8_t *bytes, size_t n)
{
    static const uint8_t special[] = {0, 1, 2, 0x7f, 0x80, 0xff, 18, 19};

    for (uint32_t i = draw(4); i > 0; i--)
        bytes[draw((uint32_t)n)] = draw(2) ? special[draw(sizeof special)] : (uint8_t)draw(256);
}

static void test_mutations(void **state)
{
    uint8_t bytes[LONGEST];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        n = make_conversation(bytes);
        mutate(bytes, n);
        assert_int_equal(LLVMFuzzerTestOneInput(bytes, n), 0);
    }
}

static void test_noise(void **state)
{
    uint8_t bytes[LONGEST];
    size_t n;

    (void)state;
    for (int round = 0; round < ROUNDS / 4; round++) {
        bytes[0] = (uint8_t)draw(16);
        n = 1 + put_piece(bytes + 1, 0, &modern[0]);
        bytes[n++] = WHOLE_REST * CLIENTS;
        for (; n < LONGEST; n++)
            bytes[n] = (uint8_t)(draw(3) ? draw(3) : draw(256));
        assert_int_equal(LLVMFuzzerTestOneInput(bytes, LONGEST), 0);
    }
}

static void test_kept(void **state)
{
    (void)state;
    assert_in_range(corpus_replay("tests/corpus/store", LLVMFuzzerTestOneInput), 1, 10000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations),
                                              cmocka_unit_test(test_noise),
                                              cmocka_unit_test(test_kept)};

    return cmocka_run_group_tests_name("store fuzz", tests, NULL, NULL);
}
