/* SPDX-License-Identifier: MIT
 *
 * group_idle.h: links keep the memory of their long slices, since the next call needs it again.
 * Where a process has many groups that takes gigabytes in the end, so that beyond KOLO_IDLE_BYTES
 * those that are not in use give it back; who wants it again takes as long as for the first time.
 */
#ifndef KO_GROUP_IDLE_H
#define KO_GROUP_IDLE_H

#include "group.h"

/* Has other groups of the rank give back what they do not use, those first that have sent nothing
 * since the last time, until a quarter is free; nothing where that has just been done. */
void ko_group_empty_others(kolo_group *group);

/* Before a call that may need memory. Not with a lock of the group's but the engine's turn. */
static inline void ko_group_look_at_memory(kolo_group *group)
{
    if (ko_links_held() > group->endpoint->idle_bytes)
        ko_group_empty_others(group);
}

#endif
