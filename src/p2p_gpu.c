/* SPDX-License-Identifier: MIT */
#include "p2p_gpu.h"

#include "dtype.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct ko_p2p_stages {
    kolo_group *group;
    struct ko_gpu_mark *mark; /* in the stream, when the call was made */
    unsigned char *memory;
    size_t n;
    struct stage {
        void *gpu;            /* the user's buffer; NULL: it is in host memory, and stays */
        kolo_message *asked;  /* the user's */
        kolo_message message; /* what was received */
        bool is_placed;       /* the letter has: */
        struct ko_placed placed;
    } * stages;
    kolo_p2p ops[]; /* with buffers in `memory` */
};

static size_t bytes_of(const kolo_p2p *op)
{
    return op->count << ko_dtype_shift(op->dtype);
}

static size_t place_for(const kolo_p2p *op)
{
    return (bytes_of(op) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool is_on_gpu(kolo_group *group, const kolo_p2p *op)
{
    return op->count && ko_gpu_holds(group->gpu, op->buffer);
}

static void free_stages(struct ko_p2p_stages *stages)
{
    if (stages->mark)
        ko_gpu_let_go(stages->group->gpu, stages->mark);
    free(stages->memory);
    free(stages->stages);
    free(stages);
}

static struct ko_p2p_stages *make(kolo_group *group, const kolo_p2p *ops, size_t n, size_t nbytes)
{
    struct ko_p2p_stages *made = ko_alloc(sizeof *made + n * sizeof *ops, "messages of a GPU's");

    if (!made)
        return NULL;
    made->group = group;
    made->n = n;
    made->memory = ko_alloc_unset(nbytes, "messages of a GPU's");
    made->stages = ko_alloc(n * sizeof *made->stages, "messages of a GPU's");
    if (made->memory && made->stages)
        return made;
    free_stages(made);
    return NULL;
}

/* Once there is a mark. */
static void lay_out(struct ko_p2p_stages *stages, const kolo_p2p *ops)
{
    unsigned char *at = stages->memory;

    for (size_t i = 0; i < stages->n; i++) {
        struct stage *stage = &stages->stages[i];
        kolo_p2p *op = &stages->ops[i];

        *op = ops[i];
        if (!is_on_gpu(stages->group, op))
            continue;
        stage->gpu = op->buffer;
        stage->asked = op->message;
        stage->placed.buffer = op->buffer;
        stage->placed.mark = stages->mark;
        stage->is_placed = !op->is_send || ko_places_describe(stages->group, op->peer, op->buffer,
                                                              bytes_of(op), &stage->placed.place);
        op->buffer = at;
        if (!op->is_send)
            op->message = &stage->message;
        at += place_for(op);
    }
}

/* What goes by way of host memory. */
static int copy_one(struct ko_p2p_stages *stages, size_t i)
{
    struct ko_gpu *gpu = stages->group->gpu;
    const struct stage *stage = &stages->stages[i];
    const kolo_p2p *op = &stages->ops[i];

    if (op->is_send)
        return stage->is_placed ? KOLO_OK : ko_gpu_copy(gpu, op->buffer, stage->gpu, bytes_of(op));
    return stage->placed.is_fetched
               ? KOLO_OK
               : ko_gpu_copy(gpu, stage->gpu, op->buffer,
                             stage->message.count << ko_dtype_shift(stage->message.dtype));
}

/* Waits for the stream, then copies what is sent, or has been received. */
static int copy(struct ko_p2p_stages *stages, bool is_send)
{
    struct ko_gpu *gpu = stages->group->gpu;
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(stages->group));
    int err = ko_gpu_await_mark(gpu, stages->mark, &deadline);

    for (size_t i = 0; i < stages->n && !err; i++)
        if (stages->stages[i].gpu && is_send == (stages->ops[i].is_send != 0))
            err = copy_one(stages, i);
    return err ? err : ko_gpu_finish(gpu, &deadline);
}

static bool sends_from_gpu(const struct ko_p2p_stages *stages)
{
    for (size_t i = 0; i < stages->n; i++)
        if (stages->stages[i].gpu && stages->ops[i].is_send)
            return true;
    return false;
}

int ko_p2p_stage(kolo_group *group, const kolo_p2p **ops, size_t nops,
                 struct ko_p2p_stages **stages_out)
{
    struct ko_p2p_stages *stages;
    size_t nbytes = 0;
    bool is_captured;
    int err;

    for (size_t i = 0; i < nops; i++)
        nbytes += is_on_gpu(group, &(*ops)[i]) ? place_for(&(*ops)[i]) : 0;
    *stages_out = NULL;
    if (!nbytes)
        return KOLO_OK;
    err = ko_gpu_is_captured(group->gpu, &is_captured);
    if (!err && is_captured)
        err = ko_fail(KOLO_E_UNSUPPORTED, "messages cannot be captured for a graph");
    if (err)
        return err;
    stages = make(group, *ops, nops, nbytes);
    if (!stages)
        return KOLO_E_NOMEM;
    err = ko_gpu_mark(group->gpu, false, &stages->mark);
    if (!err)
        lay_out(stages, *ops);
    if (!err && sends_from_gpu(stages))
        err = copy(stages, true);
    if (err) {
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

int ko_p2p_unstage(struct ko_p2p_stages *stages, int err)
{
    if (!err)
        err = copy(stages, false);
    for (size_t i = 0; i < stages->n && !err; i++)
        if (stages->stages[i].asked)
            *stages->stages[i].asked = stages->stages[i].message;
    free_stages(stages);
    return err;
}
