/* SPDX-License-Identifier: MIT
 *
 * An allocation stays open until its rank says that it has gone, or describes another one at the
 * same addresses, which shows it; or until the group ends.
 */
#include "gpu_share_parts.h"

#include "config.h"
#include "gpu_opened.h"
#include "log.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { HANDING_MS = 30000 }; /* at most, for the descriptors of an allocation */

/* A bit of the numbers of spans of pieces, which the driver's own, counted from 1, do not reach. */
#define SPAN ((uint64_t)1 << 63)

static int read_ways(bool *has_legacy, bool *has_pieces)
{
    const char *ways;
    int err = ko_config_word(KO_CONFIG_CUDA_IPC, &ways);

    if (err)
        return err;
    *has_legacy = !strcmp(ways, "all") || !strcmp(ways, "legacy");
    *has_pieces = !strcmp(ways, "all") || !strcmp(ways, "vmm");
    return KOLO_OK;
}

int ko_gpu_share_open(struct ko_gpu *gpu, int n, const bool *is_here, enum ko_gpu_layout layout,
                      struct ko_gpu_share **share_out)
{
    struct ko_gpu_share *share;
    bool has_legacy, has_pieces;
    int err = read_ways(&has_legacy, &has_pieces);

    if (err)
        return err;
    share = ko_alloc(sizeof *share + (size_t)n * sizeof *share->ranks, "a group's shared GPU");
    if (!share)
        return KOLO_E_NOMEM;
    share->gpu = gpu;
    share->cuda = ko_gpu_driver(gpu);
    share->has_legacy = has_legacy;
    share->has_pieces = has_pieces;
    share->layout = layout;
    share->n = n;
    pthread_mutex_init(&share->looking, NULL);
    for (int r = 0; r < n; r++)
        share->ranks[r].is_here = is_here[r];
    *share_out = share;
    return KOLO_OK;
}

bool ko_gpu_share_is_spread(const struct ko_gpu_share *share)
{
    return share->layout != KO_GPU_ONE;
}

bool ko_gpu_share_is_here(const struct ko_gpu_share *share, int rank)
{
    return share->ranks[rank].is_here;
}

void ko_gpu_share_set_process(struct ko_gpu_share *share, int rank, uint64_t process)
{
    share->ranks[rank].process = process;
}

void ko_gpu_share_set_away(struct ko_gpu_share *share, int rank)
{
    share->ranks[rank].is_away = true;
}

bool ko_gpu_share_has_handles(const struct ko_gpu_share *share)
{
    return share->has_legacy;
}

void ko_gpu_share_set_handles(struct ko_gpu_share *share, bool has_handles)
{
    share->has_legacy = has_handles;
}

bool ko_gpu_share_keep_handles(struct ko_gpu_share *share)
{
    const bool had_pieces = share->has_pieces;

    share->has_pieces = false;
    return had_pieces;
}

bool ko_gpu_share_has_stages(const struct ko_gpu_share *share)
{
    return !share->has_no_stages;
}

void ko_gpu_share_give_up_stages(struct ko_gpu_share *share)
{
    share->has_no_stages = true;
}

/* ---- end ------------------------------------------------------------------------------------ */

/* Memory of this rank's. */
static void leave_words(struct ko_gpu_share *share)
{
    share->words.at = share->spare.at = 0;
}

static void leave_all(struct ko_gpu_share *share)
{
    leave_words(share);
    for (int r = 0; r < share->n; r++)
        for (struct known *known = share->ranks[r].known; known; known = known->next)
            known->at = 0;
}

void ko_gpu_share_discard(struct ko_gpu_share *share)
{
    if (!ko_gpu_enter(share->gpu)) {
        if (!ko_gpu_share_is_at_rest(share)) { /* what stands aside comes to it later */
            ko_gpu_keep_page(share->gpu);
            leave_all(share);
        }
        ko_known_drop_all(share, share->mine);
        if (!atomic_load(&share->has_captured)) /* else graphs of other ranks may still have them */
            ko_gpu_retire_memory(share->gpu, &share->words);
        ko_gpu_retire_memory(share->gpu, &share->spare);
        for (int r = 0; r < share->n; r++)
            ko_known_drop_all(share, share->ranks[r].known);
        if (share->aside)
            (void)share->cuda->stream_destroy(share->aside);
        ko_gpu_leave(share->gpu);
    }
    pthread_mutex_destroy(&share->looking);
    free(share);
}

