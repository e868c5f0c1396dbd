/* SPDX-License-Identifier: MIT
 *
 * Carries out what each rank does in the order of time: the rank whose clock is behind all others
 * moves next. Lists are written one rank at a time and kept as steps of a few bytes.
 */
#include "simulate_world.h"

#include "status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Those who share a core go round so often until a rank that waited goes on (found by measuring).
 */
static const double TURNS = 2;

/* Of several parts that are reduced at once, each after the first costs so much of a reduction of
 * two in the nearest cache: it is read, from its slot, but the sum is written once (found by
 * measuring). */
static const double FURTHER = 0.6;

/* PASS: a send of what was just reduced into its slot. SEND_NEAR: of the slice that the rank has
 * touched last, which lies in its nearest cache however large the call is. */
enum kind { SEND, SEND_NEAR, PASS, RECEIVE, REDUCE, REDUCE_TOO, COPY };

/* A verb, or a part of one. */
struct step {
    uint8_t kind;
    int peer;
    uint32_t nbytes;
};

/* Messages from one rank to another. Slot i % slots holds when message i arrives and, after it was
 * received, when the slot was free again. */
struct wire {
    uint64_t key; /* 0: none */
    uint32_t sent, received;
    int sender, receiver; /* who waits for room, for a message; -1: nobody */
    size_t slots;         /* of the world's moments: the first of this wire's */
};

struct actor {
    double clock;
    size_t at, end; /* of its steps */
};

struct world {
    const struct ko_paper_call *call;
    const struct ko_costs *costs;
    double send_byte[KO_NLINKS], near_byte, receive_byte[KO_NLINKS];
    double reduce_byte, further_byte, copy_byte;
    int period; /* ranks that are simulated: all, or those of the first host */
    struct actor *actors;
    struct step *steps;
    size_t nsteps, room;
    struct wire *wires; /* a hash table */
    size_t nwires, most_wires;
    double *moments; /* of all wires, one behind the other */
    size_t most_moments;
    int *heap; /* actors that can move, the earliest first */
    int nheap;
    int ncores;     /* of a host, that ranks can use */
    double *cores;  /* by host and core: when it is free */
    int *last;      /* by core: who ran last */
    double *leaves; /* by host: when its wire is free */
};

/* ---- writing down ------------------------------------------------------------------------ */

static int add_step(struct world *w, enum kind kind, int peer, size_t count, size_t element)
{
    if (w->nsteps == w->room) {
        const size_t room = w->room ? 2 * w->room : 4096;
        struct step *grown = realloc(w->steps, room * sizeof *grown);

        if (!grown)
            return ko_fail(KOLO_E_NOMEM, "no memory for %zu steps of a simulation", room);
        w->steps = grown;
        w->room = room;
    }
    w->steps[w->nsteps++] = (struct step){(uint8_t)kind, peer, (uint32_t)(count * element)};
    return KOLO_OK;
}

static int add_listed(struct world *w, const struct ko_paper_list *list,
                      const struct ko_paper_action *action, int rank, size_t element)
{
    enum kind kind = REDUCE;
    int err = KOLO_OK;

    for (int i = 0; i < action->nranks && !err; i++) {
        const int peer = list->ranks[action->ranks_at + (size_t)i];

        if (peer == rank)
            continue;
        err = add_step(w, kind, peer, action->mine.count, element);
        kind = REDUCE_TOO;
    }
    return err;
}

/* Whether an action reads the slice that the one before it, if there is one, has touched last. */
static bool is_near(const struct ko_paper_list *list, const struct ko_paper_action *action)
{
    const struct ko_paper_action *before = action - 1;

    if (action == list->actions)
        return false;
    if (before->part.count)
        return action->buffer == before->target && action->mine.at == before->part.at;
    return action->buffer == before->buffer && action->mine.at == before->mine.at;
}

static int add_send(struct world *w, const struct ko_paper_list *list,
                    const struct ko_paper_action *action, size_t element)
{
    return add_step(w, is_near(list, action) ? SEND_NEAR : SEND, action->to, action->mine.count,
                    element);
}

