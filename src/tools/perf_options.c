/* SPDX-License-Identifier: MIT
 *
 * The flags are those of nccl-tests, with their long names and most of their defaults, so that a
 * command line can be carried over; what has no meaning here is taken at its default only, and else
 * refused with the reason. -z waits for every call unless -z 0 is given, and -N, which there is how
 * often a whole run is repeated, is the number of processes to start.
 */
#include "perf.h"

#include "dtype.h"
#include "group_wishes.h"
#include "options.h"
#include "perf_case.h"
#include "perf_data.h"
#include "perf_tune.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4096, MOST_SAMPLES = 1000000, MOST_TOGETHER = 4096, MOST_TENSORS = 4096 };
enum { MOST_LAUNCHES = 1000000, TOGETHER_ON_GPU = 16 };
enum { SAMPLES = 20, SAMPLES_OF_PERCENTILES = 200 };

enum key {
    KEY_CYCLES = 256,
    KEY_JSON,
    KEY_CSV,
    KEY_PLOT,
    KEY_COMPARE,
    KEY_MARGIN,
    KEY_LOAD,
    KEY_TUNE,
    KEY_PERCENTILES,
    KEY_COST,
    KEY_MEMORY,
    KEY_TENSORS,
    KEY_DIRTY,
    KEY_PIN,
    KEY_TIMESTAMPS,
    KEY_DEVICE
};

