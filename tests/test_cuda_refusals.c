/* SPDX-License-Identifier: MIT
 *
 * Calls with pointers that the GPU could not go by: buffers and arrays that are too short, that lie
 * where the GPU cannot touch them, or on another GPU. Each is refused with a text that says why,
 * before anything touches the memory, and the group goes on.
 */
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, COUNT = 1000, LIMIT_MS = 4000 };

/* What the calls are given, all of it in the rank's memory. */
struct given {
    char *memory; /* COUNT elements of 4 bytes */
    kolo_update update;
    kolo_tensor tensor;
};

static const kolo_step one_step = {
    .optimizer = KOLO_SGD, .number = 1, .rate = 0.1F, .momentum = 0.9F};

static int enter(kolo_group *group, struct given *given)
{
    ko_cu_ptr memory;

    *given = (struct given){0};
    if (gpu_rank_enter(group))
        return 1;
    if (gpu_rank.cuda->alloc(&memory, COUNT * sizeof(int)))
        return ranks_fail("no memory");
    given->memory = (char *)(uintptr_t)memory;
    return 0;
}

/* The same, and arrays besides a call's own: param and the state begin so many bytes on. */
static int enter_with_arrays(kolo_group *group, size_t count, size_t param, size_t state,
                             struct given *given)
{
    int failed = enter(group, given);

    if (failed)
        return failed;
    given->update = (kolo_update){.grad = given->memory,
                                  .param = (float *)(void *)(given->memory + param),
                                  .states[0] = (float *)(void *)(given->memory + state),
                                  .count = count};
    given->tensor = (kolo_tensor){.in = given->memory, .out = given->memory, .count = count};
    return 0;
}

static int reduce(kolo_group *group, const struct given *given, size_t count)
{
    return kolo_all_reduce(group, given->memory, given->memory, count, KOLO_INT32, KOLO_SUM);
}

static int step(kolo_group *group, const struct given *given)
{
    return kolo_all_reduce_step(group, &given->update, KOLO_FLOAT32, KOLO_SUM, &one_step);
}

/* found_inf lies so many bytes on. */
static int unscale(kolo_group *group, const struct given *given, kolo_dtype from, size_t found)
{
    const kolo_cast cast = {.from = from, .to = KOLO_FLOAT32, .factor = 1};

    return kolo_unscale(group, &given->tensor, 1, &cast, (float *)(void *)(given->memory + found));
}

/* The call was refused as it should be. */
static int refuses(int err, const char *text)
{
    return ranks_expect(err, KOLO_E_INVALID, text);
}

/* After all the refusals. */
static int goes_on(kolo_group *group, const struct given *given)
{
    return reduce(group, given, COUNT) ? ranks_fail("a call that is right") : 0;
}

static void run(ranks_body body)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = N, .timeout_ms = LIMIT_MS};

    setenv("KOLO_CUDA_PIECE_BYTES", "2048", 1); /* two of a call */
    gpu_hosts_run_places(&ranks, GPU_HOSTS_PLACES, "2", body);
}

/* ---- too short ------------------------------------------------------------------------------- */

static int take_too_much(kolo_group *group, void *unused)
{
    const int next = (kolo_group_rank(group) + 1) % N,
              previous = (kolo_group_rank(group) + N - 1) % N;
    struct given given;
    char *memory;

    (void)unused;
    if (enter(group, &given))
        return 1;
    memory = given.memory;
    if (refuses(reduce(group, &given, 2 * COUNT),
                "all_reduce: in is too short: it takes 8000 bytes of GPU memory, "
                "which ends after ") ||
        refuses(kolo_all_gather(group, memory, memory + COUNT / N * 4, COUNT / N, KOLO_INT32),
                "all_gather: out is too short") ||
        refuses(kolo_send(group, memory + 200, COUNT, KOLO_INT32, next, 0), "it takes 4000 bytes"))
        return 1;
    if (kolo_sendrecv(group, memory, COUNT / 2, next, memory + COUNT * 2, COUNT / 2, previous,
                      KOLO_INT32, 1))
        return ranks_fail("a message that is right");
    return goes_on(group, &given);
}

/* So are states, and tensors to be unscaled. */
static int take_too_much_besides(kolo_group *group, void *unused)
{
    struct given given;

    (void)unused;
    if (enter_with_arrays(group, COUNT / 2, (size_t)2 * COUNT, (size_t)3 * COUNT, &given))
        return 1;
    given.tensor.count = 2 * COUNT;
    if (refuses(step(group, &given),
                "all_reduce_step: one of its arrays is too short: it takes 2000 bytes") ||
        refuses(unscale(group, &given, KOLO_FLOAT32, 0),
                "unscale: one of its arrays is too short: it takes 8000 bytes"))
        return 1;
    return goes_on(group, &given);
}

