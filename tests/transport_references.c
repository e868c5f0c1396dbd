/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices that stay where they are, in memory that both ends map.
 */
#include "transport_suite.h"

#include "clock.h"
#include "memory.h"
#include "shmem.h"
#include "socket.h"
#include "status.h"
#include "window_slots.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct puppet suite_open_puppet(struct suite *suite, uint32_t slice_bytes)
{
    int fd = suite_memory(ko_window_bytes(2, slice_bytes), F_SEAL_SHRINK);
    struct ko_wire *wire;
    struct puppet puppet;

    assert_int_equal(suite_greet_with(suite, slice_bytes, fd, &wire, &puppet.socket), KOLO_OK);
    assert_int_equal(ko_link_create(1, 2, slice_bytes, &puppet.link), KOLO_OK);
    assert_int_equal(ko_link_open(puppet.link, wire), KOLO_OK);
    close(fd);
    return puppet;
}

void suite_close_puppet(struct puppet *puppet)
{
    ko_link_free(puppet->link);
    close(puppet->socket);
}

int suite_refer(const struct puppet *puppet, uint32_t kind, const void *place, size_t nbytes,
                const void **body)
{
    struct ko_link *link = puppet->link;
    struct ko_slot *slot = link->next_in;
    const struct ko_frame *frame;

    slot->frame = (struct ko_frame){.kind = kind, .nbytes = 4096};
    memcpy(slot->beside, place, nbytes);
    ko_store_ordered(&slot->step, link->received + 1);
    assert_int_equal(link->ops->next(link, &frame), KOLO_OK);
    return link->ops->peek(link, body);
}

/* Sends an announcement with fd beside it (-1: none) and returns what the link says of it. */
static int announce(const struct puppet *puppet, struct ko_announcement announcement,
                    uint32_t nbytes, int fd)
{
    struct {
        struct ko_frame frame;
        struct ko_announcement body;
    } message = {{.kind = KO_FRAME_MEMORY, .nbytes = nbytes}, announcement};
    struct ko_notice notice;

    assert_int_equal(
        ko_socket_send_with(puppet->socket, &message, sizeof message.frame + nbytes, fd),
        (ssize_t)(sizeof message.frame + nbytes));
    if (fd >= 0)
        close(fd);
    return ko_link_hear(puppet->link, &notice);
}

static int refer_to_shared(const struct puppet *puppet, struct ko_reference reference,
                           const void **body)
{
    return suite_refer(puppet, KO_FRAME_REFERENCE, &reference, sizeof reference, body);
}

/* Where the next slice lies, which has come and has so many bytes. */
static const void *peek(struct ko_link *link, size_t nbytes)
{
    const struct ko_frame *frame;
    struct ko_notice notice;
    const void *body;
    const ko_deadline deadline = ko_deadline_in(20000);

    assert_int_equal(link->ops->next(link, &frame), KOLO_OK);
    assert_int_equal(frame->nbytes, nbytes);
    while (link->ops->peek(link, &body) == KO_AGAIN) {
        assert_int_equal(ko_link_hear(link, &notice), KO_AGAIN);
        assert_false(ko_deadline_passed(&deadline));
    }
    return body;
}

/* A slice in such memory is read where it lies, and its sender waits until it was. */
static void read_in_place(void **state)
{
    const struct ko_stamp stamp = {.seq = 1};
    const struct links links = suite_open_links(*state, 8192);
    struct ko_link *from = links.from, *to = links.to;
    void *memory;
    const void *body;

    assert_int_equal(kolo_mem_alloc(16384, &memory), KOLO_OK);
    for (size_t i = 0; i < 5; i++) {
        unsigned char *slice = (unsigned char *)memory + 100 * i;
        const bool is_kept = i < 4 && to != from; /* the last one is short */
        const size_t nbytes = i < 3 ? 8192 : i < 4 ? KO_REFERENCE_LEAST : KO_REFERENCE_LEAST - 1;

        memset(slice, (int)i, nbytes);
        assert_int_equal(from->ops->post(from, &stamp, slice, nbytes), KOLO_OK);
        assert_int_equal(ko_link_is_flushed(from), is_kept ? KO_AGAIN : KOLO_OK);
        body = peek(to, nbytes);
        assert_int_equal(body == slice, is_kept);
        assert_memory_equal(body, slice, nbytes);
        to->ops->release(to);
        assert_int_equal(ko_link_is_flushed(from), KOLO_OK);
    }
    suite_free_links(&links);
    assert_int_equal(kolo_mem_free(memory), KOLO_OK);
}

