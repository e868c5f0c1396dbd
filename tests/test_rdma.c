/* SPDX-License-Identifier: MIT
 *
 * What the shared suite cannot ask of rdma: failures of an adapter, each status of a completion,
 * memory that cannot be registered, events, peers that do not keep to the protocol, sleeping. The
 * adapters are those of tests/fakeverbs.
 */
#include "rdma_pair.h"

#include "clock.h"
#include "kolo.h"
#include "memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int forget_wishes(void **state)
{
    static const char *const names[] = {
        "FAKEVERBS_DEVICES", "FAKEVERBS_DOWN",   "FAKEVERBS_BREAK",   "FAKEVERBS_MEMLOCK",
        "FAKEVERBS_LOST",    "FAKEVERBS_STATUS", "FAKEVERBS_EVENT",   "FAKEVERBS_RECV_STATUS",
        "FAKEVERBS_JITTER",  "KOLO_IB_HCA",      "KOLO_IB_GID_INDEX", "KOLO_ENCRYPT"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("KOLO_DEBUG", "NONE", 1);
    return 0;
}

/* ---- failures -------------------------------------------------------------------------------- */

static bool is_loss(int status)
{
    static const int losses[] = {KO_IB_WC_WR_FLUSH_ERR,   KO_IB_WC_REM_INV_REQ_ERR,
                                 KO_IB_WC_REM_ACCESS_ERR, KO_IB_WC_REM_OP_ERR,
                                 KO_IB_WC_RETRY_EXC_ERR,  KO_IB_WC_RNR_RETRY_EXC_ERR,
                                 KO_IB_WC_REM_ABORT_ERR,  KO_IB_WC_RESP_TIMEOUT_ERR};

    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (losses[i] == status)
            return true;
    return false;
}

/* A wire may be open before the other end's word that it is ready has come: until then that word is
 * the first to be received, and not what is sent next. */
static void await_ready(struct ko_wire *wire)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    while (!rdma_pair_of(wire)->in.has_ready) {
        assert_false(ko_deadline_passed(&deadline));
        assert_int_equal(rdma->drive(wire), KOLO_OK);
    }
}

static void try_status(const char *variable, int status, const char *what, bool is_at_sender)
{
    struct rdma_pair pair = rdma_pair_new();
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    char wish[64], number[64];
    const char *const words[] = {what,
                                 "fake0 port 1, GID 3 = ::ffff:127.0.0.1 (RoCE v2) here",
                                 is_at_sender ? "of rank 2 (127.0.0.1:" : "of rank 1 (127.0.0.1:",
                                 ko_ib_status_name(status),
                                 number,
                                 ko_ib_status_cause(status),
                                 NULL};

    snprintf(wish, sizeof wish, "1=%d/77", status);
    snprintf(number, sizeof number, "(%d, vendor error 77)", status);
    await_ready(pair.from);
    setenv(variable, wish, 1);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    rdma_pair_expect(is_at_sender ? pair.from : pair.to,
                     is_loss(status) ? KOLO_E_PEER_LOST : KOLO_E_SYSTEM, words);
    unsetenv(variable);
    rdma_pair_close(&pair);
}

static void every_status_is_told(void **state)
{
    (void)state;
    for (int status = 1; status < KO_IB_NSTATUS; status++)
        try_status("FAKEVERBS_STATUS", status, "sending ended with", true);
    try_status("FAKEVERBS_STATUS", 77, "of no known name", true);
    for (int status = 1; status < KO_IB_NSTATUS; status++)
        try_status("FAKEVERBS_RECV_STATUS", status, "receiving ended with", false);
}

