/* SPDX-License-Identifier: MIT
 *
 * gpu_waits.h: streams of this process that wait for a call of any group's. Whoever has the driver
 * take memory away waits for them, so that none may come to wait meanwhile. Any thread.
 */
#ifndef KO_GPU_WAITS_H
#define KO_GPU_WAITS_H

#include <stdbool.h>

/* Around what makes a stream wait; and how many more of its marks are waited for. */
void ko_gpu_begin_waiting(void);
void ko_gpu_count_waiting(int more);
void ko_gpu_end_waiting(void);

/* Around what takes memory away: true if no stream waits, after as long as that may take; none will
 * before the end. */
bool ko_gpu_begin_freeing(int most_ms);
void ko_gpu_end_freeing(void);

#endif
