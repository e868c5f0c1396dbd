/* SPDX-License-Identifier: MIT
 *
 * Links try out what takes less time, slots or reading (foreign.h), and so does this: each way has
 * its price, and the lower one counts.
 */
#include "simulate_prices.h"

#include "coll_flow.h"
#include "foreign.h"

#include <math.h>

/* Costs were measured between two ranks; slots of further links drive out of the caches as much as
 * so much larger buffers would. Who comes back to a core finds its own cache another's, too: that
 * costs so much more, once what is touched fills it, and less of less (found by measuring). */
static const double COLDER = 1.5, COLD_CHANGE = 4, OWN_CACHE = 1.2e6;

/* Of several parts that are reduced at once, each after the first costs so much of a reduction of
 * two in the nearest cache: it is read, from its slot, but the sum is written once (found by
 * measuring). */
static const double FURTHER = 0.6;

/* Elements of a rank's buffers; a broadcast has one only. */
static size_t touched(const struct ko_paper_call *call, int rank)
{
    const size_t out = ko_paper_out_count(call, rank);

    return call->text->what == KO_BROADCAST ? out : ko_paper_in_count(call, rank) + out;
}

double ko_simulate_footprint(const struct ko_simulation *simulation)
{
    const struct ko_paper_call *call = &simulation->call;
    const double root = (double)touched(call, call->root);
    const double other = (double)touched(call, (call->root + 1) % call->n);

    if (simulation->footprint > 0)
        return simulation->footprint;
    return (root + other * (call->n - 1)) * (double)simulation->element / call->hosts->n / 2;
}

/* What becomes of slices, of which those of a reduce_scatter are all reduced. Without a cache
 * nothing is read. */
static void find_flows(struct ko_prices *prices, const struct ko_simulation *simulation)
{
    const struct ko_paper_call *call = &simulation->call;
    const struct ko_extent extent = {.what = call->text->what,
                                     .n = (size_t)call->n,
                                     .nbytes = call->count * simulation->element,
                                     .cache_bytes = (size_t)simulation->costs->reading.cache,
                                     .slice_bytes = call->slice * simulation->element};

    prices->flow = prices->folded = KO_USED;
    if (!extent.cache_bytes)
        return;
    prices->folded = ko_folded_flow_of(&extent);
    prices->flow = extent.what == KO_REDUCE_SCATTER ? prices->folded : ko_flow_of(&extent);
}

static void find_reading(struct ko_prices *prices, const struct ko_reading_costs *costs,
                         double footprint)
{
    const bool is_helped = prices->flow == KO_STREAM;

    prices->read = costs->call;
    prices->read_byte = ko_cost_at(is_helped ? costs->helped_byte : costs->byte, footprint);
}

/* For what the whole call touches, of whatever part of it a world is. */
void ko_prices_find(struct ko_prices *prices, const struct ko_simulation *simulation)
{
    const struct ko_costs *costs = simulation->costs;
    const double colder = simulation->call.n > 2 ? COLDER : 1;
    const double footprint = colder * ko_simulate_footprint(simulation);
    const double slots =
        (double)simulation->call.slots * (double)(simulation->call.slice * simulation->element);

    for (int kind = 0; kind < KO_NLINKS; kind++) {
        prices->send_byte[kind] = ko_cost_at(costs->links[kind].send_byte, footprint);
        prices->receive_byte[kind] = ko_cost_at(costs->links[kind].receive_byte, footprint);
        prices->waiting_byte[kind] = ko_cost_at(costs->links[kind].waiting_byte, footprint);
    }
    prices->near_byte = ko_cost_at(costs->links[KO_LOCAL].send_byte, fmin(footprint, slots));
    prices->reduce_byte = ko_cost_at(costs->reduce_byte, footprint);
    prices->near_reduce_byte = costs->reduce_byte[0];
    prices->change = (1 + COLD_CHANGE * fmin(1, footprint / OWN_CACHE)) * costs->change;
    prices->further_byte = FURTHER * costs->reduce_byte[0];
    prices->copy_byte = ko_cost_at(costs->copy_byte, footprint);
    prices->near_copy_byte = costs->copy_byte[0];
    prices->own_byte = ko_has_root(simulation->call.text->what)
                           ? ko_cost_at(costs->lone_copy_byte, footprint)
                           : prices->copy_byte;
    prices->out_byte = fmax(prices->send_byte[KO_LOCAL] - prices->copy_byte, 0);
    prices->in_byte = fmax(prices->waiting_byte[KO_LOCAL] - prices->copy_byte, 0);
    find_flows(prices, simulation);
    find_reading(prices, &costs->reading, footprint);
}

/* What a slice takes through a slot for who waits for it, or of several that follow each other. */
static double slot_us(const struct ko_prices *prices, const struct ko_link_costs *link,
                      enum ko_flow flow, double nbytes)
{
    const double in = link->send + nbytes * prices->send_byte[KO_LOCAL];
    const double out = link->receive + nbytes * prices->receive_byte[KO_LOCAL];

    if (flow == KO_STREAM)
        return fmax(in, link->receive + nbytes * prices->waiting_byte[KO_LOCAL]);
    return flow >= KO_FOLDED ? in + nbytes * prices->reduce_byte : in + out;
}

bool ko_prices_say_read(const struct ko_prices *prices, const struct ko_link_costs *link,
                        const struct ko_step *step)
{
    const enum ko_flow flow = step->is_lent ? prices->folded : prices->flow;
    const double nbytes = step->nbytes;
    const double reduced = flow >= KO_FOLDED ? nbytes * prices->near_reduce_byte : 0;

    return step->stays && flow >= KO_STREAM && step->nbytes >= KO_FOREIGN_LEAST &&
           prices->read + nbytes * prices->read_byte + reduced <
               slot_us(prices, link, flow, nbytes);
}
