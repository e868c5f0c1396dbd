/* SPDX-License-Identifier: MIT
 *
 * launcher_around.h: whether a job is one inside of another launcher's, or what says so is left
 * over from an older one. For launcher.c. No state; any thread.
 */
#ifndef KO_LAUNCHER_AROUND_H
#define KO_LAUNCHER_AROUND_H

#include "launcher.h"

/* Another launcher's word beside the one that counts, which says otherwise. */
struct ko_around {
    const char *launcher, *rank_name, *size_name;
    int rank, size;
    bool starts_programs;      /* its ranks are programs; else perhaps a shell, as srun --pty's */
    const char *own_size_name; /* of the one that counts, as all below */
    int own_local_size;        /* 0: not said */
    bool is_started;           /* by a launcher or an agent, and not by hand */
    bool is_explicit;          /* by kolo's own names */
};

/* KOLO_E_INVALID if the one that counts cannot be meant; else sets the placement's warning if it is
 * doubtful. */
int ko_placement_compare(const struct ko_around *around, struct ko_placement *placement);

#endif
