/* SPDX-License-Identifier: MIT
 *
 * A piece is some elements of each block, in one of two slots of memory that can cross: the host's,
 * or such of the GPU's own as other ranks reach. All copies go by one stream, in this order: piece
 * 0 in; then, for each piece, the next one in, and when the piece is through, out. So a slot is
 * free again when its next piece comes in, and nobody waits for a copy but for the first and the
 * last. Ranks with buffers in host memory take the same pieces.
 */
#include "coll_gpu_pieces.h"

#include "coll_epilogue.h"
#include "coll_gpu.h"
#include "coll_gpu_hosts.h"
#include "config.h"
#include "dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, STAGE_BYTES = 16 << 20 /* of a piece that stays on the GPU */ };

struct pieces {
    kolo_group *group;
    const struct ko_call *call;
    size_t width;       /* bytes of an element */
    size_t nins, nouts; /* blocks that this rank has of each buffer; 0: it has none */
    size_t most;        /* elements of a block in a piece; the last may have fewer */
    size_t n;
    bool stays_on_gpu;
    unsigned char *memory; /* two slots of: */
    size_t slot_bytes, out_at;
    int (*cross)(kolo_group *group, const struct ko_call *call, ko_run *run);
    ko_run *run;
};

/* ---- whether, and how many ------------------------------------------------------------------- */

/* Elements of a block so that all are nbytes. */
static size_t divide(const kolo_group *group, const struct ko_call *call, size_t nbytes)
{
    const bool is_one = !ko_has_blocks(call->what, false) && !ko_has_blocks(call->what, true);
    const size_t nblocks = is_one ? 1 : (size_t)group->size;
    const size_t most = (nbytes / nblocks) >> ko_dtype_shift(call->dtype);

    return most ? most : 1;
}

/* Elements of a block that make a piece; 0: the call stays whole. By what all ranks know. */
static int choose_length(const kolo_group *group, const struct ko_call *call, size_t *most)
{
    int64_t nbytes;
    int err = ko_config_number(KO_CONFIG_CUDA_PIECE_BYTES, &nbytes);

    *most = 0;
    if (err || call->is_uneven || call->is_coalesced || call->what == KO_BARRIER ||
        group->size == 1 || !atomic_load(&group->has_gpus))
        return err;
    *most = divide(group, call, (size_t)nbytes);
    if (call->count / 2 < *most) /* less than two */
        *most = 0;
    return KOLO_OK;
}

