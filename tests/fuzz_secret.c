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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const char token[] = "a token that is long enough";
    struct ko_claim claims[2] = {{KO_PURPOSE_WIRE, 7, 1, 2, false},
                                 {KO_PURPOSE_WIRE, 7, KO_ANY_RANK, 2, false}};
    struct ko_handshake caller, acceptor;
    struct ko_secret secret;
    struct middle middle;
    bool is_pair;

    if (nbytes < 2)
        return 0;
    middle = (struct middle){.mask = data + 2,
                             .nbytes = nbytes - 2,
                             .is_short = data[0] & 1,
                             .piece = data[1] ? data[1] : KO_HANDSHAKE_BYTES};
    claims[1].purpose = data[0] & 2 ? KO_PURPOSE_STORE : KO_PURPOSE_WIRE;
    claims[1].job += data[0] >> 2 & 1;
    claims[1].to += data[0] >> 3 & 1;
    is_pair = !(data[0] & 14);
    if (ko_secret_make(token, sizeof token, &secret) ||
        ko_handshake_begin(&caller, &secret, &claims[0], true) ||
        ko_handshake_begin(&acceptor, &secret, &claims[1], false))
        abort();
    while (carry(&middle, &caller, &acceptor) || carry(&middle, &acceptor, &caller))
        continue;
    if (ko_handshake_is_over(&acceptor) && (middle.has_changed || !is_pair))
        abort();
    if (!middle.has_changed && is_pair && !middle.is_short && !ko_handshake_is_over(&acceptor))
        abort();
    return 0;
}
