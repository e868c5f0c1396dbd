/* SPDX-License-Identifier: MIT
 *
 * The kernels ko_fold_DTYPE_OP, for every dtype and the operations that it has: AVG is SUM with a
 * divisor; SUM, PROD, MIN and MAX of bool are BOR and BAND.
 */
#include "fold.cuh"

#define FOLD(name, op)                                                        \
    KO_KERNEL(ko_fold_##name##_##op, ko_fold, fold)                           \
    {                                                                         \
        ko_fold_share<ko_op_##op<ko_##name>>(fold, ko_block(), ko_nblocks()); \
    }
#define ARITHMETIC(name) FOLD(name, sum) FOLD(name, prod) FOLD(name, min) FOLD(name, max)
#define BITWISE(name) FOLD(name, band) FOLD(name, bor) FOLD(name, bxor)
#define SIGNED(name) ARITHMETIC(name) BITWISE(name)
#define UNSIGNED(name) ARITHMETIC(name) BITWISE(name)
#define FLOAT(name) ARITHMETIC(name)
#define HALF(name) ARITHMETIC(name)
#define SMALL(name) ARITHMETIC(name)
#define BYTE(name) ARITHMETIC(name)
#define BOOL(name) BITWISE(name)

#define KERNELS_OF(id, name, type, kind, work) kind(name)
KO_DTYPE_LIST(KERNELS_OF)