static void lay_out(struct pieces *pieces)
{
    const struct ko_call *call = pieces->call;
    const size_t all = (size_t)pieces->group->size, block = pieces->most * pieces->width;
    size_t nbytes;

    if (ko_coll_is_read(pieces->group, call))
        pieces->nins = ko_has_blocks(call->what, false) ? all : 1;
    if (ko_coll_is_written(pieces->group, call))
        pieces->nouts = ko_has_blocks(call->what, true) ? all : 1;
    nbytes = (pieces->nins * block + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pieces->out_at = call->in == call->out ? 0 : nbytes;
    nbytes = pieces->out_at + pieces->nouts * block;
    if (nbytes < pieces->nins * block)
        nbytes = pieces->nins * block;
    pieces->slot_bytes = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pieces->n = (call->count + pieces->most - 1) / pieces->most;
}

static bool has_scratch(struct pieces *pieces)
{
    ko_cu_ptr scratch;

    if (ko_gpu_scratch(pieces->group->gpu, KO_GPU_FOR_PIECES, 2 * pieces->slot_bytes, &scratch))
        return false;
    pieces->memory = (unsigned char *)(uintptr_t)scratch;
    return true;
}

/* Where the GPU has no room, this rank's pieces go by the host's memory, as all will find. */
static int make_room(struct pieces *pieces)
{
    pieces->stays_on_gpu = pieces->stays_on_gpu && has_scratch(pieces);
    if (pieces->stays_on_gpu)
        return KOLO_OK;
    return pieces->call->is_on_gpu
               ? ko_gpu_staging(pieces->group->gpu, 2 * pieces->slot_bytes, &pieces->memory)
               : ko_group_packing(pieces->group, 2 * pieces->slot_bytes, &pieces->memory);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static size_t length(const struct pieces *pieces, size_t k)
{
    const size_t left = pieces->call->count - k * pieces->most;

    return left < pieces->most ? left : pieces->most;
}

static unsigned char *slot(const struct pieces *pieces, size_t k)
{
    return pieces->memory + k % 2 * pieces->slot_bytes;
}

static int copy(const struct pieces *pieces, void *to, const void *from, size_t nbytes)
{
    if (pieces->call->is_on_gpu)
        return ko_gpu_copy(pieces->group->gpu, to, from, nbytes);
    memcpy(to, from, nbytes);
    return KOLO_OK;
}

static int begin_in(void *work, size_t k)
{
    struct pieces *pieces = work;
    const struct ko_call *call = pieces->call;
    const size_t nbytes = length(pieces, k) * pieces->width;
    int err = KOLO_OK;

    for (size_t b = 0; b < pieces->nins && !err; b++)
        err = copy(pieces, slot(pieces, k) + b * nbytes,
                   (const char *)call->in + (b * call->count + k * pieces->most) * pieces->width,
                   nbytes);
    return err;
}

static int begin_out(void *work, size_t k)
{
    struct pieces *pieces = work;
    const struct ko_call *call = pieces->call;
    const size_t nbytes = length(pieces, k) * pieces->width;
    int err = KOLO_OK;

    for (size_t b = 0; b < pieces->nouts && !err; b++)
        err = copy(pieces, (char *)call->out + (b * call->count + k * pieces->most) * pieces->width,
                   slot(pieces, k) + pieces->out_at + b * nbytes, nbytes);
    return err;
}

/* ---- carrying out ---------------------------------------------------------------------------- */

static int cross_piece(void *work, size_t k)
{
    struct pieces *pieces = work;
    struct ko_call part = *pieces->call;

    part.in = slot(pieces, k);
    part.out = slot(pieces, k) + pieces->out_at;
    part.count = length(pieces, k);
    part.is_on_gpu = pieces->stays_on_gpu;
    part.mark = NULL;
    return pieces->cross(pieces->group, &part, pieces->run);
}

/* Waits for the user's stream, or for what has come. */
static int await(kolo_group *group, const struct ko_gpu_mark *mark)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));

    return ko_gpu_await_mark(group->gpu, mark, &deadline);
}

/* come: that a slot's piece is there; NULL: nothing waits. */
static int begin_piece(const struct ko_piecework *of, void *work, size_t k,
                       struct ko_gpu_mark *come[2])
{
    int err = of->begin_in(work, k);

    return err || !of->is_on_gpu ? err : ko_gpu_mark_own(of->group->gpu, &come[k % 2]);
}

static int carry_out(const struct ko_piecework *of, void *work, struct ko_gpu_mark *come[2])
{
    int err = begin_piece(of, work, 0, come);

    for (size_t k = 0; k < of->n && !err; k++) {
        err = await(of->group, come[k % 2]);
        if (!err && come[k % 2]) {
            ko_gpu_let_go(of->group->gpu, come[k % 2]);
            come[k % 2] = NULL;
        }
        if (!err && k + 1 < of->n)
            err = begin_piece(of, work, k + 1, come);
        if (!err)
            err = of->cross(work, k);
        if (!err)
            err = of->begin_out(work, k);
    }
    return err;
}