/* Of a long message: what is announced, what is written. */
static void a_write_fails(void **state)
{
    static const char *const words[] = {"writing ended with", "REM_ACCESS_ERR", NULL};
    static unsigned char body[RDMA_SLICE], got[RDMA_SLICE];
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = RDMA_SLICE}, .body = body};
    const struct ko_frame *frame;
    struct rdma_pair pair = rdma_pair_new();
    int err;

    (void)state;
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    while ((err = rdma->next(pair.to, &frame)) == KO_AGAIN)
        continue;
    assert_int_equal(err, KOLO_OK);
    setenv("FAKEVERBS_STATUS", "2=10/5", 1); /* the first is the line */
    assert_int_equal(rdma->land(pair.to, got), KO_AGAIN);
    assert_true(pair.to->is_written_to);
    rdma_pair_expect(pair.from, KOLO_E_PEER_LOST, words);
    assert_false(post.is_queued);
    while ((err = rdma->land(pair.to, got)) == KO_AGAIN)
        rdma->hangup(pair.from), pair.from = NULL, (void)rdma->arm(pair.to);
    assert_int_equal(err, KOLO_E_PEER_LOST);
    assert_false(pair.to->is_written_to);
    rdma_pair_close(&pair);
}

/* Every call of the library's fails once on the way to a wire, and nothing is left behind. */
static void every_call_can_fail(void **state)
{
    static const char *const calls[] = {
        "ibv_open_device", "ibv_alloc_pd",  "ibv_query_port",     "ibv_create_comp_channel",
        "ibv_create_cq",   "ibv_create_qp", "ibv_reg_mr",         "ibv_modify_qp",
        "ibv_post_recv",   "ibv_post_send", "ibv_get_device_list"};

    (void)state;
    rdma_pair_break(calls, sizeof calls / sizeof *calls, 6);
}

static void the_limit_of_locked_memory_is_named(void **state)
{
    struct rdma_pair pair;

    (void)state;
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    setenv("FAKEVERBS_MEMLOCK", "65536", 1);
    assert_int_equal(rdma_pair_open_wire(&pair), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "ulimit -l"));
    rdma_pair_close(&pair);
}

static void packets_that_do_not_arrive(void **state)
{
    static const char *const words[] = {"the first write ended with",
                                        "RETRY_EXC_ERR (12, vendor error 129)", "KOLO_IB_GID_INDEX",
                                        "GID 3 = ::ffff:127.0.0.1 (RoCE v2) of rank", NULL};
    struct rdma_pair pair;

    (void)state;
    setenv("FAKEVERBS_LOST", "3", 1);
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    assert_int_equal(rdma_pair_open_wire(&pair), KOLO_E_SYSTEM);
    for (int i = 0; words[i]; i++)
        assert_non_null(strstr(kolo_last_error(), words[i]));
    rdma_pair_close(&pair);
}

static void two_kinds_of_network(void **state)
{
    static const char *const names[] = {"a0", "b0", "w0", "a0"};

    (void)state;
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:ib,w0:iwarp", 1);
    for (int i = 0; i < 3; i++) {
        struct rdma_pair pair = {.left = NULL};

        setenv("KOLO_IB_HCA", names[i], 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &pair.left), KOLO_OK);
        setenv("KOLO_IB_HCA", names[i + 1], 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &pair.right), KOLO_OK);
        assert_int_equal(rdma_pair_open_wire(&pair), KOLO_E_UNSUPPORTED);
        assert_non_null(strstr(kolo_last_error(), "choose by KOLO_IB_HCA"));
        rdma_pair_close(&pair);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static void an_adapter_fails(void **state)
{
    static const char *const words[] = {"fake0 has failed or been removed", NULL};
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    setenv("FAKEVERBS_EVENT", "1=8", 1);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    rdma_pair_expect(pair.from, KOLO_E_SYSTEM, words);
    rdma_pair_close(&pair);
}

/* As siw tells of it first, if the other end has gone in the meantime. */
static void a_connection_that_has_ended(void **state)
{
    static const char *const lost[] = {"over fake0", "connection has ended", "may be down or gone",
                                       NULL};
    static const char *const other[] = {"over fake0", "Invalid argument", NULL};
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rdma_pair pair = rdma_pair_new();

        setenv("FAKEVERBS_BREAK", i ? "ibv_post_send=22" : "ibv_post_send=107", 1);
        assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
        unsetenv("FAKEVERBS_BREAK");
        rdma_pair_expect(pair.from, i ? KOLO_E_SYSTEM : KOLO_E_PEER_LOST, i ? other : lost);
        rdma_pair_close(&pair);
    }
}

