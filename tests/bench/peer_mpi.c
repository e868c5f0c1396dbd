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

static void run(enum peer_operation what, float *in, float *out, size_t count, int root)
{
    if (what == ALL_REDUCE)
        MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (what == BROADCAST)
        MPI_Bcast(out, (int)count, MPI_FLOAT, root, MPI_COMM_WORLD);
    else if (what == PING_PONG)
        ping_pong(in, out, (int)count);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    struct peer_plan plan = peer_read_plan(argc, argv);
    struct peer peer = {.name = LIBRARY, .run = run};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    peer.rank = rank;
    peer_pin(peer.rank, peer.size);
    peer_measure(&peer, &plan);
    MPI_Finalize();
    return 0;
}
