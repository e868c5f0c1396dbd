/* SPDX-License-Identifier: MIT
 *
 * mailbox.h: a group's point-to-point messages on this rank: what is being sent, what is waited
 * for, and what has come that nobody has asked for yet. Messages of one peer arrive in the order in
 * which they were sent and are matched by tag with receives in the order in which those were
 * posted, whether these name a rank and a tag or take any. Any thread.
 */
#ifndef KO_MAILBOX_H
#define KO_MAILBOX_H

#include "channel.h"
#include "work.h"

struct ko_endpoint;
struct ko_mailbox;
struct ko_placed;
struct ko_gpu_relay;

/* One send, receive or probe. Embedded in a work, or on the stack of a blocking call. */
struct ko_letter {
    struct kolo_work work; /* first: a letter is a work */
    kolo_group *group;
    int peer, tag; /* receives and probes: perhaps any */
    kolo_dtype dtype;
    bool is_send;
    bool is_probe;   /* like a receive that leaves the message where it is */
    bool may_wait;   /* a send that others may follow */
    bool has_begun;  /* sending: its first slice has been given */
    bool is_awaited; /* sending: somebody may wait for it */
    bool is_aside;   /* sending: the peer has no receive for it yet */
    bool is_wanted;  /* sending: the peer has said that it takes it in */
    bool is_behind;  /* sending: a refusal is told before it */
    bool is_refused; /* sending: the peer's receive has not room for it, but for this: */
    kolo_dtype refused_dtype;
    size_t refused_room;
    bool is_refused_captured;   /* which is captured for a graph */
    unsigned char *buffer;      /* only read when sending */
    size_t nbytes;              /* of the message, or of the room for it */
    kolo_message *message;      /* receiving: what was received, unless NULL */
    struct ko_placed *placed;   /* mailbox_gpu.h; NULL: it has to do with the buffer alone */
    struct ko_held *held;       /* sending: the buffer lies there, in GPU memory; else NULL */
    struct ko_gpu_relay *relay; /* the buffer is GPU memory, by that (gpu_relay.h); else NULL */
    uint8_t asks;               /* sending: KO_RECEIPT or KO_EARLY of one that is not long, or 0 */
    size_t moved;               /* sending: bytes given to the link */
    uint64_t flushed_at;        /* sending: done when the link has flushed as many slices */
    uint64_t seq; /* sending: of the messages to the peer; receiving: of all receives */
    struct ko_letter *next;
};

/* What a message's stamp says of it in one word. */
static inline uint64_t ko_message_call(int tag, kolo_dtype dtype)
{
    return (uint32_t)tag | (uint64_t)KO_POINT_TO_POINT << 32 | (uint64_t)dtype << 40;
}

/* And the whole of it. */
static inline struct ko_stamp ko_message_stamp(uint64_t seq, int tag, kolo_dtype dtype,
                                               size_t nbytes)
{
    return (struct ko_stamp){.seq = seq, .count = nbytes, .call = ko_message_call(tag, dtype)};
}

/* Posts the letter and does what can be done now; it gets on even if nobody waits for it. It must
 * not move or go until it is done. */
int ko_mailbox_post(struct ko_letter *letter);

/* For a message, or a slot, before a letter is made: of one that waits for it, and of one that goes
 * on, who looks for less time than a letter takes. */
enum { KO_LOOKS_OF_A_WAITER = 64, KO_LOOKS_OF_A_PASSER = 8 };

/* Sends a message if it can go at once, or receives it if it is there or comes: its slot, or the
 * message, is looked for `looks` times. KO_AGAIN, or false: nothing was done, it takes a letter.
 * call is of ko_message_call; a message that is received says its call and its room, to be told its
 * nbytes. */
// NOLINTNEXTLINE(readability-function-size): in registers, which a struct is not
int ko_mailbox_send(kolo_group *group, int to, uint64_t call, const void *from, size_t nbytes,
                    int looks);
bool ko_mailbox_receive(kolo_group *group, int from, struct ko_message *message, void *to,
                        int looks);

/* Posts a copy of the letter, which is the work and stays until that goes. */
int ko_mailbox_start(const struct ko_letter *letter, kolo_work **work);

/* Posts these letters and waits until all that were posted are done: *nposted, all if the result is
 * KOLO_OK. */
int ko_mailbox_exchange(struct ko_letter *letters, size_t nletters, size_t *nposted);

/* Sends at once what has been held back so that several messages go together. */
void ko_mailbox_push(kolo_group *group);

/* Waits until the letter is done, or another of the mailbox's among `others` (NULL: none matter),
 * or the deadline (NULL: none but the group's own limit). Past that limit the group fails. */
void ko_mailbox_await(struct ko_letter *letter, const ko_deadline *deadline,
                      const struct ko_works *others);

/* Posts a probe and waits until it is done, or the deadline (NULL: the group's own limit, past
 * which the group fails); then *found says whether there is a message. */
int ko_mailbox_probe(struct ko_letter *probe, const ko_deadline *deadline, bool *found);

/* A peer tells of a message of ours. For whoever uses the channel. */
int ko_mailbox_hear(struct ko_channel *channel, int peer, const struct ko_notice *notice);

/* The same, before the group is freed, of any channel: what matters even then. */
void ko_mailbox_hear_last(struct ko_channel *channel, int peer, const struct ko_notice *notice);

/* Opens links that other ranks have begun for messages, in all groups over the endpoint, without
 * waiting: who sends is not kept waiting by a rank that is busy in another group. */
void ko_mailbox_answer_all(struct ko_endpoint *endpoint);

/* ko_channel_give_back, of a group's messages, unless another thread is at them. */
void ko_mailbox_give_back(kolo_group *group, bool is_any);

/* Tells the peers that the group has failed; `try` does not if another thread uses the mailbox,
 * which is woken, and tells them itself unless it has looked for failures for the last time: false
 * then. */
void ko_mailbox_tell_failure(kolo_group *group);
bool ko_mailbox_try_tell_failure(kolo_group *group);

/* In a child of fork, before any other call: nothing will be told of the group's failure. */
void ko_mailbox_silence(kolo_group *group);

/* True if a letter is not done. */
bool ko_mailbox_is_busy(kolo_group *group);

/* ko_channel_part, of the messages. */
int ko_mailbox_part(kolo_group *group);

/* Fails what is not done, frees. */
void ko_mailbox_free(kolo_group *group);

#endif
