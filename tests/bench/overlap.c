/* SPDX-License-Identifier: MIT
 *
 * overlap: what a loop that computes loses while an all_reduce of 64 MiB goes on beside it, and
 * what it loses beside a thread that copies as many bytes through a slot. Two ranks, threads of one
 * process, each with a loop of its own: as many loops as ranks, so on as many cores a byte copied
 * is time lost. Each figure is that of the rank whose loop loses more. Exit code 1 if the
 * all_reduce costs a loop a tenth more than its bytes do.
 *
 *   overlap [ROUNDS]
 */
#include "clock.h"
#include "kolo.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NRANKS = 2, NBYTES = 64 << 20, SLOT = 128 << 10, LOOP_BYTES = 32 << 20, MOST_ROUNDS = 101 };

static const double most_ratio = 1.10;

enum loop { REGISTERS, MEMORY, NLOOPS };
enum beside { ALONE, COPIES, ALL_REDUCE, NBESIDES };

/* Milliseconds, by round: a loop, and until what goes on beside it is over too. */
struct times {
    double looped[NLOOPS][NBESIDES][MOST_ROUNDS], over[NLOOPS][NBESIDES][MOST_ROUNDS];
    double all_reduce[MOST_ROUNDS]; /* and nothing beside it */
};

struct rank {
    kolo_store *store;
    int number, nrounds;
    long turns[NLOOPS]; /* of a loop */
    float *in, *out, *memory;
    sem_t copy, copied;
    kolo_group *group;
    struct times times;
};

static void check(int err)
{
    if (!err)
        return;
    fprintf(stderr, "%s\n", kolo_last_error());
    exit(1);
}

static double now_ms(void)
{
    return (double)ko_now_ns() / 1e6;
}

/* ---- loops ------------------------------------------------------------------------------- */

static volatile unsigned long sink;

static void loop_registers(long turns)
{
    unsigned long x = 1;

    for (long i = 0; i < turns; i++)
        x = x * 6364136223846793005UL + 1442695040888963407UL;
    sink = x;
}

/* Reads and writes the memory from its beginning to its end, and again. */
static void loop_memory(float *memory, long turns)
{
    const size_t n = LOOP_BYTES / sizeof *memory;

    for (long i = 0; i < turns; i++)
        for (size_t k = (size_t)i * 4096 % n, end = k + 4096; k < end; k++)
            memory[k] += 1;
}

static void run_loop(struct rank *rank, enum loop loop)
{
    if (loop == REGISTERS)
        loop_registers(rank->turns[loop]);
    else
        loop_memory(rank->memory, rank->turns[loop]);
}

/* So many turns that the loop takes ms: looked for twice, the second time warm. */
static void set_turns(struct rank *rank, enum loop loop, double ms)
{
    rank->turns[loop] = 64;
    for (double took = 0; took < ms / 2;) {
        const double began = now_ms();

        run_loop(rank, loop);
        took = now_ms() - began;
        rank->turns[loop] *= took < ms / 2 ? 2 : 1;
    }
    for (int i = 0; i < 3; i++) {
        const double began = now_ms();

        run_loop(rank, loop);
        rank->turns[loop] = (long)((double)rank->turns[loop] * ms / (now_ms() - began)) + 1;
    }
}

/* ---- beside ------------------------------------------------------------------------------ */

/* All of a buffer into a slot and all of another out of it: of an all_reduce of two ranks, half is
 * sent, half is reduced, half of the result is sent, and half comes. */
static void *be_copier(void *argument)
{
    struct rank *rank = argument;
    unsigned char *slot = malloc(SLOT);

    if (!slot)
        abort();
    for (;;) {
        while (sem_wait(&rank->copy))
            ;
        for (size_t at = 0; at < NBYTES; at += SLOT) {
            memcpy(slot, (unsigned char *)rank->in + at, SLOT);
            memcpy((unsigned char *)rank->out + at, slot, SLOT);
        }
        sem_post(&rank->copied);
    }
    return NULL;
}

static void measure(struct rank *rank, enum loop loop, enum beside beside, int round)
{
    kolo_work *work = NULL;
    double began;

    check(kolo_barrier(rank->group));
    began = now_ms();
    if (beside == COPIES)
        sem_post(&rank->copy);
    if (beside == ALL_REDUCE)
        check(kolo_all_reduce_async(rank->group, rank->in, rank->out, NBYTES / sizeof(float),
                                    KOLO_FLOAT32, KOLO_SUM, &work));
    run_loop(rank, loop);
    rank->times.looped[loop][beside][round] = now_ms() - began;
    while (beside == COPIES && sem_wait(&rank->copied))
        ;
    if (work)
        check(kolo_work_wait(work, -1));
    kolo_work_free(work);
    rank->times.over[loop][beside][round] = now_ms() - began;
}

static double all_reduce_once(struct rank *rank)
{
    const double began = now_ms();

    check(kolo_all_reduce(rank->group, rank->in, rank->out, NBYTES / sizeof(float), KOLO_FLOAT32,
                          KOLO_SUM));
    return now_ms() - began;
}

/* Loops last about as long as the all_reduce does beside them; rank 0's count for both, which find
 * theirs at the same time. */
