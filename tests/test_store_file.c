/* SPDX-License-Identifier: MIT
 *
 * The file of a file store: its bytes, what killed processes leave in it, and who removes it.
 */
#include "store.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CAME "09000000 726566636f756e742f" /* "refcount/" */
#define WENT "08000000 636c65616e75702f"   /* "cleanup/" */
#define ONE "01000000 31"
#define TWO "01000000 32"
#define ZERO "01000000 30"
#define K "02000000 2f6b" /* "/k" */

static char folder[] = "/tmp/test-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/store", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* no test leaves a file */
}

static kolo_store *open_it(int nprocesses)
{
    kolo_store *store = NULL;

    assert_int_equal(kolo_store_open_file(path, nprocesses, 60000, &store), KOLO_OK);
    return store;
}

static void set(kolo_store *store, const char *key, const char *value)
{
    assert_int_equal(kolo_store_set(store, key, (kolo_bytes){value, strlen(value)}), KOLO_OK);
}

static void expect(kolo_store *store, const char *key, const char *expected)
{
    void *value;
    size_t nbytes;

    assert_int_equal(kolo_store_get(store, key, &value, &nbytes), KOLO_OK);
    assert_string_equal(value, expected);
    kolo_free(value);
}

/* The file holds exactly these bytes. */
static void holds(const char *hex)
{
    uint8_t expected[WIRE_LONGEST], found[WIRE_LONGEST];
    size_t n = wire_unhex(hex, expected);
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, found, sizeof found), n);
    assert_memory_equal(found, expected, n);
    close(fd);
}

static void append(const char *hex)
{
    uint8_t bytes[WIRE_LONGEST];
    size_t n = wire_unhex(hex, bytes);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);

    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void test_format(void **state)
{
    kolo_store *store = open_it(-1);
    void *value;
    size_t nbytes;

    (void)state;
    set(store, "k", "v");
    assert_int_equal(kolo_store_add(store, "k2", -7, NULL), KOLO_OK);
    assert_int_equal(kolo_store_append(store, "k", (kolo_bytes){"w", 1}), KOLO_OK);
    assert_int_equal(kolo_store_delete(store, "k", NULL), KOLO_OK);
    assert_int_equal(kolo_store_delete(store, "k", NULL), KOLO_OK);
    assert_int_equal(kolo_store_compare_set(store, "k", (kolo_bytes){"v", 1}, (kolo_bytes){"x", 1},
                                            &value, &nbytes),
                     KOLO_OK); /* stores nothing */
    kolo_free(value);
    kolo_store_close(store);
    holds(CAME ONE K "01000000 76 03000000 2f6b32 02000000 2d37" K "02000000 7677"
                     "03000000 2d2f6b 00000000" WENT ONE CAME ZERO);
    unlink(path);
}

/* What others write, as PyTorch does, is seen, whole records only. */
static void test_read(void **state)
{
    kolo_store *store = open_it(-1);
    static const char *const keys[] = {"k"};
    int there;

    (void)state;
    append(K);
    append("03000000 6f");
    assert_int_equal(kolo_store_check(store, keys, 1, &there), KOLO_OK);
    assert_int_equal(there, 0);
    append("6e65");
    expect(store, "k", "one");
    append("03000000 2d2f6b 00000000");
    assert_int_equal(kolo_store_check(store, keys, 1, &there), KOLO_OK);
    assert_int_equal(there, 0);
    kolo_store_close(store);
    unlink(path);
}

/* Half a record at the end is what a killed writer leaves: the next one writes over it. */
static void test_half_record(void **state)
{
    kolo_store *store = open_it(-1);

    (void)state;
    append(K "05000000 6f6e");
    set(store, "k", "v");
    expect(store, "k", "v");
    holds(CAME ONE K "01000000 76");
    kolo_store_close(store);
    unlink(path);
}

/* Short files of another kind, which look like the beginning of a record, are not written over; nor
 * is the half record of a first writer that was killed, which cannot be told from them. An empty
 * file is a new store. */
static void test_somebodys_file(void **state)
{
    static const char half[] = K "01000000";
    static const char *const contents[] = {"34", "34320a", "0a000000", "0a000000 7265", half};
    kolo_store *store = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        append(contents[i]);
        assert_int_equal(kolo_store_open_file(path, 1, 1000, &store), KOLO_E_PROTOCOL);
        assert_non_null(strstr(kolo_last_error(), path));
        assert_non_null(strstr(kolo_last_error(), "remove it"));
        holds(contents[i]);
        unlink(path);
    }
    append("");
    kolo_store_close(open_it(-1));
    holds(CAME ONE WENT ONE CAME ZERO);
    unlink(path);
}

