/* SPDX-License-Identifier: MIT
 *
 * The words are a shared segment (shmem.h), whose descriptor goes over a Unix socket. Who asks for
 * it connects, which takes no answer; that all have done so the ranks tell each other by other
 * ways, which see it when one ends. So nobody waits here for a rank that has not come.
 */
#include "gpu_writers.h"

#include "poller.h"
#include "shmem.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_BYTES = 64 };

/* Of a rank, on a line of memory of its own. */
struct words {
    _Alignas(LINE_BYTES) _Atomic uint32_t writes;
    _Atomic uint32_t has_given_up;
    _Atomic uint32_t put, done; /* calls in streams: the last, and the last that is over */
};

struct ko_gpu_writers {
    struct ko_segment *segment; /* words[] */
    int fd;                     /* where they are handed over, or asked for; -1: no more */
};

static struct words *words_of(const struct ko_gpu_writers *writers, int rank)
{
    return (struct words *)writers->segment->memory + rank;
}

static size_t bytes_of(int n)
{
    return (size_t)n * sizeof(struct words);
}

static struct ko_gpu_writers *make(void)
{
    struct ko_gpu_writers *writers = ko_alloc(sizeof *writers, "who writes on a GPU");

    if (writers)
        writers->fd = -1;
    return writers;
}

static void hang_up(struct ko_gpu_writers *writers)
{
    if (writers->fd >= 0)
        close(writers->fd);
    writers->fd = -1;
}

void ko_gpu_writers_free(struct ko_gpu_writers *writers)
{
    if (!writers)
        return;
    hang_up(writers);
    ko_segment_release(writers->segment);
    free(writers);
}

/* ---- how all ranks come by them -------------------------------------------------------------- */

int ko_gpu_writers_make(int n, struct ko_gpu_writers **writers_out,
                        struct ko_gpu_writers_place *place)
{
    struct ko_gpu_writers *writers = make();
    int err = writers ? ko_segment_create(bytes_of(n), &writers->segment) : KOLO_E_NOMEM;

    if (!err)
        err = ko_unix_listen(&writers->fd, place->socket);
    if (err) {
        ko_gpu_writers_free(writers);
        return err;
    }
    place->id = writers->segment->id;
    *writers_out = writers;
    return KOLO_OK;
}

int ko_gpu_writers_find(const struct ko_gpu_writers_place *place,
                        struct ko_gpu_writers **writers_out)
{
    struct ko_gpu_writers *writers = make();

    if (!writers)
        return KOLO_E_NOMEM;
    writers->segment = ko_segment_find(place->id);
    if (!writers->segment) {
        ko_gpu_writers_free(writers);
        return ko_fail(KOLO_E_SYSTEM, "another thread's shared segment is not there any more");
    }
    *writers_out = writers;
    return KOLO_OK;
}

int ko_gpu_writers_ask(const struct ko_gpu_writers_place *place,
                       struct ko_gpu_writers **writers_out)
{
    struct ko_gpu_writers *writers = make();
    int err = writers ? ko_unix_connect(place->socket, &writers->fd) : KOLO_E_NOMEM;

    if (err) {
        ko_gpu_writers_free(writers);
        return err == KO_AGAIN ? ko_fail(KOLO_E_SYSTEM, "too many ask who writes on a GPU") : err;
    }
    *writers_out = writers;
    return KOLO_OK;
}

int ko_gpu_writers_hand(struct ko_gpu_writers *writers, int nprocesses, const ko_deadline *deadline)
{
    int fd, err = KOLO_OK;

    for (int handed = 0; handed < nprocesses && !err;) {
        err = ko_unix_accept(writers->fd, deadline, NULL, NULL, &fd);
        if (err == KOLO_E_TIMEOUT)
            err = ko_fail(err, "%d of %d processes have asked who writes on a GPU", handed,
                          nprocesses);
        if (err)
            break;
        if (!ko_unix_check_user(fd)) { /* it fits into the socket; who has hung up needs none */
            (void)ko_socket_send_with(fd, "", 1, writers->segment->fd);
            handed++;
        }
        close(fd);
    }
    hang_up(writers);
    ko_segment_close_fd(writers->segment);
    return err;
}

int ko_gpu_writers_take(struct ko_gpu_writers *writers, int n, const ko_deadline *deadline)
{
    int got = -1, err = ko_socket_wait(writers->fd, KO_POLL_IN, deadline);
    char byte;

    if (!err && ko_socket_recv_with(writers->fd, &byte, 1, &got) != 1)
        err = ko_fail(KOLO_E_PEER_LOST, "who has the words about a GPU's writers hangs up");
    hang_up(writers);
    if (!err && got < 0)
        err = ko_fail(KOLO_E_PROTOCOL, "the words about a GPU's writers did not come");
    if (err && got >= 0)
        close(got);
    return err ? err : ko_segment_map(got, bytes_of(n), &writers->segment);
}

/* ---- what they say --------------------------------------------------------------------------- */

bool ko_gpu_writers_any_gave_up(const struct ko_gpu_writers *writers, int n, int rank, int *which)
{
    for (int r = 0; r < n; r++)
        if (r != rank && atomic_load(&words_of(writers, r)->has_given_up)) {
            *which = r;
            return true;
        }
    return false;
}

/* In one order with give_up and has_begun: each of the two says first, and looks then. */
bool ko_gpu_writers_begin(struct ko_gpu_writers *writers, int n, int rank, int *which)
{
    atomic_store(&words_of(writers, rank)->writes, 1);
    if (!ko_gpu_writers_any_gave_up(writers, n, rank, which))
        return true;
    ko_gpu_writers_end(writers, rank);
    return false;
}

void ko_gpu_writers_end(struct ko_gpu_writers *writers, int rank)
{
    atomic_store(&words_of(writers, rank)->writes, 0);
}

void ko_gpu_writers_give_up(struct ko_gpu_writers *writers, int rank)
{
    atomic_store(&words_of(writers, rank)->has_given_up, 1);
}

bool ko_gpu_writers_has_begun(const struct ko_gpu_writers *writers, int rank)
{
    return atomic_load(&words_of(writers, rank)->writes);
}

/* ---- of streams ------------------------------------------------------------------------------ */

static bool is_before(uint32_t call, uint32_t other)
{
    return (int32_t)(call - other) < 0;
}

/* As ko_gpu_writers_begin. */
bool ko_gpu_writers_put(struct ko_gpu_writers *writers, int n, int rank, uint32_t call, int *which)
{
    const uint32_t before = atomic_exchange(&words_of(writers, rank)->put, call);

    if (!ko_gpu_writers_any_gave_up(writers, n, rank, which))
        return true;
    atomic_store(&words_of(writers, rank)->put, before);
    return false;
}

/* Of calls that it has no part in it says nothing, so that the two stay near each other. The word
 * only grows, as threads may come here with what they have seen at different times. */
void ko_gpu_writers_have_done(struct ko_gpu_writers *writers, int rank, uint32_t call)
{
    struct words *words = words_of(writers, rank);
    const uint32_t put = atomic_load(&words->put), last = is_before(put, call) ? put : call;
    uint32_t done = atomic_load(&words->done);

    while (is_before(done, last) && !atomic_compare_exchange_weak(&words->done, &done, last))
        continue;
}

bool ko_gpu_writers_stream(const struct ko_gpu_writers *writers, int rank, uint32_t call)
{
    const struct words *words = words_of(writers, rank);
    const uint32_t put = atomic_load(&words->put), last = is_before(put, call) ? put : call;

    return is_before(atomic_load(&words->done), last);
}
