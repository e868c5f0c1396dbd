/* SPDX-License-Identifier: MIT
 *
 * Gloo over TCP, as Debian packages it; it meets through files in the folder GLOO_STORE. Its own
 * thread makes progress, so its ranks are not pinned.
 */
#include "peer.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <memory>

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<gloo::transport::UnboundBuffer> in_buffer, out_buffer;

static void add(void *sum, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(sum, a, b, count);
}

static int can(enum peer_operation what, size_t)
{
    return what != REDUCE_SCATTER && what != ONE_WAY; /* the first is not in this version */
}

static void prepare(enum peer_operation what, float *in, float *out, size_t count)
{
    if (what == PING_PONG) {
        in_buffer = context->createUnboundBuffer(in, count * sizeof *in);
        out_buffer = context->createUnboundBuffer(out, count * sizeof *out);
    }
}

static void ping_pong(size_t nbytes)
{
    const int other = 1 - context->rank;

    if (context->rank == 0) {
        in_buffer->send(other, 1, 0, nbytes);
        out_buffer->recv(other, 1, 0, nbytes);
        in_buffer->waitSend();
        out_buffer->waitRecv();
    } else {
        out_buffer->recv(other, 1, 0, nbytes);
        out_buffer->waitRecv();
        in_buffer->send(other, 1, 0, nbytes);
        in_buffer->waitSend();
    }
}

template <class Options> static Options with_buffers(float *in, size_t nin, float *out, size_t nout)
{
    Options options(context);

    options.setInput(in, nin);
    options.setOutput(out, nout);
    return options;
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    const size_t all = count * (size_t)context->size;

    if (what == ALL_REDUCE) {
        auto options = with_buffers<gloo::AllreduceOptions>(in, count, out, count);
        options.setReduceFunction(add);
        gloo::allreduce(options);
    } else if (what == REDUCE) {
        auto options = with_buffers<gloo::ReduceOptions>(in, count, out, count);
        options.setReduceFunction(add);
        options.setRoot(root);
        gloo::reduce(options);
    } else if (what == BROADCAST) {
        gloo::BroadcastOptions options(context);
        options.setOutput(out, count);
        options.setRoot(root);
        gloo::broadcast(options);
    } else if (what == ALL_GATHER) {
        auto options = with_buffers<gloo::AllgatherOptions>(in, count, out, all);
        gloo::allgather(options);
    } else if (what == ALL_TO_ALL) {
        auto options = with_buffers<gloo::AlltoallOptions>(in, all, out, all);
        gloo::alltoall(options);
    } else if (what == PING_PONG) {
        ping_pong(count * sizeof *out);
    } else {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    }
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {"gloo", atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")), run, prepare, can,
                        nullptr, 0};
    gloo::transport::tcp::attr attributes;

    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(getenv("GLOO_STORE"));
    context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.size);
    context->setTimeout(std::chrono::seconds(120));
    context->connectFullMesh(store, device);
    peer_measure(&peer, &plan);
    fflush(stdout);
    _exit(0); /* how it takes itself apart is not measured */
}
