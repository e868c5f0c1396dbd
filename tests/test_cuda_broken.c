/* SPDX-License-Identifier: MIT
 *
 * Each function of the driver's that kolo uses fails on one rank, from some moment on: collectives,
 * messages and a graph then give what they should, by another way, or end soon with an error, which
 * on the other rank names this one. The list is that of the driver's functions (cuda_abi.h), so
 * that none is left out.
 */
#include "clock.h"
#include "exam.h"
#include "gpu_rank.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BROKEN = 1, /* the rank */
    COUNT = 1000,
    AREA = 4096, /* bytes, of each input and output; the first is the input */
    AREAS = 8,
    PIECE = 1 << 21,
    LIMIT_MS = 60000, /* which no call is to come to */
    LATE_MS = 80      /* so that who waits for a message asks its GPU meanwhile */
};

/* When the function begins to fail. */
enum moment { FROM_THE_FIRST, BETWEEN_CALLS, IN_A_CAPTURE };

struct breakage {
    const char *function;
    enum moment moment;
};

/* Of the calling rank. */
struct side {
    kolo_group *group;
    const struct breakage *breakage;
    char *memory, *pieces; /* AREAS each */
    bool is_broken, is_late;
};

static void break_now(struct side *side)
{
    char text[99];

    if (kolo_group_rank(side->group) != BROKEN)
        return;
    snprintf(text, sizeof text, "%s=719", side->breakage->function);
    setenv("FAKECUDA_BREAK", text, 1);
    side->is_broken = true;
}

static void come_to(struct side *side, enum moment moment)
{
    if (moment == side->breakage->moment)
        break_now(side);
}

/* For what is the user's own. */
static void mend(void)
{
    unsetenv("FAKECUDA_BREAK");
}

