/* SPDX-License-Identifier: MIT
 *
 * How much of a call has to be carried out to know how long all of it takes: the ranks of one host
 * if all hosts do the same, and some slices of many.
 */
#include "simulate_world.h"

#include "status.h"

#include <math.h>
#include <stdint.h>

/* At most so many actions are carried out one by one if the caller does not say. */
static const double USUAL_ACTIONS = 4e6;

/* So few are carried out before it is found out whether hosts stand for each other. */
static const double FEW_ACTIONS = 2000;

/* So many of one rank are enough to tell how its actions go on. */
enum { PROBE_ACTIONS = 1000 * 1000 };

/* Of so many ranks the actions are counted. */
enum { MOST_PROBES = 8 };

/* Actions for an element that differ by this factor are not alike. */
static const double UNLIKE = 1.25;

/* ---- a part that tells how the rest is ----------------------------------------------------- */

/* Some slices of every chunk, unless these are so many actions that fewer have to do. */
static int measure_probe(const struct ko_paper_call *call, size_t *count)
{
    const size_t enough = 4 * (size_t)call->n * call->slice;
    const size_t most = call->count < enough ? call->count : enough;
    struct ko_paper_call probe = *call;
    size_t nactions = 0;
    int err = KOLO_OK;

    probe.count = call->slice < most ? call->slice : most;
    err = ko_paper_tally(&probe, call->root, &nactions);
    while (!err && probe.count < most && nactions <= PROBE_ACTIONS) {
        probe.count = 2 * probe.count < most ? 2 * probe.count : most;
        err = ko_paper_tally(&probe, call->root, &nactions);
    }
    *count = probe.count;
    return err;
}

static struct ko_paper_call shortened(const struct ko_paper_call *call, size_t count)
{
    struct ko_paper_call shorter = *call;

    shorter.count = count;
    return shorter;
}

/* ---- turning around ---------------------------------------------------------------------- */

/* Chunks differ by an element at most. */
static bool is_alike(size_t a, size_t b)
{
    return a == b || a == b + 1 || b == a + 1;
}

/* Whether action b is action a of a rank that sits `turn` ranks before. */
static bool is_turned(const struct ko_paper_action *a, const struct ko_paper_action *b, int turn,
                      int n)
{
    return a->verb == b->verb && (a->from < 0 || (a->from + turn) % n == b->from) &&
           (a->to < 0 || (a->to + turn) % n == b->to) && is_alike(a->mine.count, b->mine.count) &&
           is_alike(a->part.count, b->part.count) && a->nranks == b->nranks;
}

/* A rank's list, and how far another one's was found to be that, turned. */
struct comparison {
    struct ko_paper_list list;
    int turn, n;
    size_t nread;
    bool is_same;
};

static void compare_action(void *context, const struct ko_paper_action *action, const int *ranks)
{
    struct comparison *comparison = context;
    const size_t at = comparison->nread++;

    (void)ranks;
    comparison->is_same =
        comparison->is_same && at < comparison->list.n &&
        is_turned(&comparison->list.actions[at], action, comparison->turn, comparison->n);
}

static bool lists_are_turned(const struct ko_paper_call *call, int rank, int turn)
{
    struct comparison comparison = {.turn = turn, .n = call->n, .is_same = true};
    const struct ko_paper_reader reader = {compare_action, &comparison};
    int err = ko_paper_write(call, rank, &comparison.list);

    if (err)
        return false;
    err = ko_paper_tell(call, (rank + turn) % call->n, &reader);
    ko_paper_free(&comparison.list);
    return !err && comparison.is_same && comparison.nread == comparison.list.n;
}

/* Whether all hosts are of one size, their ranks one behind the other, and ranks of one place do
 * the same: looked at for some. */
static bool is_same_on_all_hosts(const struct ko_paper_call *whole, size_t probe)
{
    const struct ko_paper_call shorter = shortened(whole, (probe + 1) / 2), *call = &shorter;
    const struct ko_hosts *hosts = call->hosts;
    const int n = call->n, each = hosts->least;

    if (each * hosts->n != n || hosts->host[n - 1] != hosts->n - 1 || hosts->n < 3)
        return false;
    for (int h = 0; h < hosts->n; h += 1 + hosts->n / 16)
        if (hosts->host[h * each] != h || hosts->host[h * each + each - 1] != h)
            return false;
    return lists_are_turned(call, 0, each) && lists_are_turned(call, n - 1, each) &&
           lists_are_turned(call, n / 3, each * (hosts->n / 2)) &&
           lists_are_turned(call, n / 2, n - each);
}

/* ---- a call ------------------------------------------------------------------------------ */

/* A rank to look at: of many, scattered ones, since those at even distances are the inner ones of
 * trees. */
static int probed_rank(const struct ko_paper_call *call, int i)
{
    const uint32_t scattered = (uint32_t)(i + 1) * 0x9e3779b9U;

    return call->n <= MOST_PROBES ? i : (int)((uint64_t)scattered * (uint64_t)call->n >> 32);
}

/* Actions of a rank on average, by a look at some of them; a long call has as many more as it is
 * longer than one of some slices for each rank. */
static int count_actions(const struct ko_paper_call *call, size_t probe_count, double *nactions)
{
    const int probes = call->n < MOST_PROBES ? call->n : MOST_PROBES;
    const struct ko_paper_call probe = shortened(call, probe_count);
    double found = 0;

    for (int i = 0; i < probes; i++) {
        size_t nactions_of_rank;
        int err = ko_paper_tally(&probe, probed_rank(call, i), &nactions_of_rank);

        if (err)
            return err;
        found += (double)nactions_of_rank;
    }
    *nactions = found / probes;
    if (probe.count)
        *nactions *= (double)call->count / (double)probe.count;
    return KOLO_OK;
}

