/* SPDX-License-Identifier: MIT
 *
 * A program's steps follow from its seed alone, so that all ranks draw the same, also those that a
 * step has nothing to do with.
 */
#include "programs.h"

#include "letters.h"
#include "seeded.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_GROUPS = 4,  /* the first is the world */
    MOST_PENDING = 6, /* calls that have not been waited for */
    NSTEPS = IS_SANITIZED ? 30 : 80,
    NTAGS = 3
};

/* A message to one rank of a group, and one from another. */
struct exchange {
    unsigned char *in, *out;
    size_t nbytes;
    int from, tag;
    unsigned id; /* of what is received */
    kolo_message got;
    kolo_work *works[2]; /* what receives, and what sends if that is another */
};

/* What all ranks know of a place: whether there is something. A rank that is not of the group has
 * nothing there, and knows all the same. */
struct pending {
    bool is_taken;
    int group; /* its number */
    struct exam_run *exam;
    struct exchange *exchange;
};

struct program {
    uint64_t state;                  /* of the program: the same on all ranks */
    uint64_t own;                    /* of this rank */
    kolo_group *groups[MOST_GROUPS]; /* NULL: this rank is not in it */
    bool exists[MOST_GROUPS];
    struct pending pending[MOST_PENDING];
    unsigned nexchanges;
    const struct exam_memory *const *memories;
    int nmemories;
    void *stream; /* NULL: none */
};

/* ---- what a step is, by numbers that are drawn for it -------------------------------------- */

/* One in so many. */
static bool chance(uint64_t *draw, int in)
{
    return seeded_below(draw, in) == 0;
}

/* None, one, few, and now and then so many that they take many slices. */
static size_t random_count(uint64_t *draw)
{
    static const int most[] = {2, 8, 64, 64, 700, 700, 5000, 40000};

    return (size_t)seeded_below(draw, most[seeded_below(draw, 8)]);
}

static struct exam random_exam(const struct program *program, uint64_t *draw, int nranks)
{
    struct exam exam = {.what = (enum ko_collective)seeded_below(draw, KO_NCOLLECTIVES),
                        .count = random_count(draw),
                        .seed = (unsigned)seeded_next(draw),
                        .is_in_place = chance(draw, 3),
                        .is_async = chance(draw, 2),
                        .shift = chance(draw, 4) ? (size_t)seeded_below(draw, 64) : 0,
                        .has_shared_in = chance(draw, 4),
                        .has_shared_out = chance(draw, 4)};

    do {
        exam.dtype = (kolo_dtype)seeded_below(draw, KOLO_NDTYPES);
        exam.op = (kolo_op)(exam_is_reducing(exam.what) ? seeded_below(draw, KOLO_NOPS) : 0);
    } while (!exam_allows(exam.dtype, exam.op));
    exam.is_uneven = exam_can_be_uneven(exam.what) && chance(draw, 3);
    exam.root = exam_has_root(exam.what) ? seeded_below(draw, nranks) : 0;
    if (program->nmemories)
        exam.memory = program->memories[seeded_below(draw, program->nmemories)];
    if (exam.memory) {
        exam.has_shared_in = exam.has_shared_out = false;
        exam.shift -= exam.shift % kolo_dtype_size(exam.dtype);
    }
    return exam;
}

static struct pending *place_for(struct program *program, int group)
{
    for (int i = 0; i < MOST_PENDING; i++)
        if (!program->pending[i].is_taken) {
            program->pending[i] = (struct pending){.is_taken = true, .group = group};
            return &program->pending[i];
        }
    return NULL;
}

/* ---- messages ------------------------------------------------------------------------------ */

static int end_exchange(struct exchange *exchange)
{
    int failed = 0;

    for (int i = 0; i < 2 && exchange->works[i]; i++) {
        failed |= kolo_work_wait(exchange->works[i], -1);
        kolo_work_free(exchange->works[i]);
    }
    if (failed)
        failed = ranks_fail("messages");
    else if (!letter_is(exchange->out, exchange->nbytes, exchange->id))
        failed = ranks_fail("the bytes of message %u are wrong", exchange->id);
    else
        failed = letter_expect(&exchange->got, exchange->from, exchange->tag, exchange->nbytes);
    free(exchange->in);
    free(exchange->out);
    free(exchange);
    return failed;
}

/* Of one of few tags, so that messages of several calls are told apart by their order; or of one
 * of its own, from any rank. */
