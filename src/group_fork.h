/* SPDX-License-Identifier: MIT
 *
 * group_fork.h: a child of fork has none of the threads that its parent's groups need, nor, by the
 * time that fork returns, their connections (fork_fds.h): what it sent there would be taken for its
 * parent's. So all groups that there are have failed in the child by then.
 */
#ifndef KO_GROUP_FORK_H
#define KO_GROUP_FORK_H

#include "kolo.h"

#include <stdbool.h>

/* From now on, and no longer. ko_fork_forget: false of a group that is the parent's. */
void ko_fork_watch(kolo_group *group);
bool ko_fork_forget(kolo_group *group);

#endif
