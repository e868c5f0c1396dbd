/* SPDX-License-Identifier: MIT
 *
 * A collective of one rank alone, which sends nothing.
 */
#include "coll.h"
#include "dtype.h"
#include "reduce.h"

#include <string.h>

static int scale_alone(const struct ko_call *call, void *out, const void *in, size_t count)
{
    struct ko_reduction reduction;
    int err = ko_reduction_find(call->dtype, call->op, &reduction);

    if (!err)
        reduction.scale(out, in, count, call->factor);
    return err;
}

static int run_alone_once(const struct ko_call *call)
{
    const size_t element = kolo_dtype_size(call->dtype);
    const struct ko_blocks *ins = &call->in_blocks, *outs = &call->out_blocks;
    const unsigned char *in = call->in;
    unsigned char *out = call->out;
    size_t count = call->count;

    if (ins->counts) {
        in += ins->starts[0] * element;
        count = ins->counts[0];
    }
    if (outs->counts)
        out += outs->starts[0] * element;
    if (call->is_scaled)
        return scale_alone(call, out, in, count);
    if (ko_is_reducing(call->what))
        return ko_reduce_single(call->dtype, call->op, out, in, count);
    if (out != in && count)
        memmove(out, in, count * element);
    return KOLO_OK;
}

int ko_coll_run_alone(const struct ko_call *call)
{
    int err = KOLO_OK;

    if (!call->is_coalesced)
        return run_alone_once(call);
    for (size_t i = 0; i < call->ntensors && !err; i++) {
        const struct ko_call part = ko_coll_tensor(call, i);

        err = run_alone_once(&part);
    }
    return err;
}
