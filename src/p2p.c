/* SPDX-License-Identifier: MIT
 *
 * The public point-to-point calls: their arguments, and their works; mailbox.c moves the messages.
 */
#include "dtype.h"
#include "group.h"
#include "p2p_gpu.h"
#include "p2p_gpu_graph.h"
#include "p2p_stream.h"

#include <sched.h>
#include <stdlib.h>

static inline int check(const char *name, kolo_group *group, const kolo_p2p *op)
{
    if (!group)
        return ko_fail(KOLO_E_INVALID, "%s: group is NULL", name);
    if (!ko_dtype_is_valid(op->dtype))
        return ko_fail(KOLO_E_INVALID, "%s: %d is no dtype", name, (int)op->dtype);
    if (op->tag < 0 && (op->is_send || op->tag != KOLO_ANY_TAG))
        return ko_fail(KOLO_E_INVALID, "%s: the tag is %d; tags are 0 or more", name, op->tag);
    if (op->count > SIZE_MAX >> ko_dtype_shift(op->dtype))
        return ko_fail(KOLO_E_INVALID, "%s: %zu elements of %s are more than memory has", name,
                       op->count, kolo_dtype_name(op->dtype));
    if (op->count && !op->buffer)
        return ko_fail(KOLO_E_INVALID, "%s: the buffer is NULL, with %zu elements", name,
                       op->count);
    if (op->is_send) /* not with the peer: that would be one load of two stores */
        return ko_group_check_rank(group, op->peer, "the receiver");
    if (op->peer == KOLO_ANY_RANK)
        return KOLO_OK;
    return ko_group_check_rank(group, op->peer, "the sender");
}

static void await(struct kolo_work *work, const ko_deadline *deadline,
                  const struct ko_works *others)
{
    ko_mailbox_await((struct ko_letter *)work, deadline, others);
}

static void fill(struct ko_letter *letter, kolo_group *group, const kolo_p2p *op,
                 struct ko_placed *placed)
{
    ko_work_init(&letter->work);
    letter->work.await = await;
    letter->work.place = &group->mailbox;
    letter->group = group;
    letter->is_send = op->is_send;
    letter->peer = op->peer;
    letter->tag = op->tag;
    letter->dtype = op->dtype;
    letter->buffer = op->buffer;
    letter->nbytes = ko_p2p_bytes(op);
    letter->message = op->message;
    letter->placed = placed;
    letter->held = NULL;
    letter->relay = NULL;
    letter->is_probe = false;
    letter->may_wait = false;
    letter->has_begun = false;
    letter->is_awaited = false;
    letter->is_aside = false;
    letter->is_wanted = false;
    letter->is_behind = false;
    letter->asks = 0;
    letter->is_refused = false;
    letter->is_refused_captured = false;
    letter->moved = 0;
    letter->next = NULL;
}

/* Of op i of those that are staged, if any is. */
static void fill_staged(struct ko_letter *letter, kolo_group *group, const kolo_p2p *op,
                        struct ko_p2p_stages *stages, size_t i)
{
    fill(letter, group, op, ko_p2p_placed(stages, i));
    letter->held = ko_p2p_held(stages, i);
    letter->relay = ko_p2p_relay(stages, i);
}

/* ---- blocking ---------------------------------------------------------------------------- */

/* One that is wrong must not leave others waiting: all are looked at before any is posted. Where
 * there are none, nothing else would find out that the group is NULL or has failed. */
static int check_all(const char *name, kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    int err = group ? KOLO_OK : ko_fail(KOLO_E_INVALID, "%s: group is NULL", name);

    for (size_t i = 0; i < nops && !err; i++)
        err = check(name, group, &ops[i]);
    return err || nops ? err : ko_group_check(group);
}

/* The status of the first of these letters that failed, with its text, unless err is one already;
 * they are done, and may go. */
static int judge(struct ko_letter *letters, size_t nletters, int err)
{
    for (size_t i = 0; i < nletters; i++) {
        struct kolo_work *work = &letters[i].work;

        if (!err)
            err = ko_work_result(work);
        ko_work_clear(work);
    }
    return err;
}

static int exchange(kolo_group *group, const kolo_p2p *ops, size_t nops, struct ko_letter *letters,
                    struct ko_p2p_stages *stages)
{
    size_t posted = 0;
    int err = KOLO_OK;

