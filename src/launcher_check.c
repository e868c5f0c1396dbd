/* SPDX-License-Identifier: MIT
 *
 * What no launcher says, so that it is of two jobs, or written by hand and wrong.
 */
#include "launcher.h"

#include "status.h"

int ko_placement_check(const struct ko_placement *placement)
{
    if (placement->local_size >= 0 && placement->local_rank >= placement->local_size)
        return ko_fail(KOLO_E_INVALID,
                       "%s: local rank %d cannot be, with %d ranks on this node (%s)",
                       placement->rank_name, placement->local_rank, placement->local_size,
                       placement->launcher);
    if (placement->local_rank > placement->rank)
        return ko_fail(KOLO_E_INVALID,
                       "%s: local rank %d cannot be rank %d's: the %d before it on its node have "
                       "lower ranks (%s)",
                       placement->rank_name, placement->local_rank, placement->rank,
                       placement->local_rank, placement->launcher);
    if (placement->local_size > placement->size)
        return ko_fail(KOLO_E_INVALID, "%s: %d ranks on this node cannot be, of %d in all (%s)",
                       placement->rank_name, placement->local_size, placement->size,
                       placement->launcher);
    if (placement->nnodes >= 0 && placement->node >= placement->nnodes)
        return ko_fail(KOLO_E_INVALID, "%s: node %d cannot be, with %d nodes (%s)",
                       placement->rank_name, placement->node, placement->nnodes,
                       placement->launcher);
    return KOLO_OK;
}
