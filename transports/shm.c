/* SPDX-License-Identifier: MIT
 *
 * Shared memory between ranks of one machine. Each end makes the segment that it receives in and
 * passes it with its hello over a Unix socket, which afterwards carries bells and control frames
 * and tells, by its end, that the peer has died. Ranks that are threads of one process find each
 * other's segment by its id and use it at one address.
 */
#include "transport.h"

#include "fork_fds.h"
#include "poller.h"
#include "shmem.h"
#include "socket.h"
#include "status.h"
#include "stream.h"
#include "unix_socket.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct shm_device {
    struct ko_device base;
    char name[KO_UNIX_NAME];
    struct ko_fork_fd listener;
};

struct shm_wire {
    struct ko_stream_wire common;
    struct ko_segment *own, *peer;
    bool is_begun;     /* by connect: the socket may still have to be made */
    bool has_answered; /* our hello is on its way */
    struct ko_hello own_hello;
    char name[KO_UNIX_NAME]; /* to connect to, while there is no socket */
};

static int shm_open_device(const struct ko_site *site, struct ko_device **device_out)
{
    struct shm_device *device = ko_alloc(sizeof *device, "a device");
    int err;

    (void)site;
    if (!device)
        return KOLO_E_NOMEM;
    device->base.transport = &ko_transport_shm;
    err = ko_unix_listen(&device->base.listen_fd, device->name);
    if (err) {
        free(device);
        return err;
    }
    ko_fork_fd_keep(&device->listener, device->base.listen_fd);
    *device_out = &device->base;
    return KOLO_OK;
}

static void shm_close(struct ko_device *device)
{
    if (!device)
        return;
    ko_fork_fd_close(&((struct shm_device *)device)->listener);
    free(device);
}

static size_t shm_address(struct ko_device *device, unsigned char *address)
{
    const struct shm_device *shm = (const struct shm_device *)device;

    memcpy(address, shm->name, sizeof shm->name);
    return sizeof shm->name;
}

static struct shm_wire *new_wire(void)
{
    struct shm_wire *wire = ko_alloc(sizeof *wire, "a wire");

    if (!wire)
        return NULL;
    wire->common.base.transport = &ko_transport_shm;
    wire->common.base.fd = -1;
    ko_stream_begin(&wire->common.stream, -1, true, false);
    return wire;
}

static void use_socket(struct shm_wire *wire, int fd)
{
    ko_stream_begin(&wire->common.stream, fd, true, false);
    wire->common.base.fd = fd;
    wire->common.base.wanted = KO_POLL_IN;
}

/* Makes our inbox and queues the hello that brings it. */
static int greet(struct shm_wire *wire)
{
    const struct ko_hello *hello = &wire->own_hello;
    int err = ko_segment_begin(ko_window_bytes(hello->slots, hello->slice_bytes),
                               ko_window_begun(hello->slots), &wire->own);

    if (err)
        return err;
    wire->own_hello.segment = wire->own->id;
    ko_stream_greet(&wire->common.stream, hello, wire->own->fd);
    wire->has_answered = true;
    return KOLO_OK;
}

/* Makes the socket; leaves it for a later drive if the listener's queue is full. */
static int begin(struct shm_wire *wire)
{
    int fd;
    int err = ko_unix_connect(wire->name, &fd);

    if (err)
        return err == KO_AGAIN ? KOLO_OK : err;
    use_socket(wire, fd);
    return greet(wire);
}

static void shm_hangup(struct ko_wire *base)
{
    struct shm_wire *wire = (struct shm_wire *)base;

    if (!wire)
        return;
    ko_stream_end(&wire->common.stream);
    ko_segment_release(wire->own);
    ko_segment_release(wire->peer);
    free(wire);
}

/* Sends what can be sent; the hello first. */
static int drive_stream(struct shm_wire *wire)
{
    int err = ko_stream_greeted(&wire->common.stream);

    if (err == KO_AGAIN)
        return KOLO_OK;
    if (!err)
        ko_segment_close_fd(wire->own);
    return err ? err : ko_stream_flush(&wire->common.stream);
}

