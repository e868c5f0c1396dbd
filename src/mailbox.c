/* SPDX-License-Identifier: MIT
 *
 * One thread at a time drives the channel; other waiters sleep on a condition until the driver has
 * finished something or gives the role up. The driver holds the lock except while it sleeps in the
 * kernel. Letters that need both sides and that nobody waits for are driven by a thread of the
 * mailbox's own, the courier, when no user's thread has come for a while: one that posts or waits
 * often moves everything itself, and would only be held up by a second thread.
 */
#include "mailbox.h"

#include "correspondence.h"
#include "group.h"
#include "log.h"
#include "portable.h"
#include "thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BRIEF_TURNS = 128,
    COURIER_NAP_MS = 1,
    BURST_MESSAGES = 3,  /* so many are sent at once before others are held */
    BURST_GAP_NS = 10000 /* between two of a burst */
};

struct ko_mailbox {
    pthread_mutex_t lock; /* guards all of this */
    struct ko_channel channel;
    kolo_group *group;
    struct ko_correspondence *with; /* by rank */
    pthread_cond_t changed;         /* for users */
    bool is_driven;                 /* some thread has the driver's role */
    int nusers;                     /* user threads that wait */
    int nsleepers;                  /* of these: on `changed`, while another thread drives */
    int nopen;                      /* letters not done */

    /* sends that follow each other at once, to one peer */
    int burst_peer;   /* -1: none */
    unsigned burst;   /* how many there have been */
    int64_t burst_ns; /* when the last was posted */
    atomic_int held;  /* the peer for whom the link holds messages; -1: none */

    bool has_courier, is_stopping;
    bool is_courier_idle;       /* it sleeps until it is called */
    pthread_cond_t for_courier; /* there are letters again, or it is to stop */
    uint64_t visits;            /* of users: posts and waits */
    pthread_t courier;
};

/* ---- making ------------------------------------------------------------------------------ */

static struct ko_mailbox *make(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_alloc(sizeof *mailbox, "a mailbox");
    pthread_condattr_t attributes;

    if (!mailbox)
        return NULL;
    mailbox->group = group;
    mailbox->burst_peer = -1;
    atomic_init(&mailbox->held, -1);
    pthread_mutex_init(&mailbox->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&mailbox->changed, &attributes);
    pthread_cond_init(&mailbox->for_courier, &attributes);
    pthread_condattr_destroy(&attributes);
    mailbox->with = ko_alloc((size_t)group->size * sizeof *mailbox->with, "correspondences");
    if (mailbox->with && !ko_channel_open(&mailbox->channel, group, KO_CHANNEL_P2P))
        return mailbox;
    ko_channel_close(&mailbox->channel);
    pthread_cond_destroy(&mailbox->changed);
    pthread_cond_destroy(&mailbox->for_courier);
    pthread_mutex_destroy(&mailbox->lock);
    free(mailbox->with);
    free(mailbox);
    return NULL;
}

static struct ko_mailbox *existing(kolo_group *group)
{
    return atomic_load(&group->mailbox);
}

/* The group's mailbox, made if need be; NULL after ko_fail. */
static struct ko_mailbox *mailbox_of(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);

    if (mailbox)
        return mailbox;
    pthread_mutex_lock(&group->lock);
    mailbox = existing(group);
    if (!mailbox) {
        mailbox = make(group);
        atomic_store(&group->mailbox, mailbox);
    }
    pthread_mutex_unlock(&group->lock);
    return mailbox;
}

void ko_mailbox_tell_failure(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);

    if (!mailbox)
        return;
    ko_poller_wake(&mailbox->channel.poller);
    if (pthread_mutex_trylock(&mailbox->lock))
        return;
    ko_channel_tell_failure(&mailbox->channel);
    pthread_mutex_unlock(&mailbox->lock);
}

/* ---- finishing --------------------------------------------------------------------------- */

static void wake_users(struct ko_mailbox *mailbox)
{
    if (mailbox->nsleepers)
        pthread_cond_broadcast(&mailbox->changed);
}

/* Counts what has been finished with a peer, and wakes those who wait for it. */
static void count_finished(struct ko_mailbox *mailbox, struct ko_correspondence *with)
{
    if (!with->nfinished)
        return;
    mailbox->nopen -= with->nfinished;
    with->nfinished = 0;
    wake_users(mailbox);
}

