/* SPDX-License-Identifier: MIT
 *
 * argp does the splitting and --help. Numbers are read here, whole and within bounds, so that
 * "--lr 0,1" is an error rather than 0.
 */
#include "options.h"

#include "failure.h"
#include "kolo.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum option_key {
    KEY_EPOCHS = 'e',
    KEY_BATCH = 'b',
    KEY_RATE = 'l',
    KEY_MOMENTUM = 'm',
    KEY_SEED = 's',
    KEY_DATA = 'd',
    KEY_RESUME = 'r',
    KEY_CHECKPOINT = 'c',
    KEY_HELP = 'h',
    KEY_MAX_STEPS = 256,
    KEY_CURVE,
    KEY_LOG_LOSSES,
    KEY_INIT,
    KEY_DROPOUT,
    KEY_NO_DROPOUT,
    KEY_NO_SHUFFLE,
    KEY_NO_OVERLAP,
    KEY_BUCKET_KB,
    KEY_COMPRESS,
    KEY_INIT_METHOD,
    KEY_DEVICE
};

static const struct argp_option option_list[] = {
    {0, 0, 0, 0, "What to learn from, and how long:", 1},
    {"data", KEY_DATA, "DIR", 0,
     "folder of the four IDX files of (Fashion-)MNIST, gzipped or not; 'synthetic' for images made "
     "up by the program. Default: Debian's dataset-fashion-mnist, else synthetic",
     0},
    {"epochs", KEY_EPOCHS, "N", 0, "passes over the training set (10)", 0},
    {"max-steps", KEY_MAX_STEPS, "N", 0,
     "stop after step N, counting those before a resumed checkpoint too", 0},
    {0, 0, 0, 0, "How to learn:", 2},
    {"batch", KEY_BATCH, "N", 0, "images per step over all ranks (64)", 0},
    {"lr", KEY_RATE, "X", 0, "learning rate (0.01)", 0},
    {"momentum", KEY_MOMENTUM, "X", 0, "momentum, below 1 (0.9)", 0},
    {"seed", KEY_SEED, "N", 0, "first weights, order of samples and dropout follow from it (1234)",
     0},
    {"init", KEY_INIT, "FILE", 0, "first weights: raw float32 in the order of the parameters", 0},
    {"dropout", KEY_DROPOUT, "PERCENT", 0, "of the values that dropout drops, 0 to 99 (10)", 0},
    {"no-dropout", KEY_NO_DROPOUT, 0, 0, "the same as --dropout=0", 0},
    {"no-shuffle", KEY_NO_SHUFFLE, 0, 0, "take the samples in the order of the files", 0},
    {"device", KEY_DEVICE, "KIND", 0,
     "where to compute: cpu, or cuda: on NVIDIA GPUs, which a machine's ranks take in turn (cpu)",
     0},
    {0, 0, 0, 0, "What to write:", 3},
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0, "the state, after each epoch and at the end", 0},
    {"resume", KEY_RESUME, "FILE", 0, "go on from such a file, bit for bit", 0},
    {"curve", KEY_CURVE, "FILE.svg", 0, "loss and accuracy over the epochs as a picture", 0},
    {"log-losses", KEY_LOG_LOSSES, "FILE", 0, "each step's number and loss over all ranks", 0},
    {0, 0, 0, 0, "How the ranks talk:", 4},
    {"init-method", KEY_INIT_METHOD, "URL", 0,
     "env://, tcp://HOST:PORT?rank=R&world_size=N or file:///PATH?rank=R&world_size=N (env://; "
     "without its variables: one rank)",
     0},
    {"bucket-kb", KEY_BUCKET_KB, "N", 0, "KiB of gradients that are reduced together (32)", 0},
    {"compress", KEY_COMPRESS, "TYPE", 0,
     "half the bytes: gradients travel as bf16, with fewer digits, or fp16, up to 65504", 0},
    {"no-overlap", KEY_NO_OVERLAP, 0, 0, "reduce after backward instead of during it", 0},
    {NULL, KEY_HELP, NULL, 0, "The same as --help", -1}, /* which argp has as -? alone */
    {0},
};

static const char doc[] =
    "Trains a small convolutional network on images, on any number of processes that share the "
    "work: each computes the gradients of its part of the batch, and kolo averages them.\v"
    "Examples:\n"
    "  kolo-train                                    one process\n"
    "  kolorun -n 2 kolo-train --epochs 3            two, the same losses\n"
    "  kolorun --no-tag -n 2 kolo-train              with a progress bar\n"
    "  kolorun -n 2 kolo-train --checkpoint run.kolo --curve run.svg\n"
    "  kolorun -n 4 kolo-train --resume run.kolo --epochs 20\n"
    "  kolorun -n 2 kolo-train --device cuda         on a GPU, or on one each\n"
    "  kolo-train --data synthetic --max-steps 50 --log-losses losses.txt\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 bad options.";

