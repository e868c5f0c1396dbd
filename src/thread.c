/* SPDX-License-Identifier: MIT */
#include "thread.h"

#include "fault.h"
#include "status.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

int ko_thread_start(pthread_t *thread, void *(*body)(void *), void *argument, const char *what)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a new thread has the mask of its maker */
    error = ko_fault(KO_FAULT_THREAD) ? EAGAIN : pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? ko_fail_errno(error, "cannot start %s", what) : KOLO_OK;
}

void ko_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
