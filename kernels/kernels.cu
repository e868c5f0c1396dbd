/* SPDX-License-Identifier: MIT
 *
 * All kernels: ko_fold_DTYPE_OP, for every dtype and the operations that it has: AVG is SUM with a
 * divisor; SUM, PROD, MIN and MAX of bool are BOR and BAND. ko_premul_DTYPE, for every dtype.
 * ko_scale_FROM_TO, ko_sgd_DTYPE and ko_adam_DTYPE, for the dtypes that gradients have, and sums of
 * float32 rounded to a smaller one: ko_fold_float32_as_DTYPE_sum, ko_sgd_float32_as_DTYPE,
 * ko_adam_float32_as_DTYPE. ko_push_bytes, ko_tell_words.
 */
#include "epilogue.cuh"
#include "push.cuh"

/* The more blocks a multiprocessor has, the more bytes are on their way. Three need registers for
 * that: it has them where compute capability is 9.0, unless a pack has many elements. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define BLOCKS_OF(name) (sizeof(ko_##name::bits) > 1 ? 3 : 2)
#else
#define BLOCKS_OF(name) 2
#endif

#define FOLD(name, op)                                                      \
    KO_KERNEL_OF(BLOCKS_OF(name), ko_fold_##name##_##op, ko_fold, fold)     \
    {                                                                       \
        ko_fold_all<ko_op_##op<ko_##name>>(fold, ko_as_it_is<ko_##name>()); \
    }
#define PREMUL(name, op)                                                    \
    KO_KERNEL_OF(BLOCKS_OF(name), ko_premul_##name, ko_premul_fold, premul) \
    {                                                                       \
        const ko_times<ko_##name> factor = {premul.factors};                \
                                                                            \
        ko_fold_all<ko_op_##op<ko_##name>>(premul.fold, factor);            \
    }
#define ARITHMETIC(name) \
    FOLD(name, sum) FOLD(name, prod) FOLD(name, min) FOLD(name, max) PREMUL(name, sum)
#define BITWISE(name) FOLD(name, band) FOLD(name, bor) FOLD(name, bxor)
#define SIGNED(name) ARITHMETIC(name) BITWISE(name)
#define UNSIGNED(name) ARITHMETIC(name) BITWISE(name)
#define FLOAT(name) ARITHMETIC(name)
#define HALF(name) ARITHMETIC(name)
#define SMALL(name) ARITHMETIC(name)
#define BYTE(name) ARITHMETIC(name)
#define BOOL(name) BITWISE(name) PREMUL(name, bor)

#define KERNELS_OF(id, name, type, kind, work) kind(name)
KO_DTYPE_LIST(KERNELS_OF)

#define SCALE(from, to)                                \
    KO_KERNEL(ko_scale_##from##_##to, ko_scale, scale) \
    {                                                  \
        ko_scale_arrays<ko_##from, ko_##to>(scale);    \
    }
#define STEP(rule, name)                          \
    KO_KERNEL(ko_##rule##_##name, ko_step, step)  \
    {                                             \
        ko_take_step<ko_##rule, ko_##name>(step); \
    }
#define STEPS(name) STEP(sgd, name) STEP(adam, name)
#define EPILOGUES(name) SCALE(name, float32) SCALE(name, float16) SCALE(name, bfloat16) STEPS(name)
EPILOGUES(float32)
EPILOGUES(float16)
EPILOGUES(bfloat16)
FOLD(float32_as_float16, sum)
FOLD(float32_as_bfloat16, sum)
STEPS(float32_as_float16)
STEPS(float32_as_bfloat16)

KO_KERNEL(ko_push_bytes, ko_push, push)
{
    ko_push_all(push);
}

KO_KERNEL(ko_tell_words, ko_tell, tell)
{
    ko_tell_all(tell);
}
