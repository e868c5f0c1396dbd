/* SPDX-License-Identifier: MIT
 *
 * explain.h: what kolo-explain knows of one call, gathered first from a game on paper and printed
 * after, in words, as JSON or as a picture. Everything is of elements; bytes are as many times an
 * element's size.
 *
 * Contributions are told apart by keys. Where inputs are reduced, broadcast or scattered, a key is
 * the number of an element, to which one or more ranks contribute; where they are gathered or
 * exchanged, each rank's elements have keys of their own, one rank behind the other. A barrier has
 * one key for each rank: the news that it has come. A part is a range of keys that no message
 * divides; block and share are the caller's division: key / block is a part's block.
 */
#ifndef KO_EXPLAIN_H
#define KO_EXPLAIN_H

#include "paper.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Keys begin..end-1, which have the contributions of the same ranks, one bit each. */
struct ko_trace_run {
    size_t begin, end;
    uint64_t ranks;
};

struct ko_trace_message {
    int from, to;
    size_t count;       /* elements */
    size_t step;        /* from 1 */
    size_t runs, nruns; /* of the trace's: the first, how many */
    size_t taken_as;    /* number of the receiver's doing that takes it */
};

/* A rank sends or takes a message. */
struct ko_trace_doing {
    size_t message;
    bool is_send;
};

struct ko_trace_doings {
    struct ko_trace_doing *list;
    size_t n, cap;
};

struct ko_trace {
    const struct ko_paper_call *call;
    struct ko_paper_report report;
    struct ko_trace_message *messages; /* by step, then by sender */
    size_t nmessages, messages_cap;
    struct ko_trace_run *runs;
    size_t nruns, runs_cap;
    struct ko_trace_doings doings[KO_PAPER_MOST_RANKS]; /* by rank; until they have steps */
    size_t nsteps;
    size_t nkeys, stride, block; /* stride: keys of a rank; block: 0 if the caller makes none */
    size_t *cuts;                /* nparts + 1: where the parts begin, and where the last ends */
    size_t nparts;
};

/* explain_trace.c: plays the call and keeps what was sent, with its steps and parts. The call must
 * outlive the trace. Codes of ko_paper_verify. */
int ko_trace_make(const struct ko_paper_call *call, struct ko_trace *trace);
void ko_trace_free(struct ko_trace *trace);

/* explain_steps.c: gives each message its step and sorts them. In a step a rank sends one message
 * at most and receives one at most, and it sends what it received in earlier steps only. */
int ko_trace_schedule(struct ko_trace *trace);

/* How long that takes, if a step takes as long as its longest message has elements. */
size_t ko_trace_time(const struct ko_trace *trace);

/* ---- what lies where: explain_parts.c ----------------------------------------------------- */

enum { KO_TRACE_TEXT = 320 };

/* Sets nkeys, stride and block, before the game. */
void ko_trace_measure(struct ko_trace *trace);
/* Cuts the keys into parts, after it. KOLO_E_INVALID: too many to follow. */
int ko_trace_cut(struct ko_trace *trace);

bool ko_explain_reduces(const struct ko_paper_call *call);
bool ko_trace_gathers(const struct ko_trace *trace);

bool ko_explain_has_root(enum ko_collective what);

/* The ranks of a set: "0..2, 5". */
void ko_trace_ranks(uint64_t ranks, char text[KO_TRACE_TEXT]);

/* Parts first..last: "chunk 2 (elements 6..8)". */
void ko_trace_name(const struct ko_trace *trace, size_t first, size_t last,
                   char text[KO_TRACE_TEXT]);

/* "chunk", "block", "part", "buffer": what a part is called. */
const char *ko_trace_word(const struct ko_trace *trace);

/* The part that a key lies in. */
size_t ko_trace_part(const struct ko_trace *trace, size_t key);

/* Parts first..last of a message, of the same ranks if they are reduced. */
struct ko_trace_item {
    size_t first, last;
    uint64_t ranks;
};

/* What the message carries, `most` items at most; returns how many there are. */
size_t ko_trace_items(const struct ko_trace *trace, const struct ko_trace_message *message,
                      struct ko_trace_item *items, size_t most);

/* How many parts the message carries. */
size_t ko_trace_count(const struct ko_trace *trace, const struct ko_trace_message *message);

