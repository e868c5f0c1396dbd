/* SPDX-License-Identifier: MIT
 *
 * PMIx against a small library of the test's own, whose calls end at once, later in a thread of
 * their own, never, or with an error.
 */
#include "kolo.h"
#include "pmix.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { AT_ONCE = -157, BROKEN = -1, PATIENCE_MS = 60000, SHORT_MS = 100, CAP = 64 };

/* How the library behaves; the tests are one thread. */
static struct {
    int init, put, commit, fence, get; /* what these return */
    int fence_later, get_later;        /* what comes by callback */
    int is_silent;                     /* no callback until tell_late */
    uint16_t type;
    int nfinalized;
    char stored[CAP];
    pthread_t thread;
    int has_thread;
    ko_pmix_on_done done;
    ko_pmix_on_value got;
    void *call;
} fake;

static int fake_init(struct ko_pmix_process *self, void *info, size_t ninfo)
{
    (void)info;
    (void)ninfo;
    *self = (struct ko_pmix_process){.job = "job", .rank = 5};
    return fake.init;
}

static int fake_put(uint8_t scope, const char *key, struct ko_pmix_value *value)
{
    assert_int_equal(scope, 3);
    assert_string_equal(key, "kolo");
    assert_int_equal(value->type, KO_PMIX_STRING);
    snprintf(fake.stored, sizeof fake.stored, "%s", value->data.string);
    return fake.put;
}

static int fake_commit(void)
{
    return fake.commit;
}

static void *call_back(void *unused)
{
    struct ko_pmix_value value = {.type = fake.type, .data.string = fake.stored};

    (void)unused;
    usleep(20000);
    if (fake.done)
        fake.done(fake.fence_later, fake.call);
    else
        fake.got(fake.get_later, fake.get_later ? NULL : &value, fake.call);
    return NULL;
}

static void join_thread(void)
{
    if (fake.has_thread)
        pthread_join(fake.thread, NULL);
    fake.has_thread = 0;
}

static void promise(ko_pmix_on_done done, ko_pmix_on_value got, void *call)
{
    join_thread();
    fake.done = done;
    fake.got = got;
    fake.call = call;
    if (fake.is_silent)
        return;
    fake.has_thread = 1;
    assert_int_equal(pthread_create(&fake.thread, NULL, call_back, NULL), 0);
}

static int fake_fence(const struct ko_pmix_process *of, size_t nof, const void *info, size_t ninfo,
                      ko_pmix_on_done done, void *call)
{
    assert_true(!of && !nof && !info && !ninfo);
    if (fake.fence == KO_PMIX_SUCCESS)
        promise(done, NULL, call);
    return fake.fence;
}

static int fake_get(const struct ko_pmix_process *of, const char *key, const void *info,
                    size_t ninfo, ko_pmix_on_value got, void *call)
{
    assert_true(!info && !ninfo);
    assert_string_equal(of->job, "job");
    assert_int_equal(of->rank, 0);
    assert_string_equal(key, "kolo");
    if (fake.get == KO_PMIX_SUCCESS)
        promise(NULL, got, call);
    return fake.get;
}

static int fake_finalize(const void *info, size_t ninfo)
{
    (void)info;
    (void)ninfo;
    fake.nfinalized++;
    return 0;
}

static const char *fake_error_string(int status)
{
    return status == BROKEN ? "BROKEN" : "OTHER";
}

static const struct ko_pmix library = {fake_init, fake_put,      fake_commit,      fake_fence,
                                       fake_get,  fake_finalize, fake_error_string};

static int share(int rank, char *text, int timeout_ms)
{
    ko_deadline deadline = ko_deadline_in(timeout_ms);
    int err = ko_pmix_share(&library, rank, "kolo", text, CAP, &deadline);

    if (!fake.is_silent)
        join_thread();
    return err;
}

static int prepare(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.type = KO_PMIX_STRING;
    snprintf(fake.stored, sizeof fake.stored, "from rank 0");
    return 0;
}

