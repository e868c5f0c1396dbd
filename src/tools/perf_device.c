/* SPDX-License-Identifier: MIT
 *
 * Memory and calls are put into one stream that the rank made for itself, so that nothing but them
 * is between its events.
 */
#include "perf_device.h"

#include "cuda_driver.h"
#include "status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct ko_perf_device {
    const struct ko_cuda *cuda;
    struct ko_cuda_place place;
    ko_cu_stream stream;
    ko_cu_event begin, end;
    ko_cu_graph_exec graph;
};

static int check(const struct ko_perf_device *device, ko_cu_result result, const char *what)
{
    return ko_cuda_check(device->cuda, result, what);
}

int ko_perf_device_check(void)
{
    const struct ko_cuda *cuda;

    return ko_cuda_open(&cuda);
}

/* ---- opening ----------------------------------------------------------------------------- */

static ko_cu_result make_stream(struct ko_perf_device *device)
{
    ko_cu_result result = device->cuda->stream_create(&device->stream, KO_CU_STREAM_NON_BLOCKING);

    if (!result)
        result = device->cuda->event_create(&device->begin, 0);
    if (!result)
        result = device->cuda->event_create(&device->end, 0);
    return result;
}

int ko_perf_device_open(kolo_group *group, int number, struct ko_perf_device **device_out)
{
    struct ko_perf_device *device = ko_alloc(sizeof *device, "a GPU");
    int err = device ? ko_cuda_open(&device->cuda) : KOLO_E_NOMEM;

    if (!err)
        err = ko_cuda_enter(device->cuda, number, &device->place);
    if (!err)
        err = check(device, make_stream(device), "a GPU has no stream");
    if (!err)
        err = kolo_group_set_stream(group, device->stream);
    if (err)
        ko_perf_device_close(device);
    else
        *device_out = device;
    return err;
}

void ko_perf_device_close(struct ko_perf_device *device)
{
    if (!device)
        return;
    if (device->stream) {
        (void)device->cuda->stream_sync(device->stream);
        ko_perf_device_forget(device);
        (void)device->cuda->stream_destroy(device->stream);
    }
    if (device->begin)
        (void)device->cuda->event_destroy(device->begin);
    if (device->end)
        (void)device->cuda->event_destroy(device->end);
    ko_cuda_leave(device->cuda, &device->place);
    kolo_free(device);
}

int ko_perf_device_name(const struct ko_perf_device *device, char *name, size_t cap)
{
    char place[32], model[64];
    ko_cu_result result = device->cuda->device_pci(place, sizeof place, device->place.device);

    if (!result)
        result = ko_cuda_name(device->cuda, device->place.device, model, sizeof model);
    if (!result)
        snprintf(name, cap, "%2d [%s] %s", device->place.ordinal, place, model);
    return check(device, result, "a GPU has no name");
}

/* ---- memory ------------------------------------------------------------------------------ */

int ko_perf_device_alloc(struct ko_perf_device *device, size_t nbytes, void **memory)
{
    ko_cu_ptr at;
    char what[64];
    int err;

    snprintf(what, sizeof what, "a buffer of %zu bytes on the GPU", nbytes);
    err = check(device, device->cuda->alloc(&at, nbytes), what);
    if (!err)
        *memory = (void *)(uintptr_t)at;
    return err;
}

void ko_perf_device_free(struct ko_perf_device *device, void *memory)
{
    if (memory)
        (void)device->cuda->free((uintptr_t)memory);
}

int ko_perf_device_copy(struct ko_perf_device *device, void *to, const void *from, size_t nbytes)
{
    ko_cu_result result = KO_CU_SUCCESS;

    if (nbytes)
        result = device->cuda->copy((uintptr_t)to, (uintptr_t)from, nbytes, device->stream);
    if (!result)
        result = device->cuda->stream_sync(device->stream);
    return check(device, result, "a copy from or to the GPU");
}

/* ---- time -------------------------------------------------------------------------------- */

int ko_perf_device_begin(struct ko_perf_device *device)
{
    return check(device, device->cuda->event_record(device->begin, device->stream), "an event");
}

int ko_perf_device_end(struct ko_perf_device *device)
{
    return check(device, device->cuda->event_record(device->end, device->stream), "an event");
}

int ko_perf_device_elapsed(struct ko_perf_device *device, double *us)
{
    float ms = 0;
    ko_cu_result result = device->cuda->event_sync(device->end);

    if (!result)
        result = device->cuda->event_elapsed(&ms, device->begin, device->end);
    *us = 1e3 * (double)ms;
    return check(device, result, "the time between two events");
}

int ko_perf_device_sync(struct ko_perf_device *device)
{
    return check(device, device->cuda->stream_sync(device->stream), "waiting for the GPU");
}

/* ---- graphs ------------------------------------------------------------------------------ */

int ko_perf_device_capture(struct ko_perf_device *device)
{
    ko_perf_device_forget(device);
    return check(device, device->cuda->capture_begin(device->stream, KO_CU_CAPTURE_RELAXED),
                 "a graph cannot be begun");
}

int ko_perf_device_captured(struct ko_perf_device *device, int err)
{
    ko_cu_graph graph = NULL;
    ko_cu_result result = device->cuda->capture_end(device->stream, &graph);

    if (!result && !err)
        result = device->cuda->graph_prepare(&device->graph, graph, 0);
    if (graph)
        (void)device->cuda->graph_destroy(graph);
    return err ? err : check(device, result, "a graph cannot be made");
}

int ko_perf_device_launch(struct ko_perf_device *device)
{
    return check(device, device->cuda->graph_launch(device->graph, device->stream),
                 "a graph cannot be launched");
}

void ko_perf_device_forget(struct ko_perf_device *device)
{
    if (device->graph)
        (void)device->cuda->graph_exec_destroy(device->graph);
    device->graph = NULL;
}
