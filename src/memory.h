/* SPDX-License-Identifier: MIT
 *
 * memory.h: what kolo_mem_alloc gave, found again by any address inside. Any thread.
 *
 * A child of fork inherits the memory, shared with its parent, and may free it, which unmaps it
 * there and nothing else; but it is not found here: to the child's own groups it is ordinary
 * memory.
 */
#ifndef KO_MEMORY_H
#define KO_MEMORY_H

#include "shmem.h"

/* The segment that has all the nbytes at `from`: one user more. NULL if there is none. */
struct ko_segment *ko_memory_find(const void *from, size_t nbytes);

/* Whether there is one. */
bool ko_memory_is_found(const void *from, size_t nbytes);

#endif
