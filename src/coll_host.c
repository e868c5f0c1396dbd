/* SPDX-License-Identifier: MIT
 *
 * The texts of kernels/ over links: the host's body of every algorithm.
 */
#include "coll.h"

#include "coll_flow.h"
#include "dtype.h"
#include "log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_host.h"

#include "bruck.h"
#include "direct.h"
#include "doubling.h"
#include "hierarchical.h"
#include "hierarchical_all_to_all.h"
#include "hierarchical_blocks.h"
#include "hierarchical_doubling.h"
#include "hierarchical_gather.h"
#include "hierarchical_rooted.h"
#include "ring.h"
#include "tree.h"

enum { REPEATED_BYTES = 64 << 10 /* of blocks; for longer ones a check is nothing */ };

const struct ko_algorithm ko_algorithms[] = {
#define ALGORITHM_ROW(what, name, text, flags, why) {KO_##what, name, text, flags, why},
    KO_ALGORITHM_LIST(ALGORITHM_ROW)
#undef ALGORITHM_ROW
};
const int ko_nalgorithms = sizeof ko_algorithms / sizeof *ko_algorithms;

/* What was posted by reference has to leave before the caller may touch its buffers; and what lies
 * in a link's own slots, too: after the call there is nobody to drive it. */
static __attribute__((noinline)) void flush(verbs *v)
{
    for (int i = 0; i < v->n && !v->status; i++) {
        struct ko_link *link = v->channel->ports[i].link;

        while (link && look_again(v, i, NEED_FLUSH, ko_link_is_flushed(link)))
            ;
    }
    v->has_posted = false;
}

/* What all ranks know of the call's size. */
static uint64_t agreed_count(const kolo_group *group, const struct ko_call *call)
{
    const struct ko_blocks *blocks =
        call->what == KO_ALL_GATHER ? &call->out_blocks : &call->in_blocks;
    uint64_t sum = 0;

    if (!call->is_uneven)
        return call->count;
    if (call->what != KO_ALL_GATHER && call->what != KO_REDUCE_SCATTER)
        return 0;
    for (int i = 0; i < group->size; i++)
        sum += blocks->counts[i];
    return sum;
}

static struct ko_extent extent_of(const kolo_group *group, const struct ko_call *call,
                                  size_t nbytes)
{
    return (struct ko_extent){.what = call->what,
                              .n = (size_t)group->size,
                              .nbytes = nbytes,
                              .cache_bytes = group->endpoint->cache_bytes,
                              .trade_bytes = group->endpoint->trade_bytes,
                              .slice_bytes = ko_group_slice_bytes(group),
                              .is_in_place = call->in == call->out};
}

/* Whether OUT does better to be copied than to be mapped and read where it lies: by measurement,
 * among two, since a root waits until all is read. */
static bool is_better_copied(const struct ko_extent *extent)
{
    return extent->n == 2 && extent->what == KO_BROADCAST && extent->nbytes < KO_LENT_BROADCAST;
}

/* Bytes of a block of which several slices may be left to a peer to be read at once, or 0. */
static size_t block_that_goes(const struct ko_call *call, const struct ko_extent *extent,
                              unsigned flags)
{
    const bool goes = flags & KO_BLOCKS && !call->is_uneven && !call->held && extent->n == 2;

    return goes && (ko_is_for_one(extent) || !ko_is_beyond_cache(extent)) ? extent->nbytes : 0;
}

/* What calls of one kind have in common. */
static void prepare(verbs *v, kolo_group *group, const struct ko_call *call, int algorithm)
{
    const unsigned shift = ko_dtype_shift(call->dtype);
    const struct ko_extent extent = extent_of(group, call, call->count << shift);

    v->n = group->size;
    v->rank = group->rank;
    v->count = call->count;
    v->slice = extent.slice_bytes >> shift;
    v->in_blocks = call->in_blocks;
    v->in_blocks.count = call->is_uneven ? 0 : call->count;
    v->out_blocks = call->out_blocks;
    v->out_blocks.count = call->is_uneven ? 0 : call->count;
    v->hosts = group->hosts;
    v->ranks = group->ranks;
    v->by_host = false;
    v->run = ko_algorithms[algorithm].run;
    v->group = group;
    v->channel = &group->collectives;
    v->element = (size_t)1 << shift;
    v->reduction = ko_is_reducing(call->what) ? ko_reduction_of(call->dtype, call->op) : NULL;
    v->folded = ko_folded_flow_of(&extent);
    v->flow = call->what == KO_REDUCE_SCATTER ? v->folded : ko_flow_of(&extent);
    group->collectives.is_trading = ko_is_traded(&extent);
    v->is_copying = is_better_copied(&extent);
    v->is_large = ko_is_beyond_cache(&extent);
    v->held = call->held;
    v->is_streaming = v->is_large && !(ko_algorithms[algorithm].flags & (KO_REREADS | KO_BY_ALL));
    v->stamp = (struct ko_stamp){.count = agreed_count(group, call),
                                 .what = ko_call_what(call),
                                 .dtype = (uint8_t)call->dtype,
                                 .op = (uint8_t)(call->is_scaled ? KO_PREMUL : call->op),
                                 .algorithm = (uint8_t)algorithm};
    v->block = block_that_goes(call, &extent, ko_algorithms[algorithm].flags);
    v->ngone = 0;
    v->has_posted = false;
    v->is_waiting = false;
    v->status = KOLO_OK;
}

