/* SPDX-License-Identifier: MIT */
#include "p2p_gpu.h"

#include "dtype.h"
#include "gpu_direct.h"
#include "gpu_relay.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct ko_p2p_stages {
    kolo_group *group;
    const struct ko_gpu_mark *mark;   /* in the stream, when the call was made */
    struct ko_gpu_handover *handover; /* of what is sent, while the letters are under way */
    struct ko_gpu_block *block;       /* of those that are not longer than a slot */
    bool is_left;                     /* to the GPU, which may still touch host memory */
    size_t slot_bytes, n;
    struct stage {
        void *gpu;            /* the user's buffer; NULL: it is in host memory, and stays */
        kolo_message *asked;  /* the user's */
        kolo_message message; /* what was received */
        bool is_placed;       /* the letter has: */
        struct ko_placed placed;
        struct ko_held *held;       /* it is sent from there */
        struct ko_gpu_relay *relay; /* it is longer than a slot */
    } * stages;
    kolo_p2p ops[]; /* with buffers in host memory, but for what is sent from where it lies */
};

static size_t place_for(const kolo_p2p *op)
{
    return (ko_p2p_bytes(op) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int look(kolo_group *group, const kolo_p2p *op, bool *is_on_gpu)
{
    *is_on_gpu = false;
    return op->count ? ko_gpu_holds(group->gpu, op->buffer, is_on_gpu) : KOLO_OK;
}

static void free_stages(struct ko_p2p_stages *stages)
{
    ko_gpu_handover_end(stages->handover);
    for (size_t i = 0; i < stages->n && stages->stages; i++) {
        ko_held_let_go(stages->stages[i].held);
        ko_placed_end(&stages->stages[i].placed, stages->is_left);
        ko_gpu_relay_close(stages->stages[i].relay, stages->is_left);
    }
    ko_gpu_give_back(stages->group->gpu, stages->block, stages->is_left);
    free(stages->stages);
    free(stages);
}

static struct ko_p2p_stages *make(kolo_group *group, size_t n)
{
    struct ko_p2p_stages *made =
        ko_alloc(sizeof *made + n * sizeof *made->ops, "messages of a GPU's");

    if (!made)
        return NULL;
    made->group = group;
    made->n = n;
    made->stages = ko_alloc(n * sizeof *made->stages, "messages of a GPU's");
    if (made->stages && !ko_gpu_handover_new(&made->handover))
        return made;
    free_stages(made);
    return NULL;
}

/* Where it lies, if it is longer than what says so, and the other rank reaches it. */
static bool is_described(const struct ko_p2p_stages *stages, const kolo_p2p *op,
                         struct ko_gpu_place *place)
{
    return ko_p2p_bytes(op) > sizeof *place &&
           ko_places_describe(stages->group, op, ko_p2p_bytes(op), stages->handover, place);
}

/* is_taken: what has been need not be handed over again. */
static void end_places(const struct ko_p2p_stages *stages, bool is_taken)
{
    for (size_t i = 0; i < stages->n; i++) {
        const struct stage *stage = &stages->stages[i];

        if (stage->gpu && stage->is_placed && stages->ops[i].is_send)
            ko_places_end(stages->group, stages->ops[i].peer, &stage->placed.place,
                          is_taken && !stage->placed.relay);
    }
}

/* Whether it goes by host memory, or may do so, and is not longer than a slot. */
static bool is_short(const struct ko_p2p_stages *stages, const struct stage *stage,
                     const kolo_p2p *op)
{
    return stage->gpu && !(op->is_send && (stage->is_placed || stage->held)) &&
           ko_p2p_bytes(op) <= stages->slot_bytes;
}

/* Once there is a mark: how each message goes. */
static int choose(struct ko_p2p_stages *stages, const kolo_p2p *op, size_t i)
{
    struct stage *stage = &stages->stages[i];
    bool is_on_gpu;
    int err = look(stages->group, op, &is_on_gpu);

    stages->ops[i] = *op;
    if (err || !is_on_gpu)
        return err;
    stage->gpu = op->buffer;
    stage->asked = op->message;
    stage->placed.buffer = op->buffer;
    stage->placed.mark = stages->mark;
    stage->is_placed = !op->is_send || is_described(stages, op, &stage->placed.place);
    if (!stage->is_placed)
        stage->held = ko_mailbox_hold(stages->group, op->peer, op->buffer, ko_p2p_bytes(op));
    if (!op->is_send)
        stages->ops[i].message = &stage->message;
    if (is_short(stages, stage, op) || (op->is_send && (stage->is_placed || stage->held)))
        return KOLO_OK;
    return ko_gpu_relay_open(stages->group->gpu, op->is_send ? NULL : stages->mark, op->buffer,
                             ko_p2p_bytes(op), stages->slot_bytes, &stage->relay);
}

/* Of those that are short. */
static int lay_out(struct ko_p2p_stages *stages, const kolo_p2p *ops)
{
    unsigned char *at;
    size_t nbytes = 0;
    int err = KOLO_OK;

    for (size_t i = 0; i < stages->n; i++)
        nbytes += is_short(stages, &stages->stages[i], &ops[i]) ? place_for(&ops[i]) : 0;
    if (nbytes)
        err = ko_gpu_borrow(stages->group->gpu, nbytes, &stages->block);
    if (err || !nbytes)
        return err;
    at = stages->block->memory;
    for (size_t i = 0; i < stages->n; i++) {
        if (!is_short(stages, &stages->stages[i], &ops[i]))
            continue;
        stages->ops[i].buffer = at;
        at += place_for(&ops[i]);
    }
    return KOLO_OK;
}

static int choose_all(struct ko_p2p_stages *stages, const kolo_p2p *ops)
{
    int err = ko_relay_bytes(stages->group, stages->n, &stages->slot_bytes);

    for (size_t i = 0; i < stages->n && !err; i++)
        err = choose(stages, &ops[i], i);
    return err ? err : lay_out(stages, ops);
}

/* What has been received by way of host memory: all but what adapters have written. */
static int copy_received(struct ko_gpu *gpu, const struct stage *stage, const kolo_p2p *op)
{
    const size_t nbytes = stage->message.count << ko_dtype_shift(stage->message.dtype);
    const size_t from = stage->placed.written_from, to = stage->placed.written_to;
    unsigned char *gpu_memory = stage->gpu;
    const unsigned char *memory = op->buffer;
    int err = ko_gpu_copy(gpu, gpu_memory, memory, from);

    return err ? err : ko_gpu_copy(gpu, gpu_memory + to, memory + to, nbytes - to);
}

static int copy_one(struct ko_p2p_stages *stages, size_t i, const ko_deadline *deadline)
{
    struct ko_gpu *gpu = stages->group->gpu;
    const struct stage *stage = &stages->stages[i];
    const kolo_p2p *op = &stages->ops[i];

    if (stage->relay)
        return op->is_send ? KOLO_OK : ko_gpu_relay_finish(stage->relay, deadline);
    if (!op->is_send)
        return stage->placed.is_fetched ? KOLO_OK : copy_received(gpu, stage, op);
    return stage->is_placed || stage->held
               ? KOLO_OK
               : ko_gpu_copy(gpu, op->buffer, stage->gpu, ko_p2p_bytes(op));
}

/* Waits for the stream, then copies what is sent, or has been received. */
static int copy(struct ko_p2p_stages *stages, bool is_send)
{
    struct ko_gpu *gpu = stages->group->gpu;
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(stages->group));
    int err = ko_gpu_await_mark(gpu, stages->mark, &deadline);

    if (err)
        return err;
    for (size_t i = 0; i < stages->n && !err; i++)
        if (stages->stages[i].gpu && is_send == (stages->ops[i].is_send != 0))
            err = copy_one(stages, i, &deadline);
    if (!err)
        err = ko_gpu_finish(gpu, &deadline);
    stages->is_left = err != KOLO_OK;
    return err;
}

/* Of long messages the first slots are there soon, when their letters are posted. */
static int fill_relays(struct ko_p2p_stages *stages)
{
    int err = KOLO_OK;

    for (size_t i = 0; i < stages->n && !err; i++)
        if (stages->stages[i].relay && stages->ops[i].is_send)
            err = ko_gpu_relay_fill(stages->stages[i].relay);
    stages->is_left |= err != KOLO_OK;
    return err;
}

static bool sends_from_gpu(const struct ko_p2p_stages *stages)
{
    for (size_t i = 0; i < stages->n; i++)
        if (stages->stages[i].gpu && stages->ops[i].is_send)
            return true;
    return false;
}

int ko_p2p_look(kolo_group *group, const kolo_p2p *ops, size_t nops, struct ko_p2p_sight *sight)
{
    bool is_empty = true, is_on_gpu;
    int err = KOLO_OK;

    *sight = (struct ko_p2p_sight){.is_on_gpu = false};
    for (size_t i = 0; i < nops && !err; i++) {
        is_empty &= !ops[i].count;
        err = look(group, &ops[i], &is_on_gpu);
        if (err || !is_on_gpu)
            continue;
        sight->is_on_gpu = true;
        err = ko_gpu_check_length(group->gpu, ops[i].buffer, ko_p2p_bytes(&ops[i]));
    }
    /* the other end of nothing may be a buffer for the graph */
    if (!err && (sight->is_on_gpu || (is_empty && atomic_load(&group->places))))
        err = ko_gpu_is_captured(group->gpu, &sight->is_captured);
    return err;
}

int ko_p2p_stage(kolo_group *group, const kolo_p2p **ops, size_t nops,
                 const struct ko_gpu_mark *mark, struct ko_p2p_stages **stages_out)
{
    struct ko_p2p_stages *stages = make(group, nops);
    int err;

    *stages_out = NULL;
    if (!stages)
        return KOLO_E_NOMEM;
    stages->mark = mark;
    err = choose_all(stages, *ops);
    if (!err)
        err = ko_gpu_handover_start(stages->handover, &group->endpoint->crew);
    if (!err && sends_from_gpu(stages))
        err = copy(stages, true);
    if (!err)
        err = fill_relays(stages);
    if (err) {
        end_places(stages, false);
        free_stages(stages);
        return err;
    }
    *ops = stages->ops;
    *stages_out = stages;
    return KOLO_OK;
}

struct ko_placed *ko_p2p_placed(struct ko_p2p_stages *stages, size_t i)
{
    return stages && stages->stages[i].is_placed ? &stages->stages[i].placed : NULL;
}

struct ko_held *ko_p2p_held(const struct ko_p2p_stages *stages, size_t i)
{
    return stages ? stages->stages[i].held : NULL;
}

struct ko_gpu_relay *ko_p2p_relay(const struct ko_p2p_stages *stages, size_t i)
{
    return stages ? stages->stages[i].relay : NULL;
}

static bool is_any_written(const struct ko_p2p_stages *stages)
{
    for (size_t i = 0; i < stages->n; i++)
        if (stages->stages[i].placed.written_to)
            return true;
    return false;
}

/* A call has failed, perhaps all of the group: what is being copied into its buffers, and from
 * them, is not later on. */
static void settle(struct ko_p2p_stages *stages)
{
    const ko_deadline deadline = ko_group_has_failed(stages->group)
                                     ? ko_gpu_settling(stages->group->gpu)
                                     : ko_deadline_in(kolo_group_timeout(stages->group));

    stages->is_left = !ko_gpu_settle(stages->group->gpu, &deadline);
    (void)ko_group_check(stages->group); /* the thread's text again */
}

int ko_p2p_unstage(struct ko_p2p_stages *stages, int err)
{
    end_places(stages, !err);
    if (!err)
        err = copy(stages, false);
    if (!err && is_any_written(stages))
        err = ko_gpu_flush_writes(stages->group->gpu);
    for (size_t i = 0; i < stages->n && !err; i++)
        if (stages->stages[i].asked)
            *stages->stages[i].asked = stages->stages[i].message;
    if (err)
        settle(stages);
    free_stages(stages);
    return err;
}