static void a_link_goes_down(void **state)
{
    static const char *const words[] = {"RETRY_EXC_ERR", "after the event port error", NULL};
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    setenv("FAKEVERBS_EVENT", "1=10", 1);
    rdma_pair_pass(&pair, 5);
    (void)rdma->arm(pair.from);
    setenv("FAKEVERBS_STATUS", "1=12/129", 1);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    rdma_pair_expect(pair.from, KOLO_E_PEER_LOST, words);
    rdma_pair_close(&pair);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int count_kept(const struct ko_device *device)
{
    const struct ko_rdma_memory *memory = &((const struct ko_rdma_device *)device)->memory;
    int n = 0;

    for (int i = 0; i < KO_RDMA_KEPT; i++) {
        n += memory->kept[i].segment != NULL;
        if (memory->kept[i].segment)
            assert_int_equal(memory->kept[i].users, 0);
    }
    return n;
}

/* The N-th registration from now on fails, and all later ones: at the sender, at the receiver. */
static void memory_that_cannot_be_registered(void **state)
{
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    for (int at = 1; at < 5; at++) {
        char wish[64];

        snprintf(wish, sizeof wish, "ibv_reg_mr@%d=12", at);
        setenv("FAKEVERBS_BREAK", wish, 1);
        rdma_pair_pass(&pair, RDMA_SLICE);
        rdma_pair_pass(&pair, KO_RDMA_DIRECT);
        rdma_pair_pass(&pair, 3 * KO_RDMA_PART + 1);
    }
    unsetenv("FAKEVERBS_BREAK");
    rdma_pair_pass(&pair, RDMA_SLICE);
    assert_int_equal(count_kept(pair.left), 0);
    rdma_pair_close(&pair);
}

static void shared_memory_is_registered_once(void **state)
{
    enum { NBYTES = 300000, MANY = KO_RDMA_KEPT + 9 };
    struct rdma_pair pair = rdma_pair_new();
    void *body, *got, *more[MANY];

    (void)state;
    assert_int_equal(kolo_mem_alloc(2 * NBYTES, &body), KOLO_OK);
    assert_int_equal(kolo_mem_alloc(NBYTES, &got), KOLO_OK);
    rdma_pair_fill(body, 2 * NBYTES, 3);
    rdma_pair_pass_bytes(pair.from, pair.to, body, got, NBYTES);
    setenv("FAKEVERBS_BREAK", "ibv_reg_mr=12", 1); /* nothing more is registered */
    rdma_pair_pass_bytes(pair.from, pair.to, (unsigned char *)body + NBYTES, got, NBYTES);
    unsetenv("FAKEVERBS_BREAK");
    assert_int_equal(count_kept(pair.left), 1);
    assert_int_equal(count_kept(pair.right), 1);
    assert_int_equal(kolo_mem_free(got), KOLO_OK);
    assert_int_equal(kolo_mem_alloc(NBYTES, &got), KOLO_OK);
    rdma_pair_pass_bytes(pair.from, pair.to, body, got, NBYTES);
    assert_int_equal(count_kept(pair.right), 1); /* what was freed has been let go */
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(kolo_mem_alloc(KO_RDMA_DIRECT, &more[i]), KOLO_OK);
        rdma_pair_pass_bytes(pair.from, pair.to, body, more[i], KO_RDMA_DIRECT);
    }
    assert_int_equal(count_kept(pair.right), KO_RDMA_KEPT);
    for (int i = 0; i < MANY; i++)
        kolo_mem_free(more[i]);
    kolo_mem_free(body);
    kolo_mem_free(got);
    rdma_pair_close(&pair);
}

/* ---- hostile peers --------------------------------------------------------------------------- */

/* Puts a record of `length` bytes in all, whatever its head says, into the next slot. */
static void send_raw(struct ko_wire *wire, const struct ko_rdma_head *head, size_t length)
{
    unsigned char *slot = ko_rdma_slot(rdma_pair_of(wire));

    assert_non_null(slot);
    memset(slot, 0, KO_RDMA_SLOT);
    memcpy(slot, head, sizeof *head);
    ko_rdma_send_slot(rdma_pair_of(wire), length);
    ko_rdma_post_list(rdma_pair_of(wire));
}

