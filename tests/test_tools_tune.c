/* SPDX-License-Identifier: MIT
 *
 * What kolo-perf --tune makes of the times of its probes: on a machine whose calls take what is
 * predicted of them, the costs by which that was predicted.
 */
#include "predictions.h"
#include "tools/perf_tune_costs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SLICE = 128 << 10, LARGE = 4 /* from this footprint on a call is many slices */ };

/* By which a probe's call goes among two. */
static const struct {
    enum ko_collective what;
    const char *name;
} calls[KO_NPROBES] = {[KO_PROBE_EMPTY] = {KO_BARRIER, "dissemination"},
                       [KO_PROBE_BROADCAST] = {KO_BROADCAST, "direct"},
                       [KO_PROBE_REDUCE] = {KO_REDUCE, "direct"},
                       [KO_PROBE_REDUCE_SCATTER] = {KO_REDUCE_SCATTER, "direct"},
                       [KO_PROBE_ALL_GATHER] = {KO_ALL_GATHER, "direct"}};

static double time_probe(enum ko_probe probe, int footprint, const struct ko_costs *costs)
{
    struct ko_simulation simulation;
    double own;

    if (probe == KO_PROBE_COPY || probe == KO_PROBE_LONE_COPY)
        return (double)ko_probe_bytes(probe, footprint) *
                   (probe == KO_PROBE_COPY ? costs->copy_byte : costs->lone_copy_byte)[footprint] +
               costs->call + costs->links[KO_LOCAL].latency;
    simulation = predicted_call(predicted_text(calls[probe].what, calls[probe].name), 2, 2,
                                probe ? ko_probe_bytes(probe, footprint) : 0, costs);
    simulation.element = 1;
    simulation.call.slice = SLICE;
    simulation.call.is_in_place = probe == KO_PROBE_ALL_GATHER;
    own = probe == KO_PROBE_ALL_GATHER
              ? (double)ko_probe_bytes(probe, footprint) * costs->copy_byte[footprint]
              : 0;
    return predicted_us(&simulation, ko_simulate) - own;
}

static void time_probes(const struct ko_costs *costs, struct ko_probe_times *times)
{
    for (int probe = 0; probe < KO_NPROBES; probe++)
        for (int f = 0; f < KO_FOOTPRINTS; f++)
            times->us[probe][f] = time_probe((enum ko_probe)probe, f, costs);
}

/* What is told apart comes back to a twentieth, of long calls, of which the first slice and the
 * last are a small part. */
static void costs_come_back(void **state)
{
    struct ko_costs costs = free_costs(), found = free_costs();
    struct ko_link_costs *link = &costs.links[KO_LOCAL], *known = &found.links[KO_LOCAL];
    struct ko_probe_times times;

    (void)state;
    costs.call = 0.05;
    link->latency = 0.1;
    link->send = link->receive = 0.05;
    for (int f = 0; f < KO_FOOTPRINTS; f++) {
        link->send_byte[f] = 3e-5;
        link->receive_byte[f] = 6e-5;
        link->waiting_byte[f] = 4e-5;
        costs.reduce_byte[f] = 5e-5;
        costs.copy_byte[f] = 2e-5;
        costs.lone_copy_byte[f] = 1.5e-5;
    }
    time_probes(&costs, &times);
    ko_find_link(&times, known, found.reduce_byte);
    ko_find_copies(&times, &found);
    for (int f = LARGE; f < KO_FOOTPRINTS; f++) {
        assert_close(known->send_byte[f], link->send_byte[f], 0.05);
        assert_close(known->receive_byte[f], link->receive_byte[f], 0.05);
        assert_close(known->waiting_byte[f], link->waiting_byte[f], 0.05);
        assert_close(found.reduce_byte[f], costs.reduce_byte[f], 0.05);
        assert_close(found.copy_byte[f], costs.copy_byte[f], 0.05);
        assert_close(found.lone_copy_byte[f], costs.lone_copy_byte[f], 0.05);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
