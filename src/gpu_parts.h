/* SPDX-License-Identifier: MIT
 *
 * gpu_parts.h: what the files of gpu.h share.
 */
#ifndef KO_GPU_PARTS_H
#define KO_GPU_PARTS_H

#include "gpu.h"
#include "gpu_memory.h"
#include "gpu_waits.h"

#include <pthread.h>
#include <stdint.h>

enum { KO_GPU_CLOSE_MS = 2000 }; /* at most, for all that is under way when the group ends */

struct ko_gpu {
    const struct ko_cuda *cuda;
    ko_cu_context context;
    ko_cu_device device;
    bool is_retained; /* the context is one that we asked for */
    bool has_kernels;
    bool can_wait; /* its streams, for words */
    const atomic_int *stop;
    ko_cu_stream _Atomic user;
    ko_cu_stream own, late;
    struct ko_gpu_block *staging;      /* the newest first: the older are freed at the end */
    struct ko_gpu_block *spare_blocks; /* that nobody has borrowed; the next two under the lock */
    struct ko_gpu_block *left_blocks;  /* that the GPU may still touch */
    size_t spare_bytes;
    struct scratch {
        struct ko_gpu_memory memory;
        struct scratch *older; /* as above */
    } * scratch[KO_GPU_NPURPOSES];
    bool prefers_pieces;     /* for scratch */
    struct retired *retired; /* under the lock */

    pthread_mutex_t putting; /* of who puts something into a user's stream, or the late one */
    pthread_mutex_t lock;    /* of marks, and of what is retired; the inner one: nobody has it in a
                              * call to the driver */
    struct ko_gpu_mark *spare, *youngest;
    struct ko_gpu_mark *first_held, *last_held;
    atomic_int nheld;
    ko_cu_event passed;           /* all waits in the user's stream */
    ko_cu_stream used;            /* by the last call that put something into one */
    ko_cu_event put;              /* behind that, as far as such calls have got */
    atomic_bool is_new;           /* the user's stream, and is not behind that */
    struct ko_gpu_waiter waiter;  /* such calls, and graphs */
    int64_t stalled_ns;           /* when a graph's kernel was last seen to wait */
    _Atomic uint32_t last_ticket; /* that the user's stream waits for */
    atomic_bool lets_all_go;      /* whatever is held, now and from now on */
    _Atomic int64_t settled_ns;   /* until when ko_gpu_settling says; 0: nobody has asked */
    ko_deadline closing;          /* what ko_gpu_closing says; all 0: nobody has asked */
    const char *unfinished;       /* what was not done by then; NULL: all was */
    struct ko_gpu_page *page;     /* registered with the GPU */
    ko_cu_ptr page_at;            /* for the GPU */
    bool keeps_page;
};

/* With the context: true if the GPU has done all it had to do for the group, and what was in the
 * user's stream before its calls: for what stands still there the driver would wait before it takes
 * memory away. After a wait for that. */
bool ko_gpu_await_end(struct ko_gpu *gpu);

/* At the end: until when the group waits for its GPU, which begins with the first that asks. */
ko_deadline ko_gpu_closing(struct ko_gpu *gpu);

/* Whether what calls have put into streams is not done yet, or a graph waits. */
bool ko_gpu_is_waiting(struct ko_gpu_waiter *waiter);

/* Whether a stream has not come to a mark yet. */
bool ko_gpu_is_behind(struct ko_gpu_waiter *waiter);

/* With the context: the end of a block; of one that may be had at any time, and of all. */
void ko_gpu_free_block(const struct ko_cuda *cuda, struct ko_gpu_block *block);
void ko_gpu_retire_block(struct ko_gpu *gpu, struct ko_gpu_block *block);
void ko_gpu_free_blocks(struct ko_gpu *gpu, bool is_left);

/* Frees what has been retired, between the two and with the context, or leaves it. */
void ko_gpu_free_retired(struct ko_gpu *gpu, bool is_left);

/* At the end: no call that has a mark will let go of it any more. */
void ko_gpu_forget_held(struct ko_gpu *gpu);

#endif