/* What may still be touched stays: after a failure by graphs, which have been captured with
 * `other`'s words, and this one's words by others' streams. */
static void end_share(struct ko_gpu_share *share, const struct ko_gpu_share *other)
{
    if (ko_gpu_share_is_left(other) || !ko_gpu_comes_to_rest(share->gpu))
        leave_all(share);
    else if (atomic_load(&share->has_let_go))
        leave_words(share);
    ko_gpu_share_discard(share);
}

void ko_gpu_share_close(struct ko_gpu_share *share)
{
    if (share)
        end_share(share, share);
}

bool ko_gpu_share_is_left(const struct ko_gpu_share *share)
{
    return share && atomic_load(&share->has_let_go) && atomic_load(&share->has_captured);
}

void ko_gpu_share_close_with(struct ko_gpu_share *share, const struct ko_gpu_share *other)
{
    if (share)
        end_share(share, other);
}

/* ---- one's own ------------------------------------------------------------------------------- */

/* With the context: fills in what the driver knows; false: the buffer is in host memory. */
static bool look_up(struct ko_gpu_share *share, const void *buffer, struct ko_gpu_place *place)
{
    const ko_cu_ptr at = (uintptr_t)buffer;
    bool does;
    ko_cu_ptr base;
    size_t nbytes;

    if (ko_cuda_holds(share->cuda, at, &does, NULL) || !does ||
        share->cuda->pointer_attribute(&place->id, KO_CU_POINTER_BUFFER_ID, at) ||
        share->cuda->address_range(&base, &nbytes, at))
        return false;
    place->base = base;
    place->nbytes = nbytes;
    place->offset = at - base;
    return true;
}

/* With the context: the span of pieces that has the buffer in it and is still what it was. */
static struct known *find_span(struct ko_gpu_share *share, ko_cu_ptr at, uint64_t nbytes)
{
    struct known *known = share->mine;

    while (known && (!known->span || !ko_gpu_span_has(known->span, at, nbytes) ||
                     ko_gpu_span_left(share->cuda, known->span) < known->span->n))
        known = known->next;
    return known;
}

/* With the context: whether others need not reach it any more. */
static bool has_gone(const struct ko_gpu_share *share, const struct known *known)
{
    uint64_t id;
    int left;

    if (!known->span)
        return share->cuda->pointer_attribute(&id, KO_CU_POINTER_BUFFER_ID, known->base) ||
               id != known->id;
    left = ko_gpu_span_left(share->cuda, known->span);
    return !left || (left < known->span->n && !known->is_kept);
}

/* With the context. What all have been told of is forgotten. */
static void tell_gone(struct ko_gpu_share *share, uint32_t to, struct ko_gpu_place *place)
{
    struct known **link = &share->mine;
    int n = 0;

    while (*link) {
        struct known *known = *link;
        const bool is_gone = has_gone(share, known);

        if (is_gone && n < KO_GPU_MOST_GONE && known->holders & to) {
            place->gone[n++] = known->id;
            known->holders &= ~to;
        }
        if (is_gone && !known->holders) {
            *link = known->next;
            ko_known_drop(share, known);
        } else {
            link = &known->next;
        }
    }
}

/* Once; other processes reach copies of it then. */
static void tell_private(struct ko_gpu_share *share)
{
    bool are_here = true;

    for (int r = 0; r < share->n; r++)
        are_here &= share->ranks[r].is_here || share->ranks[r].is_away;
    if (are_here || share->has_told || !(share->has_legacy || share->has_pieces))
        return;
    share->has_told = true;
    ko_log(
        KO_LOG_INFO,
        "a buffer lies in GPU memory that other processes cannot be handed (managed, of a pool, "
        "pieces of a kind that cannot be exported, or more than %d of them), so that its "
        "collectives work on "
        "copies of it, in memory that can be or, with blocks of different lengths, in the host's",
        KO_GPU_MOST_PIECES);
}

