/* SPDX-License-Identifier: MIT */
#include "costs.h"

#include <math.h>

const struct ko_costs ko_default_costs =
    {
        .links =
            {
                [KO_LOCAL] = {.latency = 0.06,
                              .send = 0.03,
                              .receive = 0.03,
                              .send_byte = {1.4e-5, 1.6e-5, 2e-5, 2.6e-5, 5e-5, 6.5e-5},
                              .receive_byte = {1.6e-5, 1.7e-5, 1.8e-5, 1.9e-5, 4.5e-5, 6e-5},
                              .waiting_byte = {1.6e-5, 1.7e-5, 1.8e-5, 1.9e-5, 4.5e-5, 6e-5},
                              .wire_byte = 0},
                [KO_REMOTE] = {.latency = 8,
                               .send = 1.5,
                               .receive = 1.5,
                               .send_byte = {8e-5, 8e-5, 8e-5, 9e-5, 1e-4, 1.2e-4},
                               .receive_byte = {9e-5, 9e-5, 1e-4, 1.2e-4, 1.6e-4, 2e-4},
                               .waiting_byte = {9e-5, 9e-5, 1e-4, 1.2e-4, 1.6e-4, 2e-4},
                               .wire_byte = 8e-5},
            },
        .reduce_byte = {2.7e-5, 2.7e-5, 3e-5, 3.2e-5, 6e-5, 8e-5},
        .copy_byte = {8e-6, 8e-6, 1.5e-5, 1.8e-5, 4e-5, 4.5e-5},
        .lone_copy_byte = {8e-6, 8e-6, 1.5e-5, 1.8e-5, 4e-5, 4.5e-5},
        /* As long as both copies take, and a third: nothing is chosen because of it. */
        .reading = {.call = 0.5,
                    .byte = {4e-5, 4.4e-5, 5e-5, 6e-5, 1.3e-4, 1.7e-4},
                    .helped_byte = {2.2e-5, 2.4e-5, 2.8e-5, 3.5e-5, 6.6e-5, 8.6e-5},
                    .cache = 1 << 20},
        .cores = 16,
        .change = 0.2,
        .spin = 50,
        .wake = 10,
        .call = 0.05,
};

double ko_cost_at(const double costs[KO_FOOTPRINTS], double footprint)
{
    const double place = (log2(footprint > 1 ? footprint : 1) - KO_LEAST_FOOTPRINT) / 2;
    const int before = (int)floor(place);
    const double part = place - before;

    if (place <= 0)
        return costs[0];
    if (before >= KO_FOOTPRINTS - 1)
        return costs[KO_FOOTPRINTS - 1];
    return costs[before] * (1 - part) + costs[before + 1] * part;
}
