/* SPDX-License-Identifier: MIT
 *
 * Gloo over TCP, as Debian packages it; it meets through files in the folder GLOO_STORE. Its own
 * thread makes progress, so its ranks are not pinned.
 */
#include "peer.h"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <memory>

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<gloo::AllreduceOptions> all_reduce;
static std::unique_ptr<gloo::transport::UnboundBuffer> in_buffer, out_buffer;

static void prepare(enum peer_operation what, float *in, float *out, size_t count)
{
    auto sum = static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>);

    if (what == ALL_REDUCE) {
        all_reduce.reset(new gloo::AllreduceOptions(context));
        all_reduce->setInput(in, count);
        all_reduce->setOutput(out, count);
        all_reduce->setReduceFunction(sum);
    } else if (what == PING_PONG) {
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

static void run(enum peer_operation what, float *, float *out, size_t count, int root)
{
    if (what == ALL_REDUCE) {
        gloo::allreduce(*all_reduce);
    } else if (what == BROADCAST) {
        gloo::BroadcastOptions options(context);
        options.setOutput(out, count);
        options.setRoot(root);
        gloo::broadcast(options);
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
    struct peer peer = {"gloo", atoi(getenv("RANK")), atoi(getenv("WORLD_SIZE")), prepare, run};
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
