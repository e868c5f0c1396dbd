/* SPDX-License-Identifier: MIT
 *
 * kolo-explain: shows what an algorithm does, step by step, or how long all of them would take.
 * This file reads the command line; explain.h and forecast.h are the rest.
 */
#include "explain.h"
#include "forecast.h"

#include "kolo.h"
#include "options.h"
#include "status.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXIT_FINE = 0,
    EXIT_WRONG = 1,
    EXIT_SELF = 125,
    MOST_COUNT = 4096,
    LEAST_SLOTS = 2,
    MOST_SLOTS = 64,
    MOST_CORES = 65536
};

enum key {
    KEY_SVG = 256,
    KEY_JSON,
    KEY_LIST,
    KEY_VERIFY,
    KEY_ROOT,
    KEY_RANK,
    KEY_COUNT,
    KEY_SLICE,
    KEY_SLOTS,
    KEY_HOSTS,
    KEY_SIMULATE,
    KEY_BYTES,
    KEY_PER_HOST,
    KEY_CORES,
    KEY_COSTS
};

static const struct argp_option option_list[] = {
    {"algo", 'a', "NAME", 0,
     "Algorithm; with --simulate several, as in ring,binomial. Default: the first that is for so "
     "many ranks, or all",
     1},
    {"ranks", 'n', "N", 0, "Ranks, 2 to 64, with --simulate to 100000. Default 4", 1},
    {"hosts", KEY_HOSTS, "N,N,...", 0,
     "Ranks on each host. Default: one host, or two halves for an algorithm between hosts", 1},
    {"root", KEY_ROOT, "RANK", 0, "Root. Default 0", 1},
    {"count", KEY_COUNT, "N", 0, "Elements of the call, as its caller counts. Default: 3 per chunk",
     1},
    {"slice", KEY_SLICE, "N", 0,
     "Elements that a slot carries. Default: all, or those of a chunk where that is much quicker",
     1},
    {"slots", KEY_SLOTS, "N", 0, "Slots of a link. Default 8", 1},
    {"rank", KEY_RANK, "RANK", 0, "Show only what this rank sends and receives", 2},
    {"svg", KEY_SVG, "FILE", 0,
     "Draw the steps, or the predicted times; - is standard output, in place of the words", 2},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object in place of the words", 2},
    {"verify", KEY_VERIFY, NULL, 0,
     "Prove the algorithm for so many ranks: all roots, several counts, in place and not", 2},
    {"simulate", KEY_SIMULATE, NULL, 0,
     "Predict how long the algorithms take for a range of sizes, and where one takes over from "
     "another",
     3},
    {"bytes", KEY_BYTES, "FROM[:TO[:FACTOR]]", 0,
     "Sizes of a block that are simulated, by default 8:64M:4, for more than 1000 ranks 8:64M:64; "
     "without --simulate the one of which the totals are told in bytes",
     3},
    {"per-host", KEY_PER_HOST, "N", 0,
     "Simulate so many ranks on each host. Default: all of up to 64 ranks, else 8", 3},
    {"cores", KEY_CORES, "N", 0,
     "Cores of each simulated host. Default: those of the costs in use, or of this machine", 3},
    {"costs", KEY_COSTS, "FILE", 0,
     "Costs of the simulated machines, measured on this or another one. Default: those in use", 3},
    {"list", KEY_LIST, NULL, 0, "List the collectives and their algorithms", 4},
    KO_OPTION_HELP,
    {0}};

static const char doc[] =
    "Show what an algorithm of kolo does, step by step, and how much that is beside the least "
    "possible."
    "\vExamples:\n"
    "  kolo-explain all_reduce --algo ring --ranks 4 --svg ring.svg\n"
    "  kolo-explain broadcast --slice 3        # in slices, one behind the other\n"
    "  kolo-explain all_reduce --hosts 2,2 --rank 0\n"
    "  kolo-explain all_reduce --simulate --ranks 1024 --per-host 8 --svg crossover.svg\n\n"
    "The exit code is 0 if all is well, 1 if the algorithm is wrong, which the message describes, "
    "125 if kolo-explain was misused or its output could not be written.";

