/* SPDX-License-Identifier: MIT
 *
 * Blobs of sizes that only their owner knows: every byte of each, none, many, and wrong ones.
 */
#include "fault.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Bytes of the blob from one rank to another in a round. */
static size_t size_of(int round, int from, int to)
{
    static const size_t sizes[] = {0, 1, 17, 4096, 131071, 300001, 0, 5};
    const unsigned pick = (unsigned)(round * 5 + from * 3 + to);

    return round == 0 ? 0 : sizes[pick % 8] + (size_t)from;
}

static unsigned char byte_of(int round, int from, size_t i)
{
    return (unsigned char)(round * 31 + from * 7 + (int)(i % 251) + (int)(i >> 12));
}

static kolo_bytes make(int round, int from, int to)
{
    const size_t nbytes = size_of(round, from, to);
    unsigned char *data = nbytes ? malloc(nbytes) : NULL;

    for (size_t i = 0; i < nbytes && data; i++)
        data[i] = byte_of(round, from, i);
    return (kolo_bytes){data, nbytes};
}

static void drop(kolo_bytes blob)
{
    free((void *)(uintptr_t)blob.data);
}

static int differs(kolo_bytes blob, int round, int from, int to)
{
    const unsigned char *data = blob.data;

    if (blob.nbytes != size_of(round, from, to))
        return ranks_fail("%zu bytes from rank %d", blob.nbytes, from);
    for (size_t i = 0; i < blob.nbytes; i++)
        if (data[i] != byte_of(round, from, i))
            return ranks_fail("byte %zu from rank %d", i, from);
    return 0;
}

static int gather(kolo_group *group, int round, int root)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_bytes mine = make(round, rank, 0), *all = NULL, *gathered = &mine;
    int failed = kolo_all_gather_bytes(group, mine, &all) ||
                 kolo_gather_bytes(group, mine, &gathered, root) ||
                 (gathered == NULL) != (rank != root);

    for (int r = 0; r < n && !failed; r++)
        failed = differs(all[r], round, r, 0) || (gathered && differs(gathered[r], round, r, 0));
    kolo_free(all);
    kolo_free(gathered);
    drop(mine);
    return failed ? ranks_fail("gather, round %d", round) : 0;
}

static int give(kolo_group *group, int round, int root)
{
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    kolo_bytes *blobs = calloc((size_t)n, sizeof *blobs), own, sent;
    void *common = NULL, *mine = NULL;
    int failed;

    for (int r = 0; r < n; r++)
        blobs[r] = make(round, rank, r);
    failed = kolo_broadcast_bytes(group, blobs[0], &common, &sent.nbytes, root) ||
             kolo_scatter_bytes(group, rank == root ? blobs : NULL, &mine, &own.nbytes, root);
    sent.data = common;
    own.data = mine;
    failed |= failed || differs(sent, round, root, 0) || differs(own, round, root, rank) ||
              ((char *)common)[sent.nbytes] || ((char *)mine)[own.nbytes];
    kolo_free(common);
    kolo_free(mine);
    for (int r = 0; r < n; r++)
        drop(blobs[r]);
    free(blobs);
    return failed ? ranks_fail("give, round %d", round) : 0;
}

static int many_rounds(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (int round = 0; round < 9 && !failed; round++)
        failed = gather(group, round, round % kolo_group_size(group)) ||
                 give(group, round, (round + 1) % kolo_group_size(group));
    return failed;
}

static void run(int n, ranks_body body)
{
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, body, NULL), 0);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, body, NULL), 0);
}

static void every_byte_arrives(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    setenv("KOLO_DEBUG", "NONE", 1);
    for (int i = 0; i < 2; i++) {
        setenv("KOLO_TRANSPORT", transports[i], 1);
        run(1, many_rounds);
        run(2, many_rounds);
        run(5, many_rounds);
    }
}

