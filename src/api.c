/* SPDX-License-Identifier: MIT
 *
 * The public collectives: each names its arguments as a ko_call, nothing else.
 */
#include "coll.h"

#define CALL(what_, in_, out_, count_, dtype_, op_, root_)                                 \
    {                                                                                      \
        .what = (what_), .in = (in_), .out = (out_), .count = (count_), .dtype = (dtype_), \
        .op = (op_), .root = (root_)                                                       \
    }

static struct ko_call call_of(const struct ko_plain_call *plain)
{
    return (struct ko_call)CALL(plain->what, plain->in, plain->out, plain->count, plain->dtype,
                                plain->op, plain->root);
}

static __attribute__((noinline)) int run_first(kolo_group *group, const struct ko_plain_call *plain)
{
    const struct ko_call call = call_of(plain);

    return ko_coll_call(group, &call, NULL);
}

static inline int run(kolo_group *group, const struct ko_plain_call *plain)
{
    int err = ko_coll_again(group, plain);

    return err == KO_AGAIN ? run_first(group, plain) : err;
}

static int start(kolo_group *group, const struct ko_plain_call *plain, kolo_work **work)
{
    const struct ko_call call = call_of(plain);

    if (!work)
        return ko_fail(KOLO_E_INVALID, "%s_async: work is NULL", ko_collective_name(call.what));
    return ko_coll_call(group, &call, work);
}

int kolo_all_reduce(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                    kolo_op op)
{
    const struct ko_plain_call call = CALL(KO_ALL_REDUCE, in, out, count, dtype, op, 0);

    return run(group, &call);
}

int kolo_all_reduce_async(kolo_group *group, const void *in, void *out, size_t count,
                          kolo_dtype dtype, kolo_op op, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_ALL_REDUCE, in, out, count, dtype, op, 0);

    return start(group, &call, work);
}

int kolo_reduce(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                kolo_op op, int root)
{
    const struct ko_plain_call call = CALL(KO_REDUCE, in, out, count, dtype, op, root);

    return run(group, &call);
}

// NOLINTNEXTLINE(readability-function-size): the public signature has eight parameters
int kolo_reduce_async(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                      kolo_op op, int root, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_REDUCE, in, out, count, dtype, op, root);

    return start(group, &call, work);
}

int kolo_broadcast(kolo_group *group, void *buffer, size_t count, kolo_dtype dtype, int root)
{
    const struct ko_plain_call call =
        CALL(KO_BROADCAST, buffer, buffer, count, dtype, KOLO_SUM, root);

    return run(group, &call);
}

int kolo_broadcast_async(kolo_group *group, void *buffer, size_t count, kolo_dtype dtype, int root,
                         kolo_work **work)
{
    const struct ko_plain_call call =
        CALL(KO_BROADCAST, buffer, buffer, count, dtype, KOLO_SUM, root);

    return start(group, &call, work);
}

int kolo_all_gather(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype)
{
    const struct ko_plain_call call = CALL(KO_ALL_GATHER, in, out, count, dtype, KOLO_SUM, 0);

    return run(group, &call);
}

int kolo_all_gather_async(kolo_group *group, const void *in, void *out, size_t count,
                          kolo_dtype dtype, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_ALL_GATHER, in, out, count, dtype, KOLO_SUM, 0);

    return start(group, &call, work);
}

int kolo_reduce_scatter(kolo_group *group, const void *in, void *out, size_t count,
                        kolo_dtype dtype, kolo_op op)
{
    const struct ko_plain_call call = CALL(KO_REDUCE_SCATTER, in, out, count, dtype, op, 0);

    return run(group, &call);
}

int kolo_reduce_scatter_async(kolo_group *group, const void *in, void *out, size_t count,
                              kolo_dtype dtype, kolo_op op, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_REDUCE_SCATTER, in, out, count, dtype, op, 0);

    return start(group, &call, work);
}

int kolo_gather(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                int root)
{
    const struct ko_plain_call call = CALL(KO_GATHER, in, out, count, dtype, KOLO_SUM, root);

    return run(group, &call);
}

int kolo_gather_async(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                      int root, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_GATHER, in, out, count, dtype, KOLO_SUM, root);

    return start(group, &call, work);
}

int kolo_scatter(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                 int root)
{
    const struct ko_plain_call call = CALL(KO_SCATTER, in, out, count, dtype, KOLO_SUM, root);

    return run(group, &call);
}

int kolo_scatter_async(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype,
                       int root, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_SCATTER, in, out, count, dtype, KOLO_SUM, root);

    return start(group, &call, work);
}

int kolo_all_to_all(kolo_group *group, const void *in, void *out, size_t count, kolo_dtype dtype)
{
    const struct ko_plain_call call = CALL(KO_ALL_TO_ALL, in, out, count, dtype, KOLO_SUM, 0);

    return run(group, &call);
}

int kolo_all_to_all_async(kolo_group *group, const void *in, void *out, size_t count,
                          kolo_dtype dtype, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_ALL_TO_ALL, in, out, count, dtype, KOLO_SUM, 0);

    return start(group, &call, work);
}

int kolo_barrier(kolo_group *group)
{
    const struct ko_plain_call call = CALL(KO_BARRIER, NULL, NULL, 0, KOLO_UINT8, KOLO_SUM, 0);

    return run(group, &call);
}

int kolo_barrier_async(kolo_group *group, kolo_work **work)
{
    const struct ko_plain_call call = CALL(KO_BARRIER, NULL, NULL, 0, KOLO_UINT8, KOLO_SUM, 0);

    return start(group, &call, work);
}
