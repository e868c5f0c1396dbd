/* SPDX-License-Identifier: MIT
 *
 * What a client of ours says to a server of PyTorch and what it makes of the answers, byte by
 * byte: a thread plays the server from a script, so that nothing here rests on our own server.
 */
#include "clock.h"
#include "socket.h"
#include "status.h"
#include "store.h"
#include "store_player.h"
#include "store_text.h"
#include "store_words.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64, PAUSE_MS = 250 }; /* of questions for a key each, and before their answers */

static const struct turn script[] = {
    {"00 cef7853c 0d ffffffff", "ffffffff", false},
    {"01" K V "0d", "", true},
    {"06" ONE K, "00", false}, /* get is WAIT, then GET */
    {"03" K, V, false},
    {"04" N "f9ffffffffffffff", "f9ffffffffffffff", false},
    {"04" INIT ONE, TWO, false},
    {"02" K V W, W, false},
    {"05" TWO K X, "01", false},
    {"06" TWO K X, "00", false},
    {"07", "0300000000000000", false},
    {"08" K, ONE, false},
    {"09" K V "0d", "", true},
    {"06" TWO N K, "00", false}, /* multi_get is WAIT, then MULTI_GET */
    {"0a" TWO N K, "0200000000000000 2d37" V, false},
    {"0b" TWO A EMPTY B W "0d", "", true},
    {"0e" X V "0d", "", true},
    {"10" X, TWO, false},
    {"06" ONE X, "00", false}, /* queue_pop is WAIT, then QUEUE_POP */
    {"0f" X, TWO V, false},
    {"11", TWO INIT K, false}, /* whose key has no "/" is PyTorch's */
    {"12" B TWO, "00", false},
    {"06" ONE X, "", false}, /* a wait that ends by its time-out is cancelled */
    {"0c", "01", false},
    {"05" ONE X, "01", false},
    {"06" ONE X, "", false}, /* and one whose key comes just then has been answered */
    {"0c", "00 01", false},
    {"12" B TWO, "", false},
    {"0c", "01", false},
    {"04" B EMPTY, ONE, false},
};
static const struct turn cancelled = {"0c", "01", false};

/* Of a server that has VALIDATE and no PING. */
static const struct turn without_ping[] = {
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"06", HANG_UP, false}, /* 1.13 would count its keys */
    {"00 cef7853c 07", ONE, false},
    {"0d ffffffff", HANG_UP, false}, /* it is no later one that was busy */
    {"00 cef7853c 07", ONE, false},
    {"01" K V "07", TWO, false},
    {"09" K V "07", TWO, false},
    {"05" ONE K, "00", false},
    {"0b" TWO A EMPTY B W "07", TWO, false},
};

/* Of one of 2.1, which hangs up at VALIDATE. */
static const struct turn of_2_1[] = {
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"06", ONE, false},
    {"0b", "01", false},
    {"00" K V "06", TWO, false},
    {"08" K V "06", TWO, false},
    {"04" ONE K, "00", false},
    {"0a" TWO A EMPTY B W "06", TWO, false},
    {"05" TWO A B, "00", false},
    {"09" TWO A B, EMPTY W, false},
    {"05" ONE X, "", false}, /* a wait that ends by its time-out is taken back */
    {"0b", "01", false},
    {"04" ONE X, "01", false},
    {"07" K, ONE, false},
};

/* Of one of 1.13 or 2.0, which hangs up at what is of 2.1. */
static const struct turn of_1_13[] = {
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"00 cef7853c 0d ffffffff", HANG_UP, false},
    {"06", ONE, false},
    {"0b", HANG_UP, false},
    {"06", ONE, false}, /* which it is not asked for again */
    {"00" K V "06", TWO, false},
    {"04" ONE K, "00", false},
    {"00" A EMPTY "06", TWO, false}, /* multi_set */
    {"00" B W "06", TWO, false},
    {"08" K, ONE, false},
};

