/* SPDX-License-Identifier: MIT
 *
 * Memory that peers read without a copy: the list of it, and that every collective and message out
 * of it and into it is what it is with any other memory: among threads and processes, through
 * forks, and past segments' and peers' ends.
 */
#include "algorithms.h"
#include "exam.h"
#include "fault.h"
#include "group.h"
#include "memory.h"
#include "ranks.h"
#include "reduce.h"
#include "sanitized.h"
#include "window.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLICE_BYTES = 8192 };

/* ---- the list ------------------------------------------------------------------------------- */

static bool is_found(const void *from, size_t nbytes)
{
    struct ko_segment *segment = ko_memory_find(from, nbytes);

    ko_segment_release(segment);
    return segment;
}

static void *alloc(size_t nbytes)
{
    void *memory;

    if (kolo_mem_alloc(nbytes, &memory))
        abort();
    return memory;
}

static void found_by_any_address(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 1 << 20};
    int local = 0;

    (void)state;
    assert_false(is_found(&local, 1));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t whole = sizes[i] ? (sizes[i] + 4095) / 4096 * 4096 : 4096;
        unsigned char *bytes = alloc(sizes[i]);

        assert_int_equal((uintptr_t)bytes % 4096, 0);
        for (size_t j = 0; j < whole; j++)
            assert_int_equal(bytes[j], 0);
        memset(bytes, 1, whole);
        assert_true(is_found(bytes, whole));
        assert_true(is_found(bytes + whole - 1, 1));
        assert_false(is_found(bytes, whole + 1));
        assert_false(is_found(bytes + 1, whole));
        assert_false(is_found(bytes + whole - 1, SIZE_MAX));
        assert_false(is_found(bytes - 1, 1));
        assert_false(is_found(&local, 1));
        assert_int_equal(kolo_mem_free(bytes), KOLO_OK);
        assert_false(is_found(bytes, 1));
    }
}

static void many_at_a_time(void **state)
{
    enum { MANY = 100 };
    unsigned char *all[MANY];

    (void)state;
    for (size_t i = 0; i < MANY; i++)
        all[i] = alloc(i * 500);
    for (size_t i = 0; i < MANY; i += 3)
        assert_int_equal(kolo_mem_free(all[i]), KOLO_OK);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(is_found(all[i] + i * 5, 1), i % 3 != 0);
    for (size_t i = 0; i < MANY; i++)
        if (i % 3)
            assert_int_equal(kolo_mem_free(all[i]), KOLO_OK);
}

static void wrong_arguments(void **state)
{
    unsigned char *bytes = alloc(10000);
    void *memory = &memory;

    (void)state;
    assert_int_equal(kolo_mem_alloc(1, NULL), KOLO_E_INVALID);
    assert_int_equal(kolo_mem_alloc(SIZE_MAX, &memory), KOLO_E_NOMEM);
    assert_int_not_equal(kolo_mem_alloc(SIZE_MAX / 2, &memory), KOLO_OK);
    ko_fault_arm(KO_FAULT_SEGMENT, 1);
    assert_int_not_equal(kolo_mem_alloc(1, &memory), KOLO_OK);
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    assert_int_equal(kolo_mem_alloc(1, &memory), KOLO_E_NOMEM);
    assert_ptr_equal(memory, &memory); /* set on success only */
    assert_int_equal(kolo_mem_free(NULL), KOLO_OK);
    assert_int_equal(kolo_mem_free(&memory), KOLO_E_INVALID);
    assert_int_equal(kolo_mem_free(bytes + 4096), KOLO_E_INVALID);
    assert_int_equal(kolo_mem_free(bytes), KOLO_OK);
    assert_int_equal(kolo_mem_free(bytes), KOLO_E_INVALID);
}

/* Whoever holds a segment can go on reading; its pages have gone. */
static void held_beyond_its_end(void **state)
{
    unsigned char *bytes = alloc(8192);
    struct ko_segment *segment = ko_memory_find(bytes, 8192);

    (void)state;
    bytes[5000] = 1;
    assert_int_equal(kolo_mem_free(bytes), KOLO_OK);
    assert_true(segment->is_freed);
    assert_int_equal(bytes[5000], 0);
    ko_segment_release(segment);
}

