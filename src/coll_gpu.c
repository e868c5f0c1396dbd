/* SPDX-License-Identifier: MIT
 *
 * Buffers that lie in each other, as in place, do so in host memory too. What lies between blocks
 * of different lengths is copied there and back, so that it stays as it is.
 */
#include "coll_gpu.h"

#include "coll_epilogue.h"
#include "gpu.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* The buffers of one tensor, or of a call that has but one. */
struct stage {
    struct ko_call call; /* for this tensor alone, its buffers on the GPU */
    size_t in_bytes, out_bytes;
    size_t in_at, out_at; /* in host memory */
};

static bool is_root(const kolo_group *group, const struct ko_call *call)
{
    return call->root == group->rank;
}

bool ko_coll_is_read(const kolo_group *group, const struct ko_call *call)
{
    return (call->what != KO_SCATTER && call->what != KO_BROADCAST) || is_root(group, call);
}

bool ko_coll_is_written(const kolo_group *group, const struct ko_call *call)
{
    if (call->what == KO_BROADCAST)
        return !is_root(group, call);
    return (call->what != KO_REDUCE && call->what != KO_GATHER) || is_root(group, call);
}

static size_t count_tensors(const struct ko_call *call)
{
    return call->is_coalesced ? call->ntensors : 1;
}

static void read_tensor(const kolo_group *group, const struct ko_call *call, size_t i,
                        struct stage *stage)
{
    stage->call = call->is_coalesced ? ko_coll_tensor(call, i) : *call;
    stage->in_bytes =
        ko_coll_is_read(group, &stage->call) ? ko_call_bytes(group, &stage->call, false) : 0;
    stage->out_bytes =
        ko_coll_is_written(group, &stage->call) ? ko_call_bytes(group, &stage->call, true) : 0;
}

/* ---- whose memory ------------------------------------------------------------------------ */

/* The first touch of an element elsewhere would be the end of the context. */
static int check_place(const struct ko_call *call, const char *which, const void *at,
                       kolo_dtype dtype)
{
    const size_t width = kolo_dtype_size(dtype);

    if ((uintptr_t)at % width == 0)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID,
                   "%s: %s is misaligned: in GPU memory each %s lies at a multiple of %zu bytes",
                   ko_call_name(call), which, kolo_dtype_name(dtype), width);
}

/* One that does not say has failed, and with it the group, since the others wait for this call. */
static int look(kolo_group *group, const struct ko_call *call, const void *buffer, bool *is_there)
{
    char text[KO_ERROR_TEXT];
    int err = ko_gpu_holds(group->gpu, buffer, is_there);

    if (!err)
        return KOLO_OK;
    snprintf(text, sizeof text, "%s on rank %d: %.400s", ko_call_name(call), group->rank,
             kolo_last_error());
    return ko_group_fail(group, err, text);
}

/* Of an array or buffer on the GPU. */
static int check_length(kolo_group *group, const struct ko_call *call, const char *which,
                        const void *at, size_t nbytes)
{
    char why[KO_ERROR_TEXT];

    if (!ko_gpu_check_length(group->gpu, at, nbytes))
        return KOLO_OK;
    snprintf(why, sizeof why, "%s", kolo_last_error());
    return ko_fail(KOLO_E_INVALID, "%s: %s is too short: %s", ko_call_name(call), which, why);
}

/* A kernel of this GPU's would fault on another's memory, to which it may have no access. */
static int check_home(kolo_group *group, const struct ko_call *call, const char *which,
                      const void *at)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);
    ko_cu_device own = 0;
    ko_cu_result result;
    int home = 0, err = ko_gpu_enter(group->gpu);

    if (err)
        return err;
    result = cuda->context_device(&own);
    if (!result)
        result = cuda->pointer_attribute(&home, KO_CU_POINTER_DEVICE, (uintptr_t)at);
    ko_gpu_leave(group->gpu);
    if (result)
        return ko_cuda_check(cuda, result, "the GPU does not say which one an array is of");
    if (home == own)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "%s: %s is in the memory of GPU %d, and the group's is GPU %d",
                   ko_call_name(call), which, home, own);
}