/* Wrong arguments are this rank's alone: nothing has been sent. */
static int wrong(kolo_group *group, void *argument)
{
    const int n = kolo_group_size(group), root = kolo_group_rank(group);
    const kolo_bytes null = {NULL, 3}, none = {NULL, 0};
    kolo_bytes blobs[3] = {none, null, none}, *all;
    size_t nbytes;
    void *out;
    int failed;

    (void)argument;
    failed = ranks_expect(kolo_all_gather_bytes(group, null, &all), KOLO_E_INVALID,
                          "a blob of 3 bytes is");
    failed |=
        ranks_expect(kolo_all_gather_bytes(group, none, NULL), KOLO_E_INVALID, "result is NULL");
    failed |=
        ranks_expect(kolo_all_gather_bytes(NULL, none, &all), KOLO_E_INVALID, "group is NULL");
    failed |=
        ranks_expect(kolo_gather_bytes(group, none, &all, n), KOLO_E_INVALID, "the root is rank 3");
    failed |= ranks_expect(kolo_broadcast_bytes(group, null, &out, &nbytes, root), KOLO_E_INVALID,
                           "of 3");
    failed |=
        ranks_expect(kolo_broadcast_bytes(group, none, &out, NULL, 0), KOLO_E_INVALID, "result is");
    failed |=
        ranks_expect(kolo_scatter_bytes(group, blobs, &out, &nbytes, root), KOLO_E_INVALID, "of 3");
    failed |=
        ranks_expect(kolo_scatter_bytes(group, NULL, &out, &nbytes, root), KOLO_E_INVALID, "in is");
    return failed | (kolo_barrier(group) != 0);
}

/* Rank 1 claims more than there is memory. */
static int claim_too_much(kolo_group *group, void *argument)
{
    const kolo_bytes blob = {"x", kolo_group_rank(group) == 1 ? SIZE_MAX : 1};
    const kolo_bytes large = {"x", SIZE_MAX};
    kolo_group *twin;
    kolo_bytes *all;
    size_t nbytes;
    void *out;
    int failed;

    (void)argument;
    if (kolo_group_duplicate(group, &twin))
        return ranks_fail("duplicate");
    failed = ranks_expect(kolo_all_gather_bytes(group, blob, &all), KOLO_E_NOMEM,
                          "rank 1's blob of 18446744073709551615 bytes, with those of the ranks "
                          "before it, is more than memory has");
    failed |= ranks_expect(kolo_broadcast_bytes(twin, large, &out, &nbytes, 0), KOLO_E_NOMEM,
                           "more than memory has");
    kolo_group_free(twin);
    return failed;
}

static void wrong_sizes_are_told(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    run(3, wrong);
    run(3, claim_too_much);
}

/* Rank 1 has no memory: for the sizes, or for what the others send. They hear of it. */
static int lack_memory(kolo_group *group, void *argument)
{
    const kolo_bytes blob = {"x", 1};
    kolo_bytes *all = NULL;
    int err;

    err = kolo_all_gather_bytes(group, blob, &all); /* with all that a first call allocates */
    if (!err) {
        kolo_free(all);
        if (kolo_group_rank(group) == 1)
            ko_fault_arm(KO_FAULT_ALLOC, *(int *)argument);
        err = kolo_all_gather_bytes(group, blob, &all);
        ko_fault_arm(KO_FAULT_ALLOC, 0);
    } /* else rank 1 was ahead */
    return ranks_expect(err, KOLO_E_NOMEM, "no memory");
}

static void a_lack_of_memory_is_told(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    for (int nth = 1; nth <= 2; nth++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 3}, lack_memory, &nth), 0);
}

/* Ranks that make different calls are told so, as in other collectives. */
static int make_different_calls(kolo_group *group, void *argument)
{
    const kolo_bytes blob = {"abc", 3};
    kolo_bytes *all;
    size_t nbytes;
    void *out;

    (void)argument;
    if (kolo_group_rank(group) == 0)
        return ranks_expect(kolo_all_gather_bytes(group, blob, &all), KOLO_E_MISMATCH,
                            "different calls");
    return ranks_expect(kolo_broadcast_bytes(group, blob, &out, &nbytes, 1), KOLO_E_MISMATCH,
                        "different calls");
}

static void different_calls_are_told(void **state)
{
    (void)state;
    run(2, make_different_calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_arrives),
        cmocka_unit_test(wrong_sizes_are_told),
        cmocka_unit_test(a_lack_of_memory_is_told),
        cmocka_unit_test(different_calls_are_told),
    };

    return cmocka_run_group_tests_name("coll_bytes", tests, NULL, NULL);
}
