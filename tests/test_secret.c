/* SPDX-License-Identifier: MIT
 *
 * The handshake by which the ends of a connection show that they know the token: that it succeeds
 * however it is cut, and that no other way of it does: with another token or none, for another
 * purpose, job or rank, repeated, sent back, cut short, or changed in any bit.
 */
#include "corpus.h"
#include "fuzz_secret.c"

#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { CHALLENGE_AT = KO_HANDSHAKE_HELLO, PROOF_AT = KO_HANDSHAKE_HELLO + KO_HANDSHAKE_CHALLENGE };

static const struct ko_claim calls = {KO_PURPOSE_WIRE, 0x1122334455667788u, 3, 5, false};
static const struct ko_claim accepts = {KO_PURPOSE_WIRE, 0x1122334455667788u, KO_ANY_RANK, 5,
                                        false};

static struct ko_secret secret_of(const char *token)
{
    struct ko_secret secret;

    assert_int_equal(ko_secret_make(token, strlen(token), &secret), KOLO_OK);
    return secret;
}

struct pair {
    struct ko_handshake caller, acceptor;
};

static struct pair begin(const char *callers_token, const struct ko_claim *callers,
                         const char *acceptors_token, const struct ko_claim *acceptors)
{
    const struct ko_secret left = secret_of(callers_token), right = secret_of(acceptors_token);
    struct pair pair;

    assert_int_equal(ko_handshake_begin(&pair.caller, &left, callers, true), KOLO_OK);
    assert_int_equal(ko_handshake_begin(&pair.acceptor, &right, acceptors, false), KOLO_OK);
    return pair;
}

/* All that one end has to say, to the other, in pieces of at most so many bytes. */
static int pass(struct ko_handshake *from, struct ko_handshake *to, size_t piece)
{
    const unsigned char *bytes;
    size_t n;
    int err = KOLO_OK;

    while (bytes = ko_handshake_says(from, &n), n && !err) {
        n = n < piece ? n : piece;
        assert_true(ko_handshake_wants(to) >= n);
        err = ko_handshake_hears(to, bytes, n);
        ko_handshake_said(from, n);
    }
    return err;
}

static int run(struct pair *pair, size_t piece)
{
    int err = pass(&pair->caller, &pair->acceptor, piece);

    if (!err)
        err = pass(&pair->acceptor, &pair->caller, piece);
    return err ? err : pass(&pair->caller, &pair->acceptor, piece);
}

static const char token[] = "0123456789abcdef";

static bool is_zero(const struct ko_secret *secret)
{
    static const struct ko_secret zero;

    return memcmp(secret, &zero, sizeof zero) == 0;
}

static void both_are_convinced(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= KO_HANDSHAKE_BYTES; piece++) {
        struct pair pair = begin(token, &calls, token, &accepts);

        assert_false(ko_handshake_is_over(&pair.caller));
        assert_false(ko_handshake_is_over(&pair.acceptor));
        assert_int_equal(run(&pair, piece), KOLO_OK);
        assert_true(ko_handshake_is_over(&pair.caller));
        assert_true(ko_handshake_is_over(&pair.acceptor));
        assert_int_equal(pair.acceptor.claim.from, calls.from);
        assert_int_equal(ko_handshake_wants(&pair.caller), 0);
        assert_int_equal(ko_handshake_wants(&pair.acceptor), 0);
        assert_true(is_zero(&pair.caller.secret) && is_zero(&pair.acceptor.secret));
    }
}

/* A caller is convinced by the challenge, an acceptor only by the proof. */
static void nobody_is_convinced_early(void **state)
{
    struct pair pair = begin(token, &calls, token, &accepts);

    (void)state;
    assert_int_equal(pass(&pair.caller, &pair.acceptor, 100), KOLO_OK);
    assert_int_equal(pass(&pair.acceptor, &pair.caller, 71), KOLO_OK);
    assert_false(ko_handshake_is_over(&pair.caller));
    assert_false(ko_handshake_is_over(&pair.acceptor));
    for (size_t i = 1; i <= KO_HANDSHAKE_PROOF; i++) {
        size_t n;
        const unsigned char *bytes = ko_handshake_says(&pair.caller, &n);

        assert_false(ko_handshake_is_over(&pair.acceptor));
        assert_int_equal(ko_handshake_hears(&pair.acceptor, bytes, 1), KOLO_OK);
        ko_handshake_said(&pair.caller, 1);
    }
    assert_true(ko_handshake_is_over(&pair.acceptor));
}

