/* SPDX-License-Identifier: MIT
 *
 * perf_tune.h: measures what costs.h wants to know, with two ranks on this machine, or with one on
 * each of two.
 */
#ifndef KO_PERF_TUNE_H
#define KO_PERF_TUNE_H

#include "costs.h"
#include "launcher.h"

/* How many rounds, by default and at most; each cost is a median of theirs. */
enum { KO_TUNE_ROUNDS = 15, KO_TUNE_MOST_ROUNDS = 100 };

/* Takes a second a round, of 1 to KO_TUNE_MOST_ROUNDS. Messages between hosts are measured between
 * this rank and the other of two that have been launched, or of one alone over loopback; the wire
 * stays as it usually is. Costs are set on rank 0, and
 * *apart, the microseconds from one of its cores to the other and back while those within a host
 * were measured (perf_cores.h); 0: they have moved so often that costs may be of both. */
int ko_perf_tune(const struct ko_placement *placement, int nrounds, struct ko_costs *costs,
                 double *apart);

#endif
