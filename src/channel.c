/* SPDX-License-Identifier: MIT
 *
 * Opening a link: the lower rank of the two connects, the higher one claims the arrival and
 * answers.
 *
 * Waiting has three stages. Spinning: the caller looks again at once, and we only keep what is on
 * its way out moving. Arming: the links' sleep flags are set, and the caller looks once more.
 * Sleeping: in epoll, over every link's fd, the endpoint's arrivals and the wakes of other threads;
 * at most NAP_MS at a time, since rarer things are looked after between two naps.
 */
#include "channel.h"

#include "algorithms.h"
#include "config.h"
#include "dtype.h"
#include "group.h"
#include "log.h"
#include "portable.h"
#include "status.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NAP_MS = 250,
    OPENING_NAP_MS = 5, /* a wire being opened may have no fd to wait on */
    ASK_MS = 200,       /* a wait of this length asks the peer whether it makes the same call */
    TELL_MS = 500       /* at most, for telling all peers of a failure */
};

/* Whether this machine has fewer processors than ranks, as far as that is known without asking. */
static bool is_crowded(int size)
{
    const char *local = getenv("LOCAL_WORLD_SIZE");
    long here = local ? strtol(local, NULL, 10) : size;

    return here > sysconf(_SC_NPROCESSORS_ONLN);
}

int ko_channel_open(struct ko_channel *channel, kolo_group *group, uint32_t number)
{
    int64_t spin_us;
    int err;

    pthread_mutex_init(&channel->lock, NULL);
    channel->group = group;
    channel->number = number;
    channel->poller = (struct ko_poller){-1, -1};
    err = ko_config_number(KO_CONFIG_SPIN_US, &spin_us);
    if (!err)
        err = ko_poller_open(&channel->poller);
    if (!err)
        err = ko_endpoint_watch(group->endpoint, &channel->poller);
    if (!err)
        err = ko_poller_add(&channel->poller, group->endpoint->poller.epoll_fd, KO_POLL_IN,
                            group->endpoint);
    if (err)
        return err;
    channel->spin_us = (int)spin_us;
    channel->is_crowded = is_crowded(group->size);
    channel->ports = ko_alloc((size_t)group->size * sizeof *channel->ports, "the ports of a group");
    return channel->ports ? KOLO_OK : KOLO_E_NOMEM;
}

static void unpoll(struct ko_channel *channel, struct ko_port *port)
{
    if (port->polled_fd >= 0)
        ko_poller_remove(&channel->poller, port->polled_fd);
    port->polled_fd = -1;
}

static void close_port(struct ko_channel *channel, struct ko_port *port)
{
    if (!port->link)
        return;
    unpoll(channel, port);
    if (port->opening)
        port->opening->transport->hangup(port->opening);
    if (port->is_open && !ko_group_check(channel->group))
        (void)ko_link_tell(port->link, KO_FRAME_BYE, NULL, NULL, 0);
    ko_link_free(port->link);
}

void ko_channel_close(struct ko_channel *channel)
{
    if (!channel->group)
        return;
    for (int i = 0; channel->ports && i < channel->group->size; i++)
        close_port(channel, &channel->ports[i]);
    free(channel->ports);
    ko_endpoint_unwatch(channel->group->endpoint, &channel->poller);
    ko_poller_close(&channel->poller);
    pthread_mutex_destroy(&channel->lock);
    channel->group = NULL;
}

/* ---- errors
 * --------------------------------------------------------------------------------------- */

void ko_stamp_describe(const struct ko_stamp *stamp, char *text, size_t nbytes)
{
    static const char *const names[] = {
#define COLLECTIVE_NAME(id, name) #name,
        KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
    };
    const char *name = stamp->what < KO_NCOLLECTIVES ? names[stamp->what] : "an unknown call";
    int used;

    if (stamp->what == KO_POINT_TO_POINT) {
        snprintf(text, nbytes, "message #%llu of tag %u, %llu bytes",
                 (unsigned long long)stamp->seq, stamp->root, (unsigned long long)stamp->count);
        return;
    }
    used = snprintf(text, nbytes, "%s #%llu", name, (unsigned long long)stamp->seq);
    if (stamp->what != KO_BARRIER)
        used +=
            snprintf(text + used, nbytes - (size_t)used, " of %llu %s",
                     (unsigned long long)stamp->count, kolo_dtype_name((kolo_dtype)stamp->dtype));
    if (stamp->what == KO_ALL_REDUCE || stamp->what == KO_REDUCE ||
        stamp->what == KO_REDUCE_SCATTER)
        used +=
            snprintf(text + used, nbytes - (size_t)used, ", %s", kolo_op_name((kolo_op)stamp->op));
    if (stamp->what == KO_REDUCE || stamp->what == KO_BROADCAST || stamp->what == KO_GATHER ||
        stamp->what == KO_SCATTER)
        snprintf(text + used, nbytes - (size_t)used, ", root %u", stamp->root);
}

