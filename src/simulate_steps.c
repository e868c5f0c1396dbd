/* SPDX-License-Identifier: MIT
 *
 * A rank numbers the ends of wires in the order in which it first needs them, and its steps name
 * them so: then ranks that do the same have the same steps, which are kept once. The two ends of a
 * wire find each other when all ranks are written.
 */
#include "simulate_steps.h"

#include "costs.h"
#include "status.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* So many of the last lists are looked at for one that is the same. */
enum { RECENT = 4096 };

/* Bytes of one copy, of which a step counts 32 bits. */
enum { MOST_COPIED = 1 << 30 };

static const uint32_t NONE = UINT32_MAX;

/* Of a wire, at one of its two ranks. */
struct end {
    uint32_t gap;      /* from who sends to who receives, around */
    uint32_t other;    /* the other end; while it is looked for, the next of the same receiver */
    uint32_t messages; /* that are sent */
    uint8_t link;      /* as in a step */
    bool sends : 1, is_beside : 1, is_away : 1;
};

/* Where a slice lies. */
struct place {
    enum buffer buffer;
    size_t at;
};

struct writer {
    const struct ko_paper_call *call;
    int rank, period, ncores;
    bool has_last; /* the rank that is written has touched slices */
    bool has_sent; /* and sent one */
    struct place last_read, last_written;
    int err;
    size_t element;
    struct ko_steps *steps;
    struct end *ends; /* of all ranks, as many as the steps have */
    size_t ends_room;
    uint32_t *out, *in; /* by rank: the end to it, or from it, that was added last, and 1 */
    uint32_t *recent;   /* by hash: a rank with such a list, and 1 */
};

/* ---- ends of wires ----------------------------------------------------------------------- */

/* Room for one item more; NULL without memory, and the items stay. */
static void *make_room(void *items, size_t nitems, size_t nbytes, size_t *room)
{
    const size_t most = *room ? 2 * *room : 4096;
    void *grown = items;

    if (nitems < *room)
        return items;
    grown = realloc(items, most * nbytes);
    if (grown)
        *room = most;
    else
        ko_fail(KOLO_E_NOMEM, "no memory for %zu steps of a simulation", most);
    return grown;
}

/* Where ranks share no memory, those of one host have no better links. */
static uint8_t link_kind(const struct ko_hosts *hosts, int a, int b)
{
    return hosts->host[a] == hosts->host[b] && hosts->has_windows ? KO_LOCAL : KO_REMOTE;
}

static bool is_away(const struct writer *w, int other)
{
    return w->call->hosts->host[w->rank] != w->call->hosts->host[other];
}

static bool is_beside(const struct writer *w, int other)
{
    const struct ko_hosts *hosts = w->call->hosts;

    return link_kind(hosts, w->rank, other) == KO_LOCAL &&
           ko_core_of(hosts, w->rank, w->ncores) == ko_core_of(hosts, other, w->ncores);
}

static int add_end(struct writer *w, bool sends, int other)
{
    const int n = w->call->n;
    const int gap = sends ? other - w->rank : w->rank - other;
    struct end *ends = make_room(w->ends, w->steps->nends, sizeof *ends, &w->ends_room);

    if (!ends)
        return KOLO_E_NOMEM;
    w->ends = ends;
    if (w->steps->nends == NONE - 1)
        return ko_fail(KOLO_E_NOMEM, "%u ends of links are more than a simulation can number",
                       NONE - 1);
    ends[w->steps->nends++] = (struct end){.gap = (uint32_t)(gap < 0 ? gap + n : gap),
                                           .other = NONE,
                                           .link = link_kind(w->call->hosts, w->rank, other),
                                           .sends = sends,
                                           .is_beside = is_beside(w, other),
                                           .is_away = is_away(w, other)};
    return KOLO_OK;
}

/* The rank's end of the wire to or from another. */
static int find_end(struct writer *w, bool sends, int other, struct end **end)
{
    uint32_t *number = sends ? &w->out[other] : &w->in[other];

    if (*number <= w->steps->scripts[w->rank].wires) { /* another rank's */
        int err = add_end(w, sends, other);

        if (err)
            return err;
        *number = (uint32_t)w->steps->nends;
    }
    *end = &w->ends[*number - 1];
    return KOLO_OK;
}

/* Those that a rank receives by; `list`: the other ends. of[gap] is NONE before and after. */
static void pair_ends(const struct writer *w, int rank, uint32_t list, uint32_t *of)
{
    const struct ko_script *scripts = w->steps->scripts;
    struct end *ends = w->ends;

    for (uint32_t i = list; i != NONE; i = ends[i].other)
        of[ends[i].gap] = i;
    for (size_t i = scripts[rank].wires; i < scripts[rank + 1].wires; i++)
        if (!ends[i].sends)
            ends[i].other = of[ends[i].gap];
    for (uint32_t i = list, next; i != NONE; i = next) {
        next = ends[i].other;
        of[ends[i].gap] = NONE;
        ends[i].other = NONE;
    }
    for (size_t i = scripts[rank].wires; i < scripts[rank + 1].wires; i++)
        if (!ends[i].sends && ends[i].other != NONE)
            ends[ends[i].other].other = (uint32_t)i;
}