static void expect_refusal(struct pair *pair, const char *sentence)
{
    size_t n;

    assert_int_equal(run(pair, 1000), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), sentence));
    assert_false(ko_handshake_is_over(&pair->acceptor));
    assert_false(ko_handshake_is_over(&pair->caller) && pair->caller.at < PROOF_AT);
    /* Whoever has refused neither says nor hears any more. */
    if (pair->acceptor.has_failed) {
        ko_handshake_says(&pair->acceptor, &n);
        assert_int_equal(n, 0);
        assert_int_equal(ko_handshake_wants(&pair->acceptor), 0);
        assert_true(is_zero(&pair->acceptor.secret));
    } else {
        assert_true(pair->caller.has_failed && is_zero(&pair->caller.secret));
    }
}

static void another_token(void **state)
{
    struct pair pair = begin("0123456789abcdef", &calls, "0123456789abcdeg", &accepts);

    (void)state;
    expect_refusal(&pair, "another token"); /* the caller's: it says no proof to a stranger */
    assert_true(pair.caller.has_failed && pair.caller.at == PROOF_AT);
    pair = begin("0123456789abcdef", &calls, "0123456789abcdef0", &accepts);
    expect_refusal(&pair, "another token");
}

static void another_purpose_job_or_rank(void **state)
{
    struct ko_claim claim = calls;
    struct pair pair;

    (void)state;
    claim.purpose = KO_PURPOSE_STORE;
    pair = begin(token, &claim, token, &accepts);
    expect_refusal(&pair, "meant for somebody else");
    claim = calls;
    claim.job ^= UINT64_C(1) << 63;
    pair = begin(token, &claim, token, &accepts);
    expect_refusal(&pair, "of another job");
    claim = calls;
    claim.to = calls.from;
    claim.from = calls.to;
    pair = begin(token, &claim, token, &accepts);
    expect_refusal(&pair, "rank 3");
}

/* The right call, but somebody on the way has made it that of another rank, or to one. */
static void swapped_on_the_way(void **state)
{
    (void)state;
    for (int field = 0; field < 2; field++) {
        struct pair pair = begin(token, &calls, token, &accepts);
        unsigned char hello[KO_HANDSHAKE_HELLO];
        size_t n;

        memcpy(hello, ko_handshake_says(&pair.caller, &n), sizeof hello);
        hello[field ? 16 : 12] ^= 1;
        ko_handshake_said(&pair.caller, sizeof hello);
        if (field) {
            assert_int_equal(ko_handshake_hears(&pair.acceptor, hello, sizeof hello),
                             KOLO_E_PROTOCOL);
            continue;
        }
        assert_int_equal(ko_handshake_hears(&pair.acceptor, hello, sizeof hello), KOLO_OK);
        assert_int_equal(pass(&pair.acceptor, &pair.caller, 1000), KOLO_E_PROTOCOL);
        assert_int_equal(pair.acceptor.claim.from, KO_ANY_RANK); /* not believed */
    }
}

/* All that a caller once said, said again. */
static void repeated(void **state)
{
    struct pair first = begin(token, &calls, token, &accepts);
    struct pair again = begin(token, &calls, token, &accepts);
    const unsigned char *heard = first.acceptor.bytes;

    (void)state;
    assert_int_equal(run(&first, 1000), KOLO_OK);
    assert_int_equal(ko_handshake_hears(&again.acceptor, heard, KO_HANDSHAKE_HELLO), KOLO_OK);
    ko_handshake_said(&again.acceptor, KO_HANDSHAKE_CHALLENGE);
    assert_int_equal(ko_handshake_hears(&again.acceptor, heard + PROOF_AT, KO_HANDSHAKE_PROOF),
                     KOLO_E_PROTOCOL);
    /* And all that an acceptor once said, to a new caller. */
    ko_handshake_said(&again.caller, KO_HANDSHAKE_HELLO);
    assert_int_equal(
        ko_handshake_hears(&again.caller, heard + CHALLENGE_AT, KO_HANDSHAKE_CHALLENGE),
        KOLO_E_PROTOCOL);
}

/* Who does not know the token sends back what he hears, or lets another connection answer. */
static void sent_back(void **state)
{
    struct pair pair = begin(token, &calls, token, &accepts);
    struct ko_claim own = {KO_PURPOSE_WIRE, calls.job, KO_ANY_RANK, calls.from, false};
    const struct ko_secret secret = secret_of(token);
    unsigned char hello[KO_HANDSHAKE_CHALLENGE] = {0};
    struct ko_handshake callers_own;

    (void)state;
    memcpy(hello, pair.caller.bytes, KO_HANDSHAKE_HELLO);
    ko_handshake_said(&pair.caller, KO_HANDSHAKE_HELLO);
    /* to the caller's own door, which would answer with the right key */
    assert_int_equal(ko_handshake_begin(&callers_own, &secret, &own, false), KOLO_OK);
    assert_int_equal(ko_handshake_hears(&callers_own, hello, KO_HANDSHAKE_HELLO), KOLO_E_PROTOCOL);
    assert_int_equal(ko_handshake_hears(&pair.caller, hello, sizeof hello), KOLO_E_PROTOCOL);
    /* The acceptor's code as a proof of it: each end has a key of its own. */
    pair = begin(token, &calls, token, &accepts);
    assert_int_equal(pass(&pair.caller, &pair.acceptor, 1000), KOLO_OK);
    ko_handshake_said(&pair.acceptor, KO_HANDSHAKE_CHALLENGE);
    assert_int_equal(ko_handshake_hears(&pair.acceptor, pair.acceptor.bytes + PROOF_AT - 32, 32),
                     KOLO_E_PROTOCOL);
}

