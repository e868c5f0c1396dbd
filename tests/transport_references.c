/* SPDX-License-Identifier: MIT
 *
 * The suite's part about slices that stay where they are: in memory that both ends map, or in
 * another process.
 */
#include "transport_suite.h"

#include "foreign.h"
#include "foreign_out.h"
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

static struct puppet open_puppet_of(struct suite *suite, uint32_t slice_bytes)
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

static struct puppet open_puppet(struct suite *suite)
{
    return open_puppet_of(suite, 4096);
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
    const struct ko_foreign_slice slice = {(uintptr_t)address, 0, KO_FOREIGN_FREE};

    return refer(puppet, KO_FRAME_FOREIGN, &slice, sizeof slice, body);
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

static struct puppet open_reader_of(struct suite *suite, const char *protocol, uint32_t slice_bytes)
{
    struct puppet puppet;

    setenv("KOLO_PROTO", protocol, 1);
    puppet = open_puppet_of(suite, slice_bytes);
    unsetenv("KOLO_PROTO");
    return puppet;
}

static struct puppet open_reader(struct suite *suite, const char *protocol)
{
    return open_reader_of(suite, protocol, 4096);
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

/* Slices of nbytes come, of which each is such a sample, until the link's window says what is to be
 * done with those of their length. */
static void take(const struct puppet *puppet, uint32_t nbytes, struct ko_foreign_sample sample)
{
    enum { ENOUGH = 40 };

    for (int i = 0; i < ENOUGH; i++) {
        puppet->link->frame = (struct ko_frame){
            .kind = sample.is_read ? KO_FRAME_FOREIGN : KO_FRAME_DATA, .nbytes = nbytes};
        if (ko_foreign_is_watched(puppet->link))
            ko_foreign_judge(puppet->link, &sample);
    }
}

static struct ko_foreign_sample copied(int64_t ns, int64_t copy_ns, int64_t gap_ns)
{
    return (struct ko_foreign_sample){.ns = ns, .copy_ns = copy_ns, .gap_ns = gap_ns};
}

static struct ko_foreign_sample been_read(int64_t ns)
{
    return (struct ko_foreign_sample){.is_read = true, .ns = ns};
}

/* Whether the link's window says that it is known, sooner, faster. */
static void expect_said(const struct puppet *puppet, int class, bool known, bool sooner,
                        bool faster)
{
    const uint64_t reading = puppet->link->inbox->reading;

    assert_true(reading & KO_FOREIGN_READS);
    assert_int_equal(ko_foreign_says(reading, KO_FOREIGN_KNOWN, class), known);
    assert_int_equal(ko_foreign_says(reading, KO_FOREIGN_SOONER, class), sooner);
    assert_int_equal(ko_foreign_says(reading, KO_FOREIGN_FASTER, class), faster);
}

/* Both copies of a slice are waited for, or those of one and of the next are made at a time. */
static void reading_is_measured(void **state)
{
    enum { FAR = 1000000 };
    struct suite *suite = *state;
    struct puppet puppet;
    const uint64_t word = 12345;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    take(&puppet, 8192, copied(1000, 1000, FAR)); /* nobody reads yet */
    assert_true(invite(&puppet, &word, word));
    take(&puppet, 8192, been_read(1999));
    expect_said(&puppet, 0, false, false, false);  /* before it has been compared */
    take(&puppet, 12288, copied(1500, 1500, FAR)); /* as long for a byte */
    expect_said(&puppet, 0, true, true, false);
    take(&puppet, 8192, been_read(9)); /* it is known */
    expect_said(&puppet, 0, true, true, false);
    take(&puppet, 8191, copied(1000, 1000, FAR)); /* too short */
    take(&puppet, 16384, copied(0, 1000, FAR));   /* not measured */
    take(&puppet, 16384, copied(1000, 0, FAR));
    take(&puppet, 16384, copied(1000, -1, FAR)); /* as nobody measures */
    take(&puppet, 16384, copied(1000, INT64_MAX, FAR));
    take(&puppet, 16384, been_read(2001));
    expect_said(&puppet, 1, false, false, false);
    take(&puppet, 16384, copied(1000, 1000, FAR));
    expect_said(&puppet, 1, true, false, false);
    take(&puppet, 32768, been_read(2999));
    take(&puppet, 32768, copied(1000, 3000, FAR)); /* the longer copy alone takes longer */
    expect_said(&puppet, 2, true, true, true);
    take(&puppet, 65536, been_read(3900));
    take(&puppet, 65536, copied(1000, 3000, 2999)); /* and with what goes on beside it */
    expect_said(&puppet, 3, true, true, true);
    take(&puppet, UINT32_MAX, been_read(INT32_MAX));
    take(&puppet, UINT32_MAX, copied(INT32_MAX - 1, INT32_MAX - 1, INT64_MAX));
    expect_said(&puppet, 4, true, true, false);
    close_puppet(&puppet);
}

/* What was decided long ago is looked at again. */
static void it_is_measured_again(void **state)
{
    const ko_deadline limit = ko_deadline_in(10000);
    struct suite *suite = *state;
    struct puppet puppet;
    const uint64_t word = 12345;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    assert_true(invite(&puppet, &word, word));
    take(&puppet, 8192, been_read(1000));
    take(&puppet, 8192, copied(1000, 1000, 10000));
    expect_said(&puppet, 0, true, true, false);
    while (ko_foreign_says(puppet.link->inbox->reading, KO_FOREIGN_KNOWN, 0) &&
           !ko_deadline_passed(&limit))
        take(&puppet, 8192, been_read(3000));
    expect_said(&puppet, 0, false, false, false);
    take(&puppet, 8192, been_read(3000));
    take(&puppet, 8192, copied(1000, 1000, 10000));
    expect_said(&puppet, 0, true, false, false);
    close_puppet(&puppet);
}

/* How many of so many slices are left to be read. */
static int count_left(struct ko_link *link, int copies, size_t nbytes, int nslices)
{
    int nleft = 0;

    link->copies = copies;
    for (int i = 0; i < nslices; i++)
        nleft += ko_foreign_is_due(link, nbytes);
    return nleft;
}

static void slices_are_left_where_that_saves_time(void **state)
{
    enum { CLASS_1 = 16384 };
    const uint64_t known = KO_FOREIGN_READS | UINT64_C(2) << KO_FOREIGN_KNOWN;
    struct suite *suite = *state;
    struct puppet puppet;
    struct ko_link *link;
    uint64_t *reading;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "try-cma");
    link = puppet.link;
    reading = &link->outbox->reading;
    assert_false(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, 2, CLASS_1, 4), 0);
    *reading = KO_FOREIGN_READS;
    assert_true(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, 0, CLASS_1, 64), 0);  /* they are not only moved */
    assert_int_equal(count_left(link, 1, CLASS_1, 64), 32); /* to find out */
    *reading = known | UINT64_C(2) << KO_FOREIGN_SOONER;
    assert_true(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, 2, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, 1, CLASS_1, 4), 0);
    assert_int_equal(count_left(link, 2, KO_FOREIGN_LEAST - 1, 4), 0);
    *reading = known;
    assert_false(ko_foreign_may_be_due(link, CLASS_1));
    assert_int_equal(count_left(link, 2, CLASS_1, 4), 0);
    *reading = known | UINT64_C(2) << KO_FOREIGN_FASTER;
    assert_int_equal(count_left(link, 1, CLASS_1, 4), 4);
    assert_int_equal(count_left(link, 0, CLASS_1, 4), 0);
    close_puppet(&puppet);
    puppet = open_reader(suite, "cma");
    assert_int_equal(count_left(puppet.link, 0, CLASS_1, 4), 0);
    puppet.link->outbox->reading = known;
    assert_int_equal(count_left(puppet.link, 0, CLASS_1, 4), 4); /* whatever it costs */
    close_puppet(&puppet);
}

