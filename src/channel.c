/* SPDX-License-Identifier: MIT
 *
 * Waiting has three stages. Spinning: the caller looks again at once, and we only keep what is on
 * its way out moving. Arming: the links' sleep flags are set, and the caller looks once more.
 * Sleeping: in epoll, over every link's fd, the endpoint's arrivals and the wakes of other threads;
 * at most NAP_MS at a time, since rarer things are looked after between two naps.
 */
#include "channel_parts.h"

#include "config.h"
#include "fence.h"
#include "group.h"
#include "portable.h"
#include "status.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAP_MS = 250,
    OPENING_NAP_MS = 5, /* a wire being opened may have no fd to wait on */
    ASK_MS = 200,       /* a wait of this length asks the peer whether it makes the same call, */
    LOST_MS = 2000      /* and of this one in a call the store, whether one of its ranks is lost */
};

int ko_channel_open(struct ko_channel *channel, kolo_group *group, uint32_t number)
{
    int64_t spin_us;
    int err;

    channel->group = group;
    channel->number = number;
    atomic_init(&channel->pooled, NULL);
    err = ko_config_number(KO_CONFIG_SPIN_US, &spin_us);
    if (err)
        return err;
    channel->spin_us = (int)spin_us;
    channel->is_crowded = ko_group_is_crowded(group, NULL);
    channel->ports = ko_alloc((size_t)group->size * sizeof *channel->ports, "the ports of a group");
    return channel->ports ? KOLO_OK : KOLO_E_NOMEM;
}

void ko_channel_unpoll(struct ko_channel *channel, struct ko_port *port)
{
    if (port->polled_fd >= 0)
        ko_pool_remove(&channel->group->endpoint->pollers, channel, channel->pooled,
                       port->polled_fd);
    port->polled_fd = -1;
}

/* A rank that only sends in a call does not learn there that others take it for another one: what
 * they have sent lies unread. */
static int check_unread(struct ko_channel *channel)
{
    const struct ko_frame *frame;
    int err = KOLO_OK;

    for (int i = 0; channel->ports && i < channel->group->size && !err; i++)
        if (channel->ports[i].is_open &&
            !channel->ports[i].link->ops->next(channel->ports[i].link, &frame))
            err = ko_channel_hear_waiting(channel, &channel->ports[i], &frame->stamp);
    return err;
}

int ko_channel_hear_last(struct ko_channel *channel, int peer)
{
    struct ko_link *link = channel->ports[peer].link;
    struct ko_notice notice;
    int err;

    do {
        err = link->posts ? ko_link_discard(link, &notice) : ko_link_hear(link, &notice);
        if (!err)
            ko_mailbox_hear_last(channel, peer, &notice);
    } while (!err);
    return err;
}

int ko_channel_part(struct ko_channel *channel)
{
    int late = -1;

    if (channel->number == KO_CHANNEL_COLLECTIVES && !channel->is_parting && check_unread(channel))
        return -1;
    if (!channel->is_parting)
        ko_channel_finish_answered(channel);
    for (int i = 0; channel->ports && i < channel->group->size; i++) {
        const struct ko_port *port = &channel->ports[i];

        if (!port->is_open)
            continue;
        if (!channel->is_parting)
            (void)ko_link_tell(port->link, KO_FRAME_BYE, NULL, NULL, 0);
        if (port->link->posts)
            (void)ko_channel_hear_last(channel, i);
        if (ko_link_deliver(port->link) == KO_AGAIN)
            late = i;
    }
    channel->is_parting = true;
    return late;
}

static void close_port(struct ko_channel *channel, struct ko_port *port)
{
    if (!port->link)
        return;
    ko_channel_unpoll(channel, port);
    if (port->opening)
        port->opening->transport->hangup(port->opening);
    ko_link_free(port->link);
}

void ko_channel_close(struct ko_channel *channel)
{
    if (!channel->group)
        return;
    for (int i = 0; channel->ports && i < channel->group->size; i++)
        close_port(channel, &channel->ports[i]);
    free(channel->ports);
    ko_pool_give_back(&channel->group->endpoint->pollers, channel, channel->pooled);
    channel->group = NULL;
}