/* Lets a wait for keys of 5 bytes run out, and answers each 64 questions that follow after a while:
 * all of the keys are there but "/0007". */
static void *play_late(void *argument)
{
    enum { CHECK_BYTES = 1 + 8 + 8 + 5, ABSENT = 7 };
    struct player *player = argument;
    ko_deadline deadline = ko_deadline_in(PLAYER_PATIENCE_MS);
    uint8_t got[CHUNK * CHECK_BYTES], answers[CHUNK] = {[ABSENT] = 1};
    int fd = player_accept(player, &deadline);
    bool is_heard = player_turn(fd, &script[0], &deadline);

    for (size_t left = 1 + 8 + (size_t)player->nkeys * (8 + 5), n; is_heard && left; left -= n) {
        n = left < sizeof got ? left : sizeof got;
        is_heard = !ko_socket_recv_all(fd, got, n, &deadline);
    }
    is_heard = is_heard && player_turn(fd, &cancelled, &deadline);
    while (is_heard && player->nplayed < player->nkeys) {
        is_heard = !ko_socket_recv_all(fd, got, sizeof got, &deadline);
        usleep(PAUSE_MS * 1000);
        is_heard = is_heard && !ko_socket_send_all(fd, answers, sizeof answers, &deadline);
        player->nplayed += is_heard ? CHUNK : 0;
        answers[ABSENT] = 0;
    }
    close(fd);
    return NULL;
}

static void assert_text(void *value, size_t nbytes, const char *expected)
{
    assert_int_equal(nbytes, strlen(expected));
    assert_string_equal(value, expected);
    kolo_free(value);
}

static void assert_gets(kolo_store *store, const char *key, const char *expected)
{
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_get(store, key, &value, &nbytes), KOLO_OK);
    assert_text(value, nbytes, expected);
}

static void assert_pops(kolo_store *store, const char *key, const char *expected)
{
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_queue_pop(store, key, PLAYER_PATIENCE_MS, &value, &nbytes),
                     KOLO_OK);
    assert_text(value, nbytes, expected);
}

static void use_values(kolo_store *store)
{
    static const char *const keys[] = {"k", "x"};
    void *value;
    size_t nbytes;
    int64_t number;
    int is_true;

    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
    assert_gets(store, "k", "v");
    assert_int_equal(kolo_store_add(store, "n", -7, &number), KOLO_OK);
    assert_int_equal(number, -7);
    assert_int_equal(kolo_store_count_in(store, &number), KOLO_OK);
    assert_int_equal(number, 2);
    assert_int_equal(kolo_store_compare_set(store, "k", text("v"), text("w"), &value, &nbytes),
                     KOLO_OK);
    assert_text(value, nbytes, "w");
    assert_int_equal(kolo_store_check(store, keys, 2, &is_true), KOLO_OK);
    assert_false(is_true);
    assert_int_equal(kolo_store_wait(store, keys, 2, PLAYER_PATIENCE_MS), KOLO_OK);
    assert_int_equal(kolo_store_num_keys(store, &number), KOLO_OK);
    assert_int_equal(number, 3);
    assert_int_equal(kolo_store_delete(store, "k", &is_true), KOLO_OK);
    assert_true(is_true);
    assert_int_equal(kolo_store_append(store, "k", text("v")), KOLO_OK);
}

static void use_several(kolo_store *store)
{
    static const char *const asked[] = {"n", "k"}, *const set[] = {"a", "b"};
    const kolo_bytes values[] = {{"", 0}, {"w", 1}};
    void *got[2];
    size_t nbytes[2];

    assert_int_equal(kolo_store_multi_get(store, asked, 2, got, nbytes), KOLO_OK);
    assert_text(got[0], nbytes[0], "-7");
    assert_text(got[1], nbytes[1], "v");
    assert_int_equal(kolo_store_multi_set(store, set, values, 2), KOLO_OK);
}