/* " in all_reduce #5 (...)" for a channel that is in a call, else "". */
static void describe_call(const struct ko_channel *channel, char *text, size_t nbytes)
{
    text[0] = 0;
    if (!channel->is_in_call || nbytes < 5)
        return;
    memcpy(text, " in ", 5);
    ko_stamp_describe(&channel->stamp, text + 4, nbytes - 4);
}

int ko_channel_link_failed(struct ko_channel *channel, int peer, int status)
{
    const struct ko_port *port = &channel->ports[peer];
    char who[160], call[160], text[KO_ERROR_TEXT];

    ko_group_describe_rank(channel->group, peer, who, sizeof who);
    describe_call(channel, call, sizeof call);
    if (port->said_bye)
        snprintf(text, sizeof text, "%s has freed its group, while rank %d waits for it%s", who,
                 channel->group->rank, call);
    else
        snprintf(text, sizeof text, "%s %s%s: %s", who,
                 status == KOLO_E_PEER_LOST ? "was lost" : "failed", call, kolo_last_error());
    return status == KOLO_E_PEER_LOST ? ko_group_fail_lost(channel->group, text)
                                      : ko_group_fail(channel->group, status, text);
}

static bool is_same_call(const struct ko_stamp *a, const struct ko_stamp *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* A message may come of a call that we left before the difference showed: ours is that one then. */
static const struct ko_stamp *counterpart(const struct ko_channel *channel,
                                          const struct ko_stamp *theirs,
                                          const struct ko_stamp *ours)
{
    const struct ko_stamp *past = &channel->past[theirs->seq % KO_PAST_STAMPS];

    return theirs->seq < ours->seq && past->seq == theirs->seq && !is_same_call(past, theirs)
               ? past
               : ours;
}

int ko_channel_mismatch(struct ko_channel *channel, int peer, const struct ko_stamp *theirs,
                        const struct ko_stamp *ours)
{
    char their_call[160], our_call[160], text[KO_ERROR_TEXT];

    ours = counterpart(channel, theirs, ours);
    ko_stamp_describe(theirs, their_call, sizeof their_call);
    ko_stamp_describe(ours, our_call, sizeof our_call);
    if (theirs->algorithm != ours->algorithm && theirs->what == ours->what &&
        theirs->count == ours->count && theirs->dtype == ours->dtype)
        snprintf(text, sizeof text,
                 "rank %d and rank %d take different algorithms for %s; set KOLO_ALGO alike on all "
                 "ranks",
                 peer, channel->group->rank, our_call);
    else
        snprintf(text, sizeof text,
                 "the ranks make different calls: rank %d calls %s, but rank %d calls %s", peer,
                 their_call, channel->group->rank, our_call);
    return ko_group_fail(channel->group, KOLO_E_MISMATCH, text);
}

static int timed_out(struct ko_channel *channel, const struct ko_wait *wait)
{
    char who[160] = "any rank", call[160], text[KO_ERROR_TEXT];
    const struct ko_port *port = wait->peer < 0 ? NULL : &channel->ports[wait->peer];

    if (port)
        ko_group_describe_rank(channel->group, wait->peer, who, sizeof who);
    describe_call(channel, call, sizeof call);
    if (ko_group_check_store(channel->group)) /* it may explain the wait */
        return ko_group_check(channel->group);
    snprintf(
        text, sizeof text,
        "rank %d waited %d ms %s %s%s%s; KOLO_TIMEOUT_MS or kolo_group_set_timeout sets the limit",
        channel->group->rank, wait->deadline->timeout_ms, wait->what, who,
        !port || port->is_open ? "" : ", which has not even connected", call);
    return ko_group_fail(channel->group, KOLO_E_TIMEOUT, text);
}

/* ---- comparing calls
 * ------------------------------------------------------------------------------ */

/* The peer is in the call `theirs`: compares it with ours of the same number, if we have got there.
 */
static int compare_calls(struct ko_channel *channel, int peer, const struct ko_stamp *theirs)
{
    const struct ko_stamp *ours = &channel->past[theirs->seq % KO_PAST_STAMPS];

    if (channel->is_in_call && theirs->seq == channel->stamp.seq)
        ours = &channel->stamp;
    if (ours->seq != theirs->seq || is_same_call(ours, theirs))
        return KOLO_OK;
    return ko_channel_mismatch(channel, peer, theirs, ours);
}

static int hear_waiting(struct ko_channel *channel, struct ko_port *port,
                        const struct ko_stamp *stamp)
{
    if (channel->number != KO_CHANNEL_COLLECTIVES)
        return KOLO_OK;
    if (stamp->seq > channel->stamp.seq) { /* we have not got there: compare when we do */
        channel->nwaiting += !port->waiting.seq;
        port->waiting = *stamp;
        return KOLO_OK;
    }
    return compare_calls(channel, port->link->peer, stamp);
}

/* ---- opening
 * -------------------------------------------------------------------------------------- */

static struct ko_hello hello_to(const struct ko_channel *channel, int peer)
{
    const kolo_group *group = channel->group;

    return (struct ko_hello){.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .group = group->id,
                             .from = group->rank,
                             .to = peer,
                             .channel = channel->number,
                             .slots = group->endpoint->own.slots,
                             .slice_bytes = group->endpoint->own.slice_bytes,
                             .stamp = channel->stamp};
}

static int connect_to(struct ko_channel *channel, int peer)
{
    struct ko_hello hello = hello_to(channel, peer);

    return ko_endpoint_connect(channel->group->endpoint, channel->group->world_ranks[peer], &hello,
                               &channel->ports[peer].opening);
}

static int check_arrival(const struct ko_channel *channel, const struct ko_hello *theirs,
                         const struct ko_hello *ours)
{
    if (theirs->to == ours->from && theirs->slots == ours->slots &&
        theirs->slice_bytes == ours->slice_bytes)
        return KOLO_OK;
    return ko_fail(
        KOLO_E_PROTOCOL,
        "its hello was for rank %d with %u slots of %u bytes; this is rank %d with %u of %u",
        (int)theirs->to, theirs->slots, theirs->slice_bytes, channel->group->rank, ours->slots,
        ours->slice_bytes);
}

/* An arrival for this port, if there is one, gets our hello. */
static int claim_from(struct ko_channel *channel, int peer)
{
    struct ko_hello hello = hello_to(channel, peer);
    struct ko_port *port = &channel->ports[peer];
    int err = ko_endpoint_claim(channel->group->endpoint, channel->group->id, peer, channel->number,
                                &port->opening);

    if (err)
        return err == KO_AGAIN ? KOLO_OK : err;
    err = check_arrival(channel, &port->opening->hello, &hello);
    if (!err)
        err = hear_waiting(channel, port, &port->opening->hello.stamp);
    return err ? err : port->opening->transport->answer(port->opening, &hello);
}

static int finish_opening(struct ko_channel *channel, struct ko_port *port)
{
    struct ko_wire *wire = port->opening;

    if (wire->hello.group != channel->group->id || wire->hello.from != port->link->peer)
        return ko_fail(KOLO_E_PROTOCOL, "another rank answered: rank %d of another group",
                       (int)wire->hello.from);
    port->opening = NULL;
    port->is_open = true;
    channel->nopening--;
    return ko_link_open(port->link, wire);
}

/* Keeps the poller's idea of a port in step with its wire. */
static int poll_port(struct ko_channel *channel, struct ko_port *port)
{
    const struct ko_wire *wire = port->opening ? port->opening : port->link->wire;
    int err = KOLO_OK;

    if (!wire || wire->fd < 0)
        return KOLO_OK;
    if (port->polled_fd != wire->fd) {
        err = ko_poller_add(&channel->poller, wire->fd, wire->wanted, port->link);
        port->polled_fd = wire->fd;
    } else if (port->polled != wire->wanted) {
        err = ko_poller_change(&channel->poller, wire->fd, wire->wanted, port->link);
    }
    port->polled = wire->wanted;
    return err;
}

static int drive_opening(struct ko_channel *channel, struct ko_port *port)
{
    int err = KOLO_OK;

    if (!port->opening)
        err = claim_from(channel, port->link->peer);
    if (!err && port->opening)
        err = port->opening->transport->drive(port->opening);
    if (!err && port->opening && port->opening->state == KO_WIRE_OPEN)
        err = finish_opening(channel, port);
    return err ? ko_channel_link_failed(channel, port->link->peer, err) : KOLO_OK;
}

static int open_link(struct ko_channel *channel, int peer)
{
    struct ko_port *port = &channel->ports[peer];
    const struct ko_contact *own = &channel->group->endpoint->own;
    const struct ko_contact *contact;
    int err =
        ko_endpoint_contact(channel->group->endpoint, channel->group->world_ranks[peer], &contact);

    if (!err)
        err = ko_link_create(peer, own->slots, own->slice_bytes, &port->link);
    if (err == KOLO_E_PEER_LOST)
        return ko_group_fail_lost(channel->group, kolo_last_error());
    if (err)
        return ko_group_fail(channel->group, err, kolo_last_error());
    port->polled_fd = -1;
    channel->nopening++;
    err = channel->group->rank <= peer ? connect_to(channel, peer) : KOLO_OK;
    if (err)
        return ko_channel_link_failed(channel, peer, err);
    return drive_opening(channel, port);
}

int ko_channel_link(struct ko_channel *channel, int peer, struct ko_link **link)
{
    struct ko_port *port = &channel->ports[peer];
    int err = KOLO_OK;

    if (!port->link)
        err = open_link(channel, peer);
    if (err)
        return err;
    *link = port->link;
    return KOLO_OK;
}

/* ---- what peers tell
 * ------------------------------------------------------------------------------ */

static int hear_failure(struct ko_channel *channel, int peer, const struct ko_notice *notice)
{
    struct ko_failure failure;

    if (notice->nbytes != sizeof failure)
        return ko_channel_link_failed(
            channel, peer,
            ko_fail(KOLO_E_PROTOCOL, "it told of a failure in %u bytes", notice->nbytes));
    memcpy(&failure, notice->body, sizeof failure);
    failure.text[sizeof failure.text - 1] = 0;
    return ko_group_fail(channel->group, failure.status > 0 ? failure.status : KOLO_E_PROTOCOL,
                         failure.text);
}

static int hear(struct ko_channel *channel, struct ko_port *port)
{
    struct ko_notice notice;
    int err;

    for (;;) {
        err = ko_link_hear(port->link, &notice);
        if (err == KO_AGAIN)
            return KOLO_OK;
        if (err == KOLO_E_PEER_LOST && port->said_bye) {
            unpoll(channel, port); /* matters only to whoever still wants something of it */
            port->polled_fd = port->link->wire->fd;
            return KOLO_OK;
        }
        if (err)
            return ko_channel_link_failed(channel, port->link->peer, err);
        if (notice.kind == KO_FRAME_BYE)
            port->said_bye = true;
        else if (notice.kind == KO_FRAME_WAITING)
            err = hear_waiting(channel, port, &notice.stamp);
        else if (notice.kind == KO_FRAME_FAIL)
            err = hear_failure(channel, port->link->peer, &notice);
        if (err)
            return err;
    }
}

/* ---- driving
 * -------------------------------------------------------------------------------------- */

static int drive_port(struct ko_channel *channel, struct ko_port *port)
{
    int err;

    if (!port->is_open)
        return drive_opening(channel, port);
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

/* While spinning: only what a look of the caller at its own link would not move. */
static int drive_messages(struct ko_channel *channel)
{
    int err = KOLO_OK;

    for (int i = 0; i < channel->group->size && !err; i++) {
        struct ko_port *port = &channel->ports[i];

        if (port->link && (!port->is_open || port->link->posts))
            err = drive_port(channel, port);
    }
    return err;
}

/* ---- calls
 * ---------------------------------------------------------------------------------------- */

int ko_channel_enter(struct ko_channel *channel, const struct ko_stamp *stamp)
{
    channel->stamp = *stamp;
    channel->is_in_call = true;
    for (int i = 0; channel->nwaiting && i < channel->group->size; i++) {
        struct ko_stamp theirs = channel->ports[i].waiting;
        int err;

        if (!theirs.seq || theirs.seq > stamp->seq)
            continue;
        channel->ports[i].waiting.seq = 0;
        channel->nwaiting--;
        err = compare_calls(channel, i, &theirs);
        if (err)
            return err;
    }
    return KOLO_OK;
}

void ko_channel_leave(struct ko_channel *channel)
{
    channel->past[channel->stamp.seq % KO_PAST_STAMPS] = channel->stamp;
    channel->is_in_call = false;
}

/* ---- waiting
 * -------------------------------------------------------------------------------------- */

static void arm(struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open)
            channel->ports[i].link->ops->arm(channel->ports[i].link);
}

static void disarm(struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open)
            channel->ports[i].link->ops->disarm(channel->ports[i].link);
}

