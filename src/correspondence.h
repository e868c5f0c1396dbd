/* SPDX-License-Identifier: MIT
 *
 * correspondence.h: the messages between this rank and one other: sends under way, receives that
 * wait, and messages that came before their receive. Nothing here blocks; its mailbox's lock guards
 * it.
 *
 * A message that nobody waits for is kept as a parcel. Of a long one only what was on its way is
 * kept: its sender is told to lay it ASIDE and to go on with others, then to RESUME when a receive
 * has been posted, whose buffer the rest goes to. Of one that does not fit its receive the sender
 * is told (REFUSE), who stops if it is still sending. Over messages (link.h) a sender cannot
 * see how far a message has come, and must not have left when it is told of one: a long message
 * asks for a receipt, and of those that do not only a refusal is told, with what goes there next.
 * There the peer's word may travel behind much that the peer sends: who asks for a receipt gives
 * only as much as half of the link's slots carry before it has heard ASIDE or, where a receive
 * waits, RESUME.
 *
 * One that is not long, but more than a slice, is laid aside where there is no room for parcels.
 * In memory that both reach its sender hears so of any, for which it looks once for so many bytes
 * of them (KO_UNHEARD_PART); over messages one of as many asks for an answer (KO_EARLY), TAKEN,
 * that comes even if the message is complete. A sender to a peer without room only announces such
 * messages, as it does long ones, until those it has kept are wanted.
 */
#ifndef KO_CORRESPONDENCE_H
#define KO_CORRESPONDENCE_H

#include "link.h"
#include "mailbox.h"

struct ko_letters {
    struct ko_letter *first, *last;
};

/* What all correspondences of a mailbox share. */
struct ko_desk {
    int rank;                 /* this one */
    struct ko_letters anyone; /* receives from any rank, in the order posted */
    struct ko_letters probes; /* that have found nothing yet */
    uint64_t posted, kept;    /* receives and parcels, for their numbers */
    size_t held_bytes;        /* of parcels */
    size_t nnotes;            /* words that peers are still to be told */
    size_t most_bytes;        /* KOLO_UNEXPECTED_BYTES */
    size_t eager_bytes;       /* KOLO_EAGER_BYTES */
};

struct ko_correspondence {
    struct ko_desk *desk;
    int peer;
    struct ko_letters sending;  /* the first is under way */
    struct ko_letters aside;    /* sends that the peer has no receive for yet */
    struct ko_letters given;    /* to the link, but the receipt has not come */
    struct ko_letters flushing; /* given to the link, which still refers to their buffers */
    struct ko_letters awaited;  /* receives from this rank alone, in the order posted */
    struct ko_parcel *parcels;  /* in the order of arrival, and the last of them */
    struct ko_parcel *last_parcel;
    struct ko_fetch *fetches; /* messages whose places have come (mailbox_gpu.h) */
    struct ko_note *notes;    /* to be told, in this order */
    bool has_more; /* the link may have room for more, or have more, but the peer is to be heard */
    uint64_t listened;      /* slices sent when it was listened for last */
    struct ko_stamp untold; /* a refusal that travels with the next word there; seq 0: none */
    bool is_refusing; /* messages of the peer's, since the last one there: the next is to say so */
    struct ko_stamp refused; /* by the peer, of ours that was complete; seq 0: none */
    uint64_t sent, received; /* messages, for their numbers */
    uint64_t behind;         /* the peer's, for which it was listened last; 0: none */
    uint64_t had_come;       /* slices, when the last long message of ours went */
    bool is_full;            /* the peer: it had no room for a message of ours */
    uint64_t asked;          /* ours that asks whether there is room; 0: none */
    size_t unheard;        /* bytes of medium messages since one has asked, or the peer was heard */
    uint64_t asking;       /* the peer's that asks whether there is room here; 0: none */
    bool has_no_room;      /* there was none */
    int nfinished;         /* letters completed since the mailbox last counted */
    unsigned unlooked;     /* times that nothing was wanted of the peer */
    int64_t copying_ns[2]; /* since when a relay's copy is waited for to send, and to receive; 0 */
    bool gpu_has_failed;   /* this rank's, which is no fault of the link's */
    bool has_left;         /* it has freed its group: what is to be sent stays here */
    bool is_drained;       /* by the last look nothing has been left in the link */

    /* the message whose slices come: at most one of letter and parcel; neither: it is dropped */
    bool is_arriving;
    bool is_landing;    /* a part of the next slice has found its place */
    unsigned char *gpu; /* and where that is in GPU memory; NULL: it is in the host's */
    bool awaits_stream; /* it is to be looked whether that has come to a mark */
    bool is_heard;      /* its sender hears what is told of it */
    bool wants_receipt; /* and waits for one */
    struct ko_letter *letter;
    struct ko_fetch *fetch;     /* the letter's, if what comes is the message's place */
    bool is_place, is_captured; /* it; and the message is, for a graph */
    struct ko_parcel *parcel;
    uint64_t seq;
    int tag;
    size_t arrived, total;
};

/* Takes a letter in; it may be complete at once. One that takes any rank concerns n of them, from
 * `with` on, any other n = 1. */
int ko_correspondence_enter(struct ko_correspondence *with, int n, struct ko_letter *letter);

/* Takes in a send that the link has been given, and is done when it has left: when the link has
 * flushed what it refers to now. */
void ko_correspondence_enter_given(struct ko_correspondence *with, struct ko_letter *letter,
                                   const struct ko_link *link);

/* Moves what can be moved now. A message that no receive waits for stays in the link, which costs
 * nothing, unless that would keep `wanted` from being done; NULL: nothing is wanted. */
int ko_correspondence_drive(struct ko_correspondence *with, struct ko_link *link,
                            const struct ko_letter *wanted);

/* The peer tells of a message that we send. */
int ko_correspondence_hear(struct ko_correspondence *with, const struct ko_link *link,
                           enum ko_frame_kind kind, const struct ko_stamp *stamp);

/* KOLO_OK, or, once, that the peer has refused a message that was complete before. */
int ko_correspondence_refused(struct ko_correspondence *with);

/* Whether the peer may wait for our next long message: it has sent us something since the last. */
static inline bool ko_correspondence_is_awaited(const struct ko_correspondence *with,
                                                const struct ko_link *link)
{
    return with->had_come != link->received;
}

/* True if a letter that needs this peer is not complete. */
bool ko_correspondence_wants(const struct ko_correspondence *with);

/* How many of the peer's messages have come, or been announced, that no receive has asked for, of
 * this tag or of any (KOLO_ANY_TAG); and the first of them. */
size_t ko_correspondence_count_unasked(const struct ko_correspondence *with, int tag,
                                       kolo_message *first);

/* The peer will not hear what it was to be told. */
void ko_notes_drop(struct ko_correspondence *with);

/* Before the peer is told that this rank leaves, after which it hears nothing else, again and
 * again: tells it what is still to be told of its messages. True when it has been, or never will
 * be. */
bool ko_correspondence_part(struct ko_correspondence *with, struct ko_link *link);

/* Completes every letter with this error and the calling thread's text; of a desk, those that take
 * any rank, and returns how many. */
void ko_correspondence_fail(struct ko_correspondence *with, int status);
int ko_desk_fail(struct ko_desk *desk, int status);

/* A probe is given up. */
void ko_desk_remove_probe(struct ko_desk *desk, struct ko_letter *probe);

/* Frees what has come and nobody asked for. */
void ko_correspondence_clear(struct ko_correspondence *with);

#endif