static const struct argp_option option_list[] = {
    {NULL, 0, NULL, 0, "Sizes", 1},
    {"minbytes", 'b', "BYTES", 0, "Smallest size; K, M, G, T are powers of 1024. Default 32M", 1},
    {"maxbytes", 'e', "BYTES", 0, "Largest size. Default 32M, or that of -b if it is more", 1},
    {"stepbytes", 'i', "BYTES", 0, "Added from size to size. Default 1M", 1},
    {"stepfactor", 'f', "FACTOR", 0, "Multiplied from size to size, instead of -i", 1},
    {NULL, 0, NULL, 0, "Operation", 2},
    {"op", 'o', "OP", 0,
     "sum, prod, min, max, avg, band, bor, bxor, mulsum (each rank's elements times its own "
     "factor, summed) or all. Default sum",
     2},
    {"datatype", 'd', "TYPE", 0,
     "int8, uint8, int32, uint32, int64, uint64, half, bfloat16, float, double, bool, "
     "float8_e4m3, float8_e5m2 or all; kolo's names too. Default float",
     2},
    {"root", 'r', "RANK", 0, "Root, or all. Default 0", 2},
    {"blocking", 'z', "0|1", 0, "1: blocking calls; 0: asynchronous. Default 1", 2},
    {"agg-iters", 'm', "N", 0, "Asynchronous calls under way at once. Default 1", 2},
    {"agg_iters", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 2},
    {"unalign", 'u', "N", 0, "Shift the buffers by N elements. Default 0", 2},
    {"memory", KEY_MEMORY, "KIND", 0, "ordinary, or shared: by kolo_mem_alloc. Default ordinary",
     2},
    {"tensors", KEY_TENSORS, "N", 0, "Tensors of a coalesced operation. Default 16", 2},
    {"dirty", KEY_DIRTY, NULL, 0, "Write to the input before each operation, not timed", 2},
    {"device", KEY_DEVICE, "KIND", 0,
     "Where the buffers are: cpu, or cuda: in GPU memory, calls and times in the order of a "
     "stream. "
     "Default cpu",
     2},
    {"graph", 'G', "N", 0,
     "With --device cuda: capture the operations of a sample as a CUDA graph, and launch it N "
     "times",
     2},
    {"cudagraph", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 2},
    {NULL, 0, NULL, 0, "Measurement", 3},
    {"iters", 'n', "N", 0,
     "Samples of each row, rounds of --tune. Default 20, 15 of --tune, 200 with --percentiles", 3},
    {"warmup-iters", 'w', "N", 0, "Operations before the first sample. Default 5", 3},
    {"warmup_iters", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 3},
    {"check", 'c', "N", 0, "Times that each result is checked; 0: never. Default 1", 3},
    {"average", 'a', "0|1|2|3", 0,
     "Time of rank 0, or mean, least or most of all ranks'. Default 1, the mean", 3},
    {"run-cycles", KEY_CYCLES, "N", 0, "Run all of it N times. Default 1", 3},
    {"run_cycles", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 3},
    {"timeout", 'T', "SECONDS", 0, "Limit of each call. Default, and 0: KOLO_TIMEOUT_MS", 3},
    {NULL, 0, NULL, 0, "Ranks; -t and -N are for when no launcher starts them", 4},
    {"nthreads", 't', "N", 0, "Ranks that are threads of this process. Default 1", 4},
    {"nprocs", 'N', "N", 0, "Start N processes, of -t ranks each", 4},
    {"pin", KEY_PIN, NULL, 0, "Keep each rank on a core of its own while there are enough", 4},
    {NULL, 0, NULL, 0, "Output", 5},
    {"percentiles", KEY_PERCENTILES, NULL, 0, "Time each operation; add p50, p90, p99 and max", 5},
    {"cost", KEY_COST, NULL, 0, "Add CPU time, context switches and system calls", 5},
    {"timestamps", KEY_TIMESTAMPS, NULL, 0, "Add the time of day to each row", 5},
    {"output_file", 'J', "FILE", OPTION_HIDDEN, NULL, 5},
    {"json", KEY_JSON, "FILE", 0, "Write all figures and samples as JSON; -: to standard output",
     5},
    {"csv", KEY_CSV, "FILE", 0, "Write all figures as CSV; -: to standard output", 5},
    {"plot", KEY_PLOT, "FILE", 0, "Draw bandwidth and time over size as SVG", 5},
    {"compare", KEY_COMPARE, "FILE", 0, "Compare with what --json has written to FILE", 5},
    {"margin", KEY_MARGIN, "PERCENT", 0, "Differences up to this are the same. Default 5", 5},
    {"load", KEY_LOAD, "FILE", 0, "Measure nothing: take what --json has written", 5},
    {"tune", KEY_TUNE, "FILE", 0, "Measure what links and reductions cost, for KOLO_TUNING", 5},
    {"ngpus", 'g', "1", OPTION_HIDDEN, NULL, 6},
    {"local_register", 'R', "0", OPTION_HIDDEN, NULL, 6},
    {"parallel_init", 'p', "0", OPTION_HIDDEN, NULL, 6},
    {"stream_null", 'y', "0", OPTION_HIDDEN, NULL, 6},
    {"report_cputime", 'C', "0", OPTION_HIDDEN, NULL, 6},
    {"report_timestamps", 'S', "0|1", OPTION_HIDDEN, NULL, 6},
    {"cta_policy", 'x', "0", OPTION_HIDDEN, NULL, 6},
    {"device_implementation", 'D', "0", OPTION_HIDDEN, NULL, 6},
    {"device_cta_count", 'V', "16", OPTION_HIDDEN, NULL, 6}, /* not argp's short --version */
    {"memory_report", 'M', "0", OPTION_HIDDEN, NULL, 6},
    KO_OPTION_HELP,
    {0}};

static const char doc[] =
    "Measure and check collectives and messages of kolo, with the flags and the layout of "
    "nccl-tests."
    "\vOPERATION is all_reduce, reduce, broadcast, all_gather, reduce_scatter, gather, scatter, "
    "all_to_all, barrier, with blocks of different lengths all_gather_v, reduce_scatter_v, "
    "gather_v, scatter_v, all_to_all_v, of several tensors all_reduce_coalesced, "
    "reduce_coalesced, broadcast_coalesced, all_gather_coalesced, reduce_scatter_coalesced, of "
    "messages sendrecv, batch, ping_pong, one_way, or all; nccl-tests' spellings are known "
    "too.\n\n"
    "Examples:\n"
    "  kolorun -n 4 kolo-perf all_reduce -b 8 -e 64M -f 4\n"
    "  kolo-perf -t 2 --pin all_reduce -b 1K -e 1M -f 2 --json base.json\n"
    "  kolo-perf -t 2 --pin all_reduce -b 1K -e 1M -f 2 --compare base.json\n"
    "  kolorun -n 2 kolo-perf all_reduce --device cuda -b 8 -e 1G -f 8\n\n"
    "The exit code is 0 if all is well, 1 if elements were wrong, 125 if kolo-perf was misused or "
    "failed.";

