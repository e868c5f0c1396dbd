/* SPDX-License-Identifier: MIT
 *
 * predictions.h: what the simulation says of a call whose slices and slots are those below, and
 * whose ranks lie on hosts of per_host. All assert.
 */
#ifndef PREDICTIONS_H
#define PREDICTIONS_H

#include "simulate.h"

enum { PREDICTED_SLICE = 1024, PREDICTED_SLOTS = 8, PREDICTED_ELEMENT = 4 };

/* Nothing but what the caller adds. */
struct ko_costs free_costs(void);

/* Within this part of what is wanted. */
void assert_close(double got, double want, double tolerance);

const struct ko_paper_text *predicted_text(enum ko_collective what, const char *name);

/* The simulation of a call, to be changed, and what it says; that frees its hosts. */
struct ko_simulation predicted_call(const struct ko_paper_text *text, int n, int per_host,
                                    size_t count, const struct ko_costs *costs);
double predicted_us(struct ko_simulation *simulation,
                    int (*by)(const struct ko_simulation *simulation, double *us));

/* Microseconds; most_actions and is_whole are those of struct ko_simulation. */
double predict_wholly(enum ko_collective what, const char *name, int n, int per_host, size_t count,
                      const struct ko_costs *costs, size_t most_actions, bool is_whole);
double predict(enum ko_collective what, const char *name, int n, int per_host, size_t count,
               const struct ko_costs *costs);
/* By what a few ranks take. */
double predict_by_few(const struct ko_paper_text *text, int n, int per_host, size_t count,
                      const struct ko_costs *costs);

#endif
