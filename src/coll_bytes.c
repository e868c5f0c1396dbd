/* SPDX-License-Identifier: MIT
 *
 * Blobs of which only their owner knows the size: the sizes go ahead in a collective of their own,
 * then every rank knows how much room it takes. Whoever has no room then fails the group, since the
 * others wait for it.
 */
#include "coll.h"
#include "group.h"

#include <stdlib.h>
#include <string.h>

static int fail_null(const char *name, const kolo_group *group)
{
    return ko_fail(KOLO_E_INVALID, "%s: %s is NULL", name, group ? "the result" : "group");
}

static int check(const char *name, kolo_group *group, const void *result, const kolo_bytes *in,
                 int nin)
{
    if (!group || !result)
        return fail_null(name, group);
    if (nin && !in)
        return ko_fail(KOLO_E_INVALID, "%s: in is NULL", name);
    for (int i = 0; i < nin; i++)
        if (in[i].nbytes && !in[i].data)
            return ko_fail(KOLO_E_INVALID, "%s: a blob of %zu bytes is NULL", name, in[i].nbytes);
    return KOLO_OK;
}

static int check_root(const char *name, kolo_group *group, const void *result, const kolo_bytes *in,
                      int nin, int root)
{
    int err = check(name, group, result, in, nin);

    return err ? err : ko_group_check_rank(group, root, "the root");
}

/* Memory for what the others are about to send; NULL fails the group. */
static void *make_room(kolo_group *group, size_t nbytes)
{
    void *room = ko_alloc_unset(nbytes, "what other ranks send");

    if (!room)
        (void)ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    return room;
}

/* ---- one list of all ranks' blobs -------------------------------------------------------- */

static int fail_blob(kolo_group *group, int rank, size_t nbytes)
{
    (void)ko_fail(KOLO_E_NOMEM,
                  "rank %d's blob of %zu bytes, with those of the ranks before it, is more than "
                  "memory has",
                  rank, nbytes);
    return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
}

/* The list and behind it the blobs, in one piece of memory; sizes as the ranks have said. */
static int make_list(kolo_group *group, const size_t *sizes, kolo_bytes **list_out)
{
    const int n = group->size;
    size_t nbytes = (size_t)n * sizeof(kolo_bytes);
    kolo_bytes *list;
    unsigned char *at;

    for (int r = 0; r < n; r++)
        if (__builtin_add_overflow(nbytes, sizes[r], &nbytes))
            return fail_blob(group, r, sizes[r]);
    list = make_room(group, nbytes);
    if (!list)
        return KOLO_E_NOMEM;
    at = (unsigned char *)(list + n);
    for (int r = 0; r < n; r++) {
        list[r] = (kolo_bytes){at, sizes[r]};
        at += sizes[r];
    }
    *list_out = list;
    return KOLO_OK;
}

/* Room for each rank's. Without it the others would wait for this rank in vain. */
static int make_sizes(kolo_group *group, size_t **sizes)
{
    *sizes = ko_alloc((size_t)group->size * sizeof **sizes, "the sizes of blobs");
    if (*sizes)
        return KOLO_OK;
    (void)ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    return KOLO_E_NOMEM;
}

int kolo_all_gather_bytes(kolo_group *group, kolo_bytes in, kolo_bytes **all)
{
    size_t *sizes;
    kolo_bytes *list = NULL;
    int err = check("kolo_all_gather_bytes", group, all, &in, 1);

    if (err)
        return err;
    err = make_sizes(group, &sizes);
    if (!err)
        err = kolo_all_gather(group, &in.nbytes, sizes, 1, KOLO_UINT64);
    if (!err)
        err = make_list(group, sizes, &list);
    if (!err)
        err = kolo_all_gather_v(group, in.data, list + group->size, &(kolo_blocks){.counts = sizes},
                                KOLO_UINT8);
    free(sizes);
    if (err)
        free(list);
    else
        *all = list;
    return err;
}

int kolo_gather_bytes(kolo_group *group, kolo_bytes in, kolo_bytes **all, int root)
{
    size_t *sizes;
    kolo_bytes *list = NULL;
    int err = check_root("kolo_gather_bytes", group, all, &in, 1, root);

    if (err)
        return err;
    err = make_sizes(group, &sizes);
    if (!err)
        err = kolo_gather(group, &in.nbytes, sizes, 1, KOLO_UINT64, root);
    if (!err && group->rank == root)
        err = make_list(group, sizes, &list);
    if (!err)
        err = kolo_gather_v(group, in.data, in.nbytes, list ? list + group->size : NULL,
                            &(kolo_blocks){.counts = sizes}, KOLO_UINT8, root);
    free(sizes);
    if (err)
        free(list);
    else
        *all = list;
    return err;
}

