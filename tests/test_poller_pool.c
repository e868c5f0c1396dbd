/* SPDX-License-Identifier: MIT
 *
 * Pollers that owners share: who keeps one, who gets another's, and that no wake is lost.
 */
#include "poller_pool.h"

#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEPT = 16 }; /* poller_pool.c */

struct owner {
    struct ko_pooled *_Atomic pooled;
    int pipe[2];
};

struct fixture {
    struct ko_poller_pool pool;
    int common[2];
    struct owner owners[3 * KEPT];
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    if (!fixture || pipe(fixture->common))
        abort();
    for (int i = 0; i < 3 * KEPT; i++)
        if (pipe(fixture->owners[i].pipe))
            abort();
    ko_pool_open(&fixture->pool, fixture->common[0], fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    ko_pool_close(&fixture->pool);
    for (int i = 0; i < 3 * KEPT; i++) {
        close(fixture->owners[i].pipe[0]);
        close(fixture->owners[i].pipe[1]);
    }
    close(fixture->common[0]);
    close(fixture->common[1]);
    free(fixture);
    return 0;
}

/* Enters; puts its pipe in if that is not there. */
static bool enter(struct fixture *fixture, struct owner *owner)
{
    struct ko_event event;
    bool is_new;

    assert_int_equal(ko_pool_enter(&fixture->pool, owner, &owner->pooled, &is_new), KOLO_OK);
    if (!is_new)
        return false;
    assert_int_equal(ko_poller_add(&owner->pooled->poller, owner->pipe[0], KO_POLL_IN, owner),
                     KOLO_OK);
    assert_int_equal(ko_poller_wait(&owner->pooled->poller, 0, &event, 1), 1);
    assert_null(event.owner); /* the first wait returns at once */
    return true;
}

static void leave(struct fixture *fixture, struct owner *owner)
{
    ko_pool_leave(&fixture->pool, owner, owner->pooled);
}

/* What the owner would be told of now. */
static void *look(const struct owner *owner)
{
    struct ko_event event;

    return ko_poller_wait(&owner->pooled->poller, 0, &event, 1) ? event.owner : NULL;
}

static void few_serve_many(void **state)
{
    struct fixture *fixture = *state;
    struct owner *owners = fixture->owners;

    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3 * KEPT; i++) {
            assert_true(enter(fixture, &owners[i]));
            leave(fixture, &owners[i]);
        }
    assert_int_equal(fixture->pool.n, KEPT);
    for (int i = 2 * KEPT; i < 3 * KEPT; i++) { /* those that came last have kept theirs */
        assert_false(enter(fixture, &owners[i]));
        leave(fixture, &owners[i]);
    }
}

static void nobody_loses_one_asleep(void **state)
{
    struct fixture *fixture = *state;
    struct owner *owners = fixture->owners;

    for (int i = 0; i < KEPT + 3; i++)
        assert_true(enter(fixture, &owners[i]));
    assert_int_equal(fixture->pool.n, KEPT + 3); /* more than are kept for nobody */
    leave(fixture, &owners[5]);
    assert_true(enter(fixture, &owners[KEPT + 3]));
    assert_int_equal(fixture->pool.n, KEPT + 3);
    assert_ptr_equal(owners[5].pooled, owners[KEPT + 3].pooled);
    leave(fixture, &owners[5]); /* has no effect on whose it is now */
    assert_true(owners[5].pooled->is_asleep);
    ko_pool_give_back(&fixture->pool, &owners[5], owners[5].pooled);
    assert_ptr_equal(owners[5].pooled->owner, &owners[KEPT + 3]);
}

static void one_that_was_taken_is_empty(void **state)
{
    struct fixture *fixture = *state;
    struct owner *owners = fixture->owners;

    for (int i = 0; i < KEPT; i++) {
        enter(fixture, &owners[i]);
        leave(fixture, &owners[i]);
    }
    assert_int_equal(write(owners[0].pipe[1], "", 1), 1);
    assert_ptr_equal(look(&owners[0]), &owners[0]);
    enter(fixture, &owners[KEPT]); /* takes that of owner 0 */
    assert_ptr_equal(owners[0].pooled, owners[KEPT].pooled);
    assert_null(look(&owners[KEPT]));
    ko_pool_remove(&fixture->pool, &owners[0], owners[0].pooled, owners[KEPT].pipe[0]);
    assert_int_equal(write(owners[KEPT].pipe[1], "", 1), 1);
    assert_ptr_equal(look(&owners[KEPT]), &owners[KEPT]);
    ko_pool_remove(&fixture->pool, &owners[KEPT], owners[KEPT].pooled, owners[KEPT].pipe[0]);
    assert_null(look(&owners[KEPT]));
    assert_int_equal(write(fixture->common[1], "", 1), 1); /* what is in every one still is */
    assert_ptr_equal(look(&owners[KEPT]), fixture);
}

/* Gives back and enters as somebody else: nothing is made, nothing of the old owner's is there. */
static void what_is_given_back_is_used_first(void **state)
{
    struct fixture *fixture = *state;
    struct owner *owners = fixture->owners;

    enter(fixture, &owners[0]);
    enter(fixture, &owners[1]);
    ko_pool_remove(&fixture->pool, &owners[0], owners[0].pooled, owners[0].pipe[0]);
    ko_pool_give_back(&fixture->pool, &owners[0], owners[0].pooled);
    enter(fixture, &owners[2]);
    assert_ptr_equal(owners[2].pooled, owners[0].pooled);
    assert_int_equal(fixture->pool.n, 2);
}

static void wakes_reach_who_sleeps(void **state)
{
    struct fixture *fixture = *state;
    struct owner *owners = fixture->owners;
    struct ko_event event;

    ko_pooled_wake(NULL);
    ko_pool_leave(&fixture->pool, &owners[0], NULL);
    ko_pool_give_back(&fixture->pool, &owners[0], NULL);
    ko_pool_remove(&fixture->pool, &owners[0], NULL, owners[0].pipe[0]);
    for (int i = 0; i < 2; i++)
        enter(fixture, &owners[i]);
    ko_pooled_wake(owners[1].pooled);
    assert_int_equal(ko_poller_wait(&owners[0].pooled->poller, 0, &event, 1), 0);
    assert_int_equal(ko_poller_wait(&owners[1].pooled->poller, 0, &event, 1), 1);
    ko_pool_wake_all(&fixture->pool);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ko_poller_wait(&owners[i].pooled->poller, 0, &event, 1), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(few_serve_many), CASE(nobody_loses_one_asleep), CASE(one_that_was_taken_is_empty),
        CASE(what_is_given_back_is_used_first), CASE(wakes_reach_who_sleeps)};

    return cmocka_run_group_tests_name("poller_pool", tests, NULL, NULL);
}