static int add_action(struct world *w, const struct ko_paper_list *list,
                      const struct ko_paper_action *action, int rank, size_t element)
{
    int err;

    switch (action->verb) {
    case KO_PAPER_SEND:
    case KO_PAPER_SEND_COPY:
    case KO_PAPER_SEND_COMB:
        return add_send(w, list, action, element);
    case KO_PAPER_RECV:
    case KO_PAPER_RECV_COMB:
        return add_step(w, RECEIVE, action->from, action->part.count, element);
    case KO_PAPER_RECV_REDUCE:
        return add_step(w, REDUCE, action->from, action->part.count, element);
    case KO_PAPER_RECV_REDUCE_SEND:
        err = add_step(w, REDUCE, action->from, action->mine.count, element);
        return err ? err : add_step(w, PASS, action->to, action->mine.count, element);
    case KO_PAPER_REDUCE_FROM:
        return add_listed(w, list, action, rank, element);
    case KO_PAPER_REDUCE_FROM_SEND:
        err = add_listed(w, list, action, rank, element);
        return err ? err : add_step(w, PASS, action->to, action->mine.count, element);
    default:
        return add_step(w, COPY, rank, action->part.count, element);
    }
}

static int add_rank(struct world *w, int rank, size_t element)
{
    struct ko_paper_list list;
    int err = ko_paper_write(w->call, rank, &list);

    if (err)
        return err;
    w->actors[rank].at = w->nsteps;
    for (size_t i = 0; i < list.n && !err; i++)
        err = add_action(w, &list, &list.actions[i], rank, element);
    w->actors[rank].end = w->nsteps;
    ko_paper_free(&list);
    return err;
}

/* ---- wires ------------------------------------------------------------------------------- */

/* Both halves of the key reach the upper bits of the product, and no others do. */
static size_t hash(uint64_t key, size_t room)
{
    return (size_t)((key * 0x9e3779b97f4a7c15U) >> 36) & (room - 1);
}

static int grow_wires(struct world *w)
{
    const size_t old = w->most_wires, most = old ? 2 * old : 256;
    struct wire *wires = ko_alloc(most * sizeof *wires, "links of a simulation");

    if (!wires)
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < old; i++) {
        size_t at = hash(w->wires[i].key, most);

        if (!w->wires[i].key)
            continue;
        while (wires[at].key)
            at = (at + 1) & (most - 1);
        wires[at] = w->wires[i];
    }
    free(w->wires);
    w->wires = wires;
    w->most_wires = most;
    return KOLO_OK;
}

/* Room for those of one wire more. */
static int add_moments(struct world *w)
{
    const size_t needed = (w->nwires + 1) * (size_t)w->call->slots;
    double *grown;

    if (needed <= w->most_moments)
        return KOLO_OK;
    grown = realloc(w->moments, 2 * needed * sizeof *grown);
    if (!grown)
        return ko_fail(KOLO_E_NOMEM, "no memory for %zu slots of a simulation", 2 * needed);
    w->moments = grown;
    w->most_moments = 2 * needed;
    return KOLO_OK;
}

static double *moment(struct world *w, const struct wire *wire, uint32_t message)
{
    return &w->moments[wire->slots + message % (uint32_t)w->call->slots];
}

/* The wire from rank `from` to rank `to`, of which one is simulated: turned so that the receiver
 * is. NULL: no memory. */
static struct wire *wire_of(struct world *w, int from, int to)
{
    const int n = w->call->n, receiver = to % w->period, gap = (to - from + n) % n;
    const uint64_t key = ((uint64_t)(uint32_t)gap << 32 | (uint32_t)receiver) + 1;
    size_t at;

    if (2 * w->nwires >= w->most_wires && grow_wires(w))
        return NULL;
    at = hash(key, w->most_wires);
    while (w->wires[at].key && w->wires[at].key != key)
        at = (at + 1) & (w->most_wires - 1);
    if (w->wires[at].key)
        return &w->wires[at];
    if (add_moments(w))
        return NULL;
    w->wires[at] = (struct wire){
        .key = key, .sender = -1, .receiver = -1, .slots = w->nwires * (size_t)w->call->slots};
    w->nwires++;
    return &w->wires[at];
}

/* ---- the earliest actor ------------------------------------------------------------------ */

static bool is_before(const struct world *w, int a, int b)
{
    const double one = w->actors[a].clock, two = w->actors[b].clock;

    return one < two || (one <= two && a < b);
}

static void push(struct world *w, int actor)
{
    int at = w->nheap++;

    while (at > 0 && is_before(w, actor, w->heap[(at - 1) / 2])) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = actor;
}

