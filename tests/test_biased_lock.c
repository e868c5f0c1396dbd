/* SPDX-License-Identifier: MIT
 *
 * One thread at a time has the lock, whoever is its owner, whether others come often or seldom,
 * wait for conditions or only try.
 */
#include "biased_lock.h"
#include "sanitized.h"
#include "thread.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TURNS = IS_EMULATED ? 2000 : 20000, THREADS = 4 };

struct common {
    struct ko_biased_lock lock;
    long count; /* under the lock, as the rest */
    int inside; /* threads that have the lock */
    int wrong;
    pthread_cond_t changed;
    int token; /* of which thread's turn it is */
    atomic_int nrunning;
};

struct visitor {
    struct common *common;
    int turns, pause; /* pause: times that others may run between two turns */
    int number;
};

static void enter(struct common *common)
{
    common->wrong += common->inside++ != 0;
    common->count++;
}

static void leave(struct common *common)
{
    common->wrong += --common->inside != 0;
}

static void use(struct common *common)
{
    ko_biased_lock_take(&common->lock);
    enter(common);
    leave(common);
    ko_biased_lock_give(&common->lock);
}

static void *visit(void *argument)
{
    const struct visitor *visitor = argument;

    for (int i = 0; i < visitor->turns; i++) {
        use(visitor->common);
        for (int k = 0; k < visitor->pause; k++)
            sched_yield();
    }
    return NULL;
}

static void open_common(struct common *common)
{
    *common = (struct common){.count = 0};
    ko_biased_lock_init(&common->lock);
    pthread_cond_init(&common->changed, NULL);
}

/* What happened in all, after which the lock is nobody's. */
static void close_common(struct common *common, long count)
{
    assert_int_equal(common->wrong, 0);
    assert_int_equal(common->count, count);
    pthread_cond_destroy(&common->changed);
    ko_biased_lock_destroy(&common->lock);
}

static void run_visitors(struct common *common, void *(*body)(void *), const int *pauses, int turns)
{
    struct visitor visitors[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        visitors[i] = (struct visitor){common, turns, pauses[i], i};
        assert_int_equal(ko_thread_start(&threads[i], body, &visitors[i], "a visitor"), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static bool has_owner(const struct common *common)
{
    return ko_load_relaxed(&common->lock.owner) != 0;
}

/* ---- the tests ----------------------------------------------------------------------------- */

static void one_thread_becomes_the_owner(void **state)
{
    struct common common;

    (void)state;
    open_common(&common);
    use(&common);
    assert_false(has_owner(&common));
    for (int i = 1; i < 1000; i++)
        use(&common);
    assert_true(has_owner(&common));
    close_common(&common, 1000);
}

/* Also where the owner has to order its own stores. */
static void threads_take_turns(void **state)
{
    const int often[THREADS] = {0}, seldom[THREADS] = {0, 7, 50, 200};
    struct common common;

    (void)state;
    for (int can_split = 0; can_split < 2; can_split++) {
        open_common(&common);
        common.lock.is_split = common.lock.is_split && can_split;
        run_visitors(&common, visit, often, TURNS);
        run_visitors(&common, visit, seldom, 1000);
        close_common(&common, THREADS * (TURNS + 1000L));
    }
}

static void the_bias_comes_back_to_its_owner(void **state)
{
    struct common common;
    struct visitor visitor = {&common, 500, 0, 0};
    pthread_t thread;

    (void)state;
    open_common(&common);
    for (int i = 0; i < 500; i++)
        use(&common);
    assert_int_equal(ko_thread_start(&thread, visit, &visitor, "a visitor"), 0);
    pthread_join(thread, NULL);
    assert_false(has_owner(&common));
    for (int i = 0; i < 500; i++)
        use(&common);
    assert_true(has_owner(&common));
    close_common(&common, 1500);
}

static void *try_often(void *argument)
{
    const struct visitor *visitor = argument;
    struct common *common = visitor->common;

    for (int got = 0; got < visitor->turns;) {
        if (!ko_biased_lock_try(&common->lock)) {
            sched_yield();
            continue;
        }
        enter(common);
        common->wrong += ko_biased_lock_try(&common->lock); /* we have it ourselves */
        leave(common);
        ko_biased_lock_give(&common->lock);
        got++;
    }
    return NULL;
}

static void who_tries_gets_it_or_does_not(void **state)
{
    const int pauses[THREADS] = {0};
    struct common common;
    struct visitor alone = {&common, 1000, 0, 0};

    (void)state;
    open_common(&common);
    for (int i = 0; i < 500; i++)
        use(&common);
    (void)try_often(&alone); /* the owner */
    run_visitors(&common, try_often, pauses, 1000);
    close_common(&common, 1500 + THREADS * 1000L);
}

/* One after the other, each waiting for its turn, so long that each becomes the owner. */
static void *pass_the_token(void *argument)
{
    const struct visitor *visitor = argument;
    struct common *common = visitor->common;

    for (int round = 0; round < visitor->turns; round++) {
        for (int i = 0; i < 100; i++)
            use(common);
        ko_biased_lock_take(&common->lock);
        while (common->token % THREADS != visitor->number)
            ko_biased_lock_wait(&common->lock, &common->changed, NULL);
        enter(common);
        common->token++;
        leave(common);
        pthread_cond_broadcast(&common->changed);
        ko_biased_lock_give(&common->lock);
    }
    return NULL;
}

static void threads_wait_for_each_other(void **state)
{
    const int pauses[THREADS] = {0};
    struct common common;

    (void)state;
    open_common(&common);
    run_visitors(&common, pass_the_token, pauses, 50);
    close_common(&common, THREADS * 50L * 101);
}

static void a_wait_has_an_end(void **state)
{
    const struct timespec long_ago = {0};
    struct common common;

    (void)state;
    open_common(&common);
    for (int i = 0; i < 500; i++)
        use(&common);
    ko_biased_lock_take(&common.lock);
    ko_biased_lock_wait(&common.lock, &common.changed, &long_ago);
    ko_biased_lock_give(&common.lock);
    close_common(&common, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_becomes_the_owner),
        cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(the_bias_comes_back_to_its_owner),
        cmocka_unit_test(who_tries_gets_it_or_does_not),
        cmocka_unit_test(threads_wait_for_each_other),
        cmocka_unit_test(a_wait_has_an_end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
