/* SPDX-License-Identifier: MIT
 *
 * options.h: values of command-line options. What is wrong is said by argp_error, which exits.
 */
#ifndef KO_OPTIONS_H
#define KO_OPTIONS_H

#include <argp.h>

/* A whole number from low to high; -1 if the text is none. */
int ko_whole_read(const char *text, int low, int high, int *whole);

/* The value of option `what`, a whole number from low to high. */
int ko_option_whole(struct argp_state *state, const char *what, const char *text, int low,
                    int high);

/* The value of option `what`, bytes: a number that may end in K, M, G or T (powers of 1024). */
size_t ko_option_bytes(struct argp_state *state, const char *what, const char *text);

/* The same; -1: it is none. */
int ko_bytes_read(const char *text, size_t *nbytes);

/* The row of -h, which argp has as -? alone; its key has the list of options printed. */
#define KO_OPTION_HELP                               \
    {                                                \
        NULL, 'h', NULL, 0, "The same as --help", -1 \
    }

/* Prints that list and exits. */
void ko_option_help(struct argp_state *state);

enum { KO_BYTES_TEXT = 32 };

/* "64 KiB", "1.5 MiB". */
void ko_bytes_text(double nbytes, char text[KO_BYTES_TEXT]);

#endif
