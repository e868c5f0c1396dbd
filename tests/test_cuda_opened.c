/* SPDX-License-Identifier: MIT
 *
 * Memory that processes hand to each other, and free, and get again at the same address: whoever of
 * a process has it open, a message, a collective or another group's, none is in the way of what
 * comes next, nor what lies beside that in a block of memory. And memory that goes while a call is
 * under way, of this group or of another one.
 */
#include "gpu_rank.h"
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 2, COUNT = 5000, ROUNDS = 20 };

typedef int exchange(kolo_group *group, int *memory);

static int reduce(kolo_group *group, int *memory)
{
    return kolo_all_reduce(group, memory, memory, COUNT, KOLO_INT32, KOLO_SUM);
}

/* A half of each rank's to the other. */
static int swap(kolo_group *group, int *memory)
{
    const int other = 1 - kolo_group_rank(group);

    return kolo_sendrecv(group, memory, COUNT / 2, other, memory + COUNT / 2, COUNT / 2, other,
                         KOLO_INT32, 0);
}

/* The same while this process's stream waits for the call: nothing can be closed meanwhile. */
static int swap_in_stream(kolo_group *group, int *memory)
{
    const int other = 1 - kolo_group_rank(group);
    const kolo_p2p both[] = {
        {.is_send = 1, .buffer = memory, .count = COUNT / 2, .dtype = KOLO_INT32, .peer = other},
        {.buffer = memory + COUNT / 2, .count = COUNT / 2, .dtype = KOLO_INT32, .peer = other}};
    kolo_work *work;
    int err = kolo_batch_async(group, both, 2, &work);

    if (err)
        return err;
    err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

static int check(const int *content, exchange *by, int rank)
{
    for (int i = 0; i < COUNT; i++) {
        const int from = i < COUNT / 2 ? rank : 1 - rank;
        const int value = by == reduce ? 2 * i + 1 : from + i % (COUNT / 2);

        if (content[i] != value)
            return ranks_fail("element %d is %d, not %d", i, content[i], value);
    }
    return 0;
}

static int take(kolo_group *group, exchange *by)
{
    static int content[COUNT];
    const int rank = kolo_group_rank(group);
    int *memory;

    for (int i = 0; i < COUNT; i++)
        content[i] = rank + i;
    memory = gpu_rank_memory.make(content, sizeof content);
    if (by(group, memory))
        return ranks_fail("the exchange");
    gpu_rank_memory.fetch(content, memory, sizeof content);
    return check(content, by, rank);
}

static int go_around(kolo_group *group, void *unused)
{
    kolo_group *other = NULL;
    int failed = gpu_rank_enter(group) || kolo_group_duplicate(group, &other) ||
                 kolo_group_set_stream(other, gpu_rank.stream);

    (void)unused;
    for (int i = 0; i < ROUNDS && !failed; i++)
        failed = take(group, reduce) || take(group, swap) || take(other, reduce) ||
                 take(other, swap) || take(group, swap_in_stream);
    if (!failed && (group->gpu_ways.reached != ROUNDS || other->gpu_ways.reached != ROUNDS))
        failed = ranks_fail("%d and %d calls went where the buffers are",
                            (int)group->gpu_ways.reached, (int)other->gpu_ways.reached);
    kolo_group_free(other);
    return gpu_rank_leave(failed);
}

/* ---- in blocks ------------------------------------------------------------------------------- */

enum { PART = 1 << 20, NFILLERS = 8 }; /* two in a block */

static ko_cu_ptr make_part(void)
{
    static const int content[COUNT];
    ko_cu_ptr memory;

    if (gpu_rank.cuda->alloc(&memory, PART) ||
        gpu_rank.cuda->copy(memory, (uintptr_t)content, sizeof content, gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return memory;
}

static int reduce_part(kolo_group *group, ko_cu_ptr part)
{
    return reduce(group, (int *)(uintptr_t)part);
}

/* Both groups have the second part of a block open, of which one hears that it has gone. Then there
 * is another block, and in it what both have not seen. */
static int change_block(kolo_group *group, kolo_group *other)
{
    const ko_cu_ptr first = make_part(), second = make_part();
    ko_cu_ptr again;
    int failed = reduce_part(group, second) || reduce_part(other, second);

    if (gpu_rank.cuda->free(first) || gpu_rank.cuda->free(second))
        abort();
    again = make_part();
    failed = failed || again != first || second != first + PART
                 ? ranks_fail("other memory is elsewhere")
                 : reduce_part(group, again);
    if (gpu_rank.cuda->free(again))
        abort();
    return failed;
}

/* Until the next part begins a block. */
static void fill_blocks(void)
{
    ko_cu_ptr last = 0;

    for (int i = 0; i < NFILLERS; i++)
        last = make_part();
    if (last % (2 * PART) == 0)
        (void)make_part();
}

static int go_around_blocks(kolo_group *group, void *unused)
{
    kolo_group *other = NULL;
    int failed = gpu_rank_enter(group) || kolo_group_duplicate(group, &other) ||
                 kolo_group_set_stream(other, gpu_rank.stream);

    (void)unused;
    fill_blocks();
    for (int i = 0; i < ROUNDS && !failed; i++)
        failed = change_block(group, other);
    if (!failed && (group->gpu_ways.reached != 2 * ROUNDS || other->gpu_ways.reached != ROUNDS))
        failed = ranks_fail("%d and %d calls went where the buffers are",
                            (int)group->gpu_ways.reached, (int)other->gpu_ways.reached);
    kolo_group_free(other);
    return gpu_rank_leave(failed);
}

/* Between a call and its end: the driver waits for all streams, and lets nobody start a kernel. */
static int free_meanwhile(kolo_group *group, void *unused)
{
    static const int content[COUNT];
    int *memory, failed = gpu_rank_enter(group);

    (void)unused;
    if (failed)
        return failed;
    memory = gpu_rank_memory.make(content, sizeof content);
    for (int i = 0; i < ROUNDS && !failed; i++) {
        ko_cu_ptr other;
        kolo_work *work;

        if (gpu_rank.cuda->alloc(&other, sizeof content) ||
            kolo_all_reduce_async(group, memory, memory, COUNT, KOLO_INT32, KOLO_SUM, &work) ||
            gpu_rank.cuda->free(other))
            return ranks_fail("the call, or what was freed");
        failed = ranks_expect(kolo_work_wait(work, -1), KOLO_OK, "");
        kolo_work_free(work);
    }
    return gpu_rank_leave(failed);
}

/* ---- while the call's own stream waits for it ------------------------------------------------ */

enum { RATE = 2, SUM = 1 + 2 /* of the ranks' gradients */ };

/* Which has its content, so that this may go. */
static void *make_settled(const void *content, size_t nbytes)
{
    void *memory = gpu_rank_memory.make(content, nbytes);

    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return memory;
}

static float *make_floats(float value)
{
    float content[COUNT];

    for (int i = 0; i < COUNT; i++)
        content[i] = value;
    return make_settled(content, sizeof content);
}

/* An asynchronous step of gradients that travel as smaller floats, between GPUs: its stream waits
 * until it has been carried out. */
static int step_in_stream(kolo_group *group, float *param)
{
    const kolo_step step = {
        .optimizer = KOLO_SGD, .number = 1, .rate = RATE, .wire = KOLO_BFLOAT16};
    const kolo_update update = {
        .grad = make_floats((float)(kolo_group_rank(group) + 1)), .param = param, .count = COUNT};
    kolo_work *work;
    int err = kolo_all_reduce_step_async(group, &update, KOLO_FLOAT32, KOLO_SUM, &step, &work);

    if (err)
        return err;
    err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err || gpu_rank.cuda->stream_sync(gpu_rank.stream) ||
           gpu_rank.cuda->free((uintptr_t)update.grad);
}

/* Two of them with new parameters, where those of before have been: what is open there cannot be
 * closed before the first is over, which goes by way of the host; the second one need not. */
static int step_twice(kolo_group *group, bool has_older, uintptr_t *at)
{
    const struct ko_gpu_ways before = group->gpu_ways;
    float content[COUNT], *param = make_floats(100);
    struct ko_gpu_ways ways[2];

    if (has_older && (uintptr_t)param != *at)
        return ranks_fail("other memory is elsewhere");
    *at = (uintptr_t)param;
    for (int i = 0; i < 2; i++) {
        if (step_in_stream(group, param))
            return ranks_fail("step %d", i);
        ways[i] = group->gpu_ways;
    }
    gpu_rank_memory.fetch(content, param, sizeof content);
    for (int i = 0; i < COUNT; i++)
        if (content[i] != 100 - 2 * RATE * SUM)
            return ranks_fail("element %d is %g", i, (double)content[i]);
    if (ways[0].by_host - before.by_host != has_older ||
        ways[0].reached - before.reached == has_older)
        return ranks_fail("the first goes elsewhere");
    return ways[1].by_host != ways[0].by_host || ways[1].reached == ways[0].reached
               ? ranks_fail("the second goes by way of the host")
               : 0;
}

static int go_on_in_stream(kolo_group *group, void *unused)
{
    uintptr_t at = 0;
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (int i = 0; i < ROUNDS && !failed; i++)
        failed = step_twice(group, i > 0, &at);
    return gpu_rank_leave(failed);
}

/* ---- beside another group -------------------------------------------------------------------- */

/* A group of three, and of its first and last a second one, with a stream and memory of its own. */
struct pair {
    kolo_group *group;
    ko_cu_stream stream;
    int *memory;
};

static int *make_filled(int value)
{
    int content[COUNT];

    for (int i = 0; i < COUNT; i++)
        content[i] = value;
    return make_settled(content, sizeof content);
}

static int expect_filled(const int *memory, int value, ko_cu_stream stream)
{
    int content[COUNT];

    if (gpu_rank.cuda->copy((uintptr_t)content, (uintptr_t)memory, sizeof content, stream) ||
        gpu_rank.cuda->stream_sync(stream))
        return ranks_fail("no content");
    for (int i = 0; i < COUNT; i++)
        if (content[i] != value)
            return ranks_fail("element %d is %d, not %d", i, content[i], value);
    return 0;
}

static int enter_pair(kolo_group *group, struct pair *pair)
{
    const int rank = kolo_group_rank(group);

    pair->memory = make_filled(rank);
    return kolo_group_split(group, rank == 1 ? -1 : 0, 0, &pair->group) ||
                   gpu_rank.cuda->stream_create(&pair->stream, KO_CU_STREAM_NON_BLOCKING) ||
                   (pair->group && (kolo_group_set_stream(pair->group, pair->stream) ||
                                    reduce(pair->group, pair->memory)))
               ? ranks_fail("the pair")
               : 0;
}

/* The last rank's memory goes, and what comes is elsewhere, or at its address. */
static void change_memory(struct pair *pair, bool is_elsewhere)
{
    int *elsewhere = make_filled(2);

    if (gpu_rank.cuda->free((uintptr_t)pair->memory))
        abort();
    pair->memory = is_elsewhere ? elsewhere : make_filled(2);
}

/* While rank 1's stream stands still, and the others' wait for it. */
static int reduce_beside(kolo_group *group, struct pair *pair)
{
    unsigned char is_done = 1;

    return reduce(pair->group, pair->memory) || expect_filled(pair->memory, 4, pair->stream) ||
                   (kolo_group_rank(group) == 0 && kolo_send(group, &is_done, 1, KOLO_UINT8, 1, 0))
               ? ranks_fail("the pair's call")
               : 0;
}

/* Rank 1's does until it hears that the pair is done. */
static int stand_still(kolo_group *group, ko_cu_ptr word)
{
    unsigned char is_done;
    ko_cu_stream stream;
    int err = kolo_recv(group, &is_done, 1, KOLO_UINT8, 0, 0);

    if (gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING) ||
        gpu_rank.cuda->stream_put_word(stream, word, 1, 0))
        abort();
    return err ? ranks_fail("the pair waits") : 0;
}

static int close_beside(kolo_group *group, void *is_elsewhere)
{
    const int rank = kolo_group_rank(group);
    int failed = gpu_rank_enter(group);
    int *const memory = make_filled(rank), *const word = make_filled(0);
    struct pair pair;
    kolo_work *work = NULL;

    failed = failed || reduce(group, memory) || enter_pair(group, &pair);
    if (!failed && rank == 2)
        change_memory(&pair, *(bool *)is_elsewhere);
    if (!failed && rank == 1)
        failed =
            gpu_rank.cuda->stream_await_word(gpu_rank.stream, (uintptr_t)word, 1, KO_CU_WAIT_GEQ);
    if (failed || kolo_all_reduce_async(group, memory, memory, COUNT, KOLO_INT32, KOLO_SUM, &work))
        return ranks_fail("the group's call");
    failed = rank == 1 ? stand_still(group, (uintptr_t)word) : reduce_beside(group, &pair);
    failed = kolo_work_wait(work, -1) || failed;
    kolo_work_free(work);
    failed = failed || expect_filled(memory, 9, gpu_rank.stream);
    kolo_group_free(pair.group);
    return gpu_rank_leave(failed);
}

/* ---- processes of one number ----------------------------------------------------------------- */

enum {
    LONG = 16 << 20 /* bytes: such memory lies at the same addresses in all, in part at least */
};

/* As of processes of several containers, or of one that has the number of another that ended. */
static int have_one_number(kolo_group *group)
{
    const struct ko_contact *one, *other;

    if (ko_endpoint_contact(group->endpoint, 1, &one) ||
        ko_endpoint_contact(group->endpoint, 2, &other))
        return ranks_fail("no contacts");
    ((struct ko_contact *)(uintptr_t)other)->pid = one->pid;
    return 0;
}

static bool do_overlap(const uint64_t *bases)
{
    return bases[1] < bases[2] + LONG && bases[2] < bases[1] + LONG;
}

/* Rank 2 has had other memory at its address before, so that the driver counts its own otherwise.
 */
static int find_bases(kolo_group *group, ko_cu_ptr *memory)
{
    uint64_t mine, bases[3];

    if (kolo_group_rank(group) == 2 && gpu_rank.cuda->free(gpu_rank_fresh(LONG)))
        abort();
    *memory = mine = gpu_rank_fresh(LONG);
    if (kolo_all_gather(group, &mine, bases, 1, KOLO_UINT64))
        return ranks_fail("the bases");
    return do_overlap(bases) ? 0 : ranks_fail("ranks 1 and 2 have memory elsewhere");
}

static int reduce_of_twins(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    int content[COUNT], *out, failed = rank == 0 && have_one_number(group);
    ko_cu_ptr memory;

    (void)unused;
    failed = failed || gpu_rank_enter(group) || find_bases(group, &memory);
    for (int i = 0; i < COUNT; i++)
        content[i] = rank + 1;
    if (failed || gpu_rank.cuda->copy(memory, (uintptr_t)content, sizeof content, gpu_rank.stream))
        return ranks_fail("no content");
    out = (int *)(uintptr_t)memory + COUNT;
    for (int i = 0; i < ROUNDS && !failed; i++)
        failed = kolo_all_reduce(group, out - COUNT, out, COUNT, KOLO_INT32, KOLO_SUM) ||
                 expect_filled(out, 1 + 2 + 3, gpu_rank.stream);
    return gpu_rank_leave(failed);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void run(ranks_body body, const char *transport)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = N};

    exam_set_variables(transport, "", 4096);
    setenv("FAKECUDA_STRICT", "1", 1);
    assert_int_equal(ranks_run(&ranks, body, NULL), 0);
}

static void comes_again(void **state)
{
    (void)state;
    run(go_around, "shm");
    run(go_around, "tcp");
}

static void comes_again_between_gpus(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEVICES", "3", 1);
    run(go_around, "shm");
    run(go_on_in_stream, "shm");
    unsetenv("FAKECUDA_DEVICES");
}

static void comes_again_in_blocks(void **state)
{
    (void)state;
    setenv("FAKECUDA_BLOCKS", "1", 1);
    run(go_around, "shm");
    run(go_around_blocks, "shm");
    setenv("FAKECUDA_BLOCKS", "0", 1);
}

static void goes_in_a_call(void **state)
{
    (void)state;
    run(free_meanwhile, "shm");
}

static void another_group_waits(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .timeout_ms = 3000};

    (void)state;
    exam_set_variables("shm", "", 4096);
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++)
        assert_int_equal(ranks_run(&ranks, close_beside, &(bool){is_elsewhere}), 0);
}

static void one_number_is_of_several(void **state)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3};

    (void)state;
    exam_set_variables("shm", "", 4096);
    for (int ngpus = 1; ngpus <= 3; ngpus += 2) {
        ranks_set_number("FAKECUDA_DEVICES", ngpus);
        assert_int_equal(ranks_run(&ranks, reduce_of_twins, NULL), 0);
    }
    unsetenv("FAKECUDA_DEVICES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_again),           cmocka_unit_test(comes_again_between_gpus),
        cmocka_unit_test(comes_again_in_blocks), cmocka_unit_test(goes_in_a_call),
        cmocka_unit_test(another_group_waits),   cmocka_unit_test(one_number_is_of_several),
    };

    setenv("FAKECUDA_BLOCKS", "0", 1); /* what lies where something has been is the tests' matter */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
