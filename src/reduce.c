/* SPDX-License-Identifier: MIT
 *
 * Every (dtype, op) has loops of its own, made from the lists of dtype.h by reduce_loops.h.
 */
#include "reduce.h"

#include "dtype.h"
#include "reduce_levels.h"
#include "status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include <stdatomic.h>
#include <string.h>

struct level {
    const char *name;
    const ko_reduction_table *reductions;
};

static const struct level levels[] = {
    {"plain", &ko_reductions_plain},
#if defined(__x86_64__)
    {"avx2", &ko_reductions_avx2},
    {"avx512", &ko_reductions_avx512},
#elif defined(__aarch64__)
    {"neon", &ko_reductions_neon},
#endif
};

#if defined(__x86_64__)
/* Asked of the CPU itself, since clang 14 has no name for it; that the operating system keeps its
 * registers goes with AVX2. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}
#endif

static int count_levels(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !has_f16c())
        return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? 3
               : 2;
#elif defined(__aarch64__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMD ? 2 : 1;
#else
    return 1;
#endif
}

/* A machine with a hypervisor takes 20 us for the question: it is asked once, and whoever asks
 * first finds what anybody would. */
int ko_reduction_nlevels(void)
{
    static atomic_int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);

    if (!n) {
        n = count_levels();
        atomic_store_explicit(&known, n, memory_order_relaxed);
    }
    return n;
}

const char *ko_reduction_level_name(int level)
{
    return levels[level].name;
}

int ko_reduction_find_at(int level, kolo_dtype dtype, kolo_op op, struct ko_reduction *reduction)
{
    if (!ko_dtype_is_valid(dtype))
        return ko_fail(KOLO_E_INVALID, "%d is no dtype; enum kolo_dtype lists them", (int)dtype);
    if (!ko_op_is_valid(op))
        return ko_fail(KOLO_E_INVALID, "%d is no reduction; enum kolo_op lists them", (int)op);
    if (!(*levels[level].reductions)[dtype][op].step)
        return ko_fail(KOLO_E_UNSUPPORTED, "%s is for %s, not for %s", kolo_op_name(op),
                       op == KOLO_AVG ? "numbers" : "integers", kolo_dtype_name(dtype));
    *reduction = (*levels[level].reductions)[dtype][op];
    return KOLO_OK;
}

const struct ko_reduction *ko_reduction_of(kolo_dtype dtype, kolo_op op)
{
    const ko_reduction_table *table = levels[ko_reduction_nlevels() - 1].reductions;

    return ko_dtype_is_valid(dtype) && ko_op_is_valid(op) && (*table)[dtype][op].step
               ? &(*table)[dtype][op]
               : NULL;
}

int ko_reduction_find(kolo_dtype dtype, kolo_op op, struct ko_reduction *reduction)
{
    return ko_reduction_find_at(ko_reduction_nlevels() - 1, dtype, op, reduction);
}

int ko_reduce_single(kolo_dtype dtype, kolo_op op, void *out, const void *in, size_t count)
{
    struct ko_reduction reduction;
    int err = ko_reduction_find(dtype, op, &reduction);

    if (err || !count)
        return err;
    if (dtype == KOLO_BOOL)
        reduction.many(out, &in, 1, count, 1);
    else if (out != in)
        memcpy(out, in, count * kolo_dtype_size(dtype));
    return KOLO_OK;
}
