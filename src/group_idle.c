/* SPDX-License-Identifier: MIT */
#include "group_idle.h"

#include "group.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG_MS = 2000,
    STORE_MS = 1000, /* at most, for one request */
    KEY_BYTES = 48
};

int64_t ko_idle_tell_ms(int limit_ms)
{
    return limit_ms / 2 < LONG_MS ? limit_ms / 2 : LONG_MS;
}

static void write_key(const kolo_group *group, int rank, char *key)
{
    snprintf(key, KEY_BYTES, "waits/%016llx/%d", (unsigned long long)group->id, rank);
}

static bool has_store(const kolo_group *group)
{
    return !atomic_load(&group->endpoint->store_is_lost);
}

void ko_idle_tell(kolo_group *group, uint64_t call)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_request request = {.op = KO_STORE_SET, .value = {&call, sizeof call}};
    struct ko_reply reply;
    char key[KEY_BYTES];

    if (!has_store(group))
        return;
    write_key(group, group->rank, key);
    (void)ko_endpoint_after_store(
        group->endpoint,
        ko_store_call_key(group->endpoint->store, &request, key, &deadline, &reply));
}

/* What the store has of the group's ranks. */
struct words {
    kolo_group *group;
    const char **keys; /* by rank */
    const char **told; /* of the ranks that have ever left word, ntold */
    int *ranks;        /* them */
    size_t ntold;
    void **values;
    size_t *nbytes;
};

/* Finds which of the keys of ranks from first on there are: nearly always all are. */
static int find_told(struct words *words, int first, int n)
{
    int exist, err = kolo_store_check(words->group->endpoint->store, words->keys + first, (size_t)n,
                                      &exist);

    if (err || (!exist && n == 1))
        return ko_endpoint_after_store(words->group->endpoint, err);
    if (!exist) {
        err = find_told(words, first, n / 2);
        return err ? err : find_told(words, first + n / 2, n - n / 2);
    }
    for (int r = first; r < first + n; r++) {
        words->ranks[words->ntold] = r;
        words->told[words->ntold++] = words->keys[r];
    }
    return KOLO_OK;
}

/* Clears the flags of those whose word is of this call. */
static int read_told(struct words *words, uint64_t call, bool *is_idle)
{
    int err = words->ntold ? kolo_store_multi_get(words->group->endpoint->store, words->told,
                                                  words->ntold, words->values, words->nbytes)
                           : KOLO_OK;

    if (err)
        return ko_endpoint_after_store(words->group->endpoint, err);
    for (size_t i = 0; i < words->ntold; i++) {
        if (words->nbytes[i] == sizeof call && !memcmp(words->values[i], &call, sizeof call))
            is_idle[words->ranks[i]] = false;
        kolo_free(words->values[i]);
    }
    return KOLO_OK;
}

static int look(struct words *words, uint64_t call, bool *is_idle)
{
    kolo_store *store = words->group->endpoint->store;
    const int n = words->group->size, limit = ko_store_timeout(store);
    int nidle = 0, err;

    kolo_store_set_timeout(store, STORE_MS);
    err = find_told(words, 0, n);
    if (!err)
        err = read_told(words, call, is_idle);
    kolo_store_set_timeout(store, limit);
    is_idle[words->group->rank] = false;
    for (int r = 0; r < n; r++)
        nidle += is_idle[r];
    return err ? -1 : nidle;
}

int ko_idle_ranks(kolo_group *group, uint64_t call, bool *is_idle)
{
    const size_t n = (size_t)group->size;
    struct words words = {.group = group,
                          .keys = calloc(n, sizeof *words.keys),
                          .told = calloc(n, sizeof *words.told),
                          .ranks = calloc(n, sizeof *words.ranks),
                          .values = calloc(n, sizeof *words.values),
                          .nbytes = calloc(n, sizeof *words.nbytes)};
    char *texts = malloc(n * KEY_BYTES);
    int nidle = -1;

    for (size_t r = 0; texts && words.keys && r < n; r++) {
        is_idle[r] = true;
        write_key(group, (int)r, texts + r * KEY_BYTES);
        words.keys[r] = texts + r * KEY_BYTES;
    }
    if (texts && words.keys && words.told && words.ranks && words.values && words.nbytes &&
        has_store(group))
        nidle = look(&words, call, is_idle);
    free(texts);
    free(words.keys);
    free(words.told);
    free(words.ranks);
    free(words.values);
    free(words.nbytes);
    return nidle;
}
