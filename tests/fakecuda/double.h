/* SPDX-License-Identifier: MIT
 *
 * A test double of NVIDIA's driver: a libcuda.so.1 whose devices are threads and whose memory is
 * the host's. It stands where the loader finds it (LD_LIBRARY_PATH, a program's rpath); kolo itself
 * has no door for it. Each function has the name and the meaning of the driver's, and the errors
 * that kolo goes by; what a caller may not do on a device it may not do here.
 *
 *   FAKECUDA_DEVICES=N     so many GPUs (1)
 *   FAKECUDA_VISIBLE=N,... those of them that the process has, in this order (all), as by
 *                          CUDA_VISIBLE_DEVICES; another process's memory on a hidden one can be
 *                          opened, but where FAKECUDA_HIDDEN=0
 *   FAKECUDA_MULTIPROCESSORS=N  each GPU's (4), which say how many blocks kolo's kernels have
 *   FAKECUDA_NAMES=NAME,...  of the GPUs, the last one that of all behind, too; one for which there
 *                          is no room is cut off, and has no end then
 *   FAKECUDA_BYTES=N       of memory that each GPU says it has (1 GiB)
 *   FAKECUDA_CONTEXTS=N    a process can have contexts made N times in all (no limit); after that
 *                          there is no memory for one (2)
 *   FAKECUDA_PEERS=N       each N of them that follow each other can be given access to each
 *                          other's memory (all); a kernel that has none and tries it aborts
 *   FAKECUDA_VERSION=V     the driver's version; what came later is missing (13000)
 *   FAKECUDA_BREAK=NAME=E  the function fails with the driver's error E (more: comma separated);
 *                          below 0: the process gets the signal -E. A name of no function of
 *                          the driver that kolo uses aborts, here and below
 *   FAKECUDA_WITHOUT=NAME,...  functions that the driver does not have
 *   FAKECUDA_LONGEST=BYTES memory of more is not to be had at once (2; no limit)
 *   FAKECUDA_DMA_BUF=1     its memory can be had as a dma-buf (0), by the host's pages in which an
 *                          allocation lies, whatever else lies there, and that of several pieces
 *                          side by side, of one GPU and the same properties, as one; 2: by those
 *                          pages alone that are one allocation's, or piece's, from end to end
 *   FAKECUDA_ORDERING=N    what adapters write is seen by a GPU's streams as N says (100: at once;
 *                          0: once it has been flushed, if FAKECUDA_FLUSHES=1)
 *   FAKECUDA_LAZY=1        a kernel that is not loaded yet cannot be started beside a stream of its
 *                          context that has something to do (600), where a GPU would wait for it
 *   FAKECUDA_STRICT=1      nothing of another process's is opened by a handle at an address where
 *                          what that has freed is still open here (208), no kernel is started on a
 *                          GPU while a thread frees memory there, as a GPU's driver has it, and a
 *                          copy between a GPU and memory of the host's that is not registered
 *                          returns when it is done, as a driver's may
 *   FAKECUDA_QUEUES=N      streams of a context beyond N of a priority share N queues, in each of
 *                          which all is done in the order of its coming, as a GPU has it beyond
 *                          CUDA_DEVICE_MAX_CONNECTIONS (0: each has its own)
 *   FAKECUDA_DEPTH=N       a stream has room for N operations, and who puts in more waits for it
 *                          (0: no limit; a GPU's have room for about a thousand)
 *   FAKECUDA_SHUT=1        while a thread waits for that room, no other one's call of the context
 *                          comes in
 *   FAKECUDA_BLOCKS=1      what is allocated of up to 1 MiB is a part of a block of 2 MiB, which
 *                          goes with the last one; a part's handle opens all of it
 *   FAKECUDA_JITTER=US     some of a stream's operations begin up to so much later
 *   FAKECUDA_THREADS=1     every thread of a kernel is one; else a block is, and blocks follow
 *                          each other
 *   FAKECUDA_SLOTS=N       every block is a thread, and N of them run on a GPU at once (no limit)
 *   FAKECUDA_SLICE=US      the same, and a GPU is one process's at a time: until its kernels have
 *                          ended, or one of them waits and has had it for so long
 *   FAKECUDA_SHARED=FILE   of processes that have the same FILE these two hold for all together
 *
 * Device memory is a memfd of its own, whose first MiB is full of 0xa5, and which the caller's
 * threads cannot touch where the processor has protection keys: only streams' threads may.
 */
#ifndef DOUBLE_H
#define DOUBLE_H

#include "../double_lists.h"
#include "cuda_abi.h"

#include <pthread.h>
#include <stdbool.h>

enum { DOUBLE_MOST_DEVICES = 16 };

struct ko_cuda_context {
    int device;
    unsigned peers;                /* bits: GPUs whose memory it has access to; atomic */
    struct ko_cuda_stream *legacy; /* the stream whose handle is NULL */
    ko_cu_result fault;            /* by which it has ended (fakecuda_fault); atomic */
    int nawaiting;                 /* threads that wait for its streams; atomic */
    int ncrowded;                  /* threads that wait for room in one; atomic */
};

