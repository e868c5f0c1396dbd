/* SPDX-License-Identifier: MIT
 *
 * One thread at a time drives the channel; other waiters sleep on a condition until the driver has
 * finished something or gives the role up. The driver holds the lock except while it sleeps in the
 * kernel. Letters that need both sides and that nobody waits for are driven by a thread of the
 * library's, the courier, when no user's thread has come for a while: one that posts or waits
 * often moves everything itself, and would only be held up by a second thread.
 */
#include "gpu.h"
#include "log.h"
#include "mailbox_parts.h"
#include "portable.h"

enum { BRIEF_TURNS = 128, COURIER_NAP_MS = 1 };

/* ---- finishing --------------------------------------------------------------------------- */

static void wake_users(struct ko_mailbox *mailbox)
{
    if (mailbox->nsleepers)
        pthread_cond_broadcast(&mailbox->changed);
}

void ko_mailbox_count_finished(struct ko_mailbox *mailbox, int peer)
{
    struct ko_correspondence *with = &mailbox->with[peer];

    if (!with->nfinished)
        return;
    mailbox->nopen -= with->nfinished;
    with->nfinished = 0;
    wake_users(mailbox);
}

void ko_mailbox_fail_all(struct ko_mailbox *mailbox)
{
    int status;

    ko_channel_tell_failure(&mailbox->channel);
    status = ko_group_check(mailbox->group); /* and the thread's text */
    for (int i = 0; i < mailbox->group->size; i++) {
        ko_correspondence_fail(&mailbox->with[i], status);
        ko_mailbox_count_finished(mailbox, i);
    }
    mailbox->nopen -= ko_desk_fail(&mailbox->desk, status);
    wake_users(mailbox);
}

/* ---- driving ----------------------------------------------------------------------------- */

/* A peer that has freed its group, while something is still wanted of it: that it could not take a
 * message may be why. */
static int fail_left(struct ko_mailbox *mailbox, int peer)
{
    int err = ko_correspondence_refused(&mailbox->with[peer]);

    return ko_channel_link_failed(&mailbox->channel, peer, err ? err : KOLO_E_PEER_LOST);
}

/* The end of a peer that has freed its group matters to what we still want of it, unless it may be
 * among what the peer has left us. */
