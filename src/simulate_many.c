/* SPDX-License-Identifier: MIT
 *
 * Algorithms are regular: their times among a few ranks tell how they grow. A call is carried out
 * among three numbers of ranks, each twice the one before, once as it is and once of no bytes at
 * all, which is what its messages alone take. Each of the two, the messages and the bytes, is taken
 * to be
 *     a + b log2(ranks) + c ranks
 * as those of rings, trees, doubling and direct exchanges are, with no c where neither a rank nor a
 * chain has as many messages, or bytes, again. Apart, since the one may grow with the ranks where
 * the other does not: of a buffer in ever smaller chunks each doubling of the ranks adds less than
 * the one before, and so on.
 */
#include "simulate_prices.h"

#include "layout.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>

enum { NPOINTS = 3, POINT_ACTIONS = 16000 }; /* enough to fill the pipelines of the largest */

/* A doubling that adds less than so much of what the one before added: chunks become smaller. */
static const double SHRINKING = 0.75;

/* Of the largest of the three: with many hosts, which stand for each other; with few. */
enum { MOST_RANKS = 64, MOST_OF_FEW_HOSTS = 32 };

/* Where hosts are many: so many ranks on one. Where they are few: so many of them. */
enum { MOST_PER_HOST = 8, FEW_HOSTS = 4 };

/* The smallest of the three, and how many times as many the call has of what is doubled. */
struct growth {
    int nhosts, per_host;
    bool grows_by_hosts;
    double times;
};

static struct growth growth_of(const struct ko_hosts *hosts, int n)
{
    const int each = (n - 1) / hosts->n + 1;
    struct growth growth = {.grows_by_hosts = hosts->n >= each};

    if (growth.grows_by_hosts) {
        growth.per_host = each < MOST_PER_HOST ? each : MOST_PER_HOST;
        growth.nhosts = MOST_RANKS / growth.per_host / 4;
        growth.times = (double)hosts->n / growth.nhosts;
    } else {
        growth.nhosts = hosts->n < FEW_HOSTS ? hosts->n : FEW_HOSTS;
        growth.per_host = MOST_OF_FEW_HOSTS / growth.nhosts / 4;
        growth.times = (double)each / growth.per_host;
    }
    return growth;
}

/* The call among the ranks of point i, on hosts with cores for as many of them as before. costs has
 * room for its own; *hosts is to be freed. */
static int make_point(const struct ko_simulation *whole, const struct growth *growth, int i,
                      struct ko_simulation *point, struct ko_costs *costs, struct ko_hosts **hosts)
{
    const int per_host = growth->grows_by_hosts ? growth->per_host : growth->per_host << i;
    const int nhosts = growth->grows_by_hosts ? growth->nhosts << i : growth->nhosts;
    const struct ko_hosts *all = whole->call.hosts;
    int err = ko_layout_even(nhosts * per_host, per_host, hosts);

    if (err)
        return err;
    (*hosts)->has_windows = all->has_windows;
    *costs = *whole->costs;
    costs->cores = fmax(costs->cores * per_host * all->n / whole->call.n, 1);
    *point = *whole;
    point->costs = costs;
    point->most_actions = POINT_ACTIONS;
    point->footprint = ko_simulate_footprint(whole);
    point->call.hosts = *hosts;
    point->call.n = nhosts * per_host;
    point->call.root = 0;
    return KOLO_OK;
}

/* What one rank at most does in a call of no bytes. */
static int count_most(const struct ko_paper_call *call, size_t *most)
{
    int err = KOLO_OK;

    *most = 0;
    for (int rank = 0; rank < call->n && !err; rank++) {
        size_t nactions = 0;

        err = ko_paper_tally(call, rank, &nactions);
        *most = nactions > *most ? nactions : *most;
    }
    return err;
}

/* What a call takes where nothing but links of these costs takes time. */
static int time_links(const struct ko_simulation *point, const struct ko_link_costs *link,
                      double *time)
{
    struct ko_costs costs = {.links = {*link, *link}, .cores = point->call.n, .spin = 1e12};
    struct ko_simulation simulation = *point;

    simulation.costs = &costs;
    return ko_simulate(&simulation, time);
}

