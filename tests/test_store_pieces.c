/* SPDX-License-Identifier: MIT
 *
 * Small pieces of memory that a store gives back: glibc's malloc keeps them apart until somebody
 * wants a larger one, and puts them together then, all at once, however many they are.
 */
#include "status.h"
#include "store_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <stdlib.h>

enum { VALUES = 100000, FEW = 1000 };

/* Which only glibc tells, since 2.33. */
static size_t pieces_apart(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    return mallinfo2().smblks;
#else
    return 0;
#endif
}

/* Whether this malloc does, and says so. A sanitizer's does not. */
static bool keeps_apart(void)
{
    void *pieces[FEW];
    const size_t before = pieces_apart();

    for (int i = 0; i < FEW; i++)
        pieces[i] = malloc(24);
    for (int i = 0; i < FEW; i++)
        free(pieces[i]);
    return pieces_apart() > before + FEW / 2;
}

static void few_pieces_stay_apart(void **state)
{
    const kolo_bytes key = {"q", 1}, value = {"v", 1};
    struct ko_table *table;
    struct ko_item *left = NULL;
    size_t most = 0;

    (void)state;
    if (!keeps_apart()) {
        print_message("this malloc keeps no pieces apart\n");
        skip();
    }
    assert_int_equal(ko_table_open(SIZE_MAX, &table), KOLO_OK);
    for (int i = 0; i < VALUES; i++)
        assert_int_equal(ko_table_queue_push(table, key, value), KOLO_OK);
    assert_true(ko_table_delete_leaving(table, key, &left));
    while (!ko_table_drop_some(table, &left, FEW / 2))
        most = pieces_apart() > most ? pieces_apart() : most;
    ko_table_free(table);
    assert_in_range(most, 0, FEW);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(few_pieces_stay_apart)};

    return cmocka_run_group_tests_name("store pieces", tests, NULL, NULL);
}
