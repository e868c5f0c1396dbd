/* SPDX-License-Identifier: MIT
 *
 * The call in words. What a receiver does with a message is told from what it has afterwards, not
 * from its verb.
 */
#include "explain.h"

#include "coll.h"
#include "options.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 98, MOST_ITEMS = 8 };

/* ---- the heading -------------------------------------------------------------------------- */

/* A paragraph of lines of at most WIDTH, of which all but the first are indented further. */
static void print_wrapped(FILE *file, const char *text, int further)
{
    int column = 0, indent = 2;

    while (*text) {
        const int length = (int)strcspn(text, " ");

        if (column && column + 1 + length > WIDTH) {
            putc('\n', file);
            column = 0;
            indent = 2 + further;
        }
        column += fprintf(file, "%*s%.*s", column ? 1 : indent, "", length, text);
        text += length + (text[length] == ' ');
    }
    putc('\n', file);
}

static void print_hosts(const struct ko_hosts *hosts, FILE *file)
{
    fputs("  Hosts:", file);
    for (int host = 0; host < hosts->n; host++) {
        uint64_t ranks = 0;
        char text[KO_TRACE_TEXT];

        for (int place = 0; place < host_size(hosts, host); place++)
            ranks |= (uint64_t)1 << rank_at(hosts, host, place);
        ko_trace_ranks(ranks, text);
        fprintf(file, "%s %s", host ? " |" : " ranks", text);
    }
    fputs(".\n", file);
}

static void print_sizes(const struct ko_trace *trace, FILE *file)
{
    const struct ko_paper_call *call = trace->call;

    if (trace->call->text->what == KO_BARRIER) {
        fputs("  Messages are empty: that they come is the news.\n", file);
        return;
    }
    fprintf(file, "  The call is of %zu element%s", call->count, call->count == 1 ? "" : "s");
    if (trace->nparts > 1)
        fprintf(file, ", which travel in %zu %ss", trace->nparts, ko_trace_word(trace));
    fprintf(file, "; a slot carries %zu, a link has %d slots.\n", call->slice, call->slots);
}

static void print_heading(const struct ko_trace *trace, FILE *file)
{
    const struct ko_paper_call *call = trace->call;
    const char *prose = ko_prose_of(call->text);

    fprintf(file, "%s by %s, %d ranks", ko_collective_name(call->text->what), call->text->name,
            call->n);
    if (ko_explain_has_root(call->text->what))
        fprintf(file, ", root %d", call->root);
    fprintf(file, ": %s\n\n", ko_why_of(call->text));
    if (*prose) {
        print_wrapped(file, prose, 0);
        putc('\n', file);
    }
    print_sizes(trace, file);
    if (call->hosts && call->hosts->n > 1)
        print_hosts(call->hosts, file);
    fputs("  In a step, each rank sends one message at most and receives one at most.\n", file);
}

/* ---- the steps ---------------------------------------------------------------------------- */

/* "input of rank 0", "sum of ranks 0..2", "the whole sum" */
static void print_share(const struct ko_trace *trace, uint64_t ranks, FILE *file)
{
    const int n = __builtin_popcountll(ranks);
    char text[KO_TRACE_TEXT];

    ko_trace_ranks(ranks, text);
    if (n == trace->call->n)
        fputs(", the sum of all", file);
    else
        fprintf(file, n == 1 ? ", input of rank %s" : ", sum of ranks %s", text);
}

static void print_items(const struct ko_trace *trace, const struct ko_trace_message *message,
                        FILE *file)
{
    struct ko_trace_item items[MOST_ITEMS];
    const size_t n = ko_trace_items(trace, message, items, MOST_ITEMS);
    char name[KO_TRACE_TEXT];

    for (size_t i = 0; i < n && i < MOST_ITEMS; i++) {
        ko_trace_name(trace, items[i].first, items[i].last, name);
        fprintf(file, "%s%s", i ? "; " : "", name);
        if (ko_explain_reduces(trace->call))
            print_share(trace, items[i].ranks, file);
    }
    if (n > MOST_ITEMS)
        fprintf(file, "; %zu more", n - MOST_ITEMS);
    if (!n)
        fputs("nothing: it only keeps the ranks in step", file);
}

