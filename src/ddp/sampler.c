/* SPDX-License-Identifier: MIT
 *
 * The list of all samples, in order or permuted, is repeated (or cut) to a multiple of size; rank r
 * takes its elements r, r + size, r + 2 size, ... Only the permutation needs memory.
 */
#include "ddp/mt19937.h"
#include "status.h"

static int check(const char *name, size_t nsamples, const kolo_sampler_options *options)
{
    if (!options)
        return ko_fail(KOLO_E_INVALID, "%s: options is NULL", name);
    if (options->size < 1)
        return ko_fail(KOLO_E_INVALID, "%s: %d ranks cannot share a data set", name, options->size);
    if (options->rank < 0 || options->rank >= options->size)
        return ko_fail(KOLO_E_INVALID, "%s: rank %d of %d ranks; it takes 0 <= rank < size", name,
                       options->rank, options->size);
    if (nsamples > UINT32_MAX)
        return ko_fail(KOLO_E_INVALID, "%s: %zu samples, but their numbers have 32 bits", name,
                       nsamples);
    return KOLO_OK;
}

size_t kolo_sampler_length(size_t nsamples, const kolo_sampler_options *options)
{
    size_t size;

    if (check("kolo_sampler_length", nsamples, options))
        return 0;
    size = (size_t)options->size;
    return nsamples / size + (!options->drop_last && nsamples % size ? 1 : 0);
}

/* The seed is cut to the 32 bits that the generator takes, as PyTorch does. (From 214748364 samples
 * on PyTorch 2 draws otherwise than 1 did; this is 1's way for all.) */
static void permute(uint32_t *samples, size_t nsamples, uint64_t seed)
{
    struct ko_mt19937 generator;

    ko_mt19937_seed(&generator, (uint32_t)seed);
    for (size_t i = 0; i < nsamples; i++)
        samples[i] = (uint32_t)i;
    for (size_t i = 0; i + 1 < nsamples; i++) {
        size_t other = i + ko_mt19937_next(&generator) % (nsamples - i);
        uint32_t held = samples[i];

        samples[i] = samples[other];
        samples[other] = held;
    }
}

int kolo_sampler_indices(size_t nsamples, const kolo_sampler_options *options, uint64_t epoch,
                         uint32_t *indices)
{
    size_t length, size, rank;
    uint32_t *samples = NULL;
    int err = check("kolo_sampler_indices", nsamples, options);

    if (err)
        return err;
    length = kolo_sampler_length(nsamples, options);
    if (length && !indices)
        return ko_fail(KOLO_E_INVALID, "kolo_sampler_indices: indices is NULL");
    size = (size_t)options->size;
    rank = (size_t)options->rank;
    if (options->shuffle && length) {
        samples = ko_alloc(nsamples * sizeof *samples, "the permutation of a sampler");
        if (!samples)
            return KOLO_E_NOMEM;
        permute(samples, nsamples, options->seed + epoch);
    }
    for (size_t i = 0; i < length; i++) {
        size_t place = (rank + i * size) % nsamples;

        indices[i] = samples ? samples[place] : (uint32_t)place;
    }
    kolo_free(samples);
    return KOLO_OK;
}
