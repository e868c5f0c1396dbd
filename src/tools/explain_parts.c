/* SPDX-License-Identifier: MIT
 *
 * Parts, their names, and whose contributions to them have come to whom.
 */
#include "explain.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CELLS = 1 << 22 }; /* parts times ranks */

/* ---- keys --------------------------------------------------------------------------------- */

bool ko_explain_reduces(const struct ko_paper_call *call)
{
    const enum ko_collective what = call->text->what;

    return what == KO_ALL_REDUCE || what == KO_REDUCE || what == KO_REDUCE_SCATTER;
}

bool ko_trace_gathers(const struct ko_trace *trace)
{
    const enum ko_collective what = trace->call->text->what;

    return what == KO_ALL_GATHER || what == KO_GATHER || what == KO_ALL_TO_ALL;
}

bool ko_explain_has_root(enum ko_collective what)
{
    return what == KO_REDUCE || what == KO_BROADCAST || what == KO_GATHER || what == KO_SCATTER;
}

int ko_trace_wanted(const struct ko_trace *trace)
{
    return ko_explain_reduces(trace->call) ? trace->call->n : 1;
}

void ko_trace_measure(struct ko_trace *trace)
{
    const struct ko_paper_call *call = trace->call;
    const size_t n = (size_t)call->n;

    switch (call->text->what) {
    case KO_ALL_GATHER:
    case KO_GATHER:
        trace->block = trace->stride = call->count;
        trace->nkeys = n * call->count;
        return;
    case KO_ALL_TO_ALL:
        trace->block = call->count;
        trace->stride = n * call->count;
        trace->nkeys = n * n * call->count;
        return;
    case KO_REDUCE_SCATTER:
    case KO_SCATTER:
        trace->block = call->count;
        trace->stride = trace->nkeys = n * call->count;
        return;
    case KO_BARRIER:
        trace->block = trace->stride = 1;
        trace->nkeys = n;
        return;
    default:
        trace->stride = trace->nkeys = call->count;
    }
}

/* ---- parts -------------------------------------------------------------------------------- */

/* Marks where keys are divided; the last mark is the end. */
static void mark_cuts(const struct ko_trace *trace, bool *is_cut)
{
    for (size_t i = 0; i < trace->nruns; i++)
        is_cut[trace->runs[i].begin] = is_cut[trace->runs[i].end] = true;
    for (size_t key = 0; trace->block && key < trace->nkeys; key += trace->block)
        is_cut[key] = true;
    is_cut[0] = is_cut[trace->nkeys] = true;
}

int ko_trace_cut(struct ko_trace *trace)
{
    bool *is_cut = ko_alloc(trace->nkeys + 1, "cuts");
    size_t ncuts = 0;
    int err = KOLO_OK;

    if (!is_cut)
        return KOLO_E_NOMEM;
    mark_cuts(trace, is_cut);
    for (size_t key = 0; key <= trace->nkeys; key++)
        ncuts += is_cut[key];
    if (ncuts > MOST_CELLS / (size_t)trace->call->n)
        err = ko_fail(KOLO_E_INVALID, "%zu parts of %d ranks are too many to follow", ncuts - 1,
                      trace->call->n);
    if (!err && !(trace->cuts = ko_alloc(ncuts * sizeof *trace->cuts, "parts")))
        err = KOLO_E_NOMEM;
    for (size_t key = 0, i = 0; !err && key <= trace->nkeys; key++)
        if (is_cut[key])
            trace->cuts[i++] = key;
    trace->nparts = ncuts - 1;
    free(is_cut);
    return err;
}

