/* SPDX-License-Identifier: MIT
 *
 * Each rank does this for the blocks whose owner or deputy it is (coll_gpu_division.h), in pieces:
 * what its host has for a piece it brings into a slot, after its GPU has reduced it there; all
 * deputies send theirs to the owners, who reduce once more; the owners send to all deputies; each
 * brings to its GPU what it has then, and its GPU to those of its host's other ranks. Nobody reads
 * or writes an element that another rank of the host does, so that no rank waits for another but
 * before the first piece and behind the last. Slots are in host memory; or, if the adapters of all
 * links between the hosts read and write the GPUs' (transport.h), on the GPUs, which then reduce
 * what has come, too.
 */
#include "coll_gpu_hosts.h"

#include "coll_epilogue.h"
#include "coll_gpu.h"
#include "coll_gpu_division.h"
#include "coll_gpu_offers.h"
#include "coll_gpu_pieces.h"
#include "coll_gpu_writers.h"
#include "config.h"
#include "dtype.h"
#include "gpu_direct.h"
#include "mailbox_gpu.h"
#include "status.h"

#include <stdlib.h>

enum {
    ALIGNMENT = 64,
    LEAST_OF_PIECE = 4 /* shorter calls than this part of a piece are not worth the messages */
};

/* What goes from one rank to all, and where it lies in a slot. */
struct lists {
    size_t *counts, *starts; /* by rank */
};

struct divided {
    kolo_group *group;
    const struct ko_call *call;
    struct ko_division division;
    int rank, host, nmates;             /* ranks of the host, this one too */
    const int *mates;                   /* the host's ranks */
    struct ko_offer *offers;            /* by rank */
    uint64_t ins[KO_FOLD_MOST];         /* by place: of the mates' buffers the addresses here */
    uint64_t outs[KO_FOLD_MOST];        /* those that the call has */
    double factors[KO_FOLD_MOST];       /* by place */
    size_t most;                        /* elements of a block in a piece */
    struct ko_held *held;               /* the slots are GPU memory; NULL: they are the host's */
    unsigned char *memory;              /* two slots of: */
    size_t slot_bytes, sums_at, stride; /* sums: what each other host has for this rank's block */
    size_t *at;                         /* by owner: a block that this rank deals with */
    const void **parts;                 /* by host: a place for what it has for this rank's block */
    struct lists others, own;           /* places for what is passed */
    ko_cu_ptr scratch;                  /* else, on the GPU: for a piece of one block */
};

/* ---- whether --------------------------------------------------------------------------------- */

static size_t bytes_of_all(const kolo_group *group, const struct ko_call *call)
{
    const size_t nblocks =
        call->what == KO_ALL_GATHER || call->what == KO_REDUCE_SCATTER ? (size_t)group->size : 1;

    return nblocks * call->count << ko_dtype_shift(call->dtype);
}

/* By what all ranks know. */
bool ko_coll_is_divided(const kolo_group *group, const struct ko_call *call)
{
    int64_t piece_bytes;

    return group->share && group->hosts->n > 1 && !group->is_ordered && !call->is_uneven &&
           !call->is_coalesced && !ko_call_is_fused(call) &&
           ko_division_suits(call->what, group->hosts) &&
           !ko_config_number(KO_CONFIG_CUDA_PIECE_BYTES, &piece_bytes) &&
           bytes_of_all(group, call) >= (size_t)piece_bytes / LEAST_OF_PIECE;
}

/* ---- where things are ------------------------------------------------------------------------ */

static unsigned char *slot(const struct divided *d, size_t k)
{
    return d->memory + k % 2 * d->slot_bytes;
}

static struct ko_part part_of(const struct divided *d, int owner, size_t k)
{
    return ko_division_part(&d->division, owner, d->most, k);
}

static bool is_mate(const struct divided *d, int rank)
{
    return ko_group_is_mate(d->group, rank);
}