static void what_kolo_never_sends(void **state)
{
    const struct ko_frame data = {.kind = KO_FRAME_DATA, .nbytes = 8},
                          longest = {.kind = KO_FRAME_DATA, .nbytes = UINT32_MAX};
    const size_t head = sizeof(struct ko_rdma_head);
    const struct {
        struct ko_rdma_head head;
        size_t length;
    } rows[] = {
        {{.kind = 0}, head},
        {{.kind = 99}, head},
        {{.kind = KO_RDMA_CREDIT}, head - 1},
        {{.kind = KO_RDMA_CREDIT, .credits = 1}, head},
        {{.kind = KO_RDMA_CLEAR}, head},
        {{.kind = KO_RDMA_DONE}, head},
        {{.kind = KO_RDMA_MORE, .nbytes = 8}, head + 8},
        {{.kind = KO_RDMA_FIRST, .nbytes = 8, .frame = {.kind = 77, .nbytes = 8}}, head + 8},
        {{.kind = KO_RDMA_FIRST, .nbytes = 8, .frame = longest}, head + 8},
        {{.kind = KO_RDMA_FIRST, .nbytes = 16, .frame = data}, head + 8},
        {{.kind = KO_RDMA_FIRST, .nbytes = UINT32_MAX, .frame = data}, head + 8}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rdma_pair pair = rdma_pair_new();

        send_raw(pair.from, &rows[i].head, rows[i].length);
        rdma_pair_expect(pair.to, KOLO_E_PROTOCOL, (const char *const[]){"", NULL});
        rdma_pair_close(&pair);
    }
}

/* Parts that do not fit their message are found when it is landed. */
static void parts_that_do_not_fit(void **state)
{
    const struct ko_rdma_head first = {
        .kind = KO_RDMA_FIRST, .nbytes = 16, .frame = {.kind = KO_FRAME_DATA, .nbytes = 24}};
    static const struct ko_rdma_head seconds[] = {{.kind = KO_RDMA_MORE, .nbytes = 16},
                                                  {.kind = KO_RDMA_MORE, .nbytes = 0},
                                                  {.kind = KO_RDMA_FIRST, .nbytes = 8},
                                                  {.kind = KO_RDMA_ASK, .nbytes = 8}};
    const struct ko_frame *frame;
    unsigned char got[24];
    int err;

    (void)state;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        struct rdma_pair pair = rdma_pair_new();

        send_raw(pair.from, &first, ko_rdma_record(16));
        send_raw(pair.from, &seconds[i], ko_rdma_record(seconds[i].nbytes));
        while ((err = rdma->next(pair.to, &frame)) == KO_AGAIN)
            continue;
        assert_int_equal(err, KOLO_OK);
        while ((err = rdma->land(pair.to, got)) == KO_AGAIN)
            continue;
        assert_int_equal(err, KOLO_E_PROTOCOL);
        rdma_pair_close(&pair);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

enum { ROUNDS = 300 };

/* Waits for a message by sleeping alone; false if nobody wakes it. */
static bool sleep_for(struct ko_wire *wire, unsigned char *got)
{
    const struct ko_frame *frame;

    for (;;) {
        struct pollfd entry = {.fd = wire->fd, .events = POLLIN};
        int err = rdma->next(wire, &frame);

        if (!err)
            err = rdma->land(wire, got);
        if (err != KO_AGAIN)
            return !err;
        if (!rdma->arm(wire) && poll(&entry, 1, RDMA_LIMIT_MS) != 1)
            return false;
    }
}

static bool sleep_until_sent(struct ko_wire *wire, const struct ko_post *post)
{
    while (post->is_queued) {
        struct pollfd entry = {.fd = wire->fd, .events = POLLIN};

        if (rdma->drive(wire) ||
            (post->is_queued && !rdma->arm(wire) && poll(&entry, 1, RDMA_LIMIT_MS) != 1))
            return false;
    }
    return true;
}

static bool play(struct ko_wire *wire, bool begins)
{
    unsigned char *body = calloc(1, RDMA_SLICE), *got = malloc(RDMA_SLICE);
    bool is_fine = true;

    for (int i = 0; i < ROUNDS && is_fine; i++) {
        struct ko_post post = {
            .frame = {.kind = KO_FRAME_DATA, .nbytes = i % 50 == 7 ? RDMA_SLICE : (uint32_t)i},
            .body = body};

        if (!begins)
            is_fine = sleep_for(wire, got);
        is_fine = is_fine && !rdma->send(wire, &post) && sleep_until_sent(wire, &post);
        if (begins)
            is_fine = is_fine && sleep_for(wire, got);
    }
    free(body);
    free(got);
    return is_fine;
}

static void *play_second(void *wire)
{
    return play(wire, false) ? wire : NULL;
}

static void nobody_sleeps_through_a_message(void **state)
{
    static const char *const jitters[] = {"0", "300"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct rdma_pair pair = rdma_pair_new();
        pthread_t second;
        void *is_fine;

        setenv("FAKEVERBS_JITTER", jitters[i], 1);
        assert_int_equal(pthread_create(&second, NULL, play_second, pair.to), 0);
        assert_true(play(pair.from, true));
        pthread_join(second, &is_fine);
        assert_non_null(is_fine);
        rdma_pair_close(&pair);
    }
}

static void delays_change_nothing(void **state)
{
    struct rdma_pair pair = rdma_pair_new();

    (void)state;
    setenv("FAKEVERBS_JITTER", "500", 1);
    for (size_t nbytes = 0; nbytes < 3 * KO_RDMA_DIRECT; nbytes = 3 * nbytes + 1)
        rdma_pair_pass(&pair, nbytes);
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void nothing_to_open(void **state)
{
    static const struct {
        const char *variable, *value, *text;
    } rows[] = {{"FAKEVERBS_DEVICES", ",", "no RDMA adapter"},
                {"FAKEVERBS_DOWN", "fake0", "fake0 port 1: its link is not active"},
                {"FAKEVERBS_BREAK", "ibv_query_gid=5", "it has no GID: give its network device"},
                {"KOLO_IB_HCA", "other", "KOLO_IB_HCA does not allow it"},
                {"KOLO_IB_HCA", "^fake0:1", "KOLO_IB_HCA does not allow it"},
                {"KOLO_IB_GID_INDEX", "9", "no GID of index 9"},
                {"KOLO_ENCRYPT", "1", "rdma does not encrypt"}};
    struct ko_device *device;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv(rows[i].variable, rows[i].value, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_E_UNSUPPORTED);
        if (!strstr(kolo_last_error(), rows[i].text))
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), rows[i].text);
        forget_wishes(state);
    }
}

