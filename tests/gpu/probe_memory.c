/* SPDX-License-Identifier: MIT */
#include "clock.h"
#include "gpu_pieces.h"
#include "probes.h"
#include "ranks.h"
#include "report.h"
#include "unix_socket.h"
#include "watch.h"

enum { PIECE = 1 << 21 };

int probe_shared_memory(kolo_group *group, ko_cu_ptr *memory)
{
    ko_cu_ipc_handle handle = {.bytes = {0}};
    int64_t began_ns;
    int is_right = 1;

    if (kolo_group_rank(group) == 0)
        is_right = !gpu.cuda->alloc(memory, PROBE_BYTES) &&
                   !gpu.cuda->fill(*memory, 0, PROBE_BYTES, gpu.stream) &&
                   !gpu.cuda->stream_sync(gpu.stream) && !gpu.cuda->ipc_export(&handle, *memory);
    if (kolo_broadcast(group, &handle, sizeof handle, KOLO_UINT8, 0))
        return ranks_fail("broadcast");
    began_ns = ko_now_ns();
    if (kolo_group_rank(group) > 0)
        is_right = !gpu.cuda->ipc_open(memory, handle, KO_CU_IPC_LAZY_PEER_ACCESS);
    if (kolo_group_rank(group) == 1)
        report("opening another process's memory", watch_us_since(began_ns), "us",
               is_right ? "ok" : "FAILED");
    if (kolo_all_reduce(group, &is_right, &is_right, 1, KOLO_INT32, KOLO_MIN))
        return ranks_fail("all_reduce");
    return is_right ? 0 : ranks_fail("memory cannot be shared");
}

static void try_open(struct probe_attempt *attempt)
{
    attempt->is_right =
        !gpu.cuda->ipc_open(&attempt->memory, attempt->handle, KO_CU_IPC_LAZY_PEER_ACCESS);
}

static void try_close(struct probe_attempt *attempt)
{
    attempt->is_right = !gpu.cuda->ipc_close(attempt->memory);
}

int probe_opening(kolo_group *group)
{
    struct probe_attempt attempt = {.run = try_open};

    if (kolo_group_rank(group) == 0 && (gpu.cuda->alloc(&attempt.memory, 4 * PIECE) ||
                                        gpu.cuda->ipc_export(&attempt.handle, attempt.memory)))
        return ranks_fail("no memory");
    if (kolo_broadcast(group, &attempt.handle, sizeof attempt.handle, KOLO_UINT8, 0))
        return ranks_fail("broadcast");
    if (kolo_group_rank(group) == 1) {
        probe_beside_a_wait("opening another process's memory", &attempt);
        attempt.run = try_close;
        probe_beside_a_wait("closing it", &attempt);
    }
    return kolo_barrier(group) ? ranks_fail("barrier") : 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static bool make_pieces(ko_cu_ptr *memory)
{
    const ko_cu_piece_kind kind = {.type = KO_CU_PIECE_PINNED,
                                   .handle_types = KO_CU_HANDLE_DESCRIPTOR,
                                   .location = {KO_CU_LOCATION_DEVICE, 0}};
    const ko_cu_access access = {kind.location, KO_CU_ACCESS_READ_AND_WRITE};
    ko_cu_piece piece;

    if (gpu.cuda->addresses_reserve(memory, 2 * PIECE, 0, 0, 0))
        return false;
    for (ko_cu_ptr at = *memory; at < *memory + 2 * PIECE; at += PIECE)
        if (gpu.cuda->piece_create(&piece, PIECE, &kind, 0) ||
            gpu.cuda->piece_map(at, PIECE, 0, piece, 0) || gpu.cuda->piece_release(piece))
            return false;
    return !gpu.cuda->piece_access(*memory, 2 * PIECE, &access, 1) &&
           !gpu.cuda->fill(*memory, 7, 2 * PIECE, gpu.stream) && !gpu.cuda->stream_sync(gpu.stream);
}

/* Whether all of it, across the end of a piece, is what rank 0 has put there. */
static bool is_filled(ko_cu_ptr memory)
{
    static unsigned char content[2 * PIECE];
    size_t n = 0;

    if (gpu.cuda->copy((uintptr_t)content, memory, sizeof content, gpu.stream) ||
        gpu.cuda->stream_sync(gpu.stream))
        return false;
    while (n < sizeof content && content[n] == 7)
        n++;
    return n == sizeof content;
}

/* Rank 0's memory in pieces, mapped by rank 1 from descriptors. */
int probe_pieces(kolo_group *group)
{
    const ko_deadline deadline = ko_deadline_in(WATCH_MS);
    struct ko_gpu_pieces *pieces = NULL;
    char name[KO_UNIX_NAME] = "";
    const int64_t began_ns = ko_now_ns();
    struct ko_gpu_span span;
    ko_cu_ptr memory = 0;
    bool is_right = true;

    if (kolo_group_rank(group) == 0 && make_pieces(&memory) &&
        ko_gpu_span_find(gpu.cuda, memory, 2 * PIECE, &span))
        pieces = ko_gpu_pieces_export(gpu.cuda, &span, name);
    if (kolo_broadcast(group, name, sizeof name, KOLO_UINT8, 0))
        return ranks_fail("broadcast");
    if (kolo_group_rank(group) == 0) {
        is_right = pieces && !ko_gpu_pieces_serve(pieces, 1, &deadline, NULL, NULL);
        ko_gpu_pieces_free(pieces);
    } else {
        is_right = *name && !ko_gpu_pieces_import(gpu.cuda, name, 2 * PIECE, &deadline, &memory) &&
                   is_filled(memory);
        report("opening another process's pieces, by descriptors", watch_us_since(began_ns), "us",
               is_right ? "ok" : "FAILED");
    }
    return kolo_barrier(group) || !is_right;
}