/* Whether this rank deals with the owner's block. */
static bool is_mine(const struct divided *d, int owner)
{
    return ko_division_deputy(d->division.hosts, d->host, owner) == d->rank;
}

/* Whether a rank of another host deals with this one's block. */
static bool is_deputy(const struct divided *d, int rank)
{
    const struct ko_hosts *hosts = d->division.hosts;

    return !is_mate(d, rank) && ko_division_deputy(hosts, hosts->host[rank], d->rank) == rank;
}

/* Where a part of an owner's block is, in a buffer that may have that block alone. */
static uint64_t address(const struct divided *d, uint64_t buffer, bool is_block, int owner,
                        struct ko_part part)
{
    const size_t begin = is_block ? ko_division_block(&d->division, owner).at : 0;

    return buffer + ((part.at - begin) << d->division.shift);
}

/* Of a mate's buffers. */
static uint64_t in_at(const struct divided *d, int mate, int owner, struct ko_part part)
{
    const int place = d->division.hosts->place[mate];

    return address(d, d->ins[place], d->call->what == KO_ALL_GATHER, owner, part);
}

static uint64_t out_at(const struct divided *d, int mate, int owner, struct ko_part part)
{
    const int place = d->division.hosts->place[mate];

    return address(d, d->outs[place], d->call->what == KO_REDUCE_SCATTER, owner, part);
}

static bool has_result(const struct divided *d, int owner)
{
    return ko_division_has_result(&d->division, d->rank, owner);
}

static int copy(const struct divided *d, uint64_t to, uint64_t from, struct ko_part part)
{
    return ko_gpu_copy(d->group->gpu, (void *)(uintptr_t)to, (const void *)(uintptr_t)from,
                       part.count << d->division.shift);
}

/* ---- from the GPUs into slots ---------------------------------------------------------------- */

static int fold(const struct divided *d, int owner, struct ko_part part, uint64_t to)
{
    const ko_cu_stream stream = ko_gpu_own_stream(d->group->gpu);
    const kolo_op op = d->call->op == KOLO_AVG ? KOLO_SUM : d->call->op; /* divided at the end */
    struct ko_fold fold = {.count = part.count, .nparts = (uint32_t)d->nmates, .nouts = 1};
    int err = ko_gpu_enter(d->group->gpu);

    if (err)
        return err;
    fold.outs[0] = to;
    for (int i = 0; i < d->nmates; i++)
        fold.parts[i] = in_at(d, d->mates[i], owner, part);
    err = d->call->is_scaled ? ko_cuda_premul(d->call->dtype, &fold, d->factors, stream)
                             : ko_cuda_fold(d->call->dtype, op, fold, d->group->size, stream);
    ko_gpu_leave(d->group->gpu);
    return err;
}

/* What the host has for a part of the block, if it has any. */
static int bring(const struct divided *d, int owner, struct ko_part part, void *to)
{
    const int root = d->call->root;
    uint64_t from;
    int err = KOLO_OK;

    if (ko_is_reducing(d->call->what)) {
        const bool is_there = d->nmates == 1 && !d->call->is_scaled;

        from = is_there ? in_at(d, d->rank, owner, part) : d->held ? (uintptr_t)to : d->scratch;
        if (!is_there)
            err = fold(d, owner, part, from);
    } else if (owner != d->rank) {
        return KOLO_OK;
    } else if (d->call->what == KO_ALL_GATHER || d->rank == root) {
        from = in_at(d, d->rank, owner, part);
    } else { /* the own GPU has a way to the host of its own */
        from = out_at(d, d->rank, owner, part);
        err = copy(d, from, in_at(d, root, owner, part), part);
    }
    return err || from == (uintptr_t)to ? err : copy(d, (uintptr_t)to, from, part);
}

/* Does so with piece k of every block that this rank deals with. */
static int deal_with(const struct divided *d, size_t k,
                     int (*deal)(const struct divided *d, int owner, struct ko_part part,
                                 void *memory))
{
    int err = KOLO_OK;

    for (int owner = 0; owner < d->group->size && !err; owner++) {
        const struct ko_part part = part_of(d, owner, k);

        if (part.count && is_mine(d, owner))
            err = deal(d, owner, part, slot(d, k) + d->at[owner]);
    }
    return err;
}

