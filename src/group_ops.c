/* SPDX-License-Identifier: MIT
 *
 * What a group is given besides its ranks: ops with a factor.
 */
#include "dtype.h"
#include "group.h"

/* ---- ops with a factor ------------------------------------------------------------------- */

int kolo_op_premul_sum(kolo_group *group, double factor, kolo_op *op)
{
    int index = 0;

    if (!group || !op)
        return ko_fail(KOLO_E_INVALID, "kolo_op_premul_sum: %s is NULL", group ? "op" : "group");
    pthread_mutex_lock(&group->lock);
    while (index < KO_MOST_PREMULS && group->premuls[index].is_used)
        index++;
    if (index < KO_MOST_PREMULS)
        group->premuls[index] = (struct ko_premul){factor, true};
    pthread_mutex_unlock(&group->lock);
    if (index == KO_MOST_PREMULS)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "kolo_op_premul_sum: the group has %d ops already; free some",
                       KO_MOST_PREMULS);
    *op = (kolo_op)(KO_PREMUL + index);
    return KOLO_OK;
}

/* The op's place; NULL if the group has none such. Under the lock. */
static struct ko_premul *find(kolo_group *group, kolo_op op)
{
    const unsigned index = (unsigned)op - KO_PREMUL; /* huge of a smaller one */

    return index < KO_MOST_PREMULS && group->premuls[index].is_used ? &group->premuls[index] : NULL;
}

static int fail_unknown(kolo_op op)
{
    return ko_fail(KOLO_E_INVALID,
                   "%d is no reduction; enum kolo_op lists them, kolo_op_premul_sum makes others",
                   (int)op);
}

int kolo_op_free(kolo_group *group, kolo_op op)
{
    struct ko_premul *premul;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "kolo_op_free: group is NULL");
    pthread_mutex_lock(&group->lock);
    premul = find(group, op);
    if (premul)
        premul->is_used = false;
    pthread_mutex_unlock(&group->lock);
    if (!premul && ko_op_is_valid(op))
        return ko_fail(KOLO_E_INVALID, "kolo_op_free: %s is no op that kolo_op_premul_sum has made",
                       kolo_op_name(op));
    return premul ? KOLO_OK : fail_unknown(op);
}

int ko_group_factor(kolo_group *group, kolo_op op, double *factor)
{
    const struct ko_premul *premul;

    pthread_mutex_lock(&group->lock);
    premul = find(group, op);
    if (premul)
        *factor = premul->factor;
    pthread_mutex_unlock(&group->lock);
    return premul ? KOLO_OK : fail_unknown(op);
}
