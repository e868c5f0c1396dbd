/* SPDX-License-Identifier: MIT
 *
 * Ranks compare the length and a 64-bit hash of their descriptions. Only if these differ are two
 * whole ones sent, that of rank 0 and that of the first rank to differ, and all ranks compare the
 * same two texts.
 */
#include "ddp/agree.h"

#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* No model comes near; a length beyond it is damage. */
static const uint64_t longest = 256 << 20;

/* ---- one description ------------------------------------------------------------------------- */

/* The entry of a parameter, or of the bucket sizes if param is NULL; returns its length. */
static size_t print_entry(char *text, size_t cap, const kolo_param *param,
                          const kolo_ddp_options *options)
{
    int length = param ? snprintf(text, cap, "%s[%zu] %s", kolo_dtype_name(param->dtype),
                                  param->count, param->name)
                       : snprintf(text, cap, "first_bucket_bytes %zu, bucket_bytes %zu",
                                  options->first_bucket_bytes, options->bucket_bytes);

    return (size_t)length + 1;
}

int ko_description_make(struct ko_description *description, const kolo_param *params,
                        size_t nparams, const kolo_ddp_options *options)
{
    size_t nbytes = print_entry(NULL, 0, NULL, options);
    char *text, *next;

    for (size_t i = 0; i < nparams; i++)
        nbytes += print_entry(NULL, 0, &params[i], options);
    if (nbytes > longest)
        return ko_fail(KOLO_E_INVALID,
                       "the names of %zu parameters take %zu bytes; %" PRIu64 " is the most",
                       nparams, nbytes, longest);
    text = ko_alloc(nbytes, "the description of the parameters");
    if (!text)
        return KOLO_E_NOMEM;
    next = text + print_entry(text, nbytes, NULL, options);
    for (size_t i = 0; i < nparams; i++)
        next += print_entry(next, nbytes - (size_t)(next - text), &params[i], options);
    *description = (struct ko_description){text, nbytes};
    return KOLO_OK;
}

void ko_description_names(const struct ko_description *description, kolo_param *params,
                          size_t nparams)
{
    const char *entry = description->text;

    for (size_t i = 0; i < nparams; i++) {
        entry += strlen(entry) + 1;
        params[i].name = strchr(entry, ' ') + 1;
    }
}

void ko_description_free(struct ko_description *description)
{
    kolo_free(description->text);
    *description = (struct ko_description){0};
}

/* ---- two descriptions ------------------------------------------------------------------------ */

static size_t count_entries(const struct ko_description *description)
{
    size_t n = 0;

    for (size_t i = 0; i < description->nbytes; i++)
        n += !description->text[i];
    return n;
}

/* KOLO_E_MISMATCH, with both sides. */
static int tell_difference(const struct ko_description *zero, const struct ko_description *other,
                           int rank)
{
    size_t nzero = count_entries(zero), nother = count_entries(other);
    size_t nboth = nzero < nother ? nzero : nother;
    const char *a = zero->text, *b = other->text;
    size_t i = 0;

    while (i < nboth && !strcmp(a, b)) {
        a += strlen(a) + 1;
        b += strlen(b) + 1;
        i++;
    }
    if (i < nboth && i == 0)
        return ko_fail(KOLO_E_MISMATCH, "ddp: rank 0 says \"%.200s\", rank %d says \"%.200s\"", a,
                       rank, b);
    if (i < nboth)
        return ko_fail(KOLO_E_MISMATCH,
                       "ddp parameter %zu is %.200s on rank 0 but %.200s on rank %d", i - 1, a, b,
                       rank);
    if (nzero == nother)
        return ko_fail(KOLO_E_PROTOCOL, "ddp: rank %d's digest is not that of its parameters",
                       rank);
    return ko_fail(KOLO_E_MISMATCH,
                   "ddp: rank 0 has %zu parameters, rank %d has %zu: only rank %d has %.200s",
                   nzero - 1, rank, nother - 1, nzero > nother ? 0 : rank, nzero > nother ? a : b);
}

/* ---- all descriptions ------------------------------------------------------------------------ */

struct digest {
    uint64_t nbytes;
    uint64_t hash;
};

/* FNV-1a. */
static uint64_t hash_of(const struct ko_description *description)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (size_t i = 0; i < description->nbytes; i++)
        hash = (hash ^ (unsigned char)description->text[i]) * 0x100000001b3;
    return hash;
}

/* rank's description, which is as long as its digest says, on every rank. */
static int share(kolo_group *group, int rank, uint64_t nbytes, const struct ko_description *own,
                 struct ko_description *description)
{
    char *text;
    int err;

    if (nbytes < 1 || nbytes > longest)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d's parameters take %" PRIu64 " bytes to describe",
                       rank, nbytes);
    text = ko_alloc(nbytes, "another rank's description of the parameters");
    if (!text)
        return KOLO_E_NOMEM;
    if (kolo_group_rank(group) == rank)
        memcpy(text, own->text, nbytes);
    err = kolo_broadcast(group, text, nbytes, KOLO_UINT8, rank);
    if (!err && text[nbytes - 1])
        err = ko_fail(KOLO_E_PROTOCOL, "rank %d's description of its parameters has no end", rank);
    if (err) {
        kolo_free(text);
        return err;
    }
    *description = (struct ko_description){text, nbytes};
    return KOLO_OK;
}

static int compare_two(kolo_group *group, const struct digest *digests, int rank,
                       const struct ko_description *own)
{
    struct ko_description zero, other;
    int err = share(group, 0, digests[0].nbytes, own, &zero);

    if (err)
        return err;
    err = share(group, rank, digests[rank].nbytes, own, &other);
    if (err)
        goto undo_zero;
    err = tell_difference(&zero, &other, rank);
    ko_description_free(&other);
undo_zero:
    ko_description_free(&zero);
    return err;
}

int ko_description_agree(kolo_group *group, const struct ko_description *description)
{
    struct digest own = {description->nbytes, hash_of(description)};
    int size = kolo_group_size(group);
    struct digest *digests = ko_alloc((size_t)size * sizeof own, "the ranks' digests");
    int err;

    if (!digests)
        return KOLO_E_NOMEM;
    err = kolo_all_gather(group, &own, digests, 2, KOLO_UINT64);
    for (int r = 1; r < size && !err; r++)
        if (memcmp(&digests[r], &digests[0], sizeof own) != 0)
            err = compare_two(group, digests, r, description);
    kolo_free(digests);
    return err;
}

int ko_description_refuse(kolo_group *group, int status)
{
    char text[KO_ERROR_TEXT];
    struct ko_description complaint = {text, 0};

    complaint.nbytes = (size_t)snprintf(text, sizeof text, "%s", kolo_last_error()) + 1;
    ko_description_agree(group, &complaint); /* whatever comes of it, the first error stands */
    return ko_fail_again(status, text);
}
