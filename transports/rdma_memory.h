/* SPDX-License-Identifier: MIT
 *
 * rdma_memory.h: a part of rdma.h, which includes it: memory that the adapters can use.
 */
#ifndef KO_RDMA_MEMORY_H
#define KO_RDMA_MEMORY_H

#include "gpu_direct.h"
#include "ib_ports.h"
#include "transport.h"

#include <pthread.h>
#include <stdatomic.h>

struct ko_rdma_device;
struct ko_rdma_adapter;

/* Memory that the adapters can use, until it is given back. */
struct ko_rdma_region {
    struct ko_ib_mr *mrs[KO_IB_CHOSEN_CAP]; /* by adapter; the first NULL: none */
    bool is_kept;                           /* in the list below */
};

enum { KO_RDMA_KEPT = 256 };

struct ko_rdma_held {
    struct ko_held base;
    struct ko_rdma_device *device;
    struct ko_segment *segment;   /* held; NULL: */
    struct ko_gpu_extent extent;  /* of a GPU's memory; of length 0: the entry is free */
    struct ko_rdma_region region; /* none: it has been refused */
    int users;
    uint64_t used;   /* when, in uses of the list */
    uint64_t let_go; /* of a segment that was refused: how many regions had been let go by then */
};

/* Registered memory of kolo_mem_alloc: it is known when that is freed, so its registration can
 * stay. So it is with a GPU's allocations, whose numbers tell them apart. Other memory is
 * registered for one message, since its addresses may be given to other pages afterwards and nobody
 * would know. */
struct ko_rdma_memory {
    pthread_mutex_t lock; /* recursive */
    struct ko_rdma_held kept[KO_RDMA_KEPT];
    uint64_t uses, let_go; /* counts: uses of the list, regions that it has let go */
    atomic_bool has_warned;
    bool takes_gpus; /* KOLO_GPUDIRECT */
    atomic_bool has_warned_gpu;
};

/* access: KO_IB_ bits; 0 for what is only read, which may be memory that cannot be written. false,
 * and nothing registered, if it cannot be with all adapters; the caller has another way. */
bool ko_rdma_register(struct ko_rdma_device *device, const void *at, size_t nbytes, int access,
                      struct ko_rdma_region *region);
void ko_rdma_unregister(struct ko_rdma_device *device, struct ko_rdma_region *region);
/* Registers with one adapter what a connection cannot do without: where the limit of locked memory
 * does not let it, what is kept and nobody uses makes room. NULL, and errno. */
struct ko_ib_mr *ko_rdma_register_first(struct ko_rdma_device *device,
                                        const struct ko_rdma_adapter *adapter, void *at,
                                        size_t nbytes, int access);
void ko_rdma_unregister_one(const struct ko_rdma_device *device,
                            const struct ko_rdma_adapter *adapter, struct ko_ib_mr *mr);
void ko_rdma_memory_open(struct ko_rdma_device *device);
void ko_rdma_memory_close(struct ko_rdma_device *device);

/* The allocation of the GPU's, or those side by side, in which all nbytes lie; NULL if they cannot
 * be registered with all adapters, which is warned of once. */
struct ko_held *ko_rdma_hold(struct ko_rdma_device *device, struct ko_gpu *gpu, const void *at,
                             size_t nbytes);
void ko_rdma_let_go(struct ko_held *held);
/* Its region, until ko_rdma_unregister. */
void ko_rdma_use(struct ko_held *held, struct ko_rdma_region *region);

#endif
