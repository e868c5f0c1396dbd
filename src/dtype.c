/* SPDX-License-Identifier: MIT */
#include "dtype.h"

enum kind { SIGNED, UNSIGNED, BOOL, FLOAT, HALF, SMALL, BYTE };

struct dtype_row {
    const char *name;
    size_t nbytes;
    enum kind kind;
};

static const struct dtype_row dtypes[KOLO_NDTYPES] = {
#define DTYPE_ROW(id, name, type, kind, work) [KOLO_##id] = {#name, sizeof(type), kind},
    KO_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static const char *const op_names[KOLO_NOPS] = {
#define OP_ROW(id, name) [KOLO_##id] = #name,
    KO_OP_LIST(OP_ROW)
#undef OP_ROW
};

bool ko_dtype_is_float(kolo_dtype dtype)
{
    return ko_dtype_is_valid(dtype) && dtypes[dtype].kind >= FLOAT;
}

size_t kolo_dtype_size(kolo_dtype dtype)
{
    return ko_dtype_is_valid(dtype) ? dtypes[dtype].nbytes : 0;
}

const char *kolo_dtype_name(kolo_dtype dtype)
{
    return ko_dtype_is_valid(dtype) ? dtypes[dtype].name : "unknown";
}

const char *kolo_op_name(kolo_op op)
{
    if ((unsigned)op > KOLO_NOPS && (unsigned)op < 256)
        return "premul_sum"; /* the op of a group */
    return ko_op_is_valid(op) ? op_names[op] : "unknown";
}