/* Whether the part has a place in the rank's buffers: not so what all_to_all sends past it. */
bool ko_trace_is_at(const struct ko_trace *trace, int rank, size_t part);

/* Who must contribute to a part before it is complete: how many ranks. */
int ko_trace_wanted(const struct ko_trace *trace);

/* have[rank * nparts + part]: whose contributions have come to the rank. Before step 1; freed by
 * free(), NULL without memory: */
uint64_t *ko_trace_begin(const struct ko_trace *trace);
/* and with one message more. */
void ko_trace_arrive(const struct ko_trace *trace, const struct ko_trace_message *message,
                     uint64_t *have);

/* ---- how much, and the least possible: explain_bounds.c ------------------------------------ */

struct ko_figure {
    const char *what;
    size_t elements;
    double whole; /* the same in whole buffers */
    double least; /* in whole buffers; below 0: not known */
};

enum { KO_NFIGURES = 5 };

struct ko_figures {
    struct ko_paper_call call;
    size_t sent[KO_PAPER_MOST_RANKS]; /* elements, by rank */
    size_t whole;                     /* elements of the longest buffer of a rank, S */
    size_t least_steps;
    struct ko_figure list[KO_NFIGURES];
    int n;
};

/* KOLO_E_NOMEM. */
int ko_figures_count(const struct ko_paper_call *call, struct ko_figures *figures);

/* The same for a call of nbytes, as its caller counts, in slices of slice_bytes; an algorithm that
 * takes all blocks in a slice gets one that is as long. Elements are then bytes. */
int ko_figures_weigh(const struct ko_paper_call *call, size_t nbytes, size_t slice_bytes,
                     struct ko_figures *figures);

/* ---- the call: explain_call.c -------------------------------------------------------------- */

enum { KO_EXPLAIN_RANKS = 4 /* if nothing is asked for */ };

/* What is asked for; 0, or -1 for ranks, or NULL stands for what fits. */
struct ko_explain_wish {
    const char *collective, *algorithm;
    const char *hosts; /* "4,2": how many ranks on each */
    int ranks, slots;
    int root, count, slice; /* -1: rank 0, and what fits */
};

/* The row of the wish's names, or the first that suits. KOLO_E_INVALID names what there is. */
int ko_explain_find(const struct ko_explain_wish *wish, const struct ko_paper_text **text);

/* Hosts of so many ranks each, from "4,2"; *n is how many ranks that are. *hosts is to be freed by
 * free(). KOLO_E_INVALID if the text is none of that, or of more than KO_PAPER_MOST_RANKS. */
int ko_explain_hosts(const char *text, int *n, struct ko_hosts **hosts);

/* Makes the call. *hosts, freed by free(), must outlive it; it is NULL for one host. KOLO_E_INVALID
 * names what there is. */
int ko_explain_call(const struct ko_explain_wish *wish, struct ko_paper_call *call,
                    struct ko_hosts **hosts);

/* Proves the call for every root, in place and not, and for counts around the number of ranks and
 * beyond; *nproved is how many calls. */
int ko_explain_prove(const struct ko_paper_call *call, size_t *nproved);

/* Every row of algorithms.h. */
void ko_explain_list(FILE *file);

/* ---- print it ----------------------------------------------------------------------------- */

struct ko_prose {
    const char *text; /* name of a text of kernels/ */
    const char *says; /* the comment above it */
};

/* Made from kernels/ when kolo is built; ends with a row of NULL. */
extern const struct ko_prose ko_prose_rows[];

/* explain_prose.c: the comment above the text of a row of algorithms.h; "" if it has none. */
const char *ko_prose_of(const struct ko_paper_text *row);
/* Why that row is there. */
const char *ko_why_of(const struct ko_paper_text *row);

/* rank -1: of all ranks. bytes: what a call of some bytes moves, NULL: is not said. KOLO_E_NOMEM;
 * what cannot be written is for the caller to ask the file. */
int ko_explain_text(const struct ko_trace *trace, const struct ko_figures *bytes, int rank,
                    FILE *file);
int ko_explain_json(const struct ko_trace *trace, const struct ko_figures *bytes, FILE *file);
int ko_explain_svg(const struct ko_trace *trace, FILE *file);

#endif
