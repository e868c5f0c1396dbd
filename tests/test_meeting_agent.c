/* SPDX-License-Identifier: MIT
 *
 * Groups that meet at a store that others have used: that of a launcher's agent, also with keys
 * that an earlier attempt has left there, and tokens that it does not ask for; and a group's own,
 * joined again while it is being left.
 */
#include "folder.h"
#include "kolo.h"
#include "log.h"
#include "meeting.h"
#include "ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, MANY = 24, PATIENCE_MS = 60000, SHORT_MS = 200, LONG_LEAVING_MS = 2500 };

struct joiner {
    char url[100];
    int err;
    char text[600];
};

static void *join_by_url(void *argument)
{
    struct joiner *joiner = argument;
    kolo_group *group = NULL;

    joiner->err = kolo_group_join(joiner->url, PATIENCE_MS, &group);
    if (!joiner->err)
        joiner->err = kolo_barrier(group);
    if (joiner->err)
        snprintf(joiner->text, sizeof joiner->text, "%s", kolo_last_error());
    kolo_group_free(group);
    return NULL;
}

static void attempts_over_an_agents_store_do_not_meet(void **state)
{
    struct joiner joiners[2] = {0};
    pthread_t threads[2];
    kolo_store *store;
    char port[16], attempt[12];

    (void)state;
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, &store), 0);
    snprintf(port, sizeof port, "%d", kolo_store_port(store));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    for (int i = 0; i < 6; i++) { /* each attempt joins twice */
        snprintf(attempt, sizeof attempt, "%d", i / 2);
        setenv("TORCHELASTIC_RESTART_COUNT", attempt, 1);
        for (int rank = 0; rank < 2; rank++) {
            snprintf(joiners[rank].url, sizeof joiners[rank].url,
                     "tcp://127.0.0.1:%s?rank=%d&world_size=2", port, rank);
            assert_int_equal(pthread_create(&threads[rank], NULL, join_by_url, &joiners[rank]), 0);
        }
        for (int rank = 0; rank < 2; rank++) {
            pthread_join(threads[rank], NULL);
            if (joiners[rank].err)
                fail_msg("rank %d: %s", rank, joiners[rank].text);
        }
    }
    kolo_store_close(store);
    unsetenv("TORCHELASTIC_RESTART_COUNT");
}

/* Without waiting for the others in between, so that ranks meet the store that is being left. */
static void *join_again_and_again(void *argument)
{
    struct joiner *joiner = argument;

    for (int i = 0; i < 5 && !joiner->err; i++)
        join_by_url(joiner);
    return NULL;
}

static void a_group_can_be_joined_again_at_once(void **state)
{
    struct joiner joiners[RANKS] = {0};
    pthread_t threads[RANKS];
    int port = ranks_reserve_port();

    (void)state;
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(joiners[rank].url, sizeof joiners[rank].url,
                 "tcp://127.0.0.1:%d?rank=%d&world_size=%d", port, rank, RANKS);
        assert_int_equal(pthread_create(&threads[rank], NULL, join_again_and_again, &joiners[rank]),
                         0);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        pthread_join(threads[rank], NULL);
        if (joiners[rank].err)
            fail_msg("rank %d: %s", rank, joiners[rank].text);
    }
}

/* As rank 0's of a group whose ranks have left, but for the last. */
static void serve_earlier_group(kolo_store **store)
{
    int64_t n;
    char key[32];

    assert_int_equal(kolo_store_open_tcp("127.0.0.1", ranks_reserve_port(), 1, PATIENCE_MS, store),
                     0);
    for (int rank = 0; rank < MANY; rank++) {
        snprintf(key, sizeof key, "kolo/0/taken/%d", rank);
        assert_int_equal(kolo_store_add(*store, key, 1, &n), 0);
    }
    assert_int_equal(kolo_store_add(*store, "kolo/0/left", MANY - 1, &n), 0);
}