static int begin_in(void *work, size_t k)
{
    return deal_with(work, k, bring);
}

/* ---- between hosts --------------------------------------------------------------------------- */

static int pass(const struct divided *d, size_t k, const struct lists *sent,
                const struct lists *wanted)
{
    const struct ko_call call = {
        .what = KO_ALL_TO_ALL,
        .in = slot(d, k),
        .out = slot(d, k),
        .dtype = KOLO_UINT8,
        .held = d->held,
        .is_uneven = true,
        .in_blocks = {.counts = sent->counts, .starts = sent->starts},
        .out_blocks = {.counts = wanted->counts, .starts = wanted->starts}};

    int err = ko_coll_run_chosen(d->group, &call);

    return err || !d->held ? err : ko_gpu_flush_writes(d->group->gpu);
}

static size_t bytes_of(const struct divided *d, int owner, size_t k)
{
    return part_of(d, owner, k).count << d->division.shift;
}

static size_t sum_at(const struct divided *d, int host)
{
    return d->sums_at + (size_t)host * d->stride;
}

/* What this rank has of blocks that it deals with for others, and of others for its own. */
static void list_passing(const struct divided *d, size_t k, bool is_inward)
{
    const struct lists *others = &d->others, *own = &d->own;

    for (int r = 0; r < d->group->size; r++) {
        const bool is_theirs = !is_mate(d, r) && is_mine(d, r), is_own = is_deputy(d, r);

        others->counts[r] = is_theirs ? bytes_of(d, r, k) : 0;
        others->starts[r] = d->at[r];
        own->counts[r] = is_own ? bytes_of(d, d->rank, k) : 0;
        own->starts[r] = is_inward ? sum_at(d, d->division.hosts->host[r]) : d->at[d->rank];
    }
}

/* Waits until the GPU has done all that was begun. */
static int await_gpu(const struct divided *d)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(d->group));
    struct ko_gpu *gpu = d->group->gpu;
    struct ko_gpu_mark *mark;
    int err = ko_gpu_mark_own(gpu, &mark);

    if (err)
        return err;
    err = ko_gpu_await_mark(gpu, mark, &deadline);
    ko_gpu_let_go(gpu, mark);
    return err;
}

static int reduce_on_gpu(const struct divided *d, struct ko_fold *fold)
{
    int err = ko_gpu_enter(d->group->gpu);

    if (err)
        return err;
    err = ko_cuda_fold(d->call->dtype, d->call->op, *fold, d->group->size,
                       ko_gpu_own_stream(d->group->gpu));
    ko_gpu_leave(d->group->gpu);
    return err ? err : await_gpu(d);
}

/* All that the hosts have for this rank's block. */
static int reduce(const struct divided *d, size_t k)
{
    const struct ko_part part = part_of(d, d->rank, k);
    const int nhosts = d->division.hosts->n;
    unsigned char *own = slot(d, k) + d->at[d->rank];
    struct ko_fold fold = {.count = part.count, .nparts = (uint32_t)nhosts, .nouts = 1};

    for (int host = 0; host < nhosts; host++)
        d->parts[host] = host == d->host ? own : slot(d, k) + sum_at(d, host);
    for (int host = 0; host < nhosts && d->held; host++)
        fold.parts[host] = (uintptr_t)d->parts[host];
    fold.outs[0] = (uintptr_t)own;
    if (!part.count)
        return KOLO_OK;
    if (d->held)
        return reduce_on_gpu(d, &fold);
    ko_reduction_of(d->call->dtype, d->call->op)
        ->many(own, d->parts, nhosts, part.count, d->group->size);
    return KOLO_OK;
}

static bool is_for_owners(enum ko_collective what)
{
    return what == KO_REDUCE || what == KO_REDUCE_SCATTER;
}

