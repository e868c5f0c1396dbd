/* SPDX-License-Identifier: MIT */
#include "perf_tune_costs.h"

#include <math.h>

size_t ko_probe_bytes(enum ko_probe probe, int footprint)
{
    /* one buffer each, three of the two, three blocks each, two of its own each, two of one rank's,
     * two blocks each */
    static const double share[KO_NPROBES] = {
        [KO_PROBE_BROADCAST] = 1,  [KO_PROBE_REDUCE] = 2.0 / 3, [KO_PROBE_REDUCE_SCATTER] = 1.0 / 3,
        [KO_PROBE_COPY] = 1.0 / 2, [KO_PROBE_LONE_COPY] = 1,    [KO_PROBE_ALL_GATHER] = 1.0 / 2};

    return (size_t)((double)ko_probe_footprint(footprint) * share[probe]) / sizeof(float) *
           sizeof(float);
}

double ko_rest(double sum, double parts)
{
    return sum - parts > sum / 10 ? sum - parts : sum / 10;
}

/* Of a probe's call at a footprint, beyond what an empty one takes. */
static double per_byte(const struct ko_probe_times *times, enum ko_probe probe, int footprint)
{
    return ko_rest(times->us[probe][footprint], times->us[KO_PROBE_EMPTY][0]) /
           (double)ko_probe_bytes(probe, footprint);
}

void ko_find_link(const struct ko_probe_times *times, struct ko_link_costs *link,
                  double reduce[KO_FOOTPRINTS])
{
    const double empty = times->us[KO_PROBE_EMPTY][0];

    link->latency = empty * 0.4;
    link->send = link->receive = empty * 0.2;
    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        link->waiting_byte[f] = per_byte(times, KO_PROBE_BROADCAST, f);
        link->receive_byte[f] = link->waiting_byte[f];
        reduce[f] = per_byte(times, KO_PROBE_REDUCE, f);
        /* a broadcast is as slow as the slower of its two ends */
        link->send_byte[f] = fmin(ko_rest(per_byte(times, KO_PROBE_REDUCE_SCATTER, f), reduce[f]),
                                  link->waiting_byte[f]);
    }
}

void ko_find_copies(const struct ko_probe_times *times, struct ko_costs *costs)
{
    struct ko_link_costs *link = &costs->links[KO_LOCAL];

    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        costs->copy_byte[f] = per_byte(times, KO_PROBE_COPY, f);
        costs->lone_copy_byte[f] = per_byte(times, KO_PROBE_LONE_COPY, f);
        link->receive_byte[f] =
            ko_rest(per_byte(times, KO_PROBE_ALL_GATHER, f), link->send_byte[f]);
    }
}

void ko_find_reading(const struct ko_probe_times *times, struct ko_reading_costs *reading)
{
    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        reading->byte[f] = per_byte(times, KO_PROBE_ALL_GATHER, f);
        reading->helped_byte[f] = per_byte(times, KO_PROBE_BROADCAST, f);
    }
}
