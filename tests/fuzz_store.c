/* SPDX-License-Identifier: MIT
 *
 * What a stranger may send to a store server, without sockets. The first byte of the input says how
 * the rest is cut into pieces. Other sessions on the same table wait for keys, so that wakes
 * happen too, and one watches them. Build it with -fsanitize=fuzzer, or call it as
 * tests/test_store_fuzz.c does.
 */
#include "store_session.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* Small enough that both caps are met. */
enum { TABLE_CAP = 1 << 20, BUFFERS_CAP = 4 << 20 };

/* Gives the session n bytes. False if it is to be cut off. */
static int feed(struct ko_session *session, const uint8_t *data, size_t n)
{
    size_t wants;
    size_t part;

    while (n > 0) {
        wants = ko_session_wants(session);
        part = n < wants ? n : wants;
        if (part == 0) { /* it would not be read from: see what it has to say, then go on */
            if (ko_buffer_fill(&session->out) < KO_SESSION_OUTPUT_BOUND)
                return 0;
            ko_buffer_consume(&session->out, ko_buffer_fill(&session->out));
            if (ko_session_run(session))
                return 0;
            continue;
        }
        if (ko_buffer_reserve(&session->in, wants))
            return 0;
        memcpy(session->in.data + session->in.tail, data, part);
        session->in.tail += part;
        data += part;
        n -= part;
        if (ko_session_run(session))
            return 0;
    }
    return 1;
}

/* One session waits for "/k", one for two keys; the third watches them, as PyTorch 1.13 does. */
static void begin_waits(struct ko_session *one, struct ko_session *two, struct ko_session *three)
{
    static const uint8_t wait_one[] = "\0\xce\xf7\x85\x3c\x03\2\0\0\0\0\0\0\0/k";
    static const uint8_t wait_two[] = "\0\xce\xf7\x85\x3c\x06\2\0\0\0\0\0\0\0"
                                      "\2\0\0\0\0\0\0\0/k\2\0\0\0\0\0\0\0/n";
    static const uint8_t watch[] = "\7\2\0\0\0\0\0\0\0/k\7\2\0\0\0\0\0\0\0/n";

    if (!feed(one, wait_one, sizeof wait_one - 1) || !feed(two, wait_two, sizeof wait_two - 1) ||
        !feed(three, watch, sizeof watch - 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    struct ko_service service = {.budget.cap = BUFFERS_CAP};
    struct ko_session sessions[4];
    size_t piece;
    size_t n;

    if (nbytes == 0 || ko_table_open(TABLE_CAP, &service.table))
        return 0;
    for (int i = 0; i < 4; i++)
        ko_session_open(&sessions[i], &service, NULL);
    begin_waits(&sessions[1], &sessions[2], &sessions[3]);
    piece = data[0] ? data[0] : nbytes;
    for (size_t at = 1; at < nbytes; at += n) {
        n = nbytes - at < piece ? nbytes - at : piece;
        if (!feed(&sessions[0], data + at, n))
            break;
    }
    for (int i = 1; i < 4; i++)
        if (ko_session_run(&sessions[i]) && !sessions[i].is_swamped)
            abort();
    for (int i = 0; i < 4; i++)
        ko_session_close(&sessions[i]);
    if (service.budget.used != 0)
        abort();
    ko_table_free(service.table);
    return 0;
}
