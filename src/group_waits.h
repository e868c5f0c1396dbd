/* SPDX-License-Identifier: MIT
 *
 * group_waits.h: what the ranks of a group wait for, in their own words. A rank knows only whom it
 * waits for itself; that one may be waiting too, and the one that keeps all waiting may be nobody's
 * neighbour. So a rank that has waited for long leaves word of it in the store, and who gives up
 * reads what the others have left.
 */
#ifndef KO_GROUP_WAITS_H
#define KO_GROUP_WAITS_H

#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>

enum ko_waits { KO_WAITS_NOT, KO_WAITS_IN_CALL, KO_WAITS_FOR_MESSAGE, KO_WAITS_TO_SEND };

/* Travels as it is. */
struct ko_waits_word {
    uint32_t what;
    int32_t peer;  /* of a message; -1: any rank */
    uint64_t call; /* the number of the collective, or the tag of the message */
};

/* How long a wait within a limit is, when it is told of. */
int64_t ko_waits_tell_ms(int limit_ms);

/* Leaves word, in place of what this rank has said before. Errors change nothing. */
void ko_waits_tell(kolo_group *group, const struct ko_waits_word *word);

/* Before the group is freed: takes away what is left of that, unless others may still read it to
 * learn why the group has failed. */
void ko_waits_forget(kolo_group *group);

/* The words of all ranks, as many as the group has; KO_WAITS_NOT of those that have left none.
 * False: the store does not tell. */
bool ko_waits_read(kolo_group *group, struct ko_waits_word *words);

#endif
