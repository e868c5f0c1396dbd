/* SPDX-License-Identifier: MIT
 *
 * channel.h: a group's links of one kind, opened at first use, and how a thread waits on them: it
 * polls for a while, then sleeps in the kernel until a link, an arrival or a wake has something to
 * tell; meanwhile every link of the channel is driven in both directions. Its owner sees
 * to it that one thread at a time uses it: by the engine's turn, or the mailbox's lock.
 */
#ifndef KO_CHANNEL_H
#define KO_CHANNEL_H

#include "clock.h"
#include "group_waits.h"
#include "kolo.h"
#include "link.h"
#include "poller_pool.h"

/* A link and what its opening needs. */
struct ko_port {
    struct ko_link *link;    /* NULL: never used */
    struct ko_wire *opening; /* begun or claimed, not open yet */
    bool is_begun;           /* that was begun here */
    int64_t awaited_ns;      /* since when the port is to be opened */
    bool is_open;
    bool is_optional;        /* opened in case the peer has something for us */
    bool has_left;           /* the peer has freed its group, or: */
    bool has_vanished;       /* that, or its process ended, before the link was open */
    int polled_fd;           /* in the poller, while that is the channel's, or -1 */
    int polled;              /* the bits it is, or was, there with */
    bool is_muted;           /* its end is known: not in the poller until it wants other bits */
    struct ko_stamp waiting; /* the call in which the peer waits for us; seq 0: none */
};

enum { KO_KNOWN_CALLS = 32 };

struct ko_channel {
    kolo_group *group;
    uint32_t number;
    struct ko_port *ports; /* one per rank, made at first use */
    int nopening;
    int nwaiting;                     /* ports with a waiting peer */
    struct ko_pooled *_Atomic pooled; /* the poller in which it slept last; NULL: never yet */
    bool has_told;                    /* the group's failure */
    bool is_parting;                  /* bye has been said */

    uint64_t seq; /* of the call under way, or of the last one */
    bool is_in_call;
    uint64_t heard;        /* control messages that links have taken in, bells among them */
    uint64_t told_waiting; /* the call of which this rank has left word that it waits in it */
    struct ko_stamp calls[KO_KNOWN_CALLS]; /* that one and those before it, by seq */

    atomic_size_t held; /* bytes that its links hold (link.h); any thread */
    uint64_t sent_seen; /* slices of all links, when ko_channel_give_back looked last */

    int spin_us;     /* KOLO_SPIN_US */
    bool is_trading; /* the call under way (ko_is_traded) */
    bool is_crowded; /* ko_group_is_crowded: leave turns (channel_turns.c) instead of spinning */
};

/* One wait, until the caller finds what it waits for. */
struct ko_wait {
    const ko_deadline *deadline;
    int peer;          /* the rank that is waited for; -1: anybody */
    const char *what;  /* "to send", "for a message": for the time-out's text */
    bool is_for_slice; /* its next one */
    unsigned turns;
    bool is_armed;
    uint64_t heard;        /* when it was armed */
    enum ko_waits message; /* of a user's: KO_WAITS_FOR_MESSAGE or KO_WAITS_TO_SEND; else 0 */
    int tag;               /* of that message; negative: any */
    bool has_left_word;    /* of that */
    bool has_asked;        /* the peer has been told that it is waited for */
    int64_t spin_until_ns; /* 0: to be set by the next turn */
    uint64_t moved;        /* between this rank and the peer, when that was set */
    unsigned nread;        /* times since then that the peer was found at work on a slice of ours */
    int64_t began_ns, store_checked_ns;

    /* NULL, or for the time-out's text: sets `what`, and writes "", or "; " and what the waiter
     * knows more. */
    void (*describe)(struct ko_wait *wait, char *text, size_t nbytes);
};

/* Safe to close after a failure. */
int ko_channel_open(struct ko_channel *channel, kolo_group *group, uint32_t number);
void ko_channel_close(struct ko_channel *channel);

/* Opens the links that other ranks have begun on this channel. */
int ko_channel_answer(struct ko_channel *channel);

/* The link to a peer; begins to open it if that has not been done. */
int ko_channel_link(struct ko_channel *channel, int peer, struct ko_link **link);

/* Begins to open the links to all other ranks, any of which may have something for us. One that
 * cannot be reached any more counts as one that has freed its group. */
int ko_channel_link_all(struct ko_channel *channel);

/* One turn of a wait: call it each time that the caller has looked and found nothing, until it
 * returns an error, which has then failed the group. */
int ko_channel_wait(struct ko_channel *channel, struct ko_wait *wait);

/* The same in pieces, for a caller that lets others use the channel while it sleeps. wait_awake
 * until may_sleep, the caller having looked once more after wait->is_armed; then poll, sleep
 * (this alone while others may come; it returns the number of events, or -1 after ko_fail), woken
 * with what sleep returned, look_around, and from the beginning. Woken has to follow poll. */
