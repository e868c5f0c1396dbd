/* SPDX-License-Identifier: MIT
 *
 * glibc's malloc puts together what is free side by side, and gives back to the system what is free
 * at the end of its heap, in one call: of 50 000 values of 4 KiB that are deleted in the order in
 * which they came that is all, when the last of them goes. So each time the table holds so much
 * more it takes another piece, a wall, which it does not use: what is free on both of its sides is
 * not put together. A wall is as long as the piece before it, so that it comes to lie beside that.
 * When the table holds less, the walls are taken down, the last first, as the heap ends: each time
 * what is behind the last one has gone back. If it has not, something else lies at the heap's end,
 * or glibc means to keep that much: the walls stay then until the table has given back more.
 */
#include "store_walls.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A wall stands each EVERY bytes. LONGEST: of a piece that has walls. PAD: glibc keeps less of a
 * heap's end. */
enum { EVERY = 512 << 10, LONGEST = 128 << 10, PAD = 192 << 10 };

/* NO_SMALL_PIECE: glibc puts together what is free before it looks for so much. */
enum { PIECES_APART = 128, NO_SMALL_PIECE = 2048 };

/* It is looked at again when so much has been given back; when it has been taken down in vain, for
 * nothing lay behind it, several times in a row, when much more has. */
enum { SOON = 4 << 10, VAIN = 6 };

/* Its own first bytes. */
struct ko_wall {
    SLIST_ENTRY(ko_wall) link;
    size_t nbytes;
};

void ko_walls_took(struct ko_walls *walls, size_t nbytes)
{
    struct ko_wall *wall;

    if (!walls->is_wanted || nbytes > LONGEST)
        return;
    walls->held += nbytes;
    if (walls->n >= walls->held / EVERY)
        return;
    nbytes = nbytes > NO_SMALL_PIECE ? nbytes : NO_SMALL_PIECE;
    wall = malloc(nbytes);
    if (!wall)
        return;
    wall->nbytes = nbytes;
    SLIST_INSERT_HEAD(&walls->list, wall, link);
    walls->n++;
}

/* Small pieces that are freed glibc keeps apart, and puts together all at once when somebody wants
 * a larger one: a million take 60 ms, for which all clients would wait. So one is wanted now and
 * then. Where the system's malloc is another one this is a piece like any. */
static void put_pieces_together(void)
{
    void *volatile wanted = malloc(NO_SMALL_PIECE); /* volatile: it is asked for indeed */

    free(wanted);
}

void ko_walls_gave(struct ko_walls *walls, size_t nbytes)
{
    if (++walls->ngiven % PIECES_APART == 0)
        put_pieces_together();
    if (!walls->is_wanted || nbytes > LONGEST)
        return;
    walls->held -= nbytes;
    walls->patience -= nbytes < walls->patience ? nbytes : walls->patience;
}

/* Whether its page has memory. */
static bool is_there(uintptr_t address)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char is_resident;

    return !mincore((void *)(address / page * page), 1, &is_resident) && is_resident & 1;
}

bool ko_walls_are_many(const struct ko_walls *walls)
{
    return walls->n > walls->held / EVERY && walls->patience == 0;
}

void ko_walls_lower(struct ko_walls *walls)
{
    struct ko_wall *last = SLIST_FIRST(&walls->list);
    const uintptr_t address = (uintptr_t)last;

    if (is_there(address + last->nbytes + PAD)) {
        walls->patience = SOON;
        return;
    }
    SLIST_REMOVE_HEAD(&walls->list, link);
    walls->n--;
    free(last);
    walls->nvain = is_there(address) ? walls->nvain + 1 : 0;
    if (walls->nvain < VAIN)
        return;
    walls->nvain = 0;
    walls->patience = walls->n * EVERY;
}

void ko_walls_free(struct ko_walls *walls)
{
    struct ko_wall *wall;

    while ((wall = SLIST_FIRST(&walls->list))) {
        SLIST_REMOVE_HEAD(&walls->list, link);
        free(wall);
    }
}