/* With the context: pieces that can be handed over, which *span lists; NULL: they are none. */
static struct ko_gpu_pieces *export_pieces(struct ko_gpu_share *share, uint64_t nbytes,
                                           struct ko_gpu_place *place, struct ko_gpu_span **span)
{
    struct ko_gpu_pieces *pieces = NULL;

    *span = ko_alloc(sizeof **span, "a GPU's memory in pieces");
    if (*span && ko_gpu_span_find(share->cuda, place->base, nbytes, *span))
        pieces = ko_gpu_pieces_export(share->cuda, *span, place->socket);
    if (!pieces) {
        free(*span);
        *span = NULL;
        return NULL;
    }
    place->kind = KO_GPU_PIECES;
    place->id = SPAN | ++share->nspans;
    place->nbytes = (*span)->nbytes;
    return pieces;
}

/* With the context: how others may reach an allocation that has not been described before, as far
 * as nbytes. *known: NULL for several pieces that only ranks of this process reach: which they are
 * is not kept, so that they are described anew each time. */
static int export(struct ko_gpu_share *share, uint64_t nbytes, struct ko_gpu_place *place,
                  struct known **known_out)
{
    struct ko_gpu_pieces *pieces = NULL;
    struct ko_gpu_span *span = NULL;
    struct known *known;

    *known_out = NULL;
    place->kind = KO_GPU_PRIVATE;
    if (share->has_legacy && !share->cuda->ipc_export(&place->handle, place->base))
        place->kind = KO_GPU_LEGACY;
    else if (share->has_pieces)
        pieces = export_pieces(share, nbytes, place, &span);
    if (place->kind == KO_GPU_PRIVATE)
        tell_private(share);
    if (place->kind == KO_GPU_PRIVATE && place->nbytes < nbytes) { /* all of its last piece, too */
        place->nbytes = ko_cuda_length_at(share->cuda, place->base, nbytes, true);
        return KOLO_OK;
    }
    known = ko_known_enter(&share->mine, place);
    if (!known) {
        ko_gpu_pieces_free(pieces);
        free(span);
        return KOLO_E_NOMEM;
    }
    known->pieces = pieces;
    known->span = span;
    *known_out = known;
    return KOLO_OK;
}

static void refer_to(struct known *known, uint32_t to, ko_cu_ptr at, struct ko_gpu_place *place)
{
    place->id = known->id;
    place->offset = at - known->base;
    place->base = known->base;
    place->nbytes = known->nbytes;
    place->kind = known->kind;
    if (known->kind == KO_GPU_LEGACY)
        place->handle = known->handle;
    place->is_new = (known->holders & to) != to;
    known->holders |= to;
}

/* With the context, for a buffer of which the driver has been asked. */
static int describe(struct ko_gpu_share *share, uint32_t to, size_t nbytes,
                    struct ko_gpu_place *place)
{
    const ko_cu_ptr at = place->base + place->offset;
    struct known *known = ko_known_find(share->mine, place->id, place->offset + nbytes);
    int err = KOLO_OK;

    if (!known)
        known = find_span(share, at, nbytes);
    if (!known)
        err = export(share, place->offset + nbytes, place, &known);
    if (err)
        return err;
    place->is_new = 1;
    if (known)
        refer_to(known, to, at, place);
    if (place->is_new)
        tell_gone(share, to, place);
    return KOLO_OK;
}

int ko_gpu_share_describe(struct ko_gpu_share *share, uint32_t to, const void *buffer,
                          size_t nbytes, struct ko_gpu_place *place)
{
    int err;

    *place = (struct ko_gpu_place){.kind = buffer ? KO_GPU_HOST : KO_GPU_NO_BUFFER};
    if (!buffer)
        return KOLO_OK;
    err = ko_gpu_enter(share->gpu);
    if (err)
        return err;
    if (look_up(share, buffer, place))
        err = describe(share, to, nbytes, place);
    ko_gpu_leave(share->gpu);
    return err;
}

