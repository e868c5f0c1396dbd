/* SPDX-License-Identifier: MIT */
#include "store_places.h"

#include "store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void open_served(struct place *place)
{
    place->has_queues = place->has_list = true;
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", 0, 1, 60000, &place->served), KOLO_OK);
}

static void open_local(struct place *place)
{
    place->has_queues = place->has_list = true;
    assert_int_equal(kolo_store_open_local(&place->served), KOLO_OK);
    assert_int_equal(ko_store_clone(place->served, &place->store), KOLO_OK);
}

/* Nobody else opens it, so that it is removed at the end. */
static void open_file(struct place *place)
{
    char path[] = "/tmp/test-store-XXXXXX";
    int fd = mkstemp(path);

    place->has_list = true;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(kolo_store_open_file(path, 1, 60000, &place->served), KOLO_OK);
    assert_int_equal(ko_store_clone(place->served, &place->store), KOLO_OK);
}

static void open_prefix(struct place *place)
{
    kolo_store *base;

    place->has_queues = place->has_list = true;
    assert_int_equal(kolo_store_open_local(&base), KOLO_OK);
    assert_int_equal(kolo_store_set(base, "outside", (kolo_bytes){"", 0}), KOLO_OK);
    assert_int_equal(kolo_store_open_prefix(base, "p", &place->served), KOLO_OK);
    kolo_store_close(base);
    assert_int_equal(ko_store_clone(place->served, &place->store), KOLO_OK);
}

static void open_tcp(struct place *place)
{
    open_served(place);
    assert_int_equal(ko_store_clone(place->served, &place->store), KOLO_OK);
}

static void open_old(struct place *place, enum old_server_kind kind)
{
    int port;

    open_served(place);
    place->has_queues = place->has_list = kind >= OLD_BUSY;
    place->old = old_server_open(kind, kolo_store_port(place->served), &port);
    assert_int_equal(kolo_store_open_tcp("127.0.0.1", port, 0, 60000, &place->store), KOLO_OK);
}

static void open_1_13(struct place *place)
{
    open_old(place, OLD_1_13);
}

static void open_2_1(struct place *place)
{
    open_old(place, OLD_2_1);
}

static void open_no_ping(struct place *place)
{
    open_old(place, OLD_NO_PING);
}

static void open_early_2(struct place *place)
{
    open_old(place, OLD_EARLY_2);
}

static void open_busy(struct place *place)
{
    open_old(place, OLD_BUSY);
}

static void open_busier(struct place *place)
{
    open_old(place, OLD_BUSIER);
}

const struct place_kind place_kinds[PLACE_NKINDS] = {
    {"local", open_local},   {"file", open_file},       {"prefix", open_prefix},
    {"tcp", open_tcp},       {"1.13", open_1_13},       {"2.1", open_2_1},
    {"2.2", open_no_ping},   {"early 2", open_early_2}, {"busy", open_busy},
    {"busier", open_busier},
};

void place_close(struct place *place)
{
    kolo_store_close(place->store);
    if (place->old)
        old_server_close(place->old);
    kolo_store_close(place->served);
}
