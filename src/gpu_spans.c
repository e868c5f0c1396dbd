/* SPDX-License-Identifier: MIT
 *
 * A span is good as long as all its pieces are where they were. One that is not, or to which pieces
 * have been added, is described anew; of older ones the other rank lets go once it hears that they
 * are not whole, which it does not while a call may still send it what lies in the rest, or that
 * none of their pieces is left, if a graph may use one.
 */
#include "gpu_spans.h"

#include "gpu_share_parts.h"
#include "log.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* One's own. */
struct own {
    uint64_t id;
    struct ko_gpu_span span;
    uint32_t holders; /* bits: ranks that have it */
    int nusers;       /* calls under way that have described it */
    bool is_kept;     /* graphs use it */
    struct own *next;
};
_Static_assert(KO_FOLD_MOST <= 32, "a bit for each rank");

/* Another rank's. */
struct theirs {
    uint64_t id, base, nbytes;
    ko_cu_ptr at;                 /* 0: it is not all here */
    struct ko_gpu_import *import; /* while it comes */
    struct theirs *next;
};

struct ko_gpu_spans {
    struct ko_gpu *gpu;
    const struct ko_cuda *cuda;
    bool is_handing;
    uint64_t last_id;
    struct own *own;
    int n, nbits;
    struct {
        bool is_here;
        uint32_t bit; /* 0: none has been described to it */
        struct theirs *theirs;
    } ranks[];
};

int ko_gpu_spans_open(struct ko_gpu *gpu, int n, const bool *is_here, bool is_handing,
                      struct ko_gpu_spans **spans_out)
{
    struct ko_gpu_spans *spans =
        ko_alloc(sizeof *spans + (size_t)n * sizeof *spans->ranks, "a GPU's memory in pieces");

    if (!spans)
        return KOLO_E_NOMEM;
    spans->gpu = gpu;
    spans->cuda = ko_gpu_driver(gpu);
    spans->is_handing = is_handing;
    spans->n = n;
    for (int r = 0; r < n; r++)
        spans->ranks[r].is_here = is_here[r];
    *spans_out = spans;
    return KOLO_OK;
}

/* ---- one's own ------------------------------------------------------------------------------- */

static uint32_t bit_of(struct ko_gpu_spans *spans, int rank)
{
    if (!spans->ranks[rank].bit)
        spans->ranks[rank].bit = UINT32_C(1) << spans->nbits++;
    return spans->ranks[rank].bit;
}

/* With the context: whether others need not reach it any more. */
static bool has_gone(const struct ko_gpu_spans *spans, const struct own *own)
{
    const int left = ko_gpu_span_left(spans->cuda, &own->span);

    return !own->nusers && (!left || (left < own->span.n && !own->is_kept));
}

/* With the context: of what has gone, what a rank has still mapped, as far as there is room; what
 * none has is forgotten. */
static void tell_gone(struct ko_gpu_spans *spans, int to, uint64_t *gone)
{
    struct own **link = &spans->own;
    int n = 0;

    while (*link) {
        struct own *own = *link;
        const bool is_gone = has_gone(spans, own);

        if (is_gone && n < KO_GPU_MOST_GONE && own->holders & bit_of(spans, to))
            gone[n++] = own->id;
        if (is_gone && !own->holders) {
            *link = own->next;
            free(own);
        } else {
            link = &own->next;
        }
    }
}

/* With the context: a good one that has all of the buffer in it, of which the rank has had one
 * perhaps. */
static struct own *find(struct ko_gpu_spans *spans, int to, ko_cu_ptr at, size_t nbytes)
{
    const uint32_t bit = bit_of(spans, to);
    struct own *found = NULL;

    for (struct own *own = spans->own; own; own = own->next)
        if (ko_gpu_span_has(&own->span, at, nbytes) &&
            ko_gpu_span_left(spans->cuda, &own->span) == own->span.n &&
            (!found || own->holders & bit))
            found = own;
    return found;
}

/* With the context. */
static struct own *make(struct ko_gpu_spans *spans, ko_cu_ptr at, size_t nbytes)
{
    struct own *own = ko_alloc(sizeof *own, "a GPU's memory");

