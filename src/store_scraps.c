/* SPDX-License-Identifier: MIT
 *
 * Large pieces of memory that the table has done with. free() may give back to the system not only
 * such a piece but all that lies free beside it, in one call: 5 ms of ten values of 8 MiB. So their
 * pages go before, a part at a time, and free() finds nothing left to give back.
 */
#include "store_entry.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AT_ONCE = 64 << 10 };

/* Its own first bytes. */
struct ko_scrap {
    STAILQ_ENTRY(ko_scrap) link;
    size_t nbytes; /* that may still have pages */
};

void ko_wakes_leave(struct ko_wakes *wakes, void *memory, size_t nbytes)
{
    struct ko_scrap *scrap = memory;

    scrap->nbytes = nbytes;
    STAILQ_INSERT_TAIL(&wakes->scraps, scrap, link);
}

bool ko_wakes_have_scraps(const struct ko_wakes *wakes)
{
    return !STAILQ_EMPTY(&wakes->scraps);
}

/* Whole pages from there to the end of what may have some; false: none of them go. */
static bool give_back(struct ko_scrap *scrap, size_t from)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *const begin = (char *)scrap + from;
    char *const end = (char *)scrap + scrap->nbytes;
    const size_t before = (page - (uintptr_t)begin % page) % page;
    const size_t behind = (uintptr_t)end % page;

    if (before + behind >= (size_t)(end - begin))
        return false;
    return !madvise(begin + before, (size_t)(end - begin) - before - behind, MADV_DONTNEED);
}

size_t ko_wakes_drop_some(struct ko_wakes *wakes)
{
    struct ko_scrap *scrap = STAILQ_FIRST(&wakes->scraps);
    const size_t part = scrap->nbytes < AT_ONCE ? scrap->nbytes : AT_ONCE;
    const size_t kept = scrap->nbytes - part;

    if (kept > AT_ONCE && give_back(scrap, kept)) {
        scrap->nbytes = kept;
    } else {
        STAILQ_REMOVE_HEAD(&wakes->scraps, link);
        free(scrap);
    }
    return part;
}
