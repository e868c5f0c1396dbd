/* SPDX-License-Identifier: MIT
 *
 * One after the other is served. One that does not take what it has asked for holds up the others
 * until the call ends, which it does at the group's limit at the latest, since what waits for such
 * a process waits in vain: then its connection is shut down under the thread.
 */
#include "gpu_handover.h"

#include "poller.h"
#include "socket.h"
#include "status.h"
#include "unix_socket.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What is to be had at one socket. */
struct offer {
    uint64_t id;
    struct ko_gpu_pieces *pieces;
    char name[KO_UNIX_NAME];
    struct offer *next;
};

struct ko_gpu_handover {
    struct offer *offers;
    struct ko_poller poller;
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t has_left; /* the thread has */
    bool is_served, is_ending;
    int served; /* the connection; -1: none */
};

int ko_gpu_handover_new(struct ko_gpu_handover **handover_out)
{
    struct ko_gpu_handover *handover = ko_alloc(sizeof *handover, "a GPU's memory to be handed");

    if (!handover)
        return KOLO_E_NOMEM;
    handover->poller = (struct ko_poller){.epoll_fd = -1, .wake_fd = -1};
    handover->served = -1;
    pthread_mutex_init(&handover->lock, NULL);
    pthread_cond_init(&handover->has_left, NULL);
    *handover_out = handover;
    return KOLO_OK;
}

const char *ko_gpu_handover_name(const struct ko_gpu_handover *handover, uint64_t id)
{
    const struct offer *offer = handover->offers;

    while (offer && offer->id != id)
        offer = offer->next;
    return offer ? offer->name : NULL;
}

int ko_gpu_handover_add(struct ko_gpu_handover *handover, uint64_t id, struct ko_gpu_pieces *pieces,
                        const char *name)
{
    struct offer *offer = ko_alloc(sizeof *offer, "a GPU's memory to be handed");

    if (!offer) {
        ko_gpu_pieces_free(pieces);
        return KOLO_E_NOMEM;
    }
    offer->id = id;
    offer->pieces = pieces;
    snprintf(offer->name, sizeof offer->name, "%s", name);
    offer->next = handover->offers;
    handover->offers = offer;
    return KOLO_OK;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* True unless the call ends: from now on the end shuts this connection down. */
static bool begin(struct ko_gpu_handover *handover, int fd)
{
    bool may_begin;

    pthread_mutex_lock(&handover->lock);
    may_begin = !handover->is_ending;
    handover->served = may_begin ? fd : -1;
    pthread_mutex_unlock(&handover->lock);
    return may_begin;
}

static void finish(struct ko_gpu_handover *handover)
{
    pthread_mutex_lock(&handover->lock);
    handover->served = -1;
    pthread_mutex_unlock(&handover->lock);
}

/* Who hangs up, or is another user's, gets nothing; he finds that out himself. */
static void serve(struct ko_gpu_handover *handover, const struct offer *offer)
{
    const ko_deadline never = ko_deadline_in(INT_MAX);
    int fd;

    if (ko_socket_accept(offer->pieces->listener, &fd))
        return;
    if (!ko_unix_check_user(fd) && begin(handover, fd)) {
        (void)ko_gpu_pieces_hand(offer->pieces, fd, &never);
        finish(handover);
    }
    close(fd);
}

static void serve_all(void *argument)
{
    struct ko_gpu_handover *handover = argument;
    struct ko_event events[16];
    bool is_ending = false;

    while (!is_ending) {
        const int n = ko_poller_wait(&handover->poller, -1, events, 16);

        is_ending = n < 0;
        for (int i = 0; i < n && !is_ending; i++) {
            is_ending = !events[i].owner; /* a wake */
            if (!is_ending)
                serve(handover, events[i].owner);
        }
    }
    pthread_mutex_lock(&handover->lock);
    handover->is_served = false;
    pthread_cond_signal(&handover->has_left);
    pthread_mutex_unlock(&handover->lock);
}

int ko_gpu_handover_start(struct ko_gpu_handover *handover, struct ko_crew *crew)
{
    int err = handover->offers ? ko_poller_open(&handover->poller) : KOLO_OK;

    for (struct offer *offer = handover->offers; offer && !err; offer = offer->next)
        err = ko_poller_add(&handover->poller, offer->pieces->listener, KO_POLL_IN, offer);
    if (err || !handover->offers)
        return err;
    handover->is_served = true;
    err = ko_crew_run(crew, serve_all, handover, "a thread that hands over a GPU's memory");
    if (err)
        handover->is_served = false;
    return err;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void stop(struct ko_gpu_handover *handover)
{
    pthread_mutex_lock(&handover->lock);
    handover->is_ending = true;
    if (handover->served >= 0)
        (void)shutdown(handover->served, SHUT_RDWR);
    if (handover->is_served)
        ko_poller_wake(&handover->poller);
    while (handover->is_served)
        pthread_cond_wait(&handover->has_left, &handover->lock);
    pthread_mutex_unlock(&handover->lock);
}

void ko_gpu_handover_end(struct ko_gpu_handover *handover)
{
    if (!handover)
        return;
    stop(handover);
    for (struct offer *offer = handover->offers, *next; offer; offer = next) {
        next = offer->next;
        ko_gpu_pieces_free(offer->pieces);
        free(offer);
    }
    ko_poller_close(&handover->poller);
    pthread_mutex_destroy(&handover->lock);
    pthread_cond_destroy(&handover->has_left);
    free(handover);
}
