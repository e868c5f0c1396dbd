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
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing but system calls: it is called in a child of a process with threads. */
static long read_number(const char *path)
{
    char text[32] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    if (read(fd, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(fd);
    return *text ? strtol(text, NULL, 10) : -1;
}

/* In a child that mounts it where only it sees that, as root may. */
static long mount_and_read(const char *folder, const char *path)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("nodev", folder, "tracefs", 0, NULL))
        return -1;
    return read_number(path);
}

static long number_by_child(const char *folder, const char *path)
{
    const int error = errno;
    long number = -1;
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC))
        return -1;
    child = fork();
    if (child == 0) {
        number = mount_and_read(folder, path);
        _exit(write(ends[1], &number, sizeof number) != sizeof number);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &number, sizeof number) != sizeof number)
        number = -1;
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    errno = error; /* the reason that the user can do something about */
    return number;
}

/* The number under which the kernel knows the event "a system call begins". */
static long event_number(void)
{
    static const char folder[] = "/sys/kernel/tracing";
    static const char path[] = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id";
    long number = read_number(path);

    if (number < 0 && errno == ENOENT)
        number = read_number("/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id");
    if (number < 0 && errno == ENOENT)
        number = number_by_child(folder, path);
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
