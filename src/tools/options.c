/* SPDX-License-Identifier: MIT
 *
 * No sign of units, no spaces behind, no overflow: a number or an error.
 */
#include "options.h"

#include <errno.h>
#include <stdlib.h>

int ko_option_whole(struct argp_state *state, const char *what, const char *text, int low, int high)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (end == text || *end || errno || number < low || number > high)
        argp_error(state, "%s is \"%s\"; it takes a whole number from %d to %d", what, text, low,
                   high);
    return (int)number;
}
