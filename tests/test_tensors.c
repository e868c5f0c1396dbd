/* SPDX-License-Identifier: MIT
 *
 * Collectives of several tensors: short ones that are packed, long ones that are not, none at all.
 */
#include "kolo.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NTENSORS = 12, ROOT = 0, STALE = -1 };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, NKINDS };

static const size_t counts[NTENSORS] = {3, 0, 1, 5000, 60000, 7, 20000, 13000, 33, 0, 0, 101};

/* Element i of tensor t of the rank's input. */
static int32_t element(int rank, size_t t, size_t i)
{
    return (int32_t)(i * 3 + t * 1009) * (rank + 1) + rank;
}

static int32_t sum(int n, size_t t, size_t i)
{
    int32_t total = 0;

    for (int rank = 0; rank < n; rank++)
        total += element(rank, t, i);
    return total;
}

/* What element i of the rank's output t should be. */
static int32_t expected(int kind, int n, int rank, size_t t, size_t i)
{
    switch (kind) {
    case ALL_REDUCE:
        return sum(n, t, i);
    case REDUCE:
        return rank == ROOT ? sum(n, t, i) : STALE;
    case BROADCAST:
        return element(ROOT, t, i);
    case ALL_GATHER:
        return element((int)(i / counts[t]), t, i % counts[t]);
    default:
        return sum(n, t, (size_t)rank * counts[t] + i);
    }
}

static int call(int kind, kolo_group *g, const kolo_tensor *tensors, kolo_work **w)
{
    switch (kind) {
    case ALL_REDUCE:
        return w ? kolo_all_reduce_coalesced_async(g, tensors, NTENSORS, KOLO_INT32, KOLO_SUM, w)
                 : kolo_all_reduce_coalesced(g, tensors, NTENSORS, KOLO_INT32, KOLO_SUM);
    case REDUCE:
        return w ? kolo_reduce_coalesced_async(g, tensors, NTENSORS, KOLO_INT32, KOLO_SUM, ROOT, w)
                 : kolo_reduce_coalesced(g, tensors, NTENSORS, KOLO_INT32, KOLO_SUM, ROOT);
    case BROADCAST:
        return w ? kolo_broadcast_coalesced_async(g, tensors, NTENSORS, KOLO_INT32, ROOT, w)
                 : kolo_broadcast_coalesced(g, tensors, NTENSORS, KOLO_INT32, ROOT);
    case ALL_GATHER:
        return w ? kolo_all_gather_coalesced_async(g, tensors, NTENSORS, KOLO_INT32, w)
                 : kolo_all_gather_coalesced(g, tensors, NTENSORS, KOLO_INT32);
    default:
        return w ? kolo_reduce_scatter_coalesced_async(g, tensors, NTENSORS, KOLO_INT32, KOLO_SUM,
                                                       w)
                 : kolo_reduce_scatter_coalesced(g, tensors, NTENSORS, KOLO_INT32, KOLO_SUM);
    }
}