static size_t bytes_of(size_t count, kolo_dtype dtype)
{
    size_t nbytes;

    return __builtin_mul_overflow(count, kolo_dtype_size(dtype), &nbytes) ? SIZE_MAX : nbytes;
}

static int count_arrays(kolo_group *group, const struct ko_call *call, size_t *ngpu, size_t *nhost)
{
    const void *array;
    kolo_dtype dtype;
    size_t count;
    int err = KOLO_OK;

    for (size_t i = 0; (array = ko_epilogue_array(call, i, &count, &dtype)) && !err; i++) {
        bool is_there;

        err = look(group, call, array, &is_there);
        *(is_there ? ngpu : nhost) += 1;
        if (!err && is_there)
            err = check_home(group, call, "one of its arrays", array);
        if (!err && is_there)
            err = check_length(group, call, "one of its arrays", array, bytes_of(count, dtype));
        if (!err && is_there)
            err = check_place(call, "one of its arrays", array, dtype);
    }
    return err;
}

/* What the user calls it. */
static const char *buffer_name(const struct ko_call *call, bool is_out)
{
    if (ko_call_has_step(call))
        return is_out ? "param" : "grad";
    if (call->epilogue && !ko_call_is_fused(call))
        return "found_inf";
    return is_out ? "out" : "in";
}

/* Whose a buffer of nbytes is, if it has any, and, if the GPU's, whether there are as many. */
static int count_buffer(kolo_group *group, const struct ko_call *call, bool is_out, size_t nbytes,
                        size_t *ngpu, size_t *nhost)
{
    const void *buffer = is_out ? call->out : call->in;
    const char *which = buffer_name(call, is_out);
    bool is_there;
    int err = nbytes ? look(group, call, buffer, &is_there) : KOLO_OK;

    if (err || !nbytes)
        return err;
    *(is_there ? ngpu : nhost) += 1;
    if (!is_there)
        return KOLO_OK;
    err = call->epilogue ? check_home(group, call, which, buffer) : KOLO_OK;
    if (!err)
        err = check_length(group, call, which, buffer, nbytes);
    return err ? err
               : check_place(call, which, buffer,
                             is_out && ko_call_has_step(call) ? KOLO_FLOAT32 : call->dtype);
}

/* A barrier is of the host's threads, or, as part of a graph, of streams. One that does not say
 * whether it is captured is no reason against the former. */
static bool is_captured(kolo_group *group)
{
    bool is;

    return !ko_gpu_is_captured(group->gpu, &is) && is;
}

int ko_coll_is_on_gpu(kolo_group *group, const struct ko_call *call, bool *is_on_gpu)
{
    size_t ngpu = 0, nhost = 0;
    struct stage stage;
    int err = KOLO_OK;

    if (call->what == KO_BARRIER) {
        *is_on_gpu = is_captured(group);
        return KOLO_OK;
    }
    for (size_t i = 0; i < count_tensors(call) && !err; i++) {
        read_tensor(group, call, i, &stage);
        err = count_buffer(group, &stage.call, false, stage.in_bytes, &ngpu, &nhost);
        if (!err)
            err = count_buffer(group, &stage.call, true, stage.out_bytes, &ngpu, &nhost);
    }
    if (!err && call->epilogue)
        err = count_arrays(group, call, &ngpu, &nhost);
    if (err)
        return err;
    *is_on_gpu = ngpu > 0;
    if (!ngpu && !nhost && call->is_uneven) /* the others may have some for the graph */
        return ko_gpu_is_captured(group->gpu, is_on_gpu);
    if (ngpu && nhost)
        return ko_fail(KOLO_E_INVALID,
                       "%s: %zu buffers are in GPU memory and %zu in host memory; all of a call "
                       "have to be in one of them",
                       ko_call_name(call), ngpu, nhost);
    return KOLO_OK;
}

/* ---- places ------------------------------------------------------------------------------ */

