/* SPDX-License-Identifier: MIT
 *
 * simulate_world.h: the ranks of a simulation, their links, cores and wires.
 */
#ifndef KO_SIMULATE_WORLD_H
#define KO_SIMULATE_WORLD_H

#include "simulate.h"

/* Carries the call out for count elements by ranks 0 to period - 1, of which each stands for those
 * that sit a multiple of period later. */
int ko_simulate_world(const struct ko_simulation *simulation, size_t count, int period, double *us);

#endif
