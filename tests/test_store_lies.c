/* SPDX-License-Identifier: MIT
 *
 * What a client of ours makes of a server that lies: no length, count or byte of its is believed
 * that no honest server would say, nor memory taken for it, and the error names the server.
 */
#include "status.h"
#include "store.h"
#include "store_player.h"
#include "store_text.h"
#include "store_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

static int ask_get(kolo_store *store)
{
    void *value;
    size_t nbytes;

    return kolo_store_get(store, "k", &value, &nbytes);
}

static int ask_multi_get(kolo_store *store)
{
    static const char *const key = "k";
    void *value;
    size_t nbytes;

    return kolo_store_multi_get(store, &key, 1, &value, &nbytes);
}

static int ask_pop(kolo_store *store)
{
    void *value;
    size_t nbytes;

    return kolo_store_queue_pop(store, "k", PLAYER_PATIENCE_MS, &value, &nbytes);
}

static int ask_compare_set(kolo_store *store)
{
    void *value;
    size_t nbytes;

    return kolo_store_compare_set(store, "k", text("v"), text("w"), &value, &nbytes);
}

static int ask_list(kolo_store *store)
{
    char **keys;
    size_t nkeys;

    return kolo_store_list_keys(store, &keys, &nkeys);
}

static int ask_wait(kolo_store *store)
{
    static const char *const key = "k";

    return kolo_store_wait(store, &key, 1, PLAYER_PATIENCE_MS);
}

static int ask_barrier(kolo_store *store)
{
    return kolo_store_barrier(store, "k", 2, PLAYER_PATIENCE_MS);
}

static int ask_check(kolo_store *store)
{
    static const char *const key = "k";
    int is_there;

    return kolo_store_check(store, &key, 1, &is_there);
}

/* Numbers: the most that 64 bits hold, and one more than a value has bytes. */
#define ENDLESS "ffffffffffffffff"
#define TOO_LONG "0100800000000000"

/* What comes in answer, mostly a length and never as many bytes, and what is said of it behind the
 * server's name. Those that wait for the key first are told that it is there. */
static const struct lie {
    int (*ask)(kolo_store *store);
    bool waits;
    const char *hear, *say, *text;
} lies[] = {
    {ask_get, true, "03" K, ENDLESS,
     "get of \"k\": a value of 18446744073709551615 bytes came; 8388608 are the most"},
    {ask_get, true, "03" K, TOO_LONG,
     "get of \"k\": a value of 8388609 bytes came; 8388608 are the most"},
    {ask_multi_get, true, "0a" ONE K, ENDLESS,
     "multi_get of \"k\": an item of 18446744073709551615 bytes came; 8388608 are the most"},
    {ask_multi_get, true, "0a" ONE K, V V, "multi_get of \"k\": more came than was asked for"},
    {ask_pop, true, "0f" K, ONE TOO_LONG,
     "queue_pop of \"k\": a value of 8388609 bytes came; 8388608 are the most"},
    {ask_compare_set, false, "02" K V W, ENDLESS,
     "compare_set of \"k\": a value of 18446744073709551615 bytes came; 8388608 are the most"},
    {ask_list, false, "11", ENDLESS, "list_keys: a list of -1 keys came; 134217728 are the most"},
    {ask_list, false, "11", "0100000800000000",
     "list_keys: a list of 134217729 keys came; 134217728 are the most"},
    {ask_list, false, "11", "0000000800000000" ONE,
     "list_keys: a list came that takes more than 1073741824 bytes"},
    {ask_list, false, "11", ONE TOO_LONG,
     "list_keys: an item of 8388609 bytes came; 8388608 are the most"},
    {ask_list, false, "11", ONE K X, "list_keys: more came than was asked for"},
    {ask_wait, false, "06" ONE K, "02", "wait of \"k\": a wrong answer to a WAIT came"},
    {ask_barrier, false, "12" K TWO, "02", "barrier of \"k\": a wrong answer to a WAIT came"},
    {ask_check, false, "05" ONE K, "02",
     "check of \"k\": the byte 2 came in answer; 0 and 1 are the answers"},
};

/* It is believed nothing that would take memory, and named. */
static void test_lies(void **state)
{
    struct player *player = *state;
    char expected[256];
    kolo_store *store;

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        const struct turn answer = {lies[i].hear, lies[i].say, false};
        const struct turn turns[] = {player_handshake, {"06" ONE K, "00", false}, answer};
        const struct turn at_once[] = {player_handshake, answer};

        player_begin(player, lies[i].waits ? turns : at_once,
                     lies[i].waits ? sizeof turns : sizeof at_once, &store);
        snprintf(expected, sizeof expected, "the store at 127.0.0.1:%d, %s", player->port,
                 lies[i].text);
        assert_int_equal(lies[i].ask(store), KOLO_E_PROTOCOL);
        assert_string_equal(kolo_last_error(), expected);
        player_end(player, store);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {PLAYED(test_lies)};

    return cmocka_run_group_tests_name("store client, lied to", tests, NULL, NULL);
}
