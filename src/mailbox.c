/* SPDX-License-Identifier: MIT
 *
 * One thread at a time drives the channel; other waiters sleep on a condition until the driver has
 * finished something or gives the role up. The driver holds the lock except while it sleeps in the
 * kernel. Letters that need both sides and that nobody waits for are driven by a thread of the
 * mailbox's own, the courier, whenever no user's thread does.
 */
#include "mailbox.h"

#include "fault.h"
#include "group.h"
#include "log.h"
#include "portable.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message that came before its receive was posted. */
struct parcel {
    int tag;
    kolo_dtype dtype;
    size_t nbytes, arrived;
    struct ko_letter *taker; /* a receive that was posted while it is arriving */
    struct parcel *next;
    unsigned char data[];
};

struct letters {
    struct ko_letter *first, *last;
};

/* What passes between this rank and one other. */
struct correspondence {
    struct letters sending;  /* the first is under way */
    struct letters flushing; /* given to the link, which still refers to their buffers */
    struct letters awaited;  /* receives, in the order posted */
    struct parcel *parcels;  /* in the order of arrival */
    uint64_t sent, received; /* messages, for their numbers */

    /* the message that is arriving: at most one of letter and parcel */
    bool is_arriving;
    struct ko_letter *letter;
    struct parcel *parcel;
    size_t arrived, total;
};

struct ko_mailbox {
    struct ko_channel channel; /* its lock guards all of this */
    kolo_group *group;
    struct correspondence *with; /* by rank */
    pthread_cond_t changed;
    bool is_driven; /* some thread has the driver's role */
    int nusers;     /* user threads that wait */
    int nopen;      /* letters not done */
    int nattended;  /* letters that the courier is to see to; recounted when it looks */
    bool has_courier, is_stopping;
    pthread_t courier;
};

static void push(struct letters *list, struct ko_letter *letter)
{
    letter->next = NULL;
    if (list->last)
        list->last->next = letter;
    else
        list->first = letter;
    list->last = letter;
}

static struct ko_letter *pop(struct letters *list)
{
    struct ko_letter *letter = list->first;

    if (letter) {
        list->first = letter->next;
        if (!list->first)
            list->last = NULL;
    }
    return letter;
}

/* ---- making ------------------------------------------------------------------------------ */

static struct ko_mailbox *make(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_alloc(sizeof *mailbox, "a mailbox");
    pthread_condattr_t attributes;

    if (!mailbox)
        return NULL;
    mailbox->group = group;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&mailbox->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    mailbox->with = ko_alloc((size_t)group->size * sizeof *mailbox->with, "correspondences");
    if (mailbox->with && !ko_channel_open(&mailbox->channel, group, KO_CHANNEL_P2P))
        return mailbox;
    ko_channel_close(&mailbox->channel);
    pthread_cond_destroy(&mailbox->changed);
    free(mailbox->with);
    free(mailbox);
    return NULL;
}

/* The group's mailbox, made if need be; NULL after ko_fail. */
static struct ko_mailbox *mailbox_of(kolo_group *group)
{
    struct ko_mailbox *mailbox;

    pthread_mutex_lock(&group->lock);
    if (!group->mailbox)
        group->mailbox = make(group);
    mailbox = group->mailbox;
    pthread_mutex_unlock(&group->lock);
    return mailbox;
}

static struct ko_mailbox *existing(kolo_group *group)
{
    struct ko_mailbox *mailbox;

    pthread_mutex_lock(&group->lock);
    mailbox = group->mailbox;
    pthread_mutex_unlock(&group->lock);
    return mailbox;
}

struct ko_channel *ko_mailbox_channel(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);

    return mailbox ? &mailbox->channel : NULL;
}

/* ---- finishing --------------------------------------------------------------------------- */

static void finish(struct ko_mailbox *mailbox, struct ko_letter *letter, int status)
{
    mailbox->nopen--;
    ko_work_complete(&letter->work, status);
    pthread_cond_broadcast(&mailbox->changed);
}

