/* SPDX-License-Identifier: MIT
 *
 * How a wire of rdma ends: what has been posted arrives first, and that takes no longer than it
 * has to. The adapters are those of tests/fakeverbs.
 */
#include "rdma_pair.h"

#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HELD_NAPS = 14 };

static struct {
    bool is_counting;
    int n;
    int64_t ns[64];
} naps;

static int forget_wishes(void **state)
{
    (void)state;
    unsetenv("FAKEVERBS_HELD");
    setenv("KOLO_DEBUG", "NONE", 1);
    memset(&naps, 0, sizeof naps);
    return 0;
}

/* Instead of the C library's: the adapter goes on when the wire has slept often enough. */
int nanosleep(const struct timespec *nap, struct timespec *rest)
{
    int (*real)(const struct timespec *, struct timespec *);

    *(void **)&real = dlsym(RTLD_NEXT, "nanosleep");
    if (naps.is_counting && naps.n < 64)
        naps.ns[naps.n++] = nap->tv_nsec;
    if (naps.n == HELD_NAPS)
        unsetenv("FAKEVERBS_HELD");
    return real(nap, rest);
}

/* Of very many at least one, however busy this machine is. */
static void last_words_that_arrive_at_once_are_not_slept_for(void **state)
{
    enum { MOST = 1000 };
    int tries = 0;

    (void)state;
    do {
        struct rdma_pair pair = rdma_pair_new();

        rdma_pair_pass(&pair, 100);
        naps.n = 0;
        naps.is_counting = true;
        rdma->hangup(pair.from);
        naps.is_counting = false;
        pair.from = NULL;
        rdma_pair_close(&pair);
    } while (naps.n && ++tries < MOST);
    assert_int_equal(naps.n, 0);
}

/* The longer it has taken, the less often it is looked for. */
static void naps_become_longer(void **state)
{
    struct ko_post post = {.frame = {.kind = KO_FRAME_DATA}};
    struct rdma_pair pair = rdma_pair_new();
    const struct ko_frame *frame;
    int err;

    (void)state;
    setenv("FAKEVERBS_HELD", "fake0", 1);
    assert_int_equal(rdma->send(pair.from, &post), KOLO_OK);
    naps.is_counting = true;
    rdma->hangup(pair.from);
    naps.is_counting = false;
    pair.from = NULL;
    assert_true(naps.n >= HELD_NAPS);
    for (int i = 1; i < HELD_NAPS; i++)
        assert_true(naps.ns[i] == 2 * naps.ns[i - 1] || naps.ns[i] == 20000000);
    assert_int_equal(naps.ns[HELD_NAPS - 1], 20000000);
    while ((err = rdma->next(pair.to, &frame)) == KO_AGAIN) /* what was held has come */
        continue;
    assert_int_equal(err, KOLO_OK);
    rdma_pair_close(&pair);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(last_words_that_arrive_at_once_are_not_slept_for),
                                       TEST(naps_become_longer)};

    return cmocka_run_group_tests_name("how rdma ends", tests, NULL, NULL);
}
