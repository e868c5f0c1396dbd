/* SPDX-License-Identifier: MIT
 *
 * Slots are counted on and on, number k is slot k % nslots, and they are freed in the order in
 * which they were opened: sending, when the link has done with them; receiving, when they have been
 * copied. A slot of a receive takes slices as long as they follow each other and fit.
 */
#include "gpu_relay.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

/* For the stream, which may wait for a message behind this one; and for copies, which are on their
 * way, but perhaps behind others' work. */
enum { PATIENCE_NS = 2000000, PATIENCE_OF_COPIES_NS = 500000000, ALIGNMENT = 64 };

static struct ko_relay_slot *slot(struct ko_gpu_relay *relay, size_t k)
{
    return &relay->slots[k % relay->nslots];
}

static unsigned char *memory(const struct ko_gpu_relay *relay, size_t k)
{
    return relay->block->memory + k % relay->nslots * relay->stride;
}

int ko_gpu_relay_open(struct ko_gpu *gpu, const struct ko_gpu_mark *mark, void *at, size_t nbytes,
                      size_t slot_bytes, struct ko_gpu_relay **relay_out)
{
    struct ko_gpu_relay *relay = ko_alloc(sizeof *relay, "a message of a GPU's");
    const size_t n = nbytes / slot_bytes + (nbytes % slot_bytes != 0);

    if (!relay)
        return KOLO_E_NOMEM;
    relay->gpu = gpu;
    relay->mark = mark;
    relay->at = at;
    relay->nbytes = nbytes;
    relay->slot_bytes = slot_bytes;
    relay->stride = (slot_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    relay->nslots = n > KO_RELAY_SLOTS ? KO_RELAY_SLOTS : n;
    *relay_out = relay;
    return KOLO_OK;
}

/* Where adapters, or other GPUs, bring all of a message it has none. */
static int borrow_block(struct ko_gpu_relay *relay)
{
    return relay->block ? KOLO_OK
                        : ko_gpu_borrow(relay->gpu, relay->nslots * relay->stride, &relay->block);
}

/* KO_AGAIN until the slot has been copied. */
static int look_at_copy(const struct ko_gpu_relay *relay, struct ko_relay_slot *of)
{
    int err = of->copied ? ko_gpu_look_at_mark(relay->gpu, of->copied) : KOLO_OK;

    if (err)
        return err;
    ko_gpu_let_go(relay->gpu, of->copied);
    of->copied = NULL;
    return KOLO_OK;
}

static void note_wait(struct ko_gpu_relay *relay, bool waits)
{
    if (!waits)
        relay->waits_ns = 0;
    else if (!relay->waits_ns)
        relay->waits_ns = ko_now_ns();
}

/* ---- sending ------------------------------------------------------------------------------- */

int ko_gpu_relay_fill(struct ko_gpu_relay *relay)
{
    int err = borrow_block(relay);

    while (!err && relay->copied < relay->nbytes && relay->opened - relay->freed < relay->nslots) {
        struct ko_relay_slot *next = slot(relay, relay->opened);
        const size_t left = relay->nbytes - relay->copied;

        next->from = relay->copied;
        next->nbytes = left < relay->slot_bytes ? left : relay->slot_bytes;
        err = ko_gpu_copy(relay->gpu, memory(relay, relay->opened), relay->at + next->from,
                          next->nbytes);
        if (!err)
            err = ko_gpu_mark_own(relay->gpu, &next->copied);
        relay->copied += next->nbytes;
        relay->opened++;
    }
    return err;
}

int ko_gpu_relay_read(struct ko_gpu_relay *relay, size_t moved, uint64_t flushed,
                      const unsigned char **from, size_t *nbytes)
{
    struct ko_relay_slot *read;
    int err;

    while (relay->read_from < relay->opened &&
           (read = slot(relay, relay->read_from), read->from + read->nbytes <= moved))
        relay->read_from++;
    while (relay->freed < relay->read_from && slot(relay, relay->freed)->flushed_at <= flushed)
        relay->freed++;
    err = ko_gpu_relay_fill(relay);
    if (err)
        return err;
    if (relay->read_from == relay->opened) { /* the link has all slots, and tells when it is done */
        note_wait(relay, false);
        return KO_AGAIN;
    }
    read = slot(relay, relay->read_from);
    err = look_at_copy(relay, read);
    note_wait(relay, err == KO_AGAIN);
    if (err)
        return err;
    *from = memory(relay, relay->read_from) + (moved - read->from);
    *nbytes = read->from + read->nbytes - moved;
    return KOLO_OK;
}

void ko_gpu_relay_given(struct ko_gpu_relay *relay, uint64_t flushed_at)
{
    slot(relay, relay->read_from)->flushed_at = flushed_at;
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* Of slots that take no more, once the stream has come to the mark. */
static int begin_copies(struct ko_gpu_relay *relay)
{
    const size_t end = relay->opened - relay->is_open;
    int err = KOLO_OK;

    if (!relay->is_at_mark && relay->begun < end) {
        err = ko_gpu_look_at_mark(relay->gpu, relay->mark);
        relay->is_at_mark = !err;
    }
    while (!err && relay->begun < end) {
        struct ko_relay_slot *next = slot(relay, relay->begun);

        err = ko_gpu_copy(relay->gpu, relay->at + next->from, memory(relay, relay->begun),
                          next->nbytes);
        if (!err)
            err = ko_gpu_mark_own(relay->gpu, &next->copied);
        relay->begun++;
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

static int free_slots(struct ko_gpu_relay *relay)
{
    int err = KOLO_OK;

    while (!err && relay->freed < relay->begun) {
        err = look_at_copy(relay, slot(relay, relay->freed));
        relay->freed += !err;
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* Whether the slice goes into the open slot. */
static bool goes_on(struct ko_gpu_relay *relay, size_t arrived, size_t nbytes)
{
    const struct ko_relay_slot *last;

    if (!relay->is_open)
        return false;
    last = slot(relay, relay->opened - 1);
    return last->from + last->nbytes == arrived && last->nbytes + nbytes <= relay->slot_bytes;
}

static int open_slot(struct ko_gpu_relay *relay, size_t arrived)
{
    int err = borrow_block(relay);

    if (err)
        return err;
    *slot(relay, relay->opened) = (struct ko_relay_slot){.from = arrived};
    relay->place = memory(relay, relay->opened);
    relay->opened++;
    relay->is_open = true;
    note_wait(relay, false);
    return KOLO_OK;
}

/* KO_AGAIN as long as it is worth the wait. */
static int wait_for_slot(struct ko_gpu_relay *relay)
{
    const int64_t patience_ns = relay->is_at_mark ? PATIENCE_OF_COPIES_NS : PATIENCE_NS;

    note_wait(relay, true);
    return ko_now_ns() - relay->waits_ns < patience_ns ? KO_AGAIN : KOLO_OK;
}

static int make_room(struct ko_gpu_relay *relay, size_t arrived, size_t total)
{
    relay->behind.data = ko_alloc_unset(total - arrived, "a message for a GPU that is not ready");
    relay->behind.from = arrived;
    relay->place = relay->behind.data;
    note_wait(relay, false);
    return relay->place ? KOLO_OK : KOLO_E_NOMEM;
}

int ko_gpu_relay_find_place(struct ko_gpu_relay *relay, size_t arrived, size_t nbytes, size_t total)
{
    int err;

    if (relay->behind.data) {
        relay->place = relay->behind.data + (arrived - relay->behind.from);
        return KOLO_OK;
    }
    if (goes_on(relay, arrived, nbytes)) {
        relay->place = memory(relay, relay->opened - 1) + slot(relay, relay->opened - 1)->nbytes;
        return KOLO_OK;
    }
    relay->is_open = false;
    err = begin_copies(relay);
    if (!err)
        err = free_slots(relay);
    if (err)
        return err;
    if (nbytes <= relay->slot_bytes && relay->opened - relay->freed < relay->nslots)
        return open_slot(relay, arrived);
    err = nbytes <= relay->slot_bytes ? wait_for_slot(relay) : KOLO_OK;
    return err ? err : make_room(relay, arrived, total);
}

int ko_gpu_relay_come(struct ko_gpu_relay *relay, size_t nbytes, bool is_last)
{
    struct ko_relay_slot *last;

    if (relay->behind.data) {
        relay->behind.nbytes += nbytes;
        return KOLO_OK;
    }
    last = slot(relay, relay->opened - 1);
    last->nbytes += nbytes;
    if (!is_last && last->nbytes + nbytes <= relay->slot_bytes)
        return KOLO_OK; /* the next one will fit, too */
    relay->is_open = false;
    return begin_copies(relay);
}

int ko_gpu_relay_go_on(struct ko_gpu_relay *relay)
{
    int err = begin_copies(relay);

    if (!err)
        err = free_slots(relay);
    if (!err && relay->freed < relay->opened - relay->is_open)
        return KO_AGAIN;
    return err ? err : ko_gpu_look_at_mark(relay->gpu, relay->mark);
}

void ko_gpu_relay_keep(struct ko_gpu_relay *relay, unsigned char *data, size_t nbytes)
{
    relay->before = (struct ko_relay_kept){.data = data, .nbytes = nbytes};
}

/* ---- end ----------------------------------------------------------------------------------- */

/* The slot that is to be opened next is free. */
static int await_slot(struct ko_gpu_relay *relay, const ko_deadline *deadline)
{
    struct ko_relay_slot *oldest;
    int err;

    if (relay->opened - relay->freed < relay->nslots)
        return KOLO_OK;
    oldest = slot(relay, relay->freed);
    err = ko_gpu_await_mark(relay->gpu, oldest->copied, deadline);
    if (err)
        return err;
    ko_gpu_let_go(relay->gpu, oldest->copied);
    oldest->copied = NULL;
    relay->freed++;
    return KOLO_OK;
}

static int copy_kept(struct ko_gpu_relay *relay, const struct ko_relay_kept *kept,
                     const ko_deadline *deadline)
{
    int err = KOLO_OK;

    for (size_t i = 0; i < kept->nbytes && !err; i += relay->slot_bytes) {
        const size_t left = kept->nbytes - i;
        const size_t nbytes = left < relay->slot_bytes ? left : relay->slot_bytes;

        err = await_slot(relay, deadline);
        if (!err)
            err = open_slot(relay, kept->from + i);
        if (err)
            break;
        memcpy(relay->place, kept->data + i, nbytes);
        err = ko_gpu_relay_come(relay, nbytes, true);
    }
    return err;
}

int ko_gpu_relay_finish(struct ko_gpu_relay *relay, const ko_deadline *deadline)
{
    const struct ko_relay_kept behind = relay->behind;
    int err;

    relay->behind.data = NULL;
    relay->is_open = false;
    relay->is_at_mark = true;
    err = begin_copies(relay);
    if (!err)
        err = copy_kept(relay, &relay->before, deadline);
    if (!err)
        err = copy_kept(relay, &behind, deadline);
    free(behind.data);
    return err;
}

void ko_gpu_relay_close(struct ko_gpu_relay *relay, bool is_left)
{
    if (!relay)
        return;
    for (size_t i = 0; i < relay->nslots; i++)
        ko_gpu_let_go(relay->gpu, relay->slots[i].copied);
    ko_gpu_give_back(relay->gpu, relay->block, is_left);
    free(relay->before.data);
    free(relay->behind.data);
    free(relay);
}
