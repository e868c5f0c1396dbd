/* SPDX-License-Identifier: MIT
 *
 * gpu.h: a group's way to GPU memory: whose a buffer is, the order of the user's stream, copies and
 * reductions. These go by a stream of the group's own. Any thread; the memory of ko_gpu_staging
 * and ko_gpu_scratch is one thread's at a time. Errors are the driver's (ko_cuda_check).
 */
#ifndef KO_GPU_H
#define KO_GPU_H

#include "clock.h"
#include "cuda_kernels.h"
#include "gpu_memory.h"
#include "kernel_args.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct ko_gpu;

/* A place in the user's stream. */
struct ko_gpu_mark {
    ko_cu_event reached;               /* once all before it is done */
    uint32_t ticket;                   /* 0, or what the stream waits for behind it */
    bool is_let_go;                    /* with a ticket: but an earlier one is not yet */
    struct ko_gpu_mark *later;         /* the next with a ticket */
    struct ko_gpu_mark *spare, *elder; /* the next that is unused; of all */
};

/* On the GPU of the user's stream; NULL: the legacy stream of the calling thread's current GPU, or
 * of GPU 0 if it has none. KOLO_E_INVALID: the handle means another stream in each thread. As soon
 * as *stop is not 0 (it belongs to the caller, and outlives the gpu) no call waits for the GPU any
 * more. KOLO_E_UNSUPPORTED: there is no driver. */
int ko_gpu_open(void *stream, const atomic_int *stop, struct ko_gpu **gpu);

/* From now on in the order of another stream of the same GPU; NULL: its legacy stream, if no other
 * GPU is the calling thread's current one. KOLO_E_INVALID: of another one; as above. */
int ko_gpu_follow(struct ko_gpu *gpu, void *stream);

/* Lets go of all that the user's stream waits for. Waits a bounded time for what is under way: if
 * the GPU stands still, or the group has failed, the memory is left to it. NULL is allowed. */
void ko_gpu_close(struct ko_gpu *gpu);

/* Whether it is memory on a GPU. A GPU that has failed does not say, and that is its error: what
 * lies on it is nothing for the processor to touch. */
int ko_gpu_holds(struct ko_gpu *gpu, const void *buffer, bool *does);

/* With the context, the same: managed memory is, wherever its pages are, since only the stream's
 * order says when the processor may touch them. is_managed may be NULL. Errors are the driver's. */
ko_cu_result ko_cuda_holds(const struct ko_cuda *cuda, ko_cu_ptr at, bool *does, bool *is_managed);

/* Whether such memory goes on for nbytes: what a copy or a kernel finds out would end the context
 * and all that the process has there. KOLO_E_INVALID with how far it goes; KOLO_OK where the driver
 * does not say. */
int ko_gpu_check_length(struct ko_gpu *gpu, const void *buffer, size_t nbytes);

/* With the context: the bytes there that the driver knows of, up to `most`; of pieces those that
 * lie side by side, since what is beside any other memory is not of it. 0: it says nothing. */
uint64_t ko_cuda_length_at(const struct ko_cuda *cuda, ko_cu_ptr at, uint64_t most,
                           bool is_in_pieces);

/* The number that no other GPU has. */
int ko_gpu_identify(struct ko_gpu *gpu, ko_cu_uuid *uuid);

/* Whether this GPU can be given access to the memory of the one with that number: itself, or one
 * that the machine has a way to. Of one that the driver does not list here, but in another process
 * (CUDA_VISIBLE_DEVICES), only to open its memory tells. */
enum ko_gpu_access { KO_GPU_NO_ACCESS, KO_GPU_ACCESS, KO_GPU_ACCESS_UNKNOWN };
enum ko_gpu_access ko_gpu_access_to(struct ko_gpu *gpu, const ko_cu_uuid *uuid);

/* Whether what *stop of ko_gpu_open says is that no call waits any more. */
bool ko_gpu_is_stopped(const struct ko_gpu *gpu);

/* Whether its streams can wait for words, as they cannot with some drivers and divided GPUs; if
 * not, the log has said why, and no mark may be held. */
bool ko_gpu_can_wait(const struct ko_gpu *gpu);

/* Whether there are kernels for it; if not, the log has said why. */
bool ko_gpu_has_kernels(const struct ko_gpu *gpu);

/* The driver, for calls between ko_gpu_enter and ko_gpu_leave, while the GPU's context is the
 * calling thread's, and no capture of a graph forbids it anything. */
