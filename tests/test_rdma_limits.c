/* SPDX-License-Identifier: MIT
 *
 * Adapters that are there and have nothing for this process, or too little. They are those of
 * tests/fakeverbs.
 */
#include "rdma_pair.h"

#include "kolo.h"
#include "memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char log_path[] = "/tmp/test-rdma-log-XXXXXX";

static int forget_wishes(void **state)
{
    static const char *const names[] = {"FAKEVERBS_DEVICES", "FAKEVERBS_BREAK",
                                        "FAKEVERBS_MEMLOCK", "FAKEVERBS_EVENT",
                                        "KOLO_IB_HCA",       "KOLO_IB_QPS_PER_CONNECTION"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    return truncate(log_path, 0);
}

static int count_logged(const char *words)
{
    return rdma_pair_count_lines(log_path, words);
}

static void expect_text(const char *words)
{
    if (!strstr(kolo_last_error(), words))
        fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), words);
}

/* What the double counts begins anew with another text. */
static void break_now(const char *wish)
{
    static int times;
    char text[128];

    snprintf(text, sizeof text, "%s,none@%d=1", wish, ++times);
    setenv("FAKEVERBS_BREAK", text, 1);
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* No descriptors are left, a cgroup does not let it: as if it were not there, with a warning. */
static void an_adapter_that_cannot_be_used(void **state)
{
    static const struct {
        const char *wish, *text;
    } rows[] = {{"ibv_open_device=13", "fake0 cannot be opened: Permission denied"},
                {"ibv_open_device@2=24", "fake0 cannot be opened: Too many open files"},
                {"ibv_alloc_pd=12", "fake0 gives no protection domain: Cannot allocate memory"}};
    struct ko_device *device;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv("FAKEVERBS_BREAK", rows[i].wish, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_E_UNSUPPORTED);
        expect_text(rows[i].text);
        assert_int_equal(count_logged(rows[i].text), 1);
        forget_wishes(state);
    }
}

/* A wish for an adapter that is not there is not passed over in silence. */
static void names_of_nobody(void **state)
{
    static const struct {
        const char *names, *text;
        int status;
    } rows[] = {{"mlx5_typo", "KOLO_IB_HCA does not allow it", KOLO_E_UNSUPPORTED},
                {"fake0,mlx5_typo", "KOLO_IB_HCA names mlx5_typo, and there is no", KOLO_OK},
                {"fake0:2,fake0:1", "KOLO_IB_HCA names fake0:2, and there is no", KOLO_OK},
                {"^mlx5_typo", "KOLO_IB_HCA names mlx5_typo, and there is no", KOLO_OK},
                {"fake0,fake0:1,", NULL, KOLO_OK}};
    struct ko_device *device;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv("KOLO_IB_HCA", rows[i].names, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), rows[i].status);
        if (!rows[i].status)
            rdma->close(device);
        assert_int_equal(count_logged(rows[i].text ? rows[i].text : "KOLO_IB_HCA"),
                         rows[i].text != NULL);
        forget_wishes(state);
    }
}

