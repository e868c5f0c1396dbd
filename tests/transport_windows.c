/* SPDX-License-Identifier: MIT
 *
 * The suite's cases of windows: memory that both ends share, and peers that pass memory which could
 * be turned against us.
 */
#include "transport_suite.h"

#include "clock.h"
#include "foreign.h"
#include "link.h"
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

static void shared_both_ways(void **state)
{
    static const uint32_t sizes[] = {1, 64, 65, 4096, 131072};
    struct suite *suite = *state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t nbytes = ko_window_bytes(2, sizes[i]);
        struct ends ends = suite_open(suite, sizes[i]);

        assert_true((uintptr_t)ends.from->inbox % KO_LINE == 0);
        assert_int_equal(((unsigned char *)ends.from->inbox)[nbytes - 1], 0);
        suite_fill(ends.from->outbox, nbytes, i);
        assert_true(suite_matches(ends.to->inbox, nbytes, i));
        suite_fill(ends.to->outbox, nbytes, i + 100);
        assert_true(suite_matches(ends.from->inbox, nbytes, i + 100));
        if (ends.to != ends.from)
            assert_true(suite_matches(ends.to->inbox, nbytes, i)); /* two windows, not one */
        suite_hang_up(suite, &ends);
    }
}

/* A hello of that segment, with `fd` beside it, from a bare socket; drives to the end of the
 * handshake. */
static int greet_as(struct suite *suite, uint64_t segment, int fd, struct ko_wire **wire_out,
                    int *socket_out)
{
    struct ko_hello hello = suite_hello(4096), answer = suite_answer(4096);
    ko_deadline deadline = ko_deadline_in(5000);
    int socket = suite->traits->dial(suite->address, suite->address_bytes);
    int err = KOLO_OK;

    hello.segment = segment;
    assert_int_equal(ko_socket_send_with(socket, &hello, sizeof hello, fd), (ssize_t)sizeof hello);
    *wire_out = suite_accept(suite, NULL);
    err = suite->transport->answer(*wire_out, &answer);
    while (!err && (*wire_out)->state != KO_WIRE_OPEN && !ko_deadline_passed(&deadline))
        err = suite_settle(*wire_out, NULL);
    *socket_out = socket;
    return err;
}

/* Of a segment that this process has not made. */
static int greet_with(struct suite *suite, int fd, struct ko_wire **wire_out, int *socket_out)
{
    return greet_as(suite, 0xdeadbeef, fd, wire_out, socket_out);
}

static void expect_greeting(struct suite *suite, int fd, int status)
{
    struct ko_wire *wire;
    int socket;

    assert_int_equal(greet_with(suite, fd, &wire, &socket), status);
    suite->transport->hangup(wire);
    close(socket);
    if (fd >= 0)
        close(fd);
}

static int memory_of(size_t nbytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)nbytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* Memory that could shrink under us would be a SIGBUS to come. */
static void hostile_segments(void **state)
{
    struct suite *suite = *state;
    size_t nbytes = ko_window_bytes(2, 4096);
    int null;

    suite_needs_dial(suite);
    null = open("/dev/zero", O_RDWR | O_CLOEXEC);
    expect_greeting(suite, -1, KOLO_E_PROTOCOL);
    expect_greeting(suite, memory_of(nbytes, 0), KOLO_E_PROTOCOL);
    expect_greeting(suite, memory_of(nbytes, F_SEAL_GROW), KOLO_E_PROTOCOL);
    expect_greeting(suite, memory_of(nbytes - 1, F_SEAL_SHRINK), KOLO_E_PROTOCOL);
    expect_greeting(suite, memory_of(nbytes + 1, F_SEAL_SHRINK), KOLO_E_PROTOCOL);
    expect_greeting(suite, memory_of(0, F_SEAL_SHRINK), KOLO_E_PROTOCOL);
    expect_greeting(suite, null, KOLO_E_PROTOCOL);
    expect_greeting(suite, memory_of(nbytes, F_SEAL_SHRINK), KOLO_OK);
}

/* A segment that is found here by its id has to be as long as one that is mapped. */
static void short_segment_of_ours(void **state)
{
    const size_t nbytes = ko_window_bytes(2, 4096);
    struct suite *suite = *state;

    suite_needs_dial(suite);
    for (int longer = -1; longer <= 1; longer++) {
        struct ko_segment *segment;
        struct ko_wire *wire;
        int socket;

        assert_int_equal(ko_segment_create(nbytes + (size_t)longer, &segment), KOLO_OK);
        assert_int_equal(greet_as(suite, segment->id, -1, &wire, &socket),
                         longer ? KOLO_E_PROTOCOL : KOLO_OK);
        suite->transport->hangup(wire);
        close(socket);
        ko_segment_release(segment);
    }
}