/* How many messages have to follow each other, and how many bytes. */
static int count_hops(const struct ko_simulation *point, double *hops)
{
    return time_links(point, &(struct ko_link_costs){.latency = 1}, hops);
}

static int count_flow(const struct ko_simulation *point, double *flow)
{
    struct ko_link_costs link = {.latency = 0};

    for (int i = 0; i < KO_FOOTPRINTS; i++)
        link.send_byte[i] = 1;
    return time_links(point, &link, flow);
}

/* What is known of a number of ranks. */
struct point {
    double messages, bytes; /* us */
    size_t most;            /* actions of a rank */
    double hops, flow;      /* the most messages that follow each other, and bytes */
};

/* Whether one rank, or a chain of them, has about twice as much to do as half the ranks had. */
static bool is_twice(const struct point *point, const struct point *half)
{
    return 2 * point->most > 3 * half->most || 2 * point->hops > 3 * half->hops;
}

static int look_at(const struct ko_simulation *whole, const struct growth *growth, int i,
                   struct point *point)
{
    struct ko_simulation simulation;
    struct ko_hosts *hosts;
    struct ko_costs costs;
    int err = make_point(whole, growth, i, &simulation, &costs, &hosts);

    if (err)
        return err;
    err = ko_simulate(&simulation, &point->bytes);
    if (!err)
        err = count_flow(&simulation, &point->flow);
    simulation.call.count = 0;
    if (!err)
        err = ko_simulate(&simulation, &point->messages);
    if (!err)
        err = count_most(&simulation.call, &point->most);
    if (!err)
        err = count_hops(&simulation, &point->hops);
    point->bytes -= point->messages;
    free(hosts);
    return err;
}

/* What three points say of so many times the first one's ranks; what does not grow stays. The
 * latter of two doublings says more of those to come, but where it adds less: trees of base 4 add
 * with every other one. */
static double extend(double one, double two, double four, double times, bool is_linear)
{
    const double first = two - one, second = four - two;
    double by_each = is_linear ? second - first : 0;
    double by_doubling =
        is_linear ? 2 * first - second : fmax((four - one) / 2, (first + 3 * second) / 4);

    if (by_each < 0 || second <= 0) {
        by_each = 0;
        by_doubling = second;
    } else if (by_doubling < 0) {
        by_each = is_linear ? second / 2 : 0;
        by_doubling = 0;
    }
    return four + fmax(by_doubling, 0) * (log2(times) - 2) + by_each * (times - 4);
}

/* The same of what each doubling adds less to, by a part of the one before. */
static double extend_shrinking(double two, double four, double times, double part)
{
    return four + (four - two) * part * (1 - pow(part, log2(times) - 2)) / (1 - part);
}

/* What each doubling adds to the bytes that follow each other, or takes from them, as part of what
 * the one before it did; 1: as much, or nothing is known. */
static double part_of(const struct point at[NPOINTS])
{
    const double first = at[1].flow - at[0].flow, second = at[2].flow - at[1].flow;

    return first * second > 0 && second / first < SHRINKING ? second / first : 1;
}

/* Whether there is more to send, and not only to more ranks, among more of them. */
static bool has_blocks(enum ko_collective what)
{
    return what >= KO_ALL_GATHER && what <= KO_ALL_TO_ALL;
}

int ko_simulate_many(const struct ko_simulation *simulation, double *us)
{
    const struct growth growth = growth_of(simulation->call.hosts, simulation->call.n);
    struct point at[NPOINTS] = {{.most = 0}};
    double bytes, part;
    bool is_linear;
    int err = KOLO_OK;

    for (int i = 0; i < NPOINTS && !err; i++)
        err = look_at(simulation, &growth, i, &at[i]);
    if (err)
        return err;
    is_linear = is_twice(&at[2], &at[1]);
    part = has_blocks(simulation->call.text->what) ? 1 : part_of(at);
    if (part < 1)
        bytes = extend_shrinking(at[1].bytes, at[2].bytes, growth.times, part);
    else
        bytes = extend(at[0].bytes, at[1].bytes, at[2].bytes, growth.times,
                       is_linear || has_blocks(simulation->call.text->what));
    *us = extend(at[0].messages, at[1].messages, at[2].messages, growth.times, is_linear) +
          fmax(0, bytes);
    return KOLO_OK;
}
