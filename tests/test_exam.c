/* SPDX-License-Identifier: MIT
 *
 * What exams of collectives rely on: that calls of different seeds have different contents and
 * results, so that what is left of an earlier call is seen to be wrong; and that one wrong byte
 * anywhere is seen.
 */
#include "exam_values.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

enum { COUNT = 67, MANY = 5003, MOST_BUFFERS = 2 };

/* ---- contents -------------------------------------------------------------------------------- */

/* The buffers of the rank's first call, whose contents its second one has again. */
static _Thread_local struct {
    unsigned char *contents[MOST_BUFFERS];
    int n, next;
} kept;

static void *copy_of(const void *content, size_t nbytes)
{
    void *copy = malloc(nbytes);

    if (!copy)
        abort();
    return memcpy(copy, content, nbytes);
}

static void *keep(const void *content, size_t nbytes)
{
    kept.contents[kept.n++] = copy_of(content, nbytes);
    return copy_of(content, nbytes);
}

static void *give_again(const void *content, size_t nbytes)
{
    (void)content;
    return copy_of(kept.contents[kept.next++], nbytes);
}

static void fetch(void *content, void *memory, size_t nbytes)
{
    memcpy(content, memory, nbytes);
    free(memory);
}

static void forget(void)
{
    while (kept.n)
        free(kept.contents[--kept.n]);
    kept.next = 0;
}

static int take(kolo_group *group, struct exam exam)
{
    static const struct exam_memory first = {keep, fetch, NULL, NULL};
    static const struct exam_memory stale = {give_again, fetch, NULL, NULL};
    int failed;

    exam.count = COUNT;
    exam.seed = 1;
    exam.memory = &first;
    failed = exam_take(group, &exam);
    exam.seed = 2;
    exam.memory = &stale;
    if (!failed && !exam_take(group, &exam))
        failed =
            ranks_fail("%s of %s, %s: what is stale passes for new", ko_collective_name(exam.what),
                       kolo_dtype_name(exam.dtype), kolo_op_name(exam.op));
    forget();
    return failed;
}

/* One rank is enough, and says it once. */
static int take_two(kolo_group *group, void *unused)
{
    (void)unused;
    return take(group, (struct exam){.what = KO_ALL_REDUCE, .dtype = KOLO_INT32}) ||
           take(group, (struct exam){.what = KO_ALL_GATHER, .dtype = KOLO_FLOAT32});
}

static void what_is_stale_is_seen(void **state)
{
    (void)state;
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, take_two, NULL), 0);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Of all buffers of an exam, guards and gaps too: the byte that is spoilt, and how many there are.
 */
static _Thread_local struct {
    size_t at, n;
} spoilt;

static void fetch_spoilt(void *content, void *memory, size_t nbytes)
{
    fetch(content, memory, nbytes);
    if (spoilt.at >= spoilt.n && spoilt.at < spoilt.n + nbytes)
        ((unsigned char *)content)[spoilt.at - spoilt.n] ^= 1;
    spoilt.n += nbytes;
}

static int spoil_each_byte(kolo_group *group, struct exam exam)
{
    static const struct exam_memory spoiling = {copy_of, fetch_spoilt, NULL, NULL};
    bool is_found = true;

    exam.count = 3;
    exam.memory = &spoiling;
    for (spoilt.at = 0, spoilt.n = 1; is_found && spoilt.at < spoilt.n; spoilt.at++) {
        spoilt.n = 0;
        is_found = exam_take(group, &exam);
    }
    /* where the last byte has been, none is spoilt */
    spoilt.n = 0;
    return is_found && spoilt.at > 2 * 48 && !exam_take(group, &exam) ? 0 : (int)spoilt.at;
}

static int spoil_all(kolo_group *group, void *at_out)
{
    static const struct exam exams[] = {
        {.what = KO_ALL_REDUCE, .dtype = KOLO_INT32, .shift = 3},
        {.what = KO_REDUCE_SCATTER, .dtype = KOLO_FLOAT16, .is_in_place = true},
        {.what = KO_BROADCAST, .dtype = KOLO_UINT8},
        {.what = KO_ALL_TO_ALL, .dtype = KOLO_FLOAT64, .is_uneven = true},
    };
    int *at = at_out;

    for (size_t i = 0; i < sizeof exams / sizeof *exams && !*at; i++)
        *at = spoil_each_byte(group, exams[i]);
    return 0;
}

/* What the exams say of it, some hundred times, nobody wants to read. */
static void a_wrong_byte_is_seen(void **state)
{
    const int said = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int at = 0, failed;

    (void)state;
    assert_true(said >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    exam_set_variables("shm", "", 4096);
    failed = ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 1}, spoil_all, &at);
    dup2(said, STDERR_FILENO);
    close(said);
    close(nowhere);
    assert_int_equal(failed, 0);
    assert_int_equal(at, 0);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Whether some element comes to something else where all numbers are those of other elements, far
 * away. */
static bool are_different(kolo_dtype dtype, kolo_op op, int n)
{
    bool are = false;

    for (uint64_t i = 0; i < MANY; i++)
        are |= exam_reduced(dtype, op, i, n) != exam_reduced(dtype, op, (uint64_t)1 << 32 | i, n);
    return are;
}

static void each_type_and_op_has_other_results(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++)
            for (int op = 0; op < KOLO_NOPS; op++)
                if (exam_allows((kolo_dtype)dtype, (kolo_op)op) &&
                    !are_different((kolo_dtype)dtype, (kolo_op)op, n))
                    fail_msg("%s of %d %s", kolo_op_name((kolo_op)op), n,
                             kolo_dtype_name((kolo_dtype)dtype));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_stale_is_seen),
        cmocka_unit_test(a_wrong_byte_is_seen),
        cmocka_unit_test(each_type_and_op_has_other_results),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