/* Memory that cannot be written is refused, and is no crash. */
static void read_only_segment(void **state)
{
    struct suite *suite = *state;
    struct ko_wire *wire;
    int socket, fd, err;

    suite_needs_dial(suite);
    fd = memory_of(ko_window_bytes(2, 4096), F_SEAL_SHRINK | F_SEAL_WRITE);
    err = greet_with(suite, fd, &wire, &socket);
    assert_int_not_equal(err, KOLO_OK);
    suite->transport->hangup(wire);
    close(socket);
    close(fd);
}

/* On a window's wire slices have no place, and control frames their limit. */
static void bad_frame(struct suite *suite, struct ko_frame frame)
{
    int fd = memory_of(ko_window_bytes(2, 4096), F_SEAL_SHRINK);
    const struct ko_frame *seen;
    struct ko_wire *wire;
    int socket, err;

    assert_int_equal(greet_with(suite, fd, &wire, &socket), KOLO_OK);
    assert_int_equal(write(socket, &frame, sizeof frame), (ssize_t)sizeof frame);
    while ((err = suite->transport->next(wire, &seen)) == KO_AGAIN)
        assert_int_equal(suite_settle(wire, NULL), KOLO_OK);
    assert_int_equal(err, KOLO_E_PROTOCOL);
    suite->transport->hangup(wire);
    close(socket);
    close(fd);
}

static void bad_frames(void **state)
{
    struct suite *suite = *state;

    suite_needs_dial(suite);
    bad_frame(suite, (struct ko_frame){.kind = 0});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_MEMORY + 1});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_DATA, .nbytes = 1});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_DATA});
    bad_frame(suite, (struct ko_frame){.kind = KO_FRAME_FAIL, .nbytes = KO_CONTROL_BYTES + 1});
}

/* ---- messages that are taken at once ------------------------------------------------------ */

enum { TAKEN = 4096 };

/* The link to oneself, or both links of a wire, in this process. */
static void open_pair(struct suite *suite, struct ko_link **from, struct ko_link **to)
{
    struct ends ends = suite_open(suite, TAKEN);

    assert_int_equal(ko_link_create(1, 2, TAKEN, from), KOLO_OK);
    assert_int_equal(ko_link_open(*from, ends.from), KOLO_OK);
    *to = *from;
    if (ends.to == ends.from)
        return;
    assert_int_equal(ko_link_create(0, 2, TAKEN, to), KOLO_OK);
    assert_int_equal(ko_link_open(*to, ends.to), KOLO_OK);
}

/* One that is not what was asked for stays; the one that is comes whole, and makes room. */
static void taken_at_once(void **state)
{
    static const size_t sizes[] = {0,     1, KO_BESIDE, KO_BESIDE + 1, KO_INLINE, KO_INLINE + 1,
                                   TAKEN, 8, 100};
    unsigned char sent[TAKEN], got[TAKEN];
    struct ko_message message = {.room = TAKEN};
    struct ko_link *from, *to;

    open_pair(*state, &from, &to);
    for (uint64_t i = 0; i < 10 * sizeof sizes / sizeof *sizes; i++) {
        const size_t nbytes = sizes[i % (sizeof sizes / sizeof *sizes)];
        const struct ko_stamp stamp = {.seq = i, .count = nbytes, .call = 5 + i};

        message = (struct ko_message){i, 5 + i, nbytes, 0};
        assert_false(ko_window_take(to, &message, got, 3));
        suite_fill(sent, nbytes, i);
        assert_int_equal(from->ops->post(from, &stamp, sent, nbytes), KOLO_OK);
        message.seq = i + 1;
        assert_false(ko_window_take(to, &message, got, 1));
        message = (struct ko_message){i, 4 + i, nbytes, 0};
        assert_false(ko_window_take(to, &message, got, 1));
        message = (struct ko_message){i, 5 + i, nbytes - 1, 0};
        assert_true(!nbytes || !ko_window_take(to, &message, got, 1));
        message.room = nbytes + i % 2;
        assert_true(ko_window_take(to, &message, got, 1));
        assert_int_equal(message.nbytes, nbytes);
        assert_true(suite_matches(got, nbytes, i));
    }
    assert_int_equal(to->received, from->sent);
    if (to != from)
        ko_link_free(to);
    ko_link_free(from);
}

