/* SPDX-License-Identifier: MIT
 *
 * An idle hand waits for its next body, the one that has become idle last first, so that of many
 * the others come to their end. Each that has ended is joined by whoever comes next.
 */
#include "crew.h"

#include "clock.h"
#include "status.h"
#include "thread.h"

#include <stdlib.h>

enum { LINGER_MS = 1000, MOST_KEPT = 8 };

struct ko_hand {
    struct ko_crew *crew;
    pthread_t thread;
    pthread_cond_t called; /* it has a body, or the crew closes */
    void (*body)(void *);  /* NULL: none */
    void *argument;
    struct ko_hand *next; /* in the list of the idle, or the ended */
};

void ko_crew_open(struct ko_crew *crew)
{
    *crew = (struct ko_crew){.idle = NULL};
    pthread_mutex_init(&crew->lock, NULL);
    ko_condition_init(&crew->changed);
}

/* Waits idle; true if it has been given a body. With the lock. */
static bool wait_for_body(struct ko_hand *hand)
{
    const ko_deadline soon = ko_deadline_in(LINGER_MS);
    const struct timespec until = ko_deadline_timespec(&soon);
    struct ko_hand **link = &hand->crew->idle;

    hand->next = hand->crew->idle;
    hand->crew->idle = hand;
    while (!hand->body && !hand->crew->is_closing && !ko_deadline_passed(&soon))
        pthread_cond_timedwait(&hand->called, &hand->crew->lock, &until);
    if (hand->body)
        return true; /* and it is in no list */
    while (*link != hand)
        link = &(*link)->next;
    *link = hand->next;
    return false;
}

static void *hand_main(void *argument)
{
    struct ko_hand *hand = argument;
    struct ko_crew *crew = hand->crew;

    pthread_mutex_lock(&crew->lock);
    do {
        pthread_mutex_unlock(&crew->lock);
        hand->body(hand->argument);
        pthread_mutex_lock(&crew->lock);
        hand->body = NULL;
    } while (wait_for_body(hand));
    hand->next = crew->ended;
    crew->ended = hand;
    crew->nhands--;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* Without the lock. */
static void join(struct ko_hand *ended)
{
    while (ended) {
        struct ko_hand *next = ended->next;

        pthread_join(ended->thread, NULL);
        pthread_cond_destroy(&ended->called);
        free(ended);
        ended = next;
    }
}

/* With the lock, which keeps the new thread from ending before it has been counted. */
static int start(struct ko_crew *crew, void (*body)(void *), void *argument, const char *what)
{
    struct ko_hand *hand = ko_alloc(sizeof *hand, what);
    int err;

    if (!hand)
        return KOLO_E_NOMEM;
    ko_condition_init(&hand->called);
    hand->crew = crew;
    hand->body = body;
    hand->argument = argument;
    err = ko_thread_start(&hand->thread, hand_main, hand, what);
    if (err) {
        pthread_cond_destroy(&hand->called);
        free(hand);
        return err;
    }
    crew->nhands++;
    return KOLO_OK;
}

int ko_crew_run(struct ko_crew *crew, void (*body)(void *), void *argument, const char *what)
{
    struct ko_hand *hand, *ended;
    int err = KOLO_OK;

    pthread_mutex_lock(&crew->lock);
    ended = crew->ended;
    crew->ended = NULL;
    hand = crew->idle;
    if (hand) {
        crew->idle = hand->next;
        hand->argument = argument;
        hand->body = body;
        pthread_cond_signal(&hand->called);
    } else {
        err = start(crew, body, argument, what);
    }
    pthread_mutex_unlock(&crew->lock);
    join(ended);
    return err;
}

bool ko_crew_keep(struct ko_crew *crew)
{
    bool may_keep;

    pthread_mutex_lock(&crew->lock);
    may_keep = crew->nkept < MOST_KEPT;
    crew->nkept += may_keep;
    pthread_mutex_unlock(&crew->lock);
    return may_keep;
}

void ko_crew_let_go(struct ko_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->nkept--;
    pthread_mutex_unlock(&crew->lock);
}

void ko_crew_close(struct ko_crew *crew)
{
    struct ko_hand *ended;

    pthread_mutex_lock(&crew->lock);
    crew->is_closing = true;
    for (struct ko_hand *hand = crew->idle; hand; hand = hand->next)
        pthread_cond_signal(&hand->called);
    while (crew->nhands)
        pthread_cond_wait(&crew->changed, &crew->lock);
    ended = crew->ended;
    crew->ended = NULL;
    pthread_mutex_unlock(&crew->lock);
    join(ended);
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
}
