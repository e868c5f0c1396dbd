/* SPDX-License-Identifier: MIT
 *
 * gpu_share_parts.h: what the files of gpu_share.h share.
 */
#ifndef KO_GPU_SHARE_PARTS_H
#define KO_GPU_SHARE_PARTS_H

#include "gpu_memory.h"
#include "gpu_pieces.h"
#include "gpu_share.h"

#include <pthread.h>

/* What is known of one allocation. */
struct known {
    uint64_t id, base, nbytes;
    uint32_t kind;
    ko_cu_ipc_handle handle;      /* of one's own */
    ko_cu_ptr at;                 /* of another rank's: where it is here; 0: it cannot be reached */
    bool is_opened;               /* of another process's: has to be closed */
    bool is_put_off;              /* it cannot be reached yet, as what lay there has to go first */
    struct ko_gpu_opened *opened; /* by a handle */
    struct ko_gpu_pieces *pieces; /* of one's own that are to be handed over */
    struct ko_gpu_span *span;     /* of one's own in pieces */
    bool is_kept;                 /* one's own: graphs use it */
    uint32_t holders;             /* one's own: bits, ranks to whom it has been described */
    struct known *next;
};

struct ko_gpu_share {
    struct ko_gpu *gpu;
    const struct ko_cuda *cuda;
    bool has_legacy, has_pieces; /* ways of allocations to other processes */
    bool has_told;               /* that one has no way */
    bool has_no_stages;
    uint64_t nspans; /* that have been described */
    enum ko_gpu_layout layout;
    struct known *mine;                              /* that have been described */
    atomic_bool has_waits, has_captured, has_let_go; /* of streams; of graphs */
    struct ko_gpu_memory words;                      /* this rank's */
    struct ko_gpu_memory spare; /* that it made first, and that others may have opened */
    ko_cu_stream aside;         /* for what must not wait behind the group's own stream */
    _Atomic int64_t let_go_ns;  /* until when what was put in there for that is waited for; 0: it
                                 * has been seen to end */
    pthread_mutex_t looking;    /* held by who reads words */
    bool is_unanswered;         /* under it: what reads them has not been seen to end */
    int n;
    struct {
        bool is_here, is_away;
        uint64_t process; /* its number, where it is of this host */
        ko_cu_ptr words;
        struct known *known;
    } ranks[];
};

/* What is known of the allocation, as far as nbytes reach; NULL: nothing. Pieces may have been
 * added to it since. */
struct known *ko_known_find(struct known *known, uint64_t id, uint64_t nbytes);

/* Enters an allocation first; NULL after ko_fail. */
struct known *ko_known_enter(struct known **list, const struct ko_gpu_place *place);

/* With the context. Nothing is reached by what is unmapped; who is dropped has been taken out. */
void ko_known_unmap(struct ko_gpu_share *share, struct known *known);
void ko_known_drop(struct ko_gpu_share *share, struct known *known);
void ko_known_drop_all(struct ko_gpu_share *share, struct known *known);

/* With the context: takes out what `place` shows to have gone. */
void ko_known_drop_older(struct ko_gpu_share *share, struct known **link,
                         const struct ko_gpu_place *place);

/* With the context: whether all that was put aside has ended. */
bool ko_gpu_share_is_at_rest(const struct ko_gpu_share *share);

/* With the context: lets this rank's GPU touch what has an address in this process already. */
ko_cu_result ko_gpu_share_allow(const struct ko_cuda *cuda, const struct ko_gpu_place *place);

#endif
