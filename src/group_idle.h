/* SPDX-License-Identifier: MIT
 *
 * group_idle.h: who keeps a collective waiting. A rank waits for a neighbour, which may be waiting
 * itself: the one that all wait for is perhaps nobody's neighbour. So ranks that have waited for
 * long leave word of that in the store, and who gives up looks who has not.
 */
#ifndef KO_GROUP_IDLE_H
#define KO_GROUP_IDLE_H

#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>

/* How long a wait within a limit is, when it is told of. */
int64_t ko_idle_tell_ms(int limit_ms);

/* Leaves word that this rank waits in the group's collective of that number. Errors change nothing.
 */
void ko_idle_tell(kolo_group *group, uint64_t call);

/* Sets the flags of the ranks that have not left word so for this collective; of this rank, which
 * waits, the flag is false. Returns how many there are; -1: the store does not tell. */
int ko_idle_ranks(kolo_group *group, uint64_t call, bool *is_idle);

#endif