const struct ko_cuda *ko_gpu_driver(struct ko_gpu *gpu);
int ko_gpu_enter(struct ko_gpu *gpu);
void ko_gpu_leave(struct ko_gpu *gpu);

/* ---- the user's stream ----------------------------------------------------------------------- */

/* Whether the user's stream takes one more mark that is held. */
bool ko_gpu_has_room(struct ko_gpu *gpu);

/* Marks what the user has put into his stream so far, and, if that has been set since, what calls
 * have put into another one, and have that wait for. is_held: what he puts there from now on waits
 * until this mark is let go, and all that were held before it; first the caller does until there is
 * room, which he may not keep those from making who let go of marks. */
int ko_gpu_mark(struct ko_gpu *gpu, bool is_held, struct ko_gpu_mark **mark);

/* Waits until the user's stream has come to the mark. Nothing is begun before that, since what
 * waits for a stream that stands still could not be taken back. KOLO_E_TIMEOUT, KOLO_E_ABORTED.
 * mark NULL: there is nothing to wait for, and perhaps no gpu. */
int ko_gpu_await_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark,
                      const ko_deadline *deadline);

/* The same without waiting: KO_AGAIN. */
int ko_gpu_look_at_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark);

/* The end of the mark. NULL is allowed. */
void ko_gpu_let_go(struct ko_gpu *gpu, struct ko_gpu_mark *mark);

/* Lets go of all marks that are held, or will be: the group has failed. Any thread, which waits for
 * no other: a driver may have them. NULL is allowed. */
void ko_gpu_let_all_go(struct ko_gpu *gpu);

/* Around what a call puts into a stream, with the context: it comes behind what others have put
 * into another one. Once it has begun it ends, also where it puts in only a part. */
int ko_gpu_begin_in_stream(struct ko_gpu *gpu, ko_cu_stream stream);
int ko_gpu_end_in_stream(struct ko_gpu *gpu, ko_cu_stream stream);

/* The group's late stream, for calls that are behind a mark: what comes into it from now on waits
 * for that; NULL: for none. Nothing in the own one does, by which messages come, since the user's
 * stream may have to wait for one of them before it comes to the mark. */
ko_cu_stream ko_gpu_late_stream(struct ko_gpu *gpu);
int ko_gpu_follow_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark);

/* What ranks of one process compare: whether what they put into their streams waits for each other,
 * as in the same one, or in the legacy one and another of its context that is not non-blocking. */
struct ko_gpu_order {
    uint64_t context, stream; /* 0: the legacy one */
    uint64_t is_blocking;
};
int ko_gpu_find_order(struct ko_gpu *gpu, struct ko_gpu_order *order);
static inline bool ko_gpu_are_in_order(const struct ko_gpu_order *a, const struct ko_gpu_order *b)
{
    const bool is_legacy = !a->stream || !b->stream;

    return a->context == b->context &&
           (a->stream == b->stream || (is_legacy && a->is_blocking && b->is_blocking));
}

/* The stream itself, and whether what comes into it is captured for a graph. */
ko_cu_stream ko_gpu_user_stream(struct ko_gpu *gpu);
int ko_gpu_is_captured(struct ko_gpu *gpu, bool *is_captured);

/* Host memory by which streams and kernels hear of the host, and it of them: the address of a
 * member for the GPU is ko_gpu_page_at plus its offset. */
enum { KO_GPU_LOOK = 2 * KO_FOLD_MOST };
struct ko_gpu_page {
    _Atomic uint32_t let_go;     /* the last ticket that was; streams wait for it */
    _Atomic uint32_t stop;       /* not 0: kernels do not wait for other GPUs */
    _Atomic uint32_t done;       /* own part in calls up to this one is, in streams */
    _Atomic uint32_t awaited[2]; /* by ko_gpu_round (group_watch.h), or 0 */
    _Atomic uint32_t stalled[2][KO_PUSH_BLOCKS]; /* as many, by kernels (kernel_args.h) */
    uint32_t look[KO_GPU_LOOK];                  /* what was read last (gpu_share_words.c) */
    uint32_t tried;                              /* by the first stream */
};
struct ko_gpu_page *ko_gpu_page(const struct ko_gpu *gpu);
static inline bool ko_gpu_page_is_awaited(const struct ko_gpu_page *page)
{
    return atomic_load(&page->awaited[0]) || atomic_load(&page->awaited[1]);
}
ko_cu_ptr ko_gpu_page_at(const struct ko_gpu *gpu);

