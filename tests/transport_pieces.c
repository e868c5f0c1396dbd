/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices of windows that are on their way in both copies at a time.
 */
#include "transport_suite.h"

#include "clock.h"
#include "status.h"
#include "window_pieces.h"
#include "window_slots.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NBYTES = 4096, PIECE = 960 }; /* of suite_refer's slices, which have five pieces */

/* A slice that lies in the first place, of which the first piece is said to have come. */
static struct puppet open_with(struct suite *suite, uint64_t piece)
{
    struct puppet puppet = suite_open_puppet(suite, NBYTES);
    const struct ko_placed_slice slice = {.piece = piece};
    const void *body;

    memset(puppet.link->next_in->body, 0, KO_INLINE);
    suite_fill(ko_window_body(puppet.link->inbox, puppet.link->slots, 0), NBYTES, 1);
    assert_int_equal(suite_refer(&puppet, KO_FRAME_DATA, &slice, sizeof slice, &body),
                     piece && piece < NBYTES ? KO_AGAIN : KOLO_OK);
    return puppet;
}

/* One more has come. */
static void come(const struct puppet *puppet, size_t number)
{
    *ko_slot_come(puppet->link->next_in, number) = 1;
}

static int land(const struct puppet *puppet, unsigned char *to)
{
    return puppet->link->ops->land(puppet->link, to, false);
}

static void what_has_come_is_landed(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char first[NBYTES], second[NBYTES + 1];

    suite_needs_dial(suite);
    puppet = open_with(suite, PIECE);
    memset(first, 0xee, sizeof first);
    memset(second, 0xee, sizeof second);
    assert_int_equal(land(&puppet, first), KO_AGAIN);
    assert_true(suite_matches(first, PIECE, 1));
    assert_int_equal(first[PIECE], 0xee);
    first[0] ^= 1; /* it is not copied again, */
    come(&puppet, 1);
    come(&puppet, 3);
    assert_int_equal(land(&puppet, first), KO_AGAIN);
    first[0] ^= 1;
    assert_true(suite_matches(first, 2 * PIECE, 1));
    assert_int_equal(first[2 * PIECE], 0xee);
    assert_int_equal(land(&puppet, second), KO_AGAIN); /* but into other memory */
    assert_true(suite_matches(second, 2 * PIECE, 1));
    come(&puppet, 2);
    assert_int_equal(land(&puppet, second), KO_AGAIN);
    come(&puppet, 4);
    assert_int_equal(land(&puppet, second), KOLO_OK);
    assert_true(suite_matches(second, NBYTES, 1));
    assert_int_equal(second[NBYTES], 0xee);
    assert_int_equal(puppet.link->received, 1);
    assert_int_equal(puppet.link->landed, 0); /* of the next one */
    suite_close_puppet(&puppet);
}

/* One after another, where it lies. */
static void pieces_are_looked_at(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    const void *body;
    size_t n;

    suite_needs_dial(suite);
    puppet = open_with(suite, PIECE);
    for (size_t at = 0; at < NBYTES; at += n) {
        if (at) {
            assert_int_equal(ko_window_peek_piece(puppet.link, at, &body, &n), KO_AGAIN);
            come(&puppet, at / PIECE);
        }
        assert_int_equal(ko_window_peek_piece(puppet.link, at, &body, &n), KOLO_OK);
        assert_ptr_equal(body, ko_window_body(puppet.link->inbox, puppet.link->slots, at));
        assert_int_equal(n, NBYTES - at < PIECE ? NBYTES - at : PIECE);
        puppet.link->next_in->placed.copy_ns = 1; /* once it has begun, that is no matter */
    }
    puppet.link->next_in->placed.copy_ns = 0;
    puppet.link->next_in->placed.piece = PIECE + 1;
    assert_int_equal(ko_window_peek_piece(puppet.link, 0, &body, &n), KOLO_E_PROTOCOL);
    suite_close_puppet(&puppet);
    puppet = open_with(suite, 0);
    assert_int_equal(ko_window_peek_piece(puppet.link, 0, &body, &n), KOLO_OK);
    assert_int_equal(n, NBYTES);
    puppet.link->next_in->placed.copy_ns = 1; /* its sender has measured his copy */
    assert_int_equal(ko_window_peek_piece(puppet.link, 0, &body, &n), KOLO_OK);
    assert_int_equal(n, NBYTES);
    suite_close_puppet(&puppet);
}