/* Leaves one slice of `byte` for the peer, whose end is ours to play; its state is there. */
static uint64_t *leave(const struct puppet *puppet, unsigned char *bytes, int byte)
{
    struct ko_link *link = puppet->link;
    struct ko_slot *slot = link->next_out;

    memset(bytes, byte, KO_FOREIGN_LEAST);
    assert_int_equal(
        link->ops->post(link, &(const struct ko_stamp){.seq = 1}, bytes, KO_FOREIGN_LEAST),
        KOLO_OK);
    assert_int_equal(slot->frame.kind, KO_FRAME_FOREIGN);
    assert_int_equal(slot->foreign.address, (uintptr_t)bytes);
    assert_int_equal(slot->foreign.state, KO_FOREIGN_FREE);
    assert_int_equal(ko_link_is_flushed(link), KO_AGAIN);
    return &slot->foreign.state;
}

/* The place of a slice, which has been moved there. */
static void expect_moved(const struct ko_link *link, const uint64_t *state, int byte)
{
    const struct ko_foreign_slice *slice =
        (const void *)((const char *)state - offsetof(struct ko_foreign_slice, state));
    const unsigned char *body = ko_window_body(link->outbox, link->slots, slice->at);

    assert_int_equal(*state, KO_FOREIGN_MOVED);
    for (size_t i = 0; i < KO_FOREIGN_LEAST; i++)
        assert_int_equal(body[i], byte);
}

static struct puppet open_left(struct suite *suite)
{
    struct puppet puppet = open_reader_of(suite, "cma", KO_FOREIGN_LEAST);

    puppet.link->outbox->reading = KO_FOREIGN_READS;
    return puppet;
}

