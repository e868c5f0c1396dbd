/* SPDX-License-Identifier: MIT
 *
 * ddp_model.h: ranks that train a small model, whose gradients are small integers, so that averages
 * are exact in every dtype.
 */
#ifndef DDP_MODEL_H
#define DDP_MODEL_H

#include "dtype.h"
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- ranks ----------------------------------------------------------------------------------- */

enum { MOST_RANKS = 4 };

struct rank {
    kolo_group *group;
    int number, size;
    const void *argument;
    int failed;
};

typedef void (*rank_body)(struct rank *self);

struct job {
    rank_body body;
    const void *argument;
};

/* Tells the first thing that does not hold, and goes on: the other ranks need this one. */
static inline bool expect(struct rank *self, bool holds, const char *what)
{
    if (!holds && !self->failed)
        self->failed = ranks_fail("rank %d of %d: %s", self->number, self->size, what);
    return holds;
}

static inline bool expect_error(struct rank *self, int got, int code, const char *text)
{
    return expect(self, got == code, text) &&
           expect(self, strstr(kolo_last_error(), text) != NULL, text);
}

static inline int run_job(kolo_group *group, void *argument)
{
    const struct job *job = argument;
    struct rank self = {group, kolo_group_rank(group), kolo_group_size(group), job->argument, 0};

    job->body(&self);
    return self.failed;
}

static inline void run_ranks(enum ranks_kind kind, int n, rank_body body, const void *argument)
{
    const struct ranks ranks = {.kind = kind, .n = n};
    struct job job = {body, argument};

    assert_int_equal(ranks_run(&ranks, run_job, &job), 0);
}

/* ---- a model --------------------------------------------------------------------------------- */

enum { NPARAMS = 7 };

static const struct {
    const char *name;
    size_t count;
    kolo_dtype dtype;
} shapes[NPARAMS] = {
    {"conv.weight", 1200, KOLO_FLOAT32}, {"conv.bias", 3, KOLO_FLOAT32},
    {"norm.scale", 17, KOLO_FLOAT64},    {"fc.weight", 301, KOLO_BFLOAT16},
    {"fc.bias", 1, KOLO_BFLOAT16},       {"unused", 0, KOLO_FLOAT32},
    {"head.weight", 700, KOLO_FLOAT32},
};

struct model {
    kolo_param params[NPARAMS];
    char *arena;
};

/* Data and gradients of all parameters in one piece of memory: one behind the other, which lets
 * buckets be reduced in place, or with gaps, which does not. */
static inline void model_make(struct model *model, bool has_gaps)
{
    size_t used = 0;

    model->arena = calloc(1, 65536);
    for (size_t i = 0; i < NPARAMS; i++) {
        kolo_param *param = &model->params[i];
        size_t nbytes = shapes[i].count * kolo_dtype_size(shapes[i].dtype);

        *param = (kolo_param){.name = shapes[i].name,
                              .data = model->arena + used,
                              .grad = model->arena + 32768 + used,
                              .count = shapes[i].count,
                              .dtype = shapes[i].dtype};
        if (!nbytes) /* then nothing needs to be there */
            param->data = param->grad = NULL;
        used += nbytes + (has_gaps ? 8 : 0);
    }
}

static inline void model_free(struct model *model)
{
    free(model->arena);
}

static inline double get(const kolo_param *param, const void *memory, size_t e)
{
    double value = 0;
    float single;
    uint16_t half;

    if (param->dtype == KOLO_FLOAT64) {
        memcpy(&value, (const char *)memory + e * 8, 8);
        return value;
    }
    if (param->dtype == KOLO_FLOAT32) {
        memcpy(&single, (const char *)memory + e * 4, 4);
        return single;
    }
    memcpy(&half, (const char *)memory + e * 2, 2);
    return ko_float_of_bfloat16(half);
}

static inline void put(const kolo_param *param, void *memory, size_t e, double value)
{
    float single = (float)value;
    uint16_t half = ko_bfloat16_of_float(single);

    if (param->dtype == KOLO_FLOAT64)
        memcpy((char *)memory + e * 8, &value, 8);
    else if (param->dtype == KOLO_FLOAT32)
        memcpy((char *)memory + e * 4, &single, 4);
    else
        memcpy((char *)memory + e * 2, &half, 2);
}

/* What all ranks' gradients are multiples of. */
static inline double base(size_t index, size_t e, int step)
{
    return (double)(e % 13 + index + (size_t)step);
}

static inline void backward(struct model *model, size_t index, int rank, int step)
{
    const kolo_param *param = &model->params[index];

    for (size_t e = 0; e < param->count; e++)
        put(param, param->grad, e, (rank + 1) * base(index, e, step));
}

/* The average of (rank + 1) * base. */
static inline bool is_averaged(const struct model *model, int size, int step)
{
    for (size_t i = 0; i < NPARAMS; i++)
        for (size_t e = 0; e < model->params[i].count; e++)
            if (get(&model->params[i], model->params[i].grad, e) !=
                (size + 1) / 2.0 * base(i, e, step))
                return false;
    return true;
}

#endif
