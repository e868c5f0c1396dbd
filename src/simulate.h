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
    size_t most_actions; /* carried out one by one; 0: four million */
    bool is_whole;       /* no host stands for others */
    double footprint; /* of the call that this one stands for, costs.h; 0: it stands for itself */
};

/* Predicts the microseconds of the call.
 *
 * What a rank does may be the same for all, turned around: then one host's ranks stand for all. A
 * call of more slices than most_actions allows is carried out for fewer, and the rest takes as long
 * as the last of them did. KOLO_E_UNSUPPORTED: too large even so; the text says how many ranks
 * would do. Deterministic: every process of the same build gets the same bits. */
int ko_simulate(const struct ko_simulation *simulation, double *us);

/* Predicts the same of any number of ranks by what a few take, in a time that does not grow with
 * them; by a few percent in most cases. KOLO_E_UNSUPPORTED: even a few are too many. */
int ko_simulate_many(const struct ko_simulation *simulation, double *us);

#endif
