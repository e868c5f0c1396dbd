/* SPDX-License-Identifier: MIT
 *
 * The call for programs; kolo-explain(1) describes the object's members.
 */
#include "explain.h"

#include "coll.h"
#include "json.h"

#include <stdlib.h>

static void print_ranks(uint64_t ranks, FILE *file)
{
    const char *before = "[";

    for (int rank = 0; rank < 64; rank++)
        if (ranks >> rank & 1) {
            fprintf(file, "%s%d", before, rank);
            before = ", ";
        }
    fputs("]", file);
}

/* {"from": 0, "to": 1, "step": 1, "elements": 3, "parts": [{"first": 0, ...}]} */
static void print_message(const struct ko_trace *trace, const struct ko_trace_message *message,
                          FILE *file)
{
    fprintf(file, "{\"step\": %zu, \"from\": %d, \"to\": %d, \"elements\": %zu, \"parts\": [",
            message->step, message->from, message->to, message->count);
    for (size_t i = 0; i < message->nruns; i++) {
        const struct ko_trace_run *run = &trace->runs[message->runs + i];

        fprintf(file, "%s{\"first\": %zu, \"last\": %zu, \"ranks\": ", i ? ", " : "",
                ko_trace_part(trace, run->begin), ko_trace_part(trace, run->end - 1));
        print_ranks(run->ranks, file);
        putc('}', file);
    }
    fputs("]}", file);
}

static void print_list(const struct ko_figures *figures, FILE *file)
{
    fputs("[", file);
    for (int i = 0; i < figures->n; i++) {
        const struct ko_figure *figure = &figures->list[i];

        fprintf(file, "%s    {\"what\": \"%s\", \"elements\": %zu, \"least\": ", i ? ",\n" : "\n",
                figure->what, figure->elements);
        if (figure->least < 0)
            fputs("null}", file);
        else
            fprintf(file, "%.9g}", figure->least * (double)figures->whole);
    }
    fputs(figures->n ? "\n  ]" : "]", file);
}

static int print_figures(const struct ko_trace *trace, FILE *file)
{
    struct ko_figures figures;
    int err = ko_figures_count(trace->call, &figures);

    fprintf(file,
            "  \"least_steps\": %zu,\n  \"whole\": %zu,\n  \"figures\": ", figures.least_steps,
            figures.whole);
    print_list(&figures, file);
    fputs(",\n", file);
    return err;
}

static void print_bytes(const struct ko_figures *bytes, FILE *file)
{
    fprintf(file, "  \"bytes\": {\"count\": %zu, \"slice\": %zu, \"whole\": %zu, \"sent\": [",
            bytes->call.count, bytes->call.slice, bytes->whole);
    for (int rank = 0; rank < bytes->call.n; rank++)
        fprintf(file, "%s%zu", rank ? ", " : "", bytes->sent[rank]);
    fputs("], \"figures\": ", file);
    print_list(bytes, file);
    fputs("},\n", file);
}

/* The host of each rank. */
static void print_hosts(const struct ko_paper_call *call, FILE *file)
{
    fputs("  \"hosts\": [", file);
    for (int rank = 0; rank < call->n; rank++)
        fprintf(file, "%s%d", rank ? ", " : "", call->hosts ? call->hosts->host[rank] : 0);
    fputs("],\n", file);
}

static void print_call(const struct ko_paper_call *call, FILE *file)
{
    fprintf(file, "  \"collective\": \"%s\",\n  \"algorithm\": \"%s\",\n  \"why\": ",
            ko_collective_name(call->text->what), call->text->name);
    ko_json_string(file, ko_why_of(call->text));
    fputs(",\n  \"prose\": ", file);
    ko_json_string(file, ko_prose_of(call->text));
    fprintf(file,
            ",\n  \"ranks\": %d,\n  \"root\": %d,\n  \"count\": %zu,\n  \"slice\": %zu,\n"
            "  \"slots\": %d,\n",
            call->n, call->root, call->count, call->slice, call->slots);
    print_hosts(call, file);
}

int ko_explain_json(const struct ko_trace *trace, const struct ko_figures *bytes, FILE *file)
{
    int err;

    fputs("{\n", file);
    print_call(trace->call, file);
    fprintf(file, "  \"parts\": %zu,\n  \"steps\": %zu,\n  \"chain\": %zu,\n", trace->nparts,
            trace->nsteps, trace->report.steps);
    err = print_figures(trace, file);
    if (bytes)
        print_bytes(bytes, file);
    fputs("  \"messages\": [", file);
    for (size_t i = 0; i < trace->nmessages; i++) {
        fputs(i ? ",\n    " : "\n    ", file);
        print_message(trace, &trace->messages[i], file);
    }
    fputs("\n  ]\n}\n", file);
    return err;
}
