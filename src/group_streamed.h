/* SPDX-License-Identifier: MIT
 *
 * group_streamed.h: the work of an asynchronous collective that has gone into the group's stream:
 * it is done once the stream has come that far, but in a group that has failed after two seconds at
 * the latest (ko_gpu_settling).
 */
#ifndef KO_GROUP_STREAMED_H
#define KO_GROUP_STREAMED_H

#include "group.h"
#include "work.h"

struct ko_streamed;

/* Of a call that is to be made. NULL after ko_fail. */
struct ko_streamed *ko_streamed_new(kolo_group *group);

/* The call is in the stream now, or has failed: its user gets the work. Or it has gone another way.
 */
kolo_work *ko_streamed_begin(struct ko_streamed *streamed, int err);
void ko_streamed_forget(struct ko_streamed *streamed);

/* Whether any of the group's is not done. */
bool ko_streamed_any(kolo_group *group);

/* Waits until all are done: of a group that has failed, or has none. */
void ko_streamed_end(kolo_group *group);

#endif