static int run_call(int kind, kolo_group *group, const kolo_tensor *tensors, bool is_async)
{
    kolo_tensor gone[NTENSORS];
    kolo_work *work;
    int err;

    if (!is_async)
        return call(kind, group, tensors, NULL);
    memcpy(gone, tensors, sizeof gone);
    err = call(kind, group, gone, &work);
    memset(gone, 0, sizeof gone);
    if (err)
        return err;
    err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

/* One buffer for both where that is allowed. */
static kolo_tensor make(int kind, int n, int rank, size_t t, bool is_in_place)
{
    const size_t count = counts[t], all = (size_t)n * count, own = (size_t)rank * count;
    const size_t ins = kind == REDUCE_SCATTER ? all : count;
    int32_t *in = calloc(all + 1, sizeof *in), *out = calloc(all + 1, sizeof *out);

    if (!in || !out)
        abort();
    for (size_t i = 0; i < all; i++)
        out[i] = STALE;
    if (is_in_place || kind == BROADCAST) {
        free(in);
        in = kind == ALL_GATHER ? out + own : out;
    }
    for (size_t i = 0; i < ins && (kind != BROADCAST || rank == ROOT); i++)
        in[i] = element(rank, t, i);
    if (is_in_place && kind == REDUCE_SCATTER)
        out += own;
    return (kolo_tensor){kind == BROADCAST ? NULL : in, out, count}; /* which looks at out only */
}

static void drop(int kind, int rank, const kolo_tensor *tensor, bool is_in_place)
{
    int32_t *in = (int32_t *)(uintptr_t)tensor->in, *out = tensor->out;

    if (!is_in_place && kind != BROADCAST)
        free(in);
    free(is_in_place && kind == REDUCE_SCATTER ? out - (size_t)rank * tensor->count : out);
}

static int check(int kind, int n, int rank, size_t t, const int32_t *out, bool is_in_place)
{
    const size_t outs = kind == ALL_GATHER ? (size_t)n * counts[t] : counts[t];

    if (is_in_place && kind == REDUCE && rank != ROOT)
        return 0; /* its input lies there */
    for (size_t i = 0; i < outs; i++)
        if (out[i] != expected(kind, n, rank, t, i))
            return ranks_fail("rank %d of %d, kind %d: element %zu of tensor %zu is %d", rank, n,
                              kind, i, t, out[i]);
    return 0;
}

static int take(kolo_group *group, int kind, bool is_in_place, bool is_async)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_tensor tensors[NTENSORS];
    int failed = 0;

    for (size_t t = 0; t < NTENSORS; t++)
        tensors[t] = make(kind, n, rank, t, is_in_place);
    if (run_call(kind, group, tensors, is_async))
        failed = ranks_fail("kind %d", kind);
    for (size_t t = 0; t < NTENSORS && !failed; t++)
        failed = check(kind, n, rank, t, tensors[t].out, is_in_place);
    for (size_t t = 0; t < NTENSORS; t++)
        drop(kind, rank, &tensors[t], is_in_place);
    return failed;
}

static int take_all(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int kind = 0; kind < NKINDS && !failed; kind++)
        for (unsigned how = 0; how < 4 && !failed; how++)
            failed = take(group, kind, how & 1, how & 2);
    return failed;
}

static void tensors_are_treated_as_by_calls_of_their_own(void **state)
{
    static const int sizes[] = {1, 2, 3, 5};

    (void)state;
    setenv("KOLO_DEBUG", "NONE", 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        setenv("KOLO_TRANSPORT", "shm", 1);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = sizes[i]}, take_all, NULL), 0);
        setenv("KOLO_TRANSPORT", "tcp", 1);
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = sizes[i]}, take_all, NULL), 0);
    }
}

static int expect(int err, const char *text)
{
    if (err != KOLO_E_INVALID || !strstr(kolo_last_error(), text))
        return ranks_fail("status %d instead of one with \"%s\"", err, text);
    return 0;
}

static int call_wrongly(kolo_group *group, void *argument)
{
    int32_t in[2] = {1, 2}, out[4];
    const kolo_tensor bad[] = {{in, out, 2}, {in, NULL, 2}};
    kolo_work *work;
    int failed = 0;

    (void)argument;
    failed |= expect(kolo_all_reduce_coalesced(group, bad, 2, KOLO_INT32, KOLO_SUM),
                     "all_reduce_coalesced: tensor 1: all_reduce: out is NULL, with 2 elements");
    failed |= expect(kolo_all_gather_coalesced(group, NULL, 2, KOLO_INT32),
                     "all_gather_coalesced: tensors is NULL");
    failed |= expect(kolo_broadcast_coalesced(group, bad, 1, KOLO_INT32, 7),
                     "broadcast_coalesced: the root is rank 7");
    failed |= expect(kolo_reduce_scatter_coalesced(NULL, bad, 1, KOLO_INT32, KOLO_SUM),
                     "reduce_scatter_coalesced: group is NULL");
    failed |= expect(kolo_all_reduce_coalesced_async(group, bad, 1, KOLO_INT32, KOLO_SUM, NULL),
                     "all_reduce_coalesced_async: work is NULL");
    if (kolo_all_reduce_coalesced(group, NULL, 0, KOLO_INT32, KOLO_SUM) ||
        kolo_all_reduce_coalesced_async(group, NULL, 0, KOLO_INT32, KOLO_SUM, &work) ||
        kolo_work_wait(work, -1))
        return ranks_fail("no tensors");
    kolo_work_free(work);
    return failed;
}

static void wrong_tensors_are_named(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, call_wrongly, NULL),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_treated_as_by_calls_of_their_own),
        cmocka_unit_test(wrong_tensors_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
