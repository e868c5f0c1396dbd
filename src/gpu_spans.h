/* SPDX-License-Identifier: MIT
 *
 * gpu_spans.h: GPU memory in pieces that messages lie in. A span is of some that lie one behind the
 * other; a rank is handed it by the first call that sends it something from there, while both are
 * in it, and has it until it hears that the span is no longer whole; if graphs use it, that nothing
 * is left of it, since they go on to read it when the memory around has changed. One thread at a
 * time.
 */
#ifndef KO_GPU_SPANS_H
#define KO_GPU_SPANS_H

#include "gpu_handover.h"
#include "gpu_share.h"

struct ko_gpu_spans;

/* For a group of n ranks; is_here says of each whether it is of this process, others are handed
 * spans if is_handing; up to KO_FOLD_MOST ranks are. Ends before gpu does. */
int ko_gpu_spans_open(struct ko_gpu *gpu, int n, const bool *is_here, bool is_handing,
                      struct ko_gpu_spans **spans);

/* is_left: graphs may still read what is mapped, which stays so. NULL is allowed. */
void ko_gpu_spans_close(struct ko_gpu_spans *spans, bool is_left);

/* Where a buffer of nbytes lies, for rank `to`, until ko_gpu_spans_end; what has to be handed over
 * for that is added to what this call hands over. False: it is in no pieces that the rank could
 * reach. */
bool ko_gpu_spans_describe(struct ko_gpu_spans *spans, int to, const void *buffer, size_t nbytes,
                           struct ko_gpu_handover *handover, struct ko_gpu_place *place);

/* From now on graphs use what was described so. */
void ko_gpu_spans_keep(struct ko_gpu_spans *spans, const struct ko_gpu_place *place);

/* The call for which it was described so is at its end; is_taken: rank `to` has what it was told.
 */
void ko_gpu_spans_end(struct ko_gpu_spans *spans, int to, const struct ko_gpu_place *place,
                      bool is_taken);

/* The address here of what another rank has described so; KO_AGAIN while it is handed over, or the
 * other is not there to do it. */
int ko_gpu_spans_reach(struct ko_gpu_spans *spans, int from, const struct ko_gpu_place *place,
                       uint64_t *at);

#endif
