/* SPDX-License-Identifier: MIT
 *
 * perf_tune.h: measures what costs.h wants to know, with two ranks on this machine.
 */
#ifndef KO_PERF_TUNE_H
#define KO_PERF_TUNE_H

#include "costs.h"

/* Some ten seconds. What of a network between hosts cannot be seen here is taken from tcp over
 * loopback; the wire stays as it usually is. */
int ko_perf_tune(struct ko_costs *costs);

#endif
