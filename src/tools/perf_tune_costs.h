/* SPDX-License-Identifier: MIT
 *
 * perf_tune_costs.h: costs out of what probes took: calls between two ranks at work at once, each
 * of which stresses one or two of them, in the order in which they can be told apart:
 *
 *   broadcast        the receiver's copies out of slots, with which the root's into them keep up
 *   reduce           the root's reductions
 *   reduce_scatter   a rank's copies into slots, and its reductions
 *   copy             each rank's copy of its own, as of a block that stays
 *   lone_copy        a root's, while the other has none to make
 *   all_gather       copies in and out; the own block lies where it belongs
 *
 * What is read out of a peer's process, and not out of a thread's memory, is measured by two
 * processes, the same way:
 *
 *   all_gather       one copy of the other's block by the system
 *   broadcast        one copy of which the root, who only waits, does a part
 */
#ifndef KO_PERF_TUNE_COSTS_H
#define KO_PERF_TUNE_COSTS_H

#include "costs.h"

#include <stdbool.h>
#include <stddef.h>

enum ko_probe {
    KO_PROBE_EMPTY,
    KO_PROBE_BROADCAST,
    KO_PROBE_REDUCE,
    KO_PROBE_REDUCE_SCATTER,
    KO_PROBE_COPY,
    KO_PROBE_LONE_COPY,
    KO_PROBE_ALL_GATHER,
    KO_NPROBES
};

/* Microseconds of a call, by probe and footprint; of the empty one by the first alone. */
struct ko_probe_times {
    double us[KO_NPROBES][KO_FOOTPRINTS];
    bool is_read; /* by the receiver, out of its peer's memory */
};

/* Bytes of the footprint with that number (costs.h). */
static inline size_t ko_probe_footprint(int footprint)
{
    return (size_t)1 << (KO_LEAST_FOOTPRINT + 2 * footprint);
}

/* How many bytes a probe's message has in all if the buffers of the two ranks are to have that
 * footprint: whole floats. */
size_t ko_probe_bytes(enum ko_probe probe, int footprint);

/* What is left of a sum without its other parts; noise must not make it nothing. */
double ko_rest(double sum, double parts);

/* Of a link, by what went through its slots, or its messages; and of reductions. */
void ko_find_link(const struct ko_probe_times *times, struct ko_link_costs *link,
                  double reduce[KO_FOOTPRINTS]);

/* Of a rank's own copies, and of those out of the link's slots. */
void ko_find_copies(const struct ko_probe_times *times, struct ko_costs *costs);

/* Of what is read, whose `call` is known. */
void ko_find_reading(const struct ko_probe_times *times, struct ko_reading_costs *reading);

#endif