/* 0, or the number of the first step that was wrong. */
static int live_as_child(unsigned char *bytes)
{
    unsigned char *own;

    if (bytes[100] != 1 || is_found(bytes, 1))
        return 1;
    bytes[100] = 2; /* both see it */
    own = alloc(5000);
    if (!is_found(own, 5000) || kolo_mem_free(own) || is_found(own, 1))
        return 2;
    return kolo_mem_free(bytes) || !kolo_mem_free(bytes) ? 3 : 0;
}

static void shared_with_a_child(void **state)
{
    unsigned char *bytes = alloc(8192);
    int status;
    pid_t pid;

    (void)state;
    bytes[100] = 1;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(live_as_child(bytes));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(bytes[100], 2); /* the child's end of it took nothing from us */
    assert_true(is_found(bytes, 8192));
    assert_int_equal(kolo_mem_free(bytes), KOLO_OK);
}

/* Waits for the parent to have freed it. */
static int outlive_the_parents(const unsigned char *bytes, int has_freed)
{
    char word;

    if (read(has_freed, &word, 1) != 1)
        return 1;
    return bytes[100] == 7 && bytes[8191] == 8 ? 0 : 2;
}

static void freed_by_the_parent(void **state)
{
    unsigned char *bytes = alloc(8192);
    int fds[2], status;
    pid_t pid;

    (void)state;
    bytes[100] = 7;
    bytes[8191] = 8;
    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(outlive_the_parents(bytes, fds[0]));
    assert_int_equal(kolo_mem_free(bytes), KOLO_OK);
    assert_int_equal(write(fds[1], "", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fds[0]);
    close(fds[1]);
}

/* ---- collectives ---------------------------------------------------------------------------- */

/* Each exam has new memory, and frees it at its end. */
static int take_shared(kolo_group *group, enum ko_collective what, const size_t *counts,
                       unsigned nways)
{
    const int n = kolo_group_size(group);
    int failed = 0;

    for (unsigned i = 0; counts[i] && !failed; i++)
        for (unsigned how = 0; how < nways && !failed; how++) {
            /* Some ranks have ordinary memory while others do not. */
            const bool is_odd_one = how & 8 && (unsigned)kolo_group_rank(group) == i % (unsigned)n;
            const struct exam exam = {.what = what,
                                      .dtype = how & 2 ? KOLO_INT8 : KOLO_FLOAT32,
                                      .count = counts[i],
                                      .root = exam_has_root(what) ? (int)(i + how) % n : 0,
                                      .is_in_place = how & 1,
                                      .is_async = how % 5 == 3,
                                      .is_uneven = how & 4 && exam_can_be_uneven(what),
                                      .shift = how & 2 ? 3 : 0,
                                      .has_shared_in = how % 7 != 6 && !is_odd_one,
                                      .has_shared_out = how % 7 != 5 && !is_odd_one};

            failed = exam_take(group, &exam);
        }
    return failed;
}

static int take_all_shared(kolo_group *group, void *argument)
{
    static const size_t counts[] = {1, 1023, 2048, 2049, 7001, 20011, 0};
    int failed = 0;

    (void)argument;
    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        failed = take_shared(group, (enum ko_collective)what, counts, 16);
    return failed;
}

static void run(enum ranks_kind kind, int n, ranks_body body, void *argument)
{
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, argument), 0);
}

static void run_all_ways(ranks_body body)
{
    static const char *const transports[] = {"shm", "tcp"};

    for (int i = 0; i < 2; i++)
        for (int n = IS_SANITIZED ? 4 : 2; n <= 4; n++) {
            exam_set_variables(transports[i], "", SLICE_BYTES);
            run(RANKS_THREADS, n, body, NULL);
            if (!HAS_TSAN)
                run(RANKS_PROCESSES, n, body, NULL);
        }
}

static void all_collectives(void **state)
{
    (void)state;
    run_all_ways(take_all_shared);
}

static int take_algorithm(kolo_group *group, void *argument)
{
    static const size_t counts[] = {3001, 9000, 0};
    const struct ko_algorithm *algorithm = argument;

    return take_shared(group, algorithm->what, counts, 3);
}