size_t ko_trace_part(const struct ko_trace *trace, size_t key)
{
    size_t low = 0, high = trace->nparts;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (trace->cuts[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Whether the part belongs to the item before it. */
static bool continues(const struct ko_trace *trace, const struct ko_trace_item *item, size_t part,
                      uint64_t ranks)
{
    if (trace->call->text->what == KO_ALL_TO_ALL || item->last + 1 != part)
        return false;
    return item->ranks == ranks || !ko_explain_reduces(trace->call);
}

size_t ko_trace_items(const struct ko_trace *trace, const struct ko_trace_message *message,
                      struct ko_trace_item *items, size_t most)
{
    struct ko_trace_item item = {0};
    size_t n = 0;

    for (size_t i = 0; i < message->nruns; i++) {
        const struct ko_trace_run *run = &trace->runs[message->runs + i];

        for (size_t part = ko_trace_part(trace, run->begin);
             part < trace->nparts && trace->cuts[part] < run->end; part++) {
            if (n && continues(trace, &item, part, run->ranks))
                item = (struct ko_trace_item){item.first, part, item.ranks | run->ranks};
            else
                n++, item = (struct ko_trace_item){part, part, run->ranks};
            if (n <= most)
                items[n - 1] = item;
        }
    }
    return n;
}

size_t ko_trace_count(const struct ko_trace *trace, const struct ko_trace_message *message)
{
    size_t n = 0;

    for (size_t i = 0; i < message->nruns; i++) {
        const struct ko_trace_run *run = &trace->runs[message->runs + i];

        n += ko_trace_part(trace, run->end - 1) - ko_trace_part(trace, run->begin) + 1;
    }
    return n;
}

bool ko_trace_is_at(const struct ko_trace *trace, int rank, size_t part)
{
    const size_t index = trace->cuts[part] % trace->stride;

    return trace->call->text->what != KO_ALL_TO_ALL || index / trace->block == (size_t)rank;
}

/* ---- in words ----------------------------------------------------------------------------- */

void ko_trace_ranks(uint64_t ranks, char text[KO_TRACE_TEXT])
{
    size_t used = 0;

    text[0] = '\0';
    for (int first = 0, last; first < 64; first = last + 1) {
        for (last = first; last < 64 && ranks >> last & 1; last++)
            continue;
        if (last == first)
            continue;
        used +=
            (size_t)snprintf(text + used, KO_TRACE_TEXT - used, "%s%d", used ? ", " : "", first);
        if (last - first > 1)
            used += (size_t)snprintf(text + used, KO_TRACE_TEXT - used, "%s%d",
                                     last - first > 2 ? ".." : ", ", last - 1);
    }
}

/* Whether parts are the caller's blocks, undivided. */
static bool are_blocks(const struct ko_trace *trace)
{
    return trace->block && trace->nparts * trace->block == trace->nkeys;
}

const char *ko_trace_word(const struct ko_trace *trace)
{
    if (are_blocks(trace))
        return "block";
    if (trace->nparts == 1)
        return "buffer";
    return trace->nparts == (size_t)trace->call->n ? "chunk" : "part";
}

/* "3", "3..5", "0 for 2" */
static void numbers(const struct ko_trace *trace, size_t first, size_t last,
                    char text[KO_TRACE_TEXT])
{
    const size_t n = (size_t)trace->call->n;

    if (are_blocks(trace) && trace->call->text->what == KO_ALL_TO_ALL && first == last)
        snprintf(text, KO_TRACE_TEXT, "of rank %zu for rank %zu", first / n, first % n);
    else if (first == last)
        snprintf(text, KO_TRACE_TEXT, "%zu", first);
    else
        snprintf(text, KO_TRACE_TEXT, "%zu..%zu", first, last);
}

void ko_trace_name(const struct ko_trace *trace, size_t first, size_t last,
                   char text[KO_TRACE_TEXT])
{
    const size_t begin = trace->cuts[first], end = trace->cuts[last + 1];
    const bool is_exchange = trace->call->text->what == KO_ALL_TO_ALL;
    char which[KO_TRACE_TEXT], where[64];

    numbers(trace, first, last, which);
    if (end - begin == 1)
        snprintf(where, sizeof where, "element %zu", is_exchange ? begin % trace->stride : begin);
    else
        snprintf(where, sizeof where, "elements %zu..%zu",
                 is_exchange ? begin % trace->stride : begin,
                 is_exchange ? (end - 1) % trace->stride : end - 1);
    if (trace->nparts == 1)
        snprintf(text, KO_TRACE_TEXT, "the whole (%s)", where);
    else
        snprintf(text, KO_TRACE_TEXT, "%s%s %.200s (%s)", ko_trace_word(trace),
                 first == last ? "" : "s", which, where);
}

/* ---- who has what ------------------------------------------------------------------------- */

/* Whether the rank has its own contribution to the part in the beginning. */
static bool contributes(const struct ko_trace *trace, int rank, size_t part)
{
    const struct ko_paper_call *call = trace->call;

    if (call->text->what == KO_BROADCAST || call->text->what == KO_SCATTER)
        return rank == call->root;
    if (ko_explain_reduces(trace->call))
        return true;
    return trace->cuts[part] / trace->stride == (size_t)rank;
}

uint64_t *ko_trace_begin(const struct ko_trace *trace)
{
    const size_t n = (size_t)trace->call->n;
    uint64_t *have = ko_alloc(n * trace->nparts * sizeof *have, "what the ranks have");

    for (size_t rank = 0; have && rank < n; rank++)
        for (size_t part = 0; part < trace->nparts; part++)
            if (contributes(trace, (int)rank, part))
                have[rank * trace->nparts + part] = (uint64_t)1 << rank;
    return have;
}

void ko_trace_arrive(const struct ko_trace *trace, const struct ko_trace_message *message,
                     uint64_t *have)
{
    uint64_t *own = have + (size_t)message->to * trace->nparts;

    for (size_t i = 0; i < message->nruns; i++) {
        const struct ko_trace_run *run = &trace->runs[message->runs + i];

        for (size_t part = ko_trace_part(trace, run->begin);
             part < trace->nparts && trace->cuts[part] < run->end; part++)
            own[part] |= run->ranks;
    }
}
