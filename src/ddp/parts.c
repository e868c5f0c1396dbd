/* SPDX-License-Identifier: MIT
 *
 * Copies on a GPU go by the user's stream and not by the group's own, since there the order of
 * things is that of his calls, in a graph too, without any wait of the host's.
 */
#include "ddp/parts.h"

#include "gpu_memory.h"
#include "status.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { REST_MS = 2000, REST_NAP_NS = 50000 };

size_t ko_param_bytes(const kolo_param *param)
{
    return param->count * kolo_dtype_size(param->dtype);
}

size_t ko_bucket_bytes(const struct ko_bucket *bucket)
{
    return bucket->count * kolo_dtype_size(bucket->dtype);
}

/* ---- where they lie ---------------------------------------------------------------------- */

static char *part_of(const kolo_param *param, enum ko_param_part part)
{
    if (part >= KO_PART_STATES)
        return (char *)param->states[part - KO_PART_STATES];
    return part == KO_PART_DATA ? param->data : param->grad;
}

static int check_part(struct ko_gpu *gpu, const kolo_param *param, enum ko_param_part part)
{
    static const char *const names[KO_NPARTS] = {"data", "grad", "states[0]", "states[1]"};
    const char *at = part_of(param, part);
    char why[KO_ERROR_TEXT];
    bool is_on_gpu;
    int err = ko_gpu_holds(gpu, at, &is_on_gpu);

    if (err || !is_on_gpu || !ko_gpu_check_length(gpu, at, ko_param_bytes(param)))
        return err;
    snprintf(why, sizeof why, "%s", kolo_last_error());
    return ko_fail(KOLO_E_INVALID, "ddp: %s of parameter %s is too short: %s", names[part],
                   param->name, why);
}

int ko_parts_check(struct ko_gpu *gpu, const kolo_param *param)
{
    int err = KOLO_OK;

    for (int part = 0; part < KO_NPARTS && param->count && !err; part++)
        err = check_part(gpu, param, (enum ko_param_part)part);
    return err;
}

int ko_parts_any_on_gpu(struct ko_gpu *gpu, const kolo_param *params,
                        const struct ko_bucket *bucket, bool *is_any)
{
    int err = KOLO_OK;

    *is_any = false;
    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &params[bucket->members[m]];

        for (int part = 0; part < KO_NPARTS && param->count && !*is_any && !err; part++)
            err = ko_gpu_holds(gpu, part_of(param, (enum ko_param_part)part), is_any);
    }
    return err;
}

bool ko_parts_exist(const kolo_param *params, const struct ko_bucket *bucket,
                    enum ko_param_part part)
{
    for (size_t m = 0; m < bucket->nmembers; m++)
        if (part_of(&params[bucket->members[m]], part))
            return true;
    return false;
}

/* Wherever that is. */
static char *find_common(const kolo_param *params, const struct ko_bucket *bucket,
                         enum ko_param_part part)
{
    char *begin = NULL, *end = NULL;

    for (size_t m = 0; m < bucket->nmembers; m++) {
        const kolo_param *param = &params[bucket->members[m]];
        char *at = part_of(param, part);

        if (!param->count)
            continue;
        if (!at || (begin && at != end))
            return NULL;
        begin = begin ? begin : at;
        end = at + ko_param_bytes(param);
    }
    return begin;
}

int ko_parts_common(struct ko_gpu *gpu, const kolo_param *params, const struct ko_bucket *bucket,
                    enum ko_param_part part, char **common)
{
    char *begin = find_common(params, bucket, part);
    bool is_there = true;
    int err = gpu ? ko_gpu_holds(gpu, begin, &is_there) : KOLO_OK;

    *common = is_there ? begin : NULL;
    return err;
}

/* ---- memory ------------------------------------------------------------------------------ */

