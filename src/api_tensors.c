/* SPDX-License-Identifier: MIT
 *
 * The public collectives of several tensors.
 */
#include "coll.h"

static int call_tensors(kolo_group *group, struct ko_call *call, const kolo_tensor *tensors,
                        size_t ntensors, kolo_work **work)
{
    ko_call_set_tensors(call, tensors, ntensors);
    return ko_coll_call(group, call, work);
}

static int start_tensors(kolo_group *group, struct ko_call *call, const kolo_tensor *tensors,
                         size_t ntensors, kolo_work **work)
{
    call->is_coalesced = true;
    if (!work)
        return ko_fail(KOLO_E_INVALID, "%s_async: work is NULL", ko_call_name(call));
    return call_tensors(group, call, tensors, ntensors, work);
}

int kolo_all_reduce_coalesced(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                              kolo_dtype dtype, kolo_op op)
{
    struct ko_call call = {.what = KO_ALL_REDUCE, .dtype = dtype, .op = op};

    return call_tensors(group, &call, tensors, ntensors, NULL);
}

int kolo_all_reduce_coalesced_async(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                    kolo_dtype dtype, kolo_op op, kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_REDUCE, .dtype = dtype, .op = op};

    return start_tensors(group, &call, tensors, ntensors, work);
}

int kolo_reduce_coalesced(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                          kolo_dtype dtype, kolo_op op, int root)
{
    struct ko_call call = {.what = KO_REDUCE, .dtype = dtype, .op = op, .root = root};

    return call_tensors(group, &call, tensors, ntensors, NULL);
}

// NOLINTNEXTLINE(readability-function-size): the public signature
int kolo_reduce_coalesced_async(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                kolo_dtype dtype, kolo_op op, int root, kolo_work **work)
{
    struct ko_call call = {.what = KO_REDUCE, .dtype = dtype, .op = op, .root = root};

    return start_tensors(group, &call, tensors, ntensors, work);
}

int kolo_broadcast_coalesced(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                             kolo_dtype dtype, int root)
{
    struct ko_call call = {.what = KO_BROADCAST, .dtype = dtype, .root = root};

    return call_tensors(group, &call, tensors, ntensors, NULL);
}

int kolo_broadcast_coalesced_async(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                   kolo_dtype dtype, int root, kolo_work **work)
{
    struct ko_call call = {.what = KO_BROADCAST, .dtype = dtype, .root = root};

    return start_tensors(group, &call, tensors, ntensors, work);
}

int kolo_all_gather_coalesced(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                              kolo_dtype dtype)
{
    struct ko_call call = {.what = KO_ALL_GATHER, .dtype = dtype};

    return call_tensors(group, &call, tensors, ntensors, NULL);
}

int kolo_all_gather_coalesced_async(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                    kolo_dtype dtype, kolo_work **work)
{
    struct ko_call call = {.what = KO_ALL_GATHER, .dtype = dtype};

    return start_tensors(group, &call, tensors, ntensors, work);
}

int kolo_reduce_scatter_coalesced(kolo_group *group, const kolo_tensor *tensors, size_t ntensors,
                                  kolo_dtype dtype, kolo_op op)
{
    struct ko_call call = {.what = KO_REDUCE_SCATTER, .dtype = dtype, .op = op};

    return call_tensors(group, &call, tensors, ntensors, NULL);
}

int kolo_reduce_scatter_coalesced_async(kolo_group *group, const kolo_tensor *tensors,
                                        size_t ntensors, kolo_dtype dtype, kolo_op op,
                                        kolo_work **work)
{
    struct ko_call call = {.what = KO_REDUCE_SCATTER, .dtype = dtype, .op = op};

    return start_tensors(group, &call, tensors, ntensors, work);
}