/* What a slot cannot hold is not taken out of it. */
static void hostile_lengths(void **state)
{
    static const uint32_t kinds[] = {KO_FRAME_INLINE, KO_FRAME_DATA, KO_FRAME_BYE, 0};
    static const uint32_t lengths[] = {KO_INLINE + 1, TAKEN + 1, 0, 0};
    struct ko_message message = {1, 2, UINT32_MAX, 0};
    struct ko_link *from, *to;
    struct ko_slot *slot;
    unsigned char got[1];

    open_pair(*state, &from, &to);
    slot = ko_window_slot(to->inbox, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        slot->frame =
            (struct ko_frame){kinds[i], lengths[i], {.seq = 1, .count = lengths[i], .call = 2}};
        ko_store_ordered(&slot->step, 1);
        assert_false(ko_window_take(to, &message, got, 1));
    }
    if (to != from)
        ko_link_free(to);
    ko_link_free(from);
}

/* ---- references ------------------------------------------------------------------------------ */

/* A link over a wire whose other end is ours to play: a bare socket, and the link's own inbox. */
struct puppet {
    struct ko_link *link;
    int socket;
};

static struct puppet open_puppet(struct suite *suite)
{
    int fd = memory_of(ko_window_bytes(2, 4096), F_SEAL_SHRINK);
    struct ko_wire *wire;
    struct puppet puppet;

    assert_int_equal(greet_with(suite, fd, &wire, &puppet.socket), KOLO_OK);
    assert_int_equal(ko_link_create(1, 2, 4096, &puppet.link), KOLO_OK);
    assert_int_equal(ko_link_open(puppet.link, wire), KOLO_OK);
    close(fd);
    return puppet;
}

static void close_puppet(struct puppet *puppet)
{
    ko_link_free(puppet->link);
    close(puppet->socket);
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

/* Puts a frame that says where its body is into the link's next slot, and looks at it. */
static int refer(const struct puppet *puppet, uint32_t kind, const void *place, size_t nbytes,
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

static int refer_to_shared(const struct puppet *puppet, struct ko_reference reference,
                           const void **body)
{
    return refer(puppet, KO_FRAME_REFERENCE, &reference, sizeof reference, body);
}

static int refer_to_foreign(const struct puppet *puppet, const void *address, const void **body)
{
    return refer(puppet, KO_FRAME_FOREIGN, &address, sizeof address, body);
}

/* ---- memory of another process -------------------------------------------------------------- */

/* Says that `word` stands at the address; true: it is found there, so that memory is read. */
static bool invite(const struct puppet *puppet, const uint64_t *address, uint64_t word)
{
    struct ko_link *link = puppet->link;

    link->outbox->word = word;
    link->outbox->word_at = (uintptr_t)address;
    ko_foreign_try(link);
    return link->inbox->is_reading != 0;
}

static struct puppet open_reader(struct suite *suite)
{
    struct puppet puppet;

    setenv("KOLO_PROTO", "cma", 1);
    puppet = open_puppet(suite);
    unsetenv("KOLO_PROTO");
    return puppet;
}

static void hostile_invitations(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    uint64_t word = 12345;
    char bytes[4096];
    const void *body;

    suite_needs_dial(suite);
    puppet = open_puppet(suite); /* nobody wants to read here */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_E_PROTOCOL);
    assert_false(invite(&puppet, &word, word));
    close_puppet(&puppet);
    puppet = open_reader(suite);
    assert_false(invite(&puppet, NULL, word)); /* not yet */
    assert_false(invite(&puppet, &word, word + 1));
    assert_false(invite(&puppet, &word, word)); /* once only */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_E_PROTOCOL);
    close_puppet(&puppet);
    puppet = open_reader(suite);
    assert_false(invite(&puppet, (const uint64_t *)8, word));
    close_puppet(&puppet);
    puppet = open_reader(suite);
    assert_true(invite(&puppet, &word, word)); /* this process is its own peer */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_OK);
    close_puppet(&puppet);
}