int ko_channel_poll(struct ko_channel *channel)
{
    int err = KOLO_OK;

    for (int i = 0; i < channel->group->size && !err; i++)
        if (channel->ports[i].link && !channel->ports[i].said_bye)
            err = poll_port(channel, &channel->ports[i]);
    return err ? ko_group_fail(channel->group, err, kolo_last_error()) : KOLO_OK;
}

int ko_channel_nap_ms(const struct ko_channel *channel, const ko_deadline *deadline)
{
    int nap = channel->nopening ? OPENING_NAP_MS : NAP_MS;
    int left = ko_deadline_left_ms(deadline);

    return left < nap ? left : nap;
}

/* Opens the links that other ranks have begun on this channel: they may wait for it before this
 * rank comes to use it, as around a ring. */
static int answer_arrivals(struct ko_channel *channel)
{
    struct ko_hello hellos[16];
    struct ko_link *link;
    int n = ko_endpoint_unclaimed(channel->group->endpoint, channel->group->id, channel->number,
                                  hellos, 16);
    int err = KOLO_OK;

    for (int i = 0; i < n && !err; i++)
        if (hellos[i].from >= 0 && hellos[i].from < channel->group->rank)
            err = ko_channel_link(channel, hellos[i].from, &link);
    /* Messages are received by ranks that call for them; but the sender of one may be needed for
     * the collective that this rank is in. */
    if (!err && channel->number == KO_CHANNEL_COLLECTIVES)
        ko_mailbox_answer(channel->group);
    return err;
}