bool ko_gpu_share_is_handed(const struct ko_gpu_place *place)
{
    return place->is_new && place->kind == KO_GPU_PIECES;
}

int ko_gpu_share_serve(struct ko_gpu_share *share, const struct ko_gpu_place *place,
                       const ko_deadline *deadline, ko_unix_look *look, void *owner)
{
    struct known *known = ko_known_find(share->mine, place->id, place->nbytes);
    int nothers = 0, err;

    if (!known || !known->pieces)
        return KOLO_OK;
    for (int r = 0; r < share->n; r++)
        nothers += !share->ranks[r].is_here && !share->ranks[r].is_away;
    err = ko_gpu_pieces_serve(known->pieces, nothers, deadline, look, owner);
    ko_gpu_pieces_free(known->pieces);
    known->pieces = NULL;
    return err;
}

bool ko_gpu_share_is_open_to(const struct ko_gpu_share *share, int rank,
                             const struct ko_gpu_place *place)
{
    return place->kind == KO_GPU_LEGACY ||
           (place->kind == KO_GPU_PRIVATE && share->ranks[rank].is_here);
}

/* ---- the others' ----------------------------------------------------------------------------- */

ko_cu_result ko_gpu_share_allow(const struct ko_cuda *cuda, const struct ko_gpu_place *place)
{
    ko_cu_access access = {{KO_CU_LOCATION_DEVICE, 0}, KO_CU_ACCESS_READ_AND_WRITE};
    unsigned is_whole = 0; /* not in pieces */
    ko_cu_device home;
    ko_cu_context context;
    ko_cu_result result = cuda->context_device(&access.location.id);

    if (!result)
        result = cuda->pointer_attribute(&home, KO_CU_POINTER_DEVICE, place->base);
    if (result || home == access.location.id)
        return result;
    result = cuda->pointer_attribute(&is_whole, KO_CU_POINTER_HAS_LEGACY_IPC, place->base);
    if (!result && !is_whole)
        return cuda->piece_access(place->base, place->nbytes, &access, 1);
    if (!result)
        result = cuda->pointer_attribute(&context, KO_CU_POINTER_CONTEXT, place->base);
    if (!result)
        result = cuda->context_reach(context, 0);
    return result == KO_CU_PEER_ENABLED ? KO_CU_SUCCESS : result;
}

/* With the context. Of what the driver says nothing, the other rank's word has to do. */
static int check_length(const struct ko_cuda *cuda, ko_cu_ptr at, const struct ko_gpu_place *place)
{
    const uint64_t known = ko_cuda_length_at(cuda, at, place->nbytes, place->kind != KO_GPU_LEGACY);

    if (!known || known >= place->nbytes)
        return KOLO_OK;
    return ko_fail(KOLO_E_PROTOCOL, "it is said to have %llu bytes, and has %llu",
                   (unsigned long long)place->nbytes, (unsigned long long)known);
}

/* With the context. */
static int open_handle(struct ko_gpu_share *share, int rank, struct known *known,
                       const struct ko_gpu_place *place, ko_cu_ptr *at)
{
    const ko_cu_result result =
        ko_gpu_opened_take(share->cuda, share->ranks[rank].process, place, &known->opened, at);

    known->is_put_off = result == KO_CU_NOT_READY;
    return known->is_put_off
               ? ko_fail(KOLO_E_SYSTEM,
                         "other memory that was there cannot be closed while a stream waits")
               : ko_cuda_check(share->cuda, result, "the handle");
}