static void all_algorithms(void **state)
{
    (void)state;
    for (int i = 0; i < ko_nalgorithms; i++) {
        struct ko_algorithm algorithm = ko_algorithms[i];

        exam_set_variables("shm", algorithm.name, SLICE_BYTES);
        run(RANKS_THREADS, 4, take_algorithm, &algorithm);
        if (!HAS_TSAN)
            run(RANKS_PROCESSES, 3, take_algorithm, &algorithm);
    }
}

/* ---- results that others write -------------------------------------------------------------- */

/* How the last slice came from that rank. */
static uint32_t last_kind(const kolo_group *group, int rank)
{
    return group->collectives.ports[rank].link->frame.kind;
}

/* Where all share both buffers, each rank writes its sum to all others itself. */
static int write_to_all(kolo_group *group, void *argument)
{
    enum { COUNT = 4 * 1024, CALLS = 5 };
    const int n = kolo_group_size(group), rank = kolo_group_rank(group);
    float *in = (void *)alloc((size_t)n * COUNT * sizeof *in),
          *out = (void *)alloc((size_t)n * COUNT * sizeof *out);
    float *ordinary = calloc((size_t)n * COUNT, sizeof *ordinary);
    int failed = 0;

    (void)argument;
    for (int call = 0; call < CALLS && !failed; call++) {
        const bool is_shared = call != CALLS - 1 || rank != 0;
        float *result = is_shared ? out : ordinary;

        for (size_t i = 0; i < (size_t)n * COUNT; i++)
            in[i] = (float)(rank + call);
        failed = kolo_all_reduce(group, in, result, (size_t)n * COUNT, KOLO_FLOAT32, KOLO_SUM);
        for (size_t i = 0; i < (size_t)n * COUNT && !failed; i++)
            failed = result[i] != (float)(n * call + n * (n - 1) / 2);
        for (int r = 0; r < n && call >= CALLS - 2 && !failed; r++)
            failed = r != rank && (last_kind(group, r) == KO_FRAME_PLACED) != is_shared;
    }
    free(ordinary);
    return failed || kolo_barrier(group) || kolo_mem_free(in) || kolo_mem_free(out)
               ? ranks_fail("rank %d", rank)
               : 0;
}

static void written_by_others(void **state)
{
    (void)state;
    exam_set_variables("shm", "two_shot", SLICE_BYTES);
    for (int n = 2; n <= 4; n++) {
        run(RANKS_THREADS, n, write_to_all, NULL);
        run(RANKS_PROCESSES, n, write_to_all, NULL);
    }
}

