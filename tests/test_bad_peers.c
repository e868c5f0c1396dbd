/* SPDX-License-Identifier: MIT
 *
 * Ranks that say what cannot be, of themselves or of messages: every rank ends with one error that
 * names the rank and what is wrong, and none hangs.
 */
#include "clock.h"
#include "gpu_share.h"
#include "group.h"
#include "mailbox_parts.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return ranks_expect_soon(began,
                             kolo_all_reduce(group, &value, &value, 1, KOLO_FLOAT32, KOLO_SUM),
                             KOLO_E_PROTOCOL, forgery->says) ||
           ranks_expect_soon(began, kolo_barrier(group), KOLO_E_PROTOCOL, forgery->says);
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
    return ranks_expect_soon(began,
                             group->rank ? kolo_send(group, &byte, 1, KOLO_UINT8, 0, 0)
                                         : kolo_recv(group, &byte, 1, KOLO_UINT8, 1, 0),
                             KOLO_E_PROTOCOL, forgery->says);
}

static void run(enum ranks_kind kind, int n, ranks_body body, void *argument)
{
    const struct ranks ranks = {.kind = kind, .n = n, .timeout_ms = 2 * RANKS_SOON_MS};

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

/* ---- messages -------------------------------------------------------------------------------- */

enum { ROOM = 4096, PLACE = sizeof(struct ko_gpu_place), LONG = 8 << 20 };

/* The first slice of a message to rank 0, of tag 1, and what follows. */
struct slices {
    uint8_t op;
    uint64_t count;
    size_t nbytes, rest; /* rest: of a second slice; 0: there is none */
    int tag;             /* that rank 0 waits for */
    const char *says;
};

static const struct slices slices[] = {
    {KO_PLACE, 8, PLACE, 0, 1, "message #2 cannot be one of kolo's"},
    {KO_PLACE, 8, PLACE, 0, 2, "message #2 cannot be one of kolo's"},
    {KO_PLACE, 0, PLACE, 0, 2, "message #2 cannot be one of kolo's"},
    {KO_PLACE, PLACE, PLACE, 0, 2, "message #2 cannot be one of kolo's"},
    {KO_PLACE, ROOM, 0, PLACE, 1, "message #2 cannot be one of kolo's"},
    {KO_PLACE, ROOM, 0, PLACE, 2, "message #2 cannot be one of kolo's"},
    {KO_PLACE | KO_RECEIPT, ROOM, PLACE, 0, 1, "message #2 cannot be one of kolo's"},
    {KO_PLACE | KO_CAPTURED, 8, 0, PLACE, 1, "message #2 cannot be one of kolo's"},
    {KO_PLACE | KO_CAPTURED, 8, PLACE + 1, 0, 2, "a slice of message #2 does not fit it"},
    {4, 100, 100, 0, 1, "message #2 cannot be one of kolo's"},
    {0, UINT64_MAX, 100, 0, 1, "message #2 cannot be one of kolo's"},
    {0, 100, 101, 0, 1, "a slice of message #2 does not fit it"},
    {0, 100, 101, 0, 2, "a slice of message #2 does not fit it"},
    {0, 100, 60, 41, 1, "a slice of message #2 does not fit it"},
    {KO_PLACE, ROOM, PLACE + 1, 0, 1, "a slice of message #2 does not fit it"},
    {KO_PLACE, ROOM, PLACE, 0, 1, "it says where in GPU memory a message lies"},
};

enum { NSLICES = sizeof slices / sizeof *slices };

static int post(struct ko_mailbox *mailbox, const struct slices *planted, size_t nbytes)
{
    static const unsigned char body[ROOM];
    struct ko_link *link = mailbox->channel.ports[0].link;
    struct ko_stamp stamp = {.seq = 2, .count = planted->count};
    int err;

    stamp.call = ko_message_call(1, KOLO_UINT8);
    stamp.op = planted->op;
    ko_biased_lock_take(&mailbox->lock);
    while ((err = link->ops->post(link, &stamp, body, nbytes)) == KO_AGAIN)
        continue;
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

static int send_slices(kolo_group *group, void *argument)
{
    const struct slices *planted = argument;
    unsigned char room[ROOM];
    int64_t began;

    if (ranks_exchange(group))
        return 1;
    began = ko_now_ns();
    if (group->rank == 1 &&
        (post(ko_mailbox_existing(group), planted, planted->nbytes) ||
         (planted->rest && post(ko_mailbox_existing(group), planted, planted->rest))))
        return ranks_fail("nothing was planted");
    return ranks_expect_soon(began,
                             kolo_recv(group, room, ROOM, KOLO_UINT8, !group->rank, planted->tag),
                             KOLO_E_PROTOCOL, planted->says) ||
           ranks_expect(kolo_group_error(group, NULL), KOLO_E_PROTOCOL, "rank 1 (");
}

static void hostile_slices_are_refused(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 2 * NSLICES; i++) {
        struct slices planted = slices[i / 2];

        setenv("KOLO_TRANSPORT", transports[i % 2], 1);
        run(RANKS_THREADS, 2, send_slices, &planted);
        run(RANKS_PROCESSES, 2, send_slices, &planted);
    }
    unsetenv("KOLO_TRANSPORT");
}

/* ---- what is told of messages ---------------------------------------------------------------- */

struct word {
    enum ko_frame_kind kind;
    uint64_t seq, count;
    uint32_t nbytes;
    const char *says;
};

/* Message #1 was short, #2 long and received, #3 is long and is not. */
static const struct word words[] = {
    {KO_FRAME_TAKEN, 0, 0, 0, "it told of message #0, of 3"},
    {KO_FRAME_TAKEN, 4, 0, 0, "it told of message #4, of 3"},
    {KO_FRAME_TAKEN, 1, 0, 0, "it took message #1, which waits for no such word"},
    {KO_FRAME_TAKEN, 2, 0, 0, "it took message #2, which waits for no such word"},
    {KO_FRAME_TAKEN, 3, 0, 0, "it took message #3, which waits for no such word"},
    {KO_FRAME_REFUSE, 3, LONG, 0, "it refused message #3, which fits"},
    {KO_FRAME_RESUME, 3, 0, 8, "it told of a message where there are none"},
};

enum { NWORDS = sizeof words / sizeof *words };

static int tell(struct ko_mailbox *mailbox, const struct word *word)
{
    static const unsigned char body[8];
    struct ko_stamp stamp = {
        .seq = word->seq, .count = word->count, .what = KO_POINT_TO_POINT, .dtype = KOLO_UINT8};
    int err;

    ko_biased_lock_take(&mailbox->lock);
    err = ko_link_tell(mailbox->channel.ports[0].link, word->kind, &stamp, body, word->nbytes);
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

static int send_word(kolo_group *group, void *argument)
{
    unsigned char *bytes = calloc(1, LONG);
    kolo_work *work = NULL;
    kolo_message message;
    int64_t began;
    int found, failed = ranks_exchange(group);

    if (!failed && group->rank)
        failed = kolo_recv(group, bytes, LONG, KOLO_UINT8, 0, 1);
    else if (!failed)
        failed = kolo_send(group, bytes, LONG, KOLO_UINT8, 1, 1) ||
                 kolo_isend(group, bytes, LONG, KOLO_UINT8, 1, 2, &work);
    if (!failed && group->rank) /* once the third is known of here */
        failed = kolo_probe(group, 0, 2, -1, &found, &message) ||
                 tell(ko_mailbox_existing(group), argument);
    if (failed)
        ranks_fail("rank %d before the word", group->rank);
    began = ko_now_ns();
    if (!failed)
        failed = ranks_expect_soon(began,
                                   group->rank ? kolo_recv(group, bytes, 1, KOLO_UINT8, 0, 3)
                                               : kolo_work_wait(work, -1),
                                   KOLO_E_PROTOCOL, ((const struct word *)argument)->says);
    kolo_work_free(work);
    free(bytes);
    return failed;
}

static void words_of_no_message_are_refused(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 2 * NWORDS; i++) {
        struct word word = words[i / 2];

        setenv("KOLO_TRANSPORT", transports[i % 2], 1);
        run(RANKS_THREADS, 2, send_word, &word);
        run(RANKS_PROCESSES, 2, send_word, &word);
    }
    unsetenv("KOLO_TRANSPORT");
}

/* ---- failures -------------------------------------------------------------------------------- */

/* What rank 1 tells of its group's failure; is_stored: by the store. */
struct report {
    int32_t status;
    uint32_t nbytes;
    bool is_endless, is_stored;
    int becomes;
    const char *says;
};

static const struct report reports[] = {
    {12345, sizeof(struct ko_failure), false, false, KOLO_E_PROTOCOL, "it is over"},
    {-1, sizeof(struct ko_failure), false, false, KOLO_E_PROTOCOL, "it is over"},
    {0, sizeof(struct ko_failure), false, false, KOLO_E_PROTOCOL, "it is over"},
    {KOLO_E_INTERNAL, sizeof(struct ko_failure), false, false, KOLO_E_INTERNAL, "it is over"},
    {KOLO_E_ABORTED, sizeof(struct ko_failure), true, false, KOLO_E_ABORTED, "xxxxxxxx"},
    {KOLO_E_ABORTED, 8, false, false, KOLO_E_PROTOCOL, "it told of a failure in 8 bytes"},
    {KOLO_E_ABORTED, 0, false, false, KOLO_E_PROTOCOL, "it told of a failure in 0 bytes"},
    {12345, sizeof(struct ko_failure), false, true, KOLO_E_PROTOCOL, "it is over"},
    {KOLO_E_ABORTED, sizeof(struct ko_failure), true, true, KOLO_E_ABORTED, "xxxxxxxx"},
};

enum { NREPORTS = sizeof reports / sizeof *reports };

static int tell_failure(kolo_group *group, const struct report *report)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    struct ko_failure failure = {.status = report->status, .text = "it is over"};
    char key[40];
    int err;

    if (report->is_endless)
        memset(failure.text, 'x', sizeof failure.text);
    snprintf(key, sizeof key, "failed/%016llx", (unsigned long long)group->id);
    if (report->is_stored)
        return kolo_store_set(group->endpoint->store, key, (kolo_bytes){&failure, report->nbytes});
    ko_biased_lock_take(&mailbox->lock);
    err =
        ko_link_tell(mailbox->channel.ports[0].link, KO_FRAME_FAIL, NULL, &failure, report->nbytes);
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

static int report_failure(kolo_group *group, void *argument)
{
    const struct report *report = argument;
    const int64_t began = ko_now_ns();
    char byte;

    if (ranks_exchange(group) || (group->rank && tell_failure(group, report)))
        return ranks_fail("nothing was planted");
    return ranks_expect_soon(began, kolo_recv(group, &byte, 1, KOLO_UINT8, !group->rank, 1),
                             report->becomes, report->says);
}

static void odd_failures_are_failures(void **state)
{
    static const char *const transports[] = {"shm", "tcp"};

    (void)state;
    for (int i = 0; i < 2 * NREPORTS; i++) {
        struct report report = reports[i / 2];

        setenv("KOLO_TRANSPORT", transports[i % 2], 1);
        run(RANKS_PROCESSES, 2, report_failure, &report);
    }
    unsetenv("KOLO_TRANSPORT");
}

/* ---- answers --------------------------------------------------------------------------------- */

/* What rank 1 says of itself when rank 0 connects. */
struct answer {
    void (*forge)(struct ko_hello *hello);
    const char *says;
};

static void longer_slices(struct ko_hello *hello)
{
    hello->slice_bytes *= 16;
}

static void more_slots(struct ko_hello *hello)
{
    hello->slots++;
}

static void for_another(struct ko_hello *hello)
{
    hello->to = 7;
}

static void from_another(struct ko_hello *hello)
{
    hello->from = 0;
}

static void of_another_group(struct ko_hello *hello)
{
    hello->group++;
}

static void of_another_channel(struct ko_hello *hello)
{
    hello->channel++;
}

static const struct answer answers[] = {
    {longer_slices, "its hello was for rank 0 with 8 slots of 2097152 bytes; this is rank 0"},
    {more_slots, "its hello was for rank 0 with 9 slots of 131072 bytes; this is rank 0"},
    {for_another, "its hello was for rank 7"},
    {from_another, "another rank answered: rank 0"},
    {of_another_group, "another rank answered: rank 1 of another group or channel"},
    {of_another_channel, "another rank answered: rank 1 of another group or channel"},
};

enum { NANSWERS = sizeof answers / sizeof *answers };

/* Answers in the group's place. */
static int answer_wrongly(kolo_group *group, const struct answer *answer)
{
    struct ko_hello hello = {.magic = KO_HELLO_MAGIC,
                             .version = KO_HELLO_VERSION,
                             .group = group->id,
                             .from = 1,
                             .channel = KO_CHANNEL_P2P,
                             .slots = group->endpoint->own.slots,
                             .slice_bytes = group->endpoint->own.slice_bytes};
    const int64_t began = ko_now_ns();
    struct ko_wire *wire = NULL;
    int err = KOLO_OK;

    answer->forge(&hello);
    do {
        ko_endpoint_accept(group->endpoint);
        err = ko_endpoint_claim(group->endpoint, group->id, 0, KO_CHANNEL_P2P, &wire);
    } while (err == KO_AGAIN);
    if (!err)
        err = wire->transport->answer(wire, &hello);
    while (!err && !(err = ko_group_check_store(group)) &&
           ko_now_ns() - began < RANKS_SOON_MS * INT64_C(1000000)) {
        (void)wire->transport->drive(wire);
        ranks_nap_ms(1);
    }
    wire->transport->hangup(wire);
    return err;
}

static int connect_to_a_liar(kolo_group *group, void *argument)
{
    const struct answer *answer = argument;
    const int64_t began = ko_now_ns();
    char byte = 0;

    return ranks_expect_soon(began,
                             group->rank ? answer_wrongly(group, answer)
                                         : kolo_send(group, &byte, 1, KOLO_UINT8, 1, 0),
                             KOLO_E_PROTOCOL, answer->says);
}

static void wrong_answers_are_refused(void **state)
{
    (void)state;
    setenv("KOLO_TRANSPORT", "tcp", 1);
    for (int i = 0; i < NANSWERS; i++) {
        struct answer answer = answers[i];

        run(RANKS_THREADS, 2, connect_to_a_liar, &answer);
        run(RANKS_PROCESSES, 2, connect_to_a_liar, &answer);
    }
    unsetenv("KOLO_TRANSPORT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_contacts_are_named),
        cmocka_unit_test(hostile_slices_are_refused),
        cmocka_unit_test(words_of_no_message_are_refused),
        cmocka_unit_test(odd_failures_are_failures),
        cmocka_unit_test(wrong_answers_are_refused),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
