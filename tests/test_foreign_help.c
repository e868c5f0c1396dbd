/* SPDX-License-Identifier: MIT
 *
 * Two copy what one reads out of the other's process: the bytes are what they are without help, and
 * who cannot write there only waits.
 */
#include "fault.h"
#include "foreign_needs.h"
#include "group.h"
#include "window.h"

#include <sys/mman.h>

enum { LONG = (1 << 20) + 4321 };

/* Pages that this rank has written into the other's memory. */
static uint64_t pages_written(kolo_group *group)
{
    const struct ko_link *link = group->collectives.ports[1 - kolo_group_rank(group)].link;

    return link->outbox ? ko_load_acquire(&link->outbox->written) : 0;
}

static unsigned char byte_at(size_t i, int call)
{
    return (unsigned char)(i % 251 + (size_t)call);
}

/* Broadcasts of odd lengths, to and from anywhere; *npages: of this rank's, in all. */
static int broadcast_often(kolo_group *group, int ncalls, int roots, uint64_t *npages)
{
    const int rank = kolo_group_rank(group);
    unsigned char *memory = malloc(LONG + 64);
    int failed = !memory;

    for (int call = 0; call < ncalls && !failed; call++) {
        const size_t shift = (size_t)(7 * call + 3 * rank) % 64, nbytes = LONG - 31 * (size_t)call;
        const int root = call % roots;

        for (size_t i = 0; i < nbytes; i++)
            memory[shift + i] = rank == root ? byte_at(i, call) : 0;
        failed = kolo_broadcast(group, memory + shift, nbytes, KOLO_UINT8, root);
        for (size_t i = 0; i < nbytes && !failed; i++)
            if (memory[shift + i] != byte_at(i, call))
                failed = ranks_fail("byte %zu of call %d", i, call);
    }
    free(memory);
    *npages = pages_written(group);
    return failed;
}

/* Shared by all ranks: whether each has helped the other, every time; which takes both to be on a
 * core at a time. */
static bool *have_helped;

static void prepare(void)
{
    set_variables("inline,cma");
    setenv("KOLO_SLICE_BYTES", "128K", 1);
    setenv("KOLO_SLOTS", "8", 1);
    needs_two_cores();
    needs_permission();
    have_helped =
        mmap(NULL, sizeof *have_helped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(have_helped, MAP_FAILED);
    *have_helped = true;
}

/* Of a machine that is busy with other things nothing is said. */
static void needs_to_have_helped(void)
{
    const bool have = *have_helped;

    munmap(have_helped, sizeof *have_helped);
    if (!have)
        skip();
}

/* Each sends in turn until each has helped the other. */
static int help_each_other(kolo_group *group, void *argument)
{
    int64_t have_all = 0;
    int failed = 0;

    (void)argument;
    for (int i = 0; i < 50 && !have_all && !failed; i++) {
        uint64_t npages;
        int64_t has;

        failed = broadcast_often(group, 6, 2, &npages);
        has = npages != 0;
        failed = failed || kolo_all_reduce(group, &has, &have_all, 1, KOLO_INT64, KOLO_MIN);
    }
    if (!kolo_group_rank(group) && !have_all)
        *have_helped = false;
    return failed;
}

static void who_waits_helps_to_copy(void **state)
{
    const enum ranks_kind kinds[] = {RANKS_PROCESSES, RANKS_THREADS};

    (void)state;
    prepare();
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = kinds[i], .n = 2}, help_each_other, NULL), 0);
    needs_to_have_helped();
}

/* Rank 0 finds once that rank 1's memory is kept from it, or that rank 1 is not who it was: the
 * calls are what they are without help. */
static int help_no_more(kolo_group *group, void *argument)
{
    const bool *is_another = argument;
    const int rank = kolo_group_rank(group);
    uint64_t npages, nmore;
    int failed = help_each_other(group, argument) || broadcast_often(group, 2, 1, &npages);

    if (*is_another && rank)
        *(uint64_t *)(uintptr_t)group->collectives.ports[0].link->inbox->word_at ^= 1;
    else if (!*is_another && !rank)
        ko_fault_arm(KO_FAULT_FOREIGN, 1);
    for (int i = 0; i < 20 && !failed; i++)
        failed = broadcast_often(group, 2, 1, &npages);
    failed = failed || broadcast_often(group, 2, 1, &nmore);
    return failed || nmore == npages ? failed : ranks_fail("%lu pages more", nmore - npages);
}

static void who_cannot_help_only_waits(void **state)
{
    (void)state;
    prepare();
    for (int i = 0; i < 2; i++) {
        bool is_another = i == 1;

        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, help_no_more, &is_another),
            0);
    }
    needs_to_have_helped();
}

/* Where both read, one that is done first waits for the other, too. */
static int read_both_at_once(kolo_group *group, void *argument)
{
    enum { COUNT = 8192, CALLS = 400 }; /* 64 KiB, in any cache */
    double *in = malloc(sizeof *in * 2 * COUNT), *out = malloc(sizeof *out * 2 * COUNT);
    int failed = !in || !out;

    (void)argument;
    for (size_t i = 0; i < (failed ? 0 : 2 * COUNT); i++)
        in[i] = (double)(i % 1000 + (size_t)kolo_group_rank(group));
    for (int call = 0; call < CALLS && !failed; call++)
        failed = kolo_reduce_scatter(group, in, out, COUNT, KOLO_FLOAT64, KOLO_SUM) ||
                 kolo_all_gather(group, in, out, COUNT, KOLO_FLOAT64);
    free(in);
    free(out);
    if (!failed && pages_written(group))
        failed = ranks_fail("%lu pages were written for the peer", pages_written(group));
    return failed;
}

static void who_reads_as_much_itself_is_not_asked(void **state)
{
    (void)state;
    prepare();
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, read_both_at_once, NULL), 0);
    munmap(have_helped, sizeof *have_helped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_helps_to_copy),
        cmocka_unit_test(who_reads_as_much_itself_is_not_asked),
        cmocka_unit_test(who_cannot_help_only_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
