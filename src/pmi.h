/* SPDX-License-Identifier: MIT
 *
 * pmi.h: the process manager interface, version 1, as MPICH's mpiexec and srun --mpi=pmi2 speak it:
 * lines of name=value over a descriptor that the process inherits, one answer to each request. No
 * library is needed. A process can use it once, but while MPI runs in it (beside_mpi.h) again and
 * again.
 */
#ifndef KO_PMI_H
#define KO_PMI_H

#include "clock.h"

#include <stddef.h>

/* The longest text that is shared, its NUL included. It holds no space, "=" or line's end. */
#define KO_PMI_TEXT 256

/* For the time-outs of launchers' barriers, which know no names. */
#define KO_PMI_WHO                                                                             \
    "the launcher does not tell who is missing: look for a rank that has ended, or that does " \
    "not join. With KOLO_MASTER=host:port of rank 0, set for all, kolo names it; "             \
    "KOLO_TIMEOUT_MS, or the timeout_ms of the join, sets the limit"

#define KO_PMI_MPI_OVER                                                                         \
    "MPI_Finalize has taken leave of the launcher; join before it, or set KOLO_MASTER to rank " \
    "0's "                                                                                      \
    "host:port"

/* Gives rank 0's text to all ranks: all of them call it with one key, new each time, and it returns
 * by the deadline at the latest. text is read on rank 0 and written on the others. */
int ko_pmi_share(int fd, int rank, const char *key, char text[KO_PMI_TEXT],
                 const ko_deadline *deadline);

#endif
