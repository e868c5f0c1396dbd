/* SPDX-License-Identifier: MIT
 *
 * window_places.h: where in a window the bodies of long slices lie: in places, each for one body at
 * a time, which their slots name. The sender chooses, and may have the lowest `spread` places in
 * turn or always the lowest one that is free:
 *
 * - One place, used again and again, stays in the caches of a core that both ranks have (two
 *   hardware threads, or two ranks that take turns), and costs nothing there.
 * - Between cores each line of such a place is handed over three times: its reader's copy is taken
 *   away, it is written, it is fetched again. Places in turn, twice as many as the reader's own
 *   cache holds, have left it before they are written again, and a line is handed over once. Bodies
 *   that are shorter than a place lie in another part of it in each turn, to fill the same bytes,
 *   and in another than in the place before, which is as far away as a way of many caches is long.
 * - Half of those are enough where the two trade: who sends as much as it gets, of buffers that
 * fill its cache by themselves, reads and writes more between two turns.
 * - Where that costs less than to fetch a line from the common cache, which is large and far, as
 *   between cores of Intel's, a few places that stay in the caches of both are best.
 *
 * On two cores (AMD EPYC) with 1 MiB each behind a common cache 1 MiB goes one way in 122 us
 * through one place and in 31 us through 2 MiB of them; on two of a Xeon of the fifth generation,
 * with 2 MiB each, a sum of 1 MiB gets to a root in 185 us through 2 MiB of them, in 159 through 1
 * MiB and in 135 through 512 KiB. tests/bench/README.md says how that is read.
 */
#ifndef KO_WINDOW_PLACES_H
#define KO_WINDOW_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KO_MOST_SLOTS = 64 };

/* Of the slots and bytes of a window, which its link knows. */
struct ko_window_places {
    uint32_t spread;     /* places to take in turn; at most 1: the lowest that is free */
    uint32_t next, turn; /* the next one's number, and which turn this is */
    uint32_t place;      /* chosen last */
    uint64_t at;         /* bytes to its body from the first place */
    uint64_t taken;      /* bits of places */
    uint64_t reserved;   /* likewise: those that have memory */
    uint64_t freed;      /* slots whose places are free again */
    uint32_t next_freed; /* freed % slots */
    unsigned char of[KO_MOST_SLOTS]; /* by slot: its place, counted from 1; 0: none */
};

struct ko_link;

/* Takes over what the peer has released. What it says may be anything. */
void ko_window_places_free(struct ko_link *link);

/* Whether the place that is due is known to be free. */
static inline bool ko_window_is_due(const struct ko_window_places *places)
{
    return !(places->taken >> places->next & 1);
}

/* Chooses the place of a body of nbytes for the next slot, which is free; the bytes to it. */
uint64_t ko_window_choose_place(struct ko_link *link, size_t nbytes);

/* Whether the place that was chosen has memory; and gives it that. KOLO_E_NOMEM. Most links never
 * have a long slice, and those of many groups would take all memory there is. */
static inline bool ko_window_is_reserved(const struct ko_window_places *places)
{
    return places->reserved >> places->place & 1;
}
int ko_window_reserve_place(struct ko_link *link);

/* The next slot has the one that was chosen. */
void ko_window_take_place(struct ko_link *link);

/* Takes the memory of all places that are free from them. */
void ko_window_places_give_back(struct ko_link *link);

#endif
