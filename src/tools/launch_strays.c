/* SPDX-License-Identifier: MIT */
#include "launch_strays.h"

#include "clock.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILL_MS = 1000 }; /* for those that are stuck in the kernel */

/* kolorun's children, one line of numbers. NULL if the kernel does not list them. */
static FILE *open_children(void)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    return fopen(path, "re");
}

bool ko_strays_adopt(void)
{
    FILE *children = open_children();
    const bool is_alone = children && fgetc(children) == EOF;

    if (children)
        fclose(children);
    return is_alone && !prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void ko_strays_reap(pid_t rank)
{
    siginfo_t info;

    do {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == rank)
            return;
    } while (info.si_pid && waitpid(info.si_pid, NULL, 0) > 0);
}

/* How many there were: those that are gone now may have left others. */
static int kill_once(pid_t rank)
{
    FILE *children = open_children();
    int pid, n = 0;

    while (children && fscanf(children, "%d", &pid) == 1) {
        if (pid == rank || getpgid(pid) != getpgrp())
            continue;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, WNOHANG);
        n++;
    }
    if (children)
        fclose(children);
    return n;
}

void ko_strays_kill(pid_t rank)
{
    const ko_deadline deadline = ko_deadline_in(KILL_MS);
    const struct timespec nap = {.tv_nsec = 1000000};

    while (kill_once(rank) && !ko_deadline_passed(&deadline))
        nanosleep(&nap, NULL);
}
