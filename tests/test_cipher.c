/* SPDX-License-Identifier: MIT
 *
 * Encrypted connections: what is written comes out whatever the sizes and however the socket cuts
 * it, and nothing that was changed, left out, repeated or moved comes out at all.
 */
#include "cipher.h"

#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Two ends; what the left one writes is in the right one's socket. */
struct ends {
    struct ko_cipher *left, *right;
    int fds[2];
};

static struct ko_cipher *make(unsigned char says, unsigned char hears)
{
    static const struct ko_session_keys zeros;
    struct ko_session_keys keys;
    struct ko_cipher *cipher;

    memset(keys.says, says, sizeof keys.says);
    memset(keys.hears, hears, sizeof keys.hears);
    assert_int_equal(ko_cipher_make(&keys, &cipher), KOLO_OK);
    assert_memory_equal(&keys, &zeros, sizeof keys);
    return cipher;
}

static struct ends open_ends(void)
{
    struct ends ends = {.left = make(1, 2), .right = make(2, 1)};
    int small = 1; /* as small as the kernel makes it: writes are cut in the middle */

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.fds), 0);
    assert_int_equal(setsockopt(ends.fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    return ends;
}

static void close_ends(struct ends *ends)
{
    ko_cipher_free(ends->left);
    ko_cipher_free(ends->right);
    close(ends->fds[0]);
    close(ends->fds[1]);
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 7 + i / 251);
}

/* Writes nbytes in pieces of two, reads them in parts of at most `part`. */
static void move(struct ends *ends, size_t nbytes, size_t part)
{
    unsigned char *out = malloc(nbytes + 1), *in = malloc(nbytes + 1);
    size_t sent = 0, got = 0;

    for (size_t i = 0; i < nbytes; i++)
        out[i] = byte_at(i);
    while (got < nbytes) {
        const size_t half = (nbytes - sent) / 2;
        const struct iovec pieces[2] = {{out + sent, half},
                                        {out + sent + half, nbytes - sent - half}};
        ssize_t n = sent < nbytes ? ko_cipher_send(ends->left, ends->fds[0], pieces, 2) : 0;

        assert_true(n >= 0 || errno == EAGAIN);
        sent += n > 0 ? (size_t)n : 0;
        n = ko_cipher_recv(ends->right, ends->fds[1], in + got,
                           nbytes - got < part ? nbytes - got : part);
        assert_true(n > 0 || errno == EAGAIN);
        got += n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(sent, nbytes);
    assert_memory_equal(in, out, nbytes);
    assert_int_equal(ko_cipher_recv(ends->right, ends->fds[1], in, 1), -1);
    assert_int_equal(errno, EAGAIN);
    free(out);
    free(in);
}

static void any_size(void **state)
{
    static const size_t sizes[] = {
        1, 2, 31, 4096, KO_RECORD_BYTES - 1, KO_RECORD_BYTES, KO_RECORD_BYTES + 1, 300007};
    static const size_t parts[] = {1, 7, 4096, 1 << 20};
    struct ends ends = open_ends();

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = sizes[i] > 4096 ? 1 : 0; j < sizeof parts / sizeof *parts; j++)
            move(&ends, sizes[i], parts[j]);
    close_ends(&ends);
}

static void the_end(void **state)
{
    struct ends ends = open_ends();
    unsigned char bytes[8];

    (void)state;
    move(&ends, 100, 100);
    assert_int_equal(shutdown(ends.fds[0], SHUT_WR), 0);
    assert_int_equal(ko_cipher_recv(ends.right, ends.fds[1], bytes, sizeof bytes), 0);
    assert_int_equal(shutdown(ends.fds[1], SHUT_RDWR), 0);
    assert_int_equal(ko_cipher_send(ends.left, ends.fds[0], &(struct iovec){bytes, 8}, 1), -1);
    assert_int_equal(errno, EPIPE);
    close_ends(&ends);
    ko_cipher_free(NULL);
}

/* ---- in the middle ------------------------------------------------------------------------ */

enum { TEXT_BYTES = 40, RECORD = TEXT_BYTES + KO_RECORD_EXTRA };

/* The records of N texts, taken off the wire. */
enum { N = 3 };
static void record(struct ends *ends, unsigned char records[N][RECORD])
{
    unsigned char text[TEXT_BYTES];

    for (int i = 0; i < N; i++) {
        memset(text, 'a' + i, sizeof text);
        assert_int_equal(
            ko_cipher_send(ends->left, ends->fds[0], &(struct iovec){text, sizeof text}, 1),
            TEXT_BYTES);
        assert_int_equal(recv(ends->fds[1], records[i], RECORD, 0), RECORD);
    }
}