/* What becomes of a slice is written by its receiver, if both places are in such memory. */
static void written_in_place(void **state)
{
    const struct ko_stamp stamp = {.seq = 1};
    const struct links links = suite_open_links(*state, 8192);
    struct ko_link *from = links.from, *to = links.to;
    unsigned char *memory, ordinary[8192] = {0};
    void *room;

    assert_int_equal(kolo_mem_alloc(3 * 8192, &room), KOLO_OK);
    memory = room;
    for (size_t i = 0; i < 6; i++) {
        unsigned char *back = i == 1 ? ordinary : i == 2 ? memory : memory + 8192 + 300 * i;
        const size_t nbytes = i == 3 ? KO_REFERENCE_LEAST - 1 : 8000;
        const bool is_lent = i != 1 && i != 3 && to != from;

        memset(memory, 1, nbytes);
        assert_int_equal(ko_window_lend(from, &stamp, memory, back, nbytes), KOLO_OK);
        assert_int_equal(((const unsigned char *)peek(to, nbytes))[nbytes - 1], 1);
        assert_int_equal(ko_window_is_lent(to), is_lent);
        if (is_lent) {
            assert_ptr_equal(to->back, back);
            memset(to->back, (int)i + 2, nbytes);
        }
        to->ops->release(to);
        assert_int_equal(ko_link_is_flushed(from), KOLO_OK);
        if (!is_lent)
            continue;
        assert_int_equal(ko_window_tell_placed(to, &stamp, nbytes), KOLO_OK);
        assert_int_equal(from->ops->next(from, &(const struct ko_frame *){NULL}), KOLO_OK);
        assert_int_equal(from->ops->land(from, back, false), KOLO_OK);
        assert_int_equal(back[nbytes - 1], i + 2);
    }
    assert_int_equal(from->nlent, 0);
    suite_free_links(&links);
    assert_int_equal(kolo_mem_free(room), KOLO_OK);
}

/* A number of memory that was freed is not another's before the last slice there was released: who
 * has not taken that yet would look for it in the other's. */
static void numbers_wait_for_slices(void **state)
{
    const struct ko_stamp stamp = {.seq = 1};
    const struct links links = suite_open_links(*state, 8192);
    struct ko_link *from = links.from, *to = links.to;
    void *memory[KO_ANNOUNCED + 2];

    for (size_t i = 0; i < KO_ANNOUNCED + 2; i++) {
        const bool is_due = i != KO_ANNOUNCED; /* there is no number for one more than all */

        assert_int_equal(kolo_mem_alloc(8192, &memory[i]), KOLO_OK);
        assert_int_equal(from->ops->post(from, &stamp, memory[i], 8192), KOLO_OK);
        if (i == KO_ANNOUNCED - 1 && kolo_mem_free(memory[i]))
            fail();
        if (i == KO_ANNOUNCED - 1)
            continue;            /* not released yet */
        if (i == KO_ANNOUNCED) { /* the one before first */
            (void)peek(to, 8192);
            to->ops->release(to);
        }
        assert_int_equal(peek(to, 8192) == memory[i], is_due && to != from);
        to->ops->release(to);
        assert_int_equal(ko_link_is_flushed(from), KOLO_OK);
    }
    suite_free_links(&links);
    for (size_t i = 0; i < KO_ANNOUNCED + 2; i++)
        if (i != KO_ANNOUNCED - 1)
            assert_int_equal(kolo_mem_free(memory[i]), KOLO_OK);
}

static int refer_to_lent(const struct puppet *puppet, struct ko_reference reference,
                         struct ko_reference back, const void **body)
{
    memcpy(puppet->link->next_in->body, &back, sizeof back);
    return suite_refer(puppet, KO_FRAME_LENT, &reference, sizeof reference, body);
}

static void hostile_loans(void **state)
{
    const struct ko_reference fair = {7, 3, 0};
    static const struct ko_reference wrong[] = {
        {7, KO_ANNOUNCED, 0}, {7, 3, 8193 - 4096}, {7, 3, UINT64_MAX - 4095}};
    struct suite *suite = *state;
    struct puppet puppet;
    const void *body;

    suite_needs_dial(suite);
    puppet = suite_open_puppet(suite, 4096);
    assert_int_equal(announce(&puppet, (struct ko_announcement){7, 8192, 3}, 24,
                              suite_memory(8192, F_SEAL_SHRINK)),
                     KO_AGAIN);
    assert_int_equal(refer_to_lent(&puppet, fair, (struct ko_reference){8, 4, 0}, &body), KO_AGAIN);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(refer_to_lent(&puppet, fair, wrong[i], &body), KOLO_E_PROTOCOL);
    assert_int_equal(announce(&puppet, (struct ko_announcement){8, 4096, 4}, 24,
                              suite_memory(4096, F_SEAL_SHRINK)),
                     KO_AGAIN);
    assert_int_equal(refer_to_lent(&puppet, fair, (struct ko_reference){8, 4, 0}, &body), KOLO_OK);
    memset(puppet.link->back, 1, 4096);
    for (uint64_t i = 3; i <= 4; i++) /* neither number can be given to other memory now */
        assert_int_equal(announce(&puppet, (struct ko_announcement){9, 4096, i}, 24,
                                  suite_memory(4096, F_SEAL_SHRINK)),
                         KOLO_E_PROTOCOL);
    puppet.link->ops->release(puppet.link);
    /* Nothing was lent to the peer, nor is the slice to be looked at. */
    assert_int_equal(suite_refer(&puppet, KO_FRAME_PLACED, "", 0, &body), KOLO_E_PROTOCOL);
    assert_int_equal(puppet.link->ops->land(puppet.link, NULL, false), KOLO_E_PROTOCOL);
    suite_close_puppet(&puppet);
}

