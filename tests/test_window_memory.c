/* SPDX-License-Identifier: MIT
 *
 * Slots have memory when they are used: how much that is, and what becomes of those that get none.
 */
#include "fault.h"
#include "link.h"
#include "sanitized.h"
#include "shmem.h"
#include "status.h"
#include "window.h"
#include "window_slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLOTS = 8, SLICE = 65536, POPULATE_WRITE = 23, PAGE = 4096 };

struct bench {
    struct ko_segment *segment;
    struct ko_wire wire;
    struct ko_link *link;
};

/* A link to itself: its outbox is its inbox. */
static struct bench make(uint32_t slots)
{
    struct bench bench = {.wire = {.transport = &ko_transport_self}};

    setenv("KOLO_PROTO", "inline", 1);
    assert_int_equal(
        ko_segment_begin(ko_window_bytes(slots, SLICE), ko_window_begun(slots), &bench.segment),
        KOLO_OK);
    assert_int_equal(ko_link_create(1, slots, SLICE, &bench.link), KOLO_OK);
    bench.wire.inbox = bench.wire.outbox = bench.segment->memory;
    bench.link->wire = &bench.wire;
    assert_int_equal(ko_window_link_start(bench.link), KOLO_OK);
    return bench;
}

static void drop(struct bench *bench)
{
    bench->link->wire = NULL;
    ko_link_free(bench->link);
    ko_segment_release(bench->segment);
}

static size_t taken(const struct bench *bench)
{
    struct stat status = {0};

    assert_int_equal(fstat(bench->segment->fd, &status), 0);
    return (size_t)status.st_blocks * 512;
}

static int post(struct ko_link *link, uint64_t number)
{
    const struct ko_stamp stamp = {.seq = number, .count = sizeof number};

    return link->ops->post(link, &stamp, &number, sizeof number);
}

static void take(struct ko_link *link, uint64_t number)
{
    const struct ko_frame *frame;
    const void *body;

    assert_int_equal(link->ops->next(link, &frame), KOLO_OK);
    assert_int_equal(frame->stamp.seq, number);
    assert_int_equal(link->ops->peek(link, &body), KOLO_OK);
    assert_memory_equal(body, &number, sizeof number);
    link->ops->release(link);
}

static size_t pages(size_t nbytes)
{
    return (nbytes + PAGE - 1) / PAGE * PAGE;
}

/* No more than the slots so far, and where the next one is to come. */
static void comes_with_slices(void **state)
{
    static const uint32_t counts[] = {2, 3, SLOTS, KO_MOST_SLOTS};

    (void)state;
    if (madvise(NULL, 0, POPULATE_WRITE) || sysconf(_SC_PAGESIZE) != PAGE)
        skip(); /* all at once, or larger pages */
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct bench bench = make(counts[c]);
        const size_t front = pages(ko_window_front(counts[c]));

        assert_int_equal(taken(&bench), PAGE);
        for (uint64_t i = 0; i < 3 * (uint64_t)counts[c]; i++) {
            const size_t most = pages(ko_window_front((uint32_t)i + 1) + KO_LINE);

            assert_int_equal(post(bench.link, i), KOLO_OK);
            take(bench.link, i);
            assert_in_range(taken(&bench), PAGE, most < front ? most : front);
        }
        assert_int_equal(taken(&bench), front);
        drop(&bench);
    }
}

/* All slots that there are can be filled, and no more. */
static void all_slots_can_be_filled(void **state)
{
    struct bench bench = make(SLOTS);
    uint64_t sent = 0, received = 0;

    (void)state;
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < SLOTS; i++)
            assert_int_equal(post(bench.link, sent++), KOLO_OK);
        assert_int_equal(post(bench.link, sent), KO_AGAIN);
        for (int i = 0; i < SLOTS; i++)
            take(bench.link, received++);
    }
    drop(&bench);
}

/* The sender hears that there is none, and nothing is sent; later there is. */
static void a_sender_without_it_fails(void **state)
{
    struct bench bench = make(SLOTS);
    const struct ko_frame *frame;

    (void)state;
    assert_int_equal(post(bench.link, 0), KOLO_OK);
    for (int i = 0; i < 2; i++) {
        ko_fault_arm(KO_FAULT_PAGES, 1);
        assert_int_equal(post(bench.link, 1), KOLO_E_NOMEM);
        assert_non_null(strstr(kolo_last_error(), "there is no memory for 4096 bytes"));
    }
    ko_fault_arm(KO_FAULT_PAGES, 0);
    take(bench.link, 0);
    assert_int_equal(bench.link->ops->next(bench.link, &frame), KO_AGAIN);
    assert_int_equal(post(bench.link, 1), KOLO_OK);
    take(bench.link, 1);
    drop(&bench);
}

/* So does the receiver when it looks for a slice whose slot's head has none. */
static void a_receiver_without_it_fails(void **state)
{
    struct bench bench = make(SLOTS);
    const struct ko_frame *frame;

    (void)state;
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(post(bench.link, i), KOLO_OK);
    take(bench.link, 0);
    ko_fault_arm(KO_FAULT_PAGES, 1);
    take(bench.link, 1);
    for (int i = 0; i < 2; i++) {
        ko_fault_arm(KO_FAULT_PAGES, 1);
        assert_int_equal(bench.link->ops->next(bench.link, &frame), KOLO_E_NOMEM);
    }
    ko_fault_arm(KO_FAULT_PAGES, 0);
    assert_false(ko_window_has_come(bench.link));
    assert_int_equal(post(bench.link, 2), KOLO_OK);
    take(bench.link, 2);
    drop(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_with_slices),
        cmocka_unit_test(all_slots_can_be_filled),
        cmocka_unit_test(a_sender_without_it_fails),
        cmocka_unit_test(a_receiver_without_it_fails),
    };

    return cmocka_run_group_tests_name("window_memory", tests, NULL, NULL);
}