    for (size_t i = 0; i < nops; i++)
        fill_staged(&letters[i], group, &ops[i], stages, i);
    if (nops)
        err = ko_mailbox_exchange(letters, nops, &posted);
    return judge(letters, posted, err);
}

/* A ko_p2p_carry. */
static int carry(kolo_group *group, const kolo_p2p *ops, size_t nops, struct ko_letter *letters,
                 const struct ko_gpu_mark *mark)
{
    struct ko_p2p_stages *stages = NULL;
    int err = mark ? ko_p2p_stage(group, &ops, nops, mark, &stages) : KOLO_OK;

    if (err)
        return err;
    err = exchange(group, ops, nops, letters, stages);
    return stages ? ko_p2p_unstage(stages, err) : err;
}

/* Into the graph that the stream is captured for; the ranks meet now, and not when it is launched.
 */
static int capture(kolo_group *group, const kolo_p2p *ops, size_t nops, struct ko_letter *letters)
{
    struct ko_p2p_graph *graph;
    size_t posted;
    int err = ko_p2p_graph_begin(group, ops, nops, &graph);

    if (err)
        return err;
    for (size_t i = 0; i < nops; i++)
        fill(&letters[i], group, &ops[i], ko_p2p_graph_placed(graph, i));
    err = ko_mailbox_exchange(letters, nops, &posted);
    return ko_p2p_graph_end(graph, letters, judge(letters, posted, err));
}

/* Posts all, waits for all; letters has room for as many. */
static int run(kolo_group *group, const kolo_p2p *ops, size_t nops, struct ko_letter *letters)
{
    struct ko_p2p_sight sight;
    int err;

    if (!ko_group_has_stream(group))
        return exchange(group, ops, nops, letters, NULL);
    err = ko_p2p_look(group, ops, nops, &sight);
    if (err)
        return err;
    return sight.is_captured && nops
               ? capture(group, ops, nops, letters)
               : ko_p2p_run(group, ops, nops, sight.is_on_gpu, carry, letters);
}

/* Nearly all messages: seen at a glance to be right, as check would find; nothing of them is in GPU
 * memory. KOLO_ANY_RANK is not among them. */
static inline bool is_plainly_right(const kolo_group *group, const void *buffer, size_t count,
                                    kolo_dtype dtype, int peer, int tag)
{
    return group && ko_dtype_is_valid(dtype) && tag >= 0 && (buffer || !count) &&
           count < (size_t)1 << 32 && (unsigned)peer < (unsigned)group->size &&
           !ko_group_has_stream(group);
}

/* KO_AGAIN: not at once. */
static inline int send_at_once(kolo_group *group, const void *in, size_t count, kolo_dtype dtype,
                               int to, int tag, int looks)
{
    if (!is_plainly_right(group, in, count, dtype, to, tag))
        return KO_AGAIN;
    return ko_mailbox_send(group, to, ko_message_call(tag, dtype), in,
                           count << ko_dtype_shift(dtype), looks);
}

/* *message is only told if it is there. */
static inline bool receive_at_once(kolo_group *group, void *out, size_t count, kolo_dtype dtype,
                                   int from, int tag, kolo_message *message, int looks)
{
    struct ko_message found;

    if (!is_plainly_right(group, out, count, dtype, from, tag))
        return false;
    found.call = ko_message_call(tag, dtype);
    found.room = count << ko_dtype_shift(dtype);
    if (!ko_mailbox_receive(group, from, &found, out, looks))
        return false;
    if (message)
        *message = (kolo_message){from, tag, dtype, found.nbytes >> ko_dtype_shift(dtype)};
    return true;
}

static __attribute__((noinline)) int run_one(const char *name, kolo_group *group,
                                             const kolo_p2p *op)
{
    struct ko_letter letter;
    int err = check(name, group, op);

    return err ? err : run(group, op, 1, &letter);
}

int kolo_send(kolo_group *group, const void *in, size_t count, kolo_dtype dtype, int to, int tag)
{
    const int err = send_at_once(group, in, count, dtype, to, tag, KO_LOOKS_OF_A_WAITER);

    if (err != KO_AGAIN)
        return err;
    return run_one("kolo_send", group,
                   &(kolo_p2p){1, to, tag, dtype, count, (void *)(uintptr_t)in, NULL});
}