/* The group has failed: tells the peers, then everything ends with the group's error. */
static void fail_all(struct ko_mailbox *mailbox)
{
    int status;

    ko_channel_tell_failure(&mailbox->channel);
    status = ko_group_check(mailbox->group); /* and the thread's text */
    for (int i = 0; i < mailbox->group->size; i++) {
        ko_correspondence_fail(&mailbox->with[i], status);
        count_finished(mailbox, &mailbox->with[i]);
    }
}

/* ---- driving ----------------------------------------------------------------------------- */

/* The end of a peer that has freed its group matters to what we still want of it. */
static int check_bye(struct ko_mailbox *mailbox, int peer)
{
    return mailbox->channel.ports[peer].said_bye && ko_correspondence_wants(&mailbox->with[peer])
               ? ko_channel_link_failed(&mailbox->channel, peer, KOLO_E_PEER_LOST)
               : KOLO_OK;
}

/* Sends what is held for a peer. */
static int push_held(struct ko_mailbox *mailbox, int peer, struct ko_link *link)
{
    if (atomic_load_explicit(&mailbox->held, memory_order_relaxed) != peer) /* under the lock */
        return KOLO_OK;
    atomic_store(&mailbox->held, -1);
    return ko_link_push(link);
}

static int drive_peer(struct ko_mailbox *mailbox, int peer, const struct ko_letter *wanted)
{
    struct ko_correspondence *with = &mailbox->with[peer];
    const bool had_left = mailbox->channel.ports[peer].said_bye;
    struct ko_link *link = mailbox->channel.ports[peer].link;
    uint64_t received;
    int err;

    if (!link)
        return KOLO_OK;
    err = push_held(mailbox, peer, link);
    if (err)
        return ko_channel_link_failed(&mailbox->channel, peer, err);
    do { /* a link to oneself has no other end that would wake us when there is room again */
        received = link->received;
        err = ko_correspondence_drive(with, link, wanted);
    } while (!err && peer == mailbox->group->rank && link->received != received);
    count_finished(mailbox, with);
    if (err == KOLO_E_PEER_LOST && mailbox->channel.ports[peer].said_bye &&
        !ko_correspondence_wants(with))
        return KOLO_OK; /* its end matters to nobody here */
    if (err)
        return ko_channel_link_failed(&mailbox->channel, peer, err);
    return had_left ? check_bye(mailbox, peer) : KOLO_OK;
}

/* Everything that can be done now. */
static int drive(struct ko_mailbox *mailbox, const struct ko_letter *wanted)
{
    int err = ko_group_check(mailbox->group);

    for (int i = 0; i < mailbox->group->size && !err; i++)
        err = drive_peer(mailbox, i, wanted);
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
    pthread_mutex_unlock(&mailbox->lock);
    n = ko_poller_wait(&mailbox->channel.poller, left_ms < nap_ms ? left_ms : nap_ms, events, 16);
    pthread_mutex_lock(&mailbox->lock);
    if (n > 0)
        wait->spin_until_ns = 0; /* something is coming: more of it may be near */
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
    while (!atomic_load(&letter->work.is_done) && !drive(mailbox, letter)) {
        if (atomic_load(&letter->work.is_done))
            break;
        if (ko_deadline_passed(deadline)) { /* perhaps before there was a sleep that would tell */
            if (ko_deadline_passed(limit) && ko_channel_look_around(&mailbox->channel, &wait))
                fail_all(mailbox);
            break;
        }
        drive_or_sleep(mailbox, &wait, deadline);
    }
    mailbox->is_driven = false;
    wake_users(mailbox);
}

/* Another thread drives; until it has changed something, but not for long. */
static void wait_for_driver(struct ko_mailbox *mailbox, const ko_deadline *deadline)
{
    ko_deadline soon = ko_deadline_within(deadline, 100);
    struct timespec until = ko_deadline_timespec(&soon);

    mailbox->nsleepers++;
    pthread_cond_timedwait(&mailbox->changed, &mailbox->lock, &until);
    mailbox->nsleepers--;
}

/* Most messages come within microseconds: looks for them without asking for the time, or for what
 * other peers may want. */
static bool drive_briefly(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    for (int turn = 0; turn < BRIEF_TURNS && !atomic_load(&letter->work.is_done); turn++) {
        if (drive_peer(mailbox, letter->peer, letter)) {
            fail_all(mailbox);
            break;
        }
        if (!atomic_load(&letter->work.is_done))
            ko_pause();
    }
    return atomic_load(&letter->work.is_done);
}

