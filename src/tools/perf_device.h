/* SPDX-License-Identifier: MIT
 *
 * perf_device.h: a rank's GPU: memory on it, and a stream, in whose order the group's calls go and
 * whose events take the time. One thread's, with the GPU's context. Errors are the driver's.
 */
#ifndef KO_PERF_DEVICE_H
#define KO_PERF_DEVICE_H

#include "kolo.h"

#include <stddef.h>

struct ko_perf_device;

/* KOLO_E_UNSUPPORTED says why there is no GPU here. */
int ko_perf_device_check(void);

/* The GPUs of a machine go to its ranks in turn; number is the rank's on this machine. The group's
 * calls go in the order of the device's stream from then on: a collective call. */
int ko_perf_device_open(kolo_group *group, int number, struct ko_perf_device **device);

/* Waits for the stream. NULL is allowed. */
void ko_perf_device_close(struct ko_perf_device *device);

/* "0 [0000:1b:00.0] NVIDIA H200", at most cap bytes. */
int ko_perf_device_name(const struct ko_perf_device *device, char *name, size_t cap);

/* ---- memory ------------------------------------------------------------------------------ */

int ko_perf_device_alloc(struct ko_perf_device *device, size_t nbytes, void **memory);
void ko_perf_device_free(struct ko_perf_device *device, void *memory);

/* Copies between the GPU and the host, either way, in the order of the stream; done on return. */
int ko_perf_device_copy(struct ko_perf_device *device, void *to, const void *from, size_t nbytes);

/* ---- time -------------------------------------------------------------------------------- */

/* The time between what the stream has been given before begin and what before end. */
int ko_perf_device_begin(struct ko_perf_device *device);
int ko_perf_device_end(struct ko_perf_device *device);

/* Waits for the end. */
int ko_perf_device_elapsed(struct ko_perf_device *device, double *us);

/* Waits until the stream has done what it was given. */
int ko_perf_device_sync(struct ko_perf_device *device);

/* ---- graphs ------------------------------------------------------------------------------ */

/* What the stream is given from capture to captured becomes a graph instead, the one of the device;
 * a failed err (KOLO_OK: none) ends the capture as well, and is returned. */
int ko_perf_device_capture(struct ko_perf_device *device);
int ko_perf_device_captured(struct ko_perf_device *device, int err);

int ko_perf_device_launch(struct ko_perf_device *device);

/* The graph's end, if there is one; the stream has done with it. */
void ko_perf_device_forget(struct ko_perf_device *device);

#endif