/* More than are reduced at once. */
static void written_by_many(void **state)
{
    (void)state;
    exam_set_variables("shm", "two_shot", 4 * (KO_INLINE + 1));
    run(RANKS_THREADS, IS_SANITIZED ? 5 : KO_MOST_STREAMED + 1, write_to_all, NULL);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void fill(unsigned char *bytes, size_t nbytes, unsigned id)
{
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = (unsigned char)(i * 7 + id * 31 + (i >> 8));
}

static bool is_filled(const unsigned char *bytes, size_t nbytes, unsigned id)
{
    for (size_t i = 0; i < nbytes; i++)
        if (bytes[i] != (unsigned char)(i * 7 + id * 31 + (i >> 8)))
            return false;
    return true;
}

enum { MESSAGES = 300, MESSAGE_BYTES = 6000 };

/* More segments than a peer can be told of, all at once; then again, after all were freed. */
static int send_segments(kolo_group *group, unsigned round)
{
    kolo_work *works[MESSAGES];
    unsigned char *all[MESSAGES];
    int failed = 0;

    for (unsigned i = 0; i < MESSAGES; i++) {
        all[i] = alloc(MESSAGE_BYTES + i);
        fill(all[i] + i % 9, MESSAGE_BYTES, i + round);
        if (kolo_isend(group, all[i] + i % 9, MESSAGE_BYTES, KOLO_UINT8, 1, (int)i % 2, &works[i]))
            abort();
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (kolo_work_wait(works[i], -1) && !failed)
            failed = ranks_fail("isend %u", i);
        kolo_work_free(works[i]);
        memset(all[i], 0, MESSAGE_BYTES); /* it has been taken */
        if (kolo_mem_free(all[i]))
            failed = ranks_fail("free %u", i);
    }
    return failed;
}

static int receive_segments(kolo_group *group, unsigned round)
{
    static const unsigned orders[] = {0, 1};
    unsigned char *bytes = alloc(MESSAGE_BYTES + 1000);
    int failed = 0;

    /* One tag after the other: those of the second wait in memory of the library's. */
    for (unsigned tag = 0; tag < 2; tag++)
        for (unsigned i = orders[tag]; i < MESSAGES && !failed; i += 2) {
            if (kolo_recv(group, bytes + i, MESSAGE_BYTES, KOLO_UINT8, 0, (int)tag))
                failed = ranks_fail("recv %u", i);
            else if (!is_filled(bytes + i, MESSAGE_BYTES, i + round))
                failed = ranks_fail("message %u of round %u came wrong", i, round);
        }
    return kolo_mem_free(bytes) ? ranks_fail("free") : failed;
}

static int exchange_segments(kolo_group *group, void *argument)
{
    int failed = 0;

    (void)argument;
    for (unsigned round = 0; round < 3 && !failed; round++) {
        if (kolo_group_rank(group) == 0)
            failed = send_segments(group, round);
        else if (kolo_group_rank(group) == 1)
            failed = receive_segments(group, round);
        if (kolo_barrier(group))
            failed = ranks_fail("barrier");
    }
    return failed;
}

static void many_segments(void **state)
{
    (void)state;
    run_all_ways(exchange_segments);
}

/* A short message out of any memory is done though the long one behind it waits for its receiver;
 * one too long for the receive is dropped, and leaves the memory to its owner as well. */
static int send_around_long(kolo_group *group, void *argument)
{
    const int rank = kolo_group_rank(group);
    unsigned char *bytes = alloc(5 * SLICE_BYTES);
    kolo_work *works[2];
    int failed = 0, err = 0, status;

    (void)argument;
    fill(bytes, 5 * SLICE_BYTES, 1);
    if (rank == 0) {
        err = kolo_send(group, bytes, SLICE_BYTES, KOLO_UINT8, 1, 0);
        err |= kolo_isend(group, bytes, 100, KOLO_UINT8, 1, 1, &works[0]);
        err |= kolo_isend(group, bytes, 5 * SLICE_BYTES, KOLO_UINT8, 1, 2, &works[1]);
        err |= kolo_work_wait(works[0], -1);
        err |= kolo_send(group, bytes, 1, KOLO_UINT8, 1, 3);
        status = kolo_work_wait(works[1], -1); /* refused, if word of that came before the end */
        err |= status == KOLO_E_TRUNCATED ? KOLO_OK : status;
        kolo_work_free(works[0]);
        kolo_work_free(works[1]);
    } else {
        err = kolo_recv(group, bytes + 1, SLICE_BYTES, KOLO_UINT8, 0, 0);
        err |= !is_filled(bytes + 1, SLICE_BYTES, 1);
        err |= kolo_recv(group, bytes, 100, KOLO_UINT8, 0, 1);
        if (kolo_recv(group, bytes, 4 * SLICE_BYTES, KOLO_UINT8, 0, 2) != KOLO_E_TRUNCATED)
            failed = ranks_fail("rank %d: a long message was not cut", rank);
        err |= kolo_recv(group, bytes, 1, KOLO_UINT8, 0, 3);
    }
    if (err)
        failed = ranks_fail("rank %d: %d", rank, err);
    return kolo_mem_free(bytes) ? ranks_fail("free") : failed;
}

static void long_and_short(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_THREADS, 2, send_around_long, NULL);
    run(RANKS_PROCESSES, 2, send_around_long, NULL);
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* A child made in the middle, which uses and frees what it inherits, changes nothing. */
static int fork_between_calls(kolo_group *group, void *argument)
{
    enum { COUNT = 10000 };
    float *mine = alloc(COUNT * sizeof *mine);
    int failed = 0, status;

    (void)argument;
    for (int turn = 0; turn < 3 && !failed; turn++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(is_found(mine, 1) || kolo_mem_free(mine) || kolo_mem_free(alloc(100)));
        for (int i = 0; i < COUNT; i++)
            mine[i] = (float)i;
        if (kolo_all_reduce(group, mine, mine, COUNT, KOLO_FLOAT32, KOLO_SUM))
            failed = ranks_fail("turn %d", turn);
        for (int i = 0; i < COUNT && !failed; i++)
            if (mine[i] != (float)i * (float)kolo_group_size(group))
                failed = ranks_fail("turn %d: element %d is %g", turn, i, (double)mine[i]);
        if (waitpid(pid, &status, 0) != pid || status)
            failed = ranks_fail("the child ended with %#x", (unsigned)status);
    }
    return kolo_mem_free(mine) ? ranks_fail("free") : failed;
}

static void forks(void **state)
{
    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    run(RANKS_PROCESSES, 3, fork_between_calls, NULL);
}

/* Rank 1 dies with slices under way that lie in its memory: who has them can read them, and then is
 * told. */
static int lose_a_lender(kolo_group *group, void *argument)
{
    enum { COUNT = 100000 };
    const int rank = kolo_group_rank(group);
    float *mine = alloc(COUNT * sizeof *mine);
    kolo_work *work;
    int err = KOLO_OK, failed = 0;

    (void)argument;
    if (kolo_barrier(group))
        return ranks_fail("rank %d cannot begin", rank);
    if (rank == 1) {
        if (kolo_send(group, mine, 4096, KOLO_UINT8, 0, 5))
            return ranks_fail("rank 1 cannot send");
        if (!kolo_isend(group, mine, COUNT, KOLO_FLOAT32, 0, 6, &work))
            raise(SIGKILL);
    }
    if (rank == 0 && kolo_recv(group, mine, 4096, KOLO_UINT8, 1, 5))
        failed = ranks_fail("rank 0 did not receive");
    for (int i = 0; i < 1000 && !err; i++)
        err = kolo_all_reduce(group, mine, mine, COUNT, KOLO_FLOAT32, KOLO_SUM);
    if (err != KOLO_E_PEER_LOST || !strstr(kolo_last_error(), "rank 1"))
        failed = ranks_fail("rank %d: %s", rank, kolo_status_name(err));
    return kolo_mem_free(mine) ? ranks_fail("free") : failed;
}

/* The same at any moment of a call. */
static int lose_a_lender_midway(kolo_group *group, void *argument)
{
    enum { COUNT = 300000 };
    const int rank = kolo_group_rank(group);
    float *mine = alloc(COUNT * sizeof *mine);
    int err = KOLO_OK, failed = 0;

    (void)argument;
    for (int i = 0; i < 3 && !err; i++) /* all links are open before */
        err = kolo_all_reduce(group, mine, mine, COUNT, KOLO_FLOAT32, KOLO_SUM);
    if (err)
        return ranks_fail("rank %d cannot begin", rank);
    if (rank == 1) {
        const pid_t victim = getpid();

        if (fork() == 0) {
            usleep((useconds_t)(victim % 7) * 700);
            kill(victim, SIGKILL);
            _exit(0);
        }
    }
    while (!err)
        err = kolo_all_reduce(group, mine, mine, COUNT, KOLO_FLOAT32, KOLO_SUM);
    if (err != KOLO_E_PEER_LOST || !strstr(kolo_last_error(), "rank 1"))
        failed = ranks_fail("rank %d: %s", rank, kolo_status_name(err));
    return kolo_mem_free(mine) ? ranks_fail("free") : failed;
}

static void killed_lenders(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .tolerated = 1};

    (void)state;
    exam_set_variables("shm", "", SLICE_BYTES);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ranks_run(&ranks, lose_a_lender, NULL), 0);
        assert_int_equal(ranks_run(&ranks, lose_a_lender_midway, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(found_by_any_address),
                                       cmocka_unit_test(many_at_a_time),
                                       cmocka_unit_test(wrong_arguments),
                                       cmocka_unit_test(held_beyond_its_end),
                                       cmocka_unit_test(shared_with_a_child),
                                       cmocka_unit_test(freed_by_the_parent),
                                       cmocka_unit_test(all_collectives),
                                       cmocka_unit_test(all_algorithms),
                                       cmocka_unit_test(written_by_others),
                                       cmocka_unit_test(written_by_many),
                                       cmocka_unit_test(many_segments),
                                       cmocka_unit_test(long_and_short),
                                       cmocka_unit_test(forks),
                                       cmocka_unit_test(killed_lenders)};

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
