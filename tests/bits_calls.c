/* SPDX-License-Identifier: MIT
 *
 * Calls of ranks that reach each other's GPU memory, where each sum is one of all ranks' elements
 * in the order of the ranks: on the host that is one reduction of as many parts.
 */
#include "bits.h"
#include "coll_epilogue.h"
#include "dtype.h"
#include "gpu_rank.h"
#include "gradients.h"
#include "ranks.h"
#include "reduce.h"
#include "seeded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = KO_FOLD_MOST, NSTATES = 2 };

/* What all ranks put in, and what is to come out. */
struct numbers {
    kolo_group *group;
    kolo_dtype dtype;
    kolo_op op;
    size_t count; /* of each rank's input */
    unsigned char *ins[MOST_RANKS], *want;
};

static unsigned below(unsigned n, unsigned *seed)
{
    return (unsigned)rand_r(seed) % n;
}

static void *allocate(size_t nbytes)
{
    void *memory = malloc(nbytes + 1);

    if (!memory)
        abort();
    return memory;
}

/* Any bits, but small enough as floats that no sum of them is infinite, or no number. */
static void *random_numbers(kolo_dtype dtype, size_t count, unsigned *seed)
{
    const size_t width = kolo_dtype_size(dtype), nbytes = count * width;
    unsigned char *bytes = allocate(nbytes);
    uint64_t state = (uint64_t)rand_r(seed);

    seeded_fill(&state, bytes, nbytes);
    for (size_t i = width - 1; i < nbytes && ko_dtype_is_float(dtype); i += width)
        bytes[i] &= 0xbb;
    return bytes;
}

static struct numbers numbers_new(kolo_group *group, kolo_dtype dtype, kolo_op op, size_t count,
                                  unsigned *seed)
{
    struct numbers numbers = {.group = group, .dtype = dtype, .op = op, .count = count};

    if (kolo_group_size(group) > MOST_RANKS)
        abort();
    for (int r = 0; r < kolo_group_size(group); r++)
        numbers.ins[r] = random_numbers(dtype, count, seed);
    numbers.want = allocate(count * kolo_dtype_size(dtype));
    return numbers;
}

static void numbers_free(struct numbers *numbers)
{
    for (int r = 0; r < kolo_group_size(numbers->group); r++)
        free(numbers->ins[r]);
    free(numbers->want);
}

/* As the host reduces them, once rounded to wire, which may be their own type. */
static void reduce(const struct numbers *numbers, kolo_dtype wire)
{
    const struct ko_reduction *reduction = ko_reduction_of(wire, numbers->op);
    const int n = kolo_group_size(numbers->group);
    const size_t nbytes = numbers->count * kolo_dtype_size(wire);
    unsigned char *rounded = allocate((size_t)(n + 1) * nbytes);
    struct ko_scale scale = {.counts = {numbers->count}, .factor = 1, .n = 1};
    const void *parts[MOST_RANKS];

    for (int r = 0; r < n; r++) {
        parts[r] = wire == numbers->dtype ? numbers->ins[r] : rounded + (size_t)r * nbytes;
        scale.from[0] = (uintptr_t)numbers->ins[r];
        scale.to[0] = (uintptr_t)parts[r];
        if (wire != numbers->dtype)
            ko_gradients_scale(numbers->dtype, wire, &scale);
    }
    scale.from[0] = (uintptr_t)(rounded + (size_t)n * nbytes);
    scale.to[0] = (uintptr_t)numbers->want;
    reduction->many(wire == numbers->dtype ? numbers->want : rounded + (size_t)n * nbytes, parts, n,
                    numbers->count, n);
    if (wire != numbers->dtype)
        ko_gradients_scale(wire, numbers->dtype, &scale);
    free(rounded);
}

static int compare(const void *have, const void *want, size_t count, kolo_dtype dtype,
                   const char *what)
{
    const size_t width = kolo_dtype_size(dtype);

    for (size_t i = 0; i < count; i++)
        if (memcmp((const char *)have + i * width, (const char *)want + i * width, width) != 0)
            return ranks_fail("%s: element %zu of %zu %s has other bits than the host's", what, i,
                              count, kolo_dtype_name(dtype));
    return 0;
}

/* ---- reductions ------------------------------------------------------------------------------ */

static int call(const struct numbers *numbers, const struct bits_reduction *reduction,
                const void *in, void *out, int root)
{
    if (reduction->what == KO_REDUCE)
        return kolo_reduce(numbers->group, in, out, numbers->count, numbers->dtype, numbers->op,
                           root);
    if (reduction->what == KO_REDUCE_SCATTER)
        return kolo_reduce_scatter(numbers->group, in, out, reduction->share, numbers->dtype,
                                   numbers->op);
    return kolo_all_reduce(numbers->group, in, out, numbers->count, numbers->dtype, numbers->op);
}

