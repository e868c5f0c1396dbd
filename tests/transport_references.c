/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices that stay where they are: in memory that both ends map, or in
 * another process.
 */
#include "transport_suite.h"

#include "foreign.h"
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

/* A link over a wire whose other end is ours to play: a bare socket, and the link's own inbox. */
struct puppet {
    struct ko_link *link;
    int socket;
};

static struct puppet open_puppet(struct suite *suite)
{
    int fd = suite_memory(ko_window_bytes(2, 4096), F_SEAL_SHRINK);
    struct ko_wire *wire;
    struct puppet puppet;

    assert_int_equal(suite_greet_with(suite, fd, &wire, &puppet.socket), KOLO_OK);
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
    return link->inbox->reading != 0;
}

static struct puppet open_reader(struct suite *suite, const char *protocol)
{
    struct puppet puppet;

    setenv("KOLO_PROTO", protocol, 1);
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
    puppet = open_reader(suite, "inline"); /* nobody wants to read here */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_E_PROTOCOL);
    assert_false(invite(&puppet, &word, word));
    close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_false(invite(&puppet, NULL, word)); /* not yet */
    assert_false(invite(&puppet, &word, word + 1));
    assert_false(invite(&puppet, &word, word)); /* once only */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_E_PROTOCOL);
    close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_false(invite(&puppet, (const uint64_t *)8, word));
    close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_true(invite(&puppet, &word, word)); /* this process is its own peer */
    assert_int_equal(refer_to_foreign(&puppet, bytes, &body), KOLO_OK);
    close_puppet(&puppet);
}

/* Slices of nbytes come and have taken so long, until the link's window says what is to be. */
static void take(const struct puppet *puppet, uint32_t kind, uint32_t nbytes, int64_t ns)
{
    enum { ENOUGH = 10 };

    for (int i = 0; i < ENOUGH; i++) {
        puppet->link->frame = (struct ko_frame){.kind = kind, .nbytes = nbytes};
        if (ko_foreign_is_timed(puppet->link))
            ko_foreign_judge(puppet->link, ns);
    }
}

static void reading_where_that_is_sooner(void **state)
{
    const uint64_t decided = 1U << KO_FOREIGN_DECIDED, sooner = 1U << KO_FOREIGN_SOONER;
    struct suite *suite = *state;
    struct puppet puppet;
    const uint64_t word = 12345, *said;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    said = &puppet.link->inbox->reading;
    take(&puppet, KO_FRAME_DATA, 8192, 1000); /* nobody reads yet */
    assert_true(invite(&puppet, &word, word));
    assert_int_equal(*said, KO_FOREIGN_READS);
    take(&puppet, KO_FRAME_FOREIGN, 8192, 1999);
    assert_int_equal(*said, KO_FOREIGN_READS); /* before it has been compared */
    take(&puppet, KO_FRAME_DATA, 12288, 1500); /* as long for a byte: less than two of these */
    assert_int_equal(*said, KO_FOREIGN_READS | decided | sooner);
    take(&puppet, KO_FRAME_FOREIGN, 8192, 9999); /* it is decided */
    assert_int_equal(*said, KO_FOREIGN_READS | decided | sooner);
    take(&puppet, KO_FRAME_DATA, 8191, 1000); /* too short */
    take(&puppet, KO_FRAME_REFERENCE, 16384, 1000);
    take(&puppet, KO_FRAME_FOREIGN, 16384, 2001);
    take(&puppet, KO_FRAME_DATA, 16384, 1000);
    assert_int_equal(*said, KO_FOREIGN_READS | decided | sooner | decided << 1);
    take(&puppet, KO_FRAME_FOREIGN, UINT32_MAX, 1);
    take(&puppet, KO_FRAME_DATA, UINT32_MAX, INT32_MAX);
    assert_int_equal(*said, KO_FOREIGN_READS | decided | sooner | decided << 1 |
                                (decided | sooner) << (KO_FOREIGN_CLASSES - 1));
    close_puppet(&puppet);
}

