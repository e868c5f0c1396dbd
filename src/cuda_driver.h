/* SPDX-License-Identifier: MIT
 *
 * cuda_driver.h: NVIDIA's driver, opened at run time, so that one build runs with and without.
 * Nothing of it is touched before somebody asks: a program that does not use a GPU pays for none.
 */
#ifndef KO_CUDA_DRIVER_H
#define KO_CUDA_DRIVER_H

#include "cuda_abi.h"

#include <stdbool.h>

/* The driver's functions, by the names of KO_CUDA_LIST; those of KO_CUDA_OPTIONAL_LIST, which come
 * last, may be NULL. */
struct ko_cuda {
#define KO_CUDA_MEMBER(member, name, version, parameters) ko_cu_result(*member) parameters;
    KO_CUDA_LIST(KO_CUDA_MEMBER) KO_CUDA_OPTIONAL_LIST(KO_CUDA_MEMBER)
#undef KO_CUDA_MEMBER
};

/* Opens the driver at the first call, and keeps it to the end of the process, as it demands. Any
 * thread. KOLO_E_UNSUPPORTED says why there is none: no library, a toolkit's stub of it, one older
 * than CUDA 12.0, no device, KOLO_CUDA=0. */
int ko_cuda_open(const struct ko_cuda **cuda);

/* A number of this process's, which no other has or had: its pid may be that of one in another
 * container, or of one that has ended. Of a driver that has been opened. */
uint64_t ko_cuda_process(void);

/* KOLO_E_UNSUPPORTED, KOLO_E_NOMEM or KOLO_E_SYSTEM for the driver's error, with what was tried.
 * KOLO_OK for success. */
int ko_cuda_check(const struct ko_cuda *cuda, ko_cu_result result, const char *what);

/* A GPU's name, whatever the driver says: it has an end, no control characters, and is "unknown"
 * rather than empty. */
ko_cu_result ko_cuda_name(const struct ko_cuda *cuda, ko_cu_device device, char *name, size_t cap);

/* Loads a kernel into the thread's context now. Else its first launch does, and that may wait for
 * all that the context's streams have to do: for good, where one of them waits for the launch. */
ko_cu_result ko_cuda_preload(const struct ko_cuda *cuda, ko_cu_kernel kernel);

/* The node of memory (numa.h) that the GPU of the thread's context is near; -1 if it has none, as
 * where the program does not use GPUs. */
int ko_cuda_numa_node(void);

/* With a context: what the driver says to a stream that is to write a word, 4 bytes that a GPU
 * reaches, and to wait for it. */
ko_cu_result ko_cuda_try_words(const struct ko_cuda *cuda, ko_cu_stream stream, ko_cu_ptr at);

/* For programs that have a GPU of their own; the library takes that of its caller's stream. */
struct ko_cuda_place {
    int ordinal;
    ko_cu_device device;
    bool is_entered; /* its primary context is retained, and the thread's */
};

/* Makes a GPU the thread's: they are taken in turn, number counts from 0. */
int ko_cuda_enter(const struct ko_cuda *cuda, int number, struct ko_cuda_place *place);

/* The thread has its former one again. Safe on a place that was not entered. */
void ko_cuda_leave(const struct ko_cuda *cuda, struct ko_cuda_place *place);

#endif
