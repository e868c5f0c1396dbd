/* SPDX-License-Identifier: MIT
 *
 * A wire is looked up by its two ends once, while its steps are written; whoever carries them out
 * finds it by its number.
 */
#include "simulate_steps.h"

#include "costs.h"
#include "status.h"

#include <stdlib.h>

/* ---- numbers of wires -------------------------------------------------------------------- */

struct entry {
    uint64_t key; /* 0: none */
    uint32_t wire;
};

/* Where a slice lies. */
struct place {
    enum buffer buffer;
    size_t at;
};

struct writer {
    const struct ko_paper_call *call;
    int rank, period, ncores;
    bool has_last;     /* the rank that is written has touched a slice */
    bool has_sent;     /* and sent one */
    struct place last; /* which it touched last */
    int err;
    size_t element;
    struct ko_steps *steps;
    struct entry *entries; /* a hash table */
    size_t nentries;
};

/* Both halves of the key reach the upper bits of the product, and no others do. Wires of one length
 * to eight ranks in a row lie side by side: they are looked up one soon after the other. */
static size_t hash(uint64_t key, size_t room)
{
    const uint64_t row = key >> 3;

    return ((size_t)((row * 0x9e3779b97f4a7c15U) >> 33) << 3 | (size_t)(key & 7)) & (room - 1);
}

/* Where the key is, or would be. */
static struct entry *entry_of(struct entry *entries, size_t room, uint64_t key)
{
    size_t at = hash(key, room);

    while (entries[at].key && entries[at].key != key)
        at = (at + 1) & (room - 1);
    return &entries[at];
}

static int grow_entries(struct writer *w)
{
    const size_t old = w->nentries, most = old ? 4 * old : 256;
    struct entry *entries = ko_alloc(most * sizeof *entries, "links of a simulation");

    if (!entries)
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < old; i++)
        if (w->entries[i].key)
            *entry_of(entries, most, w->entries[i].key) = w->entries[i];
    free(w->entries);
    w->entries = entries;
    w->nentries = most;
    return KOLO_OK;
}

static int add_wire(struct ko_steps *steps)
{
    if (steps->nwires == steps->wires_room) {
        const size_t room = steps->wires_room ? 2 * steps->wires_room : 256;
        uint32_t *grown = realloc(steps->messages, room * sizeof *grown);

        if (!grown)
            return ko_fail(KOLO_E_NOMEM, "no memory for %zu links of a simulation", room);
        steps->messages = grown;
        steps->wires_room = room;
    }
    steps->messages[steps->nwires++] = 0;
    return KOLO_OK;
}

/* The wire from rank `from` to rank `to`, of which one is simulated: turned so that the receiver
 * is. */
static int find_wire(struct writer *w, int from, int to, uint32_t *wire)
{
    const int n = w->call->n, receiver = to % w->period, gap = (to - from + n) % n;
    const uint64_t key = ((uint64_t)(uint32_t)gap << 32 | (uint32_t)receiver) + 1;
    struct entry *entry;
    int err = KOLO_OK;

    if (2 * w->steps->nwires >= w->nentries)
        err = grow_entries(w);
    if (err)
        return err;
    entry = entry_of(w->entries, w->nentries, key);
    if (!entry->key) {
        err = add_wire(w->steps);
        if (err)
            return err;
        *entry = (struct entry){key, (uint32_t)(w->steps->nwires - 1)};
    }
    *wire = entry->wire;
    return KOLO_OK;
}

/* ---- steps ------------------------------------------------------------------------------- */

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

static int add_step(struct writer *w, struct ko_step step)
{
    struct ko_steps *steps = w->steps;

    if (steps->nsteps == steps->room) {
        const size_t room = steps->room ? 2 * steps->room : 4096;
        struct ko_step *grown = realloc(steps->steps, room * sizeof *grown);

        if (!grown)
            return ko_fail(KOLO_E_NOMEM, "no memory for %zu steps of a simulation", room);
        steps->steps = grown;
        steps->room = room;
    }
    steps->steps[steps->nsteps++] = step;
    return KOLO_OK;
}

/* What is copied at once does not stay, unless no verb writes there. */
static bool stays(const struct ko_paper_action *action)
{
    return action->verb == KO_PAPER_SEND ||
           (action->verb == KO_PAPER_SEND_COPY && action->buffer == IN);
}

static int add_send(struct writer *w, enum ko_step_kind kind, const struct ko_paper_action *action)
{
    const int to = action->to;
    struct ko_step step = {.kind = (uint8_t)kind,
                           .stays = stays(action),
                           .is_lent = action->is_lent,
                           .link = link_kind(w->call->hosts, w->rank, to),
                           .is_beside = is_beside(w, to),
                           .is_away = is_away(w, to),
                           .nbytes = (uint32_t)(action->mine.count * w->element)};
    int err = find_wire(w, w->rank, to, &step.wire);

    if (err)
        return err;
    w->has_sent = true;
    w->steps->messages[step.wire]++;
    return add_step(w, step);
}

static int add_receive(struct writer *w, enum ko_step_kind kind, int from, size_t count)
{
    struct ko_step step = {.kind = (uint8_t)kind,
                           .link = link_kind(w->call->hosts, w->rank, from),
                           .is_beside = is_beside(w, from),
                           .is_away = is_away(w, from),
                           .nbytes = (uint32_t)(count * w->element)};
    int err = find_wire(w, from, w->rank, &step.wire);

    return err ? err : add_step(w, step);
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

/* Whether an action reads the slice that the one before it, if there is one, has touched last. */
static bool is_near(const struct writer *w, const struct ko_paper_action *action)
{
    return w->has_last && action->buffer == w->last.buffer && action->mine.at == w->last.at;
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
        return add_step(w, (struct ko_step){.kind = KO_STEP_COPY,
                                            .nbytes = (uint32_t)(action->part.count * w->element)});
    }
}

static void read_action(void *context, const struct ko_paper_action *action, const int *ranks)
{
    struct writer *w = context;

    if (!w->err)
        w->err = add_action(w, action, ranks);
    w->has_last = true;
    w->last = action->part.count ? (struct place){action->target, action->part.at}
                                 : (struct place){action->buffer, action->mine.at};
}

static void mark_idle(struct ko_steps *steps, size_t begin)
{
    for (size_t i = begin; i < steps->nsteps; i++)
        steps->steps[i].is_idle = true;
}

static int add_rank(struct writer *w, int rank)
{
    const struct ko_paper_reader reader = {read_action, w};
    int err;

    w->rank = rank;
    w->has_last = w->has_sent = false;
    w->steps->begins[rank] = w->steps->nsteps;
    err = ko_paper_tell(w->call, rank, &reader);
    if (!w->has_sent)
        mark_idle(w->steps, w->steps->begins[rank]);
    w->steps->begins[rank + 1] = w->steps->nsteps;
    return err ? err : w->err;
}

int ko_steps_write(const struct ko_paper_call *call, size_t element, int period, int ncores,
                   struct ko_steps *steps)
{
    struct writer w = {
        .call = call, .period = period, .ncores = ncores, .element = element, .steps = steps};
    int err = KOLO_OK;

    *steps = (struct ko_steps){.steps = NULL};
    steps->begins = ko_alloc(((size_t)period + 1) * sizeof *steps->begins, "ranks of a simulation");
    if (!steps->begins)
        return KOLO_E_NOMEM;
    for (int rank = 0; rank < period && !err; rank++)
        err = add_rank(&w, rank);
    free(w.entries);
    return err;
}

void ko_steps_free(struct ko_steps *steps)
{
    free(steps->steps);
    free(steps->begins);
    free(steps->messages);
}
