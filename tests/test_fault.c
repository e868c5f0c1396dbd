/* SPDX-License-Identifier: MIT
 *
 * Every step that the system can let fail is made to fail once, at each of its passages: joining,
 * opening links, one all_reduce and one message, on ranks that are threads. Whatever happens, each
 * rank ends with success or with an error that has a sentence, and nothing is left allocated
 * (which the sanitizers see). Then what one of them is to say.
 */
#include "fault.h"
#include "ranks.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, SHORT_MS = 250, LONG_MS = 60000, MOST_PASSAGES = 400, COUNT = 5000, QUIET = 8 };

struct rank {
    kolo_store *store;
    int rank, timeout_ms;
    bool is_silent; /* failed without a sentence */
    bool is_wrong;  /* succeeded with a wrong result */
    int status;
};

static int reduce(kolo_group *group, struct rank *self)
{
    float *values = malloc(COUNT * sizeof *values);
    int err;

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i + self->rank);
    err = kolo_all_reduce(group, values, values, COUNT, KOLO_FLOAT32, KOLO_SUM);
    for (int i = 0; i < COUNT && !err; i++)
        self->is_wrong |= values[i] != (float)(3 * i + 3);
    free(values);
    return err;
}

static int message(kolo_group *group, struct rank *self)
{
    int next = (self->rank + 1) % RANKS, last = (self->rank + RANKS - 1) % RANKS;
    int out = self->rank, in = -1;
    kolo_work *work = NULL;
    int err = kolo_isend(group, &out, 1, KOLO_INT32, next, 1, &work);
    int status;

    if (err)
        return err;
    err = kolo_recv(group, &in, 1, KOLO_INT32, last, 1);
    self->is_wrong |= !err && in != last;
    status = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err ? err : status;
}

static int background(kolo_group *group, struct rank *self)
{
    int one = 1, sum = 0;
    kolo_work *work;
    int err = kolo_all_reduce_async(group, &one, &sum, 1, KOLO_INT32, KOLO_SUM, &work);

    if (err)
        return err;
    err = kolo_work_wait(work, -1);
    self->is_wrong |= !err && sum != RANKS;
    kolo_work_free(work);
    return err;
}

static void *rank_main(void *argument)
{
    struct rank *self = argument;
    kolo_group *group = NULL;
    int err = kolo_group_join_store(self->store, self->rank, RANKS, self->timeout_ms, &group);

    if (!err)
        err = reduce(group, self);
    if (!err)
        err = message(group, self);
    if (!err)
        err = background(group, self);
    self->status = err;
    self->is_silent = err && !*kolo_last_error();
    kolo_group_free(group);
    return NULL;
}

/* Returns the number of ranks that failed. */
static int run_once(kolo_store *store, int timeout_ms)
{
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    int failed = 0;

    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.store = store, .rank = r, .timeout_ms = timeout_ms};
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
            abort();
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        failed += ranks[r].status != KOLO_OK;
        assert_false(ranks[r].is_silent);
        assert_false(ranks[r].is_wrong);
    }
    return failed;
}

static int passes(enum ko_fault_point point, int nth)
{
    kolo_store *store;
    int nfds = ranks_count_entries("/proc/self/fd");
    int failed;

    assert_int_equal(kolo_store_open_local(&store), KOLO_OK);
    ko_fault_arm(point, nth);
    failed = run_once(store, nth ? SHORT_MS : LONG_MS);
    ko_fault_arm(point, 0);
    kolo_store_close(store);
    assert_int_equal(ranks_count_entries("/proc/self/fd"), nfds);
    return failed;
}

/* nth = 1, 2, ... until the work passes the point no more often: nobody fails any longer. The
 * number of passages varies, and some failures are overcome: a few quiet ones end the sweep. */
static void sweep(enum ko_fault_point point)
{
    int failures = 0, quiet = 0, nth = 1;

    for (; nth <= MOST_PASSAGES && quiet < QUIET; nth += 1 + nth / 12) {
        int failed = passes(point, nth);

        failures += failed > 0;
        quiet = failed ? 0 : quiet + 1;
    }
    print_message("# up to passage %d: %d runs failed\n", nth, failures);
    if (point != KO_FAULT_THREAD)
        assert_true(failures > 0);
    assert_int_equal(passes(point, 0), 0); /* and none, unarmed */
}

static void over(const char *transport, enum ko_fault_point point)
{
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_DEBUG", "NONE", 1);
    sweep(point);
    unsetenv("KOLO_TRANSPORT");
}

/* Rank 1 has no memory to choose an algorithm with: it is not to take another than the others. */
static int choose_without_memory(kolo_group *group, void *argument)
{
    const int one = 1;
    int sum, err;

    (void)argument;
    err = kolo_barrier(group); /* in which others may be still as rank 1 fails */
    if (!err && kolo_group_rank(group) == 1)
        ko_fault_arm(KO_FAULT_ALLOC, 1);
    if (!err)
        err = kolo_all_reduce(group, &one, &sum, 1, KOLO_INT32, KOLO_SUM);
    ko_fault_arm(KO_FAULT_ALLOC, 0);
    return ranks_expect(err, KOLO_E_NOMEM, "rank 1: ");
}

static void who_cannot_choose_says_so(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = RANKS},
                               choose_without_memory, NULL),
                     0);
    unsetenv("KOLO_TRANSPORT");
}

#define SWEEPS(X)   \
    X(shm, ALLOC)   \
    X(shm, SEGMENT) \
    X(shm, SOCKET)  \
    X(shm, SEND)    \
    X(shm, RECV)    \
    X(shm, THREAD)  \
    X(tcp, ALLOC)   \
    X(tcp, SOCKET)  \
    X(tcp, SEND)    \
    X(tcp, RECV)

#define SWEEP(transport, point)                   \
    static void transport##_##point(void **state) \
    {                                             \
        (void)state;                              \
        over(#transport, KO_FAULT_##point);       \
    }
SWEEPS(SWEEP)

#define ROW(transport, point) cmocka_unit_test(transport##_##point),

int main(void)
{
    const struct CMUnitTest tests[] = {SWEEPS(ROW) cmocka_unit_test(who_cannot_choose_says_so)};

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