static void only_a_whole_slice_is_looked_at(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[NBYTES];
    const void *body;

    suite_needs_dial(suite);
    puppet = open_with(suite, NBYTES - KO_LINE);
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KO_AGAIN);
    come(&puppet, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_OK);
        assert_true(suite_matches(body, NBYTES, 1));
    }
    assert_int_equal(land(&puppet, bytes), KOLO_OK);
    assert_true(suite_matches(bytes, NBYTES, 1));
    suite_close_puppet(&puppet);
    puppet = open_with(suite, 0); /* one that never was in pieces */
    assert_int_equal(land(&puppet, bytes), KOLO_OK);
    suite_close_puppet(&puppet);
}

/* More pieces than there are words for; and one that changes its mind. */
static void hostile_pieces(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[NBYTES + 1];
    const void *body;
    uint64_t *piece;

    suite_needs_dial(suite);
    puppet = open_with(suite, PIECE);
    piece = &puppet.link->next_in->placed.piece;
    memset(bytes, 0xee, sizeof bytes);
    *piece = KO_LINE; /* 64 of them */
    assert_int_equal(land(&puppet, bytes), KOLO_E_PROTOCOL);
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_E_PROTOCOL);
    assert_int_equal(bytes[0], 0xee);
    *piece = PIECE + 1; /* elements would be torn */
    assert_int_equal(land(&puppet, bytes), KOLO_E_PROTOCOL);
    *piece = PIECE;
    assert_int_equal(land(&puppet, bytes), KO_AGAIN);
    *piece = UINT64_MAX; /* of which some have come, it says now */
    assert_true(land(&puppet, bytes) <= KOLO_OK);
    assert_int_equal(bytes[NBYTES], 0xee);
    suite_close_puppet(&puppet);
}

enum { SLICE = (64 << 10) + 8, SHORT = 20000 };

static void slices_that_are_awaited_go_in_pieces(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;

    suite_needs_dial(suite);
    puppet = suite_open_puppet(suite, SLICE);
    for (enum ko_flow flow = KO_USED; flow <= KO_ADDED; flow++) {
        puppet.link->flow = flow;
        assert_int_equal(ko_window_goes_in_pieces(puppet.link, SHORT),
                         flow == KO_PASSED || flow == KO_FOLLOWS || flow == KO_AWAITED ||
                             flow == KO_ADDED);
        assert_false(ko_window_goes_in_pieces(puppet.link, 4096));
    }
    suite_close_puppet(&puppet);
}

static void pieces_are_neither_short_nor_many(void **state)
{
    static const size_t pieces[][2] = {{0, 0},        {8191, 8191},   {8192, 4096},  {8193, 4160},
                                       {12288, 6144}, {16384, 8192},  {24576, 8192}, {32768, 8192},
                                       {32769, 8256}, {65536, 16384}, {SLICE, 16448}};

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        assert_int_equal(ko_window_piece(pieces[i][0]), pieces[i][1]);
    for (size_t nbytes = 8192; nbytes < 16 << 20; nbytes += nbytes / 7)
        assert_in_range((nbytes - 1) / ko_window_piece(nbytes), 1, 3);
}

/* ---- somebody who sleeps -------------------------------------------------------------------- */

/* Memory whose second half cannot be read until somebody tries to: then the peer goes to sleep. */
static struct {
    unsigned char *bytes;
    size_t nbytes;
    uint64_t *sleeps, *come;
    uint64_t had_come;
} trap;

static void fall_asleep(int unused)
{
    (void)unused;
    trap.had_come = *trap.come;
    ko_store_ordered(trap.sleeps, 1);
    if (mprotect(trap.bytes, trap.nbytes, PROT_READ | PROT_WRITE))
        abort();
}

/* Who has seen the first piece and sleeps until the rest comes is woken by the last one; that of
 * which an earlier body in the slot looks as if it had come has not. */