int ko_channel_wait_awake(struct ko_channel *channel, struct ko_wait *wait);
/* Whether whatever comes from now on ends a sleep: it is armed, and no bell has been heard since,
 * after which a peer rings no more. It is not armed afterwards. */
bool ko_channel_may_sleep(const struct ko_channel *channel, struct ko_wait *wait);
int ko_channel_poll(struct ko_channel *channel);
int ko_channel_nap_ms(const struct ko_channel *channel, const ko_deadline *deadline);
int ko_channel_sleep(struct ko_channel *channel, int nap_ms, struct ko_event *events, int cap);
int ko_channel_woken(struct ko_channel *channel, const struct ko_event *events, int nevents);
/* Ends the present or the next sleep. Any thread. */
void ko_channel_wake(struct ko_channel *channel);
/* What is rarely to be done: the deadline, a peer that makes another call, word in the store. */
int ko_channel_look_around(struct ko_channel *channel, struct ko_wait *wait);

/* Before the caller looks at one peer's link again and again: takes its socket out of the poller
 * until a thread is about to sleep, since each message tells a poller that it has come. */
void ko_channel_watch_closely(struct ko_channel *channel, int peer);

/* Drives everything once, without waiting. visit: takes in what others have begun, too. */
int ko_channel_turn(struct ko_channel *channel);
int ko_channel_visit(struct ko_channel *channel);

/* Before the group is freed, again and again: says bye, drives what finished calls have left in
 * queues, and throws away what comes meanwhile. Returns a rank to which something is still on its
 * way, or -1. */
int ko_channel_part(struct ko_channel *channel);

/* Before the group is freed, of an open link: throws away what has come, over messages (link.h)
 * slices too, which nobody will receive, but for what ko_mailbox_hear_last wants. KO_AGAIN, or why
 * no more can come. */
int ko_channel_hear_last(struct ko_channel *channel, int peer);

/* Has its links give back what they hold, as far as it is free, if none has sent anything since it
 * looked last, or is_any. */
void ko_channel_give_back(struct ko_channel *channel, bool is_any);

/* Takes in what this peer tells, without waiting. */
int ko_channel_listen(struct ko_channel *channel, int peer);

/* Whether a peer that is lost matters to nobody here: it has freed its group, or it has begun the
 * link itself, and nothing depends on that nor has come by it. Then it may have gone before it had
 * our answer, and could not say bye. */
bool ko_channel_may_lose(struct ko_channel *channel, int peer);

/* An error of a link, with the peer's name, as the group's. */
int ko_channel_link_failed(struct ko_channel *channel, int peer, int status);

/* "", or "; " and the ranks that have left (has_left), each for its reason. */
void ko_channel_describe_gone(const struct ko_channel *channel, char *text, size_t nbytes);

/* " of tag 3", behind what speaks of a message; "" if it may be of any. */
enum { KO_TAG_TEXT = 24 };
void ko_channel_describe_tag(int tag, char text[KO_TAG_TEXT]);

/* Both sides of a mismatch, as the group's error. theirs came from peer. */
int ko_channel_mismatch(struct ko_channel *channel, int peer, const struct ko_stamp *theirs,
                        const struct ko_stamp *ours);

/* A slice of peer's is not of the nbytes that the call expects, as the group's error. */
int ko_channel_lengths_differ(struct ko_channel *channel, int peer, const struct ko_frame *frame,
                              size_t nbytes);

/* Tells all open links of the group's failure, and cuts those to which something is still on its
 * way. The first takes half a second at most; over RDMA the second takes up to five for each peer
 * that answers nothing, as one whose host is without power, one after another. So does close. */
void ko_channel_tell_failure(struct ko_channel *channel);

/* "all_reduce #5 (100 float32, sum)" */
void ko_stamp_describe(const struct ko_stamp *stamp, char *text, size_t nbytes);

/* What is known of a rank's call number seq, if it is one of the last. */
static inline struct ko_stamp *ko_channel_call(struct ko_channel *channel, uint64_t seq)
{
    return &channel->calls[seq % KO_KNOWN_CALLS];
}

/* Compares the call that is entered with those in which peers have long waited for it. */
int ko_channel_compare_waiting(struct ko_channel *channel);

/* Says what the caller is about to do (collectives), so that peers' mismatches show; until
 * ko_channel_leave, also after an error. */
static inline int ko_channel_enter(struct ko_channel *channel, const struct ko_stamp *stamp)
{
    channel->seq = stamp->seq;
    ko_stamp_copy(ko_channel_call(channel, stamp->seq), stamp);
    channel->is_in_call = true;
    return channel->nwaiting ? ko_channel_compare_waiting(channel) : KOLO_OK;
}

/* The rank's word that it waits in a call, or for a message, holds no longer; unless the group has
 * failed, where others may still read it to learn why. */
void ko_channel_take_back(struct ko_channel *channel);

static inline void ko_channel_leave(struct ko_channel *channel)
{
    channel->is_in_call = false;
    if (__builtin_expect(channel->told_waiting == channel->seq, false))
        ko_channel_take_back(channel);
}

#endif