static void put(struct ends *ends, const unsigned char *bytes, size_t nbytes)
{
    assert_int_equal(send(ends->fds[0], bytes, nbytes, 0), (ssize_t)nbytes);
}

static void expect_text(struct ends *ends, int letter)
{
    unsigned char text[TEXT_BYTES] = {0};

    assert_int_equal(ko_cipher_recv(ends->right, ends->fds[1], text, sizeof text), TEXT_BYTES);
    for (size_t i = 0; i < sizeof text; i++)
        assert_int_equal(text[i], letter);
}

/* In whole and in part: not a byte is given out, now or later. */
static void expect_refusal(struct ends *ends)
{
    unsigned char text[TEXT_BYTES] = {0};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(ko_cipher_recv(ends->right, ends->fds[1], text, i ? 5 : sizeof text), -1);
        assert_int_equal(errno, EBADMSG);
        for (size_t j = 0; j < sizeof text; j++)
            assert_int_equal(text[j], 0);
    }
}

static void nothing_shows(void **state)
{
    struct ends ends = open_ends();
    unsigned char records[N][RECORD];

    (void)state;
    record(&ends, records);
    for (int i = 0; i < N; i++)
        for (int at = 4; at + 4 < RECORD; at++)
            assert_memory_not_equal(records[i] + at, i == 0 ? "aaaa" : i == 1 ? "bbbb" : "cccc", 4);
    for (int i = 0; i < N; i++) {
        put(&ends, records[i], RECORD);
        expect_text(&ends, 'a' + i);
    }
    close_ends(&ends);
}

static void any_bit(void **state)
{
    (void)state;
    for (int bit = 0; bit < 8 * RECORD; bit++) {
        struct ends ends = open_ends();
        unsigned char records[N][RECORD];

        record(&ends, records);
        put(&ends, records[0], RECORD);
        expect_text(&ends, 'a');
        records[1][bit / 8] ^= (unsigned char)(1 << bit % 8);
        put(&ends, records[1], RECORD);
        if (bit < 32) { /* of the length: more may be waited for */
            unsigned char text[TEXT_BYTES];

            assert_int_equal(ko_cipher_recv(ends.right, ends.fds[1], text, sizeof text), -1);
            assert_true(errno == EBADMSG || errno == EAGAIN);
        } else {
            expect_refusal(&ends);
        }
        close_ends(&ends);
    }
}

/* Which of the records come, in which order; the letter of the last that is good. */
static void other_orders(void **state)
{
    static const int orders[][3] = {{0, 0, -1}, {1, -1, -1}, {0, 2, -1}, {0, 1, 0}, {2, -1, -1}};
    static const int good[] = {1, 0, 1, 2, 0};

    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct ends ends = open_ends();
        unsigned char records[N][RECORD];

        record(&ends, records);
        for (int j = 0; j < 3 && orders[i][j] >= 0; j++) {
            put(&ends, records[orders[i][j]], RECORD);
            if (j < good[i])
                expect_text(&ends, 'a' + orders[i][j]);
            else
                expect_refusal(&ends);
        }
        close_ends(&ends);
    }
}

/* Back to the one who said it: each direction has a key. */
static void sent_back(void **state)
{
    struct ends ends = open_ends();
    unsigned char records[N][RECORD], text[TEXT_BYTES];

    (void)state;
    record(&ends, records);
    assert_int_equal(send(ends.fds[1], records[0], RECORD, 0), RECORD);
    assert_int_equal(ko_cipher_recv(ends.left, ends.fds[0], text, sizeof text), -1);
    assert_int_equal(errno, EBADMSG);
    close_ends(&ends);
}

static void wrong_lengths(void **state)
{
    static const unsigned char heads[][4] = {{0, 0, 0, 0}, {1, 0, 1, 0}, {0xff, 0xff, 0xff, 0xff}};

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct ends ends = open_ends();

        put(&ends, heads[i], sizeof heads[i]);
        expect_refusal(&ends);
        close_ends(&ends);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size),      cmocka_unit_test(the_end),
        cmocka_unit_test(nothing_shows), cmocka_unit_test(any_bit),
        cmocka_unit_test(sent_back),     cmocka_unit_test(other_orders),
        cmocka_unit_test(wrong_lengths)};

    return cmocka_run_group_tests_name("cipher", tests, NULL, NULL);
}
