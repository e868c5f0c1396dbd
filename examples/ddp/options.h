/* SPDX-License-Identifier: MIT
 *
 * options.h: the command line.
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>

struct options {
    int epochs;
    int max_steps; /* 0: no limit */
    int batch;     /* over all ranks */
    float rate, momentum;
    uint64_t seed;
    bool is_seed_given;
    int dropout_percent;
    bool no_shuffle, no_overlap;
    bool on_gpu;
    int bucket_kb;
    kolo_dtype wire; /* of gradients; 0: as they are */
    const char *init_method;
    const char *data; /* NULL: Fashion-MNIST if it is installed, else synthetic */
    const char *init; /* files; NULL: none */
    const char *resume;
    const char *checkpoint;
    const char *curve;
    const char *log_losses;
};

/* Fills *options from the arguments, whose strings it keeps. A bad one is a sentence on stderr and
 * TRAIN_USAGE. --help and --version print and exit. */
int options_parse(int argc, char **argv, struct options *options);

#endif