static bool is_inside(const void *inner, const void *outer, size_t nbytes)
{
    return (uintptr_t)inner >= (uintptr_t)outer && (uintptr_t)inner - (uintptr_t)outer < nbytes;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Chooses where the copies are, from byte `at` on; returns the end. */
static size_t choose_places(struct stage *stage, size_t at)
{
    const struct ko_call *call = &stage->call;

    stage->in_at = stage->out_at = at;
    if (is_inside(call->in, call->out, stage->out_bytes))
        stage->in_at += (size_t)((uintptr_t)call->in - (uintptr_t)call->out);
    else if (is_inside(call->out, call->in, stage->in_bytes))
        stage->out_at += (size_t)((uintptr_t)call->out - (uintptr_t)call->in);
    else
        stage->out_at += (stage->in_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    at = larger(stage->in_at + stage->in_bytes, stage->out_at + stage->out_bytes);
    return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- copies ------------------------------------------------------------------------------ */

static int copy_in(kolo_group *group, const struct stage *stage, unsigned char *memory)
{
    int err = KOLO_OK;

    if (stage->call.is_uneven)
        err = ko_gpu_copy(group->gpu, memory + stage->out_at, stage->call.out, stage->out_bytes);
    if (!err)
        err = ko_gpu_copy(group->gpu, memory + stage->in_at, stage->call.in, stage->in_bytes);
    return err;
}

static int copy_out(kolo_group *group, const struct stage *stage, const unsigned char *memory)
{
    return ko_gpu_copy(group->gpu, stage->call.out, memory + stage->out_at, stage->out_bytes);
}

/* What the host's algorithms work on: the call with the copies for its buffers. */
static void exchange_buffers(const struct stage *stages, size_t n, unsigned char *memory,
                             struct ko_call *call, kolo_tensor *tensors)
{
    call->in = memory + stages->in_at;
    call->out = memory + stages->out_at;
    for (size_t i = 0; call->is_coalesced && i < n; i++) {
        tensors[i].in = memory + stages[i].in_at;
        tensors[i].out = memory + stages[i].out_at;
        tensors[i].count = call->tensors[i].count;
    }
    call->tensors = tensors;
    call->is_on_gpu = false;
}

static int copy_all_in(kolo_group *group, const struct ko_gpu_mark *mark,
                       const struct stage *stages, size_t n, unsigned char *memory)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    int err = ko_gpu_await_mark(group->gpu, mark, &deadline);

    for (size_t i = 0; i < n && !err; i++)
        err = copy_in(group, &stages[i], memory);
    return err ? err : ko_gpu_finish(group->gpu, &deadline);
}

static int copy_all_out(kolo_group *group, const struct stage *stages, size_t n,
                        const unsigned char *memory)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    int err = KOLO_OK;

    for (size_t i = 0; i < n && !err; i++)
        err = copy_out(group, &stages[i], memory);
    return err ? err : ko_gpu_finish(group->gpu, &deadline);
}

/* With room for n stages and tensors. A failure of the GPU's leaves the other ranks waiting for
 * this one, or copies under way in its memory, so that it is the group's. */
static int run_stages(kolo_group *group, const struct ko_call *call, struct stage *stages,
                      kolo_tensor *tensors, ko_run *run)
{
    const size_t n = count_tensors(call);
    struct ko_call on_host = *call;
    unsigned char *memory;
    size_t nbytes = 0;
    int err;

    for (size_t i = 0; i < n; i++) {
        read_tensor(group, call, i, &stages[i]);
        nbytes = choose_places(&stages[i], nbytes);
    }
    err = ko_gpu_staging(group->gpu, nbytes, &memory);
    if (!err)
        err = copy_all_in(group, call->mark, stages, n, memory);
    if (err)
        return ko_group_fail(group, err, kolo_last_error());
    exchange_buffers(stages, n, memory, &on_host, tensors);
    err = run(group, &on_host);
    if (err)
        return err;
    err = copy_all_out(group, stages, n, memory);
    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}

int ko_coll_run_on_gpu(kolo_group *group, const struct ko_call *call, ko_run *run)
{
    const size_t n = count_tensors(call);
    struct stage *stages = ko_alloc(n * (sizeof *stages + sizeof(kolo_tensor)), "GPU buffers");
    int err;

    if (!stages)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    group->gpu_ways.by_host++;
    err = run_stages(group, call, stages, (kolo_tensor *)(void *)(stages + n), run);
    free(stages);
    return err;
}