    if (!own || !ko_gpu_span_find(spans->cuda, at, nbytes, &own->span)) {
        free(own);
        return NULL;
    }
    own->id = ++spans->last_id;
    own->next = spans->own;
    spans->own = own;
    return own;
}

/* With the context: has the span handed over by this call, under *name. */
static bool hand(const struct ko_gpu_spans *spans, const struct own *own,
                 struct ko_gpu_handover *handover, char name[KO_UNIX_NAME])
{
    const char *known = ko_gpu_handover_name(handover, own->id);
    struct ko_gpu_pieces *pieces;

    if (known) {
        memcpy(name, known, KO_UNIX_NAME);
        return true;
    }
    pieces = ko_gpu_pieces_export(spans->cuda, &own->span, name);
    return pieces && !ko_gpu_handover_add(handover, own->id, pieces, name);
}

/* With the context. */
static bool describe(struct ko_gpu_spans *spans, int to, ko_cu_ptr at, size_t nbytes,
                     struct ko_gpu_handover *handover, struct ko_gpu_place *place)
{
    struct own *own;
    bool is_open;

    *place = (struct ko_gpu_place){.kind = KO_GPU_PIECES};
    tell_gone(spans, to, place->gone);
    own = find(spans, to, at, nbytes);
    if (!own)
        own = make(spans, at, nbytes);
    if (!own)
        return false;
    place->id = own->id;
    place->base = own->span.base;
    place->nbytes = own->span.nbytes;
    place->offset = at - own->span.base;
    place->is_new = !(own->holders & bit_of(spans, to));
    is_open = !place->is_new || spans->ranks[to].is_here ||
              (spans->is_handing && hand(spans, own, handover, place->socket));
    own->nusers += is_open;
    return is_open;
}

bool ko_gpu_spans_describe(struct ko_gpu_spans *spans, int to, const void *buffer, size_t nbytes,
                           struct ko_gpu_handover *handover, struct ko_gpu_place *place)
{
    unsigned is_whole = 1; /* not in pieces */
    bool is_described;

    if (ko_gpu_enter(spans->gpu))
        return false;
    is_described = !spans->cuda->pointer_attribute(&is_whole, KO_CU_POINTER_HAS_LEGACY_IPC,
                                                   (uintptr_t)buffer) &&
                   !is_whole && describe(spans, to, (uintptr_t)buffer, nbytes, handover, place);
    ko_gpu_leave(spans->gpu);
    return is_described;
}

void ko_gpu_spans_keep(struct ko_gpu_spans *spans, const struct ko_gpu_place *place)
{
    for (struct own *own = spans->own; own; own = own->next)
        own->is_kept |= own->id == place->id;
}

void ko_gpu_spans_end(struct ko_gpu_spans *spans, int to, const struct ko_gpu_place *place,
                      bool is_taken)
{
    const uint32_t bit = bit_of(spans, to);

    for (struct own *own = spans->own; own; own = own->next) {
        if (own->id == place->id) {
            own->nusers--;
            own->holders |= is_taken ? bit : 0;
        } else if (is_taken && ko_gpu_says_gone(place, own->id)) {
            own->holders &= ~bit;
        }
    }
}

/* ---- the others' ----------------------------------------------------------------------------- */

/* With the context. */
static void drop(const struct ko_gpu_spans *spans, struct theirs *theirs, bool is_mapped)
{
    ko_gpu_import_free(spans->cuda, theirs->import);
    if (theirs->at && is_mapped)
        ko_gpu_retire_pieces(spans->gpu, theirs->at, theirs->nbytes);
    free(theirs);
}

/* With the context. */
static void drop_gone(struct ko_gpu_spans *spans, int from, const struct ko_gpu_place *place)
{
    struct theirs **link = &spans->ranks[from].theirs;

    while (*link) {
        struct theirs *theirs = *link;

        if (ko_gpu_says_gone(place, theirs->id)) {
            *link = theirs->next;
            drop(spans, theirs, !spans->ranks[from].is_here);
        } else {
            link = &theirs->next;
        }
    }
}