static int enter(kolo_group *group, const struct breakage *breakage, struct side *side)
{
    ko_cu_ptr memory, pieces;
    int numbers[COUNT];

    for (int i = 0; i < COUNT; i++)
        numbers[i] = kolo_group_rank(group) + 1;
    if (gpu_rank_enter(NULL) || gpu_rank.cuda->alloc(&memory, AREAS * AREA) ||
        gpu_rank.cuda->addresses_reserve(&pieces, PIECE, 0, 0, 0))
        return ranks_fail("no memory");
    gpu_rank_map(pieces, PIECE, 1, KO_CU_HANDLE_DESCRIPTOR);
    if (gpu_rank.cuda->copy(memory, (uintptr_t)numbers, sizeof numbers, gpu_rank.stream) ||
        gpu_rank.cuda->copy(pieces, (uintptr_t)numbers, sizeof numbers, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("no input");
    *side = (struct side){.group = group,
                          .breakage = breakage,
                          .memory = (char *)(uintptr_t)memory,
                          .pieces = (char *)(uintptr_t)pieces};
    return 0;
}

/* ---- what the user does ---------------------------------------------------------------------- */

/* A sum, and a message to the other rank, into two areas from out on. */
static int call(struct side *side, char *in, char *out)
{
    const int other = 1 - kolo_group_rank(side->group);
    int err = kolo_all_reduce(side->group, in, out, COUNT, KOLO_INT32, KOLO_SUM);

    if (side->is_late)
        ranks_nap_ms(LATE_MS);
    return err ? err
               : kolo_sendrecv(side->group, in, COUNT, other, out + AREA, COUNT, other, KOLO_INT32,
                               0);
}

static int call_both(struct side *side, int first)
{
    int err = call(side, side->memory, side->memory + (size_t)first * AREA);

    return err ? err : call(side, side->pieces, side->pieces + (size_t)first * AREA);
}

/* What the calls in it return; the graph is launched if that is nothing. */
static int launch(struct side *side, int first)
{
    ko_cu_graph_exec exec = NULL;
    int err, failed = gpu_rank_capture();

    if (failed)
        return failed;
    come_to(side, IN_A_CAPTURE);
    side->is_late =
        side->breakage->moment == IN_A_CAPTURE && kolo_group_rank(side->group) != BROKEN;
    err = call(side, side->memory, side->memory + (size_t)first * AREA);
    mend();
    failed = gpu_rank_captured(&exec);
    if (err && exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    if (err || failed)
        return err ? err : -1;
    failed = gpu_rank.cuda->graph_launch(exec, gpu_rank.stream);
    if (side->is_broken && strcmp(side->breakage->function, "cuStreamSynchronize") != 0)
        break_now(side);
    failed |= gpu_rank.cuda->stream_sync(gpu_rank.stream);
    mend();
    failed |= gpu_rank.cuda->graph_exec_destroy(exec);
    return failed ? -1 : kolo_group_error(side->group, NULL);
}

static int use(struct side *side)
{
    int err;

    come_to(side, FROM_THE_FIRST);
    err = kolo_group_set_stream(side->group, gpu_rank.stream);
    if (!err)
        err = call_both(side, 1);
    if (!err)
        come_to(side, BETWEEN_CALLS);
    if (!err)
        err = call_both(side, 3);
    mend();
    return err ? err : launch(side, 5);
}

/* ---- what comes of it ------------------------------------------------------------------------ */

static int check_area(const char *area, int number)
{
    int numbers[COUNT];

    if (gpu_rank.cuda->copy((uintptr_t)numbers, (uintptr_t)area, sizeof numbers, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("the memory cannot be read");
    for (int i = 0; i < COUNT; i++)
        if (numbers[i] != number)
            return ranks_fail("element %d is %d, not %d", i, numbers[i], number);
    return 0;
}

static int check_results(const struct side *side)
{
    const int sum = 3, message = 2 - kolo_group_rank(side->group);
    int failed = 0;

    for (int first = 1; first <= 5 && !failed; first += 2)
        failed = check_area(side->memory + (size_t)first * AREA, sum) ||
                 check_area(side->memory + (size_t)(first + 1) * AREA, message);
    for (int first = 1; first <= 3 && !failed; first += 2)
        failed = check_area(side->pieces + (size_t)first * AREA, sum) ||
                 check_area(side->pieces + (size_t)(first + 1) * AREA, message);
    return failed;
}

/* That of the function; or that the stack of contexts is full, from which nothing could be popped.
 */
static bool is_own_error(const char *text)
{
    return strstr(text, "(719)") || strstr(text, "(201)");
}

static bool is_right_error(const struct side *side, int err, const char *text)
{
    if (err == KOLO_E_UNSUPPORTED)
        return strstr(text, " cannot be captured for a graph: ");
    if (kolo_group_rank(side->group) == BROKEN)
        return is_own_error(text);
    return err != KOLO_E_TIMEOUT && strstr(text, "rank 1");
}

static int check_error(const struct side *side, int err, int64_t began_ns)
{
    const char *text = kolo_last_error(), *of_group = NULL;

    if (kolo_group_error(side->group, &of_group))
        text = of_group;
    if (!is_right_error(side, err, text))
        return ranks_fail("%s, %d, rank %d: %d, %s", side->breakage->function,
                          (int)side->breakage->moment, kolo_group_rank(side->group), err, text);
    return ranks_within(began_ns, RANKS_SOON_MS, side->breakage->function);
}

static int use_broken(kolo_group *group, void *argument)
{
    struct side side;
    int64_t began_ns;
    int err;

    if (enter(group, argument, &side))
        return 1;
    began_ns = ko_now_ns();
    err = use(&side);
    if (err < 0)
        return ranks_fail("what the user does himself");
    return err ? check_error(&side, err, began_ns) : check_results(&side);
}

static const char *const functions[] = {
#define NAME(member, name, version, parameters) #name,
    KO_CUDA_LIST(NAME) KO_CUDA_OPTIONAL_LIST(NAME)
#undef NAME
};

/* Every second function where the ranks share a GPU, the others where each has one; the next moment
 * the other way around. */
static void run(enum moment moment)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 2, .timeout_ms = LIMIT_MS};
    int nfailed = 0;

    exam_set_variables("shm", "", 4096);
    setenv("KOLO_DEBUG", "NONE", 1);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i += EXAM_STEP) {
        struct breakage breakage = {functions[i], moment};

        setenv("FAKECUDA_DEVICES", (i + (size_t)moment) % 2 ? "1" : "2", 1);
        if (ranks_run(&ranks, use_broken, &breakage)) {
            print_message("%s\n", functions[i]);
            nfailed++;
        }
    }
    assert_int_equal(nfailed, 0);
}

static void from_the_first(void **state)
{
    (void)state;
    run(FROM_THE_FIRST);
}

static void between_calls(void **state)
{
    (void)state;
    run(BETWEEN_CALLS);
}

static void in_a_capture(void **state)
{
    (void)state;
    run(IN_A_CAPTURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_the_first),
        cmocka_unit_test(between_calls),
        cmocka_unit_test(in_a_capture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
