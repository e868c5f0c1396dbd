/* SPDX-License-Identifier: MIT
 *
 * A wire beside a window: control messages alone, by a stream, which says after each step what it
 * waits for.
 */
#include "status.h"
#include "stream.h"

static struct ko_stream *stream_of(struct ko_wire *wire)
{
    return &((struct ko_stream_wire *)wire)->stream;
}

int ko_stream_wire_send(struct ko_wire *wire, struct ko_post *post)
{
    int err = ko_stream_send(stream_of(wire), post);

    wire->wanted = ko_stream_wanted(stream_of(wire));
    return err;
}

/* Slices do not come this way. */
int ko_stream_wire_next(struct ko_wire *wire, const struct ko_frame **frame)
{
    int err = ko_stream_next(stream_of(wire), 0, frame);

    if (!err && (*frame)->kind == KO_FRAME_DATA)
        err = ko_fail(KOLO_E_PROTOCOL, "a slice came beside the window; kolo sends none there");
    wire->wanted = ko_stream_wanted(stream_of(wire));
    return err;
}

int ko_stream_wire_land(struct ko_wire *wire, void *to)
{
    int err = ko_stream_land(stream_of(wire), to);

    wire->wanted = ko_stream_wanted(stream_of(wire));
    return err;
}

int ko_stream_wire_take_fd(struct ko_wire *wire)
{
    return ko_stream_take_fd(stream_of(wire));
}
