/* SPDX-License-Identifier: MIT */
#include "window_places.h"

#include "link.h"
#include "shmem.h"
#include "status.h"
#include "window.h"
#include "window_memory.h"

void ko_window_places_free(struct ko_link *link)
{
    struct ko_window_places *places = &link->places;

    if (!places->taken && places->freed <= link->credit && link->credit <= link->sent) {
        places->freed = link->credit;
        places->next_freed = (uint32_t)(places->freed % link->slots);
        return;
    }
    for (; places->freed < link->credit && places->freed < link->sent; places->freed++) {
        unsigned char *place = &places->of[places->next_freed];

        if (*place)
            places->taken &= ~(UINT64_C(1) << (*place - 1));
        *place = 0;
        places->next_freed = places->next_freed + 1 < link->slots ? places->next_freed + 1 : 0;
    }
}

/* Bytes to the part of the chosen place that this turn is for. */
static size_t part_of(const struct ko_window_places *places, size_t place, size_t nbytes)
{
    const size_t part = ko_window_place((uint32_t)nbytes), nparts = part ? place / part : 1;

    return places->spread > 1 && nparts > 1 ? (places->turn + places->place) % nparts * part : 0;
}

uint64_t ko_window_choose_place(struct ko_link *link, size_t nbytes)
{
    struct ko_window_places *places = &link->places;
    const size_t place = ko_window_place(link->slice_bytes);
    const uint64_t after = ~places->taken & UINT64_MAX << places->next;

    /* Where there is a slot there is a place. */
    places->place = (uint32_t)__builtin_ctzll(after ? after : ~places->taken);
    if (places->place >= ko_window_nplaces(link->slots))
        places->place = (uint32_t)__builtin_ctzll(~places->taken);
    places->at = places->place * place + part_of(places, place, nbytes);
    return places->at;
}

int ko_window_reserve_place(struct ko_link *link)
{
    struct ko_window_places *places = &link->places;
    const size_t nbytes = ko_window_place(link->slice_bytes);
    int err = ko_segment_reserve(ko_window_body(link->outbox, link->slots, places->place * nbytes),
                                 nbytes);

    if (err)
        return err;
    places->reserved |= UINT64_C(1) << places->place;
    ko_link_count_held(link, nbytes, 0);
    return KOLO_OK;
}

/* Places to take in turn now. */
static uint32_t spread_of(const struct ko_link *link)
{
    return link->places.spread >> (link->is_trading && *link->is_trading);
}

void ko_window_take_place(struct ko_link *link)
{
    struct ko_window_places *places = &link->places;

    places->of[link->sent % link->slots] = (unsigned char)(places->place + 1);
    places->taken |= UINT64_C(1) << places->place;
    places->next = places->place + 1;
    if (places->next >= spread_of(link) || places->next >= ko_window_nplaces(link->slots)) {
        places->next = 0;
        places->turn++;
    }
}

/* What the peer has released it does not look at again. */
void ko_window_places_give_back(struct ko_link *link)
{
    struct ko_window_places *places = &link->places;
    const size_t nbytes = ko_window_place(link->slice_bytes);

    ko_window_take_credit(link);
    ko_window_places_free(link);
    for (uint64_t idle = places->reserved & ~places->taken; idle; idle &= idle - 1) {
        const uint32_t place = (uint32_t)__builtin_ctzll(idle);

        if (!ko_segment_give_back(ko_window_body(link->outbox, link->slots, place * nbytes),
                                  nbytes))
            return;
        places->reserved &= ~(UINT64_C(1) << place);
        ko_link_count_held(link, 0, nbytes);
    }
}
