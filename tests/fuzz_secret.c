/* SPDX-License-Identifier: MIT
 *
 * What somebody in the middle may do to a handshake, without sockets. The first two bytes of the
 * input say who the ends are and how their bytes are cut; the rest is laid over what they say, by
 * exclusive or, and cuts it short or goes on behind it. Whatever it is, an end is convinced only if
 * all that it has heard is what the other one said. Build it with -fsanitize=fuzzer, or call it as
 * tests/test_secret.c does.
 */
#include "secret.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

struct middle {
    const uint8_t *mask;
    size_t nbytes; /* of the mask; zeros follow, unless is_short: then nothing does */
    bool is_short;
    bool has_changed;
    size_t piece;
};

/* Carries what one end has to say to the other. False if nothing could be, or it was refused. */
static bool carry(struct middle *middle, struct ko_handshake *from, struct ko_handshake *to)
{
    unsigned char bytes[KO_HANDSHAKE_BYTES];
    size_t n, wants = ko_handshake_wants(to);
    const unsigned char *says = ko_handshake_says(from, &n);

    n = n < middle->piece ? n : middle->piece;
    if (middle->is_short)
        n = n < middle->nbytes ? n : middle->nbytes;
    n = n < wants ? n : wants;
    for (size_t i = 0; i < n; i++) {
        uint8_t mask = i < middle->nbytes ? middle->mask[i] : 0;

        bytes[i] = says[i] ^ mask;
        middle->has_changed |= mask != 0;
    }
    middle->mask += n < middle->nbytes ? n : middle->nbytes;
    middle->nbytes -= n < middle->nbytes ? n : middle->nbytes;
    ko_handshake_said(from, n);
    return n && !ko_handshake_hears(to, bytes, n);
}

/* Bits of the first byte: how the ends differ. */
enum { IS_SHORT = 1, OTHER_PURPOSE = 2, OTHER_JOB = 4, OTHER_RANK = 8, OTHER_TOKEN = 16 };

/* By the sum of all bytes: the arithmetic of sealing is so slow that few inputs are to have it,
 * and what comes of them by a change of a byte is not to have it again. */
enum { CALLER_SEALS = 253, ACCEPTOR_SEALS = 254, BOTH_SEAL = 255 };

static uint8_t sum_of(const uint8_t *data, size_t nbytes)
{
    uint8_t sum = 0;

    for (size_t i = 0; i < nbytes; i++)
        sum = (uint8_t)(sum + data[i]);
    return sum;
}

/* The two ends that the first byte and the sum describe. True if they belong together. */
static bool meet(uint8_t first, uint8_t sum, struct ko_handshake *caller,
                 struct ko_handshake *acceptor)
{
    static const char other_token[] = "a token that is long enough";
    static const struct ko_secret secret = {"what is kept of the job's token"};
    struct ko_claim calls = {KO_PURPOSE_WIRE, 7, 1, 2, sum == CALLER_SEALS || sum == BOTH_SEAL};
    struct ko_claim accepts = {KO_PURPOSE_WIRE, 7, KO_ANY_RANK, 2, sum >= ACCEPTOR_SEALS};
    struct ko_secret other = secret;

    if (first & OTHER_PURPOSE)
        accepts.purpose = KO_PURPOSE_STORE;
    accepts.job += (first & OTHER_JOB) != 0;
    accepts.to += (first & OTHER_RANK) != 0;
    if (first & OTHER_TOKEN && ko_secret_make(other_token, sizeof other_token, &other))
        abort();
    if (ko_handshake_begin(caller, &secret, &calls, true) ||
        ko_handshake_begin(acceptor, &other, &accepts, false))
        abort();
    return !(first & (OTHER_PURPOSE | OTHER_JOB | OTHER_RANK | OTHER_TOKEN)) &&
           calls.is_sealed == accepts.is_sealed;
}

/* Ends that are convinced have the same keys, if any. */
static void check_keys(const struct ko_handshake *caller, const struct ko_handshake *acceptor)
{
    if (memcmp(caller->keys.says, acceptor->keys.hears, KO_SECRET_BYTES) != 0 ||
        memcmp(caller->keys.hears, acceptor->keys.says, KO_SECRET_BYTES) != 0 ||
        acceptor->claim.from != caller->claim.from)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    struct ko_handshake caller, acceptor;
    struct middle middle;
    bool is_pair;

    if (nbytes < 2)
        return 0;
    middle = (struct middle){.mask = data + 2,
                             .nbytes = nbytes - 2,
                             .is_short = data[0] & IS_SHORT,
                             .piece = data[1] ? data[1] : KO_HANDSHAKE_BYTES};
    is_pair = meet(data[0], sum_of(data, nbytes), &caller, &acceptor);
    while (carry(&middle, &caller, &acceptor) || carry(&middle, &acceptor, &caller))
        continue;
    if (ko_handshake_is_over(&acceptor) && (middle.has_changed || !is_pair))
        abort();
    if (!middle.has_changed && is_pair && !middle.is_short && !ko_handshake_is_over(&acceptor))
        abort();
    if (ko_handshake_is_over(&acceptor))
        check_keys(&caller, &acceptor);
    return 0;
}
