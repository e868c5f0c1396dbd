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

/* ---- memory ---------------------------------------------------------------------------------- */

enum { SLOT_BYTES = 2 * KO_RDMA_SLOTS * KO_RDMA_SLOT, KEPT_BYTES = 256 << 10 };

static int count_kept(const struct ko_device *device)
{
    const struct ko_rdma_memory *memory = &((const struct ko_rdma_device *)device)->memory;
    int n = 0;

    for (int i = 0; i < KO_RDMA_KEPT; i++)
        n += memory->kept[i].segment != NULL;
    return n;
}

static bool is_kept(const struct ko_device *device, const void *at)
{
    const struct ko_rdma_memory *memory = &((const struct ko_rdma_device *)device)->memory;

    for (int i = 0; i < KO_RDMA_KEPT; i++)
        if (memory->kept[i].segment && memory->kept[i].segment->memory <= at &&
            (const char *)at <
                (const char *)memory->kept[i].segment->memory + memory->kept[i].segment->nbytes)
            return true;
    return false;
}

/* What has been sent once is not in the way of a connection, nor of other memory. */
static void what_is_kept_makes_room(void **state)
{
    struct rdma_pair pair = rdma_pair_new(), second;
    char limit[32];
    void *body[3], *got = malloc(KEPT_BYTES);

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kolo_mem_alloc(KEPT_BYTES, &body[i]), KOLO_OK);
        rdma_pair_fill(body[i], KEPT_BYTES, (unsigned)i);
    }
    rdma_pair_pass_bytes(pair.from, pair.to, body[0], got, KEPT_BYTES);
    assert_int_equal(count_kept(pair.left), 1);
    setenv("FAKEVERBS_MEMLOCK", "1", 1);
    rdma_pair_pass_bytes(pair.from, pair.to, body[0], got, KEPT_BYTES); /* it is known */
    snprintf(limit, sizeof limit, "%d", 2 * SLOT_BYTES + KEPT_BYTES + (64 << 10));
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    rdma_pair_pass_bytes(pair.from, pair.to, body[1], got, KEPT_BYTES); /* in place of the first */
    assert_int_equal(count_kept(pair.left), 1);
    assert_true(is_kept(pair.left, body[1]));
    snprintf(limit, sizeof limit, "%d", 3 * SLOT_BYTES);
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    second = (struct rdma_pair){.left = pair.left, .right = pair.right};
    assert_int_equal(rdma_pair_begin(&second), KOLO_OK);
    assert_int_equal(count_kept(pair.left), 0);
    snprintf(limit, sizeof limit, "%d", 4 * SLOT_BYTES);
    setenv("FAKEVERBS_MEMLOCK", limit, 1);
    assert_int_equal(rdma_pair_end(&second), KOLO_OK);
    rdma_pair_pass_bytes(second.from, second.to, body[2], got, KEPT_BYTES); /* by slots */
    rdma->hangup(second.from);
    rdma->hangup(second.to);
    rdma_pair_close(&pair);
    for (int i = 0; i < 3; i++)
        kolo_mem_free(body[i]);
    free(got);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(an_adapter_that_cannot_be_used),
                                       TEST(what_is_kept_makes_room)};
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