static int shm_connect(struct ko_device *device, const unsigned char *address, size_t nbytes,
                       const struct ko_hello *hello, struct ko_wire **wire_out)
{
    struct shm_wire *wire = new_wire();
    int err;

    (void)device;
    if (!wire)
        return KOLO_E_NOMEM;
    wire->is_begun = true;
    wire->own_hello = *hello;
    memcpy(wire->name, address, nbytes < KO_UNIX_NAME ? nbytes : KO_UNIX_NAME - 1);
    err = begin(wire);
    if (!err && wire->common.base.fd >= 0)
        err = drive_stream(wire);
    if (err) {
        shm_hangup(&wire->common.base);
        return err;
    }
    *wire_out = &wire->common.base;
    return KOLO_OK;
}

static int shm_accept(struct ko_device *device, struct ko_wire **wire_out)
{
    struct shm_wire *wire;
    int fd;
    int err = ko_socket_accept(device->listen_fd, &fd);

    if (err)
        return err;
    err = ko_unix_check_user(fd);
    wire = err ? NULL : new_wire();
    if (!wire) {
        close(fd);
        return err ? err : KOLO_E_NOMEM;
    }
    use_socket(wire, fd);
    *wire_out = &wire->common.base;
    return KOLO_OK;
}

static int shm_answer(struct ko_wire *base, const struct ko_hello *hello)
{
    struct shm_wire *wire = (struct shm_wire *)base;
    int err;

    wire->own_hello = *hello;
    err = greet(wire);
    return err ? err : drive_stream(wire);
}

/* The peer's hello has come: its segment is here by id, or in the descriptor beside the hello. */
static int take_segment(struct shm_wire *wire)
{
    const struct ko_hello *hello = &wire->common.base.hello;
    const size_t nbytes = ko_window_bytes(hello->slots, hello->slice_bytes);
    int fd = wire->common.stream.got_fd;

    wire->peer = ko_segment_find(hello->segment);
    if (wire->peer && wire->peer->nbytes != nbytes)
        return ko_fail(KOLO_E_PROTOCOL,
                       "rank %d's hello names a segment of %zu bytes; %zu were expected",
                       (int)hello->from, wire->peer->nbytes, nbytes);
    if (wire->peer)
        return KOLO_OK;
    wire->common.stream.got_fd = -1;
    if (fd < 0)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d's hello came without its shared segment",
                       (int)hello->from);
    return ko_segment_map(fd, nbytes, &wire->peer);
}

static int hear(struct shm_wire *wire)
{
    int err = ko_stream_hear(&wire->common.stream, &wire->common.base.hello);

    if (err)
        return err == KO_AGAIN ? KOLO_OK : err;
    wire->common.base.has_hello = true;
    return KOLO_OK;
}

/* Both hellos are through: the windows can be used. Sizes are equal, or the peer's segment would
 * not fit the hello; an accepted wire is checked by whoever answers it. */
static int open_windows(struct shm_wire *wire)
{
    const struct ko_hello *theirs = &wire->common.base.hello, *ours = &wire->own_hello;
    int err;

    if (theirs->slots != ours->slots || theirs->slice_bytes != ours->slice_bytes)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d answered with a window of another size",
                       (int)theirs->from);
    err = take_segment(wire);
    if (err)
        return err;
    wire->common.base.inbox = wire->own->memory;
    wire->common.base.outbox = wire->peer->memory;
    wire->common.base.state = KO_WIRE_OPEN;
    return KOLO_OK;
}

static int shake(struct shm_wire *wire)
{
    int err = wire->common.base.has_hello ? KOLO_OK : hear(wire);

    if (err || !wire->has_answered)
        return err;
    err = drive_stream(wire);
    if (!err && wire->common.base.has_hello && !wire->common.stream.hello_out_left)
        err = open_windows(wire);
    return err;
}

static int shm_drive(struct ko_wire *base)
{
    struct shm_wire *wire = (struct shm_wire *)base;
    int err;

    if (base->fd < 0) {
        err = begin(wire);
        if (err || base->fd < 0)
            return err;
    }
    err = base->state == KO_WIRE_OPEN ? ko_stream_flush(&wire->common.stream) : shake(wire);
    base->wanted = ko_stream_wanted(&wire->common.stream);
    return err;
}

const struct ko_transport ko_transport_shm = {
    .name = "shm",
    .kind = KO_WINDOW,
    .open = shm_open_device,
    .close = shm_close,
    .address = shm_address,
    .connect = shm_connect,
    .accept = shm_accept,
    .answer = shm_answer,
    .drive = shm_drive,
    .send = ko_stream_wire_send,
    .next = ko_stream_wire_next,
    .land = ko_stream_wire_land,
    .take_fd = ko_stream_wire_take_fd,
    .hangup = shm_hangup,
};
