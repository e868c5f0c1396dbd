/* SPDX-License-Identifier: MIT
 *
 * A rank and itself: one window that is both inbox and outbox. It is open at once, has nobody to
 * wake and nobody to lose.
 */
#include "transport.h"

#include "status.h"
#include "window.h"

#include <stdlib.h>
#include <sys/mman.h>

static int self_open(const struct ko_site *site, struct ko_device **device)
{
    (void)site;
    *device = ko_alloc(sizeof **device, "a device");
    if (!*device)
        return KOLO_E_NOMEM;
    **device = (struct ko_device){.transport = &ko_transport_self, .listen_fd = -1};
    return KOLO_OK;
}

static void self_close(struct ko_device *device)
{
    free(device);
}

static size_t self_address(struct ko_device *device, unsigned char *address)
{
    (void)device;
    (void)address;
    return 0;
}

static int self_connect(struct ko_device *device, const unsigned char *address,
                        size_t address_bytes, const struct ko_hello *hello,
                        struct ko_wire **wire_out)
{
    const size_t nbytes = ko_window_bytes(hello->slots, hello->slice_bytes);
    struct ko_wire *wire = ko_alloc(sizeof *wire, "a wire");
    void *window;

    (void)device;
    (void)address;
    (void)address_bytes;
    if (!wire)
        return KOLO_E_NOMEM;
    *wire = (struct ko_wire){.transport = &ko_transport_self,
                             .state = KO_WIRE_OPEN,
                             .has_hello = true,
                             .hello = *hello,
                             .fd = -1};
    window = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (window == MAP_FAILED) {
        free(wire);
        return ko_fail(KOLO_E_NOMEM, "no memory for a window of %zu bytes", nbytes);
    }
    wire->inbox = window;
    wire->outbox = wire->inbox;
    *wire_out = wire;
    return KOLO_OK;
}

static int self_accept(struct ko_device *device, struct ko_wire **wire)
{
    (void)device;
    (void)wire;
    return KO_AGAIN;
}

static int self_answer(struct ko_wire *wire, const struct ko_hello *hello)
{
    (void)wire;
    (void)hello;
    return ko_fail(KOLO_E_INTERNAL, "the self transport accepts no wire that could be answered");
}

static int self_drive(struct ko_wire *wire)
{
    (void)wire;
    return KOLO_OK;
}

static int self_send(struct ko_wire *wire, struct ko_post *post)
{
    (void)wire;
    post->is_queued = false; /* whom to tell? */
    return KOLO_OK;
}

static int self_next(struct ko_wire *wire, const struct ko_frame **frame)
{
    (void)wire;
    (void)frame;
    return KO_AGAIN;
}

static int self_land(struct ko_wire *wire, void *to)
{
    (void)wire;
    (void)to;
    return KO_AGAIN;
}

static void self_hangup(struct ko_wire *wire)
{
    if (wire)
        munmap(wire->inbox, ko_window_bytes(wire->hello.slots, wire->hello.slice_bytes));
    free(wire);
}

const struct ko_transport ko_transport_self = {
    .name = "self",
    .kind = KO_WINDOW,
    .open = self_open,
    .close = self_close,
    .address = self_address,
    .connect = self_connect,
    .accept = self_accept,
    .answer = self_answer,
    .drive = self_drive,
    .send = self_send,
    .next = self_next,
    .land = self_land,
    .hangup = self_hangup,
};