int kolo_recv(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from, int tag)
{
    if (receive_at_once(group, out, count, dtype, from, tag, NULL, KO_LOOKS_OF_A_WAITER))
        return KOLO_OK;
    return run_one("kolo_recv", group, &(kolo_p2p){0, from, tag, dtype, count, out, NULL});
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_recv_message(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from,
                      int tag, kolo_message *message)
{
    if (receive_at_once(group, out, count, dtype, from, tag, message, KO_LOOKS_OF_A_WAITER))
        return KOLO_OK;
    return run_one("kolo_recv_message", group,
                   &(kolo_p2p){0, from, tag, dtype, count, out, message});
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_probe(kolo_group *group, int from, int tag, int timeout_ms, int *found,
               kolo_message *message)
{
    const kolo_p2p op = {0, from, tag, KOLO_INT8, 0, NULL, message};
    struct ko_letter probe;
    ko_deadline deadline;
    bool is_found;
    int err = found && message
                  ? check("kolo_probe", group, &op)
                  : ko_fail(KOLO_E_INVALID, "kolo_probe: %s is NULL", found ? "message" : "found");

    if (err)
        return err;
    fill(&probe, group, &op, NULL);
    probe.is_probe = true;
    deadline = ko_deadline_in(timeout_ms < 0 ? 0 : timeout_ms);
    err = ko_mailbox_probe(&probe, timeout_ms < 0 ? NULL : &deadline, &is_found);
    err = judge(&probe, 1, err);
    if (!err)
        *found = is_found;
    return err;
}

int kolo_batch(kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    struct ko_letter *letters;
    int err;

    if (nops && !ops)
        return ko_fail(KOLO_E_INVALID, "kolo_batch: ops is NULL");
    err = check_all("kolo_batch", group, ops, nops);
    if (err)
        return err;
    letters = ko_alloc(nops * sizeof *letters, "a batch");
    if (!letters)
        return KOLO_E_NOMEM;
    err = run(group, ops, nops, letters);
    free(letters);
    return err;
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_sendrecv(kolo_group *group, const void *in, size_t in_count, int to, void *out,
                  size_t out_count, int from, kolo_dtype dtype, int tag)
{
    const kolo_p2p ops[] = {{1, to, tag, dtype, in_count, (void *)(uintptr_t)in, NULL},
                            {0, from, tag, dtype, out_count, out, NULL}};
    struct ko_letter letters[2];
    int err = check_all("kolo_sendrecv", group, ops, 2);

    return err ? err : run(group, ops, 2, letters);
}

/* ---- asynchronous ------------------------------------------------------------------------ */

static int capture_all(kolo_group *group, const kolo_p2p *ops, size_t nops, kolo_work **work)
{
    struct ko_letter *letters = ko_alloc(nops * sizeof *letters, "messages of a graph");
    int err = letters ? capture(group, ops, nops, letters) : KOLO_E_NOMEM;

    free(letters);
    if (!err)
        *work = ko_work_already_done();
    return err;
}

/* In a group that has a stream. *work: NULL if they may be posted at once. */
static int start_in_order(kolo_group *group, const kolo_p2p *ops, size_t nops, kolo_work **work)
{
    struct ko_p2p_sight sight;
    int err = ko_p2p_look(group, ops, nops, &sight);

    if (err)
        return err;
    return sight.is_captured && nops ? capture_all(group, ops, nops, work)
                                     : ko_p2p_start(group, ops, nops, sight.is_on_gpu, carry, work);
}

static __attribute__((noinline)) int start(const char *name, kolo_group *group, const kolo_p2p *op,
                                           kolo_work **work)
{
    struct ko_letter letter;
    int err = work ? check(name, group, op) : ko_fail(KOLO_E_INVALID, "%s: work is NULL", name);

    if (err)
        return err;
    if (ko_group_has_stream(group)) {
        err = start_in_order(group, op, 1, work);
        if (err || *work)
            return err;
    }
    fill(&letter, group, op, NULL);
    letter.may_wait = op->is_send;
    return ko_mailbox_start(&letter, work);
}

static inline int finished(kolo_work **work)
{
    *work = ko_work_already_done();
    return KOLO_OK;
}

int kolo_isend(kolo_group *group, const void *in, size_t count, kolo_dtype dtype, int to, int tag,
               kolo_work **work)
{
    if (work && !send_at_once(group, in, count, dtype, to, tag, KO_LOOKS_OF_A_PASSER))
        return finished(work);
    return start("kolo_isend", group,
                 &(kolo_p2p){1, to, tag, dtype, count, (void *)(uintptr_t)in, NULL}, work);
}

int kolo_irecv(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from, int tag,
               kolo_work **work)
{
    if (work && receive_at_once(group, out, count, dtype, from, tag, NULL, KO_LOOKS_OF_A_PASSER))
        return finished(work);
    return start("kolo_irecv", group, &(kolo_p2p){0, from, tag, dtype, count, out, NULL}, work);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_irecv_message(kolo_group *group, void *out, size_t count, kolo_dtype dtype, int from,
                       int tag, kolo_message *message, kolo_work **work)
{
    if (work && receive_at_once(group, out, count, dtype, from, tag, message, KO_LOOKS_OF_A_PASSER))
        return finished(work);
    return start("kolo_irecv_message", group, &(kolo_p2p){0, from, tag, dtype, count, out, message},
                 work);
}

/* Letters that are one work to the user. It is complete when somebody has seen all of them done. */
struct batch {
    struct kolo_work work;
    atomic_bool is_judged; /* by one of those who wait */
    size_t nletters;
    struct ko_letter letters[];
};

static void await_batch(struct kolo_work *work, const ko_deadline *deadline,
                        const struct ko_works *others)
{
    struct batch *batch = (struct batch *)work;
    bool is_done = true;

    (void)others; /* they have no place */
    for (size_t i = 0; i < batch->nletters && is_done; i++) {
        if (!atomic_load(&batch->letters[i].work.is_done))
            ko_mailbox_await(&batch->letters[i], deadline, NULL);
        is_done = atomic_load(&batch->letters[i].work.is_done);
    }
    if (is_done && !atomic_exchange(&batch->is_judged, true))
        ko_work_complete(work, judge(batch->letters, batch->nletters, KOLO_OK));
    while (is_done && !atomic_load(&work->is_done)) /* another thread is about to */
        sched_yield();
}

static int post_batch(kolo_group *group, const kolo_p2p *ops, size_t nops, struct batch *batch)
{
    int err = KOLO_OK;

    batch->work.await = await_batch;
    atomic_init(&batch->is_judged, false);
    for (size_t i = 0; i < nops && !err; i++) {
        fill(&batch->letters[i], group, &ops[i], NULL);
        err = ko_mailbox_post(&batch->letters[i]);
        batch->nletters += !err;
    }
    return err;
}

static int start_at_once(kolo_group *group, const kolo_p2p *ops, size_t nops, kolo_work **work)
{
    struct batch *batch = ko_work_new(sizeof *batch + nops * sizeof *batch->letters);
    int err;

    if (!batch)
        return KOLO_E_NOMEM;
    batch->nletters = 0;
    err = post_batch(group, ops, nops, batch);
    if (err) { /* the group has failed, and with it what was posted */
        for (size_t i = 0; i < batch->nletters; i++)
            ko_mailbox_await(&batch->letters[i], NULL, NULL);
        err = judge(batch->letters, batch->nletters, err);
        ko_work_release(&batch->work);
        return err;
    }
    *work = &batch->work;
    return KOLO_OK;
}

static int start_batch(const char *name, kolo_group *group, const kolo_p2p *ops, size_t nops,
                       kolo_work **work)
{
    int err;

    if (!work || (nops && !ops))
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL", name, work ? "ops" : "work");
    err = check_all(name, group, ops, nops);
    if (!err && ko_group_has_stream(group)) {
        err = start_in_order(group, ops, nops, work);
        if (err || *work)
            return err;
    }
    return err ? err : start_at_once(group, ops, nops, work);
}

int kolo_batch_async(kolo_group *group, const kolo_p2p *ops, size_t nops, kolo_work **work)
{
    return start_batch("kolo_batch_async", group, ops, nops, work);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_sendrecv_async(kolo_group *group, const void *in, size_t in_count, int to, void *out,
                        size_t out_count, int from, kolo_dtype dtype, int tag, kolo_work **work)
{
    const kolo_p2p ops[] = {{1, to, tag, dtype, in_count, (void *)(uintptr_t)in, NULL},
                            {0, from, tag, dtype, out_count, out, NULL}};

    return start_batch("kolo_sendrecv_async", group, ops, 2, work);
}
