/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_pieces.h: calls of groups some of whose ranks have GPUs, by way of other memory, as the
 * host's: long ones in pieces, so that one is on its way between the ranks while the next comes
 * from the GPU and the one before goes back to it.
 */
#ifndef KO_COLL_GPU_PIECES_H
#define KO_COLL_GPU_PIECES_H

#include "coll.h"

/* A call in n pieces, by two slots of such memory: piece k has slot k % 2 from begin_in, which puts
 * copies to it into the group's own stream, to the last of begin_out's, from it; cross works on it
 * between, and others' copies are under way meanwhile. is_on_gpu: copies are the GPU's; else they
 * are done when their function returns. */
struct ko_piecework {
    kolo_group *group;
    const struct ko_call *call;
    size_t n;
    bool is_on_gpu;
    int (*begin_in)(void *work, size_t k);
    int (*cross)(void *work, size_t k);
    int (*begin_out)(void *work, size_t k);
};

/* All of them, whose input is ready; has waited for the last copy. A failure of the GPU's leaves
 * the other ranks waiting for this one, or copies under way in its memory, so that it is the
 * group's. */
int ko_coll_run_pieces(const struct ko_piecework *of, void *work);

/* A ko_way: by `run`, as many times as all ranks alike find best. The caller has the engine's turn.
 */
int ko_coll_run_by_host(kolo_group *group, const struct ko_call *call, ko_run *run);

/* A call of several tensors: `way` carries out each that is worth a call of its own where there are
 * GPUs, and the others go together. */
int ko_coll_run_long_ones(kolo_group *group, const struct ko_call *call, ko_way *way, ko_run *run);

/* Carries out a call of one tensor, in blocks of one length, of buffers in GPU memory, by copies
 * there that cross works on, in pieces. The caller has the engine's turn. */
int ko_coll_run_staged(kolo_group *group, const struct ko_call *call,
                       int (*cross)(kolo_group *group, const struct ko_call *call, ko_run *run),
                       ko_run *run);

#endif
