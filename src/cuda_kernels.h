/* SPDX-License-Identifier: MIT
 *
 * cuda_kernels.h: the device's side of kolo: kernels that this build carries for every GPU it knows
 * of, loaded when one is first wanted, for all contexts of the process and for good. Any thread.
 * The caller's context is current.
 */
#ifndef KO_CUDA_KERNELS_H
#define KO_CUDA_KERNELS_H

#include "cuda_driver.h"
#include "gradients.h"
#include "kolo.h"

/* Loads the kernels, which takes no context yet. KOLO_E_UNSUPPORTED: the build has none, or none
 * that the driver takes. */
int ko_cuda_kernels_open(void);

/* The same, and loads each of them into the current context, as has to be before a stream of it
 * waits for any (ko_cuda_preload): KOLO_E_UNSUPPORTED also if there is none for this GPU. */
int ko_cuda_kernels_preload(void);

/* Puts fold (kernel_args.h) at the end of stream: each output is parts[0] op parts[1] op ..., for
 * AVG divided by nranks, with the bits that the host's reductions give; bool as 0 or 1. fold's
 * divisor is set here. KOLO_E_INVALID and KOLO_E_UNSUPPORTED as ko_reduction_find. */
int ko_cuda_fold(kolo_dtype dtype, kolo_op op, struct ko_fold fold, int nranks,
                 ko_cu_stream stream);

/* The same as a SUM of parts times factors[nparts], with the bits that the host's reductions give:
 * each product is rounded to the dtype first (reduce.h's scale). */
int ko_cuda_premul(kolo_dtype dtype, const struct ko_fold *fold, const double *factors,
                   ko_cu_stream stream);

/* Exchanges push.nbytes, at most KO_PUSH_BYTES, with every other rank (kernel_args.h). */
int ko_cuda_push(struct ko_push push, ko_cu_stream stream);

/* Tells the ranks whose words these are that the stream has come here, unless this one has given up
 * a wait (kernel_args.h). */
int ko_cuda_tell(struct ko_tell tell, ko_cu_stream stream);

/* The sum or average of float32 parts that are rounded to wire, float16 or bfloat16, as is the
 * result. */
int ko_cuda_fold_rounded(kolo_dtype wire, kolo_op op, struct ko_fold fold, int nranks,
                         ko_cu_stream stream);

/* What training does with gradients, in one pass each (kernel_args.h): casts of up to KO_FOLD_MOST
 * arrays into a bucket or out of it, times a factor, with a look for what is not finite; and the
 * sum of all ranks' gradients with an optimizer's step, for AVG divided by nranks, with the bits of
 * gradients.h. Of float32, float16 and bfloat16; KOLO_E_UNSUPPORTED of others. wire is dtype, or
 * smaller as above. step's divisor is set here. */
int ko_cuda_scale(kolo_dtype from, kolo_dtype to, struct ko_scale scale, ko_cu_stream stream);

struct ko_gradients {
    enum ko_step_rule rule;
    kolo_dtype dtype, wire;
    kolo_op op;
    int nranks;
};
int ko_cuda_step(const struct ko_gradients *gradients, struct ko_step step, ko_cu_stream stream);

#endif
