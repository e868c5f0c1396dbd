/* SPDX-License-Identifier: MIT
 *
 * Many groups at once: each is used, all are alive, and what one costs its rank is bounded. Counted
 * are descriptors, threads, mappings and bytes, those of shared memory too, never time.
 */
#include "exam.h"
#include "ranks.h"
#include "sanitized.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* What this process has. */
struct holdings {
    long descriptors, threads, mappings, kib;
};

static long count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    long n = 0;

    for (int c; file && (c = getc(file)) != EOF;)
        n += c == '\n';
    if (file)
        fclose(file);
    return n;
}

/* Behind a word in /proc/self/status. */
static long status_kib(const char *word)
{
    FILE *file = fopen("/proc/self/status", "r");
    const size_t length = strlen(word);
    char line[128];
    long kib = 0;

    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, word, length))
            kib = strtol(line + length, NULL, 10);
    if (file)
        fclose(file);
    return kib;
}

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (file && fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static struct holdings take_stock(void)
{
    return (struct holdings){.descriptors = ranks_count_entries("/proc/self/fd"),
                             .threads = ranks_count_entries("/proc/self/task"),
                             .mappings = count_lines("/proc/self/maps"),
                             .kib = resident_kib()};
}

struct plan {
    int ngroups;
    bool is_async;
};

/* A busy machine has more threads at once. Each maps a stack and its guard, an arena of malloc's
 * and what it has reserved, and libc keeps these for threads to come when it has ended. */
enum { MOST_THREADS = 100, MOST_MAPPINGS = 4 * MOST_THREADS + 100 };

/* What groups of two ranks may take, some of which are in use, beyond what there was before. Memory
 * of those that were used before may stay with the threads that have used them. */
static int are_cheap(const struct holdings *before, long ngroups, long nused, long nused_ever)
{
    const struct holdings now = take_stock();
    const long descriptors = now.descriptors - before->descriptors;
    const long threads = now.threads - before->threads;
    const long mappings = now.mappings - before->mappings, kib = now.kib - before->kib;

    if (descriptors <= 2 * nused + 50 && threads <= MOST_THREADS &&
        (IS_SANITIZED ||
         (mappings <= 4 * nused + MOST_MAPPINGS && kib <= 6 * ngroups + 66 * nused_ever + 2000)))
        return 0;
    return ranks_fail("%ld groups, %ld used: %ld descriptors, %ld threads, %ld mappings, %ld KiB",
                      ngroups, nused, descriptors, threads, mappings, kib);
}

/* Memory may stay the process's. */
static int has_left_open(const struct holdings *before)
{
    const struct holdings now = take_stock();
    const long descriptors = now.descriptors - before->descriptors;
    const long threads = now.threads - before->threads;
    const long mappings = now.mappings - before->mappings;

    return descriptors > 50 || (!IS_SANITIZED && mappings > MOST_MAPPINGS)
               ? ranks_fail("%ld descriptors, %ld threads, %ld mappings are left", descriptors,
                            threads, mappings)
               : 0;
}

/* A collective and a message to and fro. */
static int use(kolo_group *group, int number, bool is_async)
{
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);
    int sent = number * n + rank, got = -1;
    kolo_work *work;
    int failed = exam_take(group, &(struct exam){.what = KO_ALL_REDUCE,
                                                 .dtype = KOLO_INT32,
                                                 .count = (size_t)(number % 50),
                                                 .is_async = is_async});

    if (failed || kolo_isend(group, &sent, 1, KOLO_INT32, (rank + 1) % n, 7, &work))
        return ranks_fail("group %d: isend", number);
    if (kolo_recv(group, &got, 1, KOLO_INT32, (rank + n - 1) % n, 7) || kolo_work_wait(work, -1))
        failed = ranks_fail("group %d: recv", number);
    kolo_work_free(work);
    if (!failed && got != number * n + (rank + n - 1) % n)
        failed = ranks_fail("group %d: %d came", number, got);
    return failed;
}

static void free_all(kolo_group **groups, int ngroups)
{
    ranks_free_all(groups, ngroups);
    free(groups);
}

static int make_and_use(kolo_group *world, void *argument)
{
    const struct plan *plan = argument;
    const int n = plan->ngroups;
    kolo_group **groups = calloc((size_t)n, sizeof *groups);
    struct holdings before;
    int failed = use(world, 0, plan->is_async);

    if (!groups)
        return ranks_fail("no memory");
    before = take_stock();
    failed |= ranks_duplicate(world, groups, n) || are_cheap(&before, n, 0, 0);
    for (int round = 0; round < 2; round++)
        for (int g = 0; g < n && !failed; g++)
            failed = use(groups[g], g, plan->is_async);
    failed |= failed || are_cheap(&before, n, n, n);
    for (int g = 0; g < n / 2; g++) {
        kolo_group_free(groups[g]);
        groups[g] = NULL;
    }
    failed |= failed || kolo_barrier(world) || ranks_duplicate(world, groups, n / 2);
    for (int g = 0; g < n && !failed; g++)
        failed = use(groups[g], g, false);
    failed |= failed || are_cheap(&before, n, n, n + n / 2);
    free_all(groups, n);
    return failed | has_left_open(&before);
}

/* The limit of most systems' shells, or less. */
static int settle(int rank, void *argument)
{
    struct rlimit limit;

    (void)rank;
    (void)argument;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 1;
    limit.rlim_cur = limit.rlim_max < 500 ? limit.rlim_max : 500;
    return setrlimit(RLIMIT_NOFILE, &limit);
}

/* As many calls are slow under ThreadSanitizer, which learns no more from the last than the first.
 */
