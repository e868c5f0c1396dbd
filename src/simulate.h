/* SPDX-License-Identifier: MIT
 *
 * simulate.h: how long a call on paper would take. Every rank carries out its list of actions
 * (paper.h) under the costs of costs.h, with the slots of each link, the cores of each host and its
 * wire as the only limits. Buffers and their contents are of no interest here.
 */
#ifndef KO_SIMULATE_H
#define KO_SIMULATE_H

#include "costs.h"
#include "paper.h"

struct ko_simulation {
    struct ko_paper_call call; /* with hosts */
    size_t element;            /* bytes */
    const struct ko_costs *costs;
    size_t most_actions; /* carried out one by one; 0: two million */
    bool is_whole;       /* no host stands for others */
};

/* Predicts the microseconds of the call.
 *
 * What a rank does may be the same for all, turned around: then one host's ranks stand for all. A
 * call of more slices than most_actions allows is carried out for fewer, and the rest takes as long
 * as the last of them did. KOLO_E_UNSUPPORTED: too large even so; the text says how many ranks
 * would do. Deterministic: every process of the same build gets the same bits. */
int ko_simulate(const struct ko_simulation *simulation, double *us);

#endif
