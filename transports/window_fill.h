/* SPDX-License-Identifier: MIT
 *
 * window_fill.h: copies into the peer's window, by what is soonest between the two cores.
 */
#ifndef KO_WINDOW_FILL_H
#define KO_WINDOW_FILL_H

#include <stdbool.h>
#include <stddef.h>

struct ko_link;

/* What a link knows of the cores, which may change: a host moves them. */
struct ko_window_distance {
    unsigned ncopies; /* that would show it */
    bool is_far;      /* they share no cache */
};

void ko_window_fill(struct ko_link *link, void *place, const void *from, size_t nbytes);

#endif