void ko_channel_give_back(struct ko_channel *channel, bool is_any)
{
    const int n = channel->ports ? channel->group->size : 0;
    uint64_t sent = 0;

    for (int i = 0; i < n; i++)
        sent += channel->ports[i].is_open ? channel->ports[i].link->sent : 0;
    for (int i = 0; i < n && (is_any || sent == channel->sent_seen); i++)
        if (channel->ports[i].is_open)
            ko_link_give_back(channel->ports[i].link);
    channel->sent_seen = sent;
}

/* ---- what peers tell ----------------------------------------------------------------------- */

static int hear_failure(struct ko_channel *channel, int peer, const struct ko_notice *notice)
{
    struct ko_failure failure;

    if (notice->nbytes != sizeof failure)
        return ko_channel_link_failed(
            channel, peer,
            ko_fail(KOLO_E_PROTOCOL, "it told of a failure in %u bytes", notice->nbytes));
    memcpy(&failure, notice->body, sizeof failure);
    failure.text[sizeof failure.text - 1] = 0;
    return ko_group_fail(channel->group, ko_failure_status(&failure), failure.text);
}

static int hear(struct ko_channel *channel, struct ko_port *port)
{
    char text[KO_ERROR_TEXT]; /* which the end of one who matters to nobody is not to replace */
    struct ko_notice notice;
    int err;

    ko_error_keep(text);
    for (;;) {
        const uint64_t noticed = port->link->noticed;

        err = ko_link_hear(port->link, &notice);
        channel->heard += port->link->noticed - noticed;
        if (err == KO_AGAIN)
            return KOLO_OK;
        if (err == KOLO_E_PEER_LOST && ko_channel_may_lose(channel, port->link->peer)) {
            ko_channel_unpoll(channel,
                              port); /* matters only to whoever still wants something of it */
            port->polled_fd = port->link->wire->fd;
            return ko_fail_again(KOLO_OK, text);
        }
        if (err)
            return ko_channel_link_failed(channel, port->link->peer, err);
        if (notice.kind == KO_FRAME_BYE)
            port->has_left = true;
        else if (notice.kind == KO_FRAME_WAITING)
            err = ko_channel_hear_waiting(channel, port, &notice.stamp);
        else if (notice.kind == KO_FRAME_FAIL)
            err = hear_failure(channel, port->link->peer, &notice);
        else
            err = ko_mailbox_hear(channel, port->link->peer, &notice);
        if (err)
            return err;
    }
}

/* ---- driving ------------------------------------------------------------------------------- */

static int drive_port(struct ko_channel *channel, struct ko_port *port)
{
    int err;

    if (!port->is_open)
        return ko_channel_drive_opening(channel, port);
    err = port->link->wire->transport->drive(port->link->wire);
    if (err)
        return ko_channel_link_failed(channel, port->link->peer, err);
    return hear(channel, port);
}

int ko_channel_turn(struct ko_channel *channel)
{
    int err = ko_group_check(channel->group);

    for (int i = 0; i < channel->group->size && !err; i++)
        if (channel->ports[i].link)
            err = drive_port(channel, &channel->ports[i]);
    return err;
}

int ko_channel_listen(struct ko_channel *channel, int peer)
{
    return drive_port(channel, &channel->ports[peer]);
}

int ko_channel_visit(struct ko_channel *channel)
{
    int err;

    ko_endpoint_accept(channel->group->endpoint);
    err = ko_channel_turn(channel);
    return err ? err : ko_channel_answer_arrivals(channel);
}

/* While spinning: only what a look of the caller at its own link would not move. */
static int drive_messages(struct ko_channel *channel)
{
    int err = KOLO_OK;

    for (int i = 0; i < channel->group->size && !err; i++) {
        struct ko_port *port = &channel->ports[i];

        if (port->link && (!port->is_open || port->link->posts || port->link->awaits_memory))
            err = drive_port(channel, port);
    }
    return err;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* What goes wrong in a link on the way is an error of the next look at it, if of any: until then
 * the thread's text is to stay. */
static void arm(struct ko_channel *channel)
{
    char text[KO_ERROR_TEXT];

    ko_error_keep(text);
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open)
            channel->ports[i].link->ops->arm(channel->ports[i].link);
    ko_fence_others();
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open)
            ko_link_take_back(channel->ports[i].link);
    (void)ko_fail_again(KOLO_OK, text);
}