/* ---- door.cc --------------------------------------------------------------------------------- */

/* Whether the driver's function is one that kolo uses: the name has length characters. */
bool double_knows(const char *name, size_t length);

/* ---- enter.c --------------------------------------------------------------------------------- */

/* Aborts with a line of text if a variable names a function that kolo does not use. */
void double_check_names(void);
/* What there is to know of a function beforehand. */
struct double_trait {
    bool is_unsafe; /* captures forbid it */
    bool outlives;  /* it answers as ever when the thread's context has ended by a fault */
    bool is_end;    /* of something that goes even then, though the answer is the fault's */
};
struct double_trait double_trait_of(const char *function);
/* KO_CU_SUCCESS, or what FAKECUDA_BREAK makes of the function; before cuInit NOT_INITIALIZED; what
 * captures say to it, if it is unsafe. */
ko_cu_result double_enter(const char *function, const struct double_trait *trait);
/* Functions with commas between them, whose callers are held up until another list does not name
 * them; how many are. "transfers" holds up streams that have come to a copy or a fill, as where it
 * stands behind another stream's work in the same queue of the GPU. Tests find these by their
 * names. The list stays the caller's. */
__attribute__((visibility("default"))) void fakecuda_hold(const char *functions);
__attribute__((visibility("default"))) int fakecuda_held(void);
bool double_is_held(const char *name);

/* ---- driver.c -------------------------------------------------------------------------------- */

int double_number(const char *variable, int standard);
/* Whether cuInit has been called. */
bool double_is_started(void);
/* The calling thread's; NULL if it has none. */
ko_cu_context double_context(void);
ko_cu_context double_context_of(int device);
/* Whether the process has it; whether the machine does. */
bool double_is_gpu(ko_cu_device device);
bool double_exists(ko_cu_device device);
/* Whether a GPU can be given access to another's memory; its own it has. */
bool double_reaches(ko_cu_device device, ko_cu_device peer);

/* ---- faults.c -------------------------------------------------------------------------------- */

/* By which the context has ended; and the thread's, if the function does not outlive it. */
ko_cu_result double_fault_of(ko_cu_context context);
ko_cu_result double_fault(const struct double_trait *trait);
/* Puts a fault into a stream, as of a kernel of the user's: when it comes to it, the context ends.
 * What its streams have to do is not done, and calls of it return the fault. Tests find it by its
 * name. */
__attribute__((visibility("default"))) ko_cu_result fakecuda_fault(ko_cu_stream stream,
                                                                   ko_cu_result fault);

/* ---- ranges.c -------------------------------------------------------------------------------- */

/* For the threads of streams: from now on the calling thread may touch device memory. */
void double_allow(void);
/* Where device memory lies: its range of addresses, the GPU that has it, and whether a kernel of
 * GPU `by` may touch it. False: the address is not device memory's. */
struct double_home {
    ko_cu_ptr base, end;
    int device;
    bool is_allowed;
};
bool double_find(ko_cu_ptr at, int by, struct double_home *home);
/* True if all nbytes lie in device memory, or none of them does. */
bool double_is_valid(ko_cu_ptr at, size_t nbytes);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Whether FAKECUDA_LONGEST leaves room for nbytes at once. */
bool double_has_room(size_t nbytes);
/* From now on what cuMemAlloc gave is managed memory, whose pages lie on the GPU, or the host: as a
 * pointer's type the driver says either. The double's processor cannot touch them all the same.
 * Tests find it by its name. */
__attribute__((visibility("default"))) void fakecuda_manage(ko_cu_ptr memory, bool is_at_host);
/* Whether the driver has locked memory there: it is registered; whether it is managed. */
bool double_is_locked(ko_cu_ptr at);
bool double_is_managed(ko_cu_ptr at);
/* Bytes of the host's memory that are registered now, and the most that were at once since this was
 * last asked. Tests find it by its name. */
__attribute__((visibility("default"))) void fakecuda_bytes_locked(uint64_t *now, uint64_t *most);

/* ---- traffic.c ------------------------------------------------------------------------------- */

/* GPU `device` has read, or written, so much of GPU `home`'s memory. */
void double_count(int device, int home, uint64_t read, uint64_t written);
/* The same for nbytes from one address to another, as far as they are device memory's. */
void double_count_copy(int device, ko_cu_ptr to, ko_cu_ptr from, uint64_t nbytes);
/* Kernels have touched so much of device memory less than a pack at a time. */
void double_count_narrow(uint64_t nbytes);
/* Of device memory, by kernels and copies of this process so far: in all, and of GPU `home`'s by
 * GPU `device`; what was copied between device memory and the host's, and of that what the driver
 * would bring by a buffer of its own, since the host's was not registered; and what kernels have
 * touched less than a pack at a time. Tests find these by their names. */