/* A slice in such memory is read where it lies, and its sender waits until it was. */
static void read_in_place(void **state)
{
    const struct ko_stamp stamp = {.seq = 1};
    struct ends ends = suite_open(*state, 8192);
    const struct ko_frame *frame;
    struct ko_link *from, *to;
    struct ko_notice notice;
    void *memory;
    const void *body;

    assert_int_equal(kolo_mem_alloc(16384, &memory), KOLO_OK);
    assert_int_equal(ko_link_create(2, 2, 8192, &from), KOLO_OK);
    assert_int_equal(ko_link_open(from, ends.from), KOLO_OK);
    to = from;
    if (ends.to != ends.from) {
        assert_int_equal(ko_link_create(1, 2, 8192, &to), KOLO_OK);
        assert_int_equal(ko_link_open(to, ends.to), KOLO_OK);
    }
    for (size_t i = 0; i < 5; i++) {
        unsigned char *slice = (unsigned char *)memory + 100 * i;
        const bool is_kept = i < 4 && ends.to != ends.from; /* the last one is short */
        const size_t nbytes = i < 4 ? 8192 : 4095;

        memset(slice, (int)i, nbytes);
        assert_int_equal(from->ops->post(from, &stamp, slice, nbytes), KOLO_OK);
        assert_int_equal(ko_link_is_flushed(from), is_kept ? KO_AGAIN : KOLO_OK);
        assert_int_equal(to->ops->next(to, &frame), KOLO_OK);
        assert_int_equal(frame->nbytes, nbytes);
        while (to->ops->peek(to, &body) == KO_AGAIN)
            assert_int_equal(ko_link_hear(to, &notice), KO_AGAIN);
        assert_int_equal(body == slice, is_kept);
        assert_memory_equal(body, slice, nbytes);
        to->ops->release(to);
        assert_int_equal(ko_link_is_flushed(from), KOLO_OK);
    }
    ko_link_free(from);
    if (to != from)
        ko_link_free(to);
    assert_int_equal(kolo_mem_free(memory), KOLO_OK);
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
    puppet = open_puppet(suite);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 3, 0}, &body), KO_AGAIN);
    assert_int_equal(
        announce(&puppet, (struct ko_announcement){7, 8192, 3}, 24, memory_of(8192, F_SEAL_SHRINK)),
        KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){8, 3, 0}, &body), KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 4, 0}, &body), KO_AGAIN);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(refer_to_shared(&puppet, wrong[i], &body), KOLO_E_PROTOCOL);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 3, 4096}, &body), KOLO_OK);
    assert_int_equal(((const unsigned char *)body)[4095], 0);
    /* The number that is being read from cannot be given to other memory. */
    assert_int_equal(
        announce(&puppet, (struct ko_announcement){9, 4096, 3}, 24, memory_of(4096, F_SEAL_SHRINK)),
        KOLO_E_PROTOCOL);
    puppet.link->ops->release(puppet.link);
    assert_int_equal(
        announce(&puppet, (struct ko_announcement){9, 4096, 3}, 24, memory_of(4096, F_SEAL_SHRINK)),
        KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){7, 3, 0}, &body), KO_AGAIN);
    assert_int_equal(refer_to_shared(&puppet, (struct ko_reference){9, 3, 0}, &body), KOLO_OK);
    close_puppet(&puppet);
}

static void refuse_announcement(struct suite *suite, struct ko_announcement announcement,
                                uint32_t nbytes, int fd)
{
    struct puppet puppet = open_puppet(suite);

    assert_int_equal(announce(&puppet, announcement, nbytes, fd), KOLO_E_PROTOCOL);
    close_puppet(&puppet);
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
    refuse_announcement(suite, fair, 23, memory_of(8192, F_SEAL_SHRINK));
    refuse_announcement(suite, fair, 0, memory_of(8192, F_SEAL_SHRINK));
    refuse_announcement(suite, fair, 24, memory_of(8192, 0));
    refuse_announcement(suite, fair, 24, memory_of(8191, F_SEAL_SHRINK));
    refuse_announcement(suite, fair, 24, open("/dev/zero", O_RDWR | O_CLOEXEC));
    refuse_announcement(suite, (struct ko_announcement){7, 8192, KO_ANNOUNCED}, 24,
                        memory_of(8192, F_SEAL_SHRINK));
    refuse_announcement(suite, (struct ko_announcement){7, UINT64_MAX, 3}, 24,
                        memory_of(8192, F_SEAL_SHRINK));
    /* Memory of this very process under a wrong size. */
    assert_int_equal(kolo_mem_alloc(8192, &memory), KOLO_OK);
    own = ko_memory_find(memory, 1);
    refuse_announcement(suite, (struct ko_announcement){own->id, 4096, 3}, 24, dup(own->fd));
    ko_segment_release(own);
    assert_int_equal(kolo_mem_free(memory), KOLO_OK);
    /* More descriptors than messages are closed. */
    puppet = open_puppet(suite);
    for (int i = 0; i < 3; i++)
        assert_int_equal(announce(&puppet, fair, 24, memory_of(8192, F_SEAL_SHRINK)), KO_AGAIN);
    close_puppet(&puppet);
}

#define CASE(name)              \
    {                           \
        "windows: " #name, name \
    }
const struct suite_case suite_window_cases[] = {CASE(shared_both_ways),
                                                CASE(hostile_segments),
                                                CASE(short_segment_of_ours),
                                                CASE(read_only_segment),
                                                CASE(bad_frames),
                                                CASE(read_in_place),
                                                CASE(hostile_references),
                                                CASE(hostile_announcements),
                                                CASE(hostile_invitations),
                                                CASE(taken_at_once),
                                                CASE(hostile_lengths)};
const size_t suite_nwindow_cases = sizeof suite_window_cases / sizeof *suite_window_cases;
