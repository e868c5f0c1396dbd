/* SPDX-License-Identifier: MIT
 *
 * beside_mpi.h: MPI in the same process. It uses the launcher's interface that kolo does, which
 * bears one beginning and one leave.
 */
#ifndef KO_BESIDE_MPI_H
#define KO_BESIDE_MPI_H

enum ko_mpi {
    KO_MPI_NONE,   /* no library of MPI is loaded */
    KO_MPI_BEFORE, /* MPI_Init */
    KO_MPI_RUNNING,
    KO_MPI_OVER /* after MPI_Finalize */
};

enum ko_mpi ko_mpi_state(void);

/* Calls act when this process ends, once, whoever asks how often; not in a child of a fork's. */
void ko_mpi_at_end(void (*act)(void));

#endif