/* Whoever looks at the store as it closes. */
static void a_group_that_is_long_in_leaving_can_be_joined_again(void **state)
{
    struct joiner joiners[MANY] = {0};
    pthread_t threads[MANY];
    kolo_store *earlier;
    int port;

    (void)state;
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    serve_earlier_group(&earlier);
    port = kolo_store_port(earlier);
    for (int i = 0; i < MANY; i++) {
        const int rank = MANY - 1 - i;

        snprintf(joiners[rank].url, sizeof joiners[rank].url,
                 "tcp://127.0.0.1:%d?rank=%d&world_size=%d", port, rank, MANY);
        if (rank == 0) { /* which waits for its own group */
            ranks_nap_ms(LONG_LEAVING_MS);
            kolo_store_close(earlier);
        }
        assert_int_equal(pthread_create(&threads[rank], NULL, join_by_url, &joiners[rank]), 0);
    }
    for (int rank = 0; rank < MANY; rank++) {
        pthread_join(threads[rank], NULL);
        if (joiners[rank].err)
            fail_msg("rank %d: %s", rank, joiners[rank].text);
    }
}

static void an_agent_that_does_not_serve_is_said(void **state)
{
    struct ko_placement placement = {.size = 2, .meeting = KO_MEET_AGENT, .host = "127.0.0.1"};
    ko_deadline deadline = ko_deadline_in(SHORT_MS);
    kolo_store *store;

    (void)state;
    placement.port = ranks_reserve_port();
    assert_int_equal(ko_meeting_open(&placement, &deadline, &store), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "rank 0 does not reach the launcher's store, which "
                                              "TORCHELASTIC_USE_AGENT_STORE promises"));
}

/* PyTorch knows no token. */
static void a_token_that_the_agents_store_does_not_ask_for_is_a_warning(void **state)
{
    struct ko_placement placement = {.size = 2, .meeting = KO_MEET_AGENT, .host = "127.0.0.1"};
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    kolo_store *agent, *store;

    (void)state;
    for (int has_token = 0; has_token < 2; has_token++) {
        assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, PATIENCE_MS, &agent), 0);
        placement.port = kolo_store_port(agent);
        setenv("KOLO_DEBUG", has_token ? "WARN" : "INFO", 1);
        if (has_token)
            setenv("KOLO_AUTH_TOKEN", "a token of some length", 1);
        ko_log_reopen();
        stderr_listen();
        (void)ko_meeting_open(&placement, &deadline, &store);
        stderr_assert(has_token ? "joined without proof of a token, though this job has one"
                                : "is joined without proof of a token");
        kolo_store_close(store);
        kolo_store_close(agent);
    }
    unsetenv("KOLO_AUTH_TOKEN");
    setenv("KOLO_DEBUG", "NONE", 1);
    ko_log_reopen();
}

/* Elsewhere than on the loopback it takes a word. */
static void a_token_that_an_agent_elsewhere_does_not_ask_for_is_refused(void **state)
{
    struct ko_placement placement = {.size = 2, .meeting = KO_MEET_AGENT, .port = 1};
    static const char *const hosts[] = {"0.0.0.0", "no-such-host.invalid"};
    const ko_deadline at_once = ko_deadline_in(SHORT_MS);
    kolo_store *store;

    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        snprintf(placement.host, sizeof placement.host, "%s", hosts[i]);
        setenv("KOLO_AUTH_TOKEN", "the token of this test", 1);
        assert_int_equal(ko_meeting_open(&placement, &at_once, &store), KOLO_E_INVALID);
        assert_non_null(
            strstr(kolo_last_error(), "asks and shows no proof: set KOLO_AUTH_STORE=none"));
        setenv("KOLO_AUTH_STORE", "none", 1);
        assert_int_not_equal(ko_meeting_open(&placement, &at_once, &store), KOLO_E_INVALID);
        unsetenv("KOLO_AUTH_STORE");
        unsetenv("KOLO_AUTH_TOKEN");
        assert_int_not_equal(ko_meeting_open(&placement, &at_once, &store), KOLO_E_INVALID);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempts_over_an_agents_store_do_not_meet),
        cmocka_unit_test(a_group_can_be_joined_again_at_once),
        cmocka_unit_test(a_group_that_is_long_in_leaving_can_be_joined_again),
        cmocka_unit_test(an_agent_that_does_not_serve_is_said),
        cmocka_unit_test(a_token_that_the_agents_store_does_not_ask_for_is_a_warning),
        cmocka_unit_test(a_token_that_an_agent_elsewhere_does_not_ask_for_is_refused),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("meeting at an agent's store", tests, folder_make,
                                       folder_remove);
}