/* Nor is one for queue pairs that iWARP cannot have: it is warned of where it was wished, once. */
static void queue_pairs_that_iwarp_lacks(void **state)
{
    static const struct {
        const char *device, *qps;
        int warnings, nrails;
    } rows[] = {{"fake0:iwarp", "3", 1, 1}, {"fake0:iwarp", "1", 0, 1}, {"fake0:roce", "3", 0, 3}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rdma_pair pair;

        setenv("FAKEVERBS_DEVICES", rows[i].device, 1);
        setenv("KOLO_IB_QPS_PER_CONNECTION", rows[i].qps, 1);
        pair = rdma_pair_new();
        rdma_pair_pass(&pair, RDMA_SLICE);
        assert_int_equal(rdma_pair_of(pair.from)->nrails, rows[i].nrails);
        rdma_pair_close(&pair);
        /* of either end's device */
        assert_int_equal(count_logged("KOLO_IB_QPS_PER_CONNECTION=3 has no effect over iWARP"),
                         2 * rows[i].warnings);
        forget_wishes(state);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { SLOT_BYTES = KO_RDMA_WIRE_BYTES, KEPT_BYTES = 256 << 10 };

static int count_kept(const struct ko_device *device)
{
    const struct ko_rdma_memory *memory = &((const struct ko_rdma_device *)device)->memory;
    int n = 0;

    for (int i = 0; i < KO_RDMA_KEPT; i++)
        n += memory->kept[i].segment != NULL;
    return n;
}

static bool is_kept(const struct ko_device *device, const void *at)
{
    const struct ko_rdma_memory *memory = &((const struct ko_rdma_device *)device)->memory;

    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (memory->kept[i].segment && memory->kept[i].segment->memory <= at &&
            (const char *)at <
                (const char *)memory->kept[i].segment->memory + memory->kept[i].segment->nbytes)
            return true;
    return false;
}

/* What has been sent once is not in the way of a connection, nor of other memory. */
static void what_is_kept_makes_room(void **state)
{
    struct rdma_pair pair = rdma_pair_new(), second;
    char limit[32];
    void *body[3], *got = malloc(KEPT_BYTES);

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kolo_mem_alloc(KEPT_BYTES, &body[i]), KOLO_OK);
        rdma_pair_fill(body[i], KEPT_BYTES, (unsigned)i);
    }
    rdma_pair_pass_bytes(pair.from, pair.to, body[0], got, KEPT_BYTES);
    assert_int_equal(count_kept(pair.left), 1);
    setenv("FAKEVERBS_MEMLOCK", "1", 1);
    rdma_pair_pass_bytes(pair.from, pair.to, body[0], got, KEPT_BYTES); /* it is known */
    snprintf(limit, sizeof limit, "%d", 2 * SLOT_BYTES + KEPT_BYTES + (64 << 10));
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    rdma_pair_pass_bytes(pair.from, pair.to, body[1], got, KEPT_BYTES); /* in place of the first */
    assert_int_equal(count_kept(pair.left), 1);
    assert_true(is_kept(pair.left, body[1]));
    snprintf(limit, sizeof limit, "%d", 3 * SLOT_BYTES);
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    second = (struct rdma_pair){.left = pair.left, .right = pair.right};
    assert_int_equal(rdma_pair_begin(&second), KOLO_OK);
    assert_int_equal(count_kept(pair.left), 0);
    snprintf(limit, sizeof limit, "%d", 4 * SLOT_BYTES);
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    assert_int_equal(rdma_pair_end(&second), KOLO_OK);
    rdma_pair_pass_bytes(second.from, second.to, body[2], got, KEPT_BYTES); /* by slots */
    rdma->hangup(second.from);
    rdma->hangup(second.to);
    rdma_pair_close(&pair);
    for (int i = 0; i < 3; i++)
        kolo_mem_free(body[i]);
    free(got);
}

static int count_registrations(void)
{
    int (*count)(void);

    *(void **)&count = rdma_pair_find("fakeverbs_registrations");
    return count();
}

static uint64_t written(void)
{
    uint64_t (*sent)(const char *);

    *(void **)&sent = rdma_pair_find("fakeverbs_sent");
    return sent("fake0");
}

/* Sends n messages of KEPT_BYTES out of one segment; returns how many registrations that took. */
static int send_out_of(struct rdma_pair *pair, unsigned char *segment, unsigned char *got, int n)
{
    const int before = count_registrations();

    for (int i = 0; i < n; i++)
        rdma_pair_pass_bytes(pair->from, pair->to, segment + (size_t)i * KEPT_BYTES, got,
                             KEPT_BYTES);
    return count_registrations() - before;
}

/* Memory that is too long to be registered as a whole is registered part by part: nobody is warned
 * of slots before they are used, the whole is not tried again before there is more room, and
 * nothing makes room for it. */
