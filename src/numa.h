/* SPDX-License-Identifier: MIT
 *
 * numa.h: what node of a machine's memory things are near, as Linux numbers them; -1: it does not
 * say. Any thread.
 */
#ifndef KO_NUMA_H
#define KO_NUMA_H

/* A device whose folder in /sys this is. */
int ko_numa_of_device(const char *folder);

/* The calling thread, now. */
int ko_numa_of_thread(void);

#endif