static int start_exchange(kolo_group *group, struct exchange *exchange, int to, uint64_t *draw)
{
    const bool is_any = exchange->tag >= NTAGS;
    const int from = is_any ? KOLO_ANY_RANK : exchange->from;
    const size_t n = exchange->nbytes;
    kolo_p2p ops[] = {{1, to, exchange->tag, KOLO_UINT8, n, exchange->in, NULL},
                      {0, from, exchange->tag, KOLO_UINT8, n, exchange->out, &exchange->got}};

    if (chance(draw, 3))
        return kolo_batch_async(group, ops, 2, &exchange->works[0]);
    if (chance(draw, 3))
        return kolo_batch(group, ops, 2);
    return kolo_irecv_message(group, exchange->out, n, KOLO_UINT8, from, exchange->tag,
                              &exchange->got, &exchange->works[0]) ||
           kolo_isend(group, exchange->in, n, KOLO_UINT8, to, exchange->tag, &exchange->works[1]);
}

/* Every rank of the group sends to the one that is so many further on. */
static int step_exchange(struct program *program, int number, uint64_t *draw)
{
    kolo_group *group = program->groups[number];
    const int n = group ? kolo_group_size(group) : 1, rank = group ? kolo_group_rank(group) : 0;
    const int far = seeded_below(draw, n);
    const unsigned id = ++program->nexchanges * PROGRAMS_MOST_RANKS;
    struct pending *place = chance(draw, 2) ? place_for(program, number) : NULL;
    struct exchange *exchange;
    int failed;

    if (!group)
        return 0;
    exchange = calloc(1, sizeof *exchange);
    exchange->nbytes = random_count(draw);
    exchange->tag = chance(draw, 4) ? NTAGS + (int)program->nexchanges : seeded_below(draw, NTAGS);
    exchange->from = (rank + n - far) % n;
    exchange->id = id + (unsigned)exchange->from;
    exchange->in = letter_make(exchange->nbytes, id + (unsigned)rank);
    exchange->out = malloc(exchange->nbytes + 1);
    failed = start_exchange(group, exchange, (rank + far) % n, draw);
    if (failed || !place)
        return end_exchange(exchange) | (failed ? ranks_fail("messages") : 0);
    place->exchange = exchange;
    return 0;
}

/* Blobs as long as their owner's rank has them. */
static int step_blobs(struct program *program, int number, uint64_t *draw)
{
    kolo_group *group = program->groups[number];
    const int n = group ? kolo_group_size(group) : 0, rank = group ? kolo_group_rank(group) : 0;
    const size_t most = random_count(draw) + 1;
    const unsigned id = (unsigned)seeded_below(draw, 1000);
    unsigned char *own;
    kolo_bytes *all;
    int failed = 0;

    if (!group)
        return 0;
    own = letter_make(most * 7 * (size_t)(rank + 1) % most, id + (unsigned)rank);
    failed =
        kolo_all_gather_bytes(group, (kolo_bytes){own, most * 7 * (size_t)(rank + 1) % most}, &all);
    free(own);
    if (failed)
        return ranks_fail("blobs");
    for (int i = 0; i < n && !failed; i++)
        if (all[i].nbytes != most * 7 * (size_t)(i + 1) % most ||
            !letter_is(all[i].data, all[i].nbytes, id + (unsigned)i))
            failed = ranks_fail("the blob of rank %d is wrong", i);
    kolo_free(all);
    return failed;
}

/* ---- collectives --------------------------------------------------------------------------- */

static int step_exam(struct program *program, int number, uint64_t *draw)
{
    kolo_group *group = program->groups[number];
    const struct exam exam = random_exam(program, draw, group ? kolo_group_size(group) : 1);
    struct pending *place = exam.is_async ? place_for(program, number) : NULL;

    if (!group)
        return 0;
    if (!place)
        return exam_take(group, &exam);
    place->exam = exam_begin(group, &exam);
    return !place->exam;
}

static int end_pending(struct pending *pending)
{
    int failed = 0;

    if (pending->exam)
        failed = exam_end(pending->exam);
    if (pending->exchange)
        failed = end_exchange(pending->exchange);
    *pending = (struct pending){.is_taken = false};
    return failed;
}

/* Of one group, or of all (-1). */
static int end_all_pending(struct program *program, int number)
{
    int failed = 0;

    for (int i = 0; i < MOST_PENDING; i++)
        if (program->pending[i].is_taken && (number < 0 || program->pending[i].group == number))
            failed |= end_pending(&program->pending[i]);
    return failed;
}

/* ---- groups -------------------------------------------------------------------------------- */

/* Some ranks of a group of n, in any order; returns how many. */
static int random_list(uint64_t *draw, int n, int *list)
{
    for (int i = 0; i < n; i++) {
        const int k = seeded_below(draw, i + 1);

        list[i] = list[k];
        list[k] = i;
    }
    return 1 + seeded_below(draw, n);
}

static bool is_in(const int *list, int n, int rank)
{
    int i = 0;

    while (i < n && list[i] != rank)
        i++;
    return i < n;
}