static void text_gets_from_rank_0_to_another(void **state)
{
    char text[CAP] = "an address";

    (void)state;
    assert_int_equal(share(0, text, PATIENCE_MS), 0);
    assert_string_equal(text, "an address");
    assert_string_equal(fake.stored, "an address");
    text[0] = 0;
    assert_int_equal(share(1, text, PATIENCE_MS), 0);
    assert_string_equal(text, "an address");
    assert_int_equal(fake.nfinalized, 2);
}

static void a_fence_may_be_done_at_once(void **state)
{
    char text[CAP];

    (void)state;
    fake.fence = AT_ONCE;
    assert_int_equal(share(1, text, PATIENCE_MS), 0);
    assert_string_equal(text, "from rank 0");
}

static void expect(int err, const char *why, int nfinalized)
{
    assert_int_not_equal(err, 0);
    if (!strstr(kolo_last_error(), why))
        fail_msg("%s, not %s", kolo_last_error(), why);
    assert_int_equal(fake.nfinalized, nfinalized);
}

static void errors_name_the_call(void **state)
{
    char text[CAP] = "x";

    (void)state;
    fake.init = BROKEN;
    expect(share(0, text, PATIENCE_MS), "PMIx_Init failed: BROKEN; does the launcher", 0);
    fake.init = 0;
    fake.put = BROKEN;
    expect(share(0, text, PATIENCE_MS), "PMIx_Put failed: BROKEN", 1);
    fake.put = 0;
    fake.commit = -2;
    expect(share(0, text, PATIENCE_MS), "PMIx_Put failed: OTHER", 2);
    fake.fence = BROKEN;
    expect(share(1, text, PATIENCE_MS), "PMIx_Fence failed: BROKEN; a rank may have ended", 3);
    fake.fence = 0;
    fake.fence_later = BROKEN;
    expect(share(1, text, PATIENCE_MS), "PMIx_Fence failed: BROKEN", 4);
    fake.fence_later = 0;
    fake.get = BROKEN;
    expect(share(1, text, PATIENCE_MS), "PMIx_Get failed: BROKEN; rank 0 may have ended", 5);
    fake.get = 0;
    fake.get_later = BROKEN;
    expect(share(1, text, PATIENCE_MS), "PMIx_Get failed: BROKEN", 6);
    fake.get_later = 0;
    fake.type = 1;
    expect(share(1, text, PATIENCE_MS), "PMIx gave no text of rank 0", 7);
}

/* The callback comes when nobody waits any more. */
static void a_rank_that_does_not_come_is_a_timeout(void **state)
{
    char text[CAP];
    int err;

    (void)state;
    fake.is_silent = 1;
    err = share(1, text, SHORT_MS);
    assert_int_equal(err, KOLO_E_TIMEOUT);
    expect(err, "waited 100 ms in PMIx_Fence for all ranks to come; ", 0);
    expect(err, "KOLO_MASTER=host:port of rank 0", 0);
    fake.done(KO_PMIX_SUCCESS, fake.call);
    fake.fence = AT_ONCE;
    err = share(1, text, SHORT_MS);
    assert_int_equal(err, KOLO_E_TIMEOUT);
    expect(err, "waited 100 ms in PMIx_Get for the address that rank 0 has left; ", 0);
    fake.done = NULL;
    fake.got(KO_PMIX_SUCCESS, NULL, fake.call);
}

/* Loads the real one if it is here; it is used by tests/interop. */
static void the_library_is_found_or_missed(void **state)
{
    struct ko_pmix real;
    int err = ko_pmix_load(&real);

    (void)state;
    if (err) {
        assert_int_equal(err, KOLO_E_UNSUPPORTED);
        assert_non_null(strstr(kolo_last_error(), "set KOLO_MASTER"));
    } else {
        assert_non_null(real.error_string(KO_PMIX_SUCCESS));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(text_gets_from_rank_0_to_another, prepare),
        cmocka_unit_test_setup(a_fence_may_be_done_at_once, prepare),
        cmocka_unit_test_setup(errors_name_the_call, prepare),
        cmocka_unit_test_setup(a_rank_that_does_not_come_is_a_timeout, prepare),
        cmocka_unit_test(the_library_is_found_or_missed),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("pmix", tests, NULL, NULL);
}
