/* SPDX-License-Identifier: MIT
 *
 * Queue pairs that fail at any request, whatever it carries; completions in another order than that
 * of what they tell of; and what cannot be given back, or has not been. The adapters are those of
 * tests/fakeverbs.
 */
#include "rdma_pair.h"

#include "clock.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char log_path[] = "/tmp/test-rdma-log-XXXXXX";

static int forget_wishes(void **state)
{
    static const char *const names[] = {"FAKEVERBS_DEVICES", "FAKEVERBS_BREAK", "FAKEVERBS_STATUS",
                                        "FAKEVERBS_JITTER"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    return truncate(log_path, 0);
}

/* ---- the N-th request ------------------------------------------------------------------------ */

/* One end, that sends a message again and again and takes in what the other one sends. */
struct end {
    struct ko_wire *wire;
    struct ko_post post;
    bool is_landing;
    unsigned char *got;
    int err;
    char text[KO_ERROR_TEXT];
};

static void get_on(struct end *end)
{
    const struct ko_frame *frame;
    int err = KOLO_OK;

    if (!end->post.is_queued)
        err = rdma->send(end->wire, &end->post);
    if (!err)
        err = rdma->drive(end->wire);
    if (!err && !end->is_landing)
        err = rdma->next(end->wire, &frame);
    if (!err) {
        end->is_landing = true;
        err = rdma->land(end->wire, end->got);
        end->is_landing = err == KO_AGAIN;
    }
    (void)rdma->arm(end->wire);
    end->err = err == KO_AGAIN ? KOLO_OK : err;
    if (end->err)
        snprintf(end->text, sizeof end->text, "%s", kolo_last_error());
}

static struct end end_of(struct ko_wire *wire, unsigned char *body, size_t nbytes)
{
    return (struct end){
        .wire = wire,
        .post = {.frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes}, .body = body},
        .got = malloc(nbytes)};
}

/* The other end has hung up. */
static void await_loss(struct end *end)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    while (!end->err) {
        assert_false(ko_deadline_passed(&deadline));
        get_on(end);
    }
    assert_int_equal(end->err, KOLO_E_PEER_LOST);
    assert_false(end->post.is_queued);
    assert_false(end->wire->is_written_to);
}

/* Both ends exchange messages until the n-th request fails, at one of them, which names the other.
 */
static void fail_at(int n, size_t nbytes)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    struct rdma_pair pair = rdma_pair_new();
    unsigned char *body = calloc(1, nbytes);
    struct end ends[] = {end_of(pair.from, body, nbytes), end_of(pair.to, body, nbytes)};
    char wish[64], who[32];
    int failed = 0;

    snprintf(wish, sizeof wish, "%d=2/%zu", n, nbytes);
    setenv("FAKEVERBS_STATUS", wish, 1);
    while (!ends[0].err && !ends[1].err) {
        assert_false(ko_deadline_passed(&deadline));
        get_on(&ends[0]);
        get_on(&ends[1]);
    }
    failed = ends[1].err != KOLO_OK;
    snprintf(who, sizeof who, "of rank %d (127.0.0.1:", failed ? 1 : 2);
    if (!strstr(ends[failed].text, "LOC_QP_OP_ERR (2, vendor") || !strstr(ends[failed].text, who))
        fail_msg("\"%s\"", ends[failed].text);
    assert_false(ends[failed].post.is_queued);
    assert_false(ends[failed].wire->is_written_to);
    rdma->hangup(ends[failed].wire);
    *(failed ? &pair.to : &pair.from) = NULL;
    await_loss(&ends[!failed]);
    rdma_pair_close(&pair); /* the double looks for what has been left */
    free(ends[0].got);
    free(ends[1].got);
    free(body);
}