static void a_segment_that_is_too_long(void **state)
{
    enum { PARTS = 36, SMALL = KO_RDMA_KEPT * KO_RDMA_DIRECT };
    struct rdma_pair pair = rdma_pair_new();
    unsigned char *got = malloc(KEPT_BYTES);
    const uint64_t before = written();
    char limit[32];
    void *segment, *small[KO_RDMA_KEPT];

    (void)state;
    for (int i = 0; i < KO_RDMA_KEPT; i++) {
        assert_int_equal(kolo_mem_alloc(KO_RDMA_DIRECT, &small[i]), KOLO_OK);
        rdma_pair_pass_bytes(pair.from, pair.to, small[i], got, KO_RDMA_DIRECT);
    }
    assert_int_equal(kolo_mem_alloc((size_t)PARTS * KEPT_BYTES, &segment), KOLO_OK);
    rdma_pair_fill(segment, (size_t)PARTS * KEPT_BYTES, 1);
    snprintf(limit, sizeof limit, "%d", 2 * SLOT_BYTES + SMALL + 6 * KEPT_BYTES);
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    (void)send_out_of(&pair, segment, got, PARTS);
    assert_int_equal(written() - before, SMALL + PARTS * KEPT_BYTES +
                                             (KO_RDMA_KEPT + PARTS) * sizeof(struct ko_rdma_line));
    for (int i = 0; i < KO_RDMA_KEPT; i++)
        assert_true(is_kept(pair.left, small[i]));
    assert_int_equal(kolo_mem_free(small[0]), KOLO_OK);
    assert_int_equal(send_out_of(&pair, segment, got, PARTS), 2 * PARTS + 1);
    for (int i = 1; i < KO_RDMA_KEPT; i++)
        assert_int_equal(kolo_mem_free(small[i]), KOLO_OK);
    assert_int_equal(send_out_of(&pair, segment, got, PARTS), PARTS + 1);
    assert_int_equal(count_logged("cannot be registered"), 0);
    setenv("FAKEVERBS_MEMLOCK", "1", 1);
    (void)send_out_of(&pair, segment, got, 2);
    assert_int_equal(count_logged("262144 bytes cannot be registered with fake0"), 1);
    rdma_pair_close(&pair);
    kolo_mem_free(segment);
    free(got);
}

/* ---- wires without queue pairs --------------------------------------------------------------- */

static struct rdma_pair open_devices(bool left_has_tcp, bool right_has_tcp)
{
    struct ko_site left = rdma_pair_site, right = rdma_pair_site;
    struct rdma_pair pair = {.left = NULL};

    left.has_tcp = left_has_tcp;
    right.has_tcp = right_has_tcp;
    assert_int_equal(rdma->open(&left, &pair.left), KOLO_OK);
    assert_int_equal(rdma->open(&right, &pair.right), KOLO_OK);
    return pair;
}

static bool is_plain(const struct ko_wire *wire)
{
    return wire->transport != rdma;
}

/* Sleeps until a message has come, and lands it. */
static void sleep_for_one(struct ko_wire *wire, void *to)
{
    const struct ko_frame *frame;
    int err;

    while ((err = wire->transport->next(wire, &frame)) == KO_AGAIN) {
        struct pollfd entry = {.fd = wire->fd, .events = POLLIN};

        assert_int_equal(wire->wanted, KO_POLL_IN);
        assert_int_equal(poll(&entry, 1, RDMA_LIMIT_MS), 1);
    }
    assert_int_equal(err, KOLO_OK);
    while ((err = wire->transport->land(wire, to)) == KO_AGAIN)
        continue;
    assert_int_equal(err, KOLO_OK);
}

static void talk(struct rdma_pair *pair)
{
    static unsigned char got[RDMA_SLICE];
    struct pollfd entry = {.fd = pair->to->fd, .events = POLLIN};
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    const struct ko_frame *frame;
    int err;

    for (size_t nbytes = 0; nbytes <= RDMA_SLICE; nbytes = 4 * nbytes + 4)
        rdma_pair_pass(pair, nbytes);
    rdma_pair_pass(pair, RDMA_SLICE);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll(&entry, 1, 0), 0); /* nobody is kept awake */
        assert_int_equal(pair->from->transport->send(pair->from, &post), KOLO_OK);
        sleep_for_one(pair->to, got);
    }
    while ((err = pair->from->transport->deliver(pair->from)) == KO_AGAIN)
        continue;
    assert_int_equal(err, KOLO_OK);
    rdma->hangup(pair->from);
    pair->from = NULL;
    while ((err = pair->to->transport->next(pair->to, &frame)) == KO_AGAIN)
        assert_int_equal(poll(&entry, 1, RDMA_LIMIT_MS), 1);
    assert_int_equal(err, KOLO_E_PEER_LOST);
    rdma->hangup(pair->to);
    pair->to = NULL;
}

