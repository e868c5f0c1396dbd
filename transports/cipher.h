/* SPDX-License-Identifier: MIT
 *
 * cipher.h: a connected socket, encrypted: records of at most KO_RECORD_BYTES, each a length, the
 * bytes under ChaCha20 and a code by Poly1305, under a key for each direction that only the two
 * ends of this connection have (secret.h), counted. What was changed, left out, repeated or moved
 * on the way is an error of the reader, errno EBADMSG, before a byte of it is given out. Not
 * blocking, one thread at a time.
 */
#ifndef KO_CIPHER_H
#define KO_CIPHER_H

#include "secret.h"

#include <sys/types.h>
#include <sys/uio.h>

enum { KO_RECORD_BYTES = 64 << 10, KO_RECORD_EXTRA = 4 + 16 };

struct ko_cipher;

/* Takes the keys over and overwrites them. */
int ko_cipher_make(struct ko_session_keys *keys, struct ko_cipher **cipher);

/* Overwrites what it had; NULL allowed. */
void ko_cipher_free(struct ko_cipher *cipher);

/* As sendmsg: the count of what has left as a whole record, or -1 and errno. After EAGAIN the next
 * call's pieces must begin with the same bytes. */
ssize_t ko_cipher_send(struct ko_cipher *cipher, int fd, const struct iovec *pieces, int npieces);

/* As recv. Bytes of a record that did not fit come at the next call, whether or not the socket is
 * readable; nothing is read beyond a record's end. */
ssize_t ko_cipher_recv(struct ko_cipher *cipher, int fd, void *to, size_t nbytes);

#endif