/* Every bit of what is said, changed on the way: nobody who has heard it goes on to the end. */
static void any_bit(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * (size_t)KO_HANDSHAKE_BYTES; bit++) {
        uint8_t input[2 + KO_HANDSHAKE_BYTES] = {0};

        input[2 + bit / 8] = (uint8_t)(1 << bit % 8);
        assert_int_equal(LLVMFuzzerTestOneInput(input, sizeof input), 0);
    }
}

/* Cut off at each byte, in pieces of several lengths; between ends of different claims. */
static void any_length(void **state)
{
    static const uint8_t zeros[2 + KO_HANDSHAKE_BYTES];
    uint8_t input[sizeof zeros];

    (void)state;
    for (size_t n = 0; n <= sizeof input; n++)
        for (int kind = 0; kind < 16; kind++)
            for (int piece = 0; piece < 3; piece++) {
                memcpy(input, zeros, sizeof input);
                input[0] = (uint8_t)kind;
                input[1] = (uint8_t)(piece * 31);
                assert_int_equal(LLVMFuzzerTestOneInput(input, n), 0);
            }
}

static void kept(void **state)
{
    (void)state;
    assert_in_range(corpus_replay("tests/corpus/secret", LLVMFuzzerTestOneInput), 1, 10000);
}

/* The first byte that is no hello's is one too many: nobody waits for the rest of it. */
static void strangers(void **state)
{
    static const char *const words[] = {"GET / HTTP/1.1", "\x16\x03\x01", "KOLOautx", "kolo"};

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct pair pair = begin(token, &calls, token, &accepts);

        assert_int_equal(ko_handshake_hears(&pair.acceptor, words[i], strlen(words[i])),
                         KOLO_E_PROTOCOL);
        assert_non_null(strstr(kolo_last_error(), "shows no token"));
    }
    for (int i = 0; i < 2; i++) {
        struct pair pair = begin(token, &calls, token, &accepts);

        ko_handshake_said(&pair.caller, KO_HANDSHAKE_HELLO);
        assert_int_equal(ko_handshake_hears(&pair.caller, i ? "x" : (const char *)ko_refusal, 1),
                         KOLO_E_PROTOCOL);
        assert_non_null(strstr(kolo_last_error(), i ? "does not know" : "refuses"));
    }
    assert_true(ko_handshake_is_hello("KOLOauth", 8) && ko_handshake_is_hello("KOLOauth...", 11));
    assert_true(ko_handshake_is_hello("K", 1) && !ko_handshake_is_hello("KOLOautX", 8));
}

static void another_version(void **state)
{
    struct pair pair = begin(token, &calls, token, &accepts);
    unsigned char hello[KO_HANDSHAKE_HELLO];

    (void)state;
    memcpy(hello, pair.caller.bytes, sizeof hello);
    hello[8] = 9;
    assert_int_equal(ko_handshake_hears(&pair.acceptor, hello, sizeof hello), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "version 9"));
}

static void lengths_of_tokens(void **state)
{
    static char text[KO_TOKEN_MOST + 1];
    struct ko_secret a, b;

    (void)state;
    memset(text, 'x', sizeof text);
    assert_int_equal(ko_secret_make(text, KO_TOKEN_LEAST - 1, &a), KOLO_E_INVALID);
    assert_int_equal(ko_secret_make(text, KO_TOKEN_MOST + 1, &a), KOLO_E_INVALID);
    assert_null(strstr(kolo_last_error(), "xxx"));
    assert_int_equal(ko_secret_make(text, KO_TOKEN_LEAST, &a), KOLO_OK);
    assert_int_equal(ko_secret_make(text, KO_TOKEN_MOST, &b), KOLO_OK);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_int_equal(ko_secret_make(text, KO_TOKEN_LEAST, &b), KOLO_OK);
    assert_memory_equal(&a, &b, sizeof a);
    ko_secret_forget(&a);
    assert_true(is_zero(&a));
}