static void hostile_references(void **state)
{
    static const struct ko_reference wrong[] = {{7, KO_ANNOUNCED, 0},      {7, UINT64_MAX, 0},
                                                {7, 3, 8193 - 4096},       {7, 3, 8192},
                                                {7, 3, UINT64_MAX - 4095}, {7, 3, UINT64_MAX}};
    struct suite *suite = *state;
    struct puppet puppet;
    const void *body;

    suite_needs_dial(suite);
    puppet = suite_open_puppet(suite, 4096);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 3, 0}, &body), KO_AGAIN);
    assert_int_equal(announce(&puppet, (struct ko_announcement){7, 8192, 3}, 24,
                              suite_memory(8192, F_SEAL_SHRINK)),
                     KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){8, 3, 0}, &body), KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 4, 0}, &body), KO_AGAIN);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(refer_to_shared(&puppet, wrong[i], &body), KOLO_E_PROTOCOL);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 3, 4096}, &body), KOLO_OK);
    assert_int_equal(((const unsigned char *)body)[4095], 0);
    /* The number that is being read from cannot be given to other memory. */
    assert_int_equal(announce(&puppet, (struct ko_announcement){9, 4096, 3}, 24,
                              suite_memory(4096, F_SEAL_SHRINK)),
                     KOLO_E_PROTOCOL);
    puppet.link->ops->release(puppet.link);
    assert_int_equal(announce(&puppet, (struct ko_announcement){9, 4096, 3}, 24,
                              suite_memory(4096, F_SEAL_SHRINK)),
                     KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 3, 0}, &body), KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){9, 3, 0}, &body), KOLO_OK);
    suite_close_puppet(&puppet);
}

static void refuse_announcement(struct suite *suite, struct ko_announcement announcement,
                                uint32_t nbytes, int fd)
{
    struct puppet puppet = suite_open_puppet(suite, 4096);

    assert_int_equal(announce(&puppet, announcement, nbytes, fd), KOLO_E_PROTOCOL);
    suite_close_puppet(&puppet);
}

static void hostile_announcements(void **state)
{
    const struct ko_announcement fair = {7, 8192, 3};
    struct suite *suite = *state;
    struct ko_segment *own;
    struct puppet puppet;
    void *memory;

    suite_needs_dial(suite);
    refuse_announcement(suite, fair, 24, -1);
    refuse_announcement(suite, fair, 23, suite_memory(8192, F_SEAL_SHRINK));
    refuse_announcement(suite, fair, 0, suite_memory(8192, F_SEAL_SHRINK));
    refuse_announcement(suite, fair, 24, suite_memory(8192, 0));
    refuse_announcement(suite, fair, 24, suite_memory(8191, F_SEAL_SHRINK));
    refuse_announcement(suite, fair, 24, open("/dev/zero", O_RDWR | O_CLOEXEC));
    refuse_announcement(suite, (struct ko_announcement){7, 8192, KO_ANNOUNCED}, 24,
                        suite_memory(8192, F_SEAL_SHRINK));
    refuse_announcement(suite, (struct ko_announcement){7, UINT64_MAX, 3}, 24,
                        suite_memory(8192, F_SEAL_SHRINK));
    /* Memory of this very process under a wrong size. */
    assert_int_equal(kolo_mem_alloc(8192, &memory), KOLO_OK);
    own = ko_memory_find(memory, 1);
    refuse_announcement(suite, (struct ko_announcement){own->id, 4096, 3}, 24, dup(own->fd));
    ko_segment_release(own);
    assert_int_equal(kolo_mem_free(memory), KOLO_OK);
    /* More descriptors than messages are closed. */
    puppet = suite_open_puppet(suite, 4096);
    for (int i = 0; i < 3; i++)
        assert_int_equal(announce(&puppet, fair, 24, suite_memory(8192, F_SEAL_SHRINK)), KO_AGAIN);
    suite_close_puppet(&puppet);
}

#define CASE(name)                 \
    {                              \
        "references: " #name, name \
    }
const struct suite_case suite_reference_cases[] = {
    CASE(read_in_place),      CASE(written_in_place), CASE(numbers_wait_for_slices),
    CASE(hostile_references), CASE(hostile_loans),    CASE(hostile_announcements),
};
const size_t suite_nreference_cases = sizeof suite_reference_cases / sizeof *suite_reference_cases;