static void use_queues(kolo_store *store)
{
    size_t nkeys;
    int64_t number;
    char **keys;

    assert_int_equal(kolo_store_queue_push(store, "x", text("v")), KOLO_OK);
    assert_int_equal(kolo_store_queue_len(store, "x", &number), KOLO_OK);
    assert_int_equal(number, 2);
    assert_pops(store, "x", "v");
    assert_int_equal(kolo_store_list_keys(store, &keys, &nkeys), KOLO_OK);
    assert_int_equal(nkeys, 1);
    assert_string_equal(keys[0], "k");
    kolo_free(keys);
    assert_int_equal(kolo_store_barrier(store, "b", 2, PLAYER_PATIENCE_MS), KOLO_OK);
}

static void run_out_of_time(kolo_store *store)
{
    static const char *const keys[] = {"x"};

    assert_int_equal(kolo_store_wait(store, keys, 1, 1), KOLO_E_TIMEOUT);
    assert_int_equal(kolo_store_wait(store, keys, 1, 1), KOLO_OK);
    assert_int_equal(kolo_store_barrier(store, "b", 2, 1), KOLO_E_TIMEOUT);
}

static void test_all(void **state)
{
    kolo_store *store;

    player_begin(*state, script, sizeof script, &store);
    use_values(store);
    use_several(store);
    use_queues(store);
    run_out_of_time(store);
    player_end(*state, store);
}

/* A key that is deleted between the WAIT and the GET has an empty value then, and is waited for
 * again; one that has an empty value is believed at the second time. */
static const struct turn deleted_between[] = {
    {"00 cef7853c 0d ffffffff", "ffffffff", false},
    {"06" ONE K, "00", false},
    {"03" K, EMPTY, false},
    {"05" ONE K, "01", false},
    {"06" ONE K, "00", false},
    {"03" K, V, false},
    {"06" ONE A, "00", false},
    {"03" A, EMPTY, false},
    {"05" ONE A, "00", false},
    {"06" ONE A, "00", false},
    {"03" A, EMPTY, false},
};

static void test_deleted_between(void **state)
{
    kolo_store *store;

    player_begin(*state, deleted_between, sizeof deleted_between, &store);
    assert_gets(store, "k", "v");
    assert_gets(store, "a", "");
    player_end(*state, store);
}

/* What has a value, and nothing to pop, is no queue; one that another client has emptied is waited
 * for again. */
static const struct turn no_queue[] = {
    {"00 cef7853c 0d ffffffff", "ffffffff", false},
    {"06" ONE X, "00", false},
    {"0f" X, EMPTY, false},
    {"03" X, EMPTY, false},
    {"06" ONE X, "00", false},
    {"0f" X, ONE V, false},
    {"06" ONE K, "00", false},
    {"0f" K, EMPTY, false},
    {"03" K, V, false},
};

static void test_no_queue(void **state)
{
    kolo_store *store;
    void *value;
    size_t nbytes;

    player_begin(*state, no_queue, sizeof no_queue, &store);
    assert_pops(store, "x", "v");
    assert_int_equal(kolo_store_queue_pop(store, "k", PLAYER_PATIENCE_MS, &value, &nbytes),
                     KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(), "queue_pop of key \"k\": it has a value, not a queue");
    player_end(*state, store);
}

static void set_several(kolo_store *store)
{
    static const char *const keys[] = {"a", "b"};
    const kolo_bytes values[] = {text(""), text("w")};

    assert_int_equal(kolo_store_multi_set(store, keys, values, 2), KOLO_OK);
}

static void assert_lacks_queues(kolo_store *store, const char *release)
{
    char expected[64];

    snprintf(expected, sizeof expected, " is served by %s, which has no ", release);
    assert_int_equal(kolo_store_queue_push(store, "x", text("v")), KOLO_E_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), expected));
}

static void assert_there(kolo_store *store, const char *key)
{
    int is_there;

    assert_int_equal(kolo_store_check(store, &key, 1, &is_there), KOLO_OK);
    assert_true(is_there);
}