static void too_much(void **state)
{
    (void)state;
    run(take_too_much);
    run(take_too_much_besides);
}

/* ---- misaligned ------------------------------------------------------------------------------ */

static int take_between(kolo_group *group, void *unused)
{
    struct given given;
    char *memory;

    (void)unused;
    if (enter_with_arrays(group, 9, 400, 802, &given))
        return 1;
    memory = given.memory;
    given.tensor.in = memory + 2;
    given.tensor.out = memory + 401;
    if (refuses(kolo_all_reduce(group, memory + 1, memory + 1, 4, KOLO_INT32, KOLO_SUM),
                "all_reduce: in is misaligned: in GPU memory each int32 lies at a multiple of 4 "
                "bytes") ||
        refuses(kolo_all_gather(group, memory, memory + 804, 2, KOLO_FLOAT64),
                "all_gather: out is misaligned: in GPU memory each float64") ||
        refuses(step(group, &given),
                "all_reduce_step: one of its arrays is misaligned: in GPU memory each float32") ||
        refuses(unscale(group, &given, KOLO_FLOAT16, 800),
                "unscale: one of its arrays is misaligned: in GPU memory each float32"))
        return 1;
    if (kolo_all_reduce(group, memory + 1, memory + 1, 4, KOLO_UINT8, KOLO_SUM))
        return ranks_fail("bytes have no such places");
    return goes_on(group, &given);
}

static void misaligned(void **state)
{
    (void)state;
    run(take_between);
}

/* ---- another GPU's --------------------------------------------------------------------------- */

/* 0: there is no other GPU. */
static int alloc_there(ko_cu_ptr *there)
{
    ko_cu_context other;

    *there = 0;
    if (gpu_rank.cuda->context_retain(&other, 1 - gpu_rank.device))
        return 0;
    return gpu_rank.cuda->context_push(other) || gpu_rank.cuda->alloc(there, 4096) ||
                   gpu_rank.cuda->context_pop(&other)
               ? ranks_fail("no memory on the other GPU")
               : 0;
}

/* As refuses, of what is on the other GPU. */
static int refuses_there(int err, const char *what)
{
    char text[99];

    snprintf(text, sizeof text, "%s is in the memory of GPU %d, and the group's is GPU %d", what,
             1 - gpu_rank.device, gpu_rank.device);
    return refuses(err, text);
}

static int take_arrays_from(kolo_group *group, struct given given, void *there)
{
    given.tensor.in = given.tensor.out = there;
    given.update.states[0] = there;
    return refuses_there(unscale(group, &given, KOLO_FLOAT32, 0), "unscale: one of its arrays") ||
           refuses_there(step(group, &given), "all_reduce_step: one of its arrays");
}

/* What a call calls its own, and the kernel of its epilogue touches. */
static int take_own_from(kolo_group *group, struct given given, void *there)
{
    const kolo_cast cast = {.from = KOLO_FLOAT32, .to = KOLO_FLOAT32, .factor = 1};
    struct given param = given;

    given.update.grad = there;
    param.update.param = there;
    return refuses_there(step(group, &given), "all_reduce_step: grad") ||
           refuses_there(step(group, &param), "all_reduce_step: param") ||
           refuses_there(kolo_unscale(group, &given.tensor, 1, &cast, there), "unscale: found_inf");
}

static int take_compressed_from(kolo_group *group, float *here, float *there)
{
    const kolo_dtype wire = KOLO_FLOAT16;

    return refuses_there(kolo_all_reduce_compressed(group, there, here, 9, wire, KOLO_SUM),
                         "all_reduce_compressed: in") ||
           refuses_there(kolo_all_reduce_compressed(group, here, there, 9, wire, KOLO_SUM),
                         "all_reduce_compressed: out");
}

static int take_from_another(kolo_group *group, void *unused)
{
    struct given given;
    ko_cu_ptr there;

    (void)unused;
    if (enter_with_arrays(group, 9, 400, 800, &given) || alloc_there(&there))
        return 1;
    if (there &&
        (take_arrays_from(group, given, (void *)(uintptr_t)there) ||
         take_own_from(group, given, (void *)(uintptr_t)there) ||
         take_compressed_from(group, (float *)(void *)given.memory, (float *)(uintptr_t)there)))
        return 1;
    return goes_on(group, &given);
}

static void another_gpus(void **state)
{
    (void)state;
    run(take_from_another);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_much),
        cmocka_unit_test(misaligned),
        cmocka_unit_test(another_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
