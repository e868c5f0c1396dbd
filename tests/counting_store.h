/* SPDX-License-Identifier: MIT
 *
 * counting_store.h: a store that passes everything on to another, in this process, and counts the
 * requests. Its clones are itself.
 */
#ifndef COUNTING_STORE_H
#define COUNTING_STORE_H

#include "store.h"

#include <stdatomic.h>

struct counting_store {
    kolo_store store;
    kolo_store *inner;
    int nap_ms;            /* of each request to look for keys */
    atomic_int checks;     /* these */
    atomic_bool is_silent; /* from now on no request is answered in time */
    atomic_int unanswered;
};

/* To be closed by kolo_store_close(&counting->store). Asserts. */
struct counting_store *counting_store_open(int nap_ms);

#endif
