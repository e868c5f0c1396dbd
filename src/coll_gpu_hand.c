/* SPDX-License-Identifier: MIT */
#include "coll_gpu_hand.h"

#include "group.h"
#include "status.h"

#include <stdio.h>

/* All have to come, and no link may tell that one, of this machine, cannot any more. */
static int look_at_others(void *owner)
{
    kolo_group *group = owner;
    char who[160], text[KO_ERROR_TEXT];
    const int err = ko_channel_turn(&group->collectives);

    if (err)
        return err;
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank || !ko_endpoint_is_gone(group->endpoint, group->world_ranks[r]))
            continue;
        ko_group_describe_rank(group, r, who, sizeof who);
        snprintf(text, sizeof text,
                 "%s was lost by rank %d: its process has ended, while it was to be handed what "
                 "names GPU memory",
                 who, group->rank);
        return ko_group_fail_for(group, r, KOLO_E_PEER_LOST, text);
    }
    return KOLO_OK;
}

int ko_coll_hand_over(kolo_group *group, struct ko_gpu_share *share,
                      const struct ko_gpu_place *place)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(group));
    int err = ko_gpu_share_is_handed(place)
                  ? ko_gpu_share_serve(share, place, &deadline, look_at_others, group)
                  : KOLO_OK;

    return err ? ko_group_fail(group, err, kolo_last_error()) : KOLO_OK;
}
