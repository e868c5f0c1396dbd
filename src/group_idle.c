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

/* After a look that left much, the next one is when as much has been taken again, or when others,
 * as those who are threads of this process, have given back theirs since. */
static bool is_due(struct ko_endpoint *endpoint)
{
    const size_t held = ko_links_held(), crowded = atomic_load(&endpoint->crowded_bytes);

    return held > crowded || held + endpoint->idle_bytes / 2 < crowded;
}

void ko_group_empty_others(kolo_group *group)
{
    struct ko_endpoint *endpoint = group->endpoint;
    const size_t quarter = endpoint->idle_bytes / 4;
    size_t held;

    if (!is_due(endpoint))
        return;
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
