/* SPDX-License-Identifier: MIT
 *
 * Ranks that say of themselves what cannot be: every rank ends with one error that names the rank
 * and what is wrong, and none hangs.
 */
#include "clock.h"
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SOON_MS = 5000 };

/* 0 if the error came soon, with all of the text, else ranks_fail. */
static int expect_soon(int64_t began_ns, int err, int code, const char *text)
{
    const int64_t ms = (ko_now_ns() - began_ns) / 1000000;

    return ms > SOON_MS ? ranks_fail("the error took %d ms", (int)ms)
                        : ranks_expect(err, code, text);
}

/* ---- contacts -------------------------------------------------------------------------------- */

/* What rank 0 has put into the store in place of its contact. */
struct forgery {
    void (*forge)(struct ko_contact *contact);
    size_t nbytes; /* 0: a whole contact's */
    const char *says;
};

static void no_latency(struct ko_contact *contact)
{
    contact->costs.links[KO_LOCAL].latency = NAN;
}

static void negative_wake(struct ko_contact *contact)
{
    contact->costs.wake = -1;
}

static void many_cores(struct ko_contact *contact)
{
    contact->costs.cores = 1e9;
}

static void endless_host(struct ko_contact *contact)
{
    memset(contact->host, 'h', sizeof contact->host);
}

static void many_addresses(struct ko_contact *contact)
{
    contact->naddresses = UINT32_MAX;
}

static void other_version(struct ko_contact *contact)
{
    contact->version++;
}

static void nothing(struct ko_contact *contact)
{
    (void)contact;
}

static const struct forgery forgeries[] = {
    {no_latency, 0, "rank 0 published costs (KOLO_TUNING) of which local.latency is "},
    {negative_wake, 0, "rank 0 published costs (KOLO_TUNING) of which wake is -1"},
    {many_cores, 0, "rank 0 published costs (KOLO_TUNING) of which cores is 1e+09"},
    {endless_host, 0, "what stands in the store for rank 0 ("},
    {many_addresses, 0, "rank 0 published 4294967295 addresses"},
    {other_version, 0, "rank 0 speaks version"},
    {other_version, 100, "rank 0 speaks version"},
    {nothing, 100, "what stands in the store for rank 0 (100 bytes) is no contact"},
};

enum { NFORGERIES = sizeof forgeries / sizeof *forgeries };

/* Nobody goes on before it has been done. */
static int plant(kolo_group *group, const struct forgery *forgery)
{
    kolo_store *store = group->endpoint->store;
    struct ko_contact contact = group->endpoint->own;
    void *value;
    size_t nbytes;

    forgery->forge(&contact);
    if (group->rank == 0 &&
        (kolo_store_set(
             store, "rank/0",
             (kolo_bytes){&contact, forgery->nbytes ? forgery->nbytes : sizeof contact}) ||
         kolo_store_set(store, "planted", (kolo_bytes){"", 1})))
        return ranks_fail("nothing was planted");
    if (kolo_store_get(store, "planted", &value, &nbytes))
        return ranks_fail("rank %d waits for what is planted", group->rank);
    kolo_free(value);
    return 0;
}

static int meet_a_forger(kolo_group *group, void *argument)
{
    const struct forgery *forgery = argument;
    int failed = plant(group, forgery);
    const int64_t began = ko_now_ns();
    float value = 1;

    if (failed)
        return failed;
    return expect_soon(began, kolo_all_reduce(group, &value, &value, 1, KOLO_FLOAT32, KOLO_SUM),
                       KOLO_E_PROTOCOL, forgery->says) ||
           expect_soon(began, kolo_barrier(group), KOLO_E_PROTOCOL, forgery->says);
}

/* The one that sends looks the other up; it hears of that. */
static int write_to_a_forger(kolo_group *group, void *argument)
{
    const struct forgery *forgery = argument;
    int failed = plant(group, forgery);
    const int64_t began = ko_now_ns();
    char byte = 0;

    if (failed)
        return failed;
    return expect_soon(began,
                       group->rank ? kolo_send(group, &byte, 1, KOLO_UINT8, 0, 0)
                                   : kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 0),
                       KOLO_E_PROTOCOL, forgery->says);
}

static void run(enum ranks_kind kind, int n, ranks_body body, void *argument)
{
    const struct ranks ranks = {.kind = kind, .n = n};

    assert_int_equal(ranks_run(&ranks, body, argument), 0);
}

static void forged_contacts_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < NFORGERIES; i++) {
        struct forgery forgery = forgeries[i];

        run(RANKS_THREADS, 3, meet_a_forger, &forgery);
        run(RANKS_PROCESSES, 3, meet_a_forger, &forgery);
        run(i % 2 ? RANKS_THREADS : RANKS_PROCESSES, 2, write_to_a_forger, &forgery);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_contacts_are_named),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
