/* SPDX-License-Identifier: MIT
 *
 * gpu_share_parts.h: what the files of gpu_share.h share.
 */
#ifndef KO_GPU_SHARE_PARTS_H
#define KO_GPU_SHARE_PARTS_H

#include "gpu_share.h"

/* What is known of one allocation. */
struct known {
    uint64_t id, base, nbytes;
    uint32_t kind;
    ko_cu_ipc_handle handle;      /* of one's own */
    ko_cu_ptr at;                 /* of another rank's: where it is here; 0: it cannot be reached */
    struct ko_gpu_pieces *pieces; /* of one's own that are to be handed over */
    struct known *next;
};

struct ko_gpu_share {
    struct ko_gpu *gpu;
    const struct ko_cuda *cuda;
    bool has_legacy, has_pieces; /* ways of allocations to other processes */
    bool has_told;               /* that one has no way */
    enum ko_gpu_layout layout;
    struct known *mine; /* that have been described */
    atomic_bool has_captured, has_let_go;
    ko_cu_ptr made_words; /* this rank's */
    ko_cu_stream aside;   /* for what must not wait behind the group's own stream */
    int n;
    struct {
        bool is_here, is_away;
        ko_cu_ptr words;
        struct known *known;
    } ranks[];
};

#endif
