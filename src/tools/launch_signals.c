/* SPDX-License-Identifier: MIT
 *
 * Which signals kolorun waits for as for anything else.
 */
#include "launch_signals.h"

#include "launch.h"

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

int ko_signals_open(int fd, bool with_children, sigset_t *before)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        sigaddset(&set, forwarded[i]);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, before);
    if (!with_children)
        sigdelset(&set, SIGCHLD);
    return signalfd(fd, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The terminal sends what its keys mean to the whole foreground group, hence also to a rank in
 * kolorun's own; but its hangup to the session's leader alone. */
bool ko_signals_is_heard(const struct signalfd_siginfo *info, const struct ko_worker *worker)
{
    return !worker->own_group && info->ssi_code == SI_KERNEL &&
           (info->ssi_signo == SIGINT || info->ssi_signo == SIGQUIT);
}