/* The slow part of await, with the lock. */
static void await_long(struct ko_mailbox *mailbox, struct ko_letter *letter,
                       const ko_deadline *wanted)
{
    ko_deadline limit = ko_deadline_in(kolo_group_timeout(letter->group));
    const ko_deadline *deadline = wanted ? wanted : &limit;

    mailbox->nusers++;
    if (mailbox->is_driven)
        ko_poller_wake(&mailbox->channel.poller); /* the courier makes way */
    do {
        if (!mailbox->is_driven)
            drive_until_done(mailbox, letter, deadline, &limit);
        else
            wait_for_driver(mailbox, deadline);
    } while (!atomic_load(&letter->work.is_done) && !(wanted && ko_deadline_passed(wanted)));
    mailbox->nusers--;
}

/* With the lock; a letter that is done costs a look. */
static void await(struct ko_mailbox *mailbox, struct ko_letter *letter, const ko_deadline *deadline)
{
    if (atomic_load(&letter->work.is_done))
        return;
    mailbox->visits++;
    if (mailbox->is_driven || mailbox->channel.is_crowded || !drive_briefly(mailbox, letter))
        await_long(mailbox, letter, deadline);
}

void ko_mailbox_await(struct ko_letter *letter, const ko_deadline *deadline)
{
    struct ko_mailbox *mailbox = existing(letter->group);

    pthread_mutex_lock(&mailbox->lock);
    await(mailbox, letter, deadline);
    pthread_mutex_unlock(&mailbox->lock);
}

/* ---- courier ----------------------------------------------------------------------------- */

static void drive_for_nobody(struct ko_mailbox *mailbox)
{
    ko_deadline limit = ko_deadline_in(kolo_group_timeout(mailbox->group));
    struct ko_wait wait = {.deadline = &limit, .peer = -1, .what = "for messages of"};
    const struct ko_letter all = {.group = NULL}; /* never done: any letter may be behind others */

    mailbox->is_driven = true;
    while (mailbox->nopen && !mailbox->nusers && !mailbox->is_stopping && !drive(mailbox, &all) &&
           mailbox->nopen)
        drive_or_sleep(mailbox, &wait, &limit);
    mailbox->is_driven = false;
    wake_users(mailbox);
}

/* Sleeps for a while; true if no user has come meanwhile, or is there. */
static bool nobody_comes(struct ko_mailbox *mailbox)
{
    const uint64_t visits = mailbox->visits;
    ko_deadline soon = ko_deadline_in(COURIER_NAP_MS);
    struct timespec until = ko_deadline_timespec(&soon);

    pthread_cond_timedwait(&mailbox->for_courier, &mailbox->lock, &until);
    return visits == mailbox->visits && !mailbox->nusers && !mailbox->is_driven;
}

static void *courier_main(void *argument)
{
    struct ko_mailbox *mailbox = argument;

    ko_log_set_rank(mailbox->group->rank);
    pthread_mutex_lock(&mailbox->lock);
    while (!mailbox->is_stopping) {
        mailbox->is_courier_idle = !mailbox->nopen;
        if (mailbox->is_courier_idle)
            pthread_cond_wait(&mailbox->for_courier, &mailbox->lock);
        else if (nobody_comes(mailbox) && !mailbox->is_stopping)
            drive_for_nobody(mailbox);
    }
    pthread_mutex_unlock(&mailbox->lock);
    return NULL;
}

/* Without it letters get on when their owner waits, so a failure to start it is only worth a
 * warning. */
static void start_courier(struct ko_mailbox *mailbox)
{
    mailbox->has_courier = !ko_thread_start(&mailbox->courier, courier_main, mailbox,
                                            "a thread for messages in the background");
    if (!mailbox->has_courier)
        ko_log(KO_LOG_WARN, "%s", kolo_last_error());
}

/* Sees to it that the letter gets on even if nobody waits for it. With the lock. */
static void attend(struct ko_mailbox *mailbox, const struct ko_letter *letter)
{
    const struct ko_contact *own = &letter->group->endpoint->own;
    bool fits = letter->nbytes <= (size_t)own->slots * own->slice_bytes;

    if (atomic_load(&letter->work.is_done) || (fits && !letter->is_send))
        return; /* what fits into the slots arrives without us */
    if (!mailbox->has_courier)
        start_courier(mailbox);
    if (mailbox->is_courier_idle)
        pthread_cond_signal(&mailbox->for_courier);
    mailbox->is_courier_idle = false;
}

