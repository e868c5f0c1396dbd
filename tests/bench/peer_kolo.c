/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include "kolo.h"

static kolo_group *group;

static void check(int err)
{
    if (err)
        peer_die("kolo", kolo_last_error());
}

static void ping_pong(float *in, float *out, size_t count)
{
    if (kolo_group_rank(group) == 0) {
        check(kolo_send(group, in, count, KOLO_FLOAT32, 1, 0));
        check(kolo_recv(group, out, count, KOLO_FLOAT32, 1, 0));
    } else {
        check(kolo_recv(group, out, count, KOLO_FLOAT32, 0, 0));
        check(kolo_send(group, in, count, KOLO_FLOAT32, 0, 0));
    }
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    if (what == ALL_REDUCE)
        check(kolo_all_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM));
    else if (what == BROADCAST)
        check(kolo_broadcast(group, out, count, KOLO_FLOAT32, root));
    else if (what == PING_PONG)
        ping_pong(in, out, count);
    else
        check(kolo_barrier(group));
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {.name = "kolo", .run = run};

    check(kolo_group_join("env://", -1, &group));
    peer.rank = kolo_group_rank(group);
    peer.size = kolo_group_size(group);
    peer_pin(peer.rank, peer.size);
    peer_measure(&peer, &plan);
    kolo_group_free(group);
    return 0;
}