static void test_no_file_store(void **state)
{
    kolo_store *store = NULL;

    (void)state;
    append("ffffff7f 00000000");
    assert_int_equal(kolo_store_open_file(path, 1, 1000, &store), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), path));
    unlink(path);
    append(K "ffffff7f");
    assert_int_equal(kolo_store_open_file(path, 1, 1000, &store), KOLO_E_PROTOCOL);
    unlink(path);
    append("");
    assert_int_equal(truncate(path, (off_t)64 << 30), 0); /* zeros, which are no records */
    assert_int_equal(kolo_store_open_file(path, 1, 1000, &store), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "a key of 0 bytes"));
    unlink(path);
    assert_int_equal(kolo_store_open_file("", 1, 30, &store), KOLO_E_INVALID);
    assert_int_equal(kolo_store_open_file(path, 1, 30, NULL), KOLO_E_INVALID);
    assert_null(store);
}

/* What no time cures is said at once, with the reason and what to do. */
static void test_no_such_place(void **state)
{
    static const struct {
        const char *path, *reason, *advice;
    } places[] = {
        {"/tmp/kolo-no-such-folder/x", "No such file", "make its folder"},
        {"/dev/null/x", "Not a directory", "before its last"},
        {"/tmp", "Is a directory", "name a file in it"},
        {"/dev/null", "a pipe or a device", "name a file"},
    };
    kolo_store *store = NULL;
    kolo_group *group = NULL;
    char method[96];

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(kolo_store_open_file(places[i].path, 1, 600000, &store), KOLO_E_SYSTEM);
        assert_non_null(strstr(kolo_last_error(), places[i].path));
        assert_non_null(strstr(kolo_last_error(), places[i].reason));
        assert_non_null(strstr(kolo_last_error(), places[i].advice));
    }
    snprintf(method, sizeof method, "file://%s?rank=0&world_size=1", places[0].path);
    assert_int_equal(kolo_group_join(method, 600000, &group), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), places[0].reason));
    assert_null(store);
    assert_null(group);
}

/* That a file is not there, though its folder is, may pass; the time-out says that it did not. */
static void test_not_there_yet(void **state)
{
    kolo_store *store = NULL;

    (void)state;
    assert_int_equal(symlink("nowhere/store", path), 0);
    assert_int_equal(kolo_store_open_file(path, 1, 30, &store), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "30 ms to open it: No such file"));
    assert_null(store);
    unlink(path);
}

static void test_last_one_removes(void **state)
{
    kolo_store *first = open_it(2);
    kolo_store *second = open_it(2);

    (void)state;
    assert_int_equal(access(path, F_OK), 0);
    kolo_store_close(first);
    assert_int_equal(access(path, F_OK), 0);
    kolo_store_close(second);
    assert_int_not_equal(access(path, F_OK), 0);
    first = open_it(2);
    unlink(path);
    kolo_store_close(first); /* and does not make it again */
    assert_int_not_equal(access(path, F_OK), 0);
}

/* A file that is replaced under the store is read from its start. */
static void test_replaced(void **state)
{
    kolo_store *store = open_it(-1);
    int64_t nkeys = -1;

    (void)state;
    set(store, "k", "old");
    unlink(path);
    append(K "03000000 6e6577");
    expect(store, "k", "new");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(kolo_store_num_keys(store, &nkeys), KOLO_OK);
    assert_int_equal(nkeys, 0);
    kolo_store_close(store);
    unlink(path);
}

/* Who holds the lock keeps others out, until their deadline. */
static void test_locked(void **state)
{
    kolo_store *store = open_it(-1);
    int fd = open(path, O_RDONLY);

    (void)state;
    assert_int_equal(flock(fd, LOCK_EX), 0);
    kolo_store_set_timeout(store, 30);
    assert_int_equal(kolo_store_set(store, "k", (kolo_bytes){"v", 1}), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "lock"));
    close(fd);
    set(store, "k", "v");
    kolo_store_close(store);
    unlink(path);
}

static void *close_soon(void *store)
{
    usleep(50000);
    kolo_store_close(store);
    return NULL;
}

static void test_closed_while_waiting(void **state)
{
    static const char *const keys[] = {"never"};
    kolo_store *store = open_it(-1);
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, close_soon, store), 0);
    assert_int_equal(kolo_store_wait(store, keys, 1, 60000), KOLO_E_ABORTED);
    pthread_join(thread, NULL);
    unlink(path);
}

