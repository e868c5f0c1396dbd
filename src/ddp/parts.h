/* SPDX-License-Identifier: MIT
 *
 * parts.h: the arrays of a bucket's members: where they lie, and copies of them side by side. With
 * gpu NULL all is in host memory. Else what is side by side is in GPU memory, the members' arrays
 * may be in either, and copies are put into the user's stream, for which nobody waits here: they
 * come behind what the user has put there, and before the call that is made next. One thread.
 */
#ifndef KO_PARTS_H
#define KO_PARTS_H

#include "ddp/bucket.h"
#include "gpu.h"

/* What of a parameter is meant: its data, its gradient, or its first state; the second state is one
 * more. */
enum ko_param_part { KO_PART_DATA, KO_PART_GRAD, KO_PART_STATES, KO_NPARTS = KO_PART_STATES + 2 };

size_t ko_param_bytes(const kolo_param *param);
size_t ko_bucket_bytes(const struct ko_bucket *bucket);

/* KOLO_E_INVALID if one of its arrays is GPU memory that ends too early. Here and below, errors are
 * those of a GPU that does not say where an array lies. */
int ko_parts_check(struct ko_gpu *gpu, const kolo_param *param);

/* Whether any array of any member is in GPU memory. */
int ko_parts_any_on_gpu(struct ko_gpu *gpu, const kolo_param *params,
                        const struct ko_bucket *bucket, bool *is_any);

/* Whether any member has the part. */
bool ko_parts_exist(const kolo_param *params, const struct ko_bucket *bucket,
                    enum ko_param_part part);

/* Where the parts of all members lie, if side by side in the bucket's order; else NULL. */
int ko_parts_common(struct ko_gpu *gpu, const kolo_param *params, const struct ko_bucket *bucket,
                    enum ko_param_part part, char **common);

/* Memory for what is side by side. ko_parts_free: NULL is allowed; a GPU's goes when no stream of
 * the process waits for a call, since the driver would have the caller wait for it. */
int ko_parts_alloc(struct ko_gpu *gpu, size_t nbytes, char **memory);
void ko_parts_free(struct ko_gpu *gpu, char *memory);

/* Whether the GPU has done all that it was given, after a bounded wait for it: then nothing of it
 * touches memory that is freed. */
bool ko_parts_rest(struct ko_gpu *gpu);

/* One array, either way. */
int ko_part_copy(struct ko_gpu *gpu, void *to, const void *from, size_t nbytes);

/* The parts of all members that have them into memory, in the bucket's order, or back. */
int ko_parts_gather(struct ko_gpu *gpu, const kolo_param *params, const struct ko_bucket *bucket,
                    enum ko_param_part part, char *memory);
int ko_parts_scatter(struct ko_gpu *gpu, const kolo_param *params, const struct ko_bucket *bucket,
                     enum ko_param_part part, const char *memory);

/* Waits for copies, unless they are to be part of a graph. KOLO_E_TIMEOUT, KOLO_E_ABORTED. */
int ko_parts_await(struct ko_gpu *gpu, int timeout_ms);

#endif
