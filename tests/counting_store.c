/* SPDX-License-Identifier: MIT */
#include "counting_store.h"

#include "clock.h"
#include "kolo.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static int counting_call(kolo_store *store, const struct ko_request *request,
                         const ko_deadline *deadline, struct ko_reply *reply)
{
    struct counting_store *counting = (struct counting_store *)store;
    const struct timespec nap = {.tv_nsec = counting->nap_ms * 1000000L};

    if (atomic_load(&counting->is_silent)) {
        atomic_fetch_add(&counting->unanswered, 1);
        return ko_fail(KOLO_E_TIMEOUT, "the store does not answer");
    }
    if (request->op == KO_STORE_CHECK) {
        atomic_fetch_add(&counting->checks, 1);
        nanosleep(&nap, NULL);
    }
    return ko_store_call(counting->inner, request, deadline, reply);
}

static int counting_clone(kolo_store *store, kolo_store **clone)
{
    ko_store_hold(store);
    *clone = store;
    return KOLO_OK;
}

static void counting_stop(kolo_store *store)
{
    (void)store;
}

static void counting_free(kolo_store *store)
{
    kolo_store_close(((struct counting_store *)store)->inner);
    free(store);
}

static int counting_port(const kolo_store *store)
{
    (void)store;
    return 0;
}

static int counting_own_address(kolo_store *store, char *host, size_t cap)
{
    return ko_store_own_address(((struct counting_store *)store)->inner, host, cap);
}

static const char *counting_where(const kolo_store *store)
{
    return ko_store_where(((const struct counting_store *)store)->inner);
}

struct counting_store *counting_store_open(int nap_ms)
{
    static const struct ko_store_ops ops = {.name = "counting",
                                            .call = counting_call,
                                            .clone = counting_clone,
                                            .stop = counting_stop,
                                            .free = counting_free,
                                            .port = counting_port,
                                            .own_address = counting_own_address,
                                            .where = counting_where};
    struct counting_store *counting = calloc(1, sizeof *counting);

    assert_non_null(counting);
    counting->nap_ms = nap_ms;
    assert_int_equal(kolo_store_open_local(&counting->inner), KOLO_OK);
    assert_int_equal(ko_store_init(&counting->store, &ops, -1), KOLO_OK);
    return counting;
}
