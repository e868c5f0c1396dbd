/* SPDX-License-Identifier: MIT
 *
 * probes.h: the parts of probes.c, each about one thing that kolo takes for granted of a GPU. They
 * report what they find.
 */
#ifndef PROBES_H
#define PROBES_H

#include "cuda_driver.h"

#include "kolo.h"
#include <stdatomic.h>

/* What this process has of the GPU. */
struct probe_gpu {
    const struct ko_cuda *cuda;
    ko_cu_context context;
    ko_cu_stream stream;
};
extern struct probe_gpu gpu;

/* What a thread beside tries, and with what. */
struct probe_attempt {
    void (*run)(struct probe_attempt *attempt);
    ko_cu_ptr memory;
    ko_cu_ipc_handle handle;
    ko_cu_stream stream;
    void *page;
    atomic_bool is_done;
    bool is_right;
};

enum { PROBE_TURNS = 200, PROBE_BYTES = 1 << 20 };

/* Streams that wait for the host, and what goes on beside them. Of one process. 0, or ranks_fail.
 */
int probe_waits(void);

/* Whether something ends while a stream of the context waits. */
void probe_beside_a_wait(const char *what, struct probe_attempt *attempt);

/* Whether many streams that wait leave a queue of the GPU's to others. 0, or ranks_fail. */
int probe_streams(void);

/* Whether stores of 16 bytes are seen as a whole, in the GPU's memory and the host's. 0, or
 * ranks_fail. */
int probe_lines(void);

/* How another process's memory is opened and closed while a stream waits. 0, or ranks_fail. */
int probe_opening(kolo_group *group);

/* Rank 0's memory, PROBE_BYTES of 0, mapped by the others. 0, or ranks_fail. */
int probe_shared_memory(kolo_group *group, ko_cu_ptr *memory);

/* Memory in pieces, between two processes. 0, or ranks_fail. */
int probe_pieces(kolo_group *group);

/* How long it takes the GPU to go from one process to the next, and on to the first, in that
 * memory. 0, or ranks_fail. */
int probe_turns(kolo_group *group, ko_cu_ptr shared);

#endif
