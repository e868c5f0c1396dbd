/* SPDX-License-Identifier: MIT
 *
 * A message that can go, or has come, passes between the caller's buffer and the link at once; for
 * any other there is a letter, which is entered with its peer and driven (mailbox_drive.c).
 */
#include "config.h"
#include "group_idle.h"
#include "mailbox_parts.h"
#include "portable.h"
#include "thread.h"

#include <stdlib.h>

enum {
    BURST_MESSAGES = 3,   /* so many are sent at once before others are held */
    BURST_GAP_NS = 10000, /* between two of a burst */
    ANSWER_NS = 500000000 /* for one who is at it */
};

/* ---- making ------------------------------------------------------------------------------ */

static int prepare_desk(struct ko_mailbox *mailbox)
{
    struct ko_desk *desk = &mailbox->desk;
    int64_t eager, most;
    int err = ko_config_number(KO_CONFIG_EAGER_BYTES, &eager);

    if (!err)
        err = ko_config_number(KO_CONFIG_UNEXPECTED_BYTES, &most);
    if (err)
        return err;
    desk->rank = mailbox->group->rank;
    desk->eager_bytes = (size_t)eager;
    desk->most_bytes = (size_t)most;
    for (int i = 0; i < mailbox->group->size; i++) {
        mailbox->with[i].desk = desk;
        mailbox->with[i].peer = i;
    }
    return KOLO_OK;
}

static struct ko_mailbox *make(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_alloc(sizeof *mailbox, "a mailbox");

    if (!mailbox)
        return NULL;
    mailbox->group = group;
    mailbox->burst_peer = -1;
    atomic_init(&mailbox->held, -1);
    ko_biased_lock_init(&mailbox->lock);
    ko_condition_init(&mailbox->changed);
    ko_condition_init(&mailbox->for_courier);
    mailbox->with = ko_alloc((size_t)group->size * sizeof *mailbox->with, "correspondences");
    if (mailbox->with && !prepare_desk(mailbox) &&
        !ko_channel_open(&mailbox->channel, group, KO_CHANNEL_P2P))
        return mailbox;
    ko_channel_close(&mailbox->channel);
    pthread_cond_destroy(&mailbox->changed);
    pthread_cond_destroy(&mailbox->for_courier);
    ko_biased_lock_destroy(&mailbox->lock);
    free(mailbox->with);
    free(mailbox);
    return NULL;
}

/* The group's mailbox, made if need be; NULL after ko_fail. */
static struct ko_mailbox *mailbox_of(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    if (mailbox)
        return mailbox;
    pthread_mutex_lock(&group->lock);
    mailbox = ko_mailbox_existing(group);
    if (!mailbox) {
        mailbox = make(group);
        atomic_store(&group->mailbox, mailbox);
    }
    pthread_mutex_unlock(&group->lock);
    return mailbox;
}

void ko_mailbox_tell_failure(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    if (!mailbox)
        return;
    ko_biased_lock_take(&mailbox->lock);
    ko_channel_tell_failure(&mailbox->channel);
    ko_biased_lock_give(&mailbox->lock);
}

bool ko_mailbox_try_tell_failure(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    if (!mailbox)
        return true;
    ko_channel_wake(&mailbox->channel);
    if (!ko_biased_lock_try(&mailbox->lock))
        return false;
    ko_channel_tell_failure(&mailbox->channel);
    ko_biased_lock_give(&mailbox->lock);
    return true;
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
        err = ko_mailbox_drive_peer(mailbox, held, NULL);
    if (held >= 0)
        atomic_store(&mailbox->held, -1); /* it goes with this one, or stays held with it */
    if (!err)
        err = ko_mailbox_drive_peer(mailbox, letter->peer, NULL);
    if (link->may_hold)
        atomic_store(&mailbox->held, letter->peer);
    link->may_hold = false;
    return err;
}

