/* SPDX-License-Identifier: MIT
 *
 * correspondence_parts.h: what the files of a correspondence have of each other: correspondence.c
 * takes letters in and ends them, correspondence_send.c and correspondence_receive.c move their
 * messages, correspondence_parcels.c keeps those that no receive waits for. Nobody else includes
 * this.
 */
#ifndef KO_CORRESPONDENCE_PARTS_H
#define KO_CORRESPONDENCE_PARTS_H

#include "correspondence.h"
#include "gpu_relay.h"
#include "mailbox_gpu.h"

/* A message that came, or began to come, before its receive was posted. */
struct ko_parcel {
    uint64_t number; /* among all of the mailbox, in the order of arrival */
    uint64_t seq;    /* among the sender's messages to this rank */
    int tag;
    kolo_dtype dtype;
    size_t nbytes; /* that the sender has announced */
    size_t arrived;
    size_t room;   /* of data, which grows with what arrives: an announcement takes no memory */
    bool is_whole; /* it has arrived */
    bool is_heard, wants_receipt; /* as in struct ko_correspondence */
    bool is_place;                /* it is not the message, but says where that lies */
    bool is_captured;             /* and the message goes in a graph */
    bool is_aside;                /* its sender may go on with others, until a receive is posted */
    struct ko_letter *taker;      /* a receive that was posted while it is arriving */
    struct ko_parcel *next;
    unsigned char *data;
};

/* Something the peer is to be told. */
struct ko_note {
    enum ko_frame_kind kind;
    struct ko_stamp stamp;
    bool is_told; /* the link has it, though perhaps not out yet */
    struct ko_note *next;
};

/* The part of KOLO_UNEXPECTED_BYTES that may go to a peer without a word of its memory; and how
 * much is held beyond them at most, for what was on its way when its sender was told. */
enum { KO_UNHEARD_PART = 32, KO_BEYOND_PART = 2 };

/* Bytes of a message that may be given to a link before the peer's word has come, and that the peer
 * may have to keep: what all slots hold, or half of those of messages. */
static inline size_t ko_unasked_bytes(const struct ko_link *link)
{
    return link->slots * link->longest / (link->posts ? 2 : 1);
}

/* ---- lists --------------------------------------------------------------------------------- */

void ko_letters_push(struct ko_letters *list, struct ko_letter *letter);
struct ko_letter *ko_letters_pop(struct ko_letters *list);
/* The letter is in the list. */
void ko_letters_remove(struct ko_letters *list, struct ko_letter *letter);
struct ko_letter *ko_letters_find(const struct ko_letters *list, uint64_t seq);

/* ---- correspondence.c ---------------------------------------------------------------------- */

/* What this rank's GPU says to a message, as it is. That a peer says what cannot be is no fault of
 * the GPU's. */
static inline int ko_hear_gpu(struct ko_correspondence *with, int err)
{
    with->gpu_has_failed |= err == KOLO_E_SYSTEM || err == KOLO_E_NOMEM;
    return err;
}

/* Completes a letter, which may go as soon as this has been called. */
void ko_letter_finish(struct ko_correspondence *with, struct ko_letter *letter, int status);

/* The peer will be told of its message seq. */
int ko_note(struct ko_correspondence *with, enum ko_frame_kind kind, uint64_t seq);

/* As ko_note; has_no_room: to keep more messages in. */
int ko_note_room(struct ko_correspondence *with, enum ko_frame_kind kind, uint64_t seq,
                 bool has_no_room);

/* The peer will be told that the receive does not take its message: now if it is heard, which it is
 * if the peer still sends or waits for word, or in memory that both reach, else with the next that
 * the peer is sent or told. is_over: the peer does neither any more. */
int ko_refuse(struct ko_correspondence *with, const struct ko_stamp *message,
              const struct ko_letter *receive, bool is_heard, bool is_over);

/* Tells what can be told now. */
int ko_notes_tell(struct ko_correspondence *with, struct ko_link *link);

/* ---- correspondence_send.c ------------------------------------------------------------------ */

int ko_send_drive(struct ko_correspondence *with, struct ko_link *link);
/* Completes the sends that the link no longer refers to. */
void ko_send_finish(struct ko_correspondence *with, struct ko_link *link);

/* ---- correspondence_receive.c --------------------------------------------------------------- */

int ko_receive_drive(struct ko_correspondence *with, struct ko_link *link,
                     const struct ko_letter *wanted);
/* Goes on with messages whose places have come. */
int ko_receive_fetch(struct ko_correspondence *with);
/* Takes a receive or a probe in. */
int ko_receive_enter(struct ko_correspondence *with, int n, struct ko_letter *letter);

/* Whether a message of this tag is one for the receive, or the probe. */
bool ko_letter_takes(const struct ko_letter *letter, int tag);
/* KOLO_OK, or why this message cannot go into this receive. */
int ko_letter_fits(const struct ko_correspondence *with, const struct ko_letter *letter, int tag,
                   kolo_dtype dtype, size_t nbytes, bool is_captured);
/* Of what one rank captures for a graph and the other does not. */
int ko_fail_half_captured(int tag, int captures, int does_not);
/* Completes a receive whose message is in its buffer, or a probe. */
void ko_letter_deliver(struct ko_correspondence *with, struct ko_letter *letter, int tag,
                       kolo_dtype dtype, size_t nbytes);

/* What the parcel, or the stamp, says of a message that is fetched; NULL: no memory. */
struct ko_fetch *ko_fetch_new(struct ko_letter *letter, uint64_t seq, int tag, kolo_dtype dtype,
                              size_t nbytes);
/* Its place has come; ko_receive_fetch goes on with it. */
void ko_fetch_push(struct ko_correspondence *with, struct ko_fetch *fetch);

/* ---- correspondence_parcels.c --------------------------------------------------------------- */

/* Whether KOLO_UNEXPECTED_BYTES has no room for nbytes more. */
bool ko_parcel_lacks_room(const struct ko_desk *desk, size_t nbytes);
/* Makes a parcel for the arriving message; a long one, or one that there is no room for, is laid
 * aside by its sender unless that was its sender's own idea. */
int ko_parcel_keep(struct ko_correspondence *with, const struct ko_frame *frame);
/* A message that cannot be fetched is to be sent, to the fetch's receive. */
int ko_parcel_ask_for(struct ko_correspondence *with, const struct ko_fetch *fetch);
/* Makes room for its first `needed` bytes. */
int ko_parcel_make_room(struct ko_correspondence *with, struct ko_parcel *parcel, size_t needed);
/* The parcel that came first, of n correspondences; *from is that of its sender. */
struct ko_parcel *ko_parcel_find(struct ko_correspondence *with, int n,
                                 const struct ko_letter *letter, struct ko_correspondence **from);
/* A receive gets a message that has come, or begun to come, before it. */
int ko_parcel_hand_over(struct ko_correspondence *with, struct ko_parcel *parcel,
                        struct ko_letter *letter);
/* What comes from now on goes into the receive's own buffer. A slice that has come in part goes to
 * its end where it began. */
void ko_parcel_redirect(struct ko_correspondence *with, struct ko_parcel *parcel);
/* It has arrived: its receive, if one has been posted, gets it. */
int ko_parcel_end(struct ko_correspondence *with, struct ko_parcel *parcel);
void ko_parcel_free(struct ko_correspondence *with, struct ko_parcel *parcel);

#endif
