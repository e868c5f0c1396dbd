/* SPDX-License-Identifier: MIT
 *
 * coll_flow.h: what ranks do with the slices of a call (enum ko_flow), for who sends them and for
 * who predicts what that takes.
 */
#ifndef KO_COLL_FLOW_H
#define KO_COLL_FLOW_H

#include "algorithms.h"
#include "link.h"

#include <stdbool.h>
#include <stddef.h>

enum { KO_LENT_BROADCAST = 512 << 10 }; /* bytes, from which on a broadcast's are lent */

/* What a flow depends on. */
struct ko_extent {
    enum ko_collective what;
    size_t n;
    size_t nbytes; /* of a block */
    size_t cache_bytes, slice_bytes, trade_bytes;
    bool is_in_place;
};

/* Blocks that one of n ranks has of IN and OUT. */
static inline size_t ko_blocks_of(enum ko_collective what, size_t n)
{
    return (ko_has_blocks(what, false) ? n : 1) + (ko_has_blocks(what, true) ? n : 1);
}

/* Whether a result will have left the cache before it is read again: by measurement, if the call
 * touches on each rank about as much as two ranks have of it, or one has where a root alone has a
 * result. Results that take their inputs' place stay, since those are there already. */
static inline bool ko_is_beyond_cache(const struct ko_extent *call)
{
    if (call->n * call->nbytes < call->cache_bytes || call->is_in_place)
        return false;
    return ko_blocks_of(call->what, call->n) * call->nbytes >=
           (call->what == KO_REDUCE ? 1 : 2) * call->cache_bytes;
}

/* Whether the one other rank copies what the root has, who has nothing else to do but help it. */
static inline bool ko_is_for_one(const struct ko_extent *call)
{
    return call->n == 2 && call->what == KO_BROADCAST && call->nbytes >= KO_LENT_BROADCAST;
}

/* Whether one rank adds the other's to its own, who has nothing else to do. */
static inline bool ko_is_added(const struct ko_extent *call)
{
    return call->n == 2 && call->what == KO_REDUCE;
}

/* Whether each rank sends as much as it gets, of so much that its buffers fill its own cache. */
static inline bool ko_is_traded(const struct ko_extent *call)
{
    const bool may_be = call->what == KO_ALL_REDUCE || call->what == KO_REDUCE_SCATTER ||
                        call->what == KO_ALL_GATHER || call->what == KO_ALL_TO_ALL;

    return may_be && ko_blocks_of(call->what, call->n) * call->nbytes >= call->trade_bytes;
}

/* What becomes of slices that are sent. */
static inline enum ko_flow ko_flow_of(const struct ko_extent *call)
{
    const bool is_few = call->nbytes <= KO_FEW_SLICES * call->slice_bytes;

    if (ko_is_for_one(call))
        return KO_STREAM;
    if (ko_is_added(call))
        return KO_ADDED;
    if (call->what == KO_ALL_GATHER || call->what == KO_ALL_TO_ALL)
        return ko_is_beyond_cache(call) ? KO_USED : KO_MUTUAL;
    return ko_is_passed(call->what, (int)call->n, is_few) ? KO_PASSED : KO_USED;
}

/* The same of slices that are reduced. By both at a time, only among two, of whom all that they
 * touch is in the cache, has it been measured that these are better read where they lie. */
static inline enum ko_flow ko_folded_flow_of(const struct ko_extent *call)
{
    const bool may_be = call->what == KO_REDUCE_SCATTER || call->what == KO_ALL_REDUCE;

    if (ko_is_added(call))
        return KO_ADDED;
    return may_be && call->n == 2 &&
                   2 * ko_blocks_of(call->what, 2) * call->nbytes < call->cache_bytes
               ? KO_FOLDED
               : KO_USED;
}

#endif