static void fail_list(struct ko_mailbox *mailbox, struct letters *list, int status)
{
    struct ko_letter *letter;

    while ((letter = pop(list)))
        finish(mailbox, letter, status);
}

/* The group has failed: tells the peers, then everything ends with the group's error. */
static void fail_all(struct ko_mailbox *mailbox)
{
    int status = ko_group_check(mailbox->group);

    ko_channel_tell_failure(&mailbox->channel);
    (void)ko_group_check(mailbox->group); /* the thread's text again */
    for (int i = 0; i < mailbox->group->size; i++) {
        struct correspondence *with = &mailbox->with[i];

        fail_list(mailbox, &with->sending, status);
        fail_list(mailbox, &with->flushing, status);
        fail_list(mailbox, &with->awaited, status);
        if (with->letter)
            finish(mailbox, with->letter, status);
        if (with->parcel && with->parcel->taker)
            finish(mailbox, with->parcel->taker, status);
        if (with->parcel)
            with->parcel->taker = NULL;
        with->letter = NULL;
    }
}

/* Hands a complete message of nbytes to a receive. */
static void deliver(struct ko_mailbox *mailbox, struct ko_letter *letter, size_t nbytes,
                    kolo_dtype dtype)
{
    int status = KOLO_OK;

    if (nbytes > letter->nbytes)
        status =
            ko_fail(KOLO_E_TRUNCATED,
                    "the message of tag %d from rank %d has %zu bytes, the receive room for %zu",
                    letter->tag, letter->peer, nbytes, letter->nbytes);
    else if (dtype != letter->dtype)
        status = ko_fail(KOLO_E_MISMATCH,
                         "rank %d sent the message of tag %d as %s, rank %d receives it as %s",
                         letter->peer, letter->tag, kolo_dtype_name(dtype), mailbox->group->rank,
                         kolo_dtype_name(letter->dtype));
    finish(mailbox, letter, status);
}

/* ---- sending ----------------------------------------------------------------------------- */

static void finish_flushed(struct ko_mailbox *mailbox, struct correspondence *with,
                           struct ko_link *link)
{
    if (!with->flushing.first)
        return;
    (void)ko_link_is_flushed(link);
    while (with->flushing.first &&
           (!link->posts || link->flushed >= with->flushing.first->flushed_at))
        finish(mailbox, pop(&with->flushing), KOLO_OK);
}

/* Gives slices of the letter to the link; KO_AGAIN when it takes no more now. */
static int give(struct ko_letter *letter, struct ko_link *link)
{
    const struct ko_stamp stamp = {.seq = letter->seq,
                                   .count = letter->nbytes,
                                   .root = (uint32_t)letter->tag,
                                   .what = KO_POINT_TO_POINT,
                                   .dtype = (uint8_t)letter->dtype};

    while (!letter->has_begun || letter->moved < letter->nbytes) {
        size_t left = letter->nbytes - letter->moved;
        size_t nbytes = left < link->slice_bytes ? left : link->slice_bytes;
        int err = link->ops->post(link, &stamp, letter->buffer + letter->moved, nbytes);

        if (err)
            return err;
        letter->has_begun = true;
        letter->moved += nbytes;
    }
    letter->flushed_at = link->sent;
    return KOLO_OK;
}

static int drive_sending(struct ko_mailbox *mailbox, struct correspondence *with,
                         struct ko_link *link)
{
    int err = KOLO_OK;

    while (with->sending.first && !err) {
        err = give(with->sending.first, link);
        if (!err)
            push(&with->flushing, pop(&with->sending));
    }
    finish_flushed(mailbox, with, link);
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* ---- receiving --------------------------------------------------------------------------- */

/* Takes the first receive of this tag out of the list. */
static struct ko_letter *take_awaited(struct correspondence *with, int tag)
{
    struct ko_letter **link = &with->awaited.first, *before = NULL;

