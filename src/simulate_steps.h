/* SPDX-License-Identifier: MIT
 *
 * simulate_steps.h: what the ranks of a simulation do, in a few bytes for each verb, and the wires
 * between them, which are numbered. Ranks that do the same, each on its own wires, share a list.
 */
#ifndef KO_SIMULATE_STEPS_H
#define KO_SIMULATE_STEPS_H

#include "paper.h"

#include <stdint.h>

/* PASS: a send of what was just reduced into its slot. SEND_NEAR: of the slice that the rank has
 * touched last, which lies in its nearest cache however large the call is. */
enum ko_step_kind {
    KO_STEP_SEND,
    KO_STEP_SEND_NEAR,
    KO_STEP_PASS,
    KO_STEP_RECEIVE,
    KO_STEP_REDUCE,
    KO_STEP_REDUCE_TOO, /* with what was reduced already */
    KO_STEP_COPY
};

/* A verb, or a part of one. */
struct ko_step {
    uint8_t kind;
    uint8_t link;       /* KO_LOCAL or KO_REMOTE, of costs.h */
    bool is_beside : 1; /* the other rank shares the core */
    bool is_away : 1;   /* it sits on another host */
    bool stays : 1;     /* of what is sent: its sender writes it no more, so that it can be read */
    bool is_lent : 1;   /* and its receiver reduces it */
    bool is_idle : 1;   /* of what is received: its rank sends nothing in the call */
    uint32_t end;       /* of the rank's wires, on which it sends or receives; COPY: 0 */
    uint32_t nbytes;
};

/* What a rank does: steps[begin] to steps[end - 1], on wires[wires + 0], wires[wires + 1] ... */
struct ko_script {
    size_t begin, end, wires;
};

/* Of ranks 0 to period - 1, of which each stands for those that sit a multiple of period later. */
struct ko_steps {
    struct ko_script *scripts; /* by rank */
    struct ko_step *steps;
    size_t nsteps, room;
    uint32_t *wires; /* by the ends of all ranks: their numbers */
    size_t nends;
    uint32_t *messages; /* by wire: how many are sent on it */
    size_t nwires;
};

/* The core of its host on which a rank runs: they take the cores in turn. */
static inline int ko_core_of(const struct ko_hosts *hosts, int rank, int ncores)
{
    return hosts->place[rank] % ncores;
}

/* Writes the call down, one rank at a time; ncores are those of a host. KOLO_E_NOMEM. steps is to
 * be freed in any case. */
int ko_steps_write(const struct ko_paper_call *call, size_t element, int period, int ncores,
                   struct ko_steps *steps);
void ko_steps_free(struct ko_steps *steps);

#endif
