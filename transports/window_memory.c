/* SPDX-License-Identifier: MIT */
#include "window_memory.h"

#include "link.h"
#include "shmem.h"
#include "status.h"
#include "window.h"

/* Stands for a slot that has no memory: no step is 0. */
static struct ko_slot no_slot;

/* By the peer's credit and by the slots that have memory, which are all after the first turn. */
static void allow(struct ko_link *link)
{
    const size_t nbytes = link->begun_out - sizeof(struct ko_window);

    link->sendable = link->begun_out < ko_window_front(link->slots)
                         ? nbytes / sizeof(struct ko_slot)
                         : link->credit + link->slots;
}

void ko_window_take_credit(struct ko_link *link)
{
    link->credit = ko_load_ordered(&link->outbox->credit);
    allow(link);
}

static void find_heads(struct ko_link *link)
{
    const size_t nbytes = link->begun_in - sizeof(struct ko_window) - KO_LINE;
    const size_t nheads = nbytes / sizeof(struct ko_slot) + 1;

    link->end_in =
        ko_window_slot(link->inbox, nheads < link->slots ? (uint32_t)nheads : link->slots);
}

void ko_window_memory_begin(struct ko_link *link)
{
    link->begun_in = link->begun_out = ko_window_begun(link->slots);
    allow(link);
    find_heads(link);
}

/* The first `end` bytes of a window have memory then, of which *begun had; whole pages. */
static int reserve(const struct ko_link *link, struct ko_window *window, size_t end, size_t *begun)
{
    const size_t front = ko_window_front(link->slots);
    const size_t pages = (end + KO_WINDOW_BEGUN - 1) / KO_WINDOW_BEGUN * KO_WINDOW_BEGUN;
    const size_t to = pages < front ? pages : front;
    int err = ko_segment_reserve((char *)window + *begun, to - *begun);

    if (!err)
        *begun = to;
    return err;
}

int ko_window_reserve_slot(struct ko_link *link)
{
    const size_t end = sizeof(struct ko_window) + (link->sent + 1) * sizeof(struct ko_slot);
    int err = reserve(link, link->outbox, end, &link->begun_out);

    allow(link);
    return err;
}

struct ko_slot *ko_window_following_head(struct ko_link *link)
{
    struct ko_slot *const end = link->end_in;
    const char *const behind = (const char *)end + KO_LINE;

    if (end == ko_window_slot(link->inbox, link->slots))
        return ko_window_slot(link->inbox, 0);
    link->lacks_head = reserve(link, link->inbox, (size_t)(behind - (const char *)link->inbox),
                               &link->begun_in) != KOLO_OK;
    if (link->lacks_head)
        return &no_slot;
    find_heads(link);
    return end;
}

int ko_window_find_head(struct ko_link *link)
{
    link->next_in = ko_window_following_head(link);
    return link->lacks_head ? KOLO_E_NOMEM : KOLO_OK;
}
