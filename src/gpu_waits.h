/* SPDX-License-Identifier: MIT
 *
 * gpu_waits.h: streams of this process that wait for a call of any group's. Whoever has the driver
 * take memory away waits for them, so that none may come to wait meanwhile. Any thread.
 */
#ifndef KO_GPU_WAITS_H
#define KO_GPU_WAITS_H

#include <stdbool.h>

/* One more, before a stream is made to wait: not while memory is taken away. Nothing is, until
 * ko_gpu_count_waiting(-1) takes it back. */
void ko_gpu_add_waiting(void);
void ko_gpu_count_waiting(int more);

/* Streams that may wait for other ranks with no count of theirs: they are asked, with the lock,
 * before memory goes. */
struct ko_gpu_waiter {
    bool (*is_waiting)(struct ko_gpu_waiter *waiter);
    bool (*is_behind)(struct ko_gpu_waiter *waiter); /* see ko_gpu_begin_tidying */
    struct ko_gpu_waiter *next;
};
void ko_gpu_enter_waiter(struct ko_gpu_waiter *waiter);
void ko_gpu_leave_waiter(struct ko_gpu_waiter *waiter); /* that has been entered, or not */

/* Around what takes memory away: true if no stream waits, after as long as that may take; none will
 * before the end. */
bool ko_gpu_begin_freeing(int most_ms);
void ko_gpu_end_freeing(void);

/* The same at once, and false also if a call of any group's is behind what its caller has put into
 * his stream: that may stand still, and no limit holds for who takes memory away. */
bool ko_gpu_begin_tidying(void);

/* The same for a call, which others of this process may wait for: it waits for none of these. */
bool ko_gpu_begin_freeing_in_call(int most_ms);

#endif