static int make_group(kolo_group *parent, kolo_group **group, uint64_t *draw)
{
    const int n = kolo_group_size(parent), rank = kolo_group_rank(parent);
    uint64_t of_rank = seeded_next(draw) + (uint64_t)rank;
    int list[PROGRAMS_MOST_RANKS], nlist = random_list(draw, n, list);

    switch (seeded_below(draw, 4)) {
    case 0:
        return kolo_group_duplicate(parent, group);
    case 1:
        return kolo_group_new(parent, list, nlist, group);
    case 2:
        return is_in(list, nlist, rank) ? kolo_group_new_local(parent, list, nlist, 0, group) : 0;
    default:
        return kolo_group_split(parent, seeded_below(&of_rank, 3) - 1, seeded_below(&of_rank, 5),
                                group);
    }
}

/* Makes a group of another's ranks, or ends the one that there is. */
static int step_group(struct program *program, uint64_t *draw)
{
    const int number = 1 + seeded_below(draw, MOST_GROUPS - 1);
    kolo_group *parent = program->groups[seeded_below(draw, MOST_GROUPS)];
    int failed = 0;

    if (program->exists[number]) {
        failed = end_all_pending(program, number);
        kolo_group_free(program->groups[number]);
        program->groups[number] = NULL;
    } else if (parent) {
        failed = make_group(parent, &program->groups[number], draw) ? ranks_fail("a group") : 0;
        if (!failed && program->groups[number] && program->stream)
            failed = kolo_group_set_stream(program->groups[number], program->stream);
    }
    program->exists[number] = !program->exists[number];
    return failed;
}

/* ---- programs ------------------------------------------------------------------------------ */

static int step_barrier(struct program *program, int number, uint64_t *draw)
{
    kolo_group *group = program->groups[number];
    const bool is_monitored = chance(draw, 2);

    if (!group)
        return 0;
    return (is_monitored ? kolo_monitored_barrier(group, -1, 0) : kolo_barrier(group))
               ? ranks_fail("a barrier")
               : 0;
}

static int step(struct program *program)
{
    uint64_t draw = seeded_next(&program->state);
    const int number = seeded_below(&draw, MOST_GROUPS), what = seeded_below(&draw, 16);
    const int place = seeded_below(&draw, MOST_PENDING);

    if (chance(&program->own, 16))
        ranks_nap_ms(1);
    if (what < 6)
        return step_exam(program, number, &draw);
    if (what < 9)
        return step_exchange(program, number, &draw);
    if (what < 12)
        return end_pending(&program->pending[place]);
    if (what < 14)
        return step_group(program, &draw);
    return what == 14 ? step_blobs(program, number, &draw) : step_barrier(program, number, &draw);
}

int programs_run(kolo_group *world, uint64_t seed, const struct exam_memory *const *memories, int n,
                 void *stream)
{
    struct program program = {.state = seed,
                              .own = seed * 1000 + (uint64_t)kolo_group_rank(world),
                              .groups = {world},
                              .exists = {true},
                              .memories = memories,
                              .nmemories = n,
                              .stream = stream};
    int failed = 0, done = 0;

    while (done < NSTEPS && !failed) {
        failed = step(&program);
        done += !failed;
    }
    failed |= end_all_pending(&program, -1);
    for (int i = 1; i < MOST_GROUPS; i++)
        kolo_group_free(program.groups[i]);
    return failed ? ranks_fail("seed %llu, step %d", (unsigned long long)seed, done) : 0;
}

/* ---- and their end ------------------------------------------------------------------------- */

static void *be_killed(void *argument)
{
    const uint64_t *seed = argument;
    uint64_t state = *seed;

    usleep((useconds_t)seeded_below(&state, 60000));
    raise(SIGKILL);
    return NULL;
}

/* In the last error; by its number in the world, which in another group stands behind the one
 * there. */
static bool is_named(int rank)
{
    static const char *const behind[] = {" (", " of the world", ", which serves the store"};
    char name[48];
    bool is = false;

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "rank %d%s", rank, behind[i]);
        is |= strstr(kolo_last_error(), name) != NULL;
    }
    return is;
}

int programs_survive(kolo_group *world, uint64_t seed, const struct exam_memory *const *memories,
                     int n, void *stream)
{
    const int victim = (int)(seed % (uint64_t)kolo_group_size(world));
    bool failed = kolo_barrier(world) != KOLO_OK; /* all have joined */
    pthread_t killer;
    char byte;
    int err;

    if (kolo_group_rank(world) == victim && pthread_create(&killer, NULL, be_killed, &seed))
        return ranks_fail("a thread");
    ranks_expect_failures(true);
    for (uint64_t i = 0; !failed; i++)
        failed = programs_run(world, seed + i, memories, n, stream);
    ranks_expect_failures(false);
    if (!stream && !is_named(victim)) /* in a stream any bytes may be left */
        return ranks_fail("it is not for rank %d that the program failed", victim);
    err = kolo_recv(world, &byte, 1, KOLO_UINT8, victim, NTAGS);
    return is_named(victim) ? ranks_expect(err, KOLO_E_PEER_LOST, "")
                            : ranks_fail("status %d does not name rank %d", err, victim);
}