enum { MANY = HAS_TSAN ? 200 : 1000, SOME = HAS_TSAN ? 60 : 300 };

static void run(const char *transport, int n, int ngroups, ranks_body body)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        struct plan plan = {.ngroups = ngroups, .is_async = is_async};

        setenv("KOLO_TRANSPORT", transport, 1);
        setenv("KOLO_DEBUG", "ERROR", 1);
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES,
                                                   .n = n,
                                                   .timeout_ms = 60000,
                                                   .settle = settle},
                                   body, &plan),
                         0);
    }
}

static void a_thousand_over_shm(void **state)
{
    (void)state;
    run("shm", 2, MANY, make_and_use);
}

static void a_thousand_over_tcp(void **state)
{
    (void)state;
    run("tcp", 2, MANY, make_and_use);
}

/* Rank 0 begins with all groups before rank 1 has come to any, which then begins with the last. */
static int use_from_both_ends(kolo_group *world, void *argument)
{
    const struct plan *plan = argument;
    const int n = plan->ngroups;
    kolo_group **groups = calloc((size_t)n, sizeof *groups);
    kolo_work **works = calloc((size_t)n, sizeof *works);
    int failed = !groups || !works, got;

    failed |= kolo_group_rank(world) == 1 && kolo_recv(world, NULL, 0, KOLO_UINT8, 0, 1);
    failed |= failed || ranks_duplicate(world, groups, n);
    for (int g = 0; g < n && !failed && kolo_group_rank(world) == 0; g++)
        failed = kolo_isend(groups[g], &plan->ngroups, 1, KOLO_INT32, 1, 3, &works[g]);
    failed |=
        failed || (kolo_group_rank(world) == 0 && kolo_send(world, NULL, 0, KOLO_UINT8, 1, 1));
    for (int g = n; g-- && !failed && kolo_group_rank(world) == 1;)
        failed = kolo_recv(groups[g], &got, 1, KOLO_INT32, 0, 3) || got != n;
    for (int g = 0; g < n && works; g++) {
        failed |= works[g] && kolo_work_wait(works[g], -1);
        kolo_work_free(works[g]);
    }
    free_all(groups, n);
    free(works);
    return failed ? ranks_fail("from both ends") : 0;
}

static void ranks_may_come_to_them_in_any_order(void **state)
{
    (void)state;
    run("shm", 2, SOME, use_from_both_ends);
    run("tcp", 2, SOME, use_from_both_ends);
}

/* This process's own segments, whose descriptors the library closes. */
enum { MOST_SEGMENTS = 4000 };
static int segments[MOST_SEGMENTS];
static atomic_int nsegments;
static atomic_bool keeps_segments;

int memfd_create(const char *name, unsigned flags)
{
    const int fd = (int)syscall(SYS_memfd_create, name, flags);

    if (fd >= 0 && keeps_segments && nsegments < MOST_SEGMENTS)
        segments[nsegments++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return fd;
}

static long segments_kib(void)
{
    long kib = 0;

    for (int i = 0; i < nsegments; i++) {
        struct stat status = {0};

        if (!fstat(segments[i], &status))
            kib += status.st_blocks / 2;
    }
    return kib;
}

/* A rank's own memory and the kernel's for it, but for what lies in segments. */
static long own_kib(void)
{
    return status_kib("RssAnon:") + status_kib("VmPTE:");
}

/* A rank has a segment for each peer that its collectives and its messages have reached, which has
 * memory for few short slices. All in all a thousand groups of eight ranks take less than 2 GB. */
static int take_little(int ngroups, int n, long own_before)
{
    enum { SEGMENT_KIB = 8, LINK_KIB = 23, BASE_KIB = 1500 };
    const long nlinks = (long)ngroups * (n - 1 + 2), kib = segments_kib();
    const long own = own_kib() - own_before;

    if (kib && kib <= nlinks * SEGMENT_KIB &&
        (IS_SANITIZED || own <= nlinks * (LINK_KIB - SEGMENT_KIB) + BASE_KIB))
        return 0;
    return ranks_fail("%d segments of %d groups of %d take %ld KiB, the rank itself %ld more",
                      nsegments, ngroups, n, kib, own);
}

static int use_each_once(kolo_group *world, void *argument)
{
    const int ngroups = ((const struct plan *)argument)->ngroups, n = kolo_group_size(world);
    kolo_group **groups = calloc((size_t)ngroups, sizeof *groups);
    int failed = use(world, 0, false);
    const long own_before = own_kib();

    if (!groups)
        return ranks_fail("no memory");
    keeps_segments = true;
    failed |= failed || ranks_duplicate(world, groups, ngroups);
    for (int g = 0; g < ngroups && !failed; g++)
        failed = use(groups[g], g, false);
    failed |= failed || take_little(ngroups, n, own_before) || kolo_barrier(world);
    for (int i = 0; i < nsegments; i++)
        close(segments[i]);
    free_all(groups, ngroups);
    return failed;
}

static void large_ones_take_little(void **state)
{
    enum { POPULATE_WRITE = 23 }; /* MADV_POPULATE_WRITE, which older headers do not have */

    (void)state;
    if (madvise(NULL, 0, POPULATE_WRITE))
        skip(); /* on kernels before 5.14 they have all at once */
    run("shm", 4, HAS_TSAN ? 20 : 400, use_each_once);
    run("shm", 8, HAS_TSAN ? 10 : 100, use_each_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_over_shm),
        cmocka_unit_test(a_thousand_over_tcp),
        cmocka_unit_test(ranks_may_come_to_them_in_any_order),
        cmocka_unit_test(large_ones_take_little),
    };

    return cmocka_run_group_tests_name("group_many", tests, NULL, NULL);
}