/* ---- posting ----------------------------------------------------------------------------- */

/* Whether the link may hold this message because it follows others at once, so that more are near:
 * a system call for several. They go with the first that may not be held, when somebody waits or
 * receives, before a collective, or with the courier. */
static bool is_of_burst(struct ko_mailbox *mailbox, const struct ko_letter *letter,
                        const struct ko_link *link)
{
    int64_t now;
    bool follows;

    if (!letter->may_wait || !link->posts) {
        mailbox->burst_peer = -1;
        return false;
    }
    now = ko_now_ns();
    follows = mailbox->burst_peer == letter->peer && now - mailbox->burst_ns < BURST_GAP_NS;
    mailbox->burst = follows ? mailbox->burst + 1 : 1;
    mailbox->burst_peer = letter->peer;
    mailbox->burst_ns = now;
    return mailbox->burst > BURST_MESSAGES;
}

/* Does what can be done for a letter just entered. */
static int begin(struct ko_mailbox *mailbox, struct ko_letter *letter, struct ko_link *link)
{
    const int held = atomic_load_explicit(&mailbox->held, memory_order_relaxed);
    int err = KOLO_OK;

    link->may_hold = is_of_burst(mailbox, letter, link);
    if (held >= 0 && (held != letter->peer || !letter->is_send))
        err = drive_peer(mailbox, held, NULL);
    if (held >= 0)
        atomic_store(&mailbox->held, -1); /* it goes with this one, or stays held with it */
    if (!err)
        err = drive_peer(mailbox, letter->peer, NULL);
    if (link->may_hold)
        atomic_store(&mailbox->held, letter->peer);
    link->may_hold = false;
    return err;
}

void ko_mailbox_push(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);
    int held = mailbox ? atomic_load(&mailbox->held) : -1;

    if (held < 0)
        return;
    pthread_mutex_lock(&mailbox->lock);
    held = atomic_load(&mailbox->held);
    if (held >= 0 && !ko_group_check(group) && drive_peer(mailbox, held, NULL))
        fail_all(mailbox);
    pthread_mutex_unlock(&mailbox->lock);
}

/* Looks whether the letter's message gets through at once, and at nothing else. With the lock. */
static bool pass(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    struct ko_link *link = mailbox->channel.ports[letter->peer].link;

    if (!link || atomic_load_explicit(&mailbox->held, memory_order_relaxed) >= 0 ||
        !ko_correspondence_pass(&mailbox->with[letter->peer], link, letter))
        return false;
    mailbox->visits++;
    ko_work_complete(&letter->work, KOLO_OK);
    return true;
}

/* Most messages that somebody waits for come within tenths of a microsecond, through a window. */
static bool pass_soon(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    enum { LOOKS = 64 };
    const struct ko_link *link = mailbox->channel.ports[letter->peer].link;
    const bool waits = link && link->inbox && !letter->is_send && !mailbox->channel.is_crowded;
    bool is_done = pass(mailbox, letter);

    for (int looks = 1; waits && looks < LOOKS && !is_done; looks++) {
        ko_pause();
        is_done = pass(mailbox, letter);
    }
    return is_done;
}

/* With the lock. */
static int post(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    struct ko_link *link;
    int err = ko_group_check(letter->group);

    mailbox->visits++;
    if (!err)
        err = ko_channel_link(&mailbox->channel, letter->peer, &link);
    if (err) {
        if (atomic_load(&letter->group->failed))
            fail_all(mailbox);
        return ko_group_check(letter->group);
    }
    mailbox->nopen++;
    ko_correspondence_enter(&mailbox->with[letter->peer], letter);
    if (begin(mailbox, letter, link))
        fail_all(mailbox);
    if (mailbox->is_driven)
        ko_poller_wake(&mailbox->channel.poller); /* the driver's poll may lack what we began */
    return KOLO_OK;
}

