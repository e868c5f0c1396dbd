/* SPDX-License-Identifier: MIT
 *
 * crew.h: threads of the library's own that many users share: each takes one while it has something
 * to do in the background, and few keep theirs. There are as many as are at work at once, and for
 * a second as many as have been. Any thread.
 */
#ifndef KO_CREW_H
#define KO_CREW_H

#include <pthread.h>
#include <stdbool.h>

struct ko_hand;

struct ko_crew {
    pthread_mutex_t lock;
    struct ko_hand *idle;  /* the latest first */
    struct ko_hand *ended; /* to be joined */
    int nhands;            /* not ended */
    int nkept;
    bool is_closing;
    pthread_cond_t changed; /* one has ended */
};

void ko_crew_open(struct ko_crew *crew);

/* Lets a thread run body(argument) now, beside all others; `what` stands in the error's text if it
 * cannot be started. */
int ko_crew_run(struct ko_crew *crew, void (*body)(void *), void *argument, const char *what);

/* True for the first few that ask: their body may stay where it is although it has nothing to do,
 * which spares it the time-outs of one that has to make way for others. Until let_go. */
bool ko_crew_keep(struct ko_crew *crew);
void ko_crew_let_go(struct ko_crew *crew);

/* Waits until all bodies have returned. Safe on one that is all zero. */
void ko_crew_close(struct ko_crew *crew);

#endif
