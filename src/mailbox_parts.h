/* SPDX-License-Identifier: MIT
 *
 * mailbox_parts.h: what the files of the mailbox share: mailbox.c makes it and posts letters,
 * mailbox_drive.c moves them, mailbox_report.c says why one has waited in vain. With the mailbox's
 * lock unless said.
 */
#ifndef KO_MAILBOX_PARTS_H
#define KO_MAILBOX_PARTS_H

#include "biased_lock.h"
#include "correspondence.h"
#include "group.h"
#include "mailbox.h"

struct ko_mailbox {
    struct ko_biased_lock lock; /* guards all of this */
    struct ko_channel channel;
    kolo_group *group;
    struct ko_correspondence *with; /* by rank */
    struct ko_desk desk;            /* theirs */
    int first;                      /* the peer that is looked at first */
    bool is_open_to_all;            /* a link to each rank has been begun */
    pthread_cond_t changed;         /* for users */
    bool is_driven;                 /* some thread has the driver's role */
    int nusers;                     /* user threads that wait */
    int nsleepers;                  /* of these: on `changed`, while another thread drives */
    int nopen;                      /* letters not done */

    /* sends that follow each other at once, to one peer */
    int burst_peer;   /* -1: none */
    unsigned burst;   /* how many there have been */
    int64_t burst_ns; /* when the last was posted */
    atomic_int held;  /* the peer for whom the link holds messages; -1: none */

    bool has_courier, is_stopping;
    pthread_cond_t for_courier; /* it is to stop, or has gone, or a user has */
    uint64_t visits;            /* of users: posts and waits */
    int64_t parting_ns;         /* when its rank began to leave; 0: it has not */
    unsigned looks;             /* of users that do not wait */
    int64_t asked_ns;           /* the GPU, last */
};

/* Any thread, without the lock; NULL before the first message. */
static inline struct ko_mailbox *ko_mailbox_existing(kolo_group *group)
{
    return atomic_load_explicit(&group->mailbox, memory_order_acquire);
}

/* The group has failed: tells the peers, then everything ends with the group's error. */
void ko_mailbox_fail_all(struct ko_mailbox *mailbox);

/* Counts what has been finished with a peer, and wakes those who wait for it. */
void ko_mailbox_count_finished(struct ko_mailbox *mailbox, int peer);

/* Moves what can be moved of one peer's letters; of these `wanted`, if any, is waited for. */
int ko_mailbox_drive_peer(struct ko_mailbox *mailbox, int peer, const struct ko_letter *wanted);

/* Moves everything that can be moved. */
int ko_mailbox_drive(struct ko_mailbox *mailbox, const struct ko_letter *wanted);

/* A user's wait for a letter. */
struct ko_letter_wait {
    struct ko_wait wait; /* first */
    const struct ko_mailbox *mailbox;
    const struct ko_letter *letter;
    const struct ko_works *others; /* NULL, or the letter is one of these */
    char what[192];                /* of the wait, once it is described */
};

/* ko_wait.describe, of these. */
void ko_mailbox_describe_wait(struct ko_wait *wait, char *text, size_t nbytes);

/* Fails the group: the receive takes any rank, and there is no other any more. */
int ko_mailbox_fail_alone(struct ko_mailbox *mailbox, const struct ko_letter *receive);

/* ko_mailbox_await; a letter that is done costs a look. */
void ko_mailbox_await_locked(struct ko_mailbox *mailbox, struct ko_letter *letter,
                             const ko_deadline *deadline, const struct ko_works *others);

/* Sees to it that the letter gets on, and peers hear of others, even if nobody waits for it. */
void ko_mailbox_attend(struct ko_mailbox *mailbox, const struct ko_letter *letter);

#endif