static int check_bye(struct ko_mailbox *mailbox, int peer)
{
    return mailbox->with[peer].is_drained && ko_correspondence_wants(&mailbox->with[peer])
               ? fail_left(mailbox, peer)
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

/* Until nothing moves. A link to oneself has no other end that would wake us when there is room
 * again; and there may be slices behind what the peer tells. */
static int drive_link(struct ko_mailbox *mailbox, int peer, struct ko_link *link,
                      const struct ko_letter *wanted)
{
    struct ko_correspondence *with = &mailbox->with[peer];
    uint64_t received, noticed;
    bool is_moving;
    int err;

    do {
        received = link->received;
        noticed = link->noticed;
        with->has_left = mailbox->channel.ports[peer].has_left;
        err = ko_correspondence_drive(with, link, wanted);
        if (!err && (with->has_more || link->has_notice)) {
            err = ko_channel_listen(&mailbox->channel, peer);
            with->listened = link->sent;
        }
        if (mailbox->channel.ports[peer].has_left)
            with->asking = 0;
        is_moving = with->has_more || link->noticed != noticed ||
                    (peer == mailbox->group->rank && link->received != received);
    } while (!err && is_moving);
    return err;
}

/* An error in what moves to and from a peer. */
static int fail(struct ko_mailbox *mailbox, int peer, int err)
{
    return mailbox->with[peer].gpu_has_failed
               ? ko_group_fail(mailbox->group, err, kolo_last_error())
               : ko_channel_link_failed(&mailbox->channel, peer, err);
}

int ko_mailbox_drive_peer(struct ko_mailbox *mailbox, int peer, const struct ko_letter *wanted)
{
    struct ko_correspondence *with = &mailbox->with[peer];
    const bool had_left = mailbox->channel.ports[peer].has_left;
    struct ko_link *link = mailbox->channel.ports[peer].link;
    char text[KO_ERROR_TEXT];
    int err;

    if (!link)
        return KOLO_OK;
    ko_error_keep(text);
    err = push_held(mailbox, peer, link);
    if (err)
        return ko_channel_link_failed(&mailbox->channel, peer, err);
    err = drive_link(mailbox, peer, link, wanted);
    ko_mailbox_count_finished(mailbox, peer);
    if (ko_group_check(mailbox->group))
        return ko_group_check(mailbox->group);
    if (err == KOLO_E_PEER_LOST && ko_channel_may_lose(&mailbox->channel, peer)) {
        if (ko_correspondence_wants(with))
            return fail_left(mailbox, peer);
        ko_notes_drop(with);
        return ko_fail_again(KOLO_OK, text); /* its end matters to nobody here */
    }
    if (err)
        return fail(mailbox, peer, err);
    if (!had_left)
        return KOLO_OK;
    ko_notes_drop(with);
    return check_bye(mailbox, peer);
}

/* True if a receive takes any rank, and there is none any more: all others have left. */
static bool is_in_vain(const struct ko_mailbox *mailbox)
{
    const kolo_group *group = mailbox->group;
    bool is_in_vain = group->size > 1 && mailbox->desk.anyone.first;

    for (int i = 0; i < group->size && is_in_vain; i++)
        is_in_vain = i == group->rank || mailbox->channel.ports[i].has_left;
    return is_in_vain;
}

/* They had left before we took in what they had sent, unless that stays in the links. Only a user
 * who waits does so in vain: before that, this rank may still send to itself. */
static int check_all_gone(struct ko_mailbox *mailbox, const struct ko_letter *wanted)
{
    if (!wanted || wanted->peer >= 0 || atomic_load(&wanted->work.is_done) || !is_in_vain(mailbox))
        return KOLO_OK;
    return ko_mailbox_fail_alone(mailbox, wanted);
}

int ko_mailbox_drive(struct ko_mailbox *mailbox, const struct ko_letter *wanted)
{
    const bool were_gone = is_in_vain(mailbox);
    int peer = mailbox->first;
    int err = ko_group_check(mailbox->group);

    mailbox->first = peer + 1 < mailbox->group->size ? peer + 1 : 0; /* none is always the last */
    for (int i = 0; i < mailbox->group->size && !err; i++) {
        err = ko_mailbox_drive_peer(mailbox, peer, wanted);
        peer = peer + 1 < mailbox->group->size ? peer + 1 : 0;
    }
    if (!err && were_gone)
        err = check_all_gone(mailbox, wanted);
    if (err)
        ko_mailbox_fail_all(mailbox);
    return err;
}

/* A message comes by a copy, or waits for a stream, whose end wakes nobody. */
static bool is_fetching(const struct ko_mailbox *mailbox)
{
    bool is = false;

    for (int i = 0; i < mailbox->group->size && !is; i++)
        is = mailbox->with[i].fetches || mailbox->with[i].awaits_stream ||
             mailbox->with[i].copying_ns[0] || mailbox->with[i].copying_ns[1];
    return is;
}

/* Such as take less than a nap: they are looked at again at once, but not for long. */
static bool is_copying(const struct ko_mailbox *mailbox)
{
    const int64_t since_ns = ko_now_ns() - INT64_C(1000000);
    bool is = false;

    for (int i = 0; i < mailbox->group->size && !is; i++)
        is = mailbox->with[i].copying_ns[0] > since_ns || mailbox->with[i].copying_ns[1] > since_ns;
    return is;
}

static int nap_ms(const struct ko_mailbox *mailbox, const struct ko_wait *wait)
{
    if (is_fetching(mailbox))
        return is_copying(mailbox) ? 0 : 1;
    return ko_channel_nap_ms(&mailbox->channel, wait->deadline);
}

/* One round of the driver: moves what it can, or waits a turn, at most until the deadline. Holds
 * the lock but for the sleep. */
static void drive_or_sleep(struct ko_mailbox *mailbox, struct ko_wait *wait,
                           const ko_deadline *deadline)
{
    struct ko_event events[16];
    int most_ms, left_ms = ko_deadline_left_ms(deadline);
    int n;

    if (!ko_channel_may_sleep(&mailbox->channel, wait)) {
        if (ko_channel_wait_awake(&mailbox->channel, wait))
            ko_mailbox_fail_all(mailbox);
        return;
    }
    if (ko_channel_poll(&mailbox->channel)) {
        ko_mailbox_fail_all(mailbox);
        return;
    }
    most_ms = nap_ms(mailbox, wait);
    ko_biased_lock_give(&mailbox->lock);
    n = ko_channel_sleep(&mailbox->channel, left_ms < most_ms ? left_ms : most_ms, events, 16);
    ko_biased_lock_take(&mailbox->lock);
    if (n > 0)
        wait->spin_until_ns = 0; /* something is coming: more of it may be near */
    if (ko_channel_woken(&mailbox->channel, events, n) ||
        ko_channel_look_around(&mailbox->channel, wait))
        ko_mailbox_fail_all(mailbox);
}

/* One who asks again and again without waiting must hear, now and then, what sleepers hear. */
static int look_in_passing(struct ko_mailbox *mailbox)
{
    enum { LOOKS = 64 };

    return mailbox->channel.nopening || ++mailbox->looks % LOOKS == 0
               ? ko_channel_visit(&mailbox->channel)
               : KOLO_OK;
}

/* A GPU that fails wakes nobody, nor does what others do with their part of a message tell of it:
 * who waits for one of its memory's asks it now and then. */
static void ask_gpu(struct ko_mailbox *mailbox, const struct ko_letter *letter)
{
    enum { ASK_NS = 50000000 };
    const bool is_on_gpu =
        letter->placed || letter->relay; /* no work is: it is not one of several */
    const int64_t now_ns = is_on_gpu ? ko_now_ns() : 0;
    int err;

    if (!is_on_gpu || atomic_load(&letter->work.is_done) || now_ns - mailbox->asked_ns < ASK_NS)
        return;
    mailbox->asked_ns = now_ns;
    err = ko_group_check(mailbox->group) ? KOLO_OK : ko_gpu_check(mailbox->group->gpu);
    if (!err)
        return;
    (void)ko_group_fail(mailbox->group, err, kolo_last_error());
    ko_mailbox_fail_all(mailbox);
}

static void drive_until_over(struct ko_mailbox *mailbox, struct ko_letter *letter,
                             const struct ko_works *others, const ko_deadline *deadline,
                             const ko_deadline *limit)
{
    struct ko_letter_wait waiting = {
        .wait = {.deadline = limit,
                 .peer = letter->peer,
                 .is_for_slice = !letter->is_send,
                 .message = letter->is_send ? KO_WAITS_TO_SEND : KO_WAITS_FOR_MESSAGE,
                 .tag = letter->tag,
                 .describe = ko_mailbox_describe_wait},
        .mailbox = mailbox,
        .letter = letter,
        .others = others};
    struct ko_wait *wait = &waiting.wait;

    mailbox->is_driven = true;
    while (!ko_work_is_over(&letter->work, others) && !ko_mailbox_drive(mailbox, letter)) {
        if (ko_work_is_over(&letter->work, others))
            break;
        if (ko_deadline_passed(deadline)) { /* perhaps before there was a sleep that would tell */
            if (ko_deadline_passed(limit) ? ko_channel_look_around(&mailbox->channel, wait)
                                          : look_in_passing(mailbox))
                ko_mailbox_fail_all(mailbox);
            break;
        }
        drive_or_sleep(mailbox, wait, deadline);
        ask_gpu(mailbox, letter);
    }
    if (wait->has_left_word)
        ko_channel_take_back(&mailbox->channel);
    mailbox->is_driven = false;
    wake_users(mailbox);
}

/* Another thread drives; until it has changed something, but not for long. */
static void wait_for_driver(struct ko_mailbox *mailbox, const ko_deadline *deadline,
                            const struct ko_letter *letter)
{
    ko_deadline soon = ko_deadline_within(deadline, 100);
    struct timespec until = ko_deadline_timespec(&soon);

    mailbox->nsleepers++;
    ko_biased_lock_wait(&mailbox->lock, &mailbox->changed, &until);
    mailbox->nsleepers--;
    ask_gpu(mailbox, letter);
}

/* Most messages come within microseconds: looks for them without asking for the time, or for what
 * other peers may want. */
static bool drive_briefly(struct ko_mailbox *mailbox, struct ko_letter *letter,
                          const struct ko_works *others)
{
    const bool is_of_one = letter->peer >= 0 && !others;

    if (is_of_one)
        ko_channel_watch_closely(&mailbox->channel, letter->peer);
    for (int turn = 0; turn < BRIEF_TURNS && !ko_work_is_over(&letter->work, others); turn++) {
        if (is_of_one ? ko_mailbox_drive_peer(mailbox, letter->peer, letter)
                      : ko_mailbox_drive(mailbox, letter)) {
            ko_mailbox_fail_all(mailbox);
            break;
        }
        if (!ko_work_is_over(&letter->work, others))
            ko_pause();
    }
    return ko_work_is_over(&letter->work, others);
}

/* To ko_mailbox_free, with the lock: the mailbox may go as soon as that has been given away. */
static void tell_that_one_left(struct ko_mailbox *mailbox)
{
    ko_biased_lock_settle(&mailbox->lock);
    pthread_cond_broadcast(&mailbox->for_courier);
}

/* The slow part of await, with the lock. */
static void await_long(struct ko_mailbox *mailbox, struct ko_letter *letter,
                       const struct ko_works *others, const ko_deadline *wanted)
{
    ko_deadline limit = ko_deadline_in(kolo_group_timeout(letter->group));
    const ko_deadline *deadline = wanted ? wanted : &limit;

    mailbox->nusers++;
    if (mailbox->is_driven)
        ko_channel_wake(&mailbox->channel); /* the courier makes way */
    do {
        if (!mailbox->is_driven)
            drive_until_over(mailbox, letter, others, deadline, &limit);
        else
            wait_for_driver(mailbox, deadline, letter);
    } while (!ko_work_is_over(&letter->work, others) && !(wanted && ko_deadline_passed(wanted)));
    mailbox->nusers--;
    if (mailbox->is_stopping)
        tell_that_one_left(mailbox);
}

/* ---- courier ----------------------------------------------------------------------------- */

/* Letters that are not done, or what peers are still to be told of those that are. */
static bool has_work(const struct ko_mailbox *mailbox)
{
    return (mailbox->nopen || mailbox->desk.nnotes) && !mailbox->is_stopping;
}

static void drive_for_nobody(struct ko_mailbox *mailbox)
{
    ko_deadline limit = ko_deadline_in(kolo_group_timeout(mailbox->group));
    struct ko_wait wait = {.deadline = &limit, .peer = -1, .what = "for messages of"};
    const struct ko_letter all = {.group = NULL}; /* never done: any letter may be behind others */

    mailbox->is_driven = true;
    while (has_work(mailbox) && !mailbox->nusers && !ko_mailbox_drive(mailbox, &all) &&
           has_work(mailbox)) {
        if (!mailbox->nopen) /* no letter of ours waits for what is to be told */
            limit = ko_deadline_in(kolo_group_timeout(mailbox->group));
        drive_or_sleep(mailbox, &wait, &limit);
    }
    mailbox->is_driven = false;
    wake_users(mailbox);
}

/* Sleeps for a while; true if no user has come meanwhile, or is there. */
static bool nobody_comes(struct ko_mailbox *mailbox)
{
    const uint64_t visits = mailbox->visits;
    ko_deadline soon = ko_deadline_in(COURIER_NAP_MS);
    struct timespec until = ko_deadline_timespec(&soon);

    ko_biased_lock_wait(&mailbox->lock, &mailbox->for_courier, &until);
    return visits == mailbox->visits && !mailbox->nusers && !mailbox->is_driven;
}

static void carry(void *argument)
{
    struct ko_mailbox *mailbox = argument;

    ko_log_set_rank(mailbox->group->rank);
    ko_biased_lock_take(&mailbox->lock);
    while (has_work(mailbox)) {
        if (nobody_comes(mailbox) && !mailbox->is_stopping)
            drive_for_nobody(mailbox);
    }
    mailbox->has_courier = false;
    tell_that_one_left(mailbox);
    ko_biased_lock_give(&mailbox->lock);
}

/* Without it letters get on when their owner waits, so a failure to start it is only worth a
 * warning. */
static void start_courier(struct ko_mailbox *mailbox)
{
    mailbox->has_courier = !ko_crew_run(&mailbox->group->endpoint->crew, carry, mailbox,
                                        "a thread for messages in the background");
    if (!mailbox->has_courier)
        ko_log(KO_LOG_WARN, "%s", kolo_last_error());
}

/* What fits into the slots arrives without us, unless it is to be fetched. */
static bool needs_us(const struct ko_letter *letter)
{
    const struct ko_contact *own = &letter->group->endpoint->own;
    const bool fits = letter->nbytes <= (size_t)own->slots * own->slice_bytes;

    return !atomic_load(&letter->work.is_done) &&
           (!fits || letter->is_send || atomic_load(&letter->group->places));
}

void ko_mailbox_attend(struct ko_mailbox *mailbox, const struct ko_letter *letter)
{
    if ((mailbox->desk.nnotes || needs_us(letter)) && !mailbox->has_courier)
        start_courier(mailbox);
}

/* ---- waiting for a letter ------------------------------------------------------------------ */

/* Of several, a receive from any rank if there is one: only who waits for it hears that there is no
 * other rank any more. */
static struct ko_letter *choose(struct ko_letter *letter, const struct ko_works *others)
{
    struct ko_letter *chosen = letter;

    for (size_t i = 0; i < others->n && chosen->peer >= 0; i++) {
        kolo_work *work = others->list[i];

        if (work && work->place == letter->work.place && !atomic_load(&work->is_done))
            chosen = (struct ko_letter *)work;
    }
    return chosen->peer < 0 ? chosen : letter;
}

void ko_mailbox_await_locked(struct ko_mailbox *mailbox, struct ko_letter *letter,
                             const ko_deadline *deadline, const struct ko_works *others)
{
    if (ko_work_is_over(&letter->work, others))
        return;
    mailbox->visits++;
    if (others)
        letter = choose(letter, others);
    if (mailbox->is_driven || mailbox->channel.is_crowded ||
        !drive_briefly(mailbox, letter, others))
        await_long(mailbox, letter, others, deadline);
    if (mailbox->desk.nnotes)
        ko_mailbox_attend(mailbox, letter);
}
