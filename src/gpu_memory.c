/* SPDX-License-Identifier: MIT */
#include "gpu_memory.h"

/* Access to the whole of it for its own GPU. */
static ko_cu_result fill_addresses(const struct ko_cuda *cuda, const ko_cu_piece_kind *kind,
                                   const struct ko_gpu_memory *memory)
{
    const ko_cu_access access = {kind->location, KO_CU_ACCESS_READ_AND_WRITE};
    ko_cu_piece piece;
    ko_cu_result result = cuda->piece_create(&piece, memory->nbytes, kind, 0);

    if (result)
        return result;
    result = cuda->piece_map(memory->at, memory->nbytes, 0, piece, 0);
    (void)cuda->piece_release(piece); /* what is mapped stays */
    if (result)
        return result;
    result = cuda->piece_access(memory->at, memory->nbytes, &access, 1);
    if (result)
        (void)cuda->piece_unmap(memory->at, memory->nbytes);
    return result;
}

static ko_cu_result make_piece(const struct ko_cuda *cuda, size_t nbytes,
                               struct ko_gpu_memory *memory)
{
    ko_cu_piece_kind kind = {.type = KO_CU_PIECE_PINNED,
                             .handle_types = KO_CU_HANDLE_DESCRIPTOR,
                             .location = {KO_CU_LOCATION_DEVICE, 0}};
    size_t grain = 1;
    ko_cu_result result = cuda->context_device(&kind.location.id);

    if (!result)
        result = cuda->piece_grain(&grain, &kind, KO_CU_GRAIN_LEAST);
    memory->nbytes = (nbytes + grain - 1) / grain * grain;
    if (!result)
        result = cuda->addresses_reserve(&memory->at, memory->nbytes, 0, 0, 0);
    if (result)
        return result;
    result = fill_addresses(cuda, &kind, memory);
    if (result)
        (void)cuda->addresses_free(memory->at, memory->nbytes);
    return result;
}

ko_cu_result ko_gpu_memory_make(const struct ko_cuda *cuda, size_t nbytes, bool is_piece,
                                struct ko_gpu_memory *memory)
{
    struct ko_gpu_memory made = {.nbytes = nbytes, .is_piece = is_piece};
    ko_cu_result result =
        is_piece ? make_piece(cuda, nbytes, &made) : cuda->alloc(&made.at, made.nbytes);

    if (!result)
        *memory = made;
    return result;
}

void ko_gpu_memory_free(const struct ko_cuda *cuda, const struct ko_gpu_memory *memory)
{
    if (memory->at && memory->is_piece) {
        (void)cuda->piece_unmap(memory->at, memory->nbytes);
        (void)cuda->addresses_free(memory->at, memory->nbytes);
    } else if (memory->at) {
        (void)cuda->free(memory->at);
    }
}
