/* SPDX-License-Identifier: MIT
 *
 * coll_epilogue.h: what an all_reduce does besides for training (kolo.h): its elements travel as a
 * smaller float, its result takes an optimizer's step, gradients are unscaled before all ranks
 * agree whether they are finite. The algorithms know nothing of it: it is done around them; on a
 * GPU that all ranks share in the pass that reduces, and so is the step on GPUs that reach each
 * other.
 */
#ifndef KO_COLL_EPILOGUE_H
#define KO_COLL_EPILOGUE_H

#include "coll.h"
#include "coll_gpu_plan.h"

/* The call is an all_reduce; with a step its in is the gradient, which may be changed, and its out
 * the parameters, float32; with tensors its buffers are the one float32 that says what was found.
 */
struct ko_epilogue {
    const char *name; /* of the call */
    kolo_dtype wire;  /* by which elements travel: the call's own, or of float32 a smaller one */
    bool has_step;
    kolo_step step;
    float *states[2];
    const kolo_tensor *tensors; /* to be unscaled before */
    size_t ntensors;
    kolo_cast cast;
};

/* Whether the call's reduction is not a plain one. */
static inline bool ko_call_has_step(const struct ko_call *call)
{
    return call->epilogue && call->epilogue->has_step;
}

static inline bool ko_call_is_cast(const struct ko_call *call)
{
    return call->epilogue && call->epilogue->wire != call->dtype;
}

static inline bool ko_call_is_fused(const struct ko_call *call)
{
    return ko_call_has_step(call) || ko_call_is_cast(call);
}

/* Gives the call its epilogue, and the number for its options. */
void ko_call_set_epilogue(struct ko_call *call, const struct ko_epilogue *epilogue);

/* For a call that is kept: bytes of memory for its epilogue, and the copy to it. */
size_t ko_epilogue_bytes(const struct ko_epilogue *epilogue);
const struct ko_epilogue *ko_epilogue_keep(const struct ko_epilogue *epilogue, void *memory);

/* The arrays that come besides the call's own, one after the other, of how many elements, and of
 * what; NULL behind the last. */
const void *ko_epilogue_array(const struct ko_call *call, size_t i, size_t *count,
                              kolo_dtype *dtype);

/* Whether float32 can travel as this. */
int ko_wire_check(const char *name, kolo_dtype wire);

/* Whether a step can be taken of such gradients, and has its states; `name` begins the text of an
 * error. */
int ko_step_check(const char *name, const kolo_update *update, kolo_dtype dtype,
                  const kolo_step *step);

/* The step on the host, by a gradient of float32 that has been reduced. */
void ko_step_take(const kolo_update *update, const kolo_step *step);

/* ---- for whoever has the engine's turn ---------------------------------------------------- */

/* What comes before the all_reduce: unscales, on the host, or on the GPU behind the call's mark or,
 * for a graph, in the user's stream. */
int ko_coll_unscale(kolo_group *group, const struct ko_call *call);

/* Takes the call apart: `way` carries out one of elements that have been cast, or an all_reduce
 * whose result is the gradient of the step that follows. */
int ko_coll_run_cast(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run);
int ko_coll_run_then_step(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run);

/* Puts step i of a plan into a stream, of a call that is fused. With the GPU's context. */
int ko_coll_begin_fused(kolo_group *group, const struct ko_call *call,
                        const struct ko_gpu_plan *plan, int i, ko_cu_stream stream);

#endif
