/* SPDX-License-Identifier: MIT
 *
 * A rank of MPI and of kolo in one process, whichever comes first:
 *   beside_mpi within   joins twice while MPI runs
 *   beside_mpi before   joins, then begins with MPI
 *   beside_mpi alone    joins, and never begins with MPI
 *   beside_mpi after    joins when MPI is over, and prints why that failed
 * Rank 0 prints the sums of both.
 */
#include "kolo.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { TIMEOUT_MS = 60000 };

static int sum_of_kolo(void)
{
    kolo_group *world;
    int value, err = kolo_group_join(NULL, TIMEOUT_MS, &world);

    if (err) {
        printf("kolo: %s\n", kolo_last_error());
        return 1;
    }
    value = kolo_group_rank(world) + 1;
    err = kolo_all_reduce(world, &value, &value, 1, KOLO_INT32, KOLO_SUM);
    if (!err && kolo_group_rank(world) == 0)
        printf("kolo %d\n", value);
    kolo_group_free(world);
    return err != KOLO_OK;
}

static void sum_of_mpi(void)
{
    int rank, value;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    value = rank + 1;
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("mpi %d\n", value);
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "";
    int failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(when, "before") || !strcmp(when, "alone"))
        failed = sum_of_kolo();
    if (!strcmp(when, "alone"))
        return failed;
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 2 && !failed && !strcmp(when, "within"); i++)
        failed = sum_of_kolo();
    sum_of_mpi();
    MPI_Finalize();
    return !strcmp(when, "after") ? sum_of_kolo() : failed;
}
