/* SPDX-License-Identifier: MIT
 *
 * An observer of the game on paper, which keeps each message: who sent it to whom, whose
 * contributions it carried, and which doings of the two ranks it was. Verbs are of no interest
 * here, so that a new one needs no line.
 */
#include "explain.h"

#include "paper_play.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

/* What the observer has beside the trace. */
struct watch {
    struct ko_trace *trace;
    size_t *first, *last; /* by link: the oldest and youngest message that is in it, plus 1 */
    size_t *next;         /* by message: the one behind it in its link, plus 1 */
    size_t next_cap;
    uint64_t heard[KO_PAPER_MOST_RANKS]; /* a barrier's news, by rank */
    bool is_cut;                         /* no memory for more */
};

/* Makes room for one more. */
static bool grow(void *list, size_t n, size_t *cap, size_t nbytes)
{
    void **old = list, *grown;
    size_t wanted = *cap ? 2 * *cap : 256;

    if (n < *cap)
        return true;
    grown = realloc(*old, wanted * nbytes);
    if (!grown)
        return false;
    *old = grown;
    *cap = wanted;
    return true;
}

/* ---- what a message carries --------------------------------------------------------------- */

static bool add_run(struct ko_trace *trace, struct ko_trace_message *message,
                    struct ko_trace_run run)
{
    struct ko_trace_run *last = message->nruns ? &trace->runs[trace->nruns - 1] : NULL;

    if (last && last->end == run.begin && last->ranks == run.ranks) {
        last->end = run.end;
        return true;
    }
    if (!grow(&trace->runs, trace->nruns, &trace->runs_cap, sizeof *trace->runs))
        return false;
    trace->runs[trace->nruns++] = run;
    message->nruns++;
    return true;
}

static bool add_values(struct ko_trace *trace, struct ko_trace_message *message,
                       const struct ko_paper_value *values)
{
    bool is_fine = true;

    for (size_t i = 0; i < message->count && is_fine; i++) {
        const size_t source =
            ko_trace_gathers(trace) ? (size_t)__builtin_ctzll(values[i].ranks) : 0;
        const size_t key = source * trace->stride + values[i].index;

        is_fine = add_run(trace, message, (struct ko_trace_run){key, key + 1, values[i].ranks});
    }
    return is_fine;
}

static bool add_news(struct ko_trace *trace, struct ko_trace_message *message, uint64_t heard)
{
    bool is_fine = true;

    for (size_t rank = 0; heard && is_fine; rank++, heard >>= 1)
        if (heard & 1)
            is_fine =
                add_run(trace, message, (struct ko_trace_run){rank, rank + 1, (uint64_t)1 << rank});
    return is_fine;
}

/* ---- what ranks do ------------------------------------------------------------------------ */

static bool add_doing(struct ko_trace *trace, int rank, size_t message, bool is_send)
{
    struct ko_trace_doings *doings = &trace->doings[rank];

    if (!grow(&doings->list, doings->n, &doings->cap, sizeof *doings->list))
        return false;
    doings->list[doings->n++] = (struct ko_trace_doing){message, is_send};
    return true;
}

static bool see_sent(struct watch *watch, const struct ko_paper_event *event, size_t link)
{
    struct ko_trace *trace = watch->trace;
    const size_t id = trace->nmessages;
    struct ko_trace_message message = {
        .from = event->from, .to = event->to, .count = event->count, .runs = trace->nruns};
    bool is_fine = trace->call->text->what == KO_BARRIER
                       ? add_news(trace, &message, watch->heard[event->from])
                       : add_values(trace, &message, event->values);

    if (!is_fine || !grow(&trace->messages, id, &trace->messages_cap, sizeof *trace->messages) ||
        !grow(&watch->next, id, &watch->next_cap, sizeof *watch->next) ||
        !add_doing(trace, event->from, id, true))
        return false;
    trace->messages[trace->nmessages++] = message;
    watch->next[id] = 0;
    if (watch->first[link])
        watch->next[watch->last[link] - 1] = id + 1;
    else
        watch->first[link] = id + 1;
    watch->last[link] = id + 1;
    return true;
}

static bool see_taken(struct watch *watch, const struct ko_paper_event *event, size_t link)
{
    struct ko_trace *trace = watch->trace;
    const size_t id = watch->first[link] - 1;
    struct ko_trace_message *message = &trace->messages[id];

    watch->first[link] = watch->next[id];
    message->taken_as = trace->doings[event->to].n;
    if (trace->call->text->what == KO_BARRIER)
        for (size_t i = 0; i < message->nruns; i++)
            watch->heard[event->to] |= trace->runs[message->runs + i].ranks;
    return add_doing(trace, event->to, id, false);
}

static void see(void *context, const struct ko_paper_event *event)
{
    struct watch *watch = context;
    const size_t n = (size_t)watch->trace->call->n;
    const size_t link = (size_t)event->from * n + (size_t)event->to;

    if (!watch->is_cut)
        watch->is_cut =
            event->is_sent ? !see_sent(watch, event, link) : !see_taken(watch, event, link);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static int play(struct ko_trace *trace, struct watch *watch)
{
    const struct ko_paper_observer observer = {see, watch};
    struct ko_paper_call call = *trace->call;
    int err;

    call.observer = &observer;
    ko_trace_measure(trace);
    for (int rank = 0; rank < call.n && rank < KO_PAPER_MOST_RANKS; rank++)
        watch->heard[rank] = (uint64_t)1 << rank;
    err = ko_paper_verify(&call, &trace->report);
    if (!err && watch->is_cut)
        err = ko_fail(KOLO_E_NOMEM, "no memory for more than %zu messages", trace->nmessages);
    return err;
}

int ko_trace_make(const struct ko_paper_call *call, struct ko_trace *trace_out)
{
    const size_t nlinks = (size_t)call->n * (size_t)call->n;
    struct ko_trace trace = {.call = call};
    struct watch watch = {.trace = &trace,
                          .first = ko_alloc(nlinks * sizeof *watch.first, "links"),
                          .last = ko_alloc(nlinks * sizeof *watch.last, "links")};
    int err = watch.first && watch.last ? KOLO_OK : KOLO_E_NOMEM;

    if (!err)
        err = play(&trace, &watch);
    if (!err)
        err = ko_trace_cut(&trace);
    if (!err)
        err = ko_trace_schedule(&trace);
    free(watch.first);
    free(watch.last);
    free(watch.next);
    if (err)
        ko_trace_free(&trace);
    else
        *trace_out = trace;
    return err;
}

void ko_trace_free(struct ko_trace *trace)
{
    for (int rank = 0; rank < KO_PAPER_MOST_RANKS; rank++)
        free(trace->doings[rank].list);
    free(trace->messages);
    free(trace->runs);
    free(trace->cuts);
    *trace = (struct ko_trace){0};
}