static int pop(struct world *w)
{
    const int first = w->heap[0], last = w->heap[--w->nheap];
    int at = 0;

    for (int child = 1; child < w->nheap; child = 2 * at + 1) {
        child += child + 1 < w->nheap && is_before(w, w->heap[child + 1], w->heap[child]);
        if (!is_before(w, w->heap[child], last))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return first;
}

/* ---- moving ------------------------------------------------------------------------------ */

static int host_of(const struct world *w, int rank)
{
    return w->call->hosts->host[rank];
}

/* Where ranks share no memory, those of one host have no better links. */
static int link_kind(const struct world *w, int a, int b)
{
    const bool is_local = host_of(w, a) == host_of(w, b) && w->call->hosts->has_windows;

    return is_local ? KO_LOCAL : KO_REMOTE;
}

/* Whether the ranks of its host take turns on the cores: then one keeps its core until it waits. */
static bool is_crowded(const struct world *w, int rank)
{
    return host_size(w->call->hosts, host_of(w, rank)) > w->ncores;
}

/* Those who wait look and yield in turn: what it takes until the one that can go on has its turn.
 */
static double turn(const struct world *w, int rank)
{
    return w->costs->change * host_size(w->call->hosts, host_of(w, rank)) / w->ncores;
}

/* The actor works for so long, on a core if its host has fewer of them than ranks.
 */
static void work(struct world *w, int rank, double us)
{
    const int host = host_of(w, rank), ncores = w->ncores;
    double *cores = w->cores + (size_t)host * (size_t)ncores;
    int *last = w->last + (size_t)host * (size_t)ncores, best = 0;
    double begin = w->actors[rank].clock;

    if (!is_crowded(w, rank)) {
        w->actors[rank].clock += us;
        return;
    }
    for (int i = 0; i < ncores; i++)
        if (cores[i] < cores[best] || (last[i] == rank && cores[i] <= begin))
            best = i;
    begin = begin > cores[best] ? begin : cores[best];
    if (last[best] != rank)
        us += turn(w, rank);
    last[best] = rank;
    cores[best] = begin + us;
    w->actors[rank].clock = begin + us;
}

/* Waits for a moment: true if others have to move first. */
static bool wait_until(struct world *w, int rank, double us)
{
    const double waits = us - w->actors[rank].clock;

    if (waits <= 0)
        return false;
    if (waits > w->costs->spin)
        us += w->costs->wake;
    else if (is_crowded(w, rank))
        us += TURNS * turn(w, rank);
    w->actors[rank].clock = us;
    if (!is_crowded(w, rank) && (!w->nheap || is_before(w, rank, w->heap[0])))
        return false;
    push(w, rank);
    return true;
}

static void wake(struct world *w, int *who)
{
    if (*who >= 0)
        push(w, *who);
    *who = -1;
}

enum outcome { MOVED, PUT_OFF, FAILED };

static double send_byte(const struct world *w, enum kind step, int link)
{
    if (step == PASS && link == KO_LOCAL) /* it is in its slot; no kernel takes it */
        return 0;
    return step == SEND_NEAR && link == KO_LOCAL ? w->near_byte : w->send_byte[link];
}

static enum outcome send_message(struct world *w, int rank, const struct step *step)
{
    const int kind = link_kind(w, rank, step->peer);
    const struct ko_link_costs *costs = &w->costs->links[kind];
    const double nbytes = step->nbytes, byte = send_byte(w, step->kind, kind);
    const uint32_t slots = (uint32_t)w->call->slots;
    struct wire *wire = wire_of(w, rank, step->peer);
    double leaves;

    if (!wire)
        return FAILED;
    if (wire->sent - wire->received >= slots) {
        wire->sender = rank;
        return PUT_OFF;
    }
    if (wire->sent >= slots && wait_until(w, rank, *moment(w, wire, wire->sent)))
        return PUT_OFF;
    work(w, rank, costs->send + nbytes * byte);
    leaves = w->actors[rank].clock;
    if (costs->wire_byte > 0) {
        double *free_at = &w->leaves[host_of(w, rank)];

        leaves = (leaves > *free_at ? leaves : *free_at) + nbytes * costs->wire_byte;
        *free_at = leaves;
    }
    *moment(w, wire, wire->sent++) = leaves + costs->latency;
    wake(w, &wire->receiver);
    return MOVED;
}

/* What is reduced is read out of the slot it lies in, to which the kernel has moved what comes from
 * another host. */
static double receive_byte(const struct world *w, enum kind step, int link)
{
    const double moved = step == RECEIVE || link == KO_REMOTE ? w->receive_byte[link] : 0;

    if (step == RECEIVE)
        return moved;
    return moved + (step == REDUCE_TOO ? w->further_byte : w->reduce_byte);
}

static enum outcome receive_message(struct world *w, int rank, const struct step *step)
{
    const int kind = link_kind(w, rank, step->peer);
    const double byte = receive_byte(w, step->kind, kind);
    struct wire *wire = wire_of(w, step->peer, rank);
    double *arrives;

    if (!wire)
        return FAILED;
    if (wire->sent == wire->received) {
        wire->receiver = rank;
        return PUT_OFF;
    }
    arrives = moment(w, wire, wire->received);
    if (wait_until(w, rank, *arrives))
        return PUT_OFF;
    work(w, rank, w->costs->links[kind].receive + step->nbytes * byte);
    *arrives = w->actors[rank].clock;
    wire->received++;
    wake(w, &wire->sender);
    return MOVED;
}

static enum outcome move_once(struct world *w, int rank)
{
    const struct step *step = &w->steps[w->actors[rank].at];

    switch (step->kind) {
    case COPY:
        work(w, rank, step->nbytes * w->copy_byte);
        return MOVED;
    case SEND:
    case SEND_NEAR:
    case PASS:
        return send_message(w, rank, step);
    default:
        return receive_message(w, rank, step);
    }
}

static int run(struct world *w, double *us)
{
    *us = 0;
    for (int rank = 0; rank < w->period; rank++)
        push(w, rank);
    while (w->nheap) {
        const int rank = pop(w);
        struct actor *actor = &w->actors[rank];
        enum outcome outcome = MOVED;

        while (outcome == MOVED && actor->at < actor->end) {
            if (!is_crowded(w, rank) && w->nheap && is_before(w, w->heap[0], rank)) {
                push(w, rank);
                outcome = PUT_OFF;
                break;
            }
            outcome = move_once(w, rank);
            actor->at += outcome == MOVED;
        }
        if (outcome == FAILED)
            return ko_fail(KOLO_E_NOMEM, "no memory for %zu links of a simulation", w->nwires);
        *us = actor->clock > *us ? actor->clock : *us;
    }
    for (int rank = 0; rank < w->period; rank++)
        if (w->actors[rank].at < w->actors[rank].end)
            return ko_fail(KOLO_E_INTERNAL, "%s: rank %d of %d waits for ever", w->call->text->name,
                           rank, w->call->n);
    return KOLO_OK;
}

/* ---- one world --------------------------------------------------------------------------- */

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

/* Looks the costs up for what the whole call touches, of whatever part of it this world is. */
static void look_up(struct world *w, const struct ko_simulation *simulation)
{
    const struct ko_costs *costs = simulation->costs;
    const double footprint = ko_simulate_footprint(simulation);

    for (int kind = 0; kind < KO_NLINKS; kind++) {
        w->send_byte[kind] = ko_cost_at(costs->links[kind].send_byte, footprint);
        w->receive_byte[kind] = ko_cost_at(costs->links[kind].receive_byte, footprint);
    }
    w->near_byte = costs->links[KO_LOCAL].send_byte[0];
    w->reduce_byte = ko_cost_at(costs->reduce_byte, footprint);
    w->further_byte = FURTHER * costs->reduce_byte[0];
    w->copy_byte = ko_cost_at(costs->copy_byte, footprint);
}

/* No more than a host has ranks: the others stay idle. */
static int count_cores(const struct world *w)
{
    const struct ko_hosts *hosts = w->call->hosts;
    int most = 1;

    for (int h = 0; h < hosts->n; h++)
        most = host_size(hosts, h) > most ? host_size(hosts, h) : most;
    return w->costs->cores < most ? (int)w->costs->cores : most;
}

static int open_world(struct world *w, size_t element)
{
    const size_t nhosts = (size_t)w->call->hosts->n;
    size_t ncores;
    int err = KOLO_OK;

    w->ncores = count_cores(w);
    ncores = (size_t)w->ncores;
    w->actors = ko_alloc((size_t)w->period * sizeof *w->actors, "ranks of a simulation");
    w->heap = ko_alloc((size_t)w->period * sizeof *w->heap, "ranks of a simulation");
    w->cores = ko_alloc(nhosts * ncores * sizeof *w->cores, "cores of a simulation");
    w->last = ko_alloc(nhosts * ncores * sizeof *w->last, "cores of a simulation");
    w->leaves = ko_alloc(nhosts * sizeof *w->leaves, "hosts of a simulation");
    if (!w->actors || !w->heap || !w->cores || !w->last || !w->leaves)
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < nhosts * ncores; i++)
        w->last[i] = -1;
    for (int rank = 0; rank < w->period && !err; rank++)
        err = add_rank(w, rank, element);
    return err;
}

static void close_world(struct world *w)
{
    free(w->actors);
    free(w->heap);
    free(w->cores);
    free(w->last);
    free(w->leaves);
    free(w->wires);
    free(w->moments);
    free(w->steps);
}

int ko_simulate_world(const struct ko_simulation *simulation, size_t count, int period, double *us)
{
    struct ko_paper_call call = simulation->call;
    struct world w = {.call = &call, .costs = simulation->costs, .period = period};
    int err;

    look_up(&w, simulation);
    call.count = count;
    err = open_world(&w, simulation->element);
    if (!err)
        err = run(&w, us);
    close_world(&w);
    return err;
}