/* What each call has of its own. The rest is as `prepare` leaves it, or a call without an error. */
static void begin(verbs *v, const void *in, void *out, int root)
{
    v->stamp.seq = ++v->group->seq;
    ko_stamp_set_root(&v->stamp, (uint32_t)root);
    v->root = root;
    v->buffers[IN] = (unsigned char *)(uintptr_t)in; /* which no verb writes */
    v->buffers[OUT] = out;
}

/* Elements of IN. */
static size_t in_count(const kolo_group *group, const struct ko_call *call)
{
    size_t count = 0;

    if (call->what != KO_REDUCE_SCATTER)
        return call->count;
    for (int i = 0; i < group->size; i++)
        count += call->is_uneven ? call->in_blocks.counts[i] : call->count;
    return count;
}

/* One block behind the other, whatever lies between them; starts has room to say where. */
static void scale_blocks(verbs *v, unsigned char *memory, size_t *starts, double factor)
{
    const struct ko_blocks blocks = v->in_blocks;
    size_t end = 0;

    for (int i = 0; i < v->n; i++) {
        const struct ko_part block = block_of(&blocks, i);

        if (block.count)
            v->reduction->scale(memory + end * v->element, at(v, IN, block), block.count, factor);
        starts[i] = end;
        end += block.count;
    }
    v->in_blocks.starts = starts;
}

/* Lets the texts read the input times the factor. */
static int scale(verbs *v, const struct ko_call *call)
{
    const size_t count = in_count(v->group, call);
    const size_t list = v->in_blocks.counts ? (size_t)v->n * sizeof(size_t) : 0;
    unsigned char *memory;
    int err = ko_group_scaled(v->group, list + count * v->element, &memory);

    if (err)
        return err;
    assert(v->reduction); /* is_scaled is for reductions only */
    if (list)
        scale_blocks(v, memory + list, (size_t *)(void *)memory, call->factor);
    else
        v->reduction->scale(memory, v->buffers[IN], count, call->factor);
    v->buffers[IN] = memory + list;
    return KOLO_OK;
}

static inline int carry_out(verbs *v)
{
    if (atomic_load_explicit(&v->group->mailbox, memory_order_relaxed))
        ko_mailbox_push(v->group); /* the peers may wait for it before they come here */
    v->status = ko_channel_enter(v->channel, &v->stamp);
    if (!v->status && v->group->checks_calls)
        dissemination_barrier(v);
    if (!v->status)
        v->run(v);
    if (v->has_posted)
        flush(v);
    ko_channel_leave(v->channel);
    return v->status;
}

/* The verbs of the last call of a collective; NULL after ko_fail. */
static verbs *verbs_of(kolo_group *group, enum ko_collective what)
{
    if (!group->verbs)
        group->verbs = ko_alloc(KO_NCOLLECTIVES * sizeof *group->verbs, "a group's calls");
    return group->verbs ? &group->verbs[what] : NULL;
}

/* Whether what `prepare` and the checks before it find holds for another such call, too. */
static bool is_repeatable(const kolo_group *group, const struct ko_call *call)
{
    const size_t nbytes = call->count << ko_dtype_shift(call->dtype);

    return !call->is_uneven && !call->is_scaled && !call->options && !call->ntensors &&
           nbytes <= REPEATED_BYTES &&
           (size_t)group->size * nbytes < group->endpoint->cache_bytes &&
           !ko_log_wants(KO_LOG_TRACE);
}

int ko_coll_run(kolo_group *group, const struct ko_call *call, int algorithm)
{
    verbs *v = verbs_of(group, call->what);

    if (!v)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    prepare(v, group, call, algorithm);
    begin(v, call->in, call->out, call->root);
    if (call->options)
        ko_stamp_set_root(&v->stamp, (uint32_t)call->root | call->options);
    v->is_repeatable = is_repeatable(group, call);
    v->places = ko_places_of(call->what, call->count * v->element, group->size, group->rank);
    if (call->is_scaled)
        v->status = scale(v, call);
    return v->status ? v->status : carry_out(v);
}

/* What is kept of the last such call, if this one repeats it; else NULL. */
static verbs *repeated(kolo_group *group, const struct ko_plain_call *call)
{
    verbs *v = group->verbs ? &group->verbs[call->what] : NULL;
    const bool has_buffers = (call->in && call->out) || !call->count;

    return v && v->is_repeatable && !v->status && v->count == call->count &&
                   v->stamp.dtype == call->dtype && v->stamp.op == call->op &&
                   (unsigned)call->root < (unsigned)v->n && has_buffers &&
                   ko_places_allow(&v->places, call->in, call->out)
               ? v
               : NULL;
}

int ko_coll_again(kolo_group *group, const struct ko_plain_call *call)
{
    verbs *v;
    int err = KO_AGAIN;

    if (!group || group->size == 1 || ko_group_has_stream(group) ||
        !ko_engine_try_begin(&group->engine))
        return KO_AGAIN;
    v = repeated(group, call);
    if (v) {
        err = ko_group_check(group);
        if (!err) {
            begin(v, call->in, call->out, call->root);
            err = carry_out(v);
        }
        ko_coll_tell_failure(group);
    }
    ko_engine_finish(&group->engine);
    return err;
}
