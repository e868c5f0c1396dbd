/* SPDX-License-Identifier: MIT
 *
 * The messages lie in one array in the order in which they are said, so that "all so far" is its
 * beginning, and where a handshake stands is one number. Integers travel in little-endian order.
 */
#include "secret.h"

#include "status.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(KO_SECRET_BYTES == crypto_auth_hmacsha256_BYTES, "a key is the output of an HMAC");

static const unsigned char magic[8] = {'K', 'O', 'L', 'O', 'a', 'u', 't', 'h'};

const unsigned char ko_refusal[KO_REFUSAL_BYTES] = {'K', 'O', 'L', 'O', 'd', 'e', 'n', 'y'};

const struct ko_claim ko_claim_store = {
    .purpose = KO_PURPOSE_STORE, .from = KO_ANY_RANK, .to = KO_ANY_RANK};

enum { VERSION = 1, NONCE_BYTES = 32 };

/* Where the messages' fields are, and where the messages end. */
enum {
    AT_VERSION = 8,
    AT_PURPOSE = 9,
    AT_SEALED = 10,
    AT_FROM = 12,
    AT_TO = 16,
    AT_JOB = 24,
    AT_CALLERS_NONCE = 32,
    HELLO_END = KO_HANDSHAKE_HELLO,
    AT_ANSWERED = HELLO_END, /* the version again, then zeros */
    AT_ACCEPTORS_NONCE = HELLO_END + 8,
    AT_ACCEPTORS_CODE = AT_ACCEPTORS_NONCE + NONCE_BYTES,
    CHALLENGE_END = HELLO_END + KO_HANDSHAKE_CHALLENGE,
    AT_CALLERS_CODE = CHALLENGE_END,
    PROOF_END = KO_HANDSHAKE_BYTES
};

_Static_assert(AT_CALLERS_NONCE + NONCE_BYTES == HELLO_END &&
                   AT_ACCEPTORS_CODE + KO_SECRET_BYTES == CHALLENGE_END &&
                   AT_CALLERS_CODE + KO_SECRET_BYTES == PROOF_END,
               "the fields fill the messages");

/* ---- keys and codes ---------------------------------------------------------------------- */

/* A key may have any length; it and out may be the same. */
static void hmac(const void *key, size_t key_bytes, const void *data, size_t nbytes,
                 unsigned char out[KO_SECRET_BYTES])
{
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, key, key_bytes);
    crypto_auth_hmacsha256_update(&state, data, nbytes);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state);
}

int ko_secret_make(const void *token, size_t nbytes, struct ko_secret *secret)
{
    static const char use[] = "kolo: a job's token, 1";

    if (nbytes < KO_TOKEN_LEAST || nbytes > KO_TOKEN_MOST)
        return ko_fail(
            KOLO_E_INVALID,
            "the token has %zu bytes; it takes %d to %d, as from: kolorun --make-token FILE",
            nbytes, KO_TOKEN_LEAST, KO_TOKEN_MOST);
    hmac(token, nbytes, use, sizeof use, secret->key);
    return KOLO_OK;
}

void ko_secret_forget(struct ko_secret *secret)
{
    sodium_memzero(secret, sizeof *secret);
}

/* The code for the first nbytes of what has been said, by the key of an end ('c', 'a') or another
 * use. */
static void make_code(const struct ko_handshake *handshake, char whose, size_t nbytes,
                      unsigned char code[KO_SECRET_BYTES])
{
    const unsigned char use[] = {
        'k', 'e', 'y', VERSION, (unsigned char)handshake->claim.purpose, (unsigned char)whose};
    unsigned char key[KO_SECRET_BYTES];

    hmac(handshake->secret.key, sizeof handshake->secret.key, use, sizeof use, key);
    hmac(key, sizeof key, handshake->bytes, nbytes, code);
    sodium_memzero(key, sizeof key);
}

/* True if the code behind the first nbytes is the other end's. In constant time, so that the time
 * of a refusal does not tell how much of a guess was right. */
static bool is_code_right(const struct ko_handshake *handshake, size_t nbytes)
{
    unsigned char code[KO_SECRET_BYTES];

    make_code(handshake, handshake->is_caller ? 'a' : 'c', nbytes, code);
    return sodium_memcmp(code, handshake->bytes + nbytes, sizeof code) == 0;
}

static int draw(unsigned char *bytes)
{
    if (getrandom(bytes, NONCE_BYTES, 0) != NONCE_BYTES)
        return ko_fail_errno(errno, "getrandom");
    return KOLO_OK;
}

/* Where keys are to be made the nonce is half of an exchange of X25519. */
static int draw_nonce(struct ko_handshake *handshake, unsigned char *nonce)
{
    int err;

    if (!handshake->claim.is_sealed)
        return draw(nonce);
    err = draw(handshake->ephemeral);
    if (!err)
        crypto_scalarmult_base(nonce, handshake->ephemeral);
    return err;
}