    while (*link && (*link)->tag != tag) {
        before = *link;
        link = &before->next;
    }
    if (*link) {
        struct ko_letter *letter = *link;

        *link = letter->next;
        if (with->awaited.last == letter)
            with->awaited.last = before;
        return letter;
    }
    return NULL;
}

static int keep_parcel(struct correspondence *with, const struct ko_stamp *stamp)
{
    struct parcel **end = &with->parcels;
    struct parcel *parcel =
        ko_alloc(sizeof *parcel + stamp->count, "a message nobody waits for yet");

    if (!parcel)
        return KOLO_E_NOMEM;
    parcel->tag = (int)stamp->root;
    parcel->dtype = (kolo_dtype)stamp->dtype;
    parcel->nbytes = stamp->count;
    while (*end)
        end = &(*end)->next;
    *end = parcel;
    with->parcel = parcel;
    return KOLO_OK;
}

static int begin_arrival(struct ko_mailbox *mailbox, struct correspondence *with,
                         const struct ko_stamp *stamp)
{
    if (stamp->what != KO_POINT_TO_POINT || stamp->seq != with->received + 1 ||
        stamp->count > SIZE_MAX / 2)
        return ko_fail(KOLO_E_PROTOCOL, "message #%llu was expected, #%llu came",
                       (unsigned long long)with->received + 1, (unsigned long long)stamp->seq);
    (void)mailbox;
    with->received++;
    with->is_arriving = true;
    with->arrived = 0;
    with->total = stamp->count;
    with->letter = take_awaited(with, (int)stamp->root);
    return with->letter ? KOLO_OK : keep_parcel(with, stamp);
}

/* Where the next bytes of the arriving message go; NULL if they do not fit and are dropped. */
static unsigned char *place_of(const struct correspondence *with)
{
    if (with->parcel)
        return with->parcel->data + with->arrived;
    return with->total <= with->letter->nbytes ? with->letter->buffer + with->arrived : NULL;
}

static void take_parcel(struct ko_mailbox *mailbox, struct correspondence *with,
                        struct parcel *parcel, struct ko_letter *letter)
{
    struct parcel **link = &with->parcels;

    if (parcel->nbytes <= letter->nbytes && parcel->nbytes)
        memcpy(letter->buffer, parcel->data, parcel->nbytes);
    deliver(mailbox, letter, parcel->nbytes, parcel->dtype);
    while (*link != parcel)
        link = &(*link)->next;
    *link = parcel->next;
    free(parcel);
}

static void end_arrival(struct ko_mailbox *mailbox, struct correspondence *with, kolo_dtype dtype)
{
    struct ko_letter *letter = with->letter;
    struct parcel *parcel = with->parcel;

    with->is_arriving = false;
    with->letter = NULL;
    with->parcel = NULL;
    if (letter)
        deliver(mailbox, letter, with->total, dtype);
    else if (parcel->taker)
        take_parcel(mailbox, with, parcel, parcel->taker);
}

/* One slice of the arriving message; KO_AGAIN if it is not all here. */
static int take_slice(struct ko_mailbox *mailbox, struct correspondence *with, struct ko_link *link,
                      const struct ko_frame *frame)
{
    unsigned char *place = place_of(with);
    const size_t nbytes = frame->nbytes;
    const kolo_dtype dtype = (kolo_dtype)frame->stamp.dtype;
    const void *dropped;
    int err;

    if (frame->stamp.seq != with->received || nbytes > with->total - with->arrived ||
        (!nbytes && with->total))
        return ko_fail(KOLO_E_PROTOCOL, "a slice of message #%llu does not fit it",
                       (unsigned long long)with->received);
    err = place ? link->ops->land(link, place) : link->ops->peek(link, &dropped);
    if (err)
        return err;
    if (!place)
        link->ops->release(link);
    with->arrived += nbytes;
    if (with->parcel)
        with->parcel->arrived = with->arrived;
    if (with->arrived == with->total)
        end_arrival(mailbox, with, dtype);
    return KOLO_OK;
}

static int drive_receiving(struct ko_mailbox *mailbox, struct correspondence *with,
                           struct ko_link *link)
{
    const struct ko_frame *frame;
    int err;

