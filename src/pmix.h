/* SPDX-License-Identifier: MIT
 *
 * pmix.h: what is needed of PMIx, by which Open MPI's mpirun and srun --mpi=pmix tell processes of
 * each other. Its library, libpmix.so.2, comes with these launchers; it is opened when it is needed
 * and stays loaded.
 */
#ifndef KO_PMIX_H
#define KO_PMIX_H

#include "clock.h"

#include <stddef.h>

/* Gives rank 0's text, of at most cap bytes with its NUL, to all ranks: all of them call it, and it
 * returns by the deadline or a little later. text is read on rank 0 and written on the others.
 * KOLO_E_UNSUPPORTED: there is no such library. */
int ko_pmix_share(int rank, char *text, size_t cap, const ko_deadline *deadline);

#endif
