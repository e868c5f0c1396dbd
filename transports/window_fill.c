/* SPDX-License-Identifier: MIT
 *
 * The lines of a place are in the cache of the peer's core, which has read them. To write a part of
 * one our core fetches it: from a core beside it in no time, from one with a cache of its own so
 * slowly that what the writes take shows which it is, once they are more than a core can have under
 * way.
 */
#include "window_fill.h"

#include "clock.h"
#include "copy.h"
#include "link.h"

enum {
    SHOWS = 3584,      /* bytes of a copy that takes the longer the farther the peer is */
    BYTES_PER_NS = 32, /* by measurement on Zen 5: 50 to 100 beside each other, 10 to 25 else */
    LOOKS_NEAR = 8,    /* one of so many copies is timed: of short ones the clock is a fifth, */
    LOOKS_FAR = 32     /* and what is timed is not fast there */
};

static void copy_timed(struct ko_window_distance *distance, void *place, const void *from,
                       size_t nbytes)
{
    const int64_t began_ns = ko_now_ns();

    ko_copy(place, from, nbytes);
    distance->is_far = ko_now_ns() - began_ns > (int64_t)(nbytes / BYTES_PER_NS);
}

static void fill_by_distance(struct ko_window_distance *distance, void *place, const void *from,
                             size_t nbytes)
{
    const unsigned looks = distance->is_far ? LOOKS_FAR : LOOKS_NEAR;

    if (nbytes >= SHOWS && ++distance->ncopies % looks == 0)
        copy_timed(distance, place, from, nbytes);
    else if (distance->is_far)
        ko_copy_far(place, from, nbytes);
    else
        ko_copy(place, from, nbytes);
}

void ko_window_fill(struct ko_link *link, void *place, const void *from, size_t nbytes)
{
    if (ko_copy_depends_on_distance(nbytes))
        fill_by_distance(&link->distance, place, from, nbytes);
    else
        ko_copy(place, from, nbytes);
}