int bits_take_reduction(kolo_group *group, const struct exam_memory *memory,
                        const struct bits_reduction *reduction, unsigned seed)
{
    const bool is_scattered = reduction->what == KO_REDUCE_SCATTER;
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    const int root = (int)below((unsigned)n, &seed);
    const size_t share_bytes = reduction->share * kolo_dtype_size(reduction->dtype);
    const size_t count = is_scattered ? (size_t)n * reduction->share : reduction->share;
    const size_t nbytes = is_scattered ? (size_t)n * share_bytes : share_bytes;
    const size_t start = is_scattered ? (size_t)rank * share_bytes : 0;
    struct numbers numbers = numbers_new(group, reduction->dtype, reduction->op, count, &seed);
    unsigned char *have = allocate(nbytes);
    char *in = memory->make(numbers.ins[rank], nbytes);
    char *out = memory->make(numbers.ins[rank], nbytes);
    int failed = call(&numbers, reduction, in, reduction->is_in_place ? in + start : out, root);
    char text[64];

    reduce(&numbers, reduction->dtype);
    memory->fetch(have, reduction->is_in_place ? out : in, nbytes);
    memory->fetch(have, reduction->is_in_place ? in : out, nbytes);
    snprintf(text, sizeof text, "%s, %s", ko_collective_name(reduction->what),
             kolo_op_name(reduction->op));
    if (failed)
        failed = ranks_fail("%s", text);
    else if (reduction->what != KO_REDUCE || rank == root)
        failed = compare(have + (reduction->is_in_place ? start : 0), numbers.want + start,
                         reduction->share, reduction->dtype, text);
    free(have);
    numbers_free(&numbers);
    return failed;
}

/* ---- what training has ----------------------------------------------------------------------- */

int bits_take_compressed(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    const kolo_dtype wire = below(2, &seed) ? KOLO_FLOAT16 : KOLO_BFLOAT16;
    const kolo_op op = below(2, &seed) ? KOLO_AVG : KOLO_SUM;
    const size_t count = 1 + below(5003, &seed), nbytes = count * sizeof(float);
    struct numbers numbers = numbers_new(group, KOLO_FLOAT32, op, count, &seed);
    float *have = allocate(nbytes);
    float *there = memory->make(numbers.ins[kolo_group_rank(group)], nbytes);
    int failed = kolo_all_reduce_compressed(group, there, there, count, wire, op);

    reduce(&numbers, wire);
    memory->fetch(have, there, nbytes);
    failed = failed ? ranks_fail("compressed")
                    : compare(have, numbers.want, count, KOLO_FLOAT32, kolo_dtype_name(wire));
    free(have);
    numbers_free(&numbers);
    return failed;
}

static kolo_step some_step(unsigned *seed)
{
    return (kolo_step){.optimizer = below(2, seed) ? KOLO_ADAM : KOLO_SGD,
                       .number = 1 + below(2, seed) * 6,
                       .rate = 0.01F,
                       .weight_decay = below(2, seed) ? 0.1F : 0,
                       .momentum = 0.9F,
                       .dampening = below(2, seed) ? 0.2F : 0,
                       .beta1 = 0.9F,
                       .beta2 = 0.999F,
                       .epsilon = 1e-8F,
                       .decoupled = (int)below(2, seed),
                       .factor = 0.5F,
                       .wire = below(2, seed) ? KOLO_BFLOAT16 : 0};
}

/* The parameters and both states: here, and on the GPU. */
enum { NARRAYS = 1 + NSTATES };

static kolo_update update_of(void *grad, float *const arrays[NARRAYS], size_t count)
{
    return (kolo_update){
        .grad = grad, .param = arrays[0], .states = {arrays[1], arrays[2]}, .count = count};
}

int bits_take_step_call(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    const kolo_step step = some_step(&seed);
    const kolo_op op = below(2, &seed) ? KOLO_AVG : KOLO_SUM;
    const size_t count = 1 + below(5003, &seed), nbytes = count * sizeof(float);
    struct numbers numbers = numbers_new(group, KOLO_FLOAT32, op, count, &seed);
    void *grad = memory->make(numbers.ins[kolo_group_rank(group)], nbytes);
    float *here[NARRAYS], *there[NARRAYS], *have = allocate(nbytes);
    kolo_update update;
    int failed;

    for (int a = 0; a < NARRAYS; a++) {
        here[a] = random_numbers(KOLO_FLOAT32, count, &seed);
        for (size_t i = 0; i < count && a == NSTATES; i++)
            here[a][i] = here[a][i] < 0 ? -here[a][i] : here[a][i]; /* a sum of squares */
        there[a] = memory->make(here[a], nbytes);
    }
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream)) /* here is changed below */
        abort();
    update = update_of(grad, there, count);
    failed = kolo_all_reduce_step(group, &update, KOLO_FLOAT32, op, &step)
                 ? ranks_fail("all_reduce_step")
                 : 0;
    reduce(&numbers, step.wire ? step.wire : KOLO_FLOAT32);
    update = update_of(numbers.want, here, count);
    ko_step_take(&update, &step);
    memory->fetch(have, grad, nbytes);
    for (int a = 0; a < NARRAYS; a++) {
        memory->fetch(have, there[a], nbytes);
        if (!failed)
            failed = compare(have, here[a], count, KOLO_FLOAT32, "array of a step");
        free(here[a]);
    }
    free(have);
    numbers_free(&numbers);
    return failed;
}

/* ---- any of them ----------------------------------------------------------------------------- */

int bits_take_call(kolo_group *group, const struct exam_memory *memory, unsigned seed)
{
    static const enum ko_collective reducing[] = {KO_ALL_REDUCE, KO_REDUCE, KO_REDUCE_SCATTER};
    const unsigned what = below(5, &seed);
    struct bits_reduction reduction;

    if (what == 3)
        return bits_take_compressed(group, memory, seed);
    if (what == 4)
        return bits_take_step_call(group, memory, seed);
    do {
        reduction = (struct bits_reduction){.what = reducing[what],
                                            .dtype = (kolo_dtype)below(KOLO_NDTYPES, &seed),
                                            .op = (kolo_op)below(KOLO_NOPS, &seed),
                                            .share = 1 + below(2003, &seed),
                                            .is_in_place = below(2, &seed)};
    } while (!ko_reduction_of(reduction.dtype, reduction.op));
    return bits_take_reduction(group, memory, &reduction, seed);
}
