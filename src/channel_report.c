/* SPDX-License-Identifier: MIT
 *
 * What goes wrong on a channel, in words: lost links, time-outs, ranks that make different calls;
 * and telling the other ranks of it.
 */
#include "channel_parts.h"

#include "algorithms.h"
#include "dtype.h"
#include "group.h"
#include "status.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { TELL_MS = 500 }; /* at most, for telling all peers of a failure */

_Static_assert(sizeof(struct ko_failure) <= KO_CONTROL_BYTES, "a failure fits into a message");

/* ---- errors -------------------------------------------------------------------------------- */

void ko_stamp_describe(const struct ko_stamp *stamp, char *text, size_t nbytes)
{
    static const char *const names[] = {
#define COLLECTIVE_NAME(id, name) #name,
        KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
    };
    const bool is_uneven = stamp->what & KO_UNEVEN, is_coalesced = stamp->what & KO_COALESCED;
    const unsigned what = stamp->what & ~(unsigned)(KO_UNEVEN | KO_COALESCED);
    const uint32_t root = is_coalesced ? stamp->root & ~(~0u << KO_ROOT_BITS) : stamp->root;
    const char *name = what < KO_NCOLLECTIVES ? names[what] : "an unknown call";
    int used;

    if (stamp->what == KO_POINT_TO_POINT) {
        snprintf(text, nbytes, "message #%llu of tag %u, %llu bytes",
                 (unsigned long long)stamp->seq, stamp->root, (unsigned long long)stamp->count);
        return;
    }
    used = snprintf(text, nbytes, "%s%s #%llu", name,
                    is_uneven      ? "_v"
                    : is_coalesced ? "_coalesced"
                                   : "",
                    (unsigned long long)stamp->seq);
    if (is_uneven && !stamp->count) /* of which only the type is known to all */
        used += snprintf(text + used, nbytes - (size_t)used, " of %s",
                         kolo_dtype_name((kolo_dtype)stamp->dtype));
    else if (what != KO_BARRIER)
        used +=
            snprintf(text + used, nbytes - (size_t)used, " of %llu %s",
                     (unsigned long long)stamp->count, kolo_dtype_name((kolo_dtype)stamp->dtype));
    if (ko_is_reducing((enum ko_collective)what))
        used +=
            snprintf(text + used, nbytes - (size_t)used, ", %s", kolo_op_name((kolo_op)stamp->op));
    if (stamp->what == KO_ALL_REDUCE && stamp->root) /* coll_epilogue.h */
        snprintf(text + used, nbytes - (size_t)used, ", with options %08x", stamp->root);
    if (ko_has_root((enum ko_collective)what))
        snprintf(text + used, nbytes - (size_t)used, ", root %u", root);
}

/* " in all_reduce #5 (...)" for a channel that is in a call, else "". */
static void describe_call(struct ko_channel *channel, char *text, size_t nbytes)
{
    text[0] = 0;
    if (!channel->is_in_call || nbytes < 5)
        return;
    memcpy(text, " in ", 5);
    ko_stamp_describe(ko_channel_call(channel, channel->seq), text + 4, nbytes - 4);
}

int ko_channel_link_failed(struct ko_channel *channel, int peer, int status)
{
    const struct ko_port *port = &channel->ports[peer];
    char who[160], call[160], text[KO_ERROR_TEXT];

    ko_group_describe_rank(channel->group, peer, who, sizeof who);
    describe_call(channel, call, sizeof call);
    if (port->has_vanished)
        snprintf(text, sizeof text,
                 "%s was lost by rank %d%s: it ended, or freed its group, before it had connected",
                 who, channel->group->rank, call);
    else if (port->has_left)
        snprintf(text, sizeof text, "%s has freed its group, while rank %d waits for it%s%s%s", who,
                 channel->group->rank, call, status == KOLO_E_PEER_LOST ? "" : ": ",
                 status == KOLO_E_PEER_LOST ? "" : kolo_last_error());
    else if (status == KOLO_E_PEER_LOST) /* others read it too, the lost one perhaps */
        snprintf(text, sizeof text, "%s was lost by rank %d%s: %s", who, channel->group->rank, call,
                 kolo_last_error());
    else
        snprintf(text, sizeof text, "%s failed%s: %s", who, call, kolo_last_error());
    return status == KOLO_E_PEER_LOST ? ko_group_fail_for(channel->group, peer, status, text)
                                      : ko_group_fail(channel->group, status, text);
}