static void the_gid_that_is_wished_for(void **state)
{
    struct ko_device *device;

    (void)state;
    setenv("KOLO_IB_GID_INDEX", "1", 1);
    setenv("KOLO_IB_HCA", "x,fake0:1", 1);
    assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
    assert_int_equal(((struct ko_rdma_device *)device)->adapters[0].port.chosen_gid, 1);
    rdma->close(device);
}

/* A child closes what it has inherited, and its parent does not notice. */
static void a_child_closes(void **state)
{
    struct rdma_pair pair = rdma_pair_new();
    pid_t child;
    int status;

    (void)state;
    rdma_pair_pass(&pair, RDMA_SLICE);
    child = fork();
    if (!child) {
        rdma->close(pair.left);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rdma_pair_pass(&pair, RDMA_SLICE);
    rdma_pair_close(&pair);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(every_status_is_told),
                                       TEST(a_write_fails),
                                       TEST(every_call_can_fail),
                                       TEST(the_limit_of_locked_memory_is_named),
                                       TEST(packets_that_do_not_arrive),
                                       TEST(two_kinds_of_network),
                                       TEST(an_adapter_fails),
                                       TEST(a_connection_that_has_ended),
                                       TEST(a_link_goes_down),
                                       TEST(memory_that_cannot_be_registered),
                                       TEST(shared_memory_is_registered_once),
                                       TEST(what_kolo_never_sends),
                                       TEST(parts_that_do_not_fit),
                                       TEST(nobody_sleeps_through_a_message),
                                       TEST(delays_change_nothing),
                                       TEST(nothing_to_open),
                                       TEST(the_gid_that_is_wished_for),
                                       TEST(a_child_closes)};

    return cmocka_run_group_tests_name("rdma", tests, NULL, NULL);
}
