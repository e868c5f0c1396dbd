/* SPDX-License-Identifier: MIT
 *
 * The public point-to-point calls: their arguments, and their works; mailbox.c moves the messages.
 */
#include "dtype.h"
#include "group.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int check(const char *name, kolo_group *group, const kolo_p2p *op)
{
    size_t nbytes;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "%s: group is NULL", name);
    if (!ko_dtype_is_valid(op->dtype))
        return ko_fail(KOLO_E_INVALID, "%s: %d is no dtype", name, (int)op->dtype);
    if (op->tag < 0)
        return ko_fail(KOLO_E_INVALID, "%s: the tag is %d; tags are 0 or more", name, op->tag);
    if (__builtin_mul_overflow(op->count, kolo_dtype_size(op->dtype), &nbytes))
        return ko_fail(KOLO_E_INVALID, "%s: %zu elements of %s are more than memory has", name,
                       op->count, kolo_dtype_name(op->dtype));
    if (nbytes && !op->buffer)
        return ko_fail(KOLO_E_INVALID, "%s: the buffer is NULL, with %zu elements", name,
                       op->count);
    return ko_group_check_rank(group, op->peer, op->is_send ? "the receiver" : "the sender");
}

static void await(struct kolo_work *work, const ko_deadline *deadline)
{
    ko_mailbox_await((struct ko_letter *)work, deadline);
}

static void fill(struct ko_letter *letter, kolo_group *group, const kolo_p2p *op)
{
    letter->work.await = await;
    letter->group = group;
    letter->is_send = op->is_send;
    letter->peer = op->peer;
    letter->tag = op->tag;
    letter->dtype = op->dtype;
    letter->buffer = op->buffer;
    letter->nbytes = op->count * kolo_dtype_size(op->dtype);
    letter->moved = 0;
    letter->has_begun = false;
    letter->next = NULL;
}

static int run(const char *name, kolo_group *group, const kolo_p2p *op)
{
    struct ko_letter letter;
    int err = check(name, group, op);

    if (err)
        return err;
    ko_work_init(&letter.work);
    fill(&letter, group, op);
    err = ko_mailbox_post(&letter);
    if (err)
        return err;
    if (!atomic_load(&letter.work.is_done))
        ko_mailbox_await(&letter, NULL);
    return letter.work.status ? ko_fail_again(letter.work.status, letter.work.text) : KOLO_OK;
}

static int start(const char *name, kolo_group *group, const kolo_p2p *op, kolo_work **work)
{
    struct ko_letter *letter;
    int err = work ? check(name, group, op) : ko_fail(KOLO_E_INVALID, "%s: work is NULL", name);

    if (err)
        return err;
    letter = ko_work_new(sizeof *letter);
    if (!letter)
        return KOLO_E_NOMEM;
    fill(letter, group, op);
    err = ko_mailbox_post(letter);
    if (err) {
        ko_work_release(&letter->work);
        return err;
    }
    ko_mailbox_attend(letter);
    *work = &letter->work;
    return KOLO_OK;
}

int kolo_send(kolo_group *group, const void *in, size_t count, kolo_dtype dtype, int to, int tag)
{
    return run("kolo_send", group, &(kolo_p2p){1, to, tag, dtype, count, (void *)(uintptr_t)in});
}

int kolo_recv(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from, int tag)
{
    return run("kolo_recv", group, &(kolo_p2p){0, from, tag, dtype, count, out});
}

int kolo_isend(kolo_group *group, const void *in, size_t count, kolo_dtype dtype, int to, int tag,
               kolo_work **work)
{
    return start("kolo_isend", group, &(kolo_p2p){1, to, tag, dtype, count, (void *)(uintptr_t)in},
                 work);
}

int kolo_irecv(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from, int tag,
               kolo_work **work)
{
    return start("kolo_irecv", group, &(kolo_p2p){0, from, tag, dtype, count, out}, work);
}

int kolo_batch(kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    char text[KO_ERROR_TEXT];
    kolo_work **works;
    size_t begun;
    int err = KOLO_OK;

    if (nops && !ops)
        return ko_fail(KOLO_E_INVALID, "kolo_batch: ops is NULL");
    works = ko_alloc(nops * sizeof(void *), "a batch");
    if (!works)
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < nops && !err; i++) /* one that is wrong must not leave others waiting */
        err = check("kolo_batch", group, &ops[i]);
    for (begun = 0; begun < nops && !err; begun += !err)
        err = start("kolo_batch", group, &ops[begun], &works[begun]);
    snprintf(text, sizeof text, "%s", err ? kolo_last_error() : "");
    for (size_t i = 0; i < begun; i++) {
        int status = kolo_work_wait(works[i], -1);

        if (!err && status)
            snprintf(text, sizeof text, "%s", kolo_last_error());
        err = err ? err : status;
        kolo_work_free(works[i]);
    }
    free(works);
    return err ? ko_fail_again(err, text) : KOLO_OK;
}