/* Of a wire one rank stands for all: turned so that the receiver is simulated. */
static void pair_all_ends(const struct writer *w)
{
    const struct ko_script *scripts = w->steps->scripts;
    uint32_t *lists = w->out, *of = w->in;

    for (int rank = 0; rank < w->call->n; rank++)
        lists[rank] = of[rank] = NONE;
    for (int rank = 0; rank < w->period; rank++)
        for (size_t i = scripts[rank].wires; i < scripts[rank + 1].wires; i++) {
            struct end *end = &w->ends[i];
            const uint32_t receiver = ((uint32_t)rank + end->gap) % (uint32_t)w->period;

            if (!end->sends)
                continue;
            end->other = lists[receiver];
            lists[receiver] = (uint32_t)i;
        }
    for (int rank = 0; rank < w->period; rank++)
        pair_ends(w, rank, lists[rank], of);
}

/* Numbers wires in the order of their first ends: those that are needed together lie together. */
static int number_wires(const struct writer *w)
{
    struct ko_steps *steps = w->steps;

    steps->wires = ko_alloc_unset((steps->nends + 1) * sizeof *steps->wires, "links on paper");
    steps->messages =
        ko_alloc_unset((steps->nends + 1) * sizeof *steps->messages, "links on paper");
    if (!steps->wires || !steps->messages)
        return KOLO_E_NOMEM;
    assert(w->ends || !steps->nends);
    steps->wires[steps->nends] = 0; /* of copies by who has none */
    for (size_t i = 0; i < steps->nends; i++) {
        const struct end *end = &w->ends[i];

        if (end->other < i) {
            steps->wires[i] = steps->wires[end->other];
            continue;
        }
        steps->wires[i] = (uint32_t)steps->nwires;
        steps->messages[steps->nwires++] =
            end->sends || end->other == NONE ? end->messages : w->ends[end->other].messages;
    }
    return KOLO_OK;
}

/* ---- steps ------------------------------------------------------------------------------- */

static int add_step(struct writer *w, struct ko_step step)
{
    struct ko_steps *steps = w->steps;
    struct ko_step *grown = make_room(steps->steps, steps->nsteps, sizeof step, &steps->room);

    if (!grown)
        return KOLO_E_NOMEM;
    steps->steps = grown;
    steps->steps[steps->nsteps++] = step;
    return KOLO_OK;
}

/* A step on a wire. */
static int add_message(struct writer *w, struct ko_step step, const struct end *end, size_t count)
{
    step.link = end->link;
    step.is_beside = end->is_beside;
    step.is_away = end->is_away;
    step.end = (uint32_t)((size_t)(end - w->ends) - w->steps->scripts[w->rank].wires);
    step.nbytes = (uint32_t)(count * w->element);
    return add_step(w, step);
}

/* What is copied at once does not stay, unless no verb writes there. */
static bool stays(const struct ko_paper_action *action)
{
    return action->verb == KO_PAPER_SEND ||
           (action->verb == KO_PAPER_SEND_COPY && action->buffer == IN);
}

static int add_send(struct writer *w, enum ko_step_kind kind, const struct ko_paper_action *action)
{
    const struct ko_step step = {
        .kind = (uint8_t)kind, .stays = stays(action), .is_lent = action->is_lent};
    struct end *end;
    int err = find_end(w, true, action->to, &end);

    if (err)
        return err;
    w->has_sent = true;
    end->messages++;
    return add_message(w, step, end, action->mine.count);
}

static int add_receive(struct writer *w, enum ko_step_kind kind, int from, size_t count)
{
    struct end *end;
    int err = find_end(w, false, from, &end);

    return err ? err : add_message(w, (struct ko_step){.kind = (uint8_t)kind}, end, count);
}

static int add_listed(struct writer *w, const struct ko_paper_action *action, const int *ranks)
{
    enum ko_step_kind kind = KO_STEP_REDUCE;
    int err = KOLO_OK;

    for (int i = 0; i < action->nranks && !err; i++) {
        if (ranks[i] == w->rank)
            continue;
        err = add_receive(w, kind, ranks[i], action->mine.count);
        kind = KO_STEP_REDUCE_TOO;
    }
    return err;
}

static bool is_at(const struct ko_paper_action *action, const struct place *place)
{
    return action->buffer == place->buffer && action->mine.at == place->at;
}

/* Whether an action reads a slice that the one before it, if there is one, has read or written. */
static bool is_near(const struct writer *w, const struct ko_paper_action *action)
{
    return w->has_last && (is_at(action, &w->last_read) || is_at(action, &w->last_written));
}

/* Of any length: of what no step can have there are several. */
static int add_copy(struct writer *w, size_t nbytes)
{
    int err;

    do {
        const size_t part = nbytes < MOST_COPIED ? nbytes : MOST_COPIED;

        err = add_step(w, (struct ko_step){.kind = KO_STEP_COPY, .nbytes = (uint32_t)part});
        nbytes -= part;
    } while (nbytes && !err);
    return err;
}

