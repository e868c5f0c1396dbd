/* SPDX-License-Identifier: MIT
 *
 * Threads that are lent: as many as are at work at once, none of them lost, all gone at the end.
 */
#include "crew.h"

#include "fault.h"
#include "kolo.h"
#include "ranks.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;

    while (tasks && (entry = readdir(tasks)))
        n += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

struct count {
    atomic_int begun, ended;
    atomic_bool may_end;
};

static void work(void *argument)
{
    struct count *count = argument;

    atomic_fetch_add(&count->begun, 1);
    while (!atomic_load(&count->may_end))
        ranks_nap_ms(1);
    atomic_fetch_add(&count->ended, 1);
}

static void await(atomic_int *number, int value)
{
    while (atomic_load(number) < value)
        ranks_nap_ms(1);
}

static void all_run_at_once(void **state)
{
    enum { N = 30 };
    struct count count = {0};
    struct ko_crew crew;

    (void)state;
    ko_crew_open(&crew);
    for (int i = 0; i < N; i++)
        assert_int_equal(ko_crew_run(&crew, work, &count, "a test"), KOLO_OK);
    await(&count.begun, N);
    assert_int_equal(atomic_load(&count.ended), 0);
    atomic_store(&count.may_end, true);
    ko_crew_close(&crew);
    assert_int_equal(atomic_load(&count.ended), N);
}

/* One after the other is one thread's work. */
static void an_idle_one_is_used_again(void **state)
{
    const int before = count_threads();
    struct count count = {.may_end = true};
    struct ko_crew crew;

    (void)state;
    ko_crew_open(&crew);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(ko_crew_run(&crew, work, &count, "a test"), KOLO_OK);
        await(&count.ended, i + 1);
        ranks_nap_ms(i % 50 == 0 ? 20 : 1); /* in which it becomes idle, on nearly all machines */
    }
    assert_in_range(count_threads() - before, 0, 20);
    ko_crew_close(&crew);
}

static void idle_ones_end(void **state)
{
    const int before = count_threads();
    struct count count = {0};
    struct ko_crew crew;

    (void)state;
    ko_crew_open(&crew);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ko_crew_run(&crew, work, &count, "a test"), KOLO_OK);
    atomic_store(&count.may_end, true);
    while (count_threads() > before)
        ranks_nap_ms(10);
    assert_int_equal(atomic_load(&count.ended), 5);
    assert_int_equal(ko_crew_run(&crew, work, &count, "a test"), KOLO_OK);
    ko_crew_close(&crew);
    assert_int_equal(atomic_load(&count.ended), 6);
}

static void what_cannot_be_started_is_told(void **state)
{
    struct count count = {.may_end = true};
    struct ko_crew crew;

    (void)state;
    ko_crew_open(&crew);
    ko_fault_arm(KO_FAULT_THREAD, 1);
    assert_int_equal(ko_crew_run(&crew, work, &count, "a thread of the test"), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "a thread of the test"));
    ko_fault_arm(KO_FAULT_THREAD, 0);
    assert_int_equal(ko_crew_run(&crew, work, &count, "a thread of the test"), KOLO_OK);
    ko_crew_close(&crew);
    assert_int_equal(atomic_load(&count.ended), 1);
}

static void few_may_keep_theirs(void **state)
{
    struct ko_crew crew;
    int nkept = 0;

    (void)state;
    ko_crew_open(&crew);
    while (ko_crew_keep(&crew))
        nkept++;
    assert_in_range(nkept, 1, 16);
    ko_crew_let_go(&crew);
    assert_true(ko_crew_keep(&crew));
    assert_false(ko_crew_keep(&crew));
    ko_crew_close(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_run_at_once),
        cmocka_unit_test(an_idle_one_is_used_again),
        cmocka_unit_test(idle_ones_end),
        cmocka_unit_test(few_may_keep_theirs),
        cmocka_unit_test(what_cannot_be_started_is_told),
    };

    return cmocka_run_group_tests_name("crew", tests, NULL, NULL);
}
