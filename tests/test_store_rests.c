/* SPDX-License-Identifier: MIT
 *
 * A store that does not answer any more while a rank waits for another: the rank asks it now and
 * then whether there is word of a failure, which may take a second each time, and is not to be kept
 * by that beyond its own limit.
 */
#include "counting_store.h"
#include "group.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

enum { LIMIT_MS = 4000, JOIN_MS = 20000, MOST_ASKED = 4 };

static struct counting_store *counting;
static pthread_barrier_t both;

struct rank {
    pthread_t thread;
    int number, met, status;
};

/* Rank 1 makes no call while rank 0 waits for it. */
static void *wait_in_vain(void *argument)
{
    struct rank *rank = argument;
    kolo_group *group = NULL;

    rank->met = kolo_group_join_store(&counting->store, rank->number, 2, JOIN_MS, &group) ||
                kolo_barrier(group) || kolo_group_set_timeout(group, LIMIT_MS);
    pthread_barrier_wait(&both);
    atomic_store(&counting->is_silent, true);
    pthread_barrier_wait(&both);
    if (!rank->met && rank->number == 0)
        rank->status = kolo_barrier(group);
    pthread_barrier_wait(&both);
    kolo_group_free(group);
    return NULL;
}

/* Once while it waits, once to leave word of the failure, and what is asked at its end. */
static void a_silent_store_is_left_alone(void **state)
{
    struct rank ranks[2] = {{.number = 0}, {.number = 1}};

    (void)state;
    counting = counting_store_open(0);
    assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, wait_in_vain, &ranks[r]), 0);
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&both);
    for (int r = 0; r < 2; r++)
        assert_int_equal(ranks[r].met, 0);
    assert_int_equal(ranks[0].status, KOLO_E_TIMEOUT);
    assert_in_range(atomic_load(&counting->unanswered), 1, MOST_ASKED);
    kolo_store_close(&counting->store);
}

static atomic_bool is_read;

static void *read_words(void *group)
{
    struct ko_waits_word word;

    (void)ko_waits_read(group, &word);
    atomic_store(&is_read, true);
    return NULL;
}

/* What is asked only to know more has a limit of its own, and leaves that of others, who may ask
 * meanwhile, and for longer. */
static void a_question_leaves_the_handles_limit(void **state)
{
    kolo_group *group;
    pthread_t reader;
    int limit_ms;

    (void)state;
    counting = counting_store_open(100);
    assert_int_equal(kolo_group_join_store(&counting->store, 0, 1, JOIN_MS, &group), KOLO_OK);
    limit_ms = ko_store_timeout(group->endpoint->store);
    assert_int_equal(pthread_create(&reader, NULL, read_words, group), 0);
    while (!atomic_load(&is_read))
        assert_int_equal(ko_store_timeout(group->endpoint->store), limit_ms);
    pthread_join(reader, NULL);
    assert_int_equal(ko_store_timeout(group->endpoint->store), limit_ms);
    kolo_group_free(group);
    kolo_store_close(&counting->store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silent_store_is_left_alone),
                                       cmocka_unit_test(a_question_leaves_the_handles_limit)};

    return cmocka_run_group_tests_name("a silent store", tests, NULL, NULL);
}