__attribute__((visibility("default"))) void fakecuda_bytes(uint64_t *read, uint64_t *written);
__attribute__((visibility("default"))) void
fakecuda_bytes_between(int device, int home, uint64_t *read, uint64_t *written);
__attribute__((visibility("default"))) uint64_t fakecuda_bytes_with_host(void);
__attribute__((visibility("default"))) uint64_t fakecuda_bytes_pageable(void);
__attribute__((visibility("default"))) uint64_t fakecuda_bytes_narrow(void);

/* ---- adapters.c ------------------------------------------------------------------------------ */

/* How often what adapters have written was flushed. Tests find it by its name. */
__attribute__((visibility("default"))) int fakecuda_flushes(void);

/* ---- residency.c ----------------------------------------------------------------------------- */

/* Whether blocks have to ask for their start. */
bool double_has_slots(void);
/* Waits until a block may start, and ends one. */
void double_block_begin(int device);
void double_block_end(int device);
/* A turn of a loop in which a block waits, after so many of its kernel: it may lose the GPU
 * meanwhile. */
void double_block_rest(int device, unsigned nrests);

/* Blocks that run on the GPU, if they have to ask; turns of such loops in this process so far, and
 * how often it has lost a GPU in them. Tests find this by its name. */
struct fakecuda_blocks {
    int running;
    uint64_t rests, lost_slices;
};
__attribute__((visibility("default"))) void fakecuda_blocks(int device,
                                                            struct fakecuda_blocks *blocks);

/* ---- stream.c -------------------------------------------------------------------------------- */

/* One operation of a stream: run on its thread after all before it. */
struct double_task {
    void (*run)(struct double_task *task);
    bool (*is_ready)(struct double_task *task); /* NULL: at once; else polled */
    struct double_task *next;
    uint64_t number; /* among those of all streams, in the order of their coming */
};

/* What there is to run where a task only waits. */
void double_do_nothing(struct double_task *task);

/* Returns when all that has been put into the streams of the thread's context is done, as the
 * driver has it before memory goes that they may use. */
void double_await_streams(void);
/* Whether a thread is in there for the GPU's: then no other starts a kernel on it, where
 * FAKECUDA_STRICT says so. */
bool double_is_awaiting_streams(int device);

/* Returns when all that has been put into the stream is done, unless it is captured. */
void double_await_all_of(ko_cu_stream stream);

/* Returns when no other thread waits for room in a stream of the thread's context, if there is
 * FAKECUDA_SHUT. */
void double_await_entry(void);

/* Puts a copy of the task, nbytes long, at the stream's end. Doubles of other libraries do so too.
 */
__attribute__((visibility("default"))) ko_cu_result
double_enqueue(ko_cu_stream stream, const struct double_task *task, size_t nbytes);
ko_cu_stream double_stream_new(ko_cu_context context, unsigned flags, bool is_urgent);
/* The GPU that a stream is of; -1: there is no context. */
int double_gpu_of(ko_cu_stream stream);
/* Whether a stream of the GPU has something to do. */
bool double_is_busy(int device);

/* ---- capture.c ------------------------------------------------------------------------------- */

/* KO_CU_CAPTURE_FORBIDS, and the end of the captures that forbid an unsafe function. */
ko_cu_result double_capture_forbids(void);

/* Of which kolo itself hears nothing. */
enum {
    DOUBLE_CAPTURE_UNMATCHED = 903, /* ended in a stream that did not begin it */
    DOUBLE_CAPTURE_UNJOINED =
        904, /* a stream that has joined did something behind its last event */
    DOUBLE_CAPTURE_ISOLATED = 905, /* two captures would depend on each other */
    DOUBLE_CAPTURED_EVENT = 907    /* of a capture that has ended */
};

/* A stream's, and of those that have joined it by its events. What is added makes the graph, if
 * nothing that it forbids comes between; the order is that in which it came, which keeps what one
 * branch waits for before what waits. */
struct double_capture;
struct double_capture *double_capture_open(int mode);
uint64_t double_capture_number(const struct double_capture *capture); /* not 0 */
struct double_capture *double_capture_find(uint64_t number);          /* NULL: it has ended */
void double_capture_add(struct double_capture *capture, const struct double_task *task,
                        size_t nbytes);
/* What was not to come has come: there will be no graph. */
void double_capture_break(struct double_capture *capture);
/* Whether the calling thread may close it; the end of it, for which all streams that have joined
 * have to be joined. */
bool double_capture_is_ended_here(const struct double_capture *capture);
ko_cu_result double_capture_close(struct double_capture *capture, bool are_joined,
                                  ko_cu_graph *graph);

/* ---- graph.c --------------------------------------------------------------------------------- */

ko_cu_graph double_graph_new(void);
/* Puts a copy of the task at its end, which may move it. */
void double_graph_add(ko_cu_graph *graph, const struct double_task *task, size_t nbytes);

#define DOUBLE_FUNCTION(member, name, version, parameters) ko_cu_result double_##member parameters;
KO_CUDA_LIST(DOUBLE_FUNCTION)
KO_CUDA_OPTIONAL_LIST(DOUBLE_FUNCTION)
#undef DOUBLE_FUNCTION

#endif