/* Who is about to sleep, or has waited for long, has his memory back, unless it is being read. */
static void what_nobody_reads_is_taken_back(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[3][KO_FOREIGN_LEAST];
    uint64_t *first, *second, *third;

    suite_needs_dial(suite);
    puppet = open_left(suite);
    first = leave(&puppet, bytes[0], 1);
    second = leave(&puppet, bytes[1], 2);
    *first = KO_FOREIGN_READING;
    puppet.link->ops->arm(puppet.link);
    puppet.link->ops->disarm(puppet.link);
    assert_int_equal(*second, KO_FOREIGN_FREE); /* the peer comes to it */
    assert_int_equal(ko_link_is_flushed(puppet.link), KO_AGAIN);
    *first = KO_FOREIGN_UNREADABLE; /* it could not */
    puppet.link->ops->arm(puppet.link);
    puppet.link->ops->disarm(puppet.link);
    expect_moved(puppet.link, first, 1);
    expect_moved(puppet.link, second, 2);
    assert_int_equal(ko_link_is_flushed(puppet.link), KOLO_OK);
    puppet.link->outbox->credit = 2;
    third = leave(&puppet, bytes[2], 3);
    while (ko_link_is_flushed(puppet.link)) /* which ends */
        ;
    expect_moved(puppet.link, third, 3);
    close_puppet(&puppet);
}

/* A peer who reads nothing of several is no reader. */
static void who_cannot_read_is_left_nothing(void **state)
{
    enum { MOST = 4 };
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[KO_FOREIGN_LEAST];

    suite_needs_dial(suite);
    puppet = open_left(suite);
    for (int i = 0; i < MOST; i++) {
        *leave(&puppet, bytes, i) = KO_FOREIGN_UNREADABLE;
        puppet.link->ops->arm(puppet.link);
        puppet.link->ops->disarm(puppet.link);
        puppet.link->outbox->credit++;
    }
    assert_false(ko_foreign_may_be_due(puppet.link, KO_FOREIGN_LEAST));
    assert_int_equal(count_left(puppet.link, 2, KO_FOREIGN_LEAST, 4), 0);
    close_puppet(&puppet);
}

/* What the peer writes into its window moves no memory of ours but what we left there. */
static void hostile_readers(void **state)
{
    struct suite *suite = *state;
    struct puppet puppet;
    unsigned char bytes[KO_FOREIGN_LEAST];
    uint64_t *left;

    suite_needs_dial(suite);
    puppet = open_left(suite);
    left = leave(&puppet, bytes, 1);
    *left = 77;
    puppet.link->ops->arm(puppet.link);
    puppet.link->ops->disarm(puppet.link);
    assert_int_equal(*left, 77); /* it is waited for, with a deadline */
    assert_int_equal(ko_link_is_flushed(puppet.link), KO_AGAIN);
    ((struct ko_foreign_slice *)(void *)((char *)left - offsetof(struct ko_foreign_slice, state)))
        ->at = UINT64_MAX;
    *left = KO_FOREIGN_FREE;
    puppet.link->ops->arm(puppet.link);
    puppet.link->ops->disarm(puppet.link);
    assert_int_equal(*left, KO_FOREIGN_MOVED); /* to where it was to be */
    assert_int_equal(ko_link_is_flushed(puppet.link), KOLO_OK);
    close_puppet(&puppet);
}

/* A slice that its sender has had back lies in its place; one in a state that there is not lies
 * nowhere. */
static void taking_what_was_left(void **state)
{
    const uint64_t word = 12345;
    struct ko_foreign_slice slice = {0, 64, KO_FOREIGN_MOVING};
    struct suite *suite = *state;
    struct puppet puppet;
    const void *body;

    suite_needs_dial(suite);
    puppet = open_reader(suite, "cma");
    assert_true(invite(&puppet, &word, word));
    assert_int_equal(refer(&puppet, KO_FRAME_FOREIGN, &slice, sizeof slice, &body), KO_AGAIN);
    puppet.link->next_in->foreign.state = KO_FOREIGN_MOVED;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_OK);
    assert_ptr_equal(body, ko_window_body(puppet.link->inbox, 2, 64));
    puppet.link->next_in->foreign.at = UINT64_MAX;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_E_PROTOCOL);
    puppet.link->next_in->foreign.state = KO_FOREIGN_MOVED + 1;
    assert_int_equal(puppet.link->ops->peek(puppet.link, &body), KOLO_E_PROTOCOL);
    close_puppet(&puppet);
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
                                                   CASE(reading_is_measured),
                                                   CASE(it_is_measured_again),
                                                   CASE(slices_are_left_where_that_saves_time),
                                                   CASE(what_nobody_reads_is_taken_back),
                                                   CASE(who_cannot_read_is_left_nothing),
                                                   CASE(hostile_readers),
                                                   CASE(taking_what_was_left)};
const size_t suite_nreference_cases = sizeof suite_reference_cases / sizeof *suite_reference_cases;
