/* SPDX-License-Identifier: MIT
 *
 * What a call's arguments have to be: types that go together, buffers that are there, do not end
 * where no memory is, and do not overlap but as they may.
 */
#include "coll.h"
#include "coll_epilogue.h"
#include "coll_places.h"
#include "dtype.h"
#include "status.h"

#include <stdio.h>

int ko_call_say_where(const char *name, int err)
{
    char text[KO_ERROR_TEXT];

    ko_error_keep(text);
    return ko_fail(err, "%s: %s", name, text);
}

/* Whether the buffer has a block for each rank, on this one. */
static bool has_blocks(const kolo_group *group, const struct ko_call *call, bool is_out)
{
    return ko_has_blocks(call->what, is_out) &&
           (!ko_has_root(call->what) || call->root == group->rank);
}

/* Elements from a buffer's beginning to its last block's end; false: more than memory has. */
static bool extent(const kolo_group *group, const struct ko_call *call,
                   const struct ko_blocks *blocks, size_t *count)
{
    size_t end;

    if (!call->is_uneven)
        return !__builtin_mul_overflow(call->count, (size_t)group->size, count);
    *count = 0;
    for (int i = 0; i < group->size; i++) {
        if (__builtin_add_overflow(blocks->counts[i], blocks->starts[i], &end))
            return false;
        *count = blocks->counts[i] && end > *count ? end : *count;
    }
    return true;
}

/* Elements of a buffer; false: more than memory has. */
static bool buffer_count(const kolo_group *group, const struct ko_call *call, bool is_out,
                         size_t *count)
{
    const struct ko_blocks *blocks = is_out ? &call->out_blocks : &call->in_blocks;

    *count = call->count;
    return !has_blocks(group, call, is_out) || extent(group, call, blocks, count);
}

/* A step's parameters are float32 whatever its gradients are. */
static unsigned shift_of(const struct ko_call *call, bool is_out)
{
    return ko_dtype_shift(is_out && ko_call_has_step(call) ? KOLO_FLOAT32 : call->dtype);
}

size_t ko_call_bytes(const kolo_group *group, const struct ko_call *call, bool is_out)
{
    size_t count;

    (void)buffer_count(group, call, is_out, &count);
    return count << shift_of(call, is_out);
}

/* The first rank whose block ends where no memory is. */
static int find_too_long(const kolo_group *group, const struct ko_blocks *blocks, size_t most)
{
    int rank = 0;

    while (rank < group->size - 1 && blocks->counts[rank] <= most &&
           blocks->starts[rank] <= most - blocks->counts[rank])
        rank++;
    return rank;
}

static int fail_length(const kolo_group *group, const struct ko_call *call, bool is_out)
{
    const struct ko_blocks *blocks = is_out ? &call->out_blocks : &call->in_blocks;
    const size_t most = SIZE_MAX / kolo_dtype_size(call->dtype);
    const bool has = has_blocks(group, call, is_out);
    const int rank = call->is_uneven && has ? find_too_long(group, blocks, most) : group->rank;

    if (!call->is_uneven)
        return ko_fail(KOLO_E_INVALID,
                       "%s: %zu elements of %s for %d ranks are more than memory has",
                       ko_call_name(call), call->count, kolo_dtype_name(call->dtype), group->size);
    return ko_fail(KOLO_E_INVALID,
                   "%s: rank %d's block in %s, of %zu elements of %s from element %zu on, is more "
                   "than memory has",
                   ko_call_name(call), rank, is_out ? "out" : "in",
                   has ? blocks->counts[rank] : call->count, kolo_dtype_name(call->dtype),
                   has ? blocks->starts[rank] : 0);
}

static int check_buffer(const kolo_group *group, const struct ko_call *call, bool is_out,
                        bool is_needed)
{
    const void *buffer = is_out ? call->out : call->in;
    const char *name = call->what == KO_BROADCAST ? "buffer" : is_out ? "out" : "in";
    size_t count;

    if (!buffer_count(group, call, is_out, &count) || count > SIZE_MAX >> shift_of(call, is_out))
        return fail_length(group, call, is_out);
    if (count && is_needed && !buffer)
        return ko_fail(KOLO_E_INVALID, "%s: %s is NULL, with %zu elements", ko_call_name(call),
                       name, count);
    return KOLO_OK;
}

static int fail_overlap(const struct ko_call *call)
{
    const char *where = ko_has_blocks(call->what, true)    ? "in is not out + rank*count"
                        : ko_has_blocks(call->what, false) ? "out is not in + rank*count"
                                                           : "are not the same";

    if (call->what == KO_ALL_TO_ALL)
        return ko_fail(KOLO_E_INVALID, "%s: in and out must be different buffers",
                       ko_call_name(call));
    return ko_fail(KOLO_E_INVALID, "%s: in and out overlap, and %s", ko_call_name(call), where);
}

static int check_buffers(const kolo_group *group, const struct ko_call *call)
{
    const bool is_root = !ko_has_root(call->what) || call->root == group->rank;
    const bool needs_in = call->what != KO_SCATTER || is_root;
    const bool needs_out = (call->what != KO_REDUCE && call->what != KO_GATHER) || is_root;
    int err = check_buffer(group, call, false, needs_in);

    if (!err)
        err = check_buffer(group, call, true, needs_out);
    if (err || !call->in || !call->out)
        return err;
    if (call->is_uneven && call->what == KO_ALL_TO_ALL && call->in == call->out)
        return fail_overlap(call);
    if (ko_call_has_step(call)) /* which has arrays instead */
        return KOLO_OK;
    return ko_call_is_placed(group, call) ? KOLO_OK : fail_overlap(call);
}

static int check_tensors(const kolo_group *group, const struct ko_call *call)
{
    int err = KOLO_OK;

    if (call->ntensors && !call->tensors)
        return ko_fail(KOLO_E_INVALID, "%s: tensors is NULL", ko_call_name(call));
    for (size_t i = 0; i < call->ntensors && !err; i++) {
        const struct ko_call part = ko_coll_tensor(call, i);
        char name[64];

        err = check_buffers(group, &part);
        snprintf(name, sizeof name, "%s: tensor %zu", ko_call_name(call), i);
        if (err)
            err = ko_call_say_where(name, err);
    }
    return err;
}

int ko_call_check(kolo_group *group, const struct ko_call *call)
{
    const char *name = ko_call_name(call);
    struct ko_reduction unused;
    int err = KOLO_OK;

    if (!ko_dtype_is_valid(call->dtype))
        return ko_fail(KOLO_E_INVALID, "%s: %d is no dtype", name, (int)call->dtype);
    if (ko_is_reducing(call->what) && !ko_reduction_of(call->dtype, call->op))
        err = ko_reduction_find(call->dtype, call->op, &unused); /* which says why */
    if (!err && ko_has_root(call->what))
        err = ko_group_check_rank(group, call->root, "the root");
    if (err)
        return ko_call_say_where(name, err);
    return call->is_coalesced ? check_tensors(group, call) : check_buffers(group, call);
}