static int cross(void *work, size_t k)
{
    const struct divided *d = work;
    int err = KOLO_OK;

    if (ko_is_reducing(d->call->what)) {
        list_passing(d, k, true);
        err = pass(d, k, &d->others, &d->own);
        if (!err)
            err = reduce(d, k);
    }
    if (!err && !is_for_owners(d->call->what)) {
        list_passing(d, k, false);
        err = pass(d, k, &d->own, &d->others);
    }
    return err;
}

/* ---- from slots to the GPUs ------------------------------------------------------------------ */

/* Where the result for a part of the block is: this rank's part of what the host's own ranks give
 * is on its GPU. */
static uint64_t result_at(const struct divided *d, int owner, struct ko_part part, const void *from)
{
    if (ko_is_reducing(d->call->what) || owner != d->rank)
        return (uintptr_t)from;
    return d->call->what == KO_ALL_GATHER || d->rank == d->call->root
               ? in_at(d, d->rank, owner, part)
               : out_at(d, d->rank, owner, part);
}

/* To this rank's GPU, and from there to the others', beginning with the one behind it, so that not
 * all send to one at a time. */
static int hand_out(const struct divided *d, int owner, struct ko_part part, void *memory)
{
    const int place = d->division.hosts->place[d->rank];
    uint64_t from = result_at(d, owner, part, memory);
    int err = KOLO_OK;

    if (has_result(d, owner)) {
        const uint64_t to = out_at(d, d->rank, owner, part);

        if (to != from)
            err = copy(d, to, from, part);
        from = to;
    }
    for (int i = 1; i < d->nmates && !err; i++) {
        const int mate = d->mates[around(place + i, d->nmates)];

        if (ko_division_has_result(&d->division, mate, owner))
            err = copy(d, out_at(d, mate, owner, part), from, part);
    }
    return err;
}

