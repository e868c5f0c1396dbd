/* SPDX-License-Identifier: MIT
 *
 * Adapters that are there and have nothing for this process, or too little. They are those of
 * tests/fakeverbs.
 */
#include "rdma_pair.h"

#include "clock.h"
#include "kolo.h"
#include "log.h"
#include "memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char log_path[] = "/tmp/kolo-rdma-log-XXXXXX";

static int forget_wishes(void **state)
{
    static const char *const names[] = {"FAKEVERBS_DEVICES", "FAKEVERBS_BREAK", "FAKEVERBS_MEMLOCK",
                                        "FAKEVERBS_EVENT", "KOLO_IB_HCA"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    return truncate(log_path, 0);
}

/* How many lines of the log have the words. */
static int count_logged(const char *words)
{
    char line[1024];
    FILE *file = fopen(log_path, "re");
    int n = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        n += strstr(line, words) != NULL;
    fclose(file);
    return n;
}

static void expect_text(const char *words)
{
    if (!strstr(kolo_last_error(), words))
        fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), words);
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* No descriptors are left, a cgroup does not let it: as if it were not there, with a warning. */
static void an_adapter_that_cannot_be_used(void **state)
{
    static const struct {
        const char *wish, *text;
    } rows[] = {{"ibv_open_device=13", "fake0 cannot be opened: Permission denied"},
                {"ibv_open_device@2=24", "fake0 cannot be opened: Too many open files"},
                {"ibv_alloc_pd=12", "fake0 gives no protection domain: Cannot allocate memory"}};
    struct ko_device *device;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv("FAKEVERBS_BREAK", rows[i].wish, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_E_UNSUPPORTED);
        expect_text(rows[i].text);
        assert_int_equal(count_logged(rows[i].text), 1);
        forget_wishes(state);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(an_adapter_that_cannot_be_used)};
    int fd = mkstemp(log_path), failed;

    if (fd < 0)
        return 1;
    close(fd);
    setenv("KOLO_DEBUG", "WARN", 1);
    setenv("KOLO_DEBUG_FILE", log_path, 1);
    failed = cmocka_run_group_tests_name("rdma limits", tests, NULL, NULL);
    unlink(log_path);
    return failed;
}