static void disarm(struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open)
            channel->ports[i].link->ops->disarm(channel->ports[i].link);
}

static void leave_poller(struct ko_channel *channel)
{
    ko_pool_leave(&channel->group->endpoint->pollers, channel, channel->pooled);
}

/* Keeps the poller's idea of a port in step with its wire. */
static int poll_port(struct ko_channel *channel, struct ko_port *port)
{
    const struct ko_wire *wire = port->opening ? port->opening : port->link->wire;
    struct ko_pooled *pooled = channel->pooled;
    int err = KOLO_OK;

    if (!wire || wire->fd < 0 || (port->is_muted && port->polled == wire->wanted))
        return KOLO_OK;
    port->is_muted = false;
    if (port->polled_fd != wire->fd) {
        err = ko_poller_add(&pooled->poller, wire->fd, wire->wanted, port->link);
        port->polled_fd = wire->fd;
    } else if (port->polled != wire->wanted) {
        err = ko_poller_change(&pooled->poller, wire->fd, wire->wanted, port->link);
    }
    port->polled = wire->wanted;
    return err;
}

int ko_channel_poll(struct ko_channel *channel)
{
    bool is_new;
    int err = ko_pool_enter(&channel->group->endpoint->pollers, channel, &channel->pooled, &is_new);

    for (int i = 0; i < channel->group->size && !err && is_new; i++)
        channel->ports[i].polled_fd = -1;
    for (int i = 0; i < channel->group->size && !err; i++)
        if (channel->ports[i].link && !channel->ports[i].has_left)
            err = poll_port(channel, &channel->ports[i]);
    if (!err)
        return KOLO_OK;
    leave_poller(channel);
    return ko_group_fail(channel->group, err, kolo_last_error());
}

int ko_channel_sleep(struct ko_channel *channel, int nap_ms, struct ko_event *events, int cap)
{
    struct ko_pooled *pooled = channel->pooled;

    return ko_poller_wait(&pooled->poller, nap_ms, events, cap);
}

void ko_channel_wake(struct ko_channel *channel)
{
    ko_pooled_wake(atomic_load(&channel->pooled));
}

static bool has_notice(const struct ko_port *port)
{
    return port->is_open && port->link->has_notice;
}

/* No wire tells of what has been read from it: who has met a control message does not sleep. */
int ko_channel_nap_ms(const struct ko_channel *channel, const ko_deadline *deadline)
{
    int nap = channel->nopening ? OPENING_NAP_MS : NAP_MS;
    int left = ko_deadline_left_ms(deadline);

    for (int i = 0; i < channel->group->size; i++)
        if (has_notice(&channel->ports[i]))
            return 0;
    return left < nap ? left : nap;
}

/* The poller tells of a peer's end again and again until it has been read, which may have to wait:
 * there may be slices before it that nobody wants yet. Then it is not to tell until that changes.
 */
static int wake_port(struct ko_channel *channel, struct ko_port *port, int happened)
{
    int err = drive_port(channel, port);

    if (err || !(happened & KO_POLL_HUP) || !port->is_open || port->has_left ||
        port->link->wire->wanted & KO_POLL_IN)
        return err;
    ko_channel_unpoll(channel, port);
    port->polled = port->link->wire->wanted;
    port->is_muted = true;
    return KOLO_OK;
}

