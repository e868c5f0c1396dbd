/* SPDX-License-Identifier: MIT
 *
 * kolo-explain: shows what an algorithm does, step by step. This file reads the command line;
 * explain.h is the rest.
 */
#include "explain.h"

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
    MOST_SLOTS = 64
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
    KEY_HOSTS
};

static const struct argp_option option_list[] = {
    {"algo", 'a', "NAME", 0, "Algorithm. Default: the first that is for so many ranks", 1},
    {"ranks", 'n', "N", 0, "Ranks, 2 to 64. Default 4", 1},
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
    {"svg", KEY_SVG, "FILE", 0, "Draw the steps; - is standard output, in place of the words", 2},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object in place of the words", 2},
    {"verify", KEY_VERIFY, NULL, 0,
     "Prove the algorithm for so many ranks: all roots, several counts, in place and not", 2},
    {"list", KEY_LIST, NULL, 0, "List the collectives and their algorithms", 2},
    {0}};

static const char doc[] =
    "Show what an algorithm of kolo does, step by step, and how much that is beside the least "
    "possible."
    "\vExamples:\n"
    "  kolo-explain all_reduce --algo ring --ranks 4 --svg ring.svg\n"
    "  kolo-explain broadcast --slice 3        # in slices, one behind the other\n"
    "  kolo-explain all_reduce --hosts 2,2 --rank 0\n\n"
    "The exit code is 0 if all is well, 1 if the algorithm is wrong, which the message describes, "
    "125 if kolo-explain was misused or its output could not be written.";

struct command {
    struct ko_explain_wish wish;
    int rank; /* -1: all */
    const char *svg;
    bool is_json, is_list, is_proof;
};

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolo-explain (kolo) %s\n", kolo_version());
}

/* ---- options ------------------------------------------------------------------------------ */

static error_t parse_call(int key, char *arg, struct argp_state *state)
{
    struct ko_explain_wish *wish = &((struct command *)state->input)->wish;

    switch (key) {
    case 'a':
        wish->algorithm = arg;
        return 0;
    case 'n':
        wish->ranks = ko_option_whole(state, "--ranks", arg, 2, KO_PAPER_MOST_RANKS);
        return 0;
    case KEY_HOSTS:
        wish->hosts = arg;
        return 0;
    case KEY_ROOT:
        wish->root = ko_option_whole(state, "--root", arg, 0, KO_PAPER_MOST_RANKS - 1);
        return 0;
    case KEY_COUNT:
        wish->count = ko_option_whole(state, "--count", arg, 0, MOST_COUNT);
        return 0;
    case KEY_SLICE:
        wish->slice = ko_option_whole(state, "--slice", arg, 1, MOST_COUNT);
        return 0;
    case KEY_SLOTS:
        wish->slots = ko_option_whole(state, "--slots", arg, LEAST_SLOTS, MOST_SLOTS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *command = state->input;

    switch (key) {
    case KEY_RANK:
        command->rank = ko_option_whole(state, "--rank", arg, 0, KO_PAPER_MOST_RANKS - 1);
        return 0;
    case KEY_SVG:
        command->svg = arg;
        return 0;
    case KEY_JSON:
        command->is_json = true;
        return 0;
    case KEY_LIST:
        command->is_list = true;
        return 0;
    case KEY_VERIFY:
        command->is_proof = true;
        return 0;
    case ARGP_KEY_ARG:
        if (command->wish.collective)
            argp_error(state, "one collective at a time, not also \"%s\"", arg);
        command->wish.collective = arg;
        return 0;
    case ARGP_KEY_END:
        if (!command->wish.collective && !command->is_list)
            argp_error(state, "which collective? --list has them");
        return 0;
    default:
        return parse_call(key, arg, state);
    }
}

/* ---- output ------------------------------------------------------------------------------- */

static int draw(const struct ko_trace *trace, const char *path)
{
    FILE *file = strcmp(path, "-") ? fopen(path, "w") : stdout;
    int err, is_bad;

    if (!file)
        return ko_fail_errno(errno, "cannot create %s", path);
    err = ko_explain_svg(trace, file);
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

static int show(const struct command *command, const struct ko_paper_call *call)
{
    const bool is_picture = command->svg && !strcmp(command->svg, "-");
    struct ko_trace trace;
    size_t nproved = 0;
    int err = KOLO_OK;

    if (command->rank >= call->n)
        return ko_fail(KOLO_E_INVALID, "--rank %d of %d ranks is none", command->rank, call->n);
    if (command->is_proof)
        err = ko_explain_prove(call, &nproved);
    if (!err)
        err = ko_trace_make(call, &trace);
    if (err)
        return err;
    if (command->svg)
        err = draw(&trace, command->svg);
    if (!err && command->is_json)
        err = ko_explain_json(&trace, stdout);
    else if (!err && !is_picture)
        err = ko_explain_text(&trace, command->rank, stdout);
    if (!err && command->is_proof && !command->is_json && !is_picture)
        print_proof(call, nproved);
    ko_trace_free(&trace);
    return err;
}

static int run(const struct command *command)
{
    struct ko_paper_call call;
    struct ko_hosts *hosts;
    int err;

    if (command->is_list) {
        ko_explain_list(stdout);
        return EXIT_FINE;
    }
    err = ko_explain_call(&command->wish, &call, &hosts);
    if (!err)
        err = show(command, &call);
    free(hosts);
    if (err)
        fprintf(stderr, "kolo-explain: %s\n", kolo_last_error());
    return !err ? EXIT_FINE : err == KOLO_E_INTERNAL ? EXIT_WRONG : EXIT_SELF;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_list, .parser = parse, .args_doc = "COLLECTIVE", .doc = doc};
    struct command command = {.wish = {.count = -1, .slice = -1}, .rank = -1};
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