/* Keys for what follows: the same at both ends, others in each connection. */
static void session_keys(void **state)
{
    static const struct ko_session_keys zeros;
    struct ko_claim left = calls, right = accepts;
    struct pair first = begin(token, &left, token, &right), second;

    (void)state;
    assert_int_equal(run(&first, 1000), KOLO_OK);
    assert_memory_equal(&first.caller.keys, &zeros, sizeof zeros); /* nobody has asked for any */
    left.is_sealed = right.is_sealed = true;
    first = begin(token, &left, token, &right);
    second = begin(token, &left, token, &right);
    assert_int_equal(run(&first, 1000), KOLO_OK);
    assert_int_equal(run(&second, 3), KOLO_OK);
    for (int i = 0; i < 2; i++) {
        const struct pair *pair = i ? &second : &first;

        assert_memory_equal(pair->caller.keys.says, pair->acceptor.keys.hears, KO_SECRET_BYTES);
        assert_memory_equal(pair->caller.keys.hears, pair->acceptor.keys.says, KO_SECRET_BYTES);
        assert_memory_not_equal(pair->caller.keys.says, pair->caller.keys.hears, KO_SECRET_BYTES);
        assert_memory_equal(pair->caller.ephemeral, zeros.says, KO_SECRET_BYTES);
        assert_memory_equal(pair->acceptor.ephemeral, zeros.says, KO_SECRET_BYTES);
    }
    assert_memory_not_equal(first.caller.keys.says, second.caller.keys.says, KO_SECRET_BYTES);
    assert_memory_not_equal(first.caller.keys.hears, second.caller.keys.hears, KO_SECRET_BYTES);
    left.is_sealed = false;
    first = begin(token, &left, token, &right);
    expect_refusal(&first, "KOLO_ENCRYPT is 0 on rank 3 and 1 on rank 5");
}

/* The bytes on the wire, and keys as Python's hmac makes them. */
static void golden(void **state)
{
    static const unsigned char key[KO_SECRET_BYTES] = {
        0x61, 0xc2, 0x88, 0x80, 0x40, 0x3e, 0x90, 0x8c, 0xff, 0xe9, 0x2f,
        0x93, 0x8b, 0x15, 0x3c, 0x16, 0xa7, 0x94, 0x74, 0x6f, 0xcc, 0x2b,
        0x15, 0x60, 0xaf, 0xc0, 0x46, 0x08, 0x9d, 0x16, 0x47, 0x63};
    static const unsigned char code[KO_SECRET_BYTES] = {
        0x21, 0x6a, 0x8b, 0xcf, 0xb9, 0xdf, 0x81, 0xec, 0x99, 0x23, 0x94,
        0x47, 0x68, 0xb4, 0xc0, 0x96, 0x96, 0x5a, 0x4d, 0x07, 0xbc, 0x00,
        0x9e, 0x5d, 0x01, 0x66, 0xf2, 0xfc, 0x00, 0xc4, 0x2e, 0x25};
    const struct ko_secret secret = secret_of(token);
    struct pair pair = begin(token, &calls, token, &accepts);
    unsigned char hello[KO_HANDSHAKE_HELLO] =
        "KOLOauth\1\2\0\0\3\0\0\0\5\0\0\0\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11";

    (void)state;
    assert_memory_equal(secret.key, key, sizeof key);
    assert_memory_equal(pair.caller.bytes, hello, 32);
    /* With both nonces known, what the acceptor and the caller answer is. */
    memset(pair.caller.bytes + 32, 0xaa, 32);
    ko_handshake_said(&pair.caller, KO_HANDSHAKE_HELLO);
    memset(hello, 0, sizeof hello);
    hello[0] = 1;
    memset(hello + 8, 0xbb, 32);
    assert_int_equal(ko_handshake_hears(&pair.caller, hello, 40), KOLO_OK);
    assert_int_equal(ko_handshake_hears(&pair.caller, code, sizeof code), KOLO_OK);
    assert_int_equal(ko_handshake_wants(&pair.caller), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_are_convinced),
        cmocka_unit_test(nobody_is_convinced_early),
        cmocka_unit_test(another_token),
        cmocka_unit_test(another_purpose_job_or_rank),
        cmocka_unit_test(swapped_on_the_way),
        cmocka_unit_test(repeated),
        cmocka_unit_test(sent_back),
        cmocka_unit_test(any_bit),
        cmocka_unit_test(any_length),
        cmocka_unit_test(kept),
        cmocka_unit_test(strangers),
        cmocka_unit_test(another_version),
        cmocka_unit_test(lengths_of_tokens),
        cmocka_unit_test(session_keys),
        cmocka_unit_test(golden),
    };

    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
