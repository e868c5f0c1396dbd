/* SPDX-License-Identifier: MIT
 *
 * bundle.h: streams to one peer, over several sockets, that carry the messages of one wire. A
 * message travels whole on one of them. They take turns: at both ends alike, each long message
 * hands the turn to the next stream, so order needs no numbers, and while one stream's message is
 * read the others' cross. Short messages stay together.
 *
 * The first stream is the connection that makes the wire. The end that answers it invites the
 * others: its hello says how many there are, a port, and a secret with which alone they are taken.
 * Each stream passes its gate (secret_gate.h) by itself. Not blocking, one thread at a time.
 */
#ifndef KO_BUNDLE_H
#define KO_BUNDLE_H

#include "poller.h"
#include "stream.h"

enum { KO_BUNDLE_MOST = 16 };

struct ko_invitation;

/* Who connects as what, and what is asked of whoever does; the guard is the caller's and stays. */
struct ko_bundle_entry {
    const struct ko_guard *guard;
    struct ko_claim claim;
    bool is_connecting;
};

struct ko_bundle {
    struct ko_stream *streams[KO_BUNDLE_MOST];
    struct ko_bundle_entry entry;
    int n;                   /* streams in use */
    int most;                /* that this end allows */
    int out, in;             /* whose turn it is */
    struct ko_poller poller; /* of all sockets, if there may be more than one */
    int polled[KO_BUNDLE_MOST];
    struct ko_invitation *invitation; /* while others are to come */
};

/* Begins with the first stream's socket, which becomes the bundle's, also after an error. */
int ko_bundle_begin(struct ko_bundle *bundle, int fd, const struct ko_bundle_entry *entry,
                    int most);

/* Closes all sockets and gives the posts back. Safe on what has failed to begin. */
void ko_bundle_end(struct ko_bundle *bundle);

/* The descriptor to wait on, the same from beginning to end, and the KO_POLL_ bits to wait for. */
int ko_bundle_fd(const struct ko_bundle *bundle);
int ko_bundle_wanted(const struct ko_bundle *bundle);

/* Bytes that have come and left. */
uint64_t ko_bundle_moved(const struct ko_bundle *bundle);

/* Lets as many streams join as both ends allow, and says so in the answer, before it leaves.
 * asked: what the other end's hello said. */
int ko_bundle_invite(struct ko_bundle *bundle, int asked, struct ko_hello *answer);

/* Begins the streams to which the answer invites. */
int ko_bundle_join(struct ko_bundle *bundle, const struct ko_hello *answer);

/* KOLO_OK once all streams are there, else KO_AGAIN. most: the longest body of a slice. */
int ko_bundle_gather(struct ko_bundle *bundle, size_t most);

/* To be called when a stream cannot go on, before anybody waits for the descriptor. */
int ko_bundle_settle(struct ko_bundle *bundle);

/* As those of a transport. */
int ko_bundle_send(struct ko_bundle *bundle, struct ko_post *post);
int ko_bundle_next(struct ko_bundle *bundle, size_t most, const struct ko_frame **frame);
int ko_bundle_land(struct ko_bundle *bundle, void *to);
size_t ko_bundle_landed(const struct ko_bundle *bundle);
bool ko_bundle_give(struct ko_bundle *bundle, const struct ko_frame *frame, const void *body,
                    struct ko_post *rest);
bool ko_bundle_take(struct ko_bundle *bundle, struct ko_message *message, void *to, int looks);
int ko_bundle_drive(struct ko_bundle *bundle);
int ko_bundle_deliver(struct ko_bundle *bundle);

#endif