static void the_last_piece_wakes(void **state)
{
    const struct sigaction action = {.sa_handler = fall_asleep};
    const struct ko_stamp stamp = {.seq = 1};
    struct suite *suite = *state;
    struct sigaction before;
    struct puppet puppet;
    struct ko_slot *slot;

    suite_needs_dial(suite);
    puppet = suite_open_puppet(suite, SLICE);
    slot = puppet.link->next_out;
    trap.nbytes = 2 * (size_t)SLICE / 4096 * 4096;
    trap.bytes =
        mmap(NULL, trap.nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(trap.bytes, MAP_FAILED);
    trap.sleeps = &puppet.link->outbox->receiver_sleeps;
    trap.come = ko_slot_come(slot, 3);
    for (size_t i = 1; i <= KO_MOST_PIECES; i++)
        *ko_slot_come(slot, i) = 1;
    suite_fill(trap.bytes, SLICE, 2);
    assert_int_equal(mprotect(trap.bytes + 32768, trap.nbytes - 32768, PROT_NONE), 0);
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    puppet.link->flow = KO_AWAITED;
    assert_int_equal(ko_window_copy(puppet.link, &stamp, trap.bytes, SLICE), KOLO_OK);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_int_equal(*trap.sleeps, 0);
    assert_int_equal(trap.had_come, 0);
    assert_int_equal(*trap.come, 1);
    assert_true(slot->placed.piece && slot->placed.piece <= 32768);
    for (size_t i = 1; i <= (SLICE - 1) / slot->placed.piece; i++)
        assert_int_equal(*ko_slot_come(slot, i), 1);
    assert_true(suite_matches(
        ko_window_body(puppet.link->outbox, puppet.link->slots, slot->placed.at), SLICE, 2));
    assert_int_equal(munmap(trap.bytes, trap.nbytes), 0);
    suite_close_puppet(&puppet);
}

/* ---- both ends at once ---------------------------------------------------------------------- */

/* What waits too long fails; so does the other end then. */
enum { NSLICES = 400, LIMIT_MS = 30000 };

static int again(int err, const ko_deadline *limit)
{
    if (err != KO_AGAIN)
        return err;
    sched_yield();
    return ko_deadline_passed(limit) ? KOLO_E_TIMEOUT : KO_AGAIN;
}

static size_t size_of(uint64_t i)
{
    return SLICE - i * 7919 % 50000;
}

static int send_one(struct ko_link *link, const unsigned char *bytes, uint64_t i)
{
    const ko_deadline limit = ko_deadline_in(LIMIT_MS);
    const struct ko_stamp stamp = {.seq = i};
    int err;

    link->flow = i % 5 ? KO_FOLLOWS : KO_STREAM;
    do
        err = again(link->ops->post(link, &stamp, bytes, size_of(i)), &limit);
    while (err == KO_AGAIN);
    if (err)
        return err;
    do
        err = again(ko_link_is_flushed(link), &limit);
    while (err == KO_AGAIN);
    return err;
}

static void *send_all(void *argument)
{
    struct ko_link *link = argument;
    unsigned char *bytes = malloc(SLICE);
    intptr_t err = bytes ? KOLO_OK : KOLO_E_NOMEM;

    for (uint64_t i = 0; i < NSLICES && !err; i++) {
        suite_fill(bytes, size_of(i), i);
        err = send_one(link, bytes, i);
    }
    free(bytes);
    return (void *)err;
}

/* Copies a slice out or looks at it, in turn. */
static int move(struct ko_link *link, unsigned char *bytes, uint64_t i, const void **body)
{
    *body = bytes;
    return i % 2 ? link->ops->land(link, bytes, i % 4 == 1) : link->ops->peek(link, body);
}

/* Slice number i. */
static int take(struct ko_link *link, unsigned char *bytes, uint64_t i)
{
    const ko_deadline limit = ko_deadline_in(LIMIT_MS);
    const struct ko_frame *frame;
    const void *body;
    int err;

    do
        err = again(link->ops->next(link, &frame), &limit);
    while (err == KO_AGAIN);
    if (err)
        return err;
    if (frame->stamp.seq != i || frame->nbytes != size_of(i))
        return KOLO_E_INTERNAL;
    do
        err = again(move(link, bytes, i, &body), &limit);
    while (err == KO_AGAIN);
    if (err)
        return err;
    if (!suite_matches(body, size_of(i), i))
        return KOLO_E_INTERNAL;
    if (i % 2 == 0)
        link->ops->release(link);
    return KOLO_OK;
}

static void pieces_come_as_they_were_sent(void **state)
{
    struct suite *suite = *state;
    struct links links;
    unsigned char *bytes;
    pthread_t sender;
    void *result;
    int err = KOLO_OK;

    suite_needs_peer(suite);
    bytes = malloc(SLICE);
    links = suite_open_links(suite, SLICE);
    assert_non_null(bytes);
    assert_int_equal(pthread_create(&sender, NULL, send_all, links.from), 0);
    for (uint64_t i = 0; i < NSLICES && !err; i++)
        err = take(links.to, bytes, i);
    pthread_join(sender, &result);
    assert_int_equal(err, KOLO_OK);
    assert_int_equal((intptr_t)result, KOLO_OK);
    suite_free_links(&links);
    free(bytes);
}

#define CASE(name)             \
    {                          \
        "pieces: " #name, name \
    }
const struct suite_case suite_piece_cases[] = {CASE(what_has_come_is_landed),
                                               CASE(pieces_are_looked_at),
                                               CASE(only_a_whole_slice_is_looked_at),
                                               CASE(hostile_pieces),
                                               CASE(slices_that_are_awaited_go_in_pieces),
                                               CASE(pieces_are_neither_short_nor_many),
                                               CASE(the_last_piece_wakes),
                                               CASE(pieces_come_as_they_were_sent)};
const size_t suite_npiece_cases = sizeof suite_piece_cases / sizeof *suite_piece_cases;
