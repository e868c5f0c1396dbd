/* SPDX-License-Identifier: MIT
 *
 * CPU time and the times a thread gave up its core come from getrusage, for everybody. System calls
 * can be counted only by the kernel's tracing: where it does not let us, they are unknown. Reads
 * and writes of /proc/self/io would leave out what matters here, sockets' own calls, futex and
 * epoll.
 */
#include "perf.h"

#include "status.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The number under which the kernel knows the event "a system call begins". */
static long event_number(void)
{
    static const char *const paths[] = {
        "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
        "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id"};
    long number = -1;

    errno = ENOENT;
    for (int i = 0; i < 2 && number < 0 && errno == ENOENT; i++) {
        FILE *file = fopen(paths[i], "re");
        char line[32];

        if (file && fgets(line, sizeof line, file))
            number = strtol(line, NULL, 10);
        if (file)
            fclose(file);
    }
    return number;
}

int ko_perf_cost_open(void)
{
    struct perf_event_attr attributes;
    long number = event_number();
    int fd;

    if (number < 0) {
        (void)ko_fail_errno(errno, "/sys/kernel/tracing, which root mounts (-t tracefs) and reads");
        return -1;
    }
    memset(&attributes, 0, sizeof attributes);
    attributes.type = PERF_TYPE_TRACEPOINT;
    attributes.size = sizeof attributes;
    attributes.config = (unsigned long long)number;
    attributes.inherit = 1; /* threads that this one starts */
    fd = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        (void)ko_fail_errno(errno, "perf_event_open, see /proc/sys/kernel/perf_event_paranoid");
    return fd;
}

void ko_perf_cost_read(int fd, struct ko_perf_counters *counters)
{
    struct rusage usage;
    uint64_t count;

    getrusage(RUSAGE_SELF, &usage);
    counters->cpu_us = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    counters->switches = (double)usage.ru_nvcsw;
    counters->syscalls =
        fd >= 0 && read(fd, &count, sizeof count) == sizeof count ? (double)count : -1;
}
