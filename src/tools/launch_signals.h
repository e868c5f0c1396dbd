/* SPDX-License-Identifier: MIT
 *
 * launch_signals.h: the signals that kolorun waits for as for anything else. One thread.
 */
#ifndef KO_LAUNCH_SIGNALS_H
#define KO_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

struct ko_worker;

/* A signalfd of what is forwarded to ranks, with_children of SIGCHLD too, which are blocked from
 * now on; fd is an earlier one, or -1. *before is the mask that was, unless it is NULL. */
int ko_signals_open(int fd, bool with_children, sigset_t *before);

/* True if the rank has had it too, from the terminal. */
bool ko_signals_is_heard(const struct signalfd_siginfo *info, const struct ko_worker *worker);

#endif