static void both_ways_until_it_is_decided(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    struct ko_window *theirs;
    char *bytes = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int nread = 0;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    theirs = puppet.link->outbox;
    assert_false(ko_foreign_is_read(puppet.link, 16384));
    assert_false(ko_foreign_is_tried(puppet.link, bytes, 16384));
    theirs->reading = KO_FOREIGN_READS;
    assert_false(ko_foreign_is_read(puppet.link, 16384)); /* not whatever it costs */
    for (int i = 0; i < 20; i++)
        nread += ko_foreign_is_tried(puppet.link, bytes, 16384);
    assert_int_equal(nread, 10);
    theirs->reading |= 1U << (KO_FOREIGN_DECIDED + 1);
    for (int i = 0; i < 4; i++)
        assert_false(ko_foreign_is_tried(puppet.link, bytes, 16384));
    theirs->reading |= 1U << (KO_FOREIGN_SOONER + 1);
    for (int i = 0; i < 4; i++)
        assert_true(ko_foreign_is_tried(puppet.link, bytes + 16384 * i, 16384));
    assert_false(ko_foreign_is_tried(puppet.link, bytes, KO_FOREIGN_LEAST - 1));
    close_puppet(&puppet);
    munmap(bytes, 65536);
}

/* Neither here nor there: it goes through slots. */
static void what_nobody_can_read_is_not_tried(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    char *bytes = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    puppet.link->outbox->reading = UINT64_MAX;
    mprotect(bytes + 32768, 32768, PROT_NONE);
    assert_true(ko_foreign_is_tried(puppet.link, bytes, 32768));
    assert_false(ko_foreign_is_tried(puppet.link, bytes + 32768, 16384));
    assert_false(ko_foreign_is_tried(puppet.link, bytes + 16384, 32768));
    assert_true(ko_foreign_is_tried(puppet.link, bytes + 16384, 16384));
    close_puppet(&puppet);
    munmap(bytes, 65536);
}

/* Where the next slice lies, which has come and has so many bytes. */
static const void *peek(struct ko_link *link, size_t nbytes)
{
    const struct ko_frame *frame;
    struct ko_notice notice;
    const void *body;

    assert_int_equal(link->ops->next(link, &frame), KOLO_OK);
    assert_int_equal(frame->nbytes, nbytes);
    while (link->ops->peek(link, &body) == KO_AGAIN)
        assert_int_equal(ko_link_hear(link, &notice), KO_AGAIN);
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

static int refer_to_lent(const struct puppet *puppet, struct ko_reference reference,
                         struct ko_reference back, const void **body)
{
    memcpy(puppet->link->next_in->body, &back, sizeof back);
    return refer(puppet, KO_FRAME_LENT, &reference, sizeof reference, body);
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
    puppet = open_puppet(suite);
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
    assert_int_equal(refer(&puppet, KO_FRAME_PLACED, "", 0, &body), KOLO_E_PROTOCOL);
    assert_int_equal(puppet.link->ops->land(puppet.link, NULL, false), KOLO_E_PROTOCOL);
    close_puppet(&puppet);
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
    puppet = open_puppet(suite);
    for (int i = 0; i < 3; i++)
        assert_int_equal(announce(&puppet, fair, 24, suite_memory(8192, F_SEAL_SHRINK)), KO_AGAIN);
    close_puppet(&puppet);
}

#define CASE(name)                 \
    {                              \
        "references: " #name, name \
    }
const struct suite_case suite_reference_cases[] = {CASE(read_in_place),
                                                   CASE(written_in_place),
                                                   CASE(hostile_references),
                                                   CASE(hostile_loans),
                                                   CASE(hostile_announcements),
                                                   CASE(hostile_invitations),
                                                   CASE(reading_where_that_is_sooner),
                                                   CASE(both_ways_until_it_is_decided),
                                                   CASE(what_nobody_can_read_is_not_tried)};
const size_t suite_nreference_cases = sizeof suite_reference_cases / sizeof *suite_reference_cases;
