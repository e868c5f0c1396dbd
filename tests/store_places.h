/* SPDX-License-Identifier: MIT
 *
 * store_places.h: a store of each kind, for tests of what all of them do. Asserts; for the test's
 * own thread.
 */
#ifndef STORE_PLACES_H
#define STORE_PLACES_H

#include "old_server.h"

#include "kolo.h"

#include <stdbool.h>

/* A store of some kind, and what lies under it. */
struct place {
    kolo_store *store;
    kolo_store *served;
    struct old_server *old;
    bool has_queues, has_list;
};

enum { PLACE_NKINDS = 10 };

extern const struct place_kind {
    const char *name;
    void (*open)(struct place *place);
} place_kinds[PLACE_NKINDS];

void place_close(struct place *place);

#endif
