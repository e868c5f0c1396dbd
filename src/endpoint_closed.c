/* SPDX-License-Identifier: MIT
 *
 * Which ranks' endpoints have ended: each leaves the store a will that says so.
 */
#include "endpoint.h"

#include "store.h"

#include <stdio.h>

enum { STORE_MS = 1000 }; /* at most, for the store to say so */

static void closed_key(int rank, char *key, size_t nbytes)
{
    snprintf(key, nbytes, "closed/%d", rank);
}

int ko_endpoint_leave_will(struct ko_endpoint *endpoint, kolo_store *store)
{
    char key[32];
    int err;

    endpoint->has_wills = true;
    if (endpoint->rank == endpoint->store_rank)
        return KOLO_OK;
    closed_key(endpoint->rank, key, sizeof key);
    err = ko_store_will(store, key, (kolo_bytes){"", 1});
    if (err)
        return err;
    ko_store_hold(store);
    endpoint->will = store;
    return KOLO_OK;
}

void ko_endpoint_say_closed(struct ko_endpoint *endpoint)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_request request = {.op = KO_STORE_SET, .value = {"", 1}};
    struct ko_reply reply;
    char key[32];

    closed_key(endpoint->rank, key, sizeof key);
    (void)ko_endpoint_after_asking(
        endpoint, ko_store_call_key(endpoint->store, &request, key, &deadline, &reply));
}

bool ko_endpoint_has_closed(struct ko_endpoint *endpoint, int rank)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_request request = {.op = KO_STORE_CHECK};
    struct ko_reply reply;
    char key[32], text[KO_ERROR_TEXT];

    if (!endpoint->has_wills || !ko_endpoint_may_ask(endpoint))
        return false;
    closed_key(rank, key, sizeof key);
    ko_error_keep(text);
    if (ko_endpoint_after_asking(
            endpoint, ko_store_call_key(endpoint->store, &request, key, &deadline, &reply))) {
        (void)ko_fail_again(KOLO_OK, text);
        return false;
    }
    return reply.number;
}

bool ko_endpoint_has_ended(struct ko_endpoint *endpoint, int rank)
{
    const struct ko_contact *contact;

    return (!ko_endpoint_contact(endpoint, rank, &contact) &&
            ko_contact_is_gone(&endpoint->own, contact)) ||
           ko_endpoint_has_closed(endpoint, rank);
}