int ko_coll_run_pieces(const struct ko_piecework *of, void *work)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(of->group));
    struct ko_gpu_mark *come[2] = {NULL, NULL};
    char text[KO_ERROR_TEXT];
    int err = carry_out(of, work, come);

    for (int i = 0; i < 2; i++)
        if (come[i])
            ko_gpu_let_go(of->group->gpu, come[i]);
    if (!err && of->is_on_gpu)
        err = ko_gpu_finish(of->group->gpu, &deadline);
    if (!err)
        return KOLO_OK;
    snprintf(text, sizeof text, "%s on rank %d: %.400s", ko_call_name(of->call), of->group->rank,
             kolo_last_error());
    return ko_group_fail(of->group, err, text);
}

static int run_all(struct pieces *pieces)
{
    struct ko_piecework piecework = {.group = pieces->group,
                                     .call = pieces->call,
                                     .is_on_gpu = pieces->call->is_on_gpu,
                                     .begin_in = begin_in,
                                     .cross = cross_piece,
                                     .begin_out = begin_out};
    int err;

    lay_out(pieces);
    piecework.n = pieces->n;
    err = make_room(pieces);
    if (!err)
        err = await(pieces->group, pieces->call->mark);
    return err ? ko_group_fail(pieces->group, err, kolo_last_error())
               : ko_coll_run_pieces(&piecework, pieces);
}

static int cross_host(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    return run(group, call);
}

int ko_coll_run_by_host(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    struct pieces pieces = {.group = group,
                            .call = call,
                            .width = kolo_dtype_size(call->dtype),
                            .cross = cross_host,
                            .run = run};
    int err = choose_length(group, call, &pieces.most);

    if (ko_call_is_cast(call))
        return ko_coll_run_cast(group, call, ko_coll_run_by_host, run);
    if (ko_call_has_step(call))
        return ko_coll_run_then_step(group, call, ko_coll_run_by_host, run);
    if (!err && pieces.most) {
        group->gpu_ways.by_host += call->is_on_gpu;
        err = run_all(&pieces);
    }
    if (err || pieces.most)
        return err;
    return call->is_on_gpu ? ko_coll_run_on_gpu(group, call, run) : run(group, call);
}

/* ---- several tensors ------------------------------------------------------------------------- */

static int is_long(const kolo_group *group, const struct ko_call *call, bool *is)
{
    size_t most;
    int err = choose_length(group, call, &most);

    *is = !err && (most || ko_coll_is_divided(group, call));
    return err;
}

/* With room for all tensors in `others`. */
static int run_each(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run,
                    kolo_tensor *others)
{
    struct ko_call rest = *call;
    bool is;
    int err = KOLO_OK;

    rest.tensors = others;
    rest.ntensors = 0;
    for (size_t i = 0; i < call->ntensors && !err; i++) {
        const struct ko_call part = ko_coll_tensor(call, i);

        err = is_long(group, &part, &is);
        if (!err && is)
            err = way(group, &part, run);
        else
            others[rest.ntensors++] = call->tensors[i];
    }
    return err || !rest.ntensors ? err : ko_coll_run_by_host(group, &rest, run);
}

int ko_coll_run_long_ones(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run)
{
    kolo_tensor *others;
    int err;

    if (group->size == 1 || !atomic_load(&group->has_gpus))
        return ko_coll_run_by_host(group, call, run);
    others = ko_alloc(call->ntensors * sizeof *others, "a list of tensors");
    if (!others)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    err = run_each(group, call, way, run, others);
    free(others);
    return err;
}

int ko_coll_run_staged(kolo_group *group, const struct ko_call *call,
                       int (*cross)(kolo_group *group, const struct ko_call *call, ko_run *run),
                       ko_run *run)
{
    struct pieces pieces = {.group = group,
                            .call = call,
                            .width = kolo_dtype_size(call->dtype),
                            .most = divide(group, call, STAGE_BYTES),
                            .stays_on_gpu = true,
                            .cross = cross,
                            .run = run};

    group->gpu_ways.staged++;
    if (call->count && call->count < pieces.most)
        pieces.most = call->count;
    return run_all(&pieces);
}
