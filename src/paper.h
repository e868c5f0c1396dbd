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
    KO_PAPER_RECV,             /* OUT[part] = received */
    KO_PAPER_RECV_REDUCE,      /* OUT[part] = received op mine, complete */
    KO_PAPER_RECV_REDUCE_SEND, /* passes on received op mine */
    KO_PAPER_REDUCE_FROM,      /* OUT[part] = slices of a list of ranks; complete if of all */
    KO_PAPER_KEEP,             /* OUT[part] = IN[mine] */
    KO_PAPER_NVERBS
};

/* One verb as one rank carries it out. recv_send and recv_reduce_send_all are two each. */
struct ko_paper_action {
    enum ko_paper_verb verb;
    bool is_out;               /* mine is a part of OUT, else of IN */
    int from, to;              /* ranks; -1: the verb has none */
    struct ko_part mine, part; /* of IN or OUT, of OUT; send has its only part in `mine` */
    const int *ranks;          /* the list of REDUCE_FROM, of the call's hosts; NULL: all */
    int nranks;
};

struct ko_paper_verbs;

/* A text with its body on paper. */
struct ko_paper_text {
    enum ko_collective what;
    const char *name;
    void (*run)(struct ko_paper_verbs *verbs);
    int most_ranks; /* 0: any */
    enum ko_algorithm_hosts hosts;
};

/* The rows of algorithms.h, in its order. */
extern const struct ko_paper_text ko_paper_texts[];
extern const int ko_npaper_texts;

/* One call. n >= 2: the library runs no text for a rank alone. */
struct ko_paper_call {
    const struct ko_paper_text *text;
    int n, root;
    size_t count, slice; /* elements: of the call, in a slot */
    int slots;
    bool is_in_place;             /* in and out lie as kolo.h allows for the collective */
    const struct ko_hosts *hosts; /* where the ranks sit, for texts that ask; must outlive lists */
};

/* What one rank does, in order. */
struct ko_paper_list {
    struct ko_paper_action *actions; /* freed by free() */
    size_t n, cap;
    bool is_cut; /* no memory for more */
};

/* Writes down what rank does in the call. */
int ko_paper_write(const struct ko_paper_call *call, int rank, struct ko_paper_list *list);

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
 * part that was sent by reference can be overwritten before it was received, and the results of an
 * all_reduce are rounded alike on all ranks. Else KOLO_E_INTERNAL; the text says which rank, which
 * verb, which element. KOLO_E_INVALID: more than KO_PAPER_MOST_RANKS, or an impossible call.
 * report may be NULL. */
int ko_paper_verify(const struct ko_paper_call *call, struct ko_paper_report *report);

/* How many elements the rank's in and out have in the call. */
size_t ko_paper_in_count(const struct ko_paper_call *call, int rank);
size_t ko_paper_out_count(const struct ko_paper_call *call, int rank);

#endif