static int begin_out(void *work, size_t k)
{
    return deal_with(work, k, hand_out);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* For what is as long as the group has ranks, or hosts. */
static int make_lists(struct divided *d)
{
    const size_t n = (size_t)d->group->size, nhosts = (size_t)d->division.hosts->n;
    const size_t nbytes = n * (sizeof *d->offers + 5 * sizeof *d->at) + nhosts * sizeof *d->parts;

    d->offers = ko_alloc(nbytes, "a call that hosts divide");
    if (!d->offers)
        return KOLO_E_NOMEM;
    d->at = (size_t *)(void *)(d->offers + n);
    d->others = (struct lists){d->at + n, d->at + 2 * n};
    d->own = (struct lists){d->at + 3 * n, d->at + 4 * n};
    d->parts = (const void **)(void *)(d->at + 5 * n);
    return KOLO_OK;
}

static void lay_out(struct divided *d)
{
    size_t nblocks = 0;

    d->stride = ((d->most << d->division.shift) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int owner = 0; owner < d->group->size; owner++)
        if (is_mine(d, owner))
            d->at[owner] = nblocks++ * d->stride;
    d->sums_at = nblocks * d->stride;
    if (ko_is_reducing(d->call->what))
        nblocks += (size_t)d->division.hosts->n;
    d->slot_bytes = nblocks * d->stride;
}

static int make_room(struct divided *d)
{
    int err = KOLO_OK;

    if (d->held)
        return KOLO_OK;
    err = ko_gpu_staging(d->group->gpu, 2 * d->slot_bytes, &d->memory);
    if (!err && ko_is_reducing(d->call->what))
        err = ko_gpu_scratch(d->group->gpu, KO_GPU_FOR_PIECES, d->stride, &d->scratch);
    return err ? ko_group_fail(d->group, err, kolo_last_error()) : KOLO_OK;
}

/* What all ranks know of the call. A rank of the smallest host has slots of a piece's length. */
static int begin(struct divided *d)
{
    const struct ko_hosts *hosts = d->group->hosts;
    int64_t nbytes;
    int err = ko_config_number(KO_CONFIG_CUDA_PIECE_BYTES, &nbytes);

    if (err)
        return err;
    d->division = (struct ko_division){.what = d->call->what,
                                       .hosts = hosts,
                                       .n = d->group->size,
                                       .root = d->call->root,
                                       .count = d->call->count,
                                       .shift = ko_dtype_shift(d->call->dtype)};
    d->rank = d->group->rank;
    d->host = hosts->host[d->rank];
    d->nmates = host_size(hosts, d->host);
    d->mates = hosts->ranks + hosts->begins[d->host];
    d->most = ko_division_piece(&d->division, (uint64_t)nbytes * (unsigned)hosts->least);
    err = make_lists(d);
    if (err)
        return ko_group_fail(d->group, err, kolo_last_error());
    lay_out(d);
    return KOLO_OK;
}

/* Puts the slots on the GPU, if the adapters of all links that this rank's share goes by, once they
 * are open, have them there, and its kernels reduce as many parts as there are hosts. */
static void hold_slots(struct divided *d)
{
    ko_cu_ptr slots = 0;

    if (ko_is_reducing(d->call->what) && d->division.hosts->n > KO_FOLD_MOST)
        return;
    for (int r = 0; r < d->group->size; r++) {
        struct ko_link *link = d->group->collectives.ports[r].link;

        if (is_mate(d, r) || (!is_mine(d, r) && !is_deputy(d, r)))
            continue;
        ko_held_let_go(d->held);
        d->held = NULL;
        if (!link || !ko_link_reaches_gpus(link) ||
            (!slots && ko_gpu_scratch(d->group->gpu, KO_GPU_FOR_PIECES, 2 * d->slot_bytes, &slots)))
            return;
        d->held = ko_link_hold(link, d->group->gpu, (void *)(uintptr_t)slots, 2 * d->slot_bytes);
        if (!d->held)
            return;
    }
    d->memory = (unsigned char *)(uintptr_t)slots;
}

/* The slots are on the GPUs of all ranks, or of none. */
static void settle(struct divided *d)
{
    const struct ko_offer *offers = d->offers;

    for (int r = 0; r < d->group->size; r++)
        if (!offers[r].is_direct) {
            ko_held_let_go(d->held);
            d->held = NULL;
        }
    for (int i = 0; i < d->nmates; i++) {
        const int r = d->mates[i];

        d->ins[i] = ko_gpu_share_address(d->group->share, r, &offers[r].in);
        d->outs[i] = ko_gpu_share_address(d->group->share, r, &offers[r].out);
        d->factors[i] = offers[r].factor;
    }
}

static int carry_out(struct divided *d)
{
    struct ko_piecework piecework = {.group = d->group,
                                     .call = d->call,
                                     .n = ko_division_npieces(&d->division, d->most),
                                     .is_on_gpu = true,
                                     .begin_in = begin_in,
                                     .cross = cross,
                                     .begin_out = begin_out};
    int err;

    settle(d);
    err = make_room(d);
    if (!err)
        err = ko_coll_begin_writing(d->group);
    if (!err)
        err = ko_coll_run_pieces(&piecework, d);
    if (!err)
        ko_coll_end_writing(d->group);
    return err ? err : ko_coll_exchange(d->group, KO_BARRIER, NULL, NULL, 0, 0);
}

int ko_coll_run_divided(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    struct divided divided = {.group = group, .call = call};
    enum ko_reach reach = KO_UNREACHED;
    int err = begin(&divided);

    if (!err)
        err = ko_coll_await_input(group, call);
    if (!err) {
        hold_slots(&divided);
        err = ko_coll_meet(group, call, divided.held, divided.offers, &reach);
    }
    group->gpu_ways.divided += !err && reach == KO_REACHED;
    if (!err && reach == KO_REACHED)
        err = carry_out(&divided);
    ko_held_let_go(divided.held);
    free(divided.offers);
    return err || reach == KO_REACHED ? err : ko_coll_run_by_host(group, call, run);
}
