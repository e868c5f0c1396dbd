/* SPDX-License-Identifier: MIT
 *
 * correspondence_parts.h: what the files of a correspondence have of each other: correspondence.c
 * takes letters in and ends them, correspondence_send.c and correspondence_receive.c move their
 * messages. Nobody else includes this.
 */
#ifndef KO_CORRESPONDENCE_PARTS_H
#define KO_CORRESPONDENCE_PARTS_H

#include "correspondence.h"
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
    bool is_aside;                /* its sender may go on with others, until a receive is posted */
    struct ko_letter *taker;      /* a receive that was posted while it is arriving */
    struct ko_parcel *next;
    unsigned char *data;
};

/* Something the peer is to be told. */
struct ko_note {
    enum ko_frame_kind kind;
    struct ko_stamp stamp;
    struct ko_note *next;
};

/* Bytes of a message that may be given to a link before the peer's word has come. */
static inline size_t ko_unasked_bytes(const struct ko_link *link)
{
    return link->slots * link->longest;
}

/* ---- lists --------------------------------------------------------------------------------- */

void ko_letters_push(struct ko_letters *list, struct ko_letter *letter);
struct ko_letter *ko_letters_pop(struct ko_letters *list);
/* The letter is in the list. */
void ko_letters_remove(struct ko_letters *list, struct ko_letter *letter);
struct ko_letter *ko_letters_find(const struct ko_letters *list, uint64_t seq);

/* ---- correspondence.c ---------------------------------------------------------------------- */

/* Completes a letter, which may go as soon as this has been called. */
void ko_letter_finish(struct ko_correspondence *with, struct ko_letter *letter, int status);

/* What a letter says of its message number seq. */
struct ko_stamp ko_letter_stamp(const struct ko_letter *letter, uint64_t seq);

/* The peer will be told of its message seq; a refusal says what there is room for. */
int ko_note(struct ko_correspondence *with, enum ko_frame_kind kind, uint64_t seq,
            const struct ko_letter *letter);

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
void ko_parcel_free(struct ko_correspondence *with, struct ko_parcel *parcel);

#endif
