/* SPDX-License-Identifier: MIT
 *
 * No spaces behind, no overflow: a number or an error.
 */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ko_whole_read(const char *text, int low, int high, int *whole)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (end == text || *end || errno || number < low || number > high)
        return -1;
    *whole = (int)number;
    return 0;
}

int ko_option_whole(struct argp_state *state, const char *what, const char *text, int low, int high)
{
    int whole = low;

    if (ko_whole_read(text, low, high, &whole))
        argp_error(state, "%s is \"%s\"; it takes a whole number from %d to %d", what, text, low,
                   high);
    return whole;
}

void ko_option_help(struct argp_state *state)
{
    argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
}

int ko_bytes_read(const char *text, size_t *nbytes)
{
    static const char units[] = "KMGT";
    char *end;
    double number = strtod(text, &end);
    const int letter = *end & ~0x20; /* its capital; of a space, nothing */
    const char *unit = letter ? strchr(units, letter) : NULL;

    if (end == text || !isfinite(number) || number < 0)
        return -1;
    if (unit) {
        number *= (double)((size_t)1024 << 10 * (unit - units));
        end++;
    }
    if (*end || number > 0x1p53 || number != floor(number))
        return -1;
    *nbytes = (size_t)number;
    return 0;
}

size_t ko_option_bytes(struct argp_state *state, const char *what, const char *text)
{
    size_t nbytes = 0;

    if (ko_bytes_read(text, &nbytes))
        argp_error(state, "%s is \"%s\"; it takes bytes, as in 8, 4K, 1.5M or 1G", what, text);
    return nbytes;
}

void ko_bytes_text(double nbytes, char text[KO_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    while (nbytes >= 1024 && unit < 4) {
        nbytes /= 1024;
        unit++;
    }
    snprintf(text, KO_BYTES_TEXT, "%.*g %s", nbytes < 999.5 ? 3 : 4, nbytes, units[unit]);
}
