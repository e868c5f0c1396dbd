/* SPDX-License-Identifier: MIT
 *
 * Slices through windows in every way that KOLO_PROTO allows, and in no other; ranks that allow
 * different ones understand each other.
 */
#include "protocols.h"

#include "exam.h"
#include "group.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A line's worth, a slot's, and several slots. */
static const size_t counts[] = {0, 1, 6, 7, 5000, 40000};

static int take_all(kolo_group *group)
{
    int failed = 0;

    for (int what = 0; what < KO_NCOLLECTIVES && !failed; what++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts && !failed; i++)
            failed = exam_take(group, &(struct exam){.what = (enum ko_collective)what,
                                                     .dtype = KOLO_FLOAT32,
                                                     .count = counts[i],
                                                     .has_shared_in = true,
                                                     .has_shared_out = i & 1});
    return failed;
}

static int check_link(const struct ko_link *link, unsigned protocols)
{
    const uint32_t kind = protocols & KO_PROTO_INLINE ? KO_FRAME_INLINE : KO_FRAME_DATA;

    if (link->frame.kind != kind)
        return ranks_fail("a short slice came as kind %u", link->frame.kind);
    if (!link->referenced != !(protocols & KO_PROTO_REFERENCE))
        return ranks_fail("%llu slices were lent", (unsigned long long)link->referenced);
    return 0;
}

static int use_these(kolo_group *group, void *argument)
{
    float one = 1;
    unsigned protocols;
    int failed = take_all(group);

    (void)argument;
    if (failed || ko_protocols_read(&protocols) ||
        kolo_all_reduce(group, &one, &one, 1, KOLO_FLOAT32, KOLO_SUM))
        return ranks_fail("%s", kolo_last_error());
    for (int i = 0; i < kolo_group_size(group) && !failed; i++) {
        const struct ko_link *link = group->collectives.ports[i].link;

        failed = i == kolo_group_rank(group) || !link ? 0 : check_link(link, protocols);
    }
    return failed;
}

static void every_way_and_no_other(void **state)
{
    static const char *const lists[] = {"simple", "inline", "reference", "inline,reference",
                                        "simple,simple"};

    (void)state;
    setenv("KOLO_TRANSPORT", "shm", 1);
    setenv("KOLO_SLICE_BYTES", "32K", 1);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        setenv("KOLO_PROTO", lists[i], 1);
        for (int n = 2; n <= 3; n++) {
            assert_int_equal(
                ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = n}, use_these, NULL), 0);
            assert_int_equal(
                ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, use_these, NULL), 0);
        }
    }
    unsetenv("KOLO_PROTO");
}

static int use_any(kolo_group *group, void *argument)
{
    (void)argument;
    return take_all(group);
}

static int differ(int rank, void *argument)
{
    static const char *const lists[] = {"simple", "inline", "reference"};

    (void)argument;
    return setenv("KOLO_PROTO", lists[rank], 1);
}

static void ranks_that_differ(void **state)
{
    struct ranks ranks = {.kind = RANKS_PROCESSES, .n = 3, .settle = differ};

    (void)state;
    assert_int_equal(ranks_run(&ranks, use_any, NULL), 0);
}

static void wrong_names(void **state)
{
    static const char *const lists[] = {"inlin", "inline,", ",", "simple,,cma", "LL128"};
    kolo_group *group = NULL;
    kolo_store *store;
    unsigned protocols;

    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        setenv("KOLO_PROTO", lists[i], 1);
        assert_int_equal(ko_protocols_read(&protocols), KOLO_E_INVALID);
        assert_non_null(strstr(kolo_last_error(), "KOLO_PROTO names"));
        assert_int_equal(kolo_store_open_local(&store), KOLO_OK);
        assert_int_equal(kolo_group_join_store(store, 0, 1, 1000, &group), KOLO_E_INVALID);
        kolo_store_close(store);
    }
    unsetenv("KOLO_PROTO");
}

static void contradictions(void **state)
{
    static const char *const lists[] = {"simple,inline", "reference,simple", "simple,try-cma",
                                        "inline,simple,cma"};
    unsigned protocols;

    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        setenv("KOLO_PROTO", lists[i], 1);
        assert_int_equal(ko_protocols_read(&protocols), KOLO_E_INVALID);
        assert_non_null(strstr(kolo_last_error(), lists[i]));
        assert_non_null(strstr(kolo_last_error(), "simple, which is none of the ways, stands"));
    }
    unsetenv("KOLO_PROTO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_and_no_other),
        cmocka_unit_test(ranks_that_differ),
        cmocka_unit_test(wrong_names),
        cmocka_unit_test(contradictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
