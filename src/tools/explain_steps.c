/* SPDX-License-Identifier: MIT
 *
 * Steps. Every rank does what it did in the game, in the same order, but all at the pace of a clock
 * that lets it send one message and receive one in each tick, as the theory of collectives does. A
 * message that finds its receiver busy waits for the next tick; the one that the receiver will take
 * first goes first.
 */
#include "explain.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

struct clock {
    struct ko_trace *trace;
    size_t now;                       /* the step */
    size_t done[KO_PAPER_MOST_RANKS]; /* doings, by rank */
    int *in_link;                     /* messages that hold a slot, by link */
};

static int *link_of(const struct clock *clock, const struct ko_trace_message *message)
{
    return &clock->in_link[message->from * clock->trace->call->n + message->to];
}

/* The rank's next message, if that is what it does next; else NULL. */
static struct ko_trace_message *next_of(const struct clock *clock, int rank, bool is_send)
{
    const struct ko_trace_doings *doings = &clock->trace->doings[rank];
    const size_t done = clock->done[rank];

    if (done == doings->n || doings->list[done].is_send != is_send)
        return NULL;
    return &clock->trace->messages[doings->list[done].message];
}

/* What came in earlier steps is taken at once, when it is its turn. */
static void take(struct clock *clock, int rank)
{
    const struct ko_trace_message *message;

    while ((message = next_of(clock, rank, false)) && message->step && message->step < clock->now) {
        --*link_of(clock, message);
        clock->done[rank]++;
    }
}

/* The rank's message, if nothing but its receiver is in its way. */
static struct ko_trace_message *ready(const struct clock *clock, int rank)
{
    struct ko_trace_message *message = next_of(clock, rank, true);

    return message && *link_of(clock, message) < clock->trace->call->slots ? message : NULL;
}

/* Carries out a step; how many messages went. */
static size_t tick(struct clock *clock)
{
    const int n = clock->trace->call->n;
    struct ko_trace_message *chosen[KO_PAPER_MOST_RANKS] = {NULL}; /* by receiver */
    size_t sent = 0;

    clock->now++;
    for (int rank = 0; rank < n; rank++)
        take(clock, rank);
    for (int rank = 0; rank < n; rank++) {
        struct ko_trace_message *message = ready(clock, rank);
        struct ko_trace_message **best = message ? &chosen[message->to] : NULL;

        if (best && (!*best || message->taken_as < (*best)->taken_as))
            *best = message;
    }
    for (int to = 0; to < n; to++)
        if (chosen[to]) {
            chosen[to]->step = clock->now;
            ++*link_of(clock, chosen[to]);
            clock->done[chosen[to]->from]++;
            sent++;
        }
    return sent;
}

static int compare(const void *a, const void *b)
{
    const struct ko_trace_message *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->from - y->from;
}

int ko_trace_schedule(struct ko_trace *trace)
{
    const size_t nlinks = (size_t)trace->call->n * (size_t)trace->call->n;
    struct clock clock = {.trace = trace, .in_link = ko_alloc(nlinks * sizeof(int), "links")};
    size_t left = trace->nmessages, sent = 1;

    if (!clock.in_link)
        return KOLO_E_NOMEM;
    while (left && sent) {
        sent = tick(&clock);
        left -= sent;
    }
    free(clock.in_link);
    if (left)
        return ko_fail(KOLO_E_INTERNAL, "%zu messages have no step after step %zu", left,
                       clock.now);
    trace->nsteps = clock.now;
    if (trace->nmessages)
        qsort(trace->messages, trace->nmessages, sizeof *trace->messages, compare);
    for (int rank = 0; rank < KO_PAPER_MOST_RANKS; rank++) {
        free(trace->doings[rank].list);
        trace->doings[rank] = (struct ko_trace_doings){0};
    }
    return KOLO_OK;
}

size_t ko_trace_time(const struct ko_trace *trace)
{
    size_t elements = 0, longest = 0;

    for (size_t i = 0; i < trace->nmessages; i++) {
        const struct ko_trace_message *message = &trace->messages[i];

        if (i && message->step != trace->messages[i - 1].step) {
            elements += longest;
            longest = 0;
        }
        if (longest < message->count)
            longest = message->count;
    }
    return elements + longest;
}