/* From the exchange, the token and all that was said before the proof. */
static int make_keys(struct ko_handshake *handshake)
{
    const bool is_caller = handshake->is_caller;
    const unsigned char *theirs =
        handshake->bytes + (is_caller ? AT_ACCEPTORS_NONCE : AT_CALLERS_NONCE);
    unsigned char *callers = is_caller ? handshake->keys.says : handshake->keys.hears;
    unsigned char *acceptors = is_caller ? handshake->keys.hears : handshake->keys.says;
    unsigned char shared[KO_SECRET_BYTES], key[KO_SECRET_BYTES];
    int failed;

    if (!handshake->claim.is_sealed)
        return KOLO_OK;
    failed = crypto_scalarmult(shared, handshake->ephemeral, theirs);
    make_code(handshake, 's', CHALLENGE_END, key);
    hmac(key, sizeof key, shared, sizeof shared, key);
    hmac(key, sizeof key, "c", 1, callers);
    hmac(key, sizeof key, "a", 1, acceptors);
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(key, sizeof key);
    return failed ? ko_fail(KOLO_E_PROTOCOL, "the other end has no key to exchange") : KOLO_OK;
}

static void forget(struct ko_handshake *handshake)
{
    ko_secret_forget(&handshake->secret);
    sodium_memzero(handshake->ephemeral, sizeof handshake->ephemeral);
}

/* ---- integers ---------------------------------------------------------------------------- */