int ko_parts_alloc(struct ko_gpu *gpu, size_t nbytes, char **memory)
{
    ko_cu_ptr at;
    int err;

    if (!gpu) {
        *memory = ko_alloc(nbytes, "a bucket of parameters");
        return *memory ? KOLO_OK : KOLO_E_NOMEM;
    }
    err = ko_gpu_enter(gpu);
    if (err)
        return err;
    err = ko_cuda_check(ko_gpu_driver(gpu), ko_gpu_driver(gpu)->alloc(&at, nbytes),
                        "the GPU has no memory for a bucket of parameters");
    ko_gpu_leave(gpu);
    if (!err)
        *memory = (char *)(uintptr_t)at;
    return err;
}

void ko_parts_free(struct ko_gpu *gpu, char *memory)
{
    const struct ko_gpu_memory made = {.at = (uintptr_t)memory};

    if (!gpu) {
        kolo_free(memory);
        return;
    }
    ko_gpu_retire_memory(gpu, &made);
    ko_gpu_tidy(gpu);
}

/* The mark's stream, if it has one. */
static bool comes_to_rest(struct ko_gpu *gpu, struct ko_gpu_mark *mark, const ko_deadline *deadline)
{
    const struct timespec nap = {.tv_nsec = REST_NAP_NS};
    int err;

    while ((err = ko_gpu_look_at_mark(gpu, mark)) == KO_AGAIN && !ko_deadline_passed(deadline))
        nanosleep(&nap, NULL);
    ko_gpu_let_go(gpu, mark);
    return err != KO_AGAIN;
}

bool ko_parts_rest(struct ko_gpu *gpu)
{
    const ko_deadline deadline = ko_deadline_in(REST_MS);
    struct ko_gpu_mark *mark;

    if (!ko_gpu_mark_own(gpu, &mark) && !comes_to_rest(gpu, mark, &deadline))
        return false;
    return ko_gpu_mark(gpu, false, &mark) || comes_to_rest(gpu, mark, &deadline);
}

/* ---- copies ------------------------------------------------------------------------------ */

int ko_part_copy(struct ko_gpu *gpu, void *to, const void *from, size_t nbytes)
{
    int err;

    if (!nbytes)
        return KOLO_OK;
    if (!gpu) {
        memcpy(to, from, nbytes);
        return KOLO_OK;
    }
    err = ko_gpu_enter(gpu);
    if (err)
        return err;
    err = ko_cuda_check(
        ko_gpu_driver(gpu),
        ko_gpu_driver(gpu)->copy((uintptr_t)to, (uintptr_t)from, nbytes, ko_gpu_user_stream(gpu)),
        "a parameter on the GPU cannot be copied");
    ko_gpu_leave(gpu);
    return err;
}

int ko_parts_gather(struct ko_gpu *gpu, const kolo_param *params, const struct ko_bucket *bucket,
                    enum ko_param_part part, char *memory)
{
    int err = KOLO_OK;

    for (size_t m = 0; m < bucket->nmembers && !err; m++) {
        const kolo_param *param = &params[bucket->members[m]];

        if (part_of(param, part))
            err = ko_part_copy(gpu, memory, part_of(param, part), ko_param_bytes(param));
        memory += ko_param_bytes(param);
    }
    return err;
}

int ko_parts_scatter(struct ko_gpu *gpu, const kolo_param *params, const struct ko_bucket *bucket,
                     enum ko_param_part part, const char *memory)
{
    int err = KOLO_OK;

    for (size_t m = 0; m < bucket->nmembers && !err; m++) {
        const kolo_param *param = &params[bucket->members[m]];

        if (part_of(param, part))
            err = ko_part_copy(gpu, part_of(param, part), memory, ko_param_bytes(param));
        memory += ko_param_bytes(param);
    }
    return err;
}

int ko_parts_await(struct ko_gpu *gpu, int timeout_ms)
{
    const ko_deadline deadline = ko_deadline_in(timeout_ms);
    struct ko_gpu_mark *mark = NULL;
    bool is_captured;
    int err = ko_gpu_is_captured(gpu, &is_captured);

    if (err || is_captured)
        return err;
    err = ko_gpu_mark(gpu, false, &mark);
    if (!err)
        err = ko_gpu_await_mark(gpu, mark, &deadline);
    ko_gpu_let_go(gpu, mark);
    return err;
}