static int add_action(struct writer *w, const struct ko_paper_action *action, const int *ranks)
{
    int err;

    switch (action->verb) {
    case KO_PAPER_SEND:
    case KO_PAPER_SEND_COPY:
    case KO_PAPER_SEND_COMB:
        return add_send(w, is_near(w, action) ? KO_STEP_SEND_NEAR : KO_STEP_SEND, action);
    case KO_PAPER_RECV:
    case KO_PAPER_RECV_COMB:
        return add_receive(w, KO_STEP_RECEIVE, action->from, action->part.count);
    case KO_PAPER_RECV_REDUCE:
        return add_receive(w, KO_STEP_REDUCE, action->from, action->part.count);
    case KO_PAPER_RECV_REDUCE_SEND:
        err = add_receive(w, KO_STEP_REDUCE, action->from, action->mine.count);
        return err ? err : add_send(w, KO_STEP_PASS, action);
    case KO_PAPER_REDUCE_FROM:
        return add_listed(w, action, ranks);
    case KO_PAPER_REDUCE_FROM_SEND:
        err = add_listed(w, action, ranks);
        return err ? err : add_send(w, KO_STEP_PASS, action);
    default:
        return add_copy(w, action->part.count * w->element);
    }
}

static void read_action(void *context, const struct ko_paper_action *action, const int *ranks)
{
    struct writer *w = context;

    if (!w->err)
        w->err = add_action(w, action, ranks);
    w->has_last = true;
    w->last_read = (struct place){action->buffer, action->mine.at};
    w->last_written =
        action->part.count ? (struct place){action->target, action->part.at} : w->last_read;
}

/* ---- lists ------------------------------------------------------------------------------- */

static uint64_t hash(const struct ko_step *steps, size_t nsteps)
{
    uint64_t hash = nsteps;

    for (size_t i = 0; i < nsteps; i++) {
        hash ^= (uint64_t)steps[i].end << 32 ^ (uint64_t)steps[i].kind << 28 ^ steps[i].nbytes;
        hash *= 0x9e3779b97f4a7c15U;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Gives the rank, whose list is the last, that of another one if it is the same. */
static void share_list(struct writer *w, int rank)
{
    struct ko_steps *steps = w->steps;
    struct ko_script *script = &steps->scripts[rank];
    const size_t nsteps = script->end - script->begin;
    const struct ko_step *list = &steps->steps[script->begin];
    uint32_t *last = &w->recent[hash(list, nsteps) % RECENT];

    if (*last) {
        const struct ko_script *other = &steps->scripts[*last - 1];

        if (other->end - other->begin == nsteps &&
            !memcmp(&steps->steps[other->begin], list, nsteps * sizeof *list)) {
            steps->nsteps = script->begin;
            script->begin = other->begin;
            script->end = other->end;
            return;
        }
    }
    *last = (uint32_t)rank + 1;
}

static void mark_idle(struct ko_steps *steps, size_t begin)
{
    for (size_t i = begin; i < steps->nsteps; i++)
        steps->steps[i].is_idle = true;
}

static int add_rank(struct writer *w, int rank)
{
    const struct ko_paper_reader reader = {read_action, w};
    struct ko_script *script = &w->steps->scripts[rank];
    int err;

    w->rank = rank;
    w->has_last = w->has_sent = false;
    script->begin = w->steps->nsteps;
    err = ko_paper_tell(w->call, rank, &reader);
    if (err || w->err)
        return err ? err : w->err;
    if (!w->has_sent)
        mark_idle(w->steps, script->begin);
    script->end = w->steps->nsteps;
    script[1].wires = w->steps->nends;
    if (w->steps->nsteps > script->begin)
        share_list(w, rank);
    return KOLO_OK;
}

static int add_ranks(struct writer *w)
{
    const size_t n = (size_t)w->call->n;
    int err = KOLO_OK;

    w->out = ko_alloc(n * sizeof *w->out, "ranks of a simulation");
    w->in = ko_alloc(n * sizeof *w->in, "ranks of a simulation");
    w->recent = ko_alloc(RECENT * sizeof *w->recent, "ranks of a simulation");
    if (!w->out || !w->in || !w->recent)
        return KOLO_E_NOMEM;
    for (int rank = 0; rank < w->period && !err; rank++)
        err = add_rank(w, rank);
    if (err)
        return err;
    pair_all_ends(w);
    return number_wires(w);
}

int ko_steps_write(const struct ko_paper_call *call, size_t element, int period, int ncores,
                   struct ko_steps *steps)
{
    struct writer w = {
        .call = call, .period = period, .ncores = ncores, .element = element, .steps = steps};
    int err;

    *steps = (struct ko_steps){.steps = NULL};
    steps->scripts =
        ko_alloc(((size_t)period + 1) * sizeof *steps->scripts, "ranks of a simulation");
    if (!steps->scripts)
        return KOLO_E_NOMEM;
    err = add_ranks(&w);
    free(w.ends);
    free(w.out);
    free(w.in);
    free(w.recent);
    return err;
}

void ko_steps_free(struct ko_steps *steps)
{
    free(steps->scripts);
    free(steps->steps);
    free(steps->wires);
    free(steps->messages);
}
