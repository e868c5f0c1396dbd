/* SPDX-License-Identifier: MIT
 *
 * foreign_needs.h: what tests of memory that peers read in each other's processes set, and cannot
 * do without.
 */
#ifndef FOREIGN_NEEDS_H
#define FOREIGN_NEEDS_H

#include "ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

static inline void set_variables(const char *protocols)
{
    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_SLICE_BYTES", "32K", 1);
    setenv("KOLO_SLOTS", "2", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    setenv("KOLO_PROTO", protocols, 1);
}

/* Whether one process may read another here. */
static inline bool may_read(void)
{
    static volatile uint64_t word = 7;
    uint64_t found = 0;
    struct iovec here = {&found, 8}, there = {(void *)(uintptr_t)&word, 8};

    return process_vm_readv(getppid(), &here, 1, &there, 1, 0) == 8;
}

static inline int find_out(kolo_group *group, void *argument)
{
    (void)group;
    (void)argument;
    return !may_read();
}

static inline void needs_permission(void)
{
    if (ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 1}, find_out, NULL))
        skip();
}

/* Ranks that take turns on a core do not try both ways. */
static inline void needs_two_cores(void)
{
    cpu_set_t cores;

    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    if (CPU_COUNT(&cores) < 2)
        skip();
}

#endif
