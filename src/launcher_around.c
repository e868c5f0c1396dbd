/* SPDX-License-Identifier: MIT
 *
 * Who starts ranks inside of each rank of another launcher's, an agent of torchrun or mpirun, says
 * how many are on the node, and numbers them as it likes. A shell, of srun's or a single rank's,
 * says nothing of those that are started in it by hand. But mpirun's ranks are programs: what says
 * otherwise there, as RANK exported once for all, would make several of them the same rank.
 */
#include "launcher_around.h"

#include "status.h"

#include <stdio.h>

/* So many in each rank of the other. */
static bool is_spread(const struct ko_around *around, const struct ko_placement *placement)
{
    return around->own_local_size > 0 &&
           (long long)around->own_local_size * around->size == placement->size;
}

static bool is_inside(const struct ko_around *around, const struct ko_placement *placement)
{
    if (around->size == 1)
        return true;
    if (around->size >= placement->size)
        return false;
    return around->is_started || is_spread(around, placement) ||
           (around->own_local_size > 0 && !around->starts_programs);
}

static bool is_left_over(const struct ko_around *around, const struct ko_placement *placement)
{
    if (!around->starts_programs || around->is_started || is_spread(around, placement))
        return false;
    return !around->is_explicit || around->size == placement->size;
}

int ko_placement_compare(const struct ko_around *around, struct ko_placement *placement)
{
    if (is_inside(around, placement))
        return KOLO_OK;
    if (is_left_over(around, placement))
        return ko_fail(KOLO_E_INVALID,
                       "%s says rank %d of %d, but %s says rank %d of %d (%s): unset %s and %s if "
                       "they are left over or set alike for all, else %s and %s",
                       placement->rank_name, placement->rank, placement->size, around->rank_name,
                       around->rank, around->size, around->launcher, placement->rank_name,
                       around->own_size_name, around->rank_name, around->size_name);
    snprintf(placement->warning, sizeof placement->warning,
             "%s says rank %d of %d, which counts; but %s says rank %d of %d: is the former left "
             "over from another job, or the latter of what has started this one?",
             placement->rank_name, placement->rank, placement->size, around->rank_name,
             around->rank, around->size);
    return KOLO_OK;
}