void ko_mailbox_push(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    int held = mailbox ? atomic_load(&mailbox->held) : -1;

    if (held < 0)
        return;
    ko_biased_lock_take(&mailbox->lock);
    held = atomic_load(&mailbox->held);
    if (held >= 0 && !ko_group_check(group) && ko_mailbox_drive_peer(mailbox, held, NULL))
        ko_mailbox_fail_all(mailbox);
    ko_biased_lock_give(&mailbox->lock);
}

/* The link to the letter's peer; for one that takes any rank, begins to open those to all. */
static int open_links(struct ko_mailbox *mailbox, const struct ko_letter *letter,
                      struct ko_link **link)
{
    int err = KOLO_OK;

    *link = NULL;
    if (letter->peer >= 0)
        err = ko_channel_link(&mailbox->channel, letter->peer, link);
    else if (!mailbox->is_open_to_all)
        err = ko_channel_link_all(&mailbox->channel);
    mailbox->is_open_to_all |= letter->peer < 0;
    if (err && atomic_load(&letter->group->failed))
        ko_mailbox_fail_all(mailbox);
    return err ? ko_group_check(letter->group) : KOLO_OK;
}

/* A letter that cannot be entered ends the group: its peer, or what was posted before it in one
 * batch, would wait in vain. */
static int enter(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    const bool is_any = letter->peer < 0;
    int err = ko_correspondence_enter(&mailbox->with[is_any ? 0 : letter->peer],
                                      is_any ? mailbox->group->size : 1, letter);

    mailbox->nopen += !err;
    if (!err)
        return KOLO_OK;
    (void)ko_group_fail(mailbox->group, err, kolo_last_error());
    ko_mailbox_fail_all(mailbox);
    return ko_group_check(mailbox->group);
}

/* With the lock, in a group that had not failed. */
static int post(struct ko_mailbox *mailbox, struct ko_letter *letter)
{
    struct ko_link *link;
    int err;

    mailbox->visits++;
    err = open_links(mailbox, letter, &link);
    if (!err)
        err = enter(mailbox, letter);
    if (err)
        return err;
    if (!link)
        (void)ko_mailbox_drive(mailbox, NULL);
    else if (begin(mailbox, letter, link))
        ko_mailbox_fail_all(mailbox);
    if (mailbox->is_driven)
        ko_channel_wake(&mailbox->channel); /* the driver's poll may lack what we began */
    return KOLO_OK;
}