/* PyTorch 2.2 to 2.4. */
static void test_without_ping(void **state)
{
    kolo_store *store;

    player_begin(*state, without_ping, sizeof without_ping, &store);
    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
    assert_int_equal(kolo_store_append(store, "k", text("v")), KOLO_OK);
    assert_there(store, "k");
    set_several(store);
    assert_lacks_queues(store, "an early PyTorch 2");
    player_end(*state, store);
}

static void test_2_1(void **state)
{
    static const char *const keys[] = {"a", "b", "x"};
    kolo_store *store;
    void *values[2];
    size_t nbytes[2];
    int was_there;

    player_begin(*state, of_2_1, sizeof of_2_1, &store);
    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
    assert_int_equal(kolo_store_append(store, "k", text("v")), KOLO_OK);
    assert_there(store, "k");
    set_several(store);
    assert_int_equal(kolo_store_multi_get(store, keys, 2, values, nbytes), KOLO_OK);
    assert_text(values[0], nbytes[0], "");
    assert_text(values[1], nbytes[1], "w");
    assert_int_equal(kolo_store_wait(store, keys + 2, 1, 1), KOLO_E_TIMEOUT);
    assert_int_equal(kolo_store_delete(store, "k", &was_there), KOLO_OK);
    assert_true(was_there);
    assert_lacks_queues(store, "an early PyTorch 2");
    player_end(*state, store);
}

static void test_1_13(void **state)
{
    kolo_store *store;
    int was_there;

    player_begin(*state, of_1_13, sizeof of_1_13, &store);
    assert_int_equal(kolo_store_set(store, "k", text("v")), KOLO_OK);
    assert_there(store, "k");
    set_several(store);
    assert_int_equal(kolo_store_delete(store, "k", &was_there), KOLO_OK);
    assert_true(was_there);
    assert_lacks_queues(store, "PyTorch 1.13 or 2.0");
    player_end(*state, store);
}

/* A wait for nkeys keys of a server that is late; how many of them it was still asked for. */
static int wait_late(struct player *player, int nkeys, int timeout_ms)
{
    enum { MOST = 40 * CHUNK };
    static char names[MOST][12];
    const char *keys[MOST];
    kolo_store *store;

    player->nkeys = nkeys;
    for (int i = 0; i < nkeys; i++) {
        snprintf(names[i], sizeof names[i], "%04d", i);
        keys[i] = names[i];
    }
    assert_int_equal(pthread_create(&player->thread, NULL, play_late, player), 0);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", player->port, 0, PLAYER_PATIENCE_MS, &store),
                     KOLO_OK);
    assert_int_equal(kolo_store_wait(store, keys, (size_t)nkeys, timeout_ms), KOLO_E_TIMEOUT);
    kolo_store_close(store);
    pthread_join(player->thread, NULL);
    return player->nplayed;
}

/* It takes longer than one grace, and less than the wait had. */
static void missing_key_of_many(void **state)
{
    assert_int_equal(wait_late(*state, 5 * CHUNK, 4000), 5 * CHUNK);
    assert_non_null(strstr(kolo_last_error(), " 1 of 320 keys that nobody has set: 0007 ("));
}

/* It would take ten seconds. */
static void too_late_to_tell(void **state)
{
    assert_in_range(wait_late(*state, 40 * CHUNK, 100), 0, 39 * CHUNK);
    assert_non_null(strstr(kolo_last_error(),
                           " 2560 keys, and was not told in time which of them nobody has set: "));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {PLAYED(test_all),
                                              PLAYED(test_without_ping),
                                              PLAYED(test_2_1),
                                              PLAYED(test_deleted_between),
                                              PLAYED(test_no_queue),
                                              PLAYED(test_1_13),
                                              PLAYED(missing_key_of_many),
                                              PLAYED(too_late_to_tell)};

    return cmocka_run_group_tests_name("store client, byte by byte", tests, NULL, NULL);
}
