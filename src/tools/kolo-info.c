/* SPDX-License-Identifier: MIT
 *
 * kolo-info: what this build of kolo is, what it finds on this machine, and what the environment
 * makes of its variables.
 */
#include "info.h"

#include "kolo.h"
#include "options.h"

#include <argp.h>

enum { EXIT_FINE = 0, EXIT_PROBLEM = 1, EXIT_SELF = 125 };

enum form { FORM_ALL, FORM_MARKDOWN, FORM_ALGORITHMS, FORM_RDMA };

enum key { KEY_JSON = 256, KEY_MARKDOWN, KEY_ALGORITHMS, KEY_RANKS, KEY_PER_HOST, KEY_RDMA };

enum { RANKS = 2 /* if none are asked for */ };

struct wish {
    enum form form;
    const char *form_option; /* that has asked for it; NULL: none */
    bool is_json;            /* of FORM_ALL and FORM_RDMA */
    int nranks, per_host;    /* 0: not said */
};

static const struct argp_option option_list[] = {
    {"json", KEY_JSON, NULL, 0, "Print one JSON object, also of --rdma", 0},
    {"variables-markdown", KEY_MARKDOWN, NULL, 0, "Print the table of variables in Markdown", 0},
    {"algorithms", KEY_ALGORITHMS, NULL, 0, "Print which algorithm is taken for which size", 0},
    {"rdma", KEY_RDMA, NULL, 0, "Print the ports of RDMA adapters, which is chosen, and why", 0},
    {"ranks", KEY_RANKS, "N", 0, "With --algorithms: among so many ranks (2)", 0},
    {"per-host", KEY_PER_HOST, "N", 0, "With --algorithms: so many of them on each host (all)", 0},
    KO_OPTION_HELP,
    {0}};

static const char doc[] =
    "Show kolo's build, this machine, and every KOLO_ variable with its value and where it is from."
    "\vThe exit code is 0 if all is well, 1 if a KOLO_ variable of the environment is malformed or "
    "unknown or a launcher's variables are refused or, with --rdma, if there is no port to use "
    "or, with --algorithms, if the costs or KOLO_ALGO are wrong, 125 if kolo-info was misused or "
    "its output could not be written.";

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolo-info (kolo) %s\n", kolo_version());
}

static void set_form(struct argp_state *state, struct wish *wish, enum form form,
                     const char *option)
{
    if (wish->form_option && wish->form != form)
        argp_error(state, "%s and %s do not go together", wish->form_option, option);
    wish->form = form;
    wish->form_option = option;
}

/* An option that would change nothing is a mistake. */
static void check(struct argp_state *state, const struct wish *wish)
{
    if (wish->form != FORM_ALGORITHMS && (wish->nranks || wish->per_host))
        argp_error(state, "%s is for --algorithms", wish->nranks ? "--ranks" : "--per-host");
    if (wish->is_json && (wish->form == FORM_ALGORITHMS || wish->form == FORM_MARKDOWN))
        argp_error(state, "--json and %s do not go together", wish->form_option);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct wish *wish = state->input;

    switch (key) {
    case KEY_JSON:
        wish->is_json = true;
        return 0;
    case KEY_MARKDOWN:
        set_form(state, wish, FORM_MARKDOWN, "--variables-markdown");
        return 0;
    case KEY_ALGORITHMS:
        set_form(state, wish, FORM_ALGORITHMS, "--algorithms");
        return 0;
    case KEY_RDMA:
        set_form(state, wish, FORM_RDMA, "--rdma");
        return 0;
    case KEY_RANKS:
        wish->nranks = ko_option_whole(state, "--ranks", arg, 2, 1000000);
        return 0;
    case KEY_PER_HOST:
        wish->per_host = ko_option_whole(state, "--per-host", arg, 1, 1000000);
        return 0;
    case 'h':
        ko_option_help(state);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no argument is taken, not even \"%s\"", arg);
        return 0;
    case ARGP_KEY_END:
        check(state, wish);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int print_algorithms(const struct wish *wish)
{
    const int nranks = wish->nranks ? wish->nranks : RANKS;
    int err = ko_choices_print(nranks, wish->per_host ? wish->per_host : nranks, stdout);

    if (err)
        fprintf(stderr, "kolo-info: %s\n", kolo_last_error());
    return err ? EXIT_PROBLEM : EXIT_FINE;
}

static int print(enum form form, bool is_json)
{
    struct ko_info info;

    if (form == FORM_RDMA)
        return ko_rdma_print(stdout, is_json) ? EXIT_FINE : EXIT_PROBLEM;
    if (form == FORM_MARKDOWN) {
        ko_info_print_markdown(stdout);
        return EXIT_FINE;
    }
    ko_facts_build(&info.build);
    ko_facts_machine(&info.machine);
    ko_facts_job(&info.job, &info.njob_problems);
    ko_transport_rows_read(&info.transports);
    ko_gpus_read(&info.gpus);
    ko_variables_read(&info.variables);
    if (is_json)
        ko_info_print_json(&info, stdout);
    else
        ko_info_print_text(&info, stdout);
    return info.variables.nproblems || info.njob_problems ? EXIT_PROBLEM : EXIT_FINE;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {.options = option_list, .parser = parse, .doc = doc};
    struct wish wish = {.form = FORM_ALL};
    int code;

    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_SELF;
    if (argp_parse(&argp, argc, argv, 0, NULL, &wish))
        return EXIT_SELF;
    code = wish.form == FORM_ALGORITHMS ? print_algorithms(&wish) : print(wish.form, wish.is_json);
    if (fflush(stdout) || ferror(stdout)) {
        perror("kolo-info: standard output");
        return EXIT_SELF;
    }
    return code;
}