int ko_mailbox_post(struct ko_letter *letter)
{
    struct ko_mailbox *mailbox = mailbox_of(letter->group);
    int err;

    if (!mailbox)
        return KOLO_E_NOMEM;
    ko_group_look_at_memory(letter->group);
    ko_biased_lock_take(&mailbox->lock);
    err = ko_group_check(letter->group);
    if (!err)
        err = post(mailbox, letter);
    if (!err)
        ko_mailbox_attend(mailbox, letter);
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

int ko_mailbox_start(const struct ko_letter *letter, kolo_work **work)
{
    struct ko_letter *copy = ko_work_new(sizeof *copy);
    int err;

    if (!copy)
        return KOLO_E_NOMEM;
    *copy = *letter;
    err = ko_mailbox_post(copy);
    if (err)
        ko_work_release(&copy->work);
    else
        *work = &copy->work;
    return err;
}

int ko_mailbox_exchange(struct ko_letter *letters, size_t nletters, size_t *nposted)
{
    struct ko_mailbox *mailbox = mailbox_of(letters->group);
    int err = KOLO_OK;

    *nposted = 0;
    if (!mailbox)
        return KOLO_E_NOMEM;
    ko_biased_lock_take(&mailbox->lock);
    for (size_t i = 0; i < nletters && !err; i++) {
        err = ko_group_check(letters->group);
        if (!err)
            err = post(mailbox, &letters[i]);
        *nposted += !err;
    }
    for (size_t i = 0; i < *nposted; i++)
        if (!atomic_load(&letters[i].work.is_done))
            ko_mailbox_await_locked(mailbox, &letters[i], NULL, NULL);
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

/* What has come before has been found without anything being driven, after which it is counted. */
static void count_found(struct ko_mailbox *mailbox, const struct ko_letter *probe)
{
    const int first = probe->peer < 0 ? 0 : probe->peer;
    const int end = probe->peer < 0 ? mailbox->group->size : first + 1;

    for (int i = first; i < end; i++)
        ko_mailbox_count_finished(mailbox, i);
}

/* Looks for a message, with the lock. What a probe that is done has found stays where it is. */
static int probe_locked(struct ko_mailbox *mailbox, struct ko_letter *probe,
                        const ko_deadline *deadline)
{
    struct ko_link *link;
    int err = ko_group_check(probe->group);

    mailbox->visits++;
    if (!err)
        err = open_links(mailbox, probe, &link);
    if (!err)
        err = enter(mailbox, probe);
    if (err)
        return err;
    count_found(mailbox, probe);
    ko_mailbox_await_locked(mailbox, probe, deadline, NULL);
    if (!atomic_load(&probe->work.is_done)) {
        ko_desk_remove_probe(&mailbox->desk, probe);
        mailbox->nopen--;
    }
    return KOLO_OK;
}

int ko_mailbox_probe(struct ko_letter *probe, const ko_deadline *deadline, bool *found)
{
    struct ko_mailbox *mailbox = mailbox_of(probe->group);
    int err;

    if (!mailbox)
        return KOLO_E_NOMEM;
    ko_biased_lock_take(&mailbox->lock);
    err = probe_locked(mailbox, probe, deadline);
    ko_biased_lock_give(&mailbox->lock);
    *found = !err && atomic_load(&probe->work.is_done) && !probe->work.status;
    return err;
}

int ko_mailbox_hear(struct ko_channel *channel, int peer, const struct ko_notice *notice)
{
    struct ko_mailbox *mailbox =
        channel->number == KO_CHANNEL_P2P ? ko_mailbox_existing(channel->group) : NULL;
    int err;

    if (!mailbox || notice->nbytes)
        err = ko_fail(KOLO_E_PROTOCOL, "it told of a message where there are none");
    else
        err = ko_correspondence_hear(&mailbox->with[peer], channel->ports[peer].link, notice->kind,
                                     &notice->stamp);
    return err ? ko_channel_link_failed(channel, peer, err) : KOLO_OK;
}

/* A refusal is logged (ko_correspondence_clear). Nothing that a peer says fails a rank that leaves.
 */
void ko_mailbox_hear_last(struct ko_channel *channel, int peer, const struct ko_notice *notice)
{
    struct ko_mailbox *mailbox =
        channel->number == KO_CHANNEL_P2P ? ko_mailbox_existing(channel->group) : NULL;

    if (!mailbox)
        return;
    if (notice->kind == KO_FRAME_REFUSE)
        (void)ko_correspondence_hear(&mailbox->with[peer], channel->ports[peer].link, notice->kind,
                                     &notice->stamp);
    if (notice->kind == KO_FRAME_TAKEN || notice->kind == KO_FRAME_BYE)
        mailbox->with[peer].asked = 0;
}

static void answer(kolo_group *group)
{
    struct ko_hello hello;
    int n = ko_endpoint_unclaimed(group->endpoint, group->id, KO_CHANNEL_P2P, &hello, 1);
    struct ko_mailbox *mailbox = n ? mailbox_of(group) : NULL;

    if (!mailbox || !ko_biased_lock_try(&mailbox->lock))
        return; /* whoever holds the lock drives the channel */
    if (ko_channel_answer(&mailbox->channel) || ko_channel_turn(&mailbox->channel))
        ko_mailbox_fail_all(mailbox);
    ko_biased_lock_give(&mailbox->lock);
}

void ko_mailbox_answer_all(struct ko_endpoint *endpoint)
{
    if (!ko_endpoint_has_unclaimed(endpoint, KO_CHANNEL_P2P))
        return;
    pthread_mutex_lock(&endpoint->groups_lock);
    for (kolo_group *group = endpoint->groups; group; group = group->next)
        if (!atomic_load(&group->failed))
            answer(group);
    pthread_mutex_unlock(&endpoint->groups_lock);
}

void ko_mailbox_give_back(kolo_group *group, bool is_any)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    if (!mailbox || !atomic_load(&mailbox->channel.held) || !ko_biased_lock_try(&mailbox->lock))
        return;
    ko_channel_give_back(&mailbox->channel, is_any);
    ko_biased_lock_give(&mailbox->lock);
}

void ko_mailbox_await(struct ko_letter *letter, const ko_deadline *deadline,
                      const struct ko_works *others)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(letter->group);

    ko_biased_lock_take(&mailbox->lock);
    ko_mailbox_await_locked(mailbox, letter, deadline, others);
    ko_biased_lock_give(&mailbox->lock);
}