int ko_channel_woken(struct ko_channel *channel, const struct ko_event *events, int nevents)
{
    int err =
        nevents < 0 ? ko_group_fail(channel->group, KOLO_E_SYSTEM, kolo_last_error()) : KOLO_OK;

    disarm(channel);
    for (int i = 0; i < nevents && !err; i++) {
        struct ko_link *link = events[i].owner;

        if (events[i].owner == channel->group->endpoint)
            ko_endpoint_accept(channel->group->endpoint);
        else if (link)
            err = drive_port(channel, &channel->ports[link->peer]);
        if (!err && (!link || events[i].owner == channel->group->endpoint))
            err = answer_arrivals(channel);
    }
    for (int i = 0; channel->nopening && i < channel->group->size && !err; i++)
        if (channel->ports[i].link && !channel->ports[i].is_open)
            err = drive_opening(channel, &channel->ports[i]);
    return err ? err : ko_group_check(channel->group);
}

/* A peer that has not connected yet can have ended without any link that would tell of it. */
static int check_process(struct ko_channel *channel, int peer)
{
    struct ko_endpoint *endpoint = channel->group->endpoint;
    const struct ko_contact *contact;

    if (peer < 0 || channel->ports[peer].is_open)
        return KOLO_OK;
    contact = ko_endpoint_known(endpoint, channel->group->world_ranks[peer]);
    if (!contact || !ko_contact_is_gone(&endpoint->own, contact))
        return KOLO_OK;
    return ko_channel_link_failed(
        channel, peer, ko_fail(KOLO_E_PEER_LOST, "its process ended before it had connected"));
}

