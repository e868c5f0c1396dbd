/* SPDX-License-Identifier: MIT */
#include "rank_list.h"

#include <stdio.h>

/* For a range, and for how many more there are. */
enum { ROOM = 56 };

static int count(const bool *is_listed, int begin, int end)
{
    int n = 0;

    for (int r = begin; r < end; r++)
        n += is_listed[r];
    return n;
}

void ko_rank_list(const bool *is_listed, int n, char *text, size_t nbytes)
{
    size_t used = 0;
    int last;

    text[0] = 0;
    for (int r = 0; r < n; r = last + 1) {
        last = r;
        if (!is_listed[r])
            continue;
        while (last + 1 < n && is_listed[last + 1])
            last++;
        if (used + ROOM > nbytes) {
            snprintf(text + used, nbytes - used, " and %d more", count(is_listed, r, n));
            return;
        }
        used += (size_t)snprintf(text + used, nbytes - used, "%s%d", used ? ", " : "", r);
        if (last > r)
            used += (size_t)snprintf(text + used, nbytes - used, "%s%d", last > r + 1 ? "-" : ", ",
                                     last);
    }
}