/* ---- names ------------------------------------------------------------------------------- */

static const struct {
    const char *shown;
    kolo_dtype dtype;
} shown_dtypes[] = {{"half", KOLO_FLOAT16}, {"float", KOLO_FLOAT32}, {"double", KOLO_FLOAT64}};
enum { NSHOWN = sizeof shown_dtypes / sizeof *shown_dtypes };

int ko_perf_dtype_find(const char *name)
{
    for (int i = 0; i < KOLO_NDTYPES; i++)
        if (!strcmp(name, kolo_dtype_name((kolo_dtype)i)))
            return i;
    for (int i = 0; i < NSHOWN; i++)
        if (!strcmp(name, shown_dtypes[i].shown))
            return (int)shown_dtypes[i].dtype;
    if (!strcmp(name, "f8e4m3"))
        return KOLO_FLOAT8_E4M3;
    if (!strcmp(name, "f8e5m2"))
        return KOLO_FLOAT8_E5M2;
    return -1;
}

const char *ko_perf_dtype_shown(const char *name)
{
    for (int i = 0; i < NSHOWN; i++)
        if (!strcmp(name, kolo_dtype_name(shown_dtypes[i].dtype)))
            return shown_dtypes[i].shown;
    return name;
}

/* nccl-tests' programs have a "_perf" behind the name. */
static bool is_spelling(const char *text, const char *name)
{
    static const char ending[] = "_perf";
    size_t length = strlen(text);

    if (length >= strlen(ending) && !strcmp(text + length - strlen(ending), ending))
        length -= strlen(ending);
    return ko_name_is(name, text, length);
}

static unsigned find_cases(const char *text)
{
    int ncases;
    const struct ko_perf_case *cases = ko_perf_cases(&ncases);

    if (!strcmp(text, "all"))
        return (1U << ncases) - 1;
    for (int i = 0; i < ncases; i++)
        if (is_spelling(text, cases[i].name))
            return 1U << i;
    return 0;
}

/* ---- numbers ----------------------------------------------------------------------------- */

size_t ko_perf_next_size(const struct ko_perf_options *options, size_t nbytes)
{
    double next = options->step_factor > 0 ? floor((double)nbytes * options->step_factor)
                                           : (double)nbytes + (double)options->step_bytes;

    if (next >= 0x1p63)
        return SIZE_MAX;
    return next > (double)nbytes ? (size_t)next : nbytes + 1;
}

static double parse_number(struct argp_state *state, const char *what, const char *text, double low,
                           double high)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || *end || !(number >= low && number <= high))
        argp_error(state, "%s is \"%s\"; it takes a number from %g to %g", what, text, low, high);
    return number;
}

static int parse_op(struct argp_state *state, const char *text)
{
    if (!strcmp(text, "all"))
        return KO_PERF_ALL;
    for (int i = 0; i < KO_PERF_NOPS; i++)
        if (!strcmp(text, ko_perf_op_name(i)))
            return i;
    argp_error(state,
               "-o is \"%s\"; it takes sum, prod, min, max, avg, band, bor, bxor, mulsum or all",
               text);
    return 0;
}

static int parse_dtype(struct argp_state *state, const char *text)
{
    int dtype = strcmp(text, "all") ? ko_perf_dtype_find(text) : KO_PERF_ALL;

    if (dtype < 0 && strcmp(text, "all"))
        argp_error(state,
                   "-d is \"%s\"; it takes int8, uint8, int32, uint32, int64, uint64, half, "
                   "bfloat16, float, double, bool, float8_e4m3, float8_e5m2 or all",
                   text);
    return dtype;
}

/* ---- options ----------------------------------------------------------------------------- */