/* With the context. */
static void open_place(struct ko_gpu_share *share, int rank, struct known *known,
                       const struct ko_gpu_place *place)
{
    const ko_deadline deadline = ko_deadline_in(HANDING_MS);
    char name[sizeof place->socket];
    ko_cu_ptr at = 0;
    int err = KOLO_OK;

    if (share->ranks[rank].is_away) { /* a mark that it has not been refused */
        known->at = place->base;
        return;
    }
    known->is_opened = !share->ranks[rank].is_here;
    if (!known->is_opened) {
        at = place->base;
        err = ko_cuda_check(share->cuda, ko_gpu_share_allow(share->cuda, place), "the memory");
    } else if (place->kind == KO_GPU_LEGACY) {
        err = open_handle(share, rank, known, place, &at);
    } else if (place->kind == KO_GPU_PIECES) {
        memcpy(name, place->socket, sizeof name);
        name[sizeof name - 1] = 0;
        err = ko_gpu_pieces_import(share->cuda, name, place->nbytes, &deadline, &at);
    }
    known->at = err ? 0 : at;
    if (known->at)
        err = check_length(share->cuda, at, place);
    if (err)
        ko_known_unmap(share, known);
    if (err)
        ko_log(KO_LOG_INFO,
               "memory of rank %d's cannot be opened here%s, so that its calls go by way of the "
               "host: %s",
               rank, known->is_put_off ? " yet" : "", kolo_last_error());
}

/* What only this process reaches may have got other pieces, to which its GPUs are to be let. */
static bool is_to_be_opened(const struct known *known, const struct ko_gpu_place *place)
{
    return !known || (place->is_new && place->kind == KO_GPU_PRIVATE);
}

bool ko_gpu_share_reaches(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place)
{
    struct known *known = ko_known_find(share->ranks[rank].known, place->id, place->nbytes);

    if (place->kind == KO_GPU_NO_BUFFER)
        return true;
    if (place->kind == KO_GPU_HOST || ko_gpu_place_is_odd(place))
        return false;
    if (is_to_be_opened(known, place) && !ko_gpu_enter(share->gpu)) {
        if (!known) {
            ko_known_drop_older(share, &share->ranks[rank].known, place);
            known = ko_known_enter(&share->ranks[rank].known, place);
        }
        if (known)
            open_place(share, rank, known, place);
        ko_gpu_leave(share->gpu);
    }
    return known && known->at;
}

bool ko_gpu_share_has_put_off(const struct ko_gpu_share *share, int rank,
                              const struct ko_gpu_place *place)
{
    const struct known *known = ko_known_find(share->ranks[rank].known, place->id, place->nbytes);

    return known && known->is_put_off;
}

void ko_gpu_share_refuse(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place)
{
    struct known *known = ko_known_find(share->ranks[rank].known, place->id, place->nbytes);

    if (!known || ko_gpu_enter(share->gpu))
        return;
    ko_known_unmap(share, known);
    ko_gpu_leave(share->gpu);
}

void ko_gpu_share_forget(struct ko_gpu_share *share, int rank, const struct ko_gpu_place *place)
{
    struct known **link = &share->ranks[rank].known;
    struct known *known = ko_known_find(*link, place->id, place->nbytes);

    if (!known || known->kind == KO_GPU_PIECES || ko_gpu_enter(share->gpu))
        return;
    while (*link != known)
        link = &(*link)->next;
    *link = known->next;
    ko_known_drop(share, known);
    ko_gpu_leave(share->gpu);
}

void ko_gpu_share_tell_again(struct ko_gpu_share *share, const struct ko_gpu_place *place)
{
    struct known *known = ko_known_find(share->mine, place->id, place->nbytes);

    if (known && known->kind != KO_GPU_PIECES)
        known->holders = 0;
}

void ko_gpu_share_keep(struct ko_gpu_share *share, const struct ko_gpu_place *place)
{
    struct known *known = ko_known_find(share->mine, place->id, place->nbytes);

    if (known)
        known->is_kept = true;
}

uint64_t ko_gpu_share_address(struct ko_gpu_share *share, int rank,
                              const struct ko_gpu_place *place)
{
    const struct known *known = ko_known_find(share->ranks[rank].known, place->id, place->nbytes);

    return known ? known->at + place->offset : 0;
}