/* argp hands this back through options_parse: a sentence has been printed. */
#define PRINTED EINVAL

static int bad_value(const char *option, const char *text, const char *wanted)
{
    train_fail("--%s must be %s, not '%s'", option, wanted, text);
    return PRINTED;
}

static int parse_int(const char *option, const char *text, int low, int high, int *value)
{
    char *end, wanted[64];
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < low || number > high) {
        snprintf(wanted, sizeof wanted, "a whole number from %d to %d", low, high);
        return bad_value(option, text, wanted);
    }
    *value = (int)number;
    return 0;
}

static int parse_seed(const char *text, struct options *options)
{
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] < '0' || text[0] > '9')
        return bad_value("seed", text, "a whole number from 0 to 18446744073709551615");
    options->seed = number;
    options->is_seed_given = true;
    return 0;
}

static int parse_device(const char *text, struct options *options)
{
    options->on_gpu = strcmp(text, "cuda") == 0;
    return options->on_gpu || strcmp(text, "cpu") == 0 ? 0
                                                       : bad_value("device", text, "cpu or cuda");
}

static int parse_compress(const char *text, struct options *options)
{
    const bool is_bfloat16 = strcmp(text, "bf16") == 0;

    if (!is_bfloat16 && strcmp(text, "fp16") != 0)
        return bad_value("compress", text, "bf16 or fp16");
    options->wire = is_bfloat16 ? KOLO_BFLOAT16 : KOLO_FLOAT16;
    return 0;
}

/* 0 <= value < limit. */
static int parse_float(const char *option, const char *text, float limit, float *value)
{
    char *end, wanted[64];
    float number = strtof(text, &end);

    if (end == text || *end || !(number >= 0 && number < limit)) {
        snprintf(wanted, sizeof wanted, "a number from 0 to below %g", (double)limit);
        return bad_value(option, text, wanted);
    }
    *value = number;
    return 0;
}

static int parse_flag(int key, struct options *options)
{
    switch (key) {
    case KEY_NO_DROPOUT:
        options->dropout_percent = 0;
        return 0;
    case KEY_NO_SHUFFLE:
        options->no_shuffle = true;
        return 0;
    case KEY_NO_OVERLAP:
        options->no_overlap = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_text(int key, const char *text, struct options *options)
{
    struct {
        int key;
        const char **value;
    } const texts[] = {
        {KEY_DATA, &options->data},
        {KEY_RESUME, &options->resume},
        {KEY_CURVE, &options->curve},
        {KEY_CHECKPOINT, &options->checkpoint},
        {KEY_INIT, &options->init},
        {KEY_LOG_LOSSES, &options->log_losses},
        {KEY_INIT_METHOD, &options->init_method},
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].key == key) {
            *texts[i].value = text;
            return 0;
        }
    return parse_flag(key, options);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct options *options = state->input;

    switch (key) {
    case KEY_EPOCHS:
        return parse_int("epochs", text, 1, INT_MAX, &options->epochs);
    case KEY_MAX_STEPS:
        return parse_int("max-steps", text, 1, INT_MAX, &options->max_steps);
    case KEY_BATCH:
        return parse_int("batch", text, 1, INT_MAX, &options->batch);
    case KEY_BUCKET_KB:
        return parse_int("bucket-kb", text, 1, INT_MAX, &options->bucket_kb);
    case KEY_DROPOUT:
        return parse_int("dropout", text, 0, 99, &options->dropout_percent);
    case KEY_RATE:
        return parse_float("lr", text, 1000, &options->rate);
    case KEY_MOMENTUM:
        return parse_float("momentum", text, 1, &options->momentum);
    case KEY_DEVICE:
        return parse_device(text, options);
    case KEY_COMPRESS:
        return parse_compress(text, options);
    case KEY_SEED:
        return parse_seed(text, options);
    case KEY_HELP:
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        train_fail("there are no arguments but options; '%s' is none (see --help)", text);
        return PRINTED;
    default:
        return parse_text(key, text, options);
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kolo-train (kolo) %s\n", kolo_version());
}

int options_parse(int argc, char **argv, struct options *options)
{
    const struct argp argp = {option_list, parse, NULL, doc, NULL, NULL, NULL};
    struct options parsed = {
        .epochs = 10,
        .batch = 64,
        .rate = 0.01f,
        .momentum = 0.9f,
        .dropout_percent = 10,
        .seed = 1234,
        .bucket_kb = 32,
        .init_method = "env://",
    };

    argp_program_version_hook = print_version;
    argp_err_exit_status = TRAIN_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &parsed))
        return TRAIN_USAGE;
    if (parsed.init && parsed.resume) {
        train_fail("--init and --resume both bring weights: give one of them");
        return TRAIN_USAGE;
    }
    *options = parsed;
    return TRAIN_OK;
}
