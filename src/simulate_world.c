/* SPDX-License-Identifier: MIT
 *
 * Carries out what each rank does. What a rank alone decides, such as when it has received, comes
 * out the same whoever moves first: it is carried out as far as it goes. What ranks share, the
 * cores and the wire of a host, is for them in the order of time: the one whose clock is behind all
 * others moves next, once all have gone as far as they can.
 *
 * Slices that go in pieces arrive with the first, and are not received before the last has come.
 *
 * Ranks sit on the cores of their host in turn, and those of one core take turns on it. What a rank
 * writes into a slot for one of its own core stays in that core's cache, and costs what any copy
 * does; what goes to another core costs what was measured between two.
 */
#include "simulate_world.h"

#include "simulate_prices.h"
#include "simulate_steps.h"
#include "status.h"
#include "window_pieces.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Those who share a core go round so often until a rank that waited goes on (found by measuring).
 */
static const double TURNS = 2;

/* So many of those that move next are looked at ahead (found by measuring). */
enum { SOON = 7, SOONER = 3 };

/* Messages from one rank to another. Moment i % slots is when message i arrives and, after it was
 * received, when its slot was free again. */
struct wire {
    uint32_t sent, received;
    int sender, receiver; /* who waits for room, for a message; -1: nobody */
    double each;          /* what it took to send a byte of the last one */
    uint64_t left;    /* a bit for each slot: its message stays where it lies, to be read there */
    double moments[]; /* as many as slots, or as messages if these are fewer */
};

struct actor {
    double clock;
    const struct ko_step *step, *end; /* the next one, and behind the last */
    const uint32_t *wires;            /* by the ends of its steps: where they lie */
    int host, core;                   /* of all */
    bool is_crowded;                  /* the ranks of its host take turns on the cores */
    bool is_among_others;             /* on its host */
};

/* An actor that goes on in its turn. */
struct turn {
    double clock;
    int rank;
};

struct world {
    const struct ko_paper_call *call;
    const struct ko_costs *costs;
    struct ko_prices prices;
    int period; /* ranks that are simulated: all, or those of the first host */
    struct actor *actors;
    struct ko_steps steps;
    double *wires; /* one behind the other, each where its ends say */
    int *ready;    /* actors that go on whatever the others do, the last first */
    int nready;
    struct turn *heap; /* those that go on in the order of time, the earliest first */
    int nheap;
    bool is_ordered; /* all go on so: some host has fewer cores than ranks */
    bool is_passed;  /* slices are waited for one after the other (algorithms.h) */
    int ncores;      /* of a host, that ranks can use */
    double *cores;   /* by host and core: when it is free */
    int *last;       /* by core: who ran last */
    double *leaves;  /* by host: when its wire is free */
};

/* ---- who moves next ---------------------------------------------------------------------- */

static bool is_before(const struct turn *a, const struct turn *b)
{
    return a->clock < b->clock || (a->clock <= b->clock && a->rank < b->rank);
}

static void push(struct world *w, int rank)
{
    const struct turn turn = {w->actors[rank].clock, rank};
    int at = w->nheap++;

    while (at > 0 && is_before(&turn, &w->heap[(at - 1) / 2])) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = turn;
}

