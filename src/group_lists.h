/* SPDX-License-Identifier: MIT
 *
 * group_lists.h: do all members of a new group list the same ranks, in the same order? Without that
 * they make groups that have nothing to do with each other, and wait there in vain. For
 * KOLO_CHECK=1, by the store.
 */
#ifndef KO_GROUP_LISTS_H
#define KO_GROUP_LISTS_H

#include "group.h"

/* What a rank of parent gives to a call that all ranks of parent make. */
struct ko_members {
    uint64_t call; /* a number that all ranks have for this call, and for no other */
    uint64_t id;   /* of the group that comes of this list */
    const int *ranks;
    int n;
};

/* Waits for no rank. KOLO_E_MISMATCH has both sides, once for each rank that has one of the two
 * lists: for those that come later here, for those that have come before in their group. An error
 * of the store has failed the parent. */
int ko_members_compare(kolo_group *parent, const struct ko_members *members);

#endif