/* What was given, beside the options themselves. */
struct input {
    struct ko_perf_options *options;
    bool has_max, is_async, is_blocking;
};

static error_t parse_sizes(int key, char *arg, struct argp_state *state, struct input *input)
{
    struct ko_perf_options *options = input->options;

    switch (key) {
    case 'b':
        options->min_bytes = ko_option_bytes(state, "-b", arg);
        return 0;
    case 'e':
        options->max_bytes = ko_option_bytes(state, "-e", arg);
        input->has_max = true;
        return 0;
    case 'i':
        options->step_bytes = ko_option_bytes(state, "-i", arg);
        return 0;
    case 'f':
        options->step_factor = parse_number(state, "-f", arg, 1, 1e9);
        if (options->step_factor == 1) /* as nccl-tests has it */
            options->step_factor = 0;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_operation(int key, char *arg, struct argp_state *state, struct input *input)
{
    struct ko_perf_options *options = input->options;

    switch (key) {
    case 'o':
        options->op = parse_op(state, arg);
        return 0;
    case 'd':
        options->dtype = parse_dtype(state, arg);
        return 0;
    case 'r':
        options->root = strcmp(arg, "all") ? ko_option_whole(state, "-r", arg, -1, MOST_RANKS - 1)
                                           : KO_PERF_ALL;
        return 0;
    case 'z':
        input->is_blocking = ko_option_whole(state, "-z", arg, 0, 1);
        input->is_async = !input->is_blocking;
        return 0;
    case 'm':
        options->together = ko_option_whole(state, "-m", arg, 1, MOST_TOGETHER);
        return 0;
    case 'u':
        options->unalign = (size_t)ko_option_whole(state, "-u", arg, 0, 4096);
        return 0;
    case KEY_MEMORY:
        options->shared = !strcmp(arg, "shared");
        if (!options->shared && strcmp(arg, "ordinary"))
            argp_error(state,
                       "--memory is \"%s\"; it takes ordinary or shared, and says where the "
                       "buffers are; the report that nccl-tests calls so, -M, is not there",
                       arg);
        return 0;
    case KEY_TENSORS:
        options->tensors = ko_option_whole(state, "--tensors", arg, 1, MOST_TENSORS);
        return 0;
    case KEY_DIRTY:
        options->dirty = true;
        return 0;
    case KEY_DEVICE:
        options->on_gpu = !strcmp(arg, "cuda");
        if (!options->on_gpu && strcmp(arg, "cpu"))
            argp_error(state, "--device is \"%s\"; it takes cpu or cuda", arg);
        return 0;
    case 'G':
        options->launches = ko_option_whole(state, "-G", arg, 0, MOST_LAUNCHES);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_measurement(int key, char *arg, struct argp_state *state, struct input *input)
{
    struct ko_perf_options *options = input->options;

    switch (key) {
    case 'n':
        options->nsamples = ko_option_whole(state, "-n", arg, 1, MOST_SAMPLES);
        return 0;
    case 'w':
        options->warmup = ko_option_whole(state, "-w", arg, 0, INT_MAX);
        return 0;
    case 'c':
        options->check = ko_option_whole(state, "-c", arg, 0, INT_MAX);
        return 0;
    case 'a':
        options->average = (enum ko_perf_average)ko_option_whole(state, "-a", arg, 0, 3);
        return 0;
    case KEY_CYCLES:
        options->cycles = ko_option_whole(state, "--run-cycles", arg, 1, INT_MAX);
        return 0;
    case 'T':
        options->timeout_ms = (int)ceil(1e3 * parse_number(state, "-T", arg, 0, 1e6));
        if (!options->timeout_ms)
            options->timeout_ms = -1;
        return 0;
    case 't':
        options->nthreads = ko_option_whole(state, "-t", arg, 1, MOST_RANKS);
        return 0;
    case KEY_PIN:
        options->pin = true;
        return 0;
    case 'N': /* 0: one of those that were started */
        options->nprocs = ko_option_whole(state, "-N", arg, 0, MOST_RANKS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_output(int key, char *arg, struct argp_state *state, struct input *input)
{
    struct ko_perf_options *options = input->options;

    switch (key) {
    case KEY_PERCENTILES:
        options->percentiles = true;
        return 0;
    case KEY_COST:
        options->cost = true;
        return 0;
    case KEY_TIMESTAMPS:
        options->timestamps = true;
        return 0;
    case 'S':
        options->timestamps = ko_option_whole(state, "-S", arg, 0, 1);
        return 0;
    case 'J':
    case KEY_JSON:
        options->json = arg;
        return 0;
    case KEY_CSV:
        options->csv = arg;
        return 0;
    case KEY_PLOT:
        options->plot = arg;
        return 0;
    case KEY_COMPARE:
        options->compare = arg;
        return 0;
    case KEY_MARGIN:
        options->margin = parse_number(state, "--margin", arg, 0, 99) / 100;
        return 0;
    case KEY_LOAD:
        options->load = arg;
        return 0;
    case KEY_TUNE:
        options->tune = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* nccl-tests' flags that choose nothing here. */
static const struct {
    int key;
    const char *only, *why;
} defaults[] = {
    {'g', "1", "a rank has one GPU at most; ranks are -t"},
    {'R', "0", "buffers need no registration"},
    {'p', "0", "ranks that are threads always join side by side"},
    {'y', "0", "the stream is never the null one"},
    {'C', "0", "--cost prints the CPU time beside the time"},
    {'x', "0", "there is one policy of blocks"},
    {'D', "0", "there is one implementation"},
    {'V', "16", "it is for -D, of which there is one implementation; the version is --version"},
    {'M', "0", "memory is not reported"},
};
enum { NDEFAULTS = sizeof defaults / sizeof *defaults };

static error_t parse_default(int key, char *arg, struct argp_state *state, struct input *input)
{
    (void)input;
    for (int i = 0; i < NDEFAULTS; i++)
        if (defaults[i].key == key) {
            if (strcmp(arg, defaults[i].only) != 0)
                argp_error(state, "-%c %s: only %s is known of nccl-tests' flag: %s", key, arg,
                           defaults[i].only, defaults[i].why);
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

/* What does not go together on a GPU, or without. */
static const char *refuse_on_gpu(const struct input *input)
{
    const struct ko_perf_options *options = input->options;
    int ncases;
    const struct ko_perf_case *cases = ko_perf_cases(&ncases);

    if (options->launches && !options->on_gpu)
        return "-G is for --device cuda";
    if (options->on_gpu && (options->dirty || options->shared))
        return "--dirty and --memory shared are for --device cpu";
    if (options->launches && input->is_blocking)
        return "-z 1: a graph has no blocking calls";
    for (int i = 0; i < ncases && options->launches; i++)
        if (options->cases & 1U << i && cases[i].flags & KO_PERF_BY_HOST)
            return "-G: one_way cannot be part of a graph";
    return NULL;
}

/* Whether more than one file is to be standard output. */
static bool mixes_files(const struct ko_perf_options *options)
{
    const char *const paths[] = {options->json, options->csv, options->plot};
    int ndashes = 0;

    for (int i = 0; i < 3; i++)
        ndashes += paths[i] && !strcmp(paths[i], "-");
    return ndashes > 1;
}

/* What no option alone can tell. */
static void settle(struct argp_state *state, struct input *input)
{
    struct ko_perf_options *options = input->options;
    const char *refused = refuse_on_gpu(input);
    bool is_of_bits =
        options->op == KOLO_BAND || options->op == KOLO_BOR || options->op == KOLO_BXOR;

    if (!input->has_max && options->min_bytes > options->max_bytes)
        options->max_bytes = options->min_bytes;
    if (!options->nsamples)
        options->nsamples = options->tune          ? KO_TUNE_ROUNDS
                            : options->percentiles ? SAMPLES_OF_PERCENTILES
                                                   : SAMPLES;
    if (options->on_gpu && !input->is_blocking && !options->together)
        options->together = options->percentiles ? 1 : TOGETHER_ON_GPU;
    if (input->is_async && !options->together)
        options->together = 1;
    if (refused)
        argp_error(state, "%s", refused);
    if (options->min_bytes > options->max_bytes)
        argp_error(state, "-b is more than -e");
    else if (!options->step_bytes && options->step_factor <= 0 &&
             options->min_bytes < options->max_bytes)
        argp_error(state, "-i is 0: sizes from -b to -e take a step, or -f");
    else if (is_of_bits && options->dtype >= 0 && ko_dtype_is_float((kolo_dtype)options->dtype))
        argp_error(state, "-o %s is for integers, -d is %s", kolo_op_name((kolo_op)options->op),
                   kolo_dtype_name((kolo_dtype)options->dtype));
    else if (options->tune && (options->cases || options->load || options->nprocs > 0))
        argp_error(state, "--tune starts two ranks of its own: it takes neither an operation, "
                          "--load nor -N");
    else if (options->tune && (options->json || options->csv || options->plot || options->compare))
        argp_error(state, "--tune writes costs alone: it takes neither --json, --csv, --plot nor "
                          "--compare");
    else if (options->tune && options->nsamples > KO_TUNE_MOST_ROUNDS)
        argp_error(state, "--tune takes at most -n %d", KO_TUNE_MOST_ROUNDS);
    else if (options->load && options->cases)
        argp_error(state, "--load measures nothing: no operation is taken");
    else if (!options->load && !options->tune && !options->cases)
        argp_error(state, "which operation? For example all_reduce");
    else if (options->load && (options->json || options->nprocs > 0))
        argp_error(state, "--load takes neither --json nor -N");
    else if (mixes_files(options))
        argp_error(state, "only one of --json, --csv and --plot can be -, standard output");
    else if (!options->load && ko_placement_read(environ, &options->placement))
        argp_error(state, "%s", kolo_last_error());
    else if (options->placement.size > KO_MOST_RANKS / options->nthreads)
        argp_error(state, "-t %d: %d processes of so many ranks are more than a world has",
                   options->nthreads, options->placement.size);
    else if (options->nprocs > 0 && options->placement.rank_name)
        argp_error(state, "-N starts ranks, but %s is set: a launcher has started this one",
                   options->placement.rank_name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    static error_t (*const groups[])(int, char *, struct argp_state *, struct input *) = {
        parse_sizes, parse_operation, parse_measurement, parse_output, parse_default};
    enum { NGROUPS = sizeof groups / sizeof *groups };
    struct input *input = state->input;
    error_t err = ARGP_ERR_UNKNOWN;
    unsigned found;

    for (int i = 0; i < NGROUPS && err == ARGP_ERR_UNKNOWN; i++)
        err = groups[i](key, arg, state, input);
    if (err != ARGP_ERR_UNKNOWN)
        return err;
    switch (key) {
    case 'h':
        ko_option_help(state);
        return 0;
    case ARGP_KEY_ARG:
        found = find_cases(arg);
        if (!found)
            argp_error(state, "no operation is called \"%s\"; see --help", arg);
        input->options->cases |= found;
        return 0;
    case ARGP_KEY_END:
        settle(state, input);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolo-perf (kolo) %s\n", kolo_version());
}

void ko_perf_options_read(struct ko_perf_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_list, .parser = parse, .args_doc = "OPERATION...", .doc = doc};
    struct input input = {.options = options};

    *options = (struct ko_perf_options){.min_bytes = 32 << 20,
                                        .max_bytes = 32 << 20,
                                        .step_bytes = 1 << 20,
                                        .warmup = 5,
                                        .cycles = 1,
                                        .check = 1,
                                        .average = KO_PERF_MEAN,
                                        .tensors = 16,
                                        .op = KOLO_SUM,
                                        .dtype = KOLO_FLOAT32,
                                        .nthreads = 1,
                                        .nprocs = -1,
                                        .timeout_ms = -1,
                                        .margin = 0.05};
    argp_program_version_hook = print_version;
    argp_err_exit_status = KO_PERF_FAILED;
    if (argp_parse(&argp, argc, argv, 0, NULL, &input))
        exit(KO_PERF_FAILED);
}