    while (!(err = link->ops->next(link, &frame))) {
        if (!with->is_arriving)
            err = begin_arrival(mailbox, with, &frame->stamp);
        if (!err)
            err = take_slice(mailbox, with, link, frame);
        if (err)
            break;
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* ---- driving ----------------------------------------------------------------------------- */

static bool wants(const struct correspondence *with)
{
    return with->sending.first || with->flushing.first || with->awaited.first || with->letter ||
           (with->parcel && with->parcel->taker);
}

/* The end of a peer that has freed its group matters to what we still want of it. */
static int check_bye(struct ko_mailbox *mailbox, int peer)
{
    return mailbox->channel.ports[peer].said_bye && wants(&mailbox->with[peer])
               ? ko_channel_link_failed(&mailbox->channel, peer, KOLO_E_PEER_LOST)
               : KOLO_OK;
}

static int drive_peer(struct ko_mailbox *mailbox, int peer)
{
    struct correspondence *with = &mailbox->with[peer];
    const bool had_left = mailbox->channel.ports[peer].said_bye;
    struct ko_link *link = mailbox->channel.ports[peer].link;
    uint64_t received;
    int err;

    if (!link)
        return KOLO_OK;
    do { /* a link to oneself has no other end that would wake us when there is room again */
        received = link->received;
        err = drive_sending(mailbox, with, link);
        if (!err)
            err = drive_receiving(mailbox, with, link);
    } while (!err && peer == mailbox->group->rank && link->received != received);
    finish_flushed(mailbox, with, link);
    if (err == KOLO_E_PEER_LOST && mailbox->channel.ports[peer].said_bye && !wants(with))
        return KOLO_OK; /* its end matters to nobody here */
    if (err)
        return ko_channel_link_failed(&mailbox->channel, peer, err);
    return had_left ? check_bye(mailbox, peer) : KOLO_OK;
}

/* Everything that can be done now. */
static int drive(struct ko_mailbox *mailbox)
{
    int err = ko_group_check(mailbox->group);

    for (int i = 0; i < mailbox->group->size && !err; i++)
        err = drive_peer(mailbox, i);
    if (err)
        fail_all(mailbox);
    return err;
}

/* One round of the driver: moves what it can, or waits a turn, at most until the deadline. Holds
 * the lock but for the sleep. */
static void drive_or_sleep(struct ko_mailbox *mailbox, struct ko_wait *wait,
                           const ko_deadline *deadline)
{
    struct ko_event events[16];
    int nap_ms, left_ms = ko_deadline_left_ms(deadline);
    int n;

    if (!wait->is_armed) {
        if (ko_channel_wait_awake(&mailbox->channel, wait))
            fail_all(mailbox);
        return;
    }
    wait->is_armed = false;
    if (ko_channel_poll(&mailbox->channel)) {
        fail_all(mailbox);
        return;
    }
    nap_ms = ko_channel_nap_ms(&mailbox->channel, wait->deadline);
    pthread_mutex_unlock(&mailbox->channel.lock);
    n = ko_poller_wait(&mailbox->channel.poller, left_ms < nap_ms ? left_ms : nap_ms, events, 16);
    pthread_mutex_lock(&mailbox->channel.lock);
    if (ko_channel_woken(&mailbox->channel, events, n) ||
        ko_channel_look_around(&mailbox->channel, wait))
        fail_all(mailbox);
}

static void drive_until_done(struct ko_mailbox *mailbox, struct ko_letter *letter,
                             const ko_deadline *deadline, const ko_deadline *limit)
{
    struct ko_wait wait = {.deadline = limit,
                           .peer = letter->peer,
                           .what = letter->is_send ? "to send a message to" : "for a message from"};

    mailbox->is_driven = true;
    while (!atomic_load(&letter->work.is_done) && !drive(mailbox)) {
        if (atomic_load(&letter->work.is_done) || ko_deadline_passed(deadline))
            break;
        drive_or_sleep(mailbox, &wait, deadline);
    }
    mailbox->is_driven = false;
    pthread_cond_broadcast(&mailbox->changed);
}

/* Another thread drives; until it has changed something, but not for long. */
static void wait_for_driver(struct ko_mailbox *mailbox, const ko_deadline *deadline)
{
    ko_deadline soon = ko_deadline_within(deadline, 100);
    struct timespec until = {.tv_sec = soon.at_ns / 1000000000, .tv_nsec = soon.at_ns % 1000000000};

    pthread_cond_timedwait(&mailbox->changed, &mailbox->channel.lock, &until);
}

void ko_mailbox_await(struct ko_letter *letter, const ko_deadline *deadline)
{
    struct ko_mailbox *mailbox = existing(letter->group);
    ko_deadline limit = ko_deadline_in(kolo_group_timeout(letter->group));

    pthread_mutex_lock(&mailbox->channel.lock);
    mailbox->nusers++;
    if (mailbox->is_driven)
        ko_poller_wake(&mailbox->channel.poller); /* the courier makes way */
    do {
        if (!mailbox->is_driven)
            drive_until_done(mailbox, letter, deadline, &limit);
        else
            wait_for_driver(mailbox, deadline);
    } while (!atomic_load(&letter->work.is_done) && !ko_deadline_passed(deadline));
    mailbox->nusers--;
    if (mailbox->has_courier && mailbox->nopen)
        pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->channel.lock);
}

/* ---- courier ----------------------------------------------------------------------------- */

static void drive_for_nobody(struct ko_mailbox *mailbox)
{
    ko_deadline limit = ko_deadline_in(kolo_group_timeout(mailbox->group));
    struct ko_wait wait = {.deadline = &limit, .peer = -1, .what = "for messages of"};

    mailbox->is_driven = true;
    while (mailbox->nopen && !mailbox->nusers && !mailbox->is_stopping && !drive(mailbox) &&
           mailbox->nopen)
        drive_or_sleep(mailbox, &wait, &limit);
    mailbox->is_driven = false;
    pthread_cond_broadcast(&mailbox->changed);
}

static void *courier_main(void *argument)
{
    struct ko_mailbox *mailbox = argument;

    ko_log_set_rank(mailbox->group->rank);
    pthread_mutex_lock(&mailbox->channel.lock);
    while (!mailbox->is_stopping) {
        if (mailbox->nopen && !mailbox->nusers && !mailbox->is_driven)
            drive_for_nobody(mailbox);
        else
            pthread_cond_wait(&mailbox->changed, &mailbox->channel.lock);
    }
    pthread_mutex_unlock(&mailbox->channel.lock);
    return NULL;
}

/* The thread takes no signals: they are the program's. Without it letters get on when their owner
 * waits, so that a failure to start it is only worth a warning. */
static void start_courier(struct ko_mailbox *mailbox)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = ko_fault(KO_FAULT_THREAD)
                ? EAGAIN
                : pthread_create(&mailbox->courier, NULL, courier_main, mailbox);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    mailbox->has_courier = !error;
    if (error)
        ko_log(KO_LOG_WARN, "no thread for messages in the background: %s", strerror(error));
}

void ko_mailbox_attend(struct ko_letter *letter)
{
    struct ko_mailbox *mailbox = existing(letter->group);
    const struct ko_contact *own = &letter->group->endpoint->own;
    bool fits = letter->nbytes <= (size_t)own->slots * own->slice_bytes;

    if (atomic_load(&letter->work.is_done) || (fits && !letter->is_send))
        return; /* what fits into the slots arrives without us */
    pthread_mutex_lock(&mailbox->channel.lock);
    if (!mailbox->has_courier)
        start_courier(mailbox);
    pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->channel.lock);
}

