/* SPDX-License-Identifier: MIT
 *
 * spare_memory.h: how much memory could still be had. The kernel gives away more than there is, and
 * kills a process, not always the one that asked, when that comes to light.
 */
#ifndef KO_SPARE_MEMORY_H
#define KO_SPARE_MEMORY_H

#include <stddef.h>

/* Bytes that this process could still be given, of the machine's memory and swap and within the
 * limits of its control groups (version 2); SIZE_MAX: not known. */
size_t ko_spare_memory(void);

/* The same within the limits of the group at path, and those it is in, below the mount alone. */
size_t ko_spare_memory_of_group(const char *mount, const char *path);

#endif