/* ---- one blob for each rank -------------------------------------------------------------- */

/* Room for a blob of so many bytes and the NUL behind it. */
static int make_blob(kolo_group *group, size_t nbytes, void **blob)
{
    char *room;

    if (nbytes == SIZE_MAX)
        return ko_group_fail(group, KOLO_E_NOMEM, "the blob is more than memory has");
    room = make_room(group, nbytes + 1);
    if (!room)
        return KOLO_E_NOMEM;
    room[nbytes] = 0;
    *blob = room;
    return KOLO_OK;
}

int kolo_broadcast_bytes(kolo_group *group, kolo_bytes in, void **out, size_t *nbytes, int root)
{
    const int nin = group && group->rank == root;
    size_t size = in.nbytes;
    void *blob = NULL;
    int err;

    if (!group || !out || !nbytes)
        return fail_null("kolo_broadcast_bytes", group);
    err = check_root("kolo_broadcast_bytes", group, out, &in, nin, root);
    if (!err)
        err = kolo_broadcast(group, &size, 1, KOLO_UINT64, root);
    if (!err)
        err = make_blob(group, size, &blob);
    if (!err && blob && nin && size)
        memcpy(blob, in.data, size);
    if (!err)
        err = kolo_broadcast(group, blob, size, KOLO_UINT8, root);
    if (err) {
        free(blob);
        return err;
    }
    *out = blob;
    *nbytes = size;
    return KOLO_OK;
}

/* root's blobs one behind the other, and their sizes. */
static int pack(kolo_group *group, const kolo_bytes *in, size_t **sizes, unsigned char **packed)
{
    size_t nbytes = 0, at = 0;
    int err = make_sizes(group, sizes);

    if (err)
        return err;
    for (int r = 0; r < group->size; r++) {
        (*sizes)[r] = in[r].nbytes;
        if (__builtin_add_overflow(nbytes, in[r].nbytes, &nbytes))
            return ko_fail(KOLO_E_INVALID,
                           "kolo_scatter_bytes: rank %d's blob of %zu bytes, with those of the "
                           "ranks before it, is more than memory has",
                           r, in[r].nbytes);
    }
    *packed = ko_alloc_unset(nbytes, "blobs to scatter");
    if (!*packed)
        return ko_group_fail(group, KOLO_E_NOMEM, kolo_last_error());
    for (int r = 0; r < group->size; at += in[r++].nbytes)
        if (in[r].nbytes)
            memcpy(*packed + at, in[r].data, in[r].nbytes);
    return KOLO_OK;
}

/* sizes and packed: root's. */
static int scatter(kolo_group *group, const size_t *sizes, const unsigned char *packed, int root,
                   kolo_bytes *mine)
{
    size_t size = 0;
    void *blob = NULL;
    int err = kolo_scatter(group, sizes, &size, 1, KOLO_UINT64, root);

    if (!err)
        err = make_blob(group, size, &blob);
    if (!err)
        err = kolo_scatter_v(group, packed, &(kolo_blocks){.counts = sizes}, blob, size, KOLO_UINT8,
                             root);
    if (err)
        free(blob);
    else
        *mine = (kolo_bytes){blob, size};
    return err;
}

int kolo_scatter_bytes(kolo_group *group, const kolo_bytes *in, void **out, size_t *nbytes,
                       int root)
{
    const bool is_root = group && group->rank == root;
    unsigned char *packed = NULL;
    size_t *sizes = NULL;
    kolo_bytes mine = {NULL, 0};
    int err;

    if (!group || !out || !nbytes)
        return fail_null("kolo_scatter_bytes", group);
    err = check_root("kolo_scatter_bytes", group, out, in, is_root ? group->size : 0, root);
    if (!err && is_root)
        err = pack(group, in, &sizes, &packed);
    if (!err)
        err = scatter(group, sizes, packed, root, &mine);
    free(sizes);
    free(packed);
    if (err)
        return err;
    *out = (void *)(uintptr_t)mine.data;
    *nbytes = mine.nbytes;
    return KOLO_OK;
}
