/* SPDX-License-Identifier: MIT
 *
 * window_memory.h: the slots of a window have memory when they are used, and from then on: many a
 * link has few slices in all, and those of thousands of groups would take gigabytes. In the first
 * turn through the slots the sender sees to it, a page after another, before it writes there, and
 * the receiver before it looks there.
 */
#ifndef KO_WINDOW_MEMORY_H
#define KO_WINDOW_MEMORY_H

struct ko_link;
struct ko_slot;

/* What has memory from the beginning, of both windows of a link that is opened. */
void ko_window_memory_begin(struct ko_link *link);

/* Looks at the peer's credit: link->sendable is then what may be sent, by it and by the memory that
 * there is. */
void ko_window_take_credit(struct ko_link *link);

/* The next slot of the outbox gets memory, where it has none. KOLO_E_NOMEM. */
int ko_window_reserve_slot(struct ko_link *link);

/* The slot behind the last of the inbox whose head has memory. If there is no more of that it is
 * one to which nothing ever comes, and link->lacks_head: ko_window_find_head looks for memory
 * again; KOLO_E_NOMEM. */
struct ko_slot *ko_window_following_head(struct ko_link *link);
int ko_window_find_head(struct ko_link *link);

#endif