int ko_channel_woken(struct ko_channel *channel, const struct ko_event *events, int nevents)
{
    bool has_arrivals = !nevents; /* perhaps since before their group was made here */
    int err = nevents < 0
                  ? ko_group_fail(channel->group, KOLO_E_SYSTEM, kolo_last_error())
                  : ko_group_check(channel->group); /* links of a failed one may have gone */

    leave_poller(channel);
    disarm(channel);
    for (int i = 0; i < nevents && !err; i++) {
        struct ko_link *link = events[i].owner;

        if (events[i].owner == channel->group->endpoint)
            ko_endpoint_accept(channel->group->endpoint);
        else if (link)
            err = wake_port(channel, &channel->ports[link->peer], events[i].happened);
        has_arrivals |= !link || events[i].owner == channel->group->endpoint;
    }
    for (int i = 0; i < channel->group->size && !err; i++)
        if (has_notice(&channel->ports[i]))
            err = hear(channel, &channel->ports[i]);
    if (!nevents && !err) /* of very many sleepers not each is told of arrivals */
        ko_endpoint_accept(channel->group->endpoint);
    for (int i = 0; channel->nopening && i < channel->group->size && !err; i++)
        if (channel->ports[i].link && !channel->ports[i].is_open)
            err = ko_channel_drive_opening(channel, &channel->ports[i]);
    if (!err && has_arrivals) /* those that nobody here has asked for yet */
        err = ko_channel_answer_arrivals(channel);
    return err ? err : ko_group_check(channel->group);
}

/* Tells all peers which call this rank is in, and waits in. */
static int ask_peers(struct ko_channel *channel, struct ko_wait *wait)
{
    int err = KOLO_OK;

    wait->has_asked = true;
    for (int i = 0; i < channel->group->size && !err; i++)
        if (channel->ports[i].is_open)
            err = ko_link_tell(channel->ports[i].link, KO_FRAME_WAITING,
                               ko_channel_call(channel, channel->seq), NULL, 0);
    return err ? ko_channel_link_failed(channel, wait->peer, err) : KOLO_OK;
}

/* Once for a collective, or for a user's wait for a message. */
static void leave_word(struct ko_channel *channel, struct ko_wait *wait)
{
    const struct ko_waits_word word = {
        .what = channel->is_in_call ? KO_WAITS_IN_CALL : wait->message,
        .peer = wait->peer,
        .call = channel->is_in_call ? channel->seq : (uint32_t)wait->tag};

    if (!word.what || wait->has_left_word ||
        (channel->is_in_call && channel->told_waiting == channel->seq))
        return;
    wait->has_left_word = true;
    if (channel->is_in_call)
        channel->told_waiting = channel->seq;
    ko_waits_tell(channel->group, &word);
}

void ko_channel_take_back(struct ko_channel *channel)
{
    const struct ko_waits_word none = {.what = KO_WAITS_NOT};

    if (!ko_group_has_failed(channel->group))
        ko_waits_tell(channel->group, &none);
}

/* What no link tells of. */
static int look_elsewhere(struct ko_channel *channel, const struct ko_wait *wait)
{
    int err = ko_group_check_store(channel->group);

    /* A collective needs all ranks; a message only one, which may be on its way to connect. */
    if (!err && (channel->is_in_call || (wait->peer >= 0 && !channel->ports[wait->peer].is_open)))
        err = ko_group_check_server(channel->group, "");
    return err ? err : ko_channel_check_processes(channel, wait->peer);
}

int ko_channel_look_around(struct ko_channel *channel, struct ko_wait *wait)
{
    const int64_t now = ko_now_ns(), waited_ms = (now - wait->began_ns) / 1000000;
    int err = KOLO_OK;

    if (ko_deadline_passed(wait->deadline))
        return ko_channel_timed_out(channel, wait);
    if (waited_ms < ASK_MS)
        return KOLO_OK;
    if (channel->is_in_call && !wait->has_asked)
        err = ask_peers(channel, wait);
    if (!err && waited_ms >= ko_waits_tell_ms(wait->deadline->timeout_ms))
        leave_word(channel, wait);
    if (!err && now - wait->store_checked_ns >= (int64_t)NAP_MS * 1000000) {
        wait->store_checked_ns = now;
        err = look_elsewhere(channel, wait);
        if (!err && channel->is_in_call && waited_ms >= LOST_MS)
            err = ko_channel_check_members(channel);
    }
    return err;
}

static int sleep_once(struct ko_channel *channel, struct ko_wait *wait)
{
    struct ko_event events[16];
    int n;
    int err = ko_channel_poll(channel);

    if (err)
        return err;
    n = ko_channel_sleep(channel, ko_channel_nap_ms(channel, wait->deadline), events, 16);
    err = ko_channel_woken(channel, events, n);
    return err ? err : ko_channel_look_around(channel, wait);
}