int ko_mailbox_post(struct ko_letter *letter)
{
    struct ko_mailbox *mailbox = mailbox_of(letter->group);
    int err;

    if (!mailbox)
        return KOLO_E_NOMEM;
    pthread_mutex_lock(&mailbox->lock);
    err = post(mailbox, letter);
    if (!err)
        attend(mailbox, letter);
    pthread_mutex_unlock(&mailbox->lock);
    return err;
}

/* A letter like this one that stays until its work goes. */
static int post_copy(struct ko_mailbox *mailbox, const struct ko_letter *letter, kolo_work **work)
{
    struct ko_letter *copy = ko_work_new(sizeof *copy);
    int err;

    if (!copy)
        return KOLO_E_NOMEM;
    *copy = *letter;
    err = post(mailbox, copy);
    if (err) {
        ko_work_release(&copy->work);
        return err;
    }
    attend(mailbox, copy);
    *work = &copy->work;
    return KOLO_OK;
}

int ko_mailbox_start(struct ko_letter *letter, kolo_work **work)
{
    struct ko_mailbox *mailbox = mailbox_of(letter->group);
    int err;

    if (!mailbox)
        return KOLO_E_NOMEM;
    pthread_mutex_lock(&mailbox->lock);
    err = ko_group_check(letter->group);
    if (!err && pass(mailbox, letter))
        *work = ko_work_already_done();
    else if (!err)
        err = post_copy(mailbox, letter, work);
    pthread_mutex_unlock(&mailbox->lock);
    return err;
}

int ko_mailbox_exchange(struct ko_letter *letters, size_t nletters, size_t *nposted)
{
    struct ko_mailbox *mailbox = mailbox_of(letters->group);
    int err = KOLO_OK;

    *nposted = 0;
    if (!mailbox)
        return KOLO_E_NOMEM;
    pthread_mutex_lock(&mailbox->lock);
    for (size_t i = 0; i < nletters && !err; i++) {
        err = ko_group_check(letters->group);
        if (!err && (nletters > 1 || !pass_soon(mailbox, &letters[i])))
            err = post(mailbox, &letters[i]);
        *nposted += !err;
    }
    for (size_t i = 0; i < *nposted; i++)
        await(mailbox, &letters[i], NULL);
    pthread_mutex_unlock(&mailbox->lock);
    return err;
}

void ko_mailbox_answer(kolo_group *group)
{
    struct ko_hello hellos[16];
    int n = ko_endpoint_unclaimed(group->endpoint, group->id, KO_CHANNEL_P2P, hellos, 16);
    struct ko_mailbox *mailbox = n ? mailbox_of(group) : NULL;
    struct ko_link *link;

    if (!mailbox || pthread_mutex_trylock(&mailbox->lock))
        return; /* whoever holds the lock drives the channel */
    for (int i = 0; i < n; i++)
        if (hellos[i].from >= 0 && hellos[i].from < group->size &&
            !ko_channel_link(&mailbox->channel, hellos[i].from, &link))
            (void)ko_channel_turn(&mailbox->channel);
    pthread_mutex_unlock(&mailbox->lock);
}

/* ---- end --------------------------------------------------------------------------------- */

bool ko_mailbox_is_busy(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);
    bool is_busy;

    if (!mailbox)
        return false;
    pthread_mutex_lock(&mailbox->lock);
    is_busy = mailbox->nopen > 0;
    pthread_mutex_unlock(&mailbox->lock);
    return is_busy;
}

void ko_mailbox_free(kolo_group *group)
{
    struct ko_mailbox *mailbox = existing(group);

    if (!mailbox)
        return;
    pthread_mutex_lock(&mailbox->lock);
    mailbox->is_stopping = true;
    if (atomic_load(&group->failed))
        fail_all(mailbox);
    pthread_cond_broadcast(&mailbox->changed);
    pthread_cond_signal(&mailbox->for_courier);
    ko_poller_wake(&mailbox->channel.poller);
    pthread_mutex_unlock(&mailbox->lock);
    if (mailbox->has_courier)
        pthread_join(mailbox->courier, NULL);
    for (int i = 0; i < group->size; i++)
        ko_correspondence_clear(&mailbox->with[i]);
    ko_channel_close(&mailbox->channel);
    pthread_cond_destroy(&mailbox->changed);
    pthread_cond_destroy(&mailbox->for_courier);
    pthread_mutex_destroy(&mailbox->lock);
    free(mailbox->with);
    free(mailbox);
    atomic_store(&group->mailbox, NULL);
}
