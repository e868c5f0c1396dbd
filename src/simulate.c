/* SPDX-License-Identifier: MIT
 *
 * How much of a call has to be carried out to know how long all of it takes: the ranks of one host
 * if all hosts do the same, and some slices of many.
 */
#include "simulate_world.h"

#include "status.h"

#include <stdint.h>

/* At most so many actions are carried out one by one if the caller does not say. */
static const double USUAL_ACTIONS = 4e6;

/* So few are carried out before it is found out whether hosts stand for each other. */
static const double FEW_ACTIONS = 2000;

/* So many of one rank are enough to tell how its actions go on. */
enum { PROBE_ACTIONS = 1000 * 1000 };

/* Of so many ranks the actions are counted. */
enum { MOST_PROBES = 8 };

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

static bool lists_are_turned(const struct ko_paper_call *call, int rank, int turn)
{
    struct ko_paper_list a, b;
    bool is_same;

    if (ko_paper_write(call, rank, &a))
        return false;
    if (ko_paper_write(call, (rank + turn) % call->n, &b)) {
        ko_paper_free(&a);
        return false;
    }
    is_same = a.n == b.n;
    for (size_t i = 0; i < a.n && is_same; i++)
        is_same = is_turned(&a.actions[i], &b.actions[i], turn, call->n);
    ko_paper_free(&a);
    ko_paper_free(&b);
    return is_same;
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

/* Actions of all ranks, by a look at some of them; a long call has as many more as it is longer
 * than one of some slices for each rank. */
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
    *nactions = found * call->n / probes;
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

/* The part by which a call of so many actions is told; 0: no part of it. */
static size_t telling_part(const struct ko_paper_call *call, double nactions, double most)
{
    const size_t part = call->count ? part_of(call, nactions, most) : 0;

    return part < call->count ? part : 0;
}

/* Whether it can be carried out, wholly or in part. Some parts have up to four times as many
 * actions as are wanted; so may a call of which no part tells. */
static bool is_feasible(const struct ko_paper_call *call, double nactions, double most)
{
    return nactions <= 4 * most || telling_part(call, nactions, most);
}

/* Of a buffer that is shorter; the rest is as the last third of that was. */
static int simulate_part(const struct ko_simulation *simulation, int period, size_t part,
                         double *us)
{
    const size_t before = part / 3 * 2;
    double before_us;
    int err = ko_simulate_world(simulation, part, period, us);

    if (!err)
        err = ko_simulate_world(simulation, before, period, &before_us);
    if (!err)
        *us +=
            (*us - before_us) / (double)(part - before) * (double)(simulation->call.count - part);
    return err;
}

static int check(const struct ko_paper_call *call)
{
    if (call->n < 2 || !call->hosts || call->counts || !call->slice || call->slots < 1 ||
        call->root < 0 || call->root >= call->n)
        return ko_fail(KOLO_E_INVALID, "%d ranks, root %d, slices of %zu, %d slots: no call",
                       call->n, call->root, call->slice, call->slots);
    return KOLO_OK;
}

int ko_simulate(const struct ko_simulation *simulation, double *us)
{
    const struct ko_paper_call *call = &simulation->call;
    const double most = simulation->most_actions ? (double)simulation->most_actions : USUAL_ACTIONS;
    double nactions = 0, fewest;
    size_t probe = 0, part = 0;
    int period, err = check(call);

    if (err)
        return err;
    period = call->n;
    err = measure_probe(call, &probe);
    if (!err)
        err = count_actions(call, probe, &nactions);
    if (err)
        return err;
    fewest = nactions * call->hosts->least / call->n;
    if (!simulation->is_whole && nactions > FEW_ACTIONS && is_feasible(call, fewest, most) &&
        is_same_on_all_hosts(call, probe)) {
        nactions = fewest;
        period = call->hosts->least;
    }
    if (nactions > most)
        part = telling_part(call, nactions, most);
    if (part)
        err = simulate_part(simulation, period, part, us);
    else if (is_feasible(call, nactions, most))
        err = ko_simulate_world(simulation, call->count, period, us);
    else
        err = ko_fail(KOLO_E_UNSUPPORTED,
                      "%s among %d ranks is %.0f actions, more than the %.0f that are simulated",
                      call->text->name, call->n, nactions, most);
    if (!err)
        *us += simulation->costs->call;
    return err;
}