int ko_channel_look_around(struct ko_channel *channel, struct ko_wait *wait)
{
    int64_t now = ko_now_ns();
    int err = KOLO_OK;

    if (ko_deadline_passed(wait->deadline))
        return timed_out(channel, wait);
    if (now - wait->began_ns < (int64_t)ASK_MS * 1000000)
        return KOLO_OK;
    if (channel->is_in_call && !wait->has_asked) {
        wait->has_asked = true;
        for (int i = 0; i < channel->group->size && !err; i++)
            if (channel->ports[i].is_open)
                err = ko_link_tell(channel->ports[i].link, KO_FRAME_WAITING, &channel->stamp, NULL,
                                   0);
        if (err)
            return ko_channel_link_failed(channel, wait->peer, err);
    }
    if (now - wait->store_checked_ns >= (int64_t)NAP_MS * 1000000) {
        wait->store_checked_ns = now;
        err = ko_group_check_store(channel->group);
        /* A collective needs all ranks; a message only one, which may be on its way to connect. */
        if (!err &&
            (channel->is_in_call || (wait->peer >= 0 && !channel->ports[wait->peer].is_open)))
            err = ko_group_check_server(channel->group, "");
        if (!err)
            err = check_process(channel, wait->peer);
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
    n = ko_poller_wait(&channel->poller, ko_channel_nap_ms(channel, wait->deadline), events, 16);
    err = ko_channel_woken(channel, events, n);
    return err ? err : ko_channel_look_around(channel, wait);
}

static int spin_once(struct ko_channel *channel, struct ko_wait *wait)
{
    if (channel->is_crowded)
        sched_yield();
    else
        ko_pause();
    if (++wait->turns % 16)
        return KOLO_OK;
    if (!wait->spin_until_ns) {
        wait->began_ns = ko_now_ns();
        wait->spin_until_ns = wait->began_ns + (int64_t)channel->spin_us * 1000;
    }
    return drive_messages(channel);
}

int ko_channel_wait_awake(struct ko_channel *channel, struct ko_wait *wait)
{
    bool is_spinning =
        !wait->spin_until_ns || wait->turns % 16 || ko_now_ns() < wait->spin_until_ns;

    if (is_spinning)
        return spin_once(channel, wait);
    arm(channel);
    wait->is_armed = true;
    return KOLO_OK;
}

int ko_channel_wait(struct ko_channel *channel, struct ko_wait *wait)
{
    int err = ko_group_check(channel->group);

    if (err || !wait->is_armed)
        return err ? err : ko_channel_wait_awake(channel, wait);
    /* The caller has looked since whatever we know was heard. */
    if (wait->peer >= 0 && channel->ports[wait->peer].said_bye)
        return ko_channel_link_failed(channel, wait->peer, KOLO_E_PEER_LOST);
    wait->is_armed = false;
    err = sleep_once(channel, wait);
    wait->spin_until_ns = 1; /* after a sleep: look a few times, then sleep again */
    return err;
}

/* ---- failing
 * -------------------------------------------------------------------------------------- */

static bool is_telling(const struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open && ko_link_is_telling(channel->ports[i].link))
            return true;
    return false;
}

