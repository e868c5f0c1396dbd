/* SPDX-License-Identifier: MIT
 *
 * paper.h: the texts of kernels/ carried out on paper. Each rank's run of a text is written down as
 * a list of actions; the lists are then played against one another over links with a given number
 * of slots, and every element is followed from where it began to where it ends. What this proves
 * holds for any timing of the ranks. No thread, no group and no buffer of a user is involved.
 */
#ifndef KO_PAPER_H
#define KO_PAPER_H

#include "algorithms.h"
#include "chunk.h"
#include "hosts.h"
#include "kolo.h"

#include <stdbool.h>

enum ko_paper_verb {
    KO_PAPER_SEND,             /* by reference */
    KO_PAPER_SEND_COPY,        /* the text may change what was sent at once */
    KO_PAPER_RECV,             /* part = received */
    KO_PAPER_RECV_REDUCE,      /* part = received op mine, perhaps complete */
    KO_PAPER_RECV_REDUCE_SEND, /* passes on received op mine */
    KO_PAPER_REDUCE_FROM,      /* part = slices of a list of ranks and mine, perhaps complete */
    KO_PAPER_REDUCE_FROM_SEND, /* passes the same on */
    KO_PAPER_MOVE,             /* part = mine */
    KO_PAPER_SEND_COMB,        /* of TMP */
    KO_PAPER_RECV_COMB,        /* into TMP */
    KO_PAPER_NVERBS
};

/* One verb as one rank carries it out. recv_send and recv_reduce_send_all are two each. */
struct ko_paper_action {
    enum ko_paper_verb verb;
    bool is_complete;
    bool is_lent; /* what is sent comes back to the same part of OUT, where `to` may write it */
    int from, to; /* ranks; -1: the verb has none */
    enum buffer buffer, target; /* of mine, of part */
    struct ko_part mine, part;  /* what is read, what is written; of combs their lengths */
    struct ko_comb comb;
    size_t ranks_at; /* where the list of REDUCE_FROM begins among the list's ranks */
    int nranks;
};

struct ko_paper_verbs;

/* A text with its body on paper. */
struct ko_paper_text {
    enum ko_collective what;
    const char *name;
    void (*run)(struct ko_paper_verbs *verbs);
    unsigned flags; /* enum ko_algorithm_flag */
};

/* The rows of algorithms.h, in its order. */
extern const struct ko_paper_text ko_paper_texts[];
extern const int ko_npaper_texts;

struct ko_paper_value; /* paper_play.h */

/* What an observer is told while a call is played: that a rank sends a message, or has taken one.
 * Each rank's own doings come in their order, whatever the ranks' turns. */
struct ko_paper_event {
    bool is_sent;
    int from, to;
    size_t count;
    const struct ko_paper_value *values; /* in its slot; once taken, perhaps reduced there */
};

struct ko_paper_observer {
    void (*see)(void *context, const struct ko_paper_event *event);
    void *context;
};

/* One call. n >= 2: the library runs no text for a rank alone. */
struct ko_paper_call {
    const struct ko_paper_text *text;
    int n, root;
    size_t count, slice;  /* elements: of the call, in a slot */
    const size_t *counts; /* NULL: all blocks have count elements; else those of block i or, for
                             all_to_all, at i * n + j those from rank i to rank j;
                             count is then 0 */
    int slots;
    bool is_in_place;             /* in and out lie as kolo.h allows for the collective */
    const struct ko_hosts *hosts; /* where the ranks sit, for texts that ask; must outlive lists */
    const struct ko_paper_observer *observer; /* NULL: nobody looks on */
};

/* What one rank does, in order. */
struct ko_paper_list {
    struct ko_paper_action *actions;
    size_t n, cap;
    int *ranks; /* of REDUCE_FROM, one list behind the other */
    size_t nranks, ranks_cap;
    size_t scratch;                       /* elements of TMP */
    bool is_tally;                        /* n and nranks are counted, nothing is kept */
    bool is_cut;                          /* no memory for more */
    const struct ko_paper_reader *reader; /* gets the actions in place of the list */
};

/* Is told what a rank does, action by action; ranks: those that the action lists. */
struct ko_paper_reader {
    void (*read)(void *context, const struct ko_paper_action *action, const int *ranks);
    void *context;
};

/* Writes down what rank does in the call; list is to be freed. */
int ko_paper_write(const struct ko_paper_call *call, int rank, struct ko_paper_list *list);
void ko_paper_free(struct ko_paper_list *list);

/* Tells a reader the same, without the memory for it. */
int ko_paper_tell(const struct ko_paper_call *call, int rank, const struct ko_paper_reader *reader);

/* How many actions and listed ranks that would be, without the memory for them. */
int ko_paper_tally(const struct ko_paper_call *call, int rank, size_t *nactions);

/* "recv from rank 3 into OUT[6..9)" */
void ko_paper_describe(const struct ko_paper_action *action, char *text, size_t nbytes);

enum { KO_PAPER_MOST_RANKS = 64 };

struct ko_paper_report {
    size_t sent[KO_PAPER_MOST_RANKS];      /* elements, by rank */
    size_t sent_away[KO_PAPER_MOST_RANKS]; /* of these, to ranks of other hosts, if the call has
                                              hosts */
    size_t messages;                       /* of all ranks */
    size_t steps; /* messages in the longest chain of which each needs the last */
};

/* Plays the call. KOLO_OK if every element of every output holds each contribution that it should
 * exactly once, sends match receives, nothing can deadlock, nothing lies in a link at the end, no
 * part that was sent by reference can be overwritten before it was received, the results of an
 * all_reduce are rounded alike on all ranks, and nobody leaves a barrier before all have come. Else
 * KOLO_E_INTERNAL; the text says which rank, which verb, which element. KOLO_E_INVALID: more than
 * KO_PAPER_MOST_RANKS, or an impossible call. report may be NULL. */
int ko_paper_verify(const struct ko_paper_call *call, struct ko_paper_report *report);

/* Block i of the rank's in and out, of collectives that have blocks there. */
struct ko_part ko_paper_in_block(const struct ko_paper_call *call, int rank, int i);
struct ko_part ko_paper_out_block(const struct ko_paper_call *call, int rank, int i);

/* How many elements the rank's in and out have in the call. */
size_t ko_paper_in_count(const struct ko_paper_call *call, int rank);
size_t ko_paper_out_count(const struct ko_paper_call *call, int rank);

#endif