static void print_news(const struct ko_trace *trace, const struct ko_trace_message *message,
                       FILE *file)
{
    uint64_t ranks = 0;
    char text[KO_TRACE_TEXT];

    for (size_t i = 0; i < message->nruns; i++)
        ranks |= trace->runs[message->runs + i].ranks;
    ko_trace_ranks(ranks, text);
    fprintf(file, "tells that %s ha%s come", text, ranks & (ranks - 1) ? "ve" : "s");
}

/* What the receiver makes of it: how much of the sum it then has, if it is the same for all parts
 * of the message. */
static void print_effect(const struct ko_trace *trace, const struct ko_trace_message *message,
                         const uint64_t *have, FILE *file)
{
    const uint64_t *own = have + (size_t)message->to * trace->nparts;
    int n = 0;

    for (size_t i = 0; i < message->nruns; i++) {
        const size_t part = ko_trace_part(trace, trace->runs[message->runs + i].begin);
        const int here = __builtin_popcountll(own[part]);

        if (n && n != here)
            return;
        n = here;
    }
    if (n == trace->call->n)
        fprintf(file, "; rank %d then has it all", message->to);
    else if (n)
        fprintf(file, "; rank %d then has %d of %d", message->to, n, trace->call->n);
}

/* The same of a barrier. */
static void print_knowledge(const struct ko_trace *trace, const struct ko_trace_message *message,
                            const uint64_t *have, FILE *file)
{
    const uint64_t *own = have + (size_t)message->to * trace->nparts;
    int n = 0;

    for (size_t part = 0; part < trace->nparts; part++)
        n += own[part] != 0;
    fprintf(file, "; rank %d then knows of %d of %d", message->to, n, trace->call->n);
}

static void print_sentence(const struct ko_trace *trace, const struct ko_trace_message *message,
                           const uint64_t *have, FILE *file)
{
    fprintf(file, "rank %d -> rank %d: ", message->from, message->to);
    if (trace->call->text->what == KO_BARRIER) {
        print_news(trace, message, file);
        print_knowledge(trace, message, have, file);
    } else {
        print_items(trace, message, file);
        if (ko_explain_reduces(trace->call))
            print_effect(trace, message, have, file);
    }
}

static int print_message(const struct ko_trace *trace, const struct ko_trace_message *message,
                         const uint64_t *have, FILE *file)
{
    char *sentence = NULL;
    size_t nbytes;
    FILE *memory = open_memstream(&sentence, &nbytes);

    if (!memory)
        return ko_fail(KOLO_E_NOMEM, "no memory for a line");
    print_sentence(trace, message, have, memory);
    if (fclose(memory)) {
        free(sentence);
        return ko_fail(KOLO_E_NOMEM, "no memory for a line");
    }
    print_wrapped(file, sentence, 4);
    free(sentence);
    return KOLO_OK;
}

/* Where the step of message `first` ends. */
static size_t end_of_step(const struct ko_trace *trace, size_t first)
{
    size_t end = first;

    while (end < trace->nmessages && trace->messages[end].step == trace->messages[first].step)
        end++;
    return end;
}

/* The messages of a step, all at once: first..end-1. */
static int print_step(const struct ko_trace *trace, size_t first, size_t end, int rank,
                      uint64_t *have, FILE *file)
{
    bool is_new = true;
    int err = KOLO_OK;

    for (size_t i = first; i < end; i++)
        ko_trace_arrive(trace, &trace->messages[i], have);
    for (size_t i = first; i < end && !err; i++) {
        const struct ko_trace_message *message = &trace->messages[i];

        if (rank >= 0 && message->from != rank && message->to != rank)
            continue;
        if (is_new)
            fprintf(file, "\nstep %zu\n", message->step);
        is_new = false;
        err = print_message(trace, message, have, file);
    }
    return err;
}

