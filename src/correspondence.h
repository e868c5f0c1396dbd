/* SPDX-License-Identifier: MIT
 *
 * correspondence.h: the messages between this rank and one other: sends under way, receives that
 * wait, and messages that came before their receive. Nothing here blocks; its mailbox's lock guards
 * it.
 */
#ifndef KO_CORRESPONDENCE_H
#define KO_CORRESPONDENCE_H

#include "link.h"
#include "mailbox.h"

struct ko_letters {
    struct ko_letter *first, *last;
};

struct ko_correspondence {
    struct ko_letters sending;  /* the first is under way */
    struct ko_letters flushing; /* given to the link, which still refers to their buffers */
    struct ko_letters awaited;  /* receives, in the order posted */
    struct parcel *parcels;     /* in the order of arrival */
    uint64_t sent, received;    /* messages, for their numbers */
    int nfinished;              /* letters completed since the mailbox last counted */
    unsigned unlooked;          /* times that nothing was wanted of the peer */

    /* the message that is arriving: at most one of letter and parcel */
    bool is_arriving;
    struct ko_letter *letter;
    struct parcel *parcel;
    size_t arrived, total;
};

/* What most short messages between windows need: a send that the link copies at once, or a receive
 * whose message has come whole. True: the letter's message is through, and the letter was never
 * taken in. False: nothing was done, take it in. */
bool ko_correspondence_pass(struct ko_correspondence *with, struct ko_link *link,
                            const struct ko_letter *letter);

/* Takes a letter in; it may be complete at once. */
void ko_correspondence_enter(struct ko_correspondence *with, struct ko_letter *letter);

/* Moves what can be moved now. A message that no receive waits for stays in the link, which costs
 * nothing, unless that would keep `wanted` from being done; NULL: nothing is wanted. */
int ko_correspondence_drive(struct ko_correspondence *with, struct ko_link *link,
                            const struct ko_letter *wanted);

/* True if a letter is not complete. */
bool ko_correspondence_wants(const struct ko_correspondence *with);

/* Completes every letter with this error and the calling thread's text. */
void ko_correspondence_fail(struct ko_correspondence *with, int status);

/* Frees what has come and nobody asked for. */
void ko_correspondence_clear(struct ko_correspondence *with);

#endif