static void set_loops(struct rank *rank)
{
    double ms = 1e9;

    for (int i = 0; i < 5; i++) {
        const double once = all_reduce_once(rank);

        ms = once < ms ? once : ms;
    }
    for (int loop = 0; loop < NLOOPS; loop++)
        set_turns(rank, (enum loop)loop, 2 * ms);
    check(kolo_broadcast(rank->group, rank->turns, NLOOPS, KOLO_INT64, 0));
}

static void run(struct rank *rank)
{
    set_loops(rank);
    for (int round = 0; round < rank->nrounds; round++) {
        for (int loop = 0; loop < NLOOPS; loop++)
            for (int beside = 0; beside < NBESIDES; beside++)
                measure(rank, (enum loop)loop, (enum beside)beside, round);
        check(kolo_barrier(rank->group));
        rank->times.all_reduce[round] = all_reduce_once(rank);
    }
}

static void *be_rank(void *argument)
{
    struct rank *rank = argument;
    pthread_t copier;

    rank->in = malloc(NBYTES);
    rank->out = malloc(NBYTES);
    rank->memory = malloc(LOOP_BYTES);
    if (!rank->in || !rank->out || !rank->memory)
        abort();
    memset(rank->in, 0, NBYTES);
    memset(rank->out, 0, NBYTES);
    memset(rank->memory, 0, LOOP_BYTES);
    sem_init(&rank->copy, 0, 0);
    sem_init(&rank->copied, 0, 0);
    if (pthread_create(&copier, NULL, be_copier, rank))
        abort();
    check(kolo_group_join_store(rank->store, rank->number, NRANKS, 20000, &rank->group));
    run(rank);
    kolo_group_free(rank->group);
    return NULL;
}

/* ---- figures ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

/* Medians of one loop on one rank, in ms, and what the all_reduce costs it beyond its bytes. */
struct loss {
    double looped[NBESIDES], over[NBESIDES], ratio;
};

static struct loss loss_of(struct times *times, enum loop loop, int nrounds)
{
    struct loss loss;

    for (int beside = 0; beside < NBESIDES; beside++) {
        loss.looped[beside] = median(times->looped[loop][beside], nrounds);
        loss.over[beside] = median(times->over[loop][beside], nrounds);
    }
    loss.ratio = loss.looped[ALL_REDUCE] / loss.looped[COPIES];
    return loss;
}

static struct loss worst_loss(struct rank *ranks, enum loop loop, int nrounds)
{
    struct loss worst = loss_of(&ranks[0].times, loop, nrounds);

    for (int i = 1; i < NRANKS; i++) {
        const struct loss loss = loss_of(&ranks[i].times, loop, nrounds);

        if (loss.ratio > worst.ratio)
            worst = loss;
    }
    return worst;
}

static double slowest_all_reduce(struct rank *ranks, int nrounds)
{
    double slowest = 0;

    for (int i = 0; i < NRANKS; i++) {
        const double ms = median(ranks[i].times.all_reduce, nrounds);

        slowest = ms > slowest ? ms : slowest;
    }
    return slowest;
}

/* How many loops lose more than they may. */
static int print(struct rank *ranks, int nrounds)
{
    static const char *const names[] = {"registers", "memory"};
    int missed = 0;

    printf("all_reduce of %d MiB alone: %.2f ms; medians of %d rounds on the rank that loses more, "
           "in ms\n",
           NBYTES >> 20, slowest_all_reduce(ranks, nrounds), nrounds);
    printf("%-10s %8s %13s %17s %10s %24s\n", "loop", "alone", "beside copies", "beside all_reduce",
           "ratio", "until both are over");
    for (int loop = 0; loop < NLOOPS; loop++) {
        const struct loss loss = worst_loss(ranks, (enum loop)loop, nrounds);

        missed += loss.ratio > most_ratio;
        printf("%-10s %8.2f %13.2f %17.2f %10.2f %15.2f %8.2f%s\n", names[loop], loss.looped[ALONE],
               loss.looped[COPIES], loss.looped[ALL_REDUCE], loss.ratio, loss.over[COPIES],
               loss.over[ALL_REDUCE], loss.ratio > most_ratio ? "  MISSED" : "");
    }
    printf("at most %.2f of what copies of its bytes cost: %s\n", most_ratio,
           missed ? "missed" : "met");
    return missed;
}

int main(int argc, char **argv)
{
    static struct rank ranks[NRANKS];
    const int nrounds = argc > 1 ? atoi(argv[1]) : 21;
    pthread_t threads[NRANKS];
    kolo_store *store;

    if (nrounds < 1 || nrounds > MOST_ROUNDS)
        return 1;
    check(kolo_store_open_local(&store));
    for (int i = 0; i < NRANKS; i++) {
        ranks[i].store = store;
        ranks[i].number = i;
        ranks[i].nrounds = nrounds;
        if (pthread_create(&threads[i], NULL, be_rank, &ranks[i]))
            return 1;
    }
    for (int i = 0; i < NRANKS; i++)
        pthread_join(threads[i], NULL);
    kolo_store_close(store);
    return print(ranks, nrounds) > 0;
}
