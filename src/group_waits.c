/* SPDX-License-Identifier: MIT */
#include "group_waits.h"

#include "group.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG_MS = 2000,
    STORE_MS = 1000, /* at most, for one request; the handle's own limit is others', too */
    KEY_BYTES = 48
};

int64_t ko_waits_tell_ms(int limit_ms)
{
    return limit_ms / 2 < LONG_MS ? limit_ms / 2 : LONG_MS;
}

static void write_key(const kolo_group *group, int rank, char *key)
{
    snprintf(key, KEY_BYTES, "waits/%016llx/%d", (unsigned long long)group->id, rank);
}

/* On this rank's key. That it could not be said is no failed call of the thread's. */
static void ask_store(kolo_group *group, struct ko_request *request)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_endpoint *endpoint = group->endpoint;
    struct ko_reply reply;
    char key[KEY_BYTES], text[KO_ERROR_TEXT];

    if (!ko_endpoint_may_ask(group->endpoint))
        return;
    ko_error_keep(text);
    write_key(group, group->rank, key);
    (void)ko_endpoint_after_asking(
        endpoint, ko_store_call_key(endpoint->store, request, key, &deadline, &reply));
    (void)ko_fail_again(KOLO_OK, text);
}

void ko_waits_tell(kolo_group *group, const struct ko_waits_word *word)
{
    struct ko_request request = {.op = KO_STORE_SET, .value = {word, sizeof *word}};

    atomic_store(&group->has_told_waits, true);
    ask_store(group, &request);
}

void ko_waits_forget(kolo_group *group)
{
    struct ko_request request = {.op = KO_STORE_DELETE};

    if (atomic_load(&group->has_told_waits) && !ko_group_has_failed(group))
        ask_store(group, &request);
}

/* What the store has of the group's ranks. */
struct reading {
    kolo_group *group;
    const char **keys; /* by rank */
    const char **told; /* of the ranks that have ever left word, ntold */
    int *ranks;        /* them */
    size_t ntold;
    void **values;
    size_t *nbytes;
};

/* Finds which of the keys of ranks from first on there are: nearly always all are. */
static int find_told(struct reading *reading, int first, int n)
{
    struct ko_endpoint *endpoint = reading->group->endpoint;
    struct ko_request request = {.op = KO_STORE_CHECK, .nkeys = (size_t)n};
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_reply reply;
    int err =
        ko_store_call_keys(endpoint->store, &request, reading->keys + first, &deadline, &reply);

    if (err || (!reply.number && n == 1))
        return ko_endpoint_after_asking(endpoint, err);
    if (!reply.number) {
        err = find_told(reading, first, n / 2);
        return err ? err : find_told(reading, first + n / 2, n - n / 2);
    }
    for (int r = first; r < first + n; r++) {
        reading->ranks[reading->ntold] = r;
        reading->told[reading->ntold++] = reading->keys[r];
    }
    return KOLO_OK;
}

/* Whether a word means something in this group. */
static bool is_word(const kolo_group *group, const struct ko_waits_word *word)
{
    return word->what <= KO_WAITS_TO_SEND && word->peer >= -1 && word->peer < group->size;
}

static int read_told(struct reading *reading, struct ko_waits_word *words)
{
    struct ko_endpoint *endpoint = reading->group->endpoint;
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_waits_word word;
    int err = reading->ntold
                  ? ko_store_multi_get_until(endpoint->store, reading->told, reading->ntold,
                                             &deadline, reading->values, reading->nbytes)
                  : KOLO_OK;

    if (err)
        return ko_endpoint_after_asking(endpoint, err);
    for (size_t i = 0; i < reading->ntold; i++) {
        if (reading->nbytes[i] == sizeof word) {
            memcpy(&word, reading->values[i], sizeof word);
            if (is_word(reading->group, &word))
                words[reading->ranks[i]] = word;
        }
        kolo_free(reading->values[i]);
    }
    return KOLO_OK;
}

static int read_store(struct reading *reading, struct ko_waits_word *words)
{
    int err = find_told(reading, 0, reading->group->size);

    return err ? err : read_told(reading, words);
}

bool ko_waits_read(kolo_group *group, struct ko_waits_word *words)
{
    const size_t n = (size_t)group->size;
    struct reading reading = {.group = group,
                              .keys = calloc(n, sizeof *reading.keys),
                              .told = calloc(n, sizeof *reading.told),
                              .ranks = calloc(n, sizeof *reading.ranks),
                              .values = calloc(n, sizeof *reading.values),
                              .nbytes = calloc(n, sizeof *reading.nbytes)};
    char *texts = malloc(n * KEY_BYTES);
    bool is_read = texts && reading.keys && reading.told && reading.ranks && reading.values &&
                   reading.nbytes && ko_endpoint_may_ask(group->endpoint);

    for (size_t r = 0; is_read && r < n; r++) {
        words[r] = (struct ko_waits_word){.what = KO_WAITS_NOT};
        write_key(group, (int)r, texts + r * KEY_BYTES);
        reading.keys[r] = texts + r * KEY_BYTES;
    }
    is_read = is_read && !read_store(&reading, words);
    free(texts);
    free(reading.keys);
    free(reading.told);
    free(reading.ranks);
    free(reading.values);
    free(reading.nbytes);
    return is_read;
}