/* ---- the totals --------------------------------------------------------------------------- */

static int print_totals(const struct ko_trace *trace, FILE *file)
{
    struct ko_figures figures;
    int err = ko_figures_count(trace->call, &figures);

    if (err)
        return err;
    if (figures.whole)
        fprintf(file, "\ntotals; S is the longest buffer of a rank, %zu elements\n", figures.whole);
    else
        fputs("\ntotals\n", file);
    fprintf(file, "  %-34s %8zu           at least %zu\n", "steps", trace->nsteps,
            figures.least_steps);
    fprintf(file, "  %-34s %8zu\n", "messages in the longest chain", trace->report.steps);
    fprintf(file, "  %-34s %8zu\n", "messages of all ranks", trace->nmessages);
    for (int i = 0; i < figures.n; i++) {
        const struct ko_figure *figure = &figures.list[i];

        fprintf(file, "  %-34s %8zu = %5.2f S", figure->what, figure->elements, figure->whole);
        if (figure->least >= 0)
            fprintf(file, ", at least %.2f S", figure->least);
        putc('\n', file);
    }
    return KOLO_OK;
}

static void print_bytes(const char *what, double nbytes, double least, FILE *file)
{
    char much[KO_BYTES_TEXT], bound[KO_BYTES_TEXT];

    ko_bytes_text(nbytes, much);
    ko_bytes_text(least, bound);
    fprintf(file, "  %-34s %14.0f = %8s", what, nbytes, much);
    if (least >= 0)
        fprintf(file, ", at least %s", bound);
    putc('\n', file);
}

/* A line for all ranks that send as much as each other. */
static void print_senders(const struct ko_figures *bytes, FILE *file)
{
    uint64_t done = 0;

    for (int rank = 0; rank < bytes->call.n; rank++) {
        char ranks[KO_TRACE_TEXT], what[KO_TRACE_TEXT + 16];
        uint64_t equal = 0;

        for (int other = rank; other < bytes->call.n; other++)
            if (bytes->sent[other] == bytes->sent[rank])
                equal |= (uint64_t)1 << other;
        if (done >> rank & 1)
            continue;
        done |= equal;
        ko_trace_ranks(equal, ranks);
        snprintf(what, sizeof what, "sent by rank%s %s", equal & (equal - 1) ? "s" : "", ranks);
        print_bytes(what, (double)bytes->sent[rank], -1, file);
    }
}

static void print_weights(const struct ko_figures *bytes, FILE *file)
{
    char call[KO_BYTES_TEXT], whole[KO_BYTES_TEXT], slice[KO_BYTES_TEXT];

    ko_bytes_text((double)bytes->call.count, call);
    ko_bytes_text((double)bytes->whole, whole);
    ko_bytes_text((double)bytes->call.slice, slice);
    fprintf(file, "\nin bytes, if the call is of %s, in slices of %s; S is %s\n", call, slice,
            whole);
    for (int i = 0; i < bytes->n; i++)
        print_bytes(bytes->list[i].what, (double)bytes->list[i].elements,
                    bytes->list[i].least < 0 ? -1 : bytes->list[i].least * (double)bytes->whole,
                    file);
    print_senders(bytes, file);
}

int ko_explain_text(const struct ko_trace *trace, const struct ko_figures *bytes, int rank,
                    FILE *file)
{
    uint64_t *have = ko_trace_begin(trace);
    int err = have ? KOLO_OK : KOLO_E_NOMEM;

    if (!err)
        print_heading(trace, file);
    for (size_t i = 0, end; i < trace->nmessages && !err; i = end) {
        end = end_of_step(trace, i);
        err = print_step(trace, i, end, rank, have, file);
    }
    if (!err)
        err = print_totals(trace, file);
    if (!err && bytes)
        print_weights(bytes, file);
    free(have);
    return err;
}