/* ---- posting ----------------------------------------------------------------------------- */

/* A message that has come, or is arriving, for this receive. */
static bool match_parcel(struct ko_mailbox *mailbox, struct correspondence *with,
                         struct ko_letter *letter)
{
    struct parcel *parcel = with->parcels;

    while (parcel && (parcel->tag != letter->tag || parcel->taker))
        parcel = parcel->next;
    if (!parcel)
        return false;
    if (parcel == with->parcel)
        parcel->taker = letter;
    else
        take_parcel(mailbox, with, parcel, letter);
    return true;
}

static void enter(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    struct correspondence *with = &mailbox->with[letter->peer];

    mailbox->nopen++;
    if (letter->is_send) {
        letter->seq = ++with->sent;
        push(&with->sending, letter);
    } else if (!match_parcel(mailbox, with, letter)) {
        push(&with->awaited, letter);
    }
}

int ko_mailbox_post(struct ko_letter *letter)
{
    struct ko_mailbox *mailbox = mailbox_of(letter->group);
    struct ko_link *link;
    int err;

    if (!mailbox)
        return KOLO_E_NOMEM;
    pthread_mutex_lock(&mailbox->channel.lock);
    err = ko_group_check(letter->group);
    if (!err)
        err = ko_channel_link(&mailbox->channel, letter->peer, &link);
    if (err) {
        if (atomic_load(&letter->group->failed))
            fail_all(mailbox);
        err = ko_group_check(letter->group);
    } else {
        enter(mailbox, letter);
        if (drive_peer(mailbox, letter->peer))
            fail_all(mailbox);
        if (mailbox->is_driven)
            ko_poller_wake(&mailbox->channel.poller); /* the driver's poll may lack what we began */
    }
    pthread_mutex_unlock(&mailbox->channel.lock);
    return err;
}