/* Whichever end it is that lacks something, and whatever: both talk over tcp, and it is said once.
 */
static void no_room_for_a_wire(void **state)
{
    static const char *const wishes[] = {
        "ibv_reg_mr=12",        "ibv_reg_mr@1-1=12",    "ibv_reg_mr@2-2=12",
        "ibv_reg_mr@3-3=12",    "ibv_reg_mr@4-4=12",    "ibv_create_qp=12",
        "ibv_create_cq@1-1=12", "ibv_create_cq@2-2=12", "ibv_create_comp_channel@2-2=24"};
    static const char *const devices[] = {"fake0:roce", "fake0:ib", "fake0:iwarp"};

    for (size_t i = 0; i < 3 * sizeof wishes / sizeof *wishes; i++) {
        struct rdma_pair pair;

        setenv("FAKEVERBS_DEVICES", devices[i % 3], 1);
        pair = open_devices(true, true);
        break_now(wishes[i / 3]);
        assert_int_equal(rdma_pair_open_wire(&pair), KOLO_OK);
        assert_true(is_plain(pair.from) && is_plain(pair.to));
        talk(&pair);
        unsetenv("FAKEVERBS_BREAK");
        assert_int_equal(rdma_pair_open_wire(&pair), KOLO_OK);
        assert_false(is_plain(pair.from) || is_plain(pair.to));
        rdma_pair_pass(&pair, RDMA_SLICE);
        assert_int_equal(count_logged("connections go over tcp"), 1);
        rdma_pair_close(&pair);
        forget_wishes(state);
    }
}

/* The second wire has room, and messages go by both; a third warns no more. */
static void one_warning(void **state)
{
    struct rdma_pair pair = open_devices(true, true), more[3];

    (void)state;
    setenv("FAKEVERBS_MEMLOCK", "65536", 1);
    for (int i = 0; i < 3; i++) {
        more[i] = (struct rdma_pair){.left = pair.left, .right = pair.right};
        if (i == 1)
            unsetenv("FAKEVERBS_MEMLOCK");
        assert_int_equal(rdma_pair_open_wire(&more[i]), KOLO_OK);
        if (i == 1)
            setenv("FAKEVERBS_MEMLOCK", "65536", 1);
        assert_int_equal(is_plain(more[i].from), i != 1);
    }
    assert_int_equal(count_logged("394240 bytes of slots cannot be registered"), 1);
    for (int i = 0; i < 3; i++)
        rdma_pair_pass(&more[i], 100000);
    for (int i = 0; i < 3; i++) {
        rdma->hangup(more[i].from);
        rdma->hangup(more[i].to);
    }
    rdma_pair_close(&pair);
}

