/* SPDX-License-Identifier: MIT
 *
 * report.h: how the programs of tests/gpu tell what they found: one line per fact on the standard
 * output, four columns with tabs between them, of which tests/gpu/check makes its table and its
 * records. Everything else they say goes to the standard error output.
 */
#ifndef REPORT_H
#define REPORT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* "what<TAB>value<TAB>unit<TAB>note" */
static inline void report(const char *what, double value, const char *unit, const char *note)
{
    printf("%s\t%.6g\t%s\t%s\n", what, value, unit, note);
    fflush(stdout);
}

/* What is no number. */
static inline void report_text(const char *what, const char *note)
{
    printf("%s\t\t\t%s\n", what, note);
    fflush(stdout);
}

#endif
