/* SPDX-License-Identifier: MIT
 *
 * oneCCL on host buffers; its variables in the environment say over what. The calling thread makes
 * its progress.
 */
#include "peer_meet.h"

#include <memory>
#include <oneapi/ccl.hpp>
#include <vector>

static std::unique_ptr<ccl::communicator> world;

static void ping_pong(float *in, float *out, size_t count)
{
    if (world->rank() == 0) {
        ccl::send(in, count, ccl::datatype::float32, 1, *world).wait();
        ccl::recv(out, count, ccl::datatype::float32, 1, *world).wait();
    } else {
        ccl::recv(out, count, ccl::datatype::float32, 0, *world).wait();
        ccl::send(in, count, ccl::datatype::float32, 0, *world).wait();
    }
}

static void one_way(float *in, float *out, size_t count)
{
    const bool sends = world->rank() == 0;
    std::vector<ccl::event> events;

    for (int i = peer_window(count); i > 0; i--)
        events.push_back(sends ? ccl::send(in, count, ccl::datatype::float32, 1, *world)
                               : ccl::recv(out, count, ccl::datatype::float32, 0, *world));
    for (auto &event : events)
        event.wait();
    (sends ? ccl::recv(in, 1, ccl::datatype::float32, 1, *world)
           : ccl::send(out, 1, ccl::datatype::float32, 0, *world))
        .wait();
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    const auto sum = ccl::reduction::sum;

    switch (what) {
    case ALL_REDUCE:
        ccl::allreduce(in, out, count, sum, *world).wait();
        break;
    case REDUCE:
        ccl::reduce(in, out, count, sum, root, *world).wait();
        break;
    case BROADCAST:
        ccl::broadcast(out, count, root, *world).wait();
        break;
    case ALL_GATHER:
        ccl::allgatherv(in, count, out, std::vector<size_t>((size_t)world->size(), count), *world)
            .wait();
        break;
    case REDUCE_SCATTER:
        ccl::reduce_scatter(in, out, count, sum, *world).wait();
        break;
    case ALL_TO_ALL:
        ccl::alltoall(in, out, count, *world).wait();
        break;
    case PING_PONG:
        ping_pong(in, out, count);
        break;
    case ONE_WAY:
        one_way(in, out, count);
        break;
    default:
        ccl::barrier(*world);
    }
}

static void join(int rank, int size)
{
    ccl::kvs::address_type mine = {};
    ccl::shared_ptr_class<ccl::kvs> store;
    std::vector<ccl::kvs::address_type> addresses((size_t)size);

    ccl::init();
    if (rank == 0) {
        store = ccl::create_main_kvs();
        mine = store->get_address();
    }
    peer_meet_gather(mine.data(), addresses.data(), sizeof mine);
    if (rank != 0)
        store = ccl::create_kvs(addresses[0]);
    world.reset(new ccl::communicator(ccl::create_communicator(size, rank, store)));
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {"oneccl", 0, 0, run, nullptr, nullptr, nullptr, 0};

    peer_meet(&peer);
    try {
        setenv("CCL_LOCAL_SIZE", std::to_string(peer.size).c_str(), 1);
        setenv("CCL_LOCAL_RANK", std::to_string(peer.rank).c_str(), 1);
        join(peer.rank, peer.size);
        peer_part();
        peer_measure(&peer, &plan);
    } catch (const std::exception &fault) {
        peer_die("oneccl", fault.what());
    }
    fflush(stdout);
    _exit(0); /* how it takes itself apart is not measured */
}
