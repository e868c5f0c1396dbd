/* SPDX-License-Identifier: MIT
 *
 * poller.h: waits on many file descriptors at once (epoll, level-triggered). One thread at a time;
 * only ko_poller_wake may come from any thread.
 */
#ifndef KO_POLLER_H
#define KO_POLLER_H

#include <stdbool.h>
#include <stdint.h>

/* Bits of what is waited for and of what happened. KO_POLL_HUP: the other end is gone; reported
 * whether asked for or not. */
enum { KO_POLL_IN = 1, KO_POLL_OUT = 2, KO_POLL_HUP = 4 };

struct ko_poller {
    int epoll_fd;
    int wake_fd; /* an eventfd, or -1: nobody wakes it */
};

struct ko_event {
    void *owner; /* as given to ko_poller_add; NULL for a wake */
    int happened;
};

int ko_poller_open(struct ko_poller *poller);
/* One that nobody wakes, for a descriptor less. */
int ko_poller_open_quiet(struct ko_poller *poller);
int ko_poller_add(struct ko_poller *poller, int fd, int wanted, void *owner);
int ko_poller_change(struct ko_poller *poller, int fd, int wanted, void *owner);
void ko_poller_remove(struct ko_poller *poller, int fd);

/* Has the descriptor in with these bits, or out if there are none. *polled: those it is in with, or
 * 0, before and, unless this fails, after. */
int ko_poller_keep(struct ko_poller *poller, int fd, int wanted, void *owner, int *polled);

/* Takes everything out; a wake is not lost. After an error nothing has changed, or nothing is in.
 */
int ko_poller_renew(struct ko_poller *poller);

/* Waits up to timeout_ms (0: only looks) and returns the number of events, 0 on time-out or signal,
 * or -1 after ko_fail. */
int ko_poller_wait(struct ko_poller *poller, int timeout_ms, struct ko_event *events, int cap);

/* Makes the present or the next ko_poller_wait return. Async-signal-safe. */
void ko_poller_wake(struct ko_poller *poller);

/* Safe on a poller that is all zero or failed to open. */
void ko_poller_close(struct ko_poller *poller);

#endif