/* Processes count together, and some are killed while they do. */
static void test_processes(void **state)
{
    enum { PROCESSES = 4, VICTIMS = 4, TIMES = 50 };
    kolo_store *store;
    pid_t pids[PROCESSES + VICTIMS];
    int64_t sum = 0;
    int status;

    (void)state;
    for (int i = 0; i < PROCESSES + VICTIMS; i++) {
        pids[i] = fork();
        if (pids[i] > 0)
            continue;
        store = open_it(-1);
        for (int k = 0; k < TIMES || i >= PROCESSES; k++)
            if (kolo_store_add(store, i < PROCESSES ? "n" : "other", 1, NULL) ||
                kolo_store_append(store, "log", (kolo_bytes){"x", 1}))
                _exit(1);
        kolo_store_close(store);
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
        kill(pids[PROCESSES + i % VICTIMS], SIGKILL);
    }
    for (int i = 0; i < VICTIMS; i++)
        waitpid(pids[PROCESSES + i], &status, 0);
    store = open_it(-1);
    assert_int_equal(kolo_store_add(store, "n", 0, &sum), KOLO_OK);
    assert_int_equal(sum, PROCESSES * TIMES);
    kolo_store_close(store);
    unlink(path);
}

/* A path that begins where this process is means that place, wherever the process goes. */
static void test_relative_path(void **state)
{
    char back[4096], parent[4096];
    kolo_store *store;

    (void)state;
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(kolo_store_open_file("store", 1, 60000, &store), KOLO_OK);
    set(store, "k", "v");
    assert_int_equal(chdir("/"), 0);
    expect(store, "k", "v");
    set(store, "l", "w");
    assert_int_equal(access("/store", F_OK), -1);
    assert_int_equal(chdir(folder), 0);
    kolo_store_close(store);
    assert_int_equal(access("store", F_OK), -1);
    assert_int_equal(chdir(back), 0);
    /* and too long with that place before it */
    memset(parent, 'x', sizeof parent - 5);
    parent[sizeof parent - 5] = '\0';
    assert_int_equal(kolo_store_open_file(parent, 1, 1000, &store), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "a path of up to"));
}

/* ---- a program that forks ------------------------------------------------------------------- */

static void *add_until_stopped(void *argument)
{
    atomic_bool *stops = argument;
    kolo_store *store = open_it(-1);
    int err = KOLO_OK;

    while (!err && !atomic_load(stops))
        err = kolo_store_add(store, "n", 1, NULL);
    kolo_store_close(store);
    return NULL;
}

/* A child that goes on without an exec has what another thread has open at that moment, too. */
static void test_forked_while_locked(void **state)
{
    enum { CHILDREN = 40 };
    kolo_store *store = open_it(-1);
    atomic_bool stops = false;
    pid_t children[CHILDREN];
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, add_until_stopped, &stops), 0);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (!children[i])
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (!children[i])
            pause();
    }
    kolo_store_set_timeout(store, 20000);
    set(store, "k", "v");
    atomic_store(&stops, true);
    for (int i = 0; i < CHILDREN; i++)
        kill(children[i], SIGKILL);
    for (int i = 0; i < CHILDREN; i++)
        waitpid(children[i], NULL, 0);
    pthread_join(thread, NULL);
    kolo_store_close(store);
    unlink(path);
}

/* What a file store lacks, others of its calls stand for: nothing has failed then. */
static void test_barrier_leaves_no_error(void **state)
{
    kolo_store *store = open_it(-1);
    char text[600];

    (void)state;
    assert_int_equal(kolo_store_set(store, "", (kolo_bytes){"v", 1}), KOLO_E_INVALID);
    snprintf(text, sizeof text, "%s", kolo_last_error());
    assert_int_equal(kolo_store_barrier(store, "all", 1, -1), KOLO_OK);
    assert_string_equal(kolo_last_error(), text);
    kolo_store_close(store);
    unlink(path);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_half_record),
        cmocka_unit_test(test_somebodys_file),
        cmocka_unit_test(test_no_file_store),
        cmocka_unit_test(test_no_such_place),
        cmocka_unit_test(test_not_there_yet),
        cmocka_unit_test(test_last_one_removes),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_locked),
        cmocka_unit_test(test_closed_while_waiting),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_relative_path),
        cmocka_unit_test(test_forked_while_locked),
        cmocka_unit_test(test_barrier_leaves_no_error),
    };
    return cmocka_run_group_tests_name("store file", tests, make_folder, remove_folder);
}