static const size_t MOST_BYTES = (size_t)1 << 40, MOST_WEIGHED = (size_t)1 << 30;

struct command {
    struct ko_explain_wish wish;
    const char *ranks; /* as they were given */
    int rank;          /* -1: all */
    const char *svg;
    bool is_json, is_list, is_proof, is_forecast;
    const char *of_forecast; /* an option that is for a forecast alone; NULL: none was given */
    struct ko_forecast_wish forecast; /* all but the call */
    const char *of_steps; /* an option that says nothing of a forecast; NULL: none was given */
};

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolo-explain (kolo) %s\n", kolo_version());
}

/* ---- options ------------------------------------------------------------------------------ */

static error_t parse_call(int key, char *arg, struct argp_state *state)
{
    struct command *command = state->input;
    struct ko_explain_wish *wish = &command->wish;

    switch (key) {
    case KEY_HOSTS:
        wish->hosts = arg;
        return 0;
    case KEY_ROOT:
        command->of_steps = "--root";
        wish->root = ko_option_whole(state, "--root", arg, 0, KO_PAPER_MOST_RANKS - 1);
        return 0;
    case KEY_COUNT:
        command->of_steps = "--count";
        wish->count = ko_option_whole(state, "--count", arg, 0, MOST_COUNT);
        return 0;
    case KEY_SLICE:
        command->of_steps = "--slice";
        wish->slice = ko_option_whole(state, "--slice", arg, 1, MOST_COUNT);
        return 0;
    case KEY_SLOTS:
        command->of_steps = "--slots";
        wish->slots = ko_option_whole(state, "--slots", arg, LEAST_SLOTS, MOST_SLOTS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* How many ranks there can be is known only when all options are. */
static void check_ranks(struct command *command, struct argp_state *state)
{
    const int most = command->is_forecast ? KO_FORECAST_RANKS : KO_PAPER_MOST_RANKS;

    if (ko_whole_read(command->ranks, 2, most, &command->wish.ranks))
        argp_error(state,
                   "--ranks is \"%s\"; it takes a whole number from 2 to %d, with --simulate to %d",
                   command->ranks, KO_PAPER_MOST_RANKS, KO_FORECAST_RANKS);
}

static void check(struct command *command, struct argp_state *state)
{
    if (!command->wish.collective && !command->is_list)
        argp_error(state, "which collective? --list has them");
    if (command->wish.collective && command->is_list)
        argp_error(state, "--list has all collectives: it takes no \"%s\"",
                   command->wish.collective);
    if (command->rank >= 0 && (command->is_json || (command->svg && !strcmp(command->svg, "-"))))
        argp_error(state, "--rank is for the words: --json and --svg have what all ranks do");
    if (command->is_forecast && command->of_steps)
        argp_error(state, "%s and --simulate do not go together", command->of_steps);
    if (!command->is_forecast && command->of_forecast)
        argp_error(state, "%s is for --simulate", command->of_forecast);
    if (command->is_json && command->svg && !strcmp(command->svg, "-"))
        argp_error(state, "--json goes to standard output: --svg needs the name of a file");
    if (!command->is_forecast &&
        (command->forecast.least < command->forecast.most || command->forecast.most > MOST_WEIGHED))
        argp_error(state, "--bytes takes one size of up to 1G; a range is for --simulate");
    if (command->forecast.per_host && command->wish.hosts)
        argp_error(state, "--hosts and --per-host both say how many ranks a host has");
    if (command->ranks)
        check_ranks(command, state);
}

/* FROM[:TO[:FACTOR]] */
static void parse_bytes(const char *arg, struct argp_state *state, struct ko_forecast_wish *wish)
{
    char text[64], *to, *factor = NULL;

    snprintf(text, sizeof text, "%s", arg);
    to = strchr(text, ':');
    if (to)
        *to++ = 0;
    if (to && (factor = strchr(to, ':')))
        *factor++ = 0;
    wish->least = ko_option_bytes(state, "--bytes", text);
    wish->most = to ? ko_option_bytes(state, "--bytes", to) : wish->least;
    wish->factor =
        factor ? (size_t)ko_option_whole(state, "the factor of --bytes", factor, 2, 1024) : 0;
    if (!wish->least || wish->least > wish->most || wish->most > MOST_BYTES)
        argp_error(state, "--bytes is \"%s\"; it takes sizes from 1 byte to 1T, ascending", arg);
}

static error_t parse_forecast(int key, char *arg, struct argp_state *state)
{
    struct command *command = state->input;
    struct ko_forecast_wish *wish = &command->forecast;

    switch (key) {
    case KEY_BYTES:
        parse_bytes(arg, state, wish);
        return 0;
    case KEY_PER_HOST:
        command->of_forecast = "--per-host";
        wish->per_host = ko_option_whole(state, "--per-host", arg, 1, KO_FORECAST_RANKS);
        return 0;
    case KEY_CORES:
        command->of_forecast = "--cores";
        wish->cores = ko_option_whole(state, "--cores", arg, 1, MOST_CORES);
        return 0;
    case KEY_COSTS:
        command->of_forecast = "--costs";
        wish->costs_path = arg;
        return 0;
    default:
        return parse_call(key, arg, state);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *command = state->input;

    switch (key) {
    case 'a':
        command->wish.algorithm = arg;
        return 0;
    case 'n':
        command->ranks = arg;
        return 0;
    case 'h':
        ko_option_help(state);
        return 0;
    case KEY_SIMULATE:
        command->is_forecast = true;
        return 0;
    case KEY_RANK:
        command->of_steps = "--rank";
        command->rank = ko_option_whole(state, "--rank", arg, 0, KO_PAPER_MOST_RANKS - 1);
        return 0;
    case KEY_SVG:
        command->svg = arg;
        return 0;
    case KEY_JSON:
        command->is_json = true;
        return 0;
    case KEY_LIST:
        command->of_steps = "--list";
        command->is_list = true;
        return 0;
    case KEY_VERIFY:
        command->of_steps = "--verify";
        command->is_proof = true;
        return 0;
    case ARGP_KEY_ARG:
        if (command->wish.collective)
            argp_error(state, "one collective at a time, not also \"%s\"", arg);
        command->wish.collective = arg;
        return 0;
    case ARGP_KEY_END:
        check(command, state);
        return 0;
    default:
        return parse_forecast(key, arg, state);
    }
}

/* ---- output ------------------------------------------------------------------------------- */

static int draw_trace(const void *trace, FILE *file)
{
    return ko_explain_svg(trace, file);
}

static int draw_forecast(const void *forecast, FILE *file)
{
    ko_forecast_svg(forecast, file);
    return KOLO_OK;
}

/* Has what it is drawn into the file. */
static int draw(int (*draw_it)(const void *what, FILE *file), const void *what, const char *path)
{
    FILE *file = strcmp(path, "-") ? fopen(path, "w") : stdout;
    int err, is_bad;

    if (!file)
        return ko_fail_errno(errno, "cannot create %s", path);
    err = draw_it(what, file);
    if (file == stdout)
        return err;
    is_bad = ferror(file);
    if ((fclose(file) || is_bad) && !err)
        err = ko_fail(KOLO_E_SYSTEM, "cannot write all of %s", path);
    return err;
}

static void print_proof(const struct ko_paper_call *call, size_t nproved)
{
    printf("\nproved, for %d ranks and %zu calls: every element of every output has each "
           "contribution\nthat it should exactly once, sends match receives, and nothing can "
           "deadlock with %d slots.\n",
           call->n, nproved, call->slots);
}

static int weigh(const struct ko_paper_call *call, size_t nbytes, struct ko_figures *bytes)
{
    struct ko_situation situation;
    int err = ko_situation_read(call->hosts, &situation);

    return err ? err : ko_figures_weigh(call, nbytes, situation.slice_bytes, bytes);
}

static int show(const struct command *command, const struct ko_paper_call *call)
{
    const bool is_picture = command->svg && !strcmp(command->svg, "-");
    struct ko_figures figures, *bytes = NULL;
    struct ko_trace trace;
    size_t nproved = 0;
    int err = KOLO_OK;

    if (command->rank >= call->n)
        return ko_fail(KOLO_E_INVALID, "--rank %d of %d ranks is none", command->rank, call->n);
    if (command->is_proof)
        err = ko_explain_prove(call, &nproved);
    if (!err && command->forecast.most) {
        bytes = &figures;
        err = weigh(call, command->forecast.most, bytes);
    }
    if (!err)
        err = ko_trace_make(call, &trace);
    if (err)
        return err;
    if (command->svg)
        err = draw(draw_trace, &trace, command->svg);
    if (!err && command->is_json)
        err = ko_explain_json(&trace, bytes, stdout);
    else if (!err && !is_picture)
        err = ko_explain_text(&trace, bytes, command->rank, stdout);
    if (!err && command->is_proof && !command->is_json && !is_picture)
        print_proof(call, nproved);
    ko_trace_free(&trace);
    return err;
}

/* The steps of one call. */
static int explain(const struct command *command)
{
    struct ko_paper_call call;
    struct ko_hosts *hosts;
    int err = ko_explain_call(&command->wish, &call, &hosts);

    if (!err)
        err = show(command, &call);
    free(hosts);
    return err;
}

/* The table, or, where its lines are there already, what stands below. */
static void print_forecast(const struct ko_forecast *forecast)
{
    if (!forecast->is_told) {
        ko_forecast_text_begin(forecast, false, stdout);
        for (int k = 0; k < forecast->nsizes; k++)
            ko_forecast_text_size(forecast, k, false, stdout);
    }
    ko_forecast_text_end(forecast, stdout);
}

static int show_forecast(const struct command *command, const struct ko_forecast *forecast)
{
    const bool is_picture = command->svg && !strcmp(command->svg, "-");
    int err = KOLO_OK;

    if (command->svg && forecast->what == KO_BARRIER)
        return ko_fail(KOLO_E_INVALID, "a barrier has no sizes to draw: leave --svg out");
    if (command->svg)
        err = draw(draw_forecast, forecast, command->svg);
    if (!err && command->is_json)
        ko_forecast_json(forecast, stdout);
    else if (!err && !is_picture)
        print_forecast(forecast);
    return err;
}

/* The times of all algorithms. */
static int predict(const struct command *command)
{
    struct ko_forecast_wish wish = command->forecast;
    struct ko_forecast forecast;
    int err;

    wish.call = command->wish;
    if (!command->is_json && !(command->svg && !strcmp(command->svg, "-")))
        wish.table = stdout;
    err = ko_forecast_make(&forecast, &wish);
    if (!err)
        err = show_forecast(command, &forecast);
    ko_forecast_close(&forecast);
    return err;
}

static int run(const struct command *command)
{
    int err = KOLO_OK;

    if (command->is_list)
        ko_explain_list(stdout);
    else
        err = command->is_forecast ? predict(command) : explain(command);
    if (err)
        fprintf(stderr, "kolo-explain: %s\n", kolo_last_error());
    return !err ? EXIT_FINE : err == KOLO_E_INTERNAL ? EXIT_WRONG : EXIT_SELF;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_list, .parser = parse, .args_doc = "COLLECTIVE", .doc = doc};
    struct command command = {.wish = {.root = -1, .count = -1, .slice = -1}, .rank = -1};
    int code;

    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_SELF;
    if (argp_parse(&argp, argc, argv, 0, NULL, &command))
        return EXIT_SELF;
    code = run(&command);
    if (fflush(stdout) || ferror(stdout)) {
        perror("kolo-explain: standard output");
        return EXIT_SELF;
    }
    return code;
}
