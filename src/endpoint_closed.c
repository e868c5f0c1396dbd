/* SPDX-License-Identifier: MIT
 *
 * Which ranks' endpoints have ended: where rank 0 serves the store each leaves it a will that adds
 * it to a list of those. Of a store that knows no wills a rank can only see itself who of its
 * machine has ended; those of others hear it from there, by the failure that stands in the store.
 * Who leaves the world in order has said so before.
 */
#include "endpoint.h"

#include "store.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    STORE_MS = 1000, /* at most, for the store to say so, */
    LEFT_MS = 3000,  /* or to hear that this rank leaves */
    CLOSED_MS = 20,  /* so old may be what is known of who has closed, */
    LOST_MS = 1000   /* and of who is lost */
};

enum end { NOT_KNOWN, ENDED, LEFT };

static const char list_key[] = "closed";

void ko_endpoint_left_key(int rank, char *key, size_t nbytes)
{
    snprintf(key, nbytes, "left/%d", rank);
}

/* ---- telling ------------------------------------------------------------------------------- */

static kolo_bytes entry_of(int rank, char text[16])
{
    return (kolo_bytes){text, (size_t)snprintf(text, 16, " %d", rank)};
}

int ko_endpoint_leave_will(struct ko_endpoint *endpoint, kolo_store *store)
{
    char text[16];
    int err;

    endpoint->has_wills = true;
    if (endpoint->rank == endpoint->store_rank)
        return KOLO_OK;
    err = ko_store_will(store, list_key, entry_of(endpoint->rank, text));
    if (err)
        return err;
    ko_store_hold(store);
    endpoint->will = store;
    return KOLO_OK;
}

/* Of what need not be answered: false if it was not. */
static bool ask(struct ko_endpoint *endpoint, const char *key, struct ko_request *request,
                struct ko_reply *reply)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);

    return !ko_endpoint_after_asking(
        endpoint, ko_store_call_key(endpoint->store, request, key, &deadline, reply));
}

void ko_endpoint_say_closed(struct ko_endpoint *endpoint)
{
    char text[16];
    struct ko_request request = {.op = KO_STORE_APPEND, .value = entry_of(endpoint->rank, text)};
    struct ko_reply reply;

    (void)ask(endpoint, list_key, &request, &reply);
}

/* To be silent would be a death. */
void ko_endpoint_say_left(struct ko_endpoint *endpoint)
{
    const ko_deadline deadline = ko_deadline_in(LEFT_MS);
    struct ko_request request = {.op = KO_STORE_SET, .value = {"", 0}};
    struct ko_reply reply;
    char key[32];

    ko_endpoint_left_key(endpoint->rank, key, sizeof key);
    if (!atomic_load(&endpoint->store_is_lost))
        (void)ko_endpoint_after_store(
            endpoint, ko_store_call_key(endpoint->store, &request, key, &deadline, &reply));
}

/* ---- hearing ------------------------------------------------------------------------------- */

/* " 3 0 12" */
static void note_ends(struct ko_endpoint *endpoint, const char *list)
{
    char *end;
    long rank = strtol(list, &end, 10);

    pthread_mutex_lock(&endpoint->lock);
    while (end != list) {
        if (rank >= 0 && rank < endpoint->size && endpoint->ends[rank] == NOT_KNOWN)
            endpoint->ends[rank] = ENDED;
        list = end;
        rank = strtol(list, &end, 10);
    }
    pthread_mutex_unlock(&endpoint->lock);
}

/* That the store does not tell is no failed call of the thread's. */
static void hear_ends(struct ko_endpoint *endpoint, int old_ms)
{
    struct ko_request check = {.op = KO_STORE_CHECK}, get = {.op = KO_STORE_GET};
    const int64_t now_ns = ko_now_ns();
    struct ko_reply reply;
    char text[KO_ERROR_TEXT];

    if (!endpoint->has_wills || !ko_endpoint_may_ask(endpoint) ||
        now_ns - atomic_load(&endpoint->ends_heard_ns) < old_ms * INT64_C(1000000))
        return;
    ko_error_keep(text);
    if (ask(endpoint, list_key, &check, &reply)) {
        atomic_store(&endpoint->ends_heard_ns, now_ns);
        if (reply.number && ask(endpoint, list_key, &get, &reply)) {
            note_ends(endpoint, reply.value);
            kolo_free(reply.value);
        }
    }
    (void)ko_fail_again(KOLO_OK, text);
}

static enum end end_of(struct ko_endpoint *endpoint, int rank)
{
    enum end end;

    pthread_mutex_lock(&endpoint->lock);
    end = endpoint->ends[rank];
    pthread_mutex_unlock(&endpoint->lock);
    return end;
}

bool ko_endpoint_has_closed(struct ko_endpoint *endpoint, int rank)
{
    hear_ends(endpoint, CLOSED_MS);
    return end_of(endpoint, rank) != NOT_KNOWN;
}

bool ko_endpoint_has_ended(struct ko_endpoint *endpoint, int rank)
{
    const struct ko_contact *contact;

    return (!ko_endpoint_contact(endpoint, rank, &contact) &&
            ko_contact_is_gone(&endpoint->own, contact)) ||
           ko_endpoint_has_closed(endpoint, rank);
}

/* Whether a rank that has ended had left the world; true too if the store does not tell. */
static bool had_left(struct ko_endpoint *endpoint, int rank)
{
    struct ko_request check = {.op = KO_STORE_CHECK};
    struct ko_reply reply;
    char key[32], text[KO_ERROR_TEXT];
    bool is_told;

    if (!ko_endpoint_may_ask(endpoint))
        return true;
    ko_endpoint_left_key(rank, key, sizeof key);
    ko_error_keep(text);
    is_told = ask(endpoint, key, &check, &reply);
    (void)ko_fail_again(KOLO_OK, text);
    if (is_told && reply.number) {
        pthread_mutex_lock(&endpoint->lock);
        endpoint->ends[rank] = LEFT;
        pthread_mutex_unlock(&endpoint->lock);
    }
    return !is_told || reply.number;
}

/* And is not known to have left before. */
static bool is_over(struct ko_endpoint *endpoint, int rank)
{
    if (!endpoint->has_wills)
        return end_of(endpoint, rank) != LEFT && ko_endpoint_is_gone(endpoint, rank);
    hear_ends(endpoint, LOST_MS);
    return end_of(endpoint, rank) == ENDED;
}

bool ko_endpoint_is_lost(struct ko_endpoint *endpoint, int rank)
{
    if (rank == endpoint->rank || rank == endpoint->store_rank)
        return false;
    return is_over(endpoint, rank) && !had_left(endpoint, rank);
}
