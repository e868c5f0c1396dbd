/* SPDX-License-Identifier: MIT
 *
 * secret.h: how the two ends of a connection show each other that they know the job's token, before
 * a byte of anything else is looked at. Three messages of fixed size:
 *
 *     caller ── hello: purpose, job, from, to, a nonce ──▶ acceptor
 *            ◀── challenge: a nonce, a code over all so far ──
 *            ── proof: a code over all so far ──▶            both are proven
 *
 * Nobody without the token can make the codes (HMAC-SHA-256). There is a key for each purpose and
 * end, and both nonces are new, so that what was said in one connection is good in no other: not
 * repeated, not sent back to where it came from, not between two other ranks. No sockets here, and
 * nothing is allocated; secret_gate.h moves the bytes. One thread at a time.
 */
#ifndef KO_SECRET_H
#define KO_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a token: shorter ones can be guessed. */
enum { KO_TOKEN_LEAST = 16, KO_TOKEN_MOST = 4096 };

enum { KO_SECRET_BYTES = 32 };
enum { KO_HANDSHAKE_HELLO = 64, KO_HANDSHAKE_CHALLENGE = 72, KO_HANDSHAKE_PROOF = 32 };
enum { KO_HANDSHAKE_BYTES = KO_HANDSHAKE_HELLO + KO_HANDSHAKE_CHALLENGE + KO_HANDSHAKE_PROOF };

/* What an acceptor says before it closes a connection that it refuses, so that a caller without a
 * token, or with one where none is known, need not try for long. */
enum { KO_REFUSAL_BYTES = 8 };
extern const unsigned char ko_refusal[KO_REFUSAL_BYTES];

/* What is kept of a token. */
struct ko_secret {
    unsigned char key[KO_SECRET_BYTES];
};

/* KOLO_E_INVALID unless the token has KO_TOKEN_LEAST to _MOST bytes. */
int ko_secret_make(const void *token, size_t nbytes, struct ko_secret *secret);

/* Overwrites it. */
void ko_secret_forget(struct ko_secret *secret);

enum ko_purpose { KO_PURPOSE_STORE = 1, KO_PURPOSE_WIRE = 2 };

/* What a connection is for; both ends must say the same. An acceptor cannot know who calls: it says
 * KO_ANY_RANK, and finds in `from` who did. */
struct ko_claim {
    enum ko_purpose purpose;
    uint64_t job;     /* wires: the acceptor's device, of which there is one in all jobs */
    int32_t from, to; /* ranks in the world */
    bool is_sealed;   /* what follows is to be encrypted: session keys are made */
};

#define KO_ANY_RANK (-1)

/* What all connections of a store are for: a store knows no ranks, and its token is the job's. */
extern const struct ko_claim ko_claim_store;

/* What the two ends of one connection have, and nobody else, also none who learns the token later:
 * one for what this end says, one for what it hears. */
struct ko_session_keys {
    unsigned char says[KO_SECRET_BYTES], hears[KO_SECRET_BYTES];
};

struct ko_handshake {
    struct ko_secret secret;                  /* forgotten at the end */
    unsigned char ephemeral[KO_SECRET_BYTES]; /* of X25519, for the keys; forgotten too */
    struct ko_session_keys keys;              /* once it is over, if is_sealed */
    struct ko_claim claim;
    bool is_caller;
    bool has_failed;
    size_t at;                               /* bytes that have been said, by both ends */
    unsigned char bytes[KO_HANDSHAKE_BYTES]; /* the three messages, one behind the other */
};

int ko_handshake_begin(struct ko_handshake *handshake, const struct ko_secret *secret,
                       const struct ko_claim *claim, bool is_caller);

/* What this end has to say now; *nbytes is 0 when it is not its turn. */
const unsigned char *ko_handshake_says(const struct ko_handshake *handshake, size_t *nbytes);
/* So many bytes of it have left. */
void ko_handshake_said(struct ko_handshake *handshake, size_t nbytes);

/* Bytes that are to be read next, and not one more; 0 when it is not the other end's turn. */
size_t ko_handshake_wants(const struct ko_handshake *handshake);
/* At most so many bytes of the other end's. KOLO_E_PROTOCOL at the first that is not as it should
 * be: then the connection is to be closed. */
int ko_handshake_hears(struct ko_handshake *handshake, const void *bytes, size_t nbytes);

/* True of an acceptor's that waits for the caller's proof: one with another token says none. */
bool ko_handshake_is_unanswered(const struct ko_handshake *handshake);

/* True once this end has said and heard all: the other end is proven. */
bool ko_handshake_is_over(const struct ko_handshake *handshake);

/* The rank that a caller's hello, all of which has come, says is his; nobody has proven it yet. */
int32_t ko_handshake_caller(const struct ko_handshake *handshake);

/* True if bytes, the first nbytes of a connection, could be those of a caller's hello. */
bool ko_handshake_is_hello(const void *bytes, size_t nbytes);

#endif