static bool is_same_call(const struct ko_stamp *a, const struct ko_stamp *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* A message may come of a call that we left before the difference showed: ours is that one then. */
static const struct ko_stamp *counterpart(struct ko_channel *channel, const struct ko_stamp *theirs,
                                          const struct ko_stamp *ours)
{
    const struct ko_stamp *past = ko_channel_call(channel, theirs->seq);

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
    if (theirs->what == ours->what && theirs->what & KO_COALESCED && !strcmp(their_call, our_call))
        snprintf(text, sizeof text,
                 "rank %d and rank %d list tensors of other lengths in %s; all ranks list as many, "
                 "of the same lengths, in the same order",
                 peer, channel->group->rank, our_call);
    else if (theirs->algorithm != ours->algorithm && theirs->what == ours->what &&
             theirs->count == ours->count && theirs->dtype == ours->dtype)
        snprintf(text, sizeof text,
                 "rank %d and rank %d take different algorithms for %s; set KOLO_ALGO and "
                 "KOLO_DETERMINISTIC alike on all ranks",
                 peer, channel->group->rank, our_call);
    else
        snprintf(text, sizeof text,
                 "the ranks make different calls: rank %d calls %s, but rank %d calls %s", peer,
                 their_call, channel->group->rank, our_call);
    return ko_group_fail(channel->group, KOLO_E_MISMATCH, text);
}

int ko_channel_lengths_differ(struct ko_channel *channel, int peer, const struct ko_frame *frame,
                              size_t nbytes)
{
    char call[160], text[KO_ERROR_TEXT];

    ko_stamp_describe(&frame->stamp, call, sizeof call);
    if (!(frame->stamp.what & KO_UNEVEN)) /* then the stamps would have differed */
        return ko_group_fail(channel->group, KOLO_E_INTERNAL,
                             "a slice has another length than expected");
    snprintf(text, sizeof text,
             "rank %d sends %u bytes to rank %d, which expects %zu, in %s: the counts that the two "
             "give for this block differ",
             peer, frame->nbytes, channel->group->rank, nbytes, call);
    return ko_group_fail(channel->group, KOLO_E_MISMATCH, text);
}

int ko_channel_timed_out(struct ko_channel *channel, struct ko_wait *wait)
{
    char who[160] = "any rank", call[160], more[160] = "", others[256], ended[128] = "";
    char text[KO_ERROR_TEXT + 512];
    const struct ko_port *port = wait->peer < 0 ? NULL : &channel->ports[wait->peer];

    if (port)
        ko_group_describe_rank(channel->group, wait->peer, who, sizeof who);
    describe_call(channel, call, sizeof call);
    if (wait->describe)
        wait->describe(wait, more, sizeof more);
    ko_channel_describe_others(channel, wait->peer, others, sizeof others);
    if (port) /* else the others are told of with those who have left */
        ko_channel_describe_ended(channel, ended, sizeof ended);
    snprintf(
        text, sizeof text,
        "rank %d waited %d ms %s %s%s%s%s%s%s; KOLO_TIMEOUT_MS or kolo_group_set_timeout sets the "
        "limit",
        channel->group->rank, wait->deadline->timeout_ms, wait->what, who,
        !port || port->is_open || others[0] /* it waits itself */
            ? ""
            : ", which has not even connected (do all ranks make the same groups, of the same "
              "ranks?)",
        call, more, others, ended);
    return ko_group_fail_for(channel->group, wait->peer, KOLO_E_TIMEOUT, text);
}

/* ---- comparing calls ----------------------------------------------------------------------- */

/* The peer is in the call `theirs`: compares it with ours of the same number, if we have got there.
 */
static int compare_calls(struct ko_channel *channel, int peer, const struct ko_stamp *theirs)
{
    const struct ko_stamp *ours = ko_channel_call(channel, theirs->seq);

    if (ours->seq != theirs->seq || is_same_call(ours, theirs))
        return KOLO_OK;
    return ko_channel_mismatch(channel, peer, theirs, ours);
}

int ko_channel_hear_waiting(struct ko_channel *channel, struct ko_port *port,
                            const struct ko_stamp *stamp)
{
    if (channel->number != KO_CHANNEL_COLLECTIVES)
        return KOLO_OK;
    if (stamp->seq > channel->seq) { /* we have not got there: compare when we do */
        channel->nwaiting += !port->waiting.seq;
        port->waiting = *stamp;
        return KOLO_OK;
    }
    return compare_calls(channel, port->link->peer, stamp);
}

int ko_channel_compare_waiting(struct ko_channel *channel)
{
    for (int i = 0; channel->nwaiting && i < channel->group->size; i++) {
        struct ko_stamp theirs = channel->ports[i].waiting;
        int err;

        if (!theirs.seq || theirs.seq > channel->seq)
            continue;
        channel->ports[i].waiting.seq = 0;
        channel->nwaiting--;
        err = compare_calls(channel, i, &theirs);
        if (err)
            return err;
    }
    return KOLO_OK;
}

/* ---- failing ------------------------------------------------------------------------------- */

static bool is_telling(const struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++)
        if (channel->ports[i].is_open && ko_link_is_telling_any(channel->ports[i].link))
            return true;
    return false;
}

/* Posts that cannot leave must not refer to the caller's buffers any longer, nor may a peer write
 * there. */
static void cut_unflushed(struct ko_channel *channel)
{
    for (int i = 0; i < channel->group->size; i++) {
        struct ko_port *port = &channel->ports[i];

        if (!port->is_open || (!ko_link_is_flushed(port->link) && !port->link->wire->is_written_to))
            continue;
        ko_channel_unpoll(channel, port);
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
