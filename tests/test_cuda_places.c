/* SPDX-License-Identifier: MIT
 *
 * What another rank says of where a message lies in its GPU's memory is not believed: a place that
 * cannot be is refused at once, by an error on both ranks, and nothing is read there. On the double
 * of NVIDIA's driver.
 */
#include "clock.h"
#include "gpu_hosts.h"
#include "gpu_rank.h"
#include "group.h"
#include "mailbox_gpu.h"
#include "mailbox_parts.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NBYTES = 20000 };

static const char cannot[] = "it says where in GPU memory a message of 20000 bytes lies";
/* What cannot be opened rank 0 asks for, of a message that rank 1 has never posted. */
static const char asked_for[] = "it told of message #2, of 1";

/* What rank 1 makes of the place of a buffer of NBYTES. */
struct forgery {
    void (*forge)(struct ko_gpu_place *place);
    int status;
    const char *says;
};

static void end_one_later(struct ko_gpu_place *place)
{
    place->offset = place->nbytes - NBYTES + 1;
}

static void begin_behind(struct ko_gpu_place *place)
{
    place->offset = place->nbytes + 1;
}

static void wrap_around(struct ko_gpu_place *place)
{
    place->offset = UINT64_MAX - NBYTES / 2;
}

static void have_less(struct ko_gpu_place *place)
{
    place->nbytes = NBYTES - 1;
}

/* Than the block in which it may lie. */
static void have_more(struct ko_gpu_place *place)
{
    place->nbytes += 2 << 20;
    place->offset = place->nbytes - NBYTES;
}

static void have_all(struct ko_gpu_place *place)
{
    place->nbytes = UINT64_MAX;
    place->offset = (uint64_t)1 << 40;
}

static void wrap_base(struct ko_gpu_place *place)
{
    place->base = UINT64_MAX - NBYTES / 2;
}

static void be_nothing(struct ko_gpu_place *place)
{
    place->kind = KO_GPU_NO_BUFFER;
}

static void be_on_host(struct ko_gpu_place *place)
{
    place->kind = KO_GPU_HOST;
}

static void be_in_pieces(struct ko_gpu_place *place)
{
    place->kind = KO_GPU_PIECES;
    place->is_new = 0; /* and so known */
}

static void be_unknown(struct ko_gpu_place *place)
{
    place->kind = 99;
}

static void be_zeros(struct ko_gpu_place *place)
{
    memset(place, 0, sizeof *place);
}

static void spoil_handle(struct ko_gpu_place *place)
{
    memset(&place->handle, 0xff, sizeof place->handle);
    place->id = UINT64_MAX; /* else it is known */
}

static void point_to_host(struct ko_gpu_place *place)
{
    static const char bytes[NBYTES];

    place->base = (uintptr_t)bytes;
    place->id = UINT64_MAX;
}

static const struct forgery forgeries[] = {
    {end_one_later, KOLO_E_PROTOCOL, cannot},   {begin_behind, KOLO_E_PROTOCOL, cannot},
    {wrap_around, KOLO_E_PROTOCOL, cannot},     {have_less, KOLO_E_PROTOCOL, cannot},
    {be_nothing, KOLO_E_PROTOCOL, cannot},      {be_on_host, KOLO_E_PROTOCOL, cannot},
    {be_in_pieces, KOLO_E_PROTOCOL, asked_for}, {be_unknown, KOLO_E_PROTOCOL, cannot},
    {be_zeros, KOLO_E_PROTOCOL, cannot},        {have_more, KOLO_E_PROTOCOL, asked_for},
    {have_all, KOLO_E_PROTOCOL, asked_for},     {wrap_base, KOLO_E_PROTOCOL, asked_for},
};

/* Of other processes' memory, and of this one's. */
static const struct forgery between_processes = {spoil_handle, KOLO_E_PROTOCOL, asked_for};
static const struct forgery between_threads = {point_to_host, KOLO_E_PROTOCOL, asked_for};

static void *allocate(void)
{
    ko_cu_ptr memory;

    if (gpu_rank.cuda->alloc(&memory, NBYTES))
        abort();
    return (void *)(uintptr_t)memory;
}

/* Tells rank 0 of message #2, which lies there. */
static int post(struct ko_mailbox *mailbox, const struct ko_gpu_place *place)
{
    struct ko_link *link = mailbox->channel.ports[0].link;
    struct ko_stamp stamp = {.seq = 2, .count = NBYTES};
    int err;

    stamp.call = ko_message_call(1, KOLO_UINT8);
    stamp.op = KO_PLACE;
    ko_biased_lock_take(&mailbox->lock);
    err = link->ops->post(link, &stamp, place, sizeof *place);
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

static int send_forged(kolo_group *group, void *argument)
{
    const struct forgery *forgery = argument;
    struct ko_gpu_place place;
    int64_t began;
    const int mate = group->size == 3 ? 2 : 0;
    int failed = gpu_rank_enter(group) || (group->rank != 2 && ranks_exchange(group));
    void *buffer = failed ? NULL : allocate();
    const kolo_p2p to_mate = {1, mate, 1, KOLO_UINT8, NBYTES, buffer, NULL};

    if (failed || group->rank == 2)
        return failed;
    if (group->rank == 1 && !ko_places_describe(group, &to_mate, NBYTES, NULL, &place))
        return ranks_fail("nothing to forge");
    if (group->rank == 1) {
        forgery->forge(&place);
        if (post(ko_mailbox_existing(group), &place))
            return ranks_fail("nothing was planted");
    }
    began = ko_now_ns();
    failed = ranks_expect_soon(began, kolo_recv(group, buffer, NBYTES, KOLO_UINT8, !group->rank, 1),
                               forgery->status, forgery->says) ||
             ranks_expect(kolo_group_error(group, NULL), forgery->status,
                          forgery->says == asked_for ? "rank 0 (" : "rank 1 (");
    if (gpu_rank.cuda->free((uintptr_t)buffer))
        abort();
    return failed;
}

static void leave(struct ko_gpu_place *place)
{
    (void)place;
}

/* Rank 1's mate is rank 2, but rank 0 is told. */
static int send_to_another_host(kolo_group *group, void *unused)
{
    struct forgery forgery = {leave, KOLO_E_PROTOCOL, "rank 0 does not reach its"};

    (void)unused;
    return send_forged(group, &forgery);
}

static void run_one(enum ranks_kind kind, int ngpus, const struct forgery *forgery)
{
    struct forgery copy = *forgery;
    const struct ranks ranks = {.kind = kind, .n = 2};

    setenv("FAKECUDA_DEVICES", ngpus == 1 ? "1" : "2", 1);
    assert_int_equal(ranks_run(&ranks, send_forged, &copy), 0);
}

static void run(enum ranks_kind kind, const struct forgery *own)
{
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++)
        run_one(kind, 1 + i % 2, &forgeries[i]);
    run_one(kind, 1, own);
    run_one(kind, 2, own);
}

static void forged_between_processes(void **state)
{
    (void)state;
    run(RANKS_PROCESSES, &between_processes);
}

static void of_another_host(void **state)
{
    (void)state;
    gpu_hosts_run_with("1", "abb", send_to_another_host);
}

/* The last: from here on the driver has threads in this process, which is not to fork. */
static void forged_between_threads(void **state)
{
    (void)state;
    exam_set_variables("shm", "", 4096);
    run(RANKS_THREADS, &between_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_between_processes),
        cmocka_unit_test(of_another_host),
        cmocka_unit_test(forged_between_threads),
    };

    exam_set_variables("shm", "", 4096);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