void ko_channel_watch_closely(struct ko_channel *channel, int peer)
{
    struct ko_port *port = &channel->ports[peer];

    if (port->is_open && port->link->posts && port->polled_fd >= 0)
        ko_channel_unpoll(channel, port);
}

/* A peer may have been put on the core on which it is waited for, even where there are enough: now
 * and then it is let in. */
enum { TURNS_TO_YIELD = 128 };

/* Grows with what moves between this rank and the peer; of anybody (-1) nothing is counted. */
static uint64_t count_moved(const struct ko_channel *channel, int peer)
{
    const struct ko_link *link = peer < 0 ? NULL : channel->ports[peer].link;

    return link && link->wire ? link->sent + link->received + link->wire->moved : 0;
}

/* Whether the peer is at work on a slice that lies in this process, though not for ever: it may
 * have been stopped there. */
static bool is_read(const struct ko_channel *channel, struct ko_wait *wait)
{
    enum { MOST = 20 };
    const struct ko_link *link = wait->peer < 0 ? NULL : channel->ports[wait->peer].link;

    return link && ko_link_is_read(link) && wait->nread++ < MOST;
}

/* While a long message moves, more of it is near, and a sleeper would be woken for each part; but
 * where ranks share cores he lets another move it. Who waits for anybody may have other work beside
 * him, as the courier has. */
static bool has_moved(const struct ko_channel *channel, struct ko_wait *wait)
{
    const bool has = wait->moved != count_moved(channel, wait->peer);

    if (has)
        wait->nread = 0;
    return !channel->is_crowded && (has || is_read(channel, wait));
}

static int spin_once(struct ko_channel *channel, struct ko_wait *wait)
{
    if (!wait->turns && wait->peer >= 0 && !channel->is_crowded)
        ko_channel_watch_closely(channel, wait->peer);
    if (channel->is_crowded ? !ko_channel_keeps_turn(channel, wait)
                            : wait->turns % TURNS_TO_YIELD == TURNS_TO_YIELD - 1)
        sched_yield();
    else
        ko_pause();
    if (++wait->turns % 16)
        return KOLO_OK;
    if (!wait->spin_until_ns) {
        int64_t now = ko_now_ns();

        wait->began_ns = wait->began_ns ? wait->began_ns : now;
        wait->spin_until_ns = now + (int64_t)channel->spin_us * 1000;
        wait->moved = count_moved(channel, wait->peer);
    }
    return drive_messages(channel);
}

int ko_channel_wait_awake(struct ko_channel *channel, struct ko_wait *wait)
{
    bool is_spinning =
        !wait->spin_until_ns || wait->turns % 16 || ko_now_ns() < wait->spin_until_ns;

    if (is_spinning)
        return spin_once(channel, wait);
    if (has_moved(channel, wait)) {
        int err = ko_channel_look_around(channel, wait); /* as after a sleep */

        wait->spin_until_ns = 0;
        return err ? err : spin_once(channel, wait);
    }
    arm(channel);
    wait->is_armed = true;
    wait->heard = channel->heard;
    return KOLO_OK;
}

bool ko_channel_may_sleep(const struct ko_channel *channel, struct ko_wait *wait)
{
    const bool may_sleep = wait->is_armed && wait->heard == channel->heard;

    wait->is_armed = false;
    return may_sleep;
}

int ko_channel_wait(struct ko_channel *channel, struct ko_wait *wait)
{
    int err = ko_group_check(channel->group);

    if (err)
        return err;
    /* The caller has looked since whatever we know was heard. */
    if (wait->is_armed && wait->peer >= 0 && channel->ports[wait->peer].has_left)
        return ko_channel_link_failed(channel, wait->peer, KOLO_E_PEER_LOST);
    if (!ko_channel_may_sleep(channel, wait))
        return ko_channel_wait_awake(channel, wait);
    err = sleep_once(channel, wait);
    wait->spin_until_ns = 1; /* after a sleep: look a few times, then sleep again */
    return err;
}
