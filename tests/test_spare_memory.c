/* SPDX-License-Identifier: MIT
 *
 * What memory can still be had, and that nobody is given more.
 */
#include "folder.h"
#include "kolo.h"
#include "spare_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void machine_has_some(void **state)
{
    const size_t pages = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);

    (void)state;
    assert_in_range(ko_spare_memory(), 1 << 20, 64 * pages); /* with swap */
}

/* Without the check the kernel would give page after page, and then kill something. */
static void more_than_there_is_is_refused(void **state)
{
    void *memory;

    (void)state;
    assert_int_equal(kolo_mem_alloc((size_t)1 << 50, &memory), KOLO_E_NOMEM);
    assert_non_null(strstr(kolo_last_error(), "could still be given"));
    assert_null(strstr(kolo_last_error(), "KOLO_SLICE_BYTES")); /* which does not count for it */
    assert_int_equal(kolo_mem_alloc((size_t)65 << 20, &memory), KOLO_OK);
    assert_int_equal(kolo_mem_free(memory), KOLO_OK);
}

static void make_group(const char *name)
{
    assert_int_equal(mkdir(folder_path(name), 0700), 0);
}

static void set(const char *name, const char *text)
{
    folder_write(folder_path(name), text, strlen(text));
}

static size_t spare(const char *path)
{
    return ko_spare_memory_of_group(folder_path("mount"), path);
}

static void groups_limit_what_is_in_them(void **state)
{
    (void)state;
    make_group("mount");
    make_group("mount/outer");
    make_group("mount/outer/inner");
    assert_true(spare("/outer/inner") == SIZE_MAX);
    set("mount/outer/inner/memory.max", "max\n");
    set("mount/outer/inner/memory.current", "4096\n");
    assert_true(spare("/outer/inner") == SIZE_MAX);
    set("mount/outer/memory.max", "1000000\n");
    set("mount/outer/memory.current", "900000\n");
    assert_int_equal(spare("/outer/inner"), 100000);
    set("mount/outer/memory.stat", "anon 7\ninactive_file 50000\n");
    assert_int_equal(spare("/outer/inner"), 150000);
    set("mount/outer/inner/memory.max", "4000\n"); /* lowered below what is in use */
    assert_int_equal(spare("/outer/inner"), 0);
    assert_int_equal(spare("/outer"), 150000);
    assert_true(spare("/") == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_has_some),
        cmocka_unit_test(more_than_there_is_is_refused),
        cmocka_unit_test(groups_limit_what_is_in_them),
    };

    return cmocka_run_group_tests_name("spare_memory", tests, folder_make, folder_remove);
}
