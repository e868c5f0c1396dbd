/* SPDX-License-Identifier: MIT
 *
 * Looks at how far two cores are from each other, by two ranks that are threads.
 */
#include "kolo.h"
#include "tools/perf_cores.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { NRANKS = 3 };

/* What rank 0, or whoever has the same body, is to find. */
struct plan {
    kolo_store *store;
    struct ko_ball ball;
    double usual;
    int tries;
};

struct rank {
    struct plan *plan;
    int number, looked, awaited;
    bool was_usual;
    struct ko_cores cores;
};

static void *look_and_await(void *context)
{
    struct rank *rank = context;
    struct plan *plan = rank->plan;
    kolo_group *group = NULL;

    rank->cores =
        (struct ko_cores){.ball = &plan->ball, .usual = plan->usual, .tries = plan->tries};
    rank->looked = kolo_group_join_store(plan->store, rank->number, NRANKS, 20000, &group);
    if (!rank->looked)
        rank->looked = ko_cores_look(group, &rank->cores, &rank->was_usual);
    if (!rank->looked)
        rank->awaited = ko_cores_await(group, &rank->cores);
    kolo_group_free(group);
    return NULL;
}

static void run(struct plan *plan, struct rank ranks[NRANKS])
{
    pthread_t threads[NRANKS];

    assert_int_equal(kolo_store_open_local(&plan->store), KOLO_OK);
    for (int i = 0; i < NRANKS; i++) {
        ranks[i] = (struct rank){.plan = plan, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, look_and_await, &ranks[i]), 0);
    }
    for (int i = 0; i < NRANKS; i++)
        pthread_join(threads[i], NULL);
    kolo_store_close(plan->store);
    for (int i = 0; i < NRANKS; i++)
        assert_int_equal(ranks[i].looked, KOLO_OK);
}

static void what_is_found_first_is_usual(void **state)
{
    struct plan plan = {.tries = 1000};
    struct rank ranks[NRANKS];

    (void)state;
    run(&plan, ranks);
    for (int i = 0; i < NRANKS; i++) {
        assert_true(ranks[i].was_usual);
        assert_true(ranks[i].cores.usual > 0);
        assert_true(ranks[i].cores.usual <= ranks[0].cores.usual);
        assert_true(ranks[i].cores.usual >= ranks[0].cores.usual);
    }
}

/* No two cores are a femtosecond from each other, or a minute. */
static void all_hear_that_cores_are_not_as_usual(void **state)
{
    static const double usual[] = {1e-9, 6e7};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct plan plan = {.usual = usual[k], .tries = 3};
        struct rank ranks[NRANKS];

        run(&plan, ranks);
        for (int i = 0; i < NRANKS; i++) {
            assert_false(ranks[i].was_usual);
            assert_int_equal(ranks[i].awaited, KOLO_E_TIMEOUT);
        }
    }
}

/* What is measured may move them each time, though they are as usual before. */
static void who_has_looked_too_often_gives_up(void **state)
{
    struct plan plan = {.tries = 0};
    struct rank ranks[NRANKS];

    (void)state;
    run(&plan, ranks);
    for (int i = 0; i < NRANKS; i++)
        assert_int_equal(ranks[i].awaited, KOLO_E_TIMEOUT);
}

static void who_throws_alone_does_not_wait_for_ever(void **state)
{
    struct ko_ball ball = {0};

    (void)state;
    assert_true(ko_ball_throw(&ball, 1) <= 0);
    assert_int_equal(ball.turn, 0);
}

static void without_a_ball_all_is_usual(void **state)
{
    struct ko_cores cores = {.ball = NULL};
    bool are_usual = false;

    (void)state;
    assert_int_equal(ko_cores_look(NULL, &cores, &are_usual), KOLO_OK);
    assert_true(are_usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_first_is_usual),
        cmocka_unit_test(all_hear_that_cores_are_not_as_usual),
        cmocka_unit_test(who_has_looked_too_often_gives_up),
        cmocka_unit_test(who_throws_alone_does_not_wait_for_ever),
        cmocka_unit_test(without_a_ball_all_is_usual),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
