/* SPDX-License-Identifier: MIT
 *
 * dtype.h: what is known of element types and of reductions. THE lists of both are in elements.h.
 */
#ifndef KO_DTYPE_H
#define KO_DTYPE_H

#include "elements.h"
#include "kolo.h"

#include <stdbool.h>

/* False for a number that is no dtype, or no op, at all. */
static inline bool ko_dtype_is_valid(kolo_dtype dtype)
{
    return (unsigned)dtype < KOLO_NDTYPES;
}

static inline bool ko_op_is_valid(kolo_op op)
{
    return (unsigned)op < KOLO_NOPS;
}

/* log2 of the bytes of an element. */
static inline unsigned ko_dtype_shift(kolo_dtype dtype)
{
    static const unsigned char shifts[] = {
#define DTYPE_SHIFT(id, name, type, kind, work) \
    [KOLO_##id] = sizeof(type) / 2 - sizeof(type) / 8, /* of 1, 2, 4 or 8 */
        KO_DTYPE_LIST(DTYPE_SHIFT)
#undef DTYPE_SHIFT
    };
    return shifts[dtype];
}

/* False for integers and for what is no dtype. */
bool ko_dtype_is_float(kolo_dtype dtype);

#endif