/* ---- end --------------------------------------------------------------------------------- */

void ko_mailbox_silence(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    if (mailbox)
        mailbox->channel.has_told = true;
}

bool ko_mailbox_is_busy(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    bool is_busy;

    if (!mailbox)
        return false;
    ko_biased_lock_take(&mailbox->lock);
    is_busy = mailbox->nopen > 0;
    ko_biased_lock_give(&mailbox->lock);
    return is_busy;
}

/* Whether a peer may be about to answer a message that has asked: over TCP its word to one who has
 * gone would cost what it has not taken in yet. */
static bool may_be_answered(const struct ko_mailbox *mailbox, int peer)
{
    return mailbox->with[peer].asked && peer != mailbox->group->rank &&
           ko_now_ns() - mailbox->parting_ns < ANSWER_NS;
}

/* Hears a peer for the last time, before anything is told to it, which would cost what one who has
 * left has still sent, and tells it what it still has to hear of its messages. False: not all yet,
 * or it is to be heard again. */
static bool part_from(struct ko_mailbox *mailbox, int peer)
{
    struct ko_link *link = mailbox->channel.ports[peer].link;
    const bool may_say_more = ko_channel_hear_last(&mailbox->channel, peer) == KO_AGAIN;

    return !(may_say_more && may_be_answered(mailbox, peer)) &&
           ko_correspondence_part(&mailbox->with[peer], link);
}

/* A rank that has not been parted from, or -1. */
static int part_from_all(struct ko_mailbox *mailbox)
{
    int late = -1;

    for (int i = 0; i < mailbox->group->size; i++)
        if (mailbox->channel.ports[i].is_open && !part_from(mailbox, i))
            late = i;
    return late;
}

int ko_mailbox_part(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    int late;

    if (!mailbox)
        return -1;
    ko_biased_lock_take(&mailbox->lock);
    if (!mailbox->parting_ns)
        mailbox->parting_ns = ko_now_ns();
    late = part_from_all(mailbox);
    if (late < 0)
        late = ko_channel_part(&mailbox->channel);
    ko_biased_lock_give(&mailbox->lock);
    return late;
}

void ko_mailbox_free(kolo_group *group)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);

    if (!mailbox)
        return;
    ko_biased_lock_take(&mailbox->lock);
    mailbox->is_stopping = true;
    if (atomic_load(&group->failed))
        ko_mailbox_fail_all(mailbox);
    pthread_cond_broadcast(&mailbox->changed);
    pthread_cond_signal(&mailbox->for_courier);
    ko_channel_wake(&mailbox->channel);
    while (mailbox->has_courier || mailbox->nusers)
        ko_biased_lock_wait(&mailbox->lock, &mailbox->for_courier, NULL);
    ko_biased_lock_give(&mailbox->lock);
    for (int i = 0; i < group->size; i++)
        ko_correspondence_clear(&mailbox->with[i]);
    ko_channel_close(&mailbox->channel);
    pthread_cond_destroy(&mailbox->changed);
    pthread_cond_destroy(&mailbox->for_courier);
    ko_biased_lock_destroy(&mailbox->lock);
    free(mailbox->with);
    free(mailbox);
    atomic_store(&group->mailbox, NULL);
}
