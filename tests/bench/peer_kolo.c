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

static void one_way(float *in, float *out, size_t count)
{
    const int window = peer_window(count);
    kolo_work *works[PEER_WINDOW];

    for (int i = 0; i < window; i++)
        if (kolo_group_rank(group) == 0)
            check(kolo_isend(group, in, count, KOLO_FLOAT32, 1, 0, &works[i]));
        else
            check(kolo_irecv(group, out, count, KOLO_FLOAT32, 0, 0, &works[i]));
    for (int i = 0; i < window; i++) {
        check(kolo_work_wait(works[i], -1));
        kolo_work_free(works[i]);
    }
    if (kolo_group_rank(group) == 0)
        check(kolo_recv(group, in, 1, KOLO_FLOAT32, 1, 1));
    else
        check(kolo_send(group, out, 1, KOLO_FLOAT32, 0, 1));
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    switch (what) {
    case ALL_REDUCE:
        return check(kolo_all_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM));
    case REDUCE:
        return check(kolo_reduce(group, in, out, count, KOLO_FLOAT32, KOLO_SUM, root));
    case BROADCAST:
        return check(kolo_broadcast(group, out, count, KOLO_FLOAT32, root));
    case ALL_GATHER:
        return check(kolo_all_gather(group, in, out, count, KOLO_FLOAT32));
    case REDUCE_SCATTER:
        return check(kolo_reduce_scatter(group, in, out, count, KOLO_FLOAT32, KOLO_SUM));
    case ALL_TO_ALL:
        return check(kolo_all_to_all(group, in, out, count, KOLO_FLOAT32));
    case PING_PONG:
        return ping_pong(in, out, count);
    case ONE_WAY:
        return one_way(in, out, count);
    default:
        return check(kolo_barrier(group));
    }
}

static float *allocate_shared(size_t nbytes)
{
    void *memory = NULL;

    check(kolo_mem_alloc(nbytes, &memory));
    return memory;
}

int main(int argc, char **argv)
{
    struct peer peer = {.name = "kolo", .run = run};
    struct peer_plan plan;

    if (argc == 6 && !strcmp(argv[5], "shared")) {
        peer.allocate = allocate_shared;
        argc--;
    }
    plan = peer_read_plan(argc, argv);
    check(kolo_group_join("env://", -1, &group));
    peer.rank = kolo_group_rank(group);
    peer.size = kolo_group_size(group);
    peer_pin(peer.rank);
    peer_measure(&peer, &plan);
    kolo_group_free(group);
    return 0;
}