static int pop(struct world *w)
{
    const int first = w->heap[0].rank;
    const struct turn last = w->heap[--w->nheap];
    int at = 0;

    for (int child = 1; child < w->nheap; child = 2 * at + 1) {
        child += child + 1 < w->nheap && is_before(&w->heap[child + 1], &w->heap[child]);
        if (!is_before(&w->heap[child], &last))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return first;
}

/* Has the actor moved when it can. */
static void rouse(struct world *w, int rank)
{
    if (w->is_ordered)
        push(w, rank);
    else
        w->ready[w->nready++] = rank;
}

static struct wire *wire_of(const struct world *w, const struct actor *actor,
                            const struct ko_step *step)
{
    return (struct wire *)(void *)&w->wires[actor->wires[step->end]];
}

static void wake(struct world *w, int *who)
{
    if (*who >= 0)
        rouse(w, *who);
    *who = -1;
}

/* -1: nobody can move. Those that move soon are scattered over more memory than fits any cache: it
 * is fetched meanwhile, for the later ones that in which the addresses for the earlier ones lie. */
static int next(struct world *w)
{
    int rank = -1;

    if (w->nready)
        return w->ready[--w->nready];
    if (w->nheap)
        rank = pop(w);
    for (int i = 0; i < SOON && i < w->nheap; i++)
        __builtin_prefetch(&w->actors[w->heap[i].rank]);
    for (int i = 0; i < SOONER && i < w->nheap; i++) {
        const struct actor *actor = &w->actors[w->heap[i].rank];

        __builtin_prefetch(&actor->wires[actor->step->end]);
    }
    if (w->nheap)
        __builtin_prefetch(
            wire_of(w, &w->actors[w->heap[0].rank], w->actors[w->heap[0].rank].step));
    return rank;
}

/* Messages that stay on a host pass no wire, whatever they go by. */
static bool takes_wire(const struct world *w, const struct ko_step *step)
{
    return step->is_away && w->costs->links[step->link].wire_byte > 0;
}

/* Whether the step takes what other ranks want as well: the wire of its host. Who has a core of few
 * keeps it until it waits. */
static bool is_for_the_first(const struct world *w, const struct actor *actor,
                             const struct ko_step *step)
{
    if (w->is_ordered)
        return !actor->is_crowded;
    return actor->is_among_others && step->kind <= KO_STEP_PASS && takes_wire(w, step);
}

/* Puts the actor off if the step is for the first and it is not. */
static bool is_put_off(struct world *w, int rank, const struct ko_step *step)
{
    const struct actor *actor = &w->actors[rank];
    const struct turn turn = {actor->clock, rank};

    if (!is_for_the_first(w, actor, step))
        return false;
    if (!w->nready && (!w->nheap || is_before(&turn, &w->heap[0])))
        return false;
    push(w, rank);
    return true;
}

/* ---- moving ------------------------------------------------------------------------------ */

/* Those who wait look and yield in turn: what it takes until the one that can go on has its turn.
 */
static double change(const struct world *w, const struct actor *actor)
{
    return w->prices.change * host_size(w->call->hosts, actor->host) / w->ncores;
}

/* The actor works for so long, on its core if its host has fewer of them than ranks. */
static void work(struct world *w, int rank, double us)
{
    struct actor *actor = &w->actors[rank];
    const int core = actor->core;
    double begin = actor->clock;

    if (!actor->is_crowded) {
        actor->clock += us;
        return;
    }
    begin = begin > w->cores[core] ? begin : w->cores[core];
    if (w->last[core] != rank)
        us += change(w, actor);
    w->last[core] = rank;
    w->cores[core] = begin + us;
    actor->clock = begin + us;
}

/* Waits for a moment: true if others have to move first. */
static bool wait_until(struct world *w, int rank, const struct ko_step *step, double us)
{
    struct actor *actor = &w->actors[rank];
    const double waits = us - actor->clock;

    if (waits <= 0)
        return false;
    if (waits > w->costs->spin)
        us += w->costs->wake;
    else if (actor->is_crowded)
        us += TURNS * change(w, actor);
    actor->clock = us;
    if (!actor->is_crowded)
        return is_put_off(w, rank, step);
    push(w, rank);
    return true;
}

/* A call has at most as many slots as bits (KOLO_SLOTS). */
static uint64_t bit(const struct world *w, uint32_t message)
{
    return UINT64_C(1) << (message % (uint32_t)w->call->slots & 63);
}

static double *moment(const struct world *w, struct wire *wire, uint32_t message)
{
    return &wire->moments[message % (uint32_t)w->call->slots];
}

static double send_byte(const struct world *w, const struct ko_step *step)
{
    if (step->link == KO_REMOTE) /* the kernel takes all of it */
        return w->prices.send_byte[KO_REMOTE];
    if (step->kind == KO_STEP_PASS) /* in its slot */
        return step->is_beside ? 0 : w->prices.out_byte;
    if (step->kind == KO_STEP_SEND_NEAR)
        return step->is_beside ? w->prices.near_copy_byte : w->prices.near_byte;
    return w->prices.send_byte[KO_LOCAL] - (step->is_beside ? w->prices.out_byte : 0);
}

/* Bytes of a slice that are copied in behind its first piece, while that is copied out. */
static double behind_first(const struct world *w, const struct actor *actor,
                           const struct ko_step *step)
{
    const bool is_in_pieces = w->is_passed && step->link == KO_LOCAL && !actor->is_crowded;

    return is_in_pieces ? (double)(step->nbytes - ko_window_piece(step->nbytes)) : 0;
}

/* Whether it is left to its receiver. Links whose ranks take turns on the cores do not try. */
static bool is_read(const struct world *w, const struct actor *actor, const struct ko_step *step)
{
    return !actor->is_crowded && step->link == KO_LOCAL &&
           ko_prices_say_read(&w->prices, &w->costs->links[KO_LOCAL], step);
}

/* false: it has to be tried again later. */
static bool send_message(struct world *w, int rank, const struct ko_step *step)
{
    const struct ko_link_costs *costs = &w->costs->links[step->link];
    const double nbytes = step->nbytes;
    const uint32_t slots = (uint32_t)w->call->slots;
    struct actor *actor = &w->actors[rank];
    struct wire *wire = wire_of(w, actor, step);
    double leaves;
    bool is_left;

    if (wire->sent - wire->received >= slots) {
        wire->sender = rank;
        return false;
    }
    if (wire->sent >= slots && wait_until(w, rank, step, *moment(w, wire, wire->sent)))
        return false;
    is_left = is_read(w, actor, step);
    wire->left = is_left ? wire->left | bit(w, wire->sent) : wire->left & ~bit(w, wire->sent);
    wire->each = is_left ? 0 : send_byte(w, step);
    work(w, rank, costs->send + nbytes * wire->each);
    leaves = actor->clock - behind_first(w, actor, step) * wire->each;
    if (takes_wire(w, step)) {
        double *free_at = &w->leaves[actor->host];

        leaves = (leaves > *free_at ? leaves : *free_at) + nbytes * costs->wire_byte;
        *free_at = leaves;
    }
    *moment(w, wire, wire->sent++) = leaves + costs->latency;
    wake(w, &wire->receiver);
    return true;
}

/* What is reduced is read out of the slot it lies in, to which the kernel has moved what comes from
 * another host; what was left has just been read into the nearest cache. */
static double receive_byte(const struct world *w, const struct ko_step *step, bool is_left)
{
    const bool is_moved = step->kind == KO_STEP_RECEIVE || step->link == KO_REMOTE;
    const double *each = step->is_idle ? w->prices.waiting_byte : w->prices.receive_byte;
    const double moved = is_moved ? each[step->link] : 0;
    const double saved = step->is_beside ? w->prices.in_byte : 0;

    if (is_left)
        return w->prices.read_byte +
               (step->kind == KO_STEP_RECEIVE ? 0 : w->prices.near_reduce_byte);
    if (step->kind == KO_STEP_RECEIVE)
        return step->is_beside ? fmin(moved, w->prices.copy_byte) : moved;
    if (step->kind == KO_STEP_REDUCE_TOO)
        return moved + w->prices.further_byte;
    return moved + fmax(w->prices.reduce_byte - saved, 0);
}

/* Works on a slice that has begun to come, and not before its last piece has come. */
static void take(struct world *w, int rank, const struct ko_step *step, const struct wire *wire,
                 double arrives)
{
    struct actor *actor = &w->actors[rank];
    const bool is_left = wire->left & bit(w, wire->received);
    const double each = receive_byte(w, step, is_left);
    const double behind = behind_first(w, actor, step);
    const double call = is_left ? w->prices.read : 0;
    const double last = arrives + behind * wire->each + (step->nbytes - behind) * each;

    work(w, rank, w->costs->links[step->link].receive + call + step->nbytes * each);
    if (behind > 0)
        actor->clock = fmax(actor->clock, last);
}

static bool receive_message(struct world *w, int rank, const struct ko_step *step)
{
    struct wire *wire = wire_of(w, &w->actors[rank], step);
    double *arrives;

    if (wire->sent == wire->received) {
        wire->receiver = rank;
        return false;
    }
    arrives = moment(w, wire, wire->received);
    if (wait_until(w, rank, step, *arrives))
        return false;
    take(w, rank, step, wire, *arrives);
    *arrives = w->actors[rank].clock;
    wire->received++;
    wake(w, &wire->sender);
    return true;
}

static bool move_once(struct world *w, int rank, const struct ko_step *step)
{
    if (step->kind <= KO_STEP_PASS)
        return send_message(w, rank, step);
    if (step->kind != KO_STEP_COPY)
        return receive_message(w, rank, step);
    work(w, rank, step->nbytes * w->prices.own_byte);
    return true;
}

static int run(struct world *w, double *us)
{
    *us = 0;
    for (int rank = w->period - 1; rank >= 0; rank--)
        if (w->actors[rank].step < w->actors[rank].end)
            rouse(w, rank);
    for (int rank = next(w); rank >= 0; rank = next(w)) {
        struct actor *actor = &w->actors[rank];
        const struct ko_step *step = actor->step;

        while (step < actor->end && !is_put_off(w, rank, step) && move_once(w, rank, step))
            step++;
        actor->step = step;
    }
    for (int rank = 0; rank < w->period; rank++) {
        if (w->actors[rank].step < w->actors[rank].end)
            return ko_fail(KOLO_E_INTERNAL, "%s: rank %d of %d waits for ever", w->call->text->name,
                           rank, w->call->n);
        *us = w->actors[rank].clock > *us ? w->actors[rank].clock : *us;
    }
    return KOLO_OK;
}

/* ---- one world --------------------------------------------------------------------------- */

/* No more than a host has ranks: the others stay idle. */
static int count_cores(const struct world *w)
{
    const struct ko_hosts *hosts = w->call->hosts;
    int most = 1;

    for (int h = 0; h < hosts->n; h++)
        most = host_size(hosts, h) > most ? host_size(hosts, h) : most;
    return w->costs->cores < most ? (int)w->costs->cores : most;
}

static int open_actors(struct world *w)
{
    w->actors = ko_alloc((size_t)w->period * sizeof *w->actors, "ranks of a simulation");
    w->ready = ko_alloc((size_t)w->period * sizeof *w->ready, "ranks of a simulation");
    w->heap = ko_alloc((size_t)w->period * sizeof *w->heap, "ranks of a simulation");
    if (!w->actors || !w->ready || !w->heap)
        return KOLO_E_NOMEM;
    for (int rank = 0; rank < w->period; rank++) {
        const struct ko_script *script = &w->steps.scripts[rank];
        const int host = w->call->hosts->host[rank];
        const bool is_crowded = host_size(w->call->hosts, host) > w->ncores;

        w->actors[rank] =
            (struct actor){.step = w->steps.steps + script->begin,
                           .end = w->steps.steps + script->end,
                           .wires = w->steps.wires + script->wires,
                           .host = host,
                           .core = host * w->ncores + ko_core_of(w->call->hosts, rank, w->ncores),
                           .is_crowded = is_crowded,
                           .is_among_others = host_size(w->call->hosts, host) > 1};
        w->is_ordered = w->is_ordered || is_crowded;
    }
    return KOLO_OK;
}

/* Doubles that a wire of so many messages takes. */
static size_t wire_room(const struct world *w, uint32_t messages)
{
    const uint32_t slots = (uint32_t)w->call->slots;

    return sizeof(struct wire) / sizeof(double) + (messages < slots ? messages : slots);
}

/* Lays the wires out. Those who look for one find its moments in the same line of a cache; *places
 * gets where each begins, in the stead of how many messages it has. */
static int lay_wires(struct world *w, uint32_t *places)
{
    size_t room = 0;

    for (size_t i = 0; i < w->steps.nwires; i++)
        room += wire_room(w, places[i]);
    if (room > UINT32_MAX)
        return ko_fail(KOLO_E_NOMEM, "%zu links are more than a simulation can number",
                       w->steps.nwires);
    w->wires = ko_alloc_unset(room * sizeof *w->wires, "links of a simulation");
    if (!w->wires)
        return KOLO_E_NOMEM;
    room = 0;
    for (size_t i = 0; i < w->steps.nwires; i++) {
        const size_t next = room + wire_room(w, places[i]);

        *(struct wire *)(void *)&w->wires[room] = (struct wire){.sender = -1, .receiver = -1};
        places[i] = (uint32_t)room;
        room = next;
    }
    return KOLO_OK;
}

static int open_wires(struct world *w)
{
    int err = lay_wires(w, w->steps.messages);

    for (size_t i = 0; i < w->steps.nends && !err; i++)
        w->steps.wires[i] = w->steps.messages[w->steps.wires[i]];
    return err;
}

static int open_hosts(struct world *w)
{
    const size_t nhosts = (size_t)w->call->hosts->n, ncores = (size_t)w->ncores;

    w->cores = ko_alloc(nhosts * ncores * sizeof *w->cores, "cores of a simulation");
    w->last = ko_alloc(nhosts * ncores * sizeof *w->last, "cores of a simulation");
    w->leaves = ko_alloc(nhosts * sizeof *w->leaves, "hosts of a simulation");
    if (!w->cores || !w->last || !w->leaves)
        return KOLO_E_NOMEM;
    for (size_t i = 0; i < nhosts * ncores; i++)
        w->last[i] = -1;
    return KOLO_OK;
}

static int open_world(struct world *w, size_t element)
{
    int err;

    w->ncores = count_cores(w);
    err = ko_steps_write(w->call, element, w->period, w->ncores, &w->steps);
    if (!err)
        err = open_actors(w);
    if (!err)
        err = open_wires(w);
    return err ? err : open_hosts(w);
}

static void close_world(struct world *w)
{
    ko_steps_free(&w->steps);
    free(w->actors);
    free(w->ready);
    free(w->heap);
    free(w->wires);
    free(w->cores);
    free(w->last);
    free(w->leaves);
}

int ko_simulate_world(const struct ko_simulation *simulation, size_t count, int period, double *us)
{
    struct ko_paper_call call = simulation->call;
    struct world w = {.call = &call, .costs = simulation->costs, .period = period};
    int err;

    ko_prices_find(&w.prices, simulation);
    w.is_passed = ko_is_passed(call.text->what, call.n, call.count <= KO_FEW_SLICES * call.slice);
    call.count = count;
    err = open_world(&w, simulation->element);
    if (!err)
        err = run(&w, us);
    close_world(&w);
    return err;
}
