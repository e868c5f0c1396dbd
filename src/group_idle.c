/* SPDX-License-Identifier: MIT */
#include "group_idle.h"

#include "mailbox.h"

static void empty(kolo_group *group, bool is_any)
{
    if (atomic_load(&group->collectives.held) && ko_engine_try_turn(&group->engine)) {
        ko_channel_give_back(&group->collectives, is_any);
        ko_engine_finish(&group->engine);
    }
    ko_mailbox_give_back(group, is_any);
}

/* If that many are in use, the next look is when they have taken as much again. */
void ko_group_empty_others(kolo_group *group)
{
    struct ko_endpoint *endpoint = group->endpoint;
    const size_t quarter = endpoint->idle_bytes / 4;
    size_t held;

    pthread_mutex_lock(&endpoint->groups_lock);
    for (int is_any = 0; is_any < 2; is_any++)
        for (kolo_group *other = endpoint->groups; other; other = other->next)
            if (other != group && ko_links_held() > 3 * quarter)
                empty(other, is_any);
    held = ko_links_held();
    atomic_store(&endpoint->crowded_bytes,
                 held + quarter > endpoint->idle_bytes ? held + quarter : endpoint->idle_bytes);
    pthread_mutex_unlock(&endpoint->groups_lock);
}