static void put(unsigned char *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *at, int nbytes)
{
    uint64_t value = 0;

    for (int i = 0; i < nbytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* ---- the caller's hello ------------------------------------------------------------------ */

static int say_hello(struct ko_handshake *handshake)
{
    const struct ko_claim *claim = &handshake->claim;
    unsigned char *bytes = handshake->bytes;

    memcpy(bytes, magic, sizeof magic);
    bytes[AT_VERSION] = VERSION;
    bytes[AT_PURPOSE] = (unsigned char)claim->purpose;
    bytes[AT_SEALED] = claim->is_sealed;
    put(bytes + AT_FROM, (uint32_t)claim->from, 4);
    put(bytes + AT_TO, (uint32_t)claim->to, 4);
    put(bytes + AT_JOB, claim->job, 8);
    return draw_nonce(handshake, bytes + AT_CALLERS_NONCE);
}

int32_t ko_handshake_caller(const struct ko_handshake *handshake)
{
    return (int32_t)get(handshake->bytes + AT_FROM, 4);
}

bool ko_handshake_is_hello(const void *bytes, size_t nbytes)
{
    return memcmp(bytes, magic, nbytes < sizeof magic ? nbytes : sizeof magic) == 0;
}

static int check_hello(struct ko_handshake *handshake)
{
    const unsigned char *bytes = handshake->bytes;
    const struct ko_claim *claim = &handshake->claim;
    const int32_t to = (int32_t)get(bytes + AT_TO, 4);

    if (bytes[AT_VERSION] != VERSION)
        return ko_fail(KOLO_E_PROTOCOL,
                       "its handshake has version %d, this one %d; use one version of kolo",
                       bytes[AT_VERSION], VERSION);
    if (bytes[AT_PURPOSE] != claim->purpose || to != claim->to ||
        get(bytes + AT_JOB, 8) != claim->job)
        return ko_fail(KOLO_E_PROTOCOL,
                       "its handshake was meant for somebody else: rank %d, purpose %d; this is "
                       "rank %d, purpose %d%s",
                       (int)to, bytes[AT_PURPOSE], (int)claim->to, (int)claim->purpose,
                       to == claim->to ? ", of another job" : "");
    if (bytes[AT_SEALED] != claim->is_sealed)
        return ko_fail(KOLO_E_PROTOCOL,
                       "KOLO_ENCRYPT is %d on rank %d and %d on rank %d; it takes the same on all",
                       bytes[AT_SEALED], (int)ko_handshake_caller(handshake), claim->is_sealed,
                       (int)to);
    return KOLO_OK;
}

/* ---- the acceptor's challenge, the caller's proof ---------------------------------------- */

static int say_challenge(struct ko_handshake *handshake)
{
    unsigned char *bytes = handshake->bytes;

    memset(bytes + AT_ANSWERED, 0, AT_ACCEPTORS_NONCE - AT_ANSWERED);
    bytes[AT_ANSWERED] = VERSION;
    make_code(handshake, 'a', AT_ACCEPTORS_CODE, bytes + AT_ACCEPTORS_CODE);
    return KOLO_OK;
}

static int fail_code(void)
{
    return ko_fail(KOLO_E_PROTOCOL, "the other end has another token than this one; all ranks of a "
                                    "job need the same (KOLO_AUTH_TOKEN_FILE, KOLO_AUTH_TOKEN)");
}

static int check_challenge(const struct ko_handshake *handshake)
{
    return is_code_right(handshake, AT_ACCEPTORS_CODE) ? KOLO_OK : fail_code();
}

static int check_proof(struct ko_handshake *handshake)
{
    if (!is_code_right(handshake, AT_CALLERS_CODE))
        return fail_code();
    handshake->claim.from = ko_handshake_caller(handshake);
    return make_keys(handshake);
}

/* ---- turns ------------------------------------------------------------------------------- */

/* Where the message ends of which `at` is a part, or the beginning. */
static size_t message_end(const struct ko_handshake *handshake)
{
    if (handshake->at < HELLO_END)
        return HELLO_END;
    return handshake->at < CHALLENGE_END ? CHALLENGE_END : PROOF_END;
}

static size_t message_left(const struct ko_handshake *handshake, bool is_ours)
{
    const size_t end = message_end(handshake);
    const bool is_callers = end != CHALLENGE_END;

    if (handshake->has_failed || (is_callers == handshake->is_caller) != is_ours)
        return 0;
    return end - handshake->at;
}

/* The other end's message is complete: checks it, and makes the answer to it. */
static int take_message(struct ko_handshake *handshake)
{
    int err;

    if (handshake->at == HELLO_END) {
        err = check_hello(handshake);
        if (!err)
            err = draw_nonce(handshake, handshake->bytes + AT_ACCEPTORS_NONCE);
        return err ? err : say_challenge(handshake);
    }
    if (handshake->at == CHALLENGE_END) {
        err = check_challenge(handshake);
        if (err)
            return err;
        make_code(handshake, 'c', AT_CALLERS_CODE, handshake->bytes + AT_CALLERS_CODE);
        return make_keys(handshake);
    }
    return check_proof(handshake);
}

int ko_handshake_begin(struct ko_handshake *handshake, const struct ko_secret *secret,
                       const struct ko_claim *claim, bool is_caller)
{
    *handshake = (struct ko_handshake){.secret = *secret, .claim = *claim, .is_caller = is_caller};
    return is_caller ? say_hello(handshake) : KOLO_OK;
}

const unsigned char *ko_handshake_says(const struct ko_handshake *handshake, size_t *nbytes)
{
    *nbytes = message_left(handshake, true);
    return handshake->bytes + handshake->at;
}

void ko_handshake_said(struct ko_handshake *handshake, size_t nbytes)
{
    handshake->at += nbytes;
    if (ko_handshake_is_over(handshake))
        forget(handshake);
}

size_t ko_handshake_wants(const struct ko_handshake *handshake)
{
    return message_left(handshake, false);
}

/* Of a message that has begun to come: whether it is one of a handshake at all. */
static int check_beginning(const struct ko_handshake *handshake)
{
    const unsigned char *bytes = handshake->bytes;

    if (!handshake->is_caller && !ko_handshake_is_hello(bytes, handshake->at))
        return ko_fail(KOLO_E_PROTOCOL,
                       "the other end shows no token, and this one asks for it; all ranks of a job "
                       "need the same (KOLO_AUTH_TOKEN_FILE, KOLO_AUTH_TOKEN)");
    if (handshake->is_caller && bytes[AT_ANSWERED] == ko_refusal[0])
        return ko_fail(
            KOLO_E_PROTOCOL,
            "the other end refuses this one's token, or has none, or KOLO_ENCRYPT differs");
    if (handshake->is_caller && bytes[AT_ANSWERED] != VERSION)
        return ko_fail(KOLO_E_PROTOCOL, "what answers does not know kolo's handshake");
    return KOLO_OK;
}

int ko_handshake_hears(struct ko_handshake *handshake, const void *bytes, size_t nbytes)
{
    const size_t end = message_end(handshake);
    int err;

    assert(nbytes <= ko_handshake_wants(handshake));
    memcpy(handshake->bytes + handshake->at, bytes, nbytes);
    handshake->at += nbytes;
    err = check_beginning(handshake);
    if (!err && handshake->at == end)
        err = take_message(handshake);
    handshake->has_failed = err != KOLO_OK;
    if (err || ko_handshake_is_over(handshake))
        forget(handshake);
    return err;
}

bool ko_handshake_is_unanswered(const struct ko_handshake *handshake)
{
    return !handshake->is_caller && handshake->at == CHALLENGE_END;
}

bool ko_handshake_is_over(const struct ko_handshake *handshake)
{
    return handshake->at == PROOF_END && !handshake->has_failed;
}