/* From now on the page lasts as long as the process, for graphs that do. */
void ko_gpu_keep_page(struct ko_gpu *gpu);

/* ---- copies, reductions ---------------------------------------------------------------------- */

/* Begins a copy, either way; the buffers stay as they are until ko_gpu_finish. */
int ko_gpu_copy(struct ko_gpu *gpu, void *to, const void *from, size_t nbytes);

/* Marks all that was begun so far. */
int ko_gpu_mark_own(struct ko_gpu *gpu, struct ko_gpu_mark **mark);

/* The group's own stream, for what ko_gpu_finish waits for. */
ko_cu_stream ko_gpu_own_stream(struct ko_gpu *gpu);

/* Waits until all that was begun is done. KOLO_E_TIMEOUT, KOLO_E_ABORTED: the buffers cannot be had
 * back, since the GPU may still touch them. */
int ko_gpu_finish(struct ko_gpu *gpu, const ko_deadline *deadline);

/* Whether the GPU has failed, of which nobody who waits for a rank would hear. Does not wait. */
int ko_gpu_check(struct ko_gpu *gpu);

/* When calls have failed: until when all of them together wait for GPUs, which begins with the
 * first that asks; and whether what the group's own stream was given is done by then, although the
 * group has failed. */
ko_deadline ko_gpu_settling(struct ko_gpu *gpu);
bool ko_gpu_settle(struct ko_gpu *gpu, const ko_deadline *deadline);

/* The same of a mark, and of what calls have put into the user's stream or the late one. */
bool ko_gpu_settle_mark(struct ko_gpu *gpu, const struct ko_gpu_mark *mark,
                        const ko_deadline *deadline);
bool ko_gpu_settle_streams(struct ko_gpu *gpu, const ko_deadline *deadline);

/* ko_gpu_finish of the late stream. */
int ko_gpu_finish_late(struct ko_gpu *gpu, const ko_deadline *deadline);

/* At the end of the group: whether all that was begun is done, although the group may have failed,
 * after a wait for it that is bounded for all who ask together, and ko_gpu_close. */
bool ko_gpu_comes_to_rest(struct ko_gpu *gpu);

/* The end of memory that nothing on the GPU uses any more: another process's, by its handle or in
 * pieces, or one's own; none is allowed. It goes when no stream of the process waits for a call, at
 * the latest with the gpu, since the driver has who takes memory away wait for all streams. Any
 * thread. */
struct ko_gpu_opened;
void ko_gpu_retire_opened(struct ko_gpu *gpu, struct ko_gpu_opened *opened);
void ko_gpu_retire_pieces(struct ko_gpu *gpu, ko_cu_ptr at, size_t nbytes);
void ko_gpu_retire_memory(struct ko_gpu *gpu, const struct ko_gpu_memory *memory);

/* Takes what has been retired away, if it can be now; as letting go of a mark does. */
void ko_gpu_tidy(struct ko_gpu *gpu);

/* Host memory that copies reach quickly, good until the next call of the same. */
int ko_gpu_staging(struct ko_gpu *gpu, size_t nbytes, unsigned char **memory);

/* The same, to borrow: it is the caller's until he gives it back, which he does before the gpu is
 * closed. is_left: the GPU may still touch it. What is given back is kept for the next, up to a
 * bound. Any thread. */
struct ko_gpu_block {
    unsigned char *memory;
    size_t nbytes; /* as many as were asked for, or more */
    bool is_shared, is_registered;
    struct ko_gpu_block *next; /* the gpu's own */
};
int ko_gpu_borrow(struct ko_gpu *gpu, size_t nbytes, struct ko_gpu_block **block);
void ko_gpu_give_back(struct ko_gpu *gpu, struct ko_gpu_block *block, bool is_left);

/* The GPU's own memory, good until the next call of the same for the same; such as other processes
 * open by its handle or, from ko_gpu_prefer_pieces on, are handed. That for casts of graphs, which
 * may be under way beside calls, stays where it is for them (ko_gpu_keep_page). */
enum ko_gpu_purpose {
    KO_GPU_FOR_PIECES,
    KO_GPU_FOR_CASTS,
    KO_GPU_FOR_CAPTURED_CASTS,
    KO_GPU_NPURPOSES
};
int ko_gpu_scratch(struct ko_gpu *gpu, enum ko_gpu_purpose purpose, size_t nbytes,
                   ko_cu_ptr *memory);
void ko_gpu_prefer_pieces(struct ko_gpu *gpu);

#endif