static struct theirs *enter(struct ko_gpu_spans *spans, int from, const struct ko_gpu_place *place)
{
    struct theirs *theirs = ko_alloc(sizeof *theirs, "another rank's memory");

    if (!theirs)
        return NULL;
    theirs->id = place->id;
    theirs->base = place->base;
    theirs->nbytes = place->nbytes;
    theirs->next = spans->ranks[from].theirs;
    spans->ranks[from].theirs = theirs;
    return theirs;
}

/* With the context: it has an address in this process already. */
static int open_here(const struct ko_gpu_spans *spans, struct theirs *theirs,
                     const struct ko_gpu_place *place)
{
    const ko_cu_result result = ko_gpu_share_allow(spans->cuda, place);

    if (!result)
        theirs->at = theirs->base;
    return ko_cuda_check(spans->cuda, result, "the memory");
}

/* With the context. Who hands nothing over any more has gone, or gives up, and the link will tell
 * of it: until then it is asked again. */
static int go_on(const struct ko_gpu_spans *spans, struct theirs *theirs,
                 const struct ko_gpu_place *place)
{
    char name[KO_UNIX_NAME];
    int err = KOLO_OK;

    memcpy(name, place->socket, sizeof name);
    name[sizeof name - 1] = 0;
    if (!theirs->import)
        err = ko_gpu_import_begin(name, theirs->nbytes, &theirs->import);
    if (!err)
        err = ko_gpu_import_step(spans->cuda, theirs->import, &theirs->at);
    if (err == KO_AGAIN)
        return err;
    ko_gpu_import_free(spans->cuda, theirs->import);
    theirs->import = NULL;
    return err == KOLO_E_PEER_LOST ? KO_AGAIN : err;
}

/* With the context. */
static int reach(struct ko_gpu_spans *spans, int from, const struct ko_gpu_place *place,
                 uint64_t *at)
{
    struct theirs *theirs;
    int err = KOLO_OK;

    drop_gone(spans, from, place);
    theirs = spans->ranks[from].theirs;
    while (theirs && (theirs->id != place->id || theirs->nbytes != place->nbytes))
        theirs = theirs->next;
    if (!theirs && !place->is_new)
        return ko_fail(KOLO_E_SYSTEM, "rank %d has not handed that memory over", from);
    if (!theirs)
        theirs = enter(spans, from, place);
    if (!theirs)
        return KOLO_E_NOMEM;
    if (!theirs->at)
        err = spans->ranks[from].is_here ? open_here(spans, theirs, place)
                                         : go_on(spans, theirs, place);
    *at = theirs->at + place->offset;
    return err;
}

int ko_gpu_spans_reach(struct ko_gpu_spans *spans, int from, const struct ko_gpu_place *place,
                       uint64_t *at)
{
    int err;

    if (ko_gpu_place_is_odd(place) || (!spans->ranks[from].is_here && !spans->is_handing))
        return ko_fail(KOLO_E_SYSTEM, "that memory cannot be reached");
    err = ko_gpu_enter(spans->gpu);
    if (err)
        return err;
    err = reach(spans, from, place, at);
    ko_gpu_leave(spans->gpu);
    if (!err || err == KO_AGAIN)
        return err;
    ko_log(KO_LOG_INFO, "memory of rank %d's cannot be opened here: %s", from, kolo_last_error());
    return KOLO_E_SYSTEM;
}

/* ---- end ------------------------------------------------------------------------------------- */

void ko_gpu_spans_close(struct ko_gpu_spans *spans, bool is_left)
{
    bool has_context;

    if (!spans)
        return;
    is_left = is_left || !ko_gpu_comes_to_rest(spans->gpu);
    has_context = !ko_gpu_enter(spans->gpu);
    for (int r = 0; r < spans->n; r++)
        for (struct theirs *theirs = spans->ranks[r].theirs, *next; theirs; theirs = next) {
            next = theirs->next;
            drop(spans, theirs, has_context && !is_left && !spans->ranks[r].is_here);
        }
    for (struct own *own = spans->own, *next; own; own = next) {
        next = own->next;
        free(own);
    }
    if (has_context)
        ko_gpu_leave(spans->gpu);
    free(spans);
}
