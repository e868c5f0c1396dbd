/* SPDX-License-Identifier: MIT
 *
 * What a share knows of allocations, its own rank's and others': lists, one entry for each.
 */
#include "gpu_share_parts.h"

#include "status.h"

#include <stdlib.h>

void ko_known_unmap(struct ko_gpu_share *share, struct known *known)
{
    if (known->at && known->is_opened && known->kind == KO_GPU_LEGACY)
        ko_gpu_retire_opened(share->gpu, known->opened);
    else if (known->is_opened)
        ko_gpu_retire_pieces(share->gpu, known->at, known->nbytes);
    known->at = 0;
}

void ko_known_drop(struct ko_gpu_share *share, struct known *known)
{
    ko_known_unmap(share, known);
    ko_gpu_pieces_free(known->pieces);
    free(known->span);
    free(known);
}

struct known *ko_known_find(struct known *known, uint64_t id, uint64_t nbytes)
{
    while (known && (known->id != id || known->nbytes < nbytes))
        known = known->next;
    return known;
}

/* Spans of pieces overlap, also those that only this process reaches, which are known by where they
 * begin. */
static bool may_overlap(const struct known *known, const struct ko_gpu_place *place)
{
    return known->kind == KO_GPU_PIECES ||
           (known->kind == KO_GPU_PRIVATE && known->base != place->base);
}

/* What lies where a place does has been freed since, unless both may. */
static bool is_replaced(const struct known *known, const struct ko_gpu_place *place)
{
    return ko_gpu_says_gone(place, known->id) ||
           (!may_overlap(known, place) && known->base < place->base + place->nbytes &&
            place->base < known->base + known->nbytes);
}

void ko_known_drop_older(struct ko_gpu_share *share, struct known **link,
                         const struct ko_gpu_place *place)
{
    while (*link) {
        struct known *known = *link;

        if (is_replaced(known, place)) {
            *link = known->next;
            ko_known_drop(share, known);
        } else {
            link = &known->next;
        }
    }
    ko_gpu_tidy(share->gpu); /* what is opened next may have an address of its */
}

void ko_known_drop_all(struct ko_gpu_share *share, struct known *known)
{
    while (known) {
        struct known *next = known->next;

        ko_known_drop(share, known);
        known = next;
    }
}

struct known *ko_known_enter(struct known **list, const struct ko_gpu_place *place)
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
