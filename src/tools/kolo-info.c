/* SPDX-License-Identifier: MIT
 *
 * kolo-info: what this build of kolo is, what it finds on this machine, and what the environment
 * makes of its variables.
 */
#include "info.h"

#include "kolo.h"

#include <argp.h>

enum { EXIT_FINE = 0, EXIT_PROBLEM = 1, EXIT_SELF = 125 };

enum form { FORM_TEXT, FORM_JSON, FORM_MARKDOWN };

enum key { KEY_JSON = 256, KEY_MARKDOWN };

static const struct argp_option option_list[] = {
    {"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
    {"variables-markdown", KEY_MARKDOWN, NULL, 0, "Print the table of variables in Markdown", 0},
    {0}};

static const char doc[] =
    "Show kolo's build, this machine, and every KOLO_ variable with its value and where it is from."
    "\vThe exit code is 0 if all is well, 1 if a KOLO_ variable of the environment is malformed or "
    "unknown, 125 if kolo-info was misused or its output could not be written.";

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolo-info (kolo) %s\n", kolo_version());
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    enum form *form = state->input;

    switch (key) {
    case KEY_JSON:
        *form = FORM_JSON;
        return 0;
    case KEY_MARKDOWN:
        *form = FORM_MARKDOWN;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no argument is taken, not even \"%s\"", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int print(enum form form)
{
    struct ko_info info;

    if (form == FORM_MARKDOWN) {
        ko_info_print_markdown(stdout);
        return EXIT_FINE;
    }
    ko_facts_build(&info.build);
    ko_facts_machine(&info.machine);
    ko_transport_rows_read(&info.transports);
    ko_variables_read(&info.variables);
    if (form == FORM_JSON)
        ko_info_print_json(&info, stdout);
    else
        ko_info_print_text(&info, stdout);
    return info.variables.nproblems ? EXIT_PROBLEM : EXIT_FINE;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {.options = option_list, .parser = parse, .doc = doc};
    enum form form = FORM_TEXT;
    int code;

    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_SELF;
    if (argp_parse(&argp, argc, argv, 0, NULL, &form))
        return EXIT_SELF;
    code = print(form);
    if (fflush(stdout) || ferror(stdout)) {
        perror("kolo-info: standard output");
        return EXIT_SELF;
    }
    return code;
}
