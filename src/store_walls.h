/* SPDX-License-Identifier: MIT
 *
 * store_walls.h: of a table, what keeps small pieces of memory that it gives back from going back
 * to the system all at once. What they take is not counted in KOLO_STORE_BYTES: of each 512 KiB of
 * small values it is as much as the last of them, of which a page is in memory. Threads as
 * store_table.h says.
 */
#ifndef KO_STORE_WALLS_H
#define KO_STORE_WALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

/* All zero is none, and none will be. */
struct ko_walls {
    SLIST_HEAD(, ko_wall) list; /* the last first */
    bool is_wanted;
    unsigned ngiven; /* pieces of memory, given back */
    size_t n;
    size_t held;     /* bytes of small pieces */
    size_t patience; /* of these, so many are to be given back before another wall is taken down */
    int nvain;       /* walls that have been, and nothing went back */
};

/* A piece of so many bytes has been taken, or given back. */
void ko_walls_took(struct ko_walls *walls, size_t nbytes);
void ko_walls_gave(struct ko_walls *walls, size_t nbytes);

/* True if one is not needed any more, and need not be taken down in vain; takes that down. */
bool ko_walls_are_many(const struct ko_walls *walls);
void ko_walls_lower(struct ko_walls *walls);
void ko_walls_free(struct ko_walls *walls);

#endif
