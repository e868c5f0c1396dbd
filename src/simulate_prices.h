/* SPDX-License-Identifier: MIT
 *
 * simulate_prices.h: costs.h looked up for what a call touches, and what becomes of its slices.
 */
#ifndef KO_SIMULATE_PRICES_H
#define KO_SIMULATE_PRICES_H

#include "link.h"
#include "simulate.h"
#include "simulate_steps.h"

/* Of a byte, but the change, and the call of the system by which a slice is read. */
struct ko_prices {
    double send_byte[KO_NLINKS], receive_byte[KO_NLINKS], waiting_byte[KO_NLINKS];
    double reduce_byte, copy_byte;
    double own_byte; /* of a rank's own block, which it copies */
    double near_byte, near_copy_byte, near_reduce_byte, further_byte;
    double out_byte, in_byte; /* what it takes more that a slot is another core's rank's */
    double change;
    double read_byte, read;    /* where it lies */
    enum ko_flow flow, folded; /* of slices that are sent, of those that are reduced (link.h) */
};

void ko_prices_find(struct ko_prices *prices, const struct ko_simulation *simulation);

/* Whether a slice that is sent from one core of a host to another stays where it lies, since its
 * receiver is done with it sooner if it reads it there, as links find out (foreign.h). */
bool ko_prices_say_read(const struct ko_prices *prices, const struct ko_link_costs *link,
                        const struct ko_step *step);

/* The bytes that the call touches on each of two ranks of a host. */
double ko_simulate_footprint(const struct ko_simulation *simulation);

#endif