/* KOLO_TRANSPORT may be another at the other end, which then says what is the matter. */
static void tcp_is_not_allowed(void **state)
{
    static const struct {
        const char *wish, *text;
        bool left, right;
    } rows[] = {{"ibv_reg_mr@1-1=12", "slots cannot be registered", false, true},
                {"ibv_reg_mr@1-1=12", "rank 1 has no room for a connection", true, false},
                {"ibv_reg_mr@3-3=12", "slots cannot be registered", true, false},
                {"ibv_reg_mr@3-3=12", "rank 2 has no room for a connection", false, true}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rdma_pair pair = open_devices(rows[i].left, rows[i].right);

        break_now(rows[i].wish);
        assert_int_not_equal(rdma_pair_open_wire(&pair), KOLO_OK);
        expect_text(rows[i].text);
        rdma_pair_close(&pair);
        forget_wishes(state);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* What befalls one wire's queues is read by another, and ends the first alone. */
static void a_queue_fails(void **state)
{
    static const char *const words[] = {"a queue of the RDMA adapter fake0, to rank 2, has failed",
                                        NULL};
    static const char *const events[] = {"1=0", "1=1"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct rdma_pair pair = rdma_pair_new(),
                         other = {.left = pair.left, .right = pair.right, .channel = 1};
        struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};

        assert_int_equal(rdma_pair_open_wire(&other), KOLO_OK);
        setenv("FAKEVERBS_EVENT", events[i], 1);
        assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
        unsetenv("FAKEVERBS_EVENT");
        (void)rdma->arm(other.from);
        assert_int_equal(count_logged("tells of an event"), 1);
        rdma_pair_pass(&other, RDMA_SLICE);
        rdma_pair_expect(pair.from, KOLO_E_SYSTEM, words);
        assert_int_equal(truncate(log_path, 0), 0);
        rdma->hangup(other.from);
        rdma->hangup(other.to);
        rdma_pair_close(&pair);
    }
}

/* What a wire says that fails after one or two events, of which it has heard by then. */
static void fail_after(const char *const *events, const char *status, const char *words)
{
    const char *const expected[] = {"RETRY_EXC_ERR", words, NULL};
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    struct rdma_pair pair = rdma_pair_new();

    for (int i = 0; i < 2 && events[i]; i++) {
        setenv("FAKEVERBS_EVENT", events[i], 1);
        rdma_pair_pass(&pair, 5);
    }
    unsetenv("FAKEVERBS_EVENT");
    (void)rdma->arm(pair.from);
    rdma_pair_pass(&pair, RDMA_SLICE);
    setenv("FAKEVERBS_STATUS", status, 1);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    rdma_pair_expect(pair.from, KOLO_E_PEER_LOST, expected);
    if (!words && strstr(kolo_last_error(), "the event"))
        fail_msg("\"%s\"", kolo_last_error());
    unsetenv("FAKEVERBS_STATUS");
    rdma_pair_close(&pair);
}

/* Other events end nothing. What befalls our port is warned of, and remembered for what may follow
 * until the port works again; what befalls another port, or is the subnet manager's daily work,
 * explains nothing. */
static void events_that_explain(void **state)
{
    static const struct {
        const char *events[2];
        const char *words; /* in the error; NULL: it speaks of no event */
        int nwarnings;
    } rows[] = {{{"1=10"}, "after the event port error: ", 1},
                {{"1=18"}, "after the event some event: ", 1},
                {{"1=10", "1=9"}, NULL, 2},
                {{"1=10", "1=9/2"}, "after the event port error: ", 1},
                {{"1=10/2"}, NULL, 0},
                {{"1=18/2"}, NULL, 0},
                {{"1=11"}, NULL, 0},
                {{"1=12"}, NULL, 0},
                {{"1=13"}, NULL, 0},
                {{"1=17"}, NULL, 0},
                {{"1=4"}, NULL, 0},
                {{"1=3"}, NULL, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char status[32];

        snprintf(status, sizeof status, "1=12/%zu", 129 + i); /* each once */
        fail_after(rows[i].events, status, rows[i].words);
        assert_int_equal(count_logged("tells of an event"), rows[i].nwarnings);
        assert_int_equal(truncate(log_path, 0), 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(an_adapter_that_cannot_be_used),
                                       TEST(names_of_nobody),
                                       TEST(queue_pairs_that_iwarp_lacks),
                                       TEST(a_queue_fails),
                                       TEST(events_that_explain),
                                       TEST(what_is_kept_makes_room),
                                       TEST(a_segment_that_is_too_long),
                                       TEST(no_room_for_a_wire),
                                       TEST(one_warning),
                                       TEST(tcp_is_not_allowed)};
    int fd = mkstemp(log_path), failed;

    if (fd < 0)
        return 1;
    close(fd);
    setenv("KOLO_DEBUG", "WARN", 1);
    setenv("KOLO_DEBUG_FILE", log_path, 1);
    failed = cmocka_run_group_tests_name("rdma limits", tests, NULL, NULL);
    unlink(log_path);
    return failed;
}