/* Posts that cannot leave must not refer to the caller's buffers any longer. */
static void cut_unflushed(struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++) {
        struct ko_port *port = &channel->ports[i];

        if (!port->is_open || !ko_link_is_flushed(port->link))
            continue;
        unpoll(channel, port);
        ko_link_free(port->link);
        *port = (struct ko_port){.polled_fd = -1};
    }
}

void ko_channel_tell_failure(struct ko_channel *channel)
{
    ko_deadline deadline = ko_deadline_in(TELL_MS);
    struct ko_failure failure = {.status = atomic_load(&channel->group->failed)};

    if (channel->has_told)
        return;
    channel->has_told = true;
    memcpy(failure.text, channel->group->failure_text, sizeof failure.text);
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open)
            (void)ko_link_tell(channel->ports[i].link, KO_FRAME_FAIL, NULL, &failure,
                               sizeof failure);
    while (is_telling(channel) && !ko_deadline_passed(&deadline)) {
        for (int i = 0; i < channel->group->size; i++)
            if (channel->ports[i].is_open)
                (void)channel->ports[i].link->wire->transport->drive(channel->ports[i].link->wire);
        sched_yield();
    }
    /* Before any connection ends: who sees the end looks into the store for its reason. */
    ko_group_write_failure(channel->group);
    cut_unflushed(channel);
    (void)ko_group_check(channel->group); /* the thread's text again */
}
