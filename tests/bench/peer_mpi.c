/* SPDX-License-Identifier: MIT
 *
 * Compiled once for each MPI library; LIBRARY is its name.
 */
#include "peer.h"

#include <mpi.h>

static int rank;

static void ping_pong(float *in, float *out, int count)
{
    if (rank == 0) {
        MPI_Send(in, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(out, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(out, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(in, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    }
}

static void one_way(float *in, float *out, size_t count)
{
    const int window = peer_window(count);
    MPI_Request requests[PEER_WINDOW];

    for (int i = 0; i < window; i++)
        if (rank == 0)
            MPI_Isend(in, (int)count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(out, (int)count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(in, 1, MPI_FLOAT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 1, MPI_FLOAT, 0, 1, MPI_COMM_WORLD);
}

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    const int n = (int)count;

    switch (what) {
    case ALL_REDUCE:
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case REDUCE:
        MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(out, n, MPI_FLOAT, root, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_TO_ALL:
        MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case PING_PONG:
        ping_pong(in, out, n);
        break;
    case ONE_WAY:
        one_way(in, out, count);
        break;
    default:
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {.name = LIBRARY, .run = run};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    peer.rank = rank;
    peer_pin(peer.rank);
    peer_measure(&peer, &plan);
    MPI_Finalize();
    return 0;
}