/* How much of a call of so many actions is carried out: whole rounds of slices of all chunks, or
 * else some slices, so many if possible that they follow each other as the later ones do. A third
 * of it is even, for texts of two halves or trees. 0: not even that. */
static size_t part_of(const struct ko_paper_call *call, double nactions, double most)
{
    const size_t round = 6 * (size_t)call->n * call->slice, enough = 12 * call->slice;
    const double each = nactions / (double)call->count; /* actions for an element */
    size_t part = (size_t)(most / each);

    if (part >= round)
        return part / round * round;
    if (part < enough)
        part = 4 * most / each < (double)enough ? (size_t)(4 * most / each) : enough;
    return part / (6 * call->slice) * (6 * call->slice);
}

static int count_part(const struct ko_paper_call *call, size_t part, double *nactions)
{
    const struct ko_paper_call shorter = shortened(call, part);

    return count_actions(&shorter, part, nactions);
}

/* Whether the last third of the part has as many actions for its length as the rest of the call
 * has. Where chunks hold less than a slice a part has all actions, only shorter ones, and tells
 * nothing of what more of them cost. */
static int look_at_part(const struct ko_paper_call *call, double nactions, size_t part,
                        bool *is_like)
{
    const size_t before = part / 3 * 2;
    double of_part = 0, of_before = 0, last, rest;
    int err = count_part(call, part, &of_part);

    if (!err)
        err = count_part(call, before, &of_before);
    last = (of_part - of_before) / (double)(part - before);
    rest = (nactions - of_part) / (double)(call->count - part);
    *is_like = 2 * of_part < nactions && last < UNLIKE * rest && rest < UNLIKE * last;
    return err;
}

/* The part by which a call is told of which a rank has so many actions; 0: no part of it. */
static int find_part(const struct ko_paper_call *call, double nactions, double most, size_t *part)
{
    const size_t found = call->count ? part_of(call, nactions, most) : 0;
    bool is_like = false;
    int err = KOLO_OK;

    if (found && found < call->count)
        err = look_at_part(call, nactions, found, &is_like);
    *part = is_like ? found : 0;
    return err;
}

/* Whether it can be carried out, wholly or in part. Some parts have up to four times as many
 * actions as are wanted; so may a call of which no part tells. */
static int is_feasible(const struct ko_paper_call *call, double nactions, double most, bool *is)
{
    size_t part = 0;
    int err = nactions > 4 * most ? find_part(call, nactions, most, &part) : KOLO_OK;

    *is = nactions <= 4 * most || part;
    return err;
}

/* Of a buffer that is shorter; the rest is as the last third of that was. */
static int simulate_part(const struct ko_simulation *simulation, int period, size_t part,
                         double *us)
{
    const size_t before = part / 3 * 2;
    double before_us, more_us;
    int err = ko_simulate_world(simulation, part, period, us);

    if (!err)
        err = ko_simulate_world(simulation, before, period, &before_us);
    if (err)
        return err;
    more_us = fmax(*us - before_us, 0);
    *us += more_us / (double)(part - before) * (double)(simulation->call.count - part);
    return KOLO_OK;
}

static int check(const struct ko_paper_call *call)
{
    if (call->n < 2 || !call->hosts || call->counts || !call->slice || call->slots < 1 ||
        call->root < 0 || call->root >= call->n)
        return ko_fail(KOLO_E_INVALID, "%d ranks, root %d, slices of %zu, %d slots: no call",
                       call->n, call->root, call->slice, call->slots);
    return KOLO_OK;
}

/* By ranks 0 to period - 1, of which each has so many actions and may carry out `most` of them. */
static int simulate_by(const struct ko_simulation *simulation, int period, double nactions,
                       double most, double *us)
{
    const struct ko_paper_call *call = &simulation->call;
    size_t part = 0;
    int err = nactions > most ? find_part(call, nactions, most, &part) : KOLO_OK;

    if (err)
        return err;
    if (part)
        return simulate_part(simulation, period, part, us);
    if (nactions <= 4 * most)
        return ko_simulate_world(simulation, call->count, period, us);
    return ko_fail(KOLO_E_UNSUPPORTED,
                   "%s among %d ranks is %.0f actions, more than the %.0f that are simulated",
                   call->text->name, call->n, nactions * period, most * period);
}

/* How many ranks stand for all. */
static int find_period(const struct ko_simulation *simulation, size_t probe, double nactions,
                       double most, int *period)
{
    const struct ko_paper_call *call = &simulation->call;
    const int each = call->hosts->least;
    bool is_of_use = !simulation->is_whole && nactions * call->n > FEW_ACTIONS;
    int err = KOLO_OK;

    if (is_of_use)
        err = is_feasible(call, nactions, most / each, &is_of_use);
    *period = !err && is_of_use && is_same_on_all_hosts(call, probe) ? each : call->n;
    return err;
}

int ko_simulate(const struct ko_simulation *simulation, double *us)
{
    const struct ko_paper_call *call = &simulation->call;
    const double most = simulation->most_actions ? (double)simulation->most_actions : USUAL_ACTIONS;
    double nactions = 0;
    size_t probe = 0;
    int period, err = check(call);

    if (!err)
        err = measure_probe(call, &probe);
    if (!err)
        err = count_actions(call, probe, &nactions);
    if (!err)
        err = find_period(simulation, probe, nactions, most, &period);
    if (!err)
        err = simulate_by(simulation, period, nactions, most / period, us);
    if (!err)
        *us += simulation->costs->call;
    return err;
}
