/* SPDX-License-Identifier: MIT
 *
 * A record's number is its nonce, its length is covered by its code. A record that has been made is
 * sent to its end before another is: what it holds counts as sent only then, so that nobody has to
 * remember pieces that have left only half.
 */
#include "cipher.h"

#include "status.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

enum {
    HEAD_BYTES = 4,
    CODE_BYTES = crypto_aead_chacha20poly1305_ietf_ABYTES,
    NONCE_BYTES = crypto_aead_chacha20poly1305_ietf_NPUBBYTES
};

_Static_assert(KO_RECORD_EXTRA == HEAD_BYTES + CODE_BYTES, "what a record has beside its bytes");
_Static_assert(KO_SECRET_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES, "keys fit");

struct ko_cipher {
    struct ko_session_keys keys;
    uint64_t said, heard;       /* records */
    size_t out_at, out_end;     /* of the record under way */
    size_t out_plain;           /* bytes that it holds */
    size_t in_have;             /* bytes of the next record that have come */
    size_t plain_at, plain_end; /* of the last one, opened where it lies, not given out yet */
    bool is_broken;
    unsigned char out[KO_RECORD_BYTES + KO_RECORD_EXTRA];
    unsigned char in[KO_RECORD_BYTES + KO_RECORD_EXTRA];
};

int ko_cipher_make(struct ko_session_keys *keys, struct ko_cipher **cipher_out)
{
    struct ko_cipher *cipher = ko_alloc_unset(sizeof *cipher, "an encrypted connection");

    if (!cipher)
        return KOLO_E_NOMEM;
    if (sodium_init() < 0) { /* finds out what this processor is best at */
        kolo_free(cipher);
        return ko_fail(KOLO_E_UNSUPPORTED, "libsodium cannot be used");
    }
    memset(cipher, 0, offsetof(struct ko_cipher, out));
    cipher->keys = *keys;
    sodium_memzero(keys, sizeof *keys);
    *cipher_out = cipher;
    return KOLO_OK;
}

void ko_cipher_free(struct ko_cipher *cipher)
{
    if (cipher)
        sodium_memzero(cipher, sizeof *cipher);
    kolo_free(cipher);
}

static void make_nonce(uint64_t number, unsigned char nonce[NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    for (int i = 0; i < 8; i++)
        nonce[i] = (unsigned char)(number >> 8 * i);
}

/* ---- out --------------------------------------------------------------------------------- */

/* Copies at most a record's bytes of the pieces behind one another. */
static size_t gather(unsigned char *to, const struct iovec *pieces, int npieces)
{
    size_t have = 0;

    for (int i = 0; i < npieces && have < KO_RECORD_BYTES; i++) {
        size_t room = KO_RECORD_BYTES - have;
        size_t n = pieces[i].iov_len < room ? pieces[i].iov_len : room;

        memcpy(to + have, pieces[i].iov_base, n);
        have += n;
    }
    return have;
}

static void seal(struct ko_cipher *cipher, const struct iovec *pieces, int npieces)
{
    unsigned char nonce[NONCE_BYTES];
    unsigned char *body = cipher->out + HEAD_BYTES;
    const size_t nbytes = gather(body, pieces, npieces);

    for (int i = 0; i < HEAD_BYTES; i++)
        cipher->out[i] = (unsigned char)(nbytes >> 8 * i);
    make_nonce(cipher->said++, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(body, NULL, body, nbytes, cipher->out, HEAD_BYTES,
                                              NULL, nonce, cipher->keys.says);
    cipher->out_at = 0;
    cipher->out_end = nbytes + KO_RECORD_EXTRA;
    cipher->out_plain = nbytes;
}

ssize_t ko_cipher_send(struct ko_cipher *cipher, int fd, const struct iovec *pieces, int npieces)
{
    ssize_t n;

    if (cipher->out_at == cipher->out_end)
        seal(cipher, pieces, npieces);
    n = send(fd, cipher->out + cipher->out_at, cipher->out_end - cipher->out_at,
             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return n;
    cipher->out_at += (size_t)n;
    if (cipher->out_at == cipher->out_end)
        return (ssize_t)cipher->out_plain;
    errno = EAGAIN;
    return -1;
}

/* ---- in ---------------------------------------------------------------------------------- */

/* Nothing more can be believed of what comes. */
static ssize_t refuse(struct ko_cipher *cipher)
{
    cipher->is_broken = true;
    errno = EBADMSG;
    return -1;
}

static size_t record_bytes(const struct ko_cipher *cipher)
{
    size_t nbytes = 0;

    for (int i = 0; i < HEAD_BYTES; i++)
        nbytes |= (size_t)cipher->in[i] << 8 * i;
    return nbytes;
}

/* Reads on in the record that comes: 1 once it is there, else as recv. */
static ssize_t read_record(struct ko_cipher *cipher, int fd)
{
    size_t end = HEAD_BYTES;

    while (cipher->in_have < end || end == HEAD_BYTES) {
        ssize_t n;

        if (cipher->in_have >= HEAD_BYTES) {
            end = record_bytes(cipher) + KO_RECORD_EXTRA;
            if (end == KO_RECORD_EXTRA || end > sizeof cipher->in)
                return refuse(cipher);
        }
        n = recv(fd, cipher->in + cipher->in_have, end - cipher->in_have, MSG_DONTWAIT);
        if (n <= 0)
            return n;
        cipher->in_have += (size_t)n;
    }
    return 1;
}

/* Opens the record that is there, into a place for all of it. */
static bool open_record(struct ko_cipher *cipher, unsigned char *to)
{
    unsigned char nonce[NONCE_BYTES];

    make_nonce(cipher->heard++, nonce);
    return !crypto_aead_chacha20poly1305_ietf_decrypt(to, NULL, NULL, cipher->in + HEAD_BYTES,
                                                      cipher->in_have - HEAD_BYTES, cipher->in,
                                                      HEAD_BYTES, nonce, cipher->keys.hears);
}

static size_t give_out(struct ko_cipher *cipher, void *to, size_t nbytes)
{
    size_t left = cipher->plain_end - cipher->plain_at;
    size_t n = nbytes < left ? nbytes : left;

    memcpy(to, cipher->in + HEAD_BYTES + cipher->plain_at, n);
    cipher->plain_at += n;
    return n;
}

ssize_t ko_cipher_recv(struct ko_cipher *cipher, int fd, void *to, size_t nbytes)
{
    size_t come;
    ssize_t n;

    if (cipher->plain_at < cipher->plain_end)
        return (ssize_t)give_out(cipher, to, nbytes);
    if (cipher->is_broken)
        return refuse(cipher);
    n = read_record(cipher, fd);
    if (n <= 0)
        return n;
    come = cipher->in_have - KO_RECORD_EXTRA;
    if (!open_record(cipher, nbytes >= come ? to : cipher->in + HEAD_BYTES))
        return refuse(cipher);
    cipher->in_have = 0;
    if (nbytes >= come)
        return (ssize_t)come;
    cipher->plain_at = 0;
    cipher->plain_end = come;
    return (ssize_t)give_out(cipher, to, nbytes);
}
