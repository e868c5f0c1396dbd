/* SPDX-License-Identifier: MIT
 *
 * Requests that are ready together are posted together, and one that has nothing to wait for is
 * posted at once; a list of which one is refused ends the connection. The adapters are those of
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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEVERAL = 3 * KO_RDMA_PART }; /* bytes of a message in so many slots */

static const char *const devices[] = {"fake0:roce", "fake0:iwarp"};

static int forget_wishes(void **state)
{
    (void)state;
    unsetenv("FAKEVERBS_DEVICES");
    unsetenv("FAKEVERBS_BREAK");
    setenv("KOLO_DEBUG", "NONE", 1);
    return 0;
}

/* Since the last time. */
struct posts {
    int ncalls, nrequests;
};

static struct posts count_posts(void)
{
    static struct posts last;
    void (*count)(int *, int *);
    struct posts now, since;

    *(void **)&count = rdma_pair_find("fakeverbs_posts");
    count(&now.ncalls, &now.nrequests);
    since = (struct posts){now.ncalls - last.ncalls, now.nrequests - last.nrequests};
    last = now;
    return since;
}

static void expect_posts(int ncalls, int nrequests)
{
    const struct posts posts = count_posts();

    assert_int_equal(posts.nrequests, nrequests);
    assert_int_equal(posts.ncalls, ncalls);
}

static struct ko_post post_of(const unsigned char *body, size_t nbytes)
{
    return (struct ko_post){.frame = {.kind = KO_FRAME_DATA, .nbytes = (uint32_t)nbytes},
                            .body = body};
}

/* Until everything that has been posted is known to have arrived. */
static void settle(struct ko_wire *wire)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);

    while (rdma->deliver(wire) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
}

static void await_frame(struct ko_wire *wire)
{
    const ko_deadline deadline = ko_deadline_in(RDMA_LIMIT_MS);
    const struct ko_frame *frame;
    int err;

    while ((err = rdma->next(wire, &frame)) == KO_AGAIN)
        assert_false(ko_deadline_passed(&deadline));
    assert_int_equal(err, KOLO_OK);
}

/* A short message goes by itself, the first of several slots likewise, and those behind it in one
 * list; all of them where something is on its way. */
static void what_is_ready_goes_together(void **state)
{
    static unsigned char body[SEVERAL];
    const struct ko_frame frame = {.kind = KO_FRAME_DATA, .nbytes = 8};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ko_post post = post_of(body, SEVERAL);
        struct rdma_pair pair;

        setenv("FAKEVERBS_DEVICES", devices[i], 1);
        pair = rdma_pair_new();
        settle(pair.from);
        (void)count_posts();
        assert_true(rdma->give(pair.from, &frame, body, NULL));
        expect_posts(1, 1);
        settle(pair.from);
        assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
        expect_posts(2, 3);
        assert_false(post.is_queued);
        assert_int_equal(rdma->send(pair.from, &post),
                         KOLO_OK); /* none of that is known to be there */
        expect_posts(1, 3);
        rdma_pair_close(&pair);
    }
}

/* Without immediates: a write, and what tells of it. */
static void a_write_goes_with_its_end(void **state)
{
    static unsigned char body[KO_RDMA_DIRECT], got[KO_RDMA_DIRECT];
    struct ko_post post = post_of(body, sizeof body);
    struct rdma_pair pair;

    (void)state;
    setenv("FAKEVERBS_DEVICES", "fake0:iwarp", 1);
    pair = rdma_pair_new();
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    await_frame(pair.to);
    settle(pair.to);
    assert_int_equal(rdma->land(pair.to, got), KO_AGAIN);
    settle(pair.to);
    (void)count_posts();
    settle(pair.from);
    expect_posts(1, 2);
    rdma_pair_close(&pair);
}

/* Whichever of a list it is, and also where the library says so by bad_wr alone. */
static void one_of_a_list_is_refused(void **state)
{
    static const char *const words[] = {"sending to rank 2 over fake0: ", NULL};
    static unsigned char body[SEVERAL];

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct ko_post post = post_of(body, SEVERAL);
        struct rdma_pair pair;
        char wish[64];

        setenv("FAKEVERBS_DEVICES", devices[i % 2], 1);
        pair = rdma_pair_new();
        settle(pair.from);
        snprintf(wish, sizeof wish, "request@%d=22", 1 + i / 2);
        setenv("FAKEVERBS_BREAK", wish, 1);
        assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
        unsetenv("FAKEVERBS_BREAK");
        assert_false(post.is_queued);
        rdma_pair_expect(pair.from, KOLO_E_SYSTEM, words);
        rdma_pair_close(&pair);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(what_is_ready_goes_together),
                                       TEST(a_write_goes_with_its_end),
                                       TEST(one_of_a_list_is_refused)};

    return cmocka_run_group_tests_name("lists of requests", tests, NULL, NULL);
}
