/* SPDX-License-Identifier: MIT */
#include "letters.h"

#include "mailbox_parts.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void letters_set(const char *transport, bool has_small_slots)
{
    char slice[16], slots[16];

    snprintf(slice, sizeof slice, "%d", LETTERS_SLICE_BYTES);
    snprintf(slots, sizeof slots, "%d", LETTERS_SLOTS);
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    if (has_small_slots) {
        setenv("KOLO_SLICE_BYTES", slice, 1);
        setenv("KOLO_SLOTS", slots, 1);
    } else {
        unsetenv("KOLO_SLICE_BYTES");
        unsetenv("KOLO_SLOTS");
    }
}

void letters_run(int n, ranks_body body)
{
    static const char *const transports[] = {"shm", "rdma", "tcp"};

    for (int i = 0; i < 3; i++) {
        letters_set(transports[i], true);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, body, NULL), 0);
        if (!HAS_TSAN) /* which sees no more there */
            assert_int_equal(
                ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, body, NULL), 0);
    }
}

/* Contents come again after so many bytes: of what is longer only the first are written, or looked
 * at, one by one, which would take most of the time under a sanitizer. */
enum { PERIOD = 1 << 16 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static unsigned char content_at(size_t i, unsigned id)
{
    return (unsigned char)(i * 7 + id * 31 + (i >> 8));
}

unsigned char *letter_make(size_t nbytes, unsigned id)
{
    unsigned char *bytes = malloc(nbytes + 1);

    if (!bytes)
        abort();
    for (size_t i = 0; i < smaller(nbytes, PERIOD); i++)
        bytes[i] = content_at(i, id);
    for (size_t i = PERIOD; i < nbytes; i += PERIOD)
        memcpy(bytes + i, bytes, smaller(nbytes - i, PERIOD));
    return bytes;
}

bool letter_is(const unsigned char *bytes, size_t nbytes, unsigned id)
{
    for (size_t i = 0; i < smaller(nbytes, PERIOD); i++)
        if (bytes[i] != content_at(i, id))
            return false;
    for (size_t i = PERIOD; i < nbytes; i += PERIOD)
        if (memcmp(bytes + i, bytes, smaller(nbytes - i, PERIOD)) != 0)
            return false;
    return true;
}

int letter_post(kolo_group *group, size_t nbytes, unsigned id, int to, int tag)
{
    unsigned char *bytes = letter_make(nbytes, id);
    int err = kolo_send(group, bytes, nbytes, KOLO_UINT8, to, tag);

    free(bytes);
    return err ? ranks_fail("send of %zu bytes to %d, tag %d", nbytes, to, tag) : 0;
}

int letter_take(kolo_group *group, size_t nbytes, unsigned id, int from, int tag)
{
    unsigned char *bytes = malloc(nbytes + 9);
    int failed = 0;

    if (!bytes)
        abort();
    memset(bytes, 0x5a, nbytes + 9);
    if (kolo_recv(group, bytes, nbytes + 9, KOLO_UINT8, from, tag))
        failed = ranks_fail("recv of %zu bytes from %d, tag %d", nbytes, from, tag);
    else if (!letter_is(bytes, nbytes, id))
        failed = ranks_fail("%zu bytes of tag %d from %d came wrong", nbytes, tag, from);
    for (size_t i = 0; i < 9 && !failed; i++)
        if (bytes[nbytes + i] != 0x5a)
            failed = ranks_fail("the rest of the buffer was touched");
    free(bytes);
    return failed;
}

int letter_expect(const kolo_message *message, int from, int tag, size_t count)
{
    if (message->from != from || message->tag != tag || message->count != count)
        return ranks_fail("rank %d, tag %d, %zu elements instead of rank %d, tag %d, %zu",
                          message->from, message->tag, message->count, from, tag, count);
    return 0;
}

size_t letters_held(kolo_group *group)
{
    struct ko_mailbox *mailbox = atomic_load(&group->mailbox);
    size_t nbytes;

    ko_biased_lock_take(&mailbox->lock);
    nbytes = mailbox->desk.held_bytes;
    ko_biased_lock_give(&mailbox->lock);
    return nbytes;
}
