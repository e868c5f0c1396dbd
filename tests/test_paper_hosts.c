/* SPDX-License-Identifier: MIT
 *
 * The proof of the texts for several hosts: every way to spread up to 16 ranks over hosts.
 */
#include "layout.h"
#include "paper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST_RANKS = 16, SLICE = 3 };

/* A way to spread ranks: the sizes of the hosts, largest first. */
struct shape {
    int n, nhosts;
    int sizes[MOST_RANKS];
};

/* Ranks in the order of their hosts; the smallest host first; dealt out to the hosts in turn. */
enum order { LARGEST_FIRST, SMALLEST_FIRST, DEALT, NORDERS };

static struct ko_hosts *lay_out(const struct shape *shape, enum order order)
{
    static const char *const names[MOST_RANKS] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                                  "i", "j", "k", "l", "m", "n", "o", "p"};
    const char *machines[MOST_RANKS];
    struct ko_hosts *hosts;
    int rank = 0;

    for (int i = 0; order != DEALT && i < shape->nhosts; i++) {
        const int h = order == LARGEST_FIRST ? i : shape->nhosts - 1 - i;

        for (int k = 0; k < shape->sizes[h]; k++)
            machines[rank++] = names[h];
    }
    for (int k = 0; order == DEALT && rank < shape->n; k++)
        for (int h = 0; h < shape->nhosts; h++)
            if (k < shape->sizes[h])
                machines[rank++] = names[h];
    assert_int_equal(ko_layout_make(machines, shape->n, &hosts), 0);
    return hosts;
}

/* What the hosts send to each other: 2 (hosts - 1) of the buffer in all, evenly, but for the
 * rounding of chunks; and all messages together 2 (n - 1) of it, as in a ring. */
static void check_traffic(const struct ko_paper_call *call, const struct ko_paper_report *report)
{
    const struct ko_hosts *hosts = call->hosts;
    size_t total = 0, away = 0;

    for (int h = 0; h < hosts->n; h++) {
        size_t sent = 0;

        for (int place = 0; place < host_size(hosts, h); place++) {
            const int rank = rank_at(hosts, h, place);

            total += report->sent[rank];
            sent += report->sent_away[rank];
        }
        assert_true(sent * (size_t)hosts->n <=
                    2 * (size_t)(hosts->n - 1) * (call->count + (size_t)(hosts->n * hosts->least)));
        away += sent;
    }
    assert_int_equal(away, 2 * (size_t)(hosts->n - 1) * call->count);
    assert_int_equal(total, 2 * (size_t)(call->n - 1) * call->count);
}

static void prove(struct ko_paper_call *call)
{
    struct ko_paper_report report;

    for (int in_place = 0; in_place < 2; in_place++) {
        call->is_in_place = in_place;
        if (ko_paper_verify(call, &report))
            fail_msg("%s", kolo_last_error());
        if (call->text->what == KO_ALL_REDUCE)
            check_traffic(call, &report);
    }
}

static void prove_shape(const struct ko_paper_text *text, const struct shape *shape)
{
    const size_t n = (size_t)shape->n;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 61};

    for (int order = 0; order < NORDERS; order++) {
        struct ko_hosts *hosts = lay_out(shape, (enum order)order);

        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int slots = 2; slots <= 8; slots += 6) {
                struct ko_paper_call call = {.text = text,
                                             .n = shape->n,
                                             .count = counts[i],
                                             .slice = SLICE,
                                             .slots = slots,
                                             .hosts = hosts};

                prove(&call);
            }
        free(hosts);
    }
}

/* Adds hosts of at most `largest` ranks until all ranks sit somewhere. */
static void prove_shapes(const struct ko_paper_text *text, struct shape *shape, int left,
                         int largest)
{
    if (!left)
        prove_shape(text, shape);
    for (int size = largest < left ? largest : left; size > 0; size--) {
        shape->sizes[shape->nhosts++] = size;
        prove_shapes(text, shape, left - size, size);
        shape->nhosts--;
    }
}

static void every_shape_is_proved(void **state)
{
    int ntexts = 0;

    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++) {
        if (!(ko_paper_texts[i].flags & KO_SPREAD))
            continue;
        ntexts++;
        for (int n = 2; n <= MOST_RANKS; n++) {
            struct shape shape = {.n = n};

            prove_shapes(&ko_paper_texts[i], &shape, n, n);
        }
    }
    assert_true(ntexts > 0);
}

static void hosts_have_to_be_known(void **state)
{
    struct ko_paper_call call = {.n = 4, .count = 4, .slice = SLICE, .slots = 2};

    (void)state;
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].flags & KO_SPREAD)
            call.text = &ko_paper_texts[i];
    assert_int_equal(ko_paper_verify(&call, NULL), KOLO_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_proved),
        cmocka_unit_test(hosts_have_to_be_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