void ko_mailbox_answer(kolo_group *group)
{
    struct ko_hello hellos[16];
    int n = ko_endpoint_unclaimed(group->endpoint, group->id, KO_CHANNEL_P2P, hellos, 16);
    struct ko_mailbox *mailbox = n ? mailbox_of(group) : NULL;
    struct ko_link *link;

    if (!mailbox || pthread_mutex_trylock(&mailbox->channel.lock))
        return; /* whoever holds the lock drives the channel */
    for (int i = 0; i < n; i++)
        if (hellos[i].from >= 0 && hellos[i].from < group->size &&
            !ko_channel_link(&mailbox->channel, hellos[i].from, &link))
            (void)ko_channel_turn(&mailbox->channel);
    pthread_mutex_unlock(&mailbox->channel.lock);
}

/* ---- end --------------------------------------------------------------------------------- */

bool ko_mailbox_is_busy(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);
    bool is_busy;

    if (!mailbox)
        return false;
    pthread_mutex_lock(&mailbox->channel.lock);
    is_busy = mailbox->nopen > 0;
    pthread_mutex_unlock(&mailbox->channel.lock);
    return is_busy;
}

static void free_parcels(struct ko_mailbox *mailbox)
{
    for (int i = 0; i < mailbox->group->size; i++)
        while (mailbox->with[i].parcels) {
            struct parcel *parcel = mailbox->with[i].parcels;

            mailbox->with[i].parcels = parcel->next;
            free(parcel);
        }
}

void ko_mailbox_free(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);

    if (!mailbox)
        return;
    pthread_mutex_lock(&mailbox->channel.lock);
    mailbox->is_stopping = true;
    if (atomic_load(&group->failed))
        fail_all(mailbox);
    pthread_cond_broadcast(&mailbox->changed);
    ko_poller_wake(&mailbox->channel.poller);
    pthread_mutex_unlock(&mailbox->channel.lock);
    if (mailbox->has_courier)
        pthread_join(mailbox->courier, NULL);
    free_parcels(mailbox);
    ko_channel_close(&mailbox->channel);
    pthread_cond_destroy(&mailbox->changed);
    free(mailbox->with);
    free(mailbox);
    group->mailbox = NULL;
}
