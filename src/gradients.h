/* SPDX-License-Identifier: MIT
 *
 * gradients.h: what training does with gradients on the host: the same arguments and the same bits
 * as the kernels of kernel_args.h. Any alignment that suits the elements; any thread.
 */
#ifndef KO_GRADIENTS_H
#define KO_GRADIENTS_H

#include "kernel_args.h"
#include "kolo.h"

enum ko_step_rule { KO_SGD_RULE, KO_ADAM_RULE, KO_NSTEP_RULES };

/* KOLO_E_UNSUPPORTED but for those that gradients have: float32, float16 and bfloat16. */
int ko_gradients_check(kolo_dtype dtype);

/* ko_scale_FROM_TO, of dtypes that gradients have. */
void ko_gradients_scale(kolo_dtype from, kolo_dtype to, const struct ko_scale *scale);

/* ko_sgd_DTYPE and ko_adam_DTYPE, of one part and one output. */
void ko_gradients_step(enum ko_step_rule rule, kolo_dtype dtype, const struct ko_step *step);

/* The same by an instruction set of ko_reduction_nlevels, for tests. */
void ko_gradients_scale_at(int level, kolo_dtype from, kolo_dtype to, const struct ko_scale *scale);
void ko_gradients_step_at(int level, enum ko_step_rule rule, kolo_dtype dtype,
                          const struct ko_step *step);

#endif