/* Short messages, messages in several slots, messages that are written. */
static void a_queue_pair_fails_at_any_request(void **state)
{
    static const char *const devices[] = {"fake0:roce", "fake0:plain", "fake0:iwarp"};
    static const size_t sizes[] = {5, 3 * KO_RDMA_PART, 2 * KO_RDMA_DIRECT};

    (void)state;
    for (int i = 0; i < 9; i++)
        for (int n = 1; n <= 40; n++) {
            setenv("FAKEVERBS_DEVICES", devices[i / 3], 1);
            fail_at(n, sizes[i % 3]);
            unsetenv("FAKEVERBS_STATUS");
        }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* An answer can be there before it is known that what it answers has arrived; seen at least once in
 * very many times, since all orders are possible. */
static void an_answer_comes_before_the_sends_completion(void **state)
{
    enum { MOST = 10000 };
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    struct rdma_pair pair = rdma_pair_new();
    bool is_seen = false;

    (void)state;
    setenv("FAKEVERBS_JITTER", "500", 1);
    for (int i = 0; i < MOST && !is_seen; i++) {
        struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
        const struct ko_frame *frame;

        for (int k = 0; k < 2; k++) {
            struct ko_wire *from = k ? pair.to : pair.from, *to = k ? pair.from : pair.to;

            assert_int_equal(rdma->send(from, &post), KOLO_OK);
            while (rdma->next(to, &frame) == KO_AGAIN)
                assert_false(ko_deadline_passed(&deadline));
            is_seen |= k && rdma_pair_of(to)->slots.nsends;
            assert_int_equal(rdma->land(to, NULL), KOLO_OK);
        }
    }
    assert_true(is_seen);
    rdma_pair_close(&pair);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static int count_logged(const char *words)
{
    return rdma_pair_count_lines(log_path, words);
}

/* A kernel that does not take something back leaks it, which is worth a word; but not of an adapter
 * that is gone with all that was its. */
static void what_cannot_be_given_back(void **state)
{
    static const struct {
        const char *call, *words;
        int n; /* at two ends */
    } rows[] = {
        {"ibv_destroy_qp=16", "a queue pair of the RDMA adapter fake0", 2},
        {"ibv_destroy_cq=16", "a completion queue of the RDMA adapter fake0", 2},
        {"ibv_destroy_comp_channel=16", "a completion channel of the RDMA adapter fake0", 2},
        {"ibv_dereg_mr=16", "a registration of the RDMA adapter fake0", 5},
        {"ibv_dealloc_pd=16", "a protection domain of the RDMA adapter fake0", 2},
        {"ibv_close_device=16", "all of the RDMA adapter fake0", 2}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct rdma_pair pair = rdma_pair_new();
        void *body, *got = malloc(KO_RDMA_DIRECT);

        assert_int_equal(kolo_mem_alloc(KO_RDMA_DIRECT, &body), KOLO_OK);
        memset(body, 0, KO_RDMA_DIRECT);
        rdma_pair_pass_bytes(pair.from, pair.to, body, got, KO_RDMA_DIRECT);
        setenv("FAKEVERBS_BREAK", rows[i / 2].call, 1);
        for (int k = 0; k < 2 && i % 2; k++)
            atomic_store(&rdma_pair_of(k ? pair.to : pair.from)->device->adapters[0].last_event,
                         KO_IB_EVENT_DEVICE_FATAL);
        rdma_pair_close(&pair);
        assert_int_equal(count_logged(rows[i / 2].words), i % 2 ? 0 : rows[i / 2].n);
        assert_int_equal(count_logged("cannot be given back: Device or resource busy"),
                         i % 2 ? 0 : rows[i / 2].n);
        forget_wishes(state);
        kolo_mem_free(body);
        free(got);
    }
}

/* What depends on what, and the double's word for it. */
static void leave(int what)
{
    struct rdma_pair pair = rdma_pair_new();
    struct ko_rdma_wire *wire = rdma_pair_of(pair.from);
    const struct ko_ib *ib = wire->device->ib;

    (void)freopen("/dev/null", "w", stderr);
    if (what == 0)
        ib->destroy_cq(wire->rails[0].cq->cq);
    else if (what == 1)
        ib->destroy_channel(wire->rails[0].cq->channel);
    else if (what == 2)
        ib->free_pd(wire->rails[0].adapter->pd);
    else
        ib->close_device(wire->rails[0].adapter->context);
}

/* The double aborts where something would be left: so no test leaves anything unnoticed. */
static void the_double_does_not_bear_it(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        const pid_t child = fork();
        int status;

        if (!child) {
            leave(what);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_queue_pair_fails_at_any_request), TEST(an_answer_comes_before_the_sends_completion),
        TEST(what_cannot_be_given_back), TEST(the_double_does_not_bear_it)};
    int fd = mkstemp(log_path), failed;

    if (fd < 0)
        return 1;
    close(fd);
    setenv("KOLO_DEBUG", "WARN", 1);
    setenv("KOLO_DEBUG_FILE", log_path, 1);
    failed = cmocka_run_group_tests_name("rdma at fault", tests, NULL, NULL);
    unlink(log_path);
    return failed;
}
