/* SPDX-License-Identifier: MIT
 *
 * Several tensors by few calls: short ones are packed one behind the other, with their blocks, if
 * they have any, rank by rank, as one tensor that is the sum of them. A long one goes by itself:
 * copying it would cost more than the call.
 */
#include "coll.h"
#include "fingerprint.h"

#include <string.h>

/* A bundle ends before it would be longer, in bytes of one block of each. */
enum { BUNDLE_BYTES = 128 * 1024 };

/* Some consecutive tensors of a call. */
struct bundle {
    const kolo_tensor *tensors;
    size_t ntensors;
    size_t count; /* of all */
};

/* A number for the tensors' lengths; a root has room before it. */
static uint32_t number_of(const struct ko_call *call)
{
    uint64_t print = KO_FINGERPRINT_BEGIN;

    for (size_t i = 0; i < call->ntensors; i++)
        print = ko_fingerprint_add(print, call->tensors[i].count);
    return ko_fingerprint_end(print) & (ko_has_root(call->what) ? ~0u << KO_ROOT_BITS : ~0u);
}

void ko_call_set_tensors(struct ko_call *call, const kolo_tensor *tensors, size_t ntensors)
{
    call->is_coalesced = true;
    call->tensors = tensors;
    call->ntensors = ntensors;
    call->options = tensors ? number_of(call) : 0;
}

static struct bundle next_bundle(const struct ko_call *call, size_t first)
{
    const size_t most = BUNDLE_BYTES / kolo_dtype_size(call->dtype);
    struct bundle bundle = {call->tensors + first, 1, call->tensors[first].count};

    for (size_t i = first + 1; i < call->ntensors; i++) {
        if (bundle.count > most || call->tensors[i].count > most - bundle.count)
            break;
        bundle.count += call->tensors[i].count;
        bundle.ntensors++;
    }
    return bundle;
}

/* Blocks in and out, of which one tensor has count elements each. */
static size_t nblocks_in(const kolo_group *group, const struct ko_call *call)
{
    return call->what == KO_REDUCE_SCATTER ? (size_t)group->size : 1;
}

static size_t nblocks_out(const kolo_group *group, const struct ko_call *call)
{
    return call->what == KO_ALL_GATHER ? (size_t)group->size : 1;
}

/* A broadcast has one buffer. */
static const unsigned char *input_of(const struct ko_call *call, const kolo_tensor *tensor)
{
    return call->what == KO_BROADCAST ? tensor->out : tensor->in;
}

static void pack(const struct ko_call *call, const struct bundle *bundle, size_t nblocks,
                 unsigned char *to)
{
    const size_t element = kolo_dtype_size(call->dtype);

    for (size_t b = 0; b < nblocks; b++)
        for (size_t i = 0; i < bundle->ntensors; i++) {
            const size_t nbytes = bundle->tensors[i].count * element;

            if (nbytes)
                memcpy(to, input_of(call, &bundle->tensors[i]) + b * nbytes, nbytes);
            to += nbytes;
        }
}

static void unpack(const struct bundle *bundle, size_t nblocks, size_t element,
                   const unsigned char *from)
{
    for (size_t b = 0; b < nblocks; b++)
        for (size_t i = 0; i < bundle->ntensors; i++) {
            const size_t nbytes = bundle->tensors[i].count * element;

            if (nbytes)
                memcpy((unsigned char *)bundle->tensors[i].out + b * nbytes, from, nbytes);
            from += nbytes;
        }
}

static int run_packed(kolo_group *group, struct ko_call *call, const struct bundle *bundle)
{
    const size_t element = kolo_dtype_size(call->dtype), ins = nblocks_in(group, call);
    const size_t outs = nblocks_out(group, call), share = bundle->count * element;
    const bool is_rooted = call->what == KO_REDUCE || call->what == KO_BROADCAST;
    const bool is_root = call->root == group->rank;
    unsigned char *memory, *in, *out;
    int err = ko_group_packing(group, (ins > outs ? ins : outs) * share, &memory);

    if (err)
        return err;
    in = memory + (outs > ins ? (size_t)group->rank * share : 0); /* all of it is in place */
    out = memory + (ins > outs ? (size_t)group->rank * share : 0);
    if (call->what != KO_BROADCAST || is_root)
        pack(call, bundle, ins, in);
    call->in = in;
    call->out = out;
    call->count = bundle->count;
    err = ko_coll_run_chosen(group, call);
    if (!err && (!is_rooted || is_root == (call->what == KO_REDUCE)))
        unpack(bundle, outs, element, out);
    return err;
}

int ko_coll_run_tensors(kolo_group *group, const struct ko_call *call)
{
    int err = KOLO_OK;

    for (size_t i = 0; i < call->ntensors && !err;) {
        const struct bundle bundle = next_bundle(call, i);
        struct ko_call part = ko_coll_tensor(call, i);

        if (bundle.ntensors > 1)
            err = run_packed(group, &part, &bundle);
        else
            err = ko_coll_run_chosen(group, &part);
        i += bundle.ntensors;
    }
    return err;
}

struct ko_call ko_coll_tensor(const struct ko_call *call, size_t i)
{
    const kolo_tensor *tensor = &call->tensors[i];
    struct ko_call part = *call;

    part.is_coalesced = false;
    part.in = input_of(call, tensor);
    part.out = tensor->out;
    part.count = tensor->count;
    return part;
}
