/* SPDX-License-Identifier: MIT
 *
 * An allocation stays open until its rank describes another one at the same addresses, which shows
 * that it has gone, or until the group ends.
 */
#include "gpu_share.h"

#include "config.h"
#include "log.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* What is known of one allocation. */
struct known {
    uint64_t id, base, nbytes;
    uint32_t kind;
    ko_cu_ipc_handle handle; /* of one's own */
    ko_cu_ptr at;            /* of another rank's: where it is here; 0: it cannot be reached */
    struct known *next;
};

struct ko_gpu_share {
    struct ko_gpu *gpu;
    const struct ko_cuda *cuda;
    bool is_alone;      /* allocations of this process are not for others */
    struct known *mine; /* that have been described */
    int n;
    struct {
        bool is_here;
        struct known *known;
    } ranks[];
};

int ko_gpu_share_open(struct ko_gpu *gpu, int n, const bool *is_here,
                      struct ko_gpu_share **share_out)
{
    struct ko_gpu_share *share;
    int64_t shares;
    int err = ko_config_number(KO_CONFIG_CUDA_IPC, &shares);

    if (err)
        return err;
    share = ko_alloc(sizeof *share + (size_t)n * sizeof *share->ranks, "a group's shared GPU");
    if (!share)
        return KOLO_E_NOMEM;
    share->gpu = gpu;
    share->cuda = ko_gpu_driver(gpu);
    share->is_alone = !shares;
    share->n = n;
    for (int r = 0; r < n; r++)
        share->ranks[r].is_here = is_here[r];
    *share_out = share;
    return KOLO_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* With the context. */
static void drop(struct ko_gpu_share *share, struct known *known)
{
    if (known->at && known->kind == KO_GPU_LEGACY)
        (void)share->cuda->ipc_close(known->at);
    free(known);
}

static struct known *find(struct known *known, uint64_t id)
{
    while (known && known->id != id)
        known = known->next;
    return known;
}

/* Takes out what lies where `place` does: it has been freed since. With the context. */
static void drop_older(struct ko_gpu_share *share, struct known **link,
                       const struct ko_gpu_place *place)
{
    while (*link) {
        struct known *known = *link;

        if (known->base < place->base + place->nbytes &&
            place->base < known->base + known->nbytes) {
            *link = known->next;
            drop(share, known);
        } else {
            link = &known->next;
        }
    }
}

static struct known *enter(struct known **list, const struct ko_gpu_place *place)
{
    struct known *known = ko_alloc(sizeof *known, "a GPU's allocation");

    if (!known)
        return NULL;
    known->id = place->id;
    known->base = place->base;
    known->nbytes = place->nbytes;
    known->kind = place->kind;
    known->handle = place->handle;
    known->next = *list;
    *list = known;
    return known;
}

void ko_gpu_share_close(struct ko_gpu_share *share)
{
    const struct ko_gpu_place all = {.nbytes = UINT64_MAX};

    if (!share)
        return;
    if (!ko_gpu_enter(share->gpu)) {
        drop_older(share, &share->mine, &all);
        for (int r = 0; r < share->n; r++)
            drop_older(share, &share->ranks[r].known, &all);
        ko_gpu_leave(share->gpu);
    }
    free(share);
}

/* ---- one's own ------------------------------------------------------------------------------- */

/* With the context: fills in what the driver knows; false: the buffer is in host memory. */
static bool look_up(struct ko_gpu_share *share, const void *buffer, struct ko_gpu_place *place)
{
    const ko_cu_ptr at = (uintptr_t)buffer;
    ko_cu_ptr base;
    unsigned type;
    size_t nbytes;

    if (share->cuda->pointer_attribute(&type, KO_CU_POINTER_MEMORY_TYPE, at) ||
        type != KO_CU_MEMORY_DEVICE ||
        share->cuda->pointer_attribute(&place->id, KO_CU_POINTER_BUFFER_ID, at) ||
        share->cuda->address_range(&base, &nbytes, at))
        return false;
    place->base = base;
    place->nbytes = nbytes;
    place->offset = at - base;
    return true;
}

/* With the context: how others may reach an allocation that has not been described before. */
static int export(struct ko_gpu_share *share, struct ko_gpu_place *place)
{
    place->is_new = true;
    place->kind = KO_GPU_PRIVATE;
    if (!share->is_alone && !share->cuda->ipc_export(&place->handle, place->base))
        place->kind = KO_GPU_LEGACY;
    drop_older(share, &share->mine, place);
    return enter(&share->mine, place) ? KOLO_OK : KOLO_E_NOMEM;
}

int ko_gpu_share_describe(struct ko_gpu_share *share, const void *buffer,
                          struct ko_gpu_place *place)
{
    const struct known *known;
    int err;

    *place = (struct ko_gpu_place){.kind = buffer ? KO_GPU_HOST : KO_GPU_NO_BUFFER};
    if (!buffer)
        return KOLO_OK;
    err = ko_gpu_enter(share->gpu);
    if (err)
        return err;
    if (look_up(share, buffer, place)) {
        known = find(share->mine, place->id);
        if (known) {
            place->kind = known->kind;
            place->handle = known->handle;
        } else {
            err = export(share, place);
        }
    }
    ko_gpu_leave(share->gpu);
    return err;
}

/* ---- the others' ----------------------------------------------------------------------------- */

/* With the context. */
static void open_place(struct ko_gpu_share *share, int rank, struct known *known,
                       const struct ko_gpu_place *place)
{
    ko_cu_result result;
    const char *name = "unknown";

    if (share->ranks[rank].is_here) {
        known->kind = KO_GPU_PRIVATE; /* nothing to be closed */
        known->at = place->base;
    } else if (place->kind == KO_GPU_LEGACY) {
        result = share->cuda->ipc_open(&known->at, place->handle, KO_CU_IPC_LAZY_PEER_ACCESS);
        if (result) {
            known->at = 0;
            (void)share->cuda->error_name(result, &name);
            ko_log(KO_LOG_INFO,
                   "memory of rank %d's cannot be opened here (%s); its calls go by way of "
                   "host memory",
                   rank, name);
        }
    }
}

bool ko_gpu_share_reaches(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place)
{
    struct known *known = find(share->ranks[rank].known, place->id);

    if (place->kind == KO_GPU_NO_BUFFER)
        return true;
    if (place->kind == KO_GPU_HOST)
        return false;
    if (!known && !ko_gpu_enter(share->gpu)) {
        drop_older(share, &share->ranks[rank].known, place);
        known = enter(&share->ranks[rank].known, place);
        if (known)
            open_place(share, rank, known, place);
        ko_gpu_leave(share->gpu);
    }
    return known && known->at;
}

uint64_t ko_gpu_share_address(struct ko_gpu_share *share, int rank,
                              const struct ko_gpu_place *place)
{
    const struct known *known = find(share->ranks[rank].known, place->id);

    return known ? known->at + place->offset : 0;
}
