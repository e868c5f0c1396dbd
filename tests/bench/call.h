/* SPDX-License-Identifier: MIT
 *
 * call.h: one collective of floats, as the benches of several call it.
 */
#ifndef CALL_H
#define CALL_H

#include "coll.h"

/* Of the call below: by which an algorithm is chosen. */
static inline size_t block_bytes(enum ko_collective what, size_t nbytes, int n)
{
    const bool has_blocks = ko_has_blocks(what, false) || ko_has_blocks(what, true);

    return nbytes / 4 / (has_blocks ? (size_t)n : 1) * 4;
}

/* nbytes of the longer buffer; the root is rank 0. */
static int call(kolo_group *g, enum ko_collective what, const void *in, void *out, size_t nbytes)
{
    const size_t count = nbytes / 4, block = count / (size_t)kolo_group_size(g);

    switch (what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce(g, in, out, count, KOLO_FLOAT32, KOLO_SUM);
    case KO_REDUCE:
        return kolo_reduce(g, in, out, count, KOLO_FLOAT32, KOLO_SUM, 0);
    case KO_BROADCAST:
        return kolo_broadcast(g, out, count, KOLO_FLOAT32, 0);
    case KO_ALL_GATHER:
        return kolo_all_gather(g, in, out, block, KOLO_FLOAT32);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter(g, in, out, block, KOLO_FLOAT32, KOLO_SUM);
    case KO_GATHER:
        return kolo_gather(g, in, out, block, KOLO_FLOAT32, 0);
    case KO_SCATTER:
        return kolo_scatter(g, in, out, block, KOLO_FLOAT32, 0);
    case KO_ALL_TO_ALL:
        return kolo_all_to_all(g, in, out, block, KOLO_FLOAT32);
    default:
        return kolo_barrier(g);
    }
}

#endif
