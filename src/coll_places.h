/* SPDX-License-Identifier: MIT
 *
 * coll_places.h: whether a call's two buffers overlap where they must not. Blocks are all of one
 * length here. Two compares at most, since every repeated call is looked at so.
 */
#ifndef KO_COLL_PLACES_H
#define KO_COLL_PLACES_H

#include "coll.h"
#include "dtype.h"

#include <stdint.h>

/* The bytes of in and out, and how far in begins behind out where they may lie in place. */
struct ko_places {
    size_t in_bytes, out_bytes;
    uintptr_t in_place; /* wraps, if it is before out */
};

/* Of rank `rank` of n, with blocks of nbytes. For all_to_all, which has none, in place is right
 * behind each other. */
static inline struct ko_places ko_places_of(enum ko_collective what, size_t nbytes, int n, int rank)
{
    const bool has_ins = ko_has_blocks(what, false), has_outs = ko_has_blocks(what, true);
    const size_t all = (size_t)n * nbytes, own = (size_t)rank * nbytes;
    struct ko_places places = {has_ins ? all : nbytes, has_outs ? all : nbytes, 0};

    if (has_ins && has_outs)
        places.in_place = all;
    else if (has_outs)
        places.in_place = own;
    else if (has_ins)
        places.in_place = (uintptr_t)0 - own;
    return places;
}

static inline bool ko_places_allow(const struct ko_places *places, const void *in, const void *out)
{
    const uintptr_t behind = (uintptr_t)in - (uintptr_t)out;

    return behind == places->in_place ||
           (behind >= places->out_bytes && (uintptr_t)0 - behind >= places->in_bytes);
}

/* Of a call whose counts are right, on a rank that has both buffers. Blocks of different lengths
 * are not looked at, nor what a rank that is not the root has not. */
static inline bool ko_call_is_placed(const kolo_group *group, const struct ko_call *call)
{
    const struct ko_places places = ko_places_of(
        call->what, call->count << ko_dtype_shift(call->dtype), group->size, group->rank);

    return call->is_uneven || (ko_has_root(call->what) && call->root != group->rank) ||
           ko_places_allow(&places, call->in, call->out);
}

#endif
