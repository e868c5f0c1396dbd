/* SPDX-License-Identifier: MIT
 *
 * Shared segments: made, found by id, mapped, counted, and refused when they could be turned
 * against us.
 */
#include "fault.h"
#include "shmem.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void create(void **state)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 1 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ko_segment *segment, *found;
        struct stat status;
        unsigned char *bytes;

        assert_int_equal(ko_segment_create(sizes[i], &segment), KOLO_OK);
        bytes = segment->memory;
        assert_int_equal(segment->nbytes, sizes[i]);
        assert_int_not_equal(segment->id, 0);
        assert_true(fcntl(segment->fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fstat(segment->fd, &status), 0);
        assert_int_equal(status.st_mode & 0777, 0600);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(bytes[j], 0);
        memset(bytes, 7, sizes[i]);
        found = ko_segment_find(segment->id);
        assert_ptr_equal(found, segment);
        ko_segment_release(found);
        assert_int_equal(bytes[sizes[i] - 1], 7); /* one user is left */
        ko_segment_release(segment);
    }
    ko_segment_release(NULL);
}

/* This thread's processor time. */
static int64_t own_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

static void find(void **state)
{
    struct ko_segment *a, *b;
    uint64_t id;

    (void)state;
    assert_null(ko_segment_find(0));
    assert_null(ko_segment_find(12345));
    assert_int_equal(ko_segment_create(64, &a), KOLO_OK);
    assert_int_equal(ko_segment_create(64, &b), KOLO_OK);
    assert_true(a->id != b->id);
    id = a->id;
    ko_segment_release(a); /* the older one: in the middle of the list */
    assert_null(ko_segment_find(id));
    assert_ptr_equal(ko_segment_find(b->id), b);
    ko_segment_release(b);
    ko_segment_release(b);
}

enum { MANY = 8000 };

/* This thread's time for so many look-ups that find nothing, the least of some tries. */
static int64_t time_of_misses(void)
{
    enum { TRIES = 20, LOOK_UPS = 100 };
    int64_t least = INT64_MAX;

    for (int try = 0; try < TRIES; try++) {
        const int64_t began = own_ns();
        int64_t took;

        for (uint64_t i = 0; i < LOOK_UPS; i++)
            assert_null(ko_segment_find(i * UINT64_C(0x9e3779b97f4a7c15)));
        took = own_ns() - began;
        least = took < least ? took : least;
    }
    return least;
}

/* As many as hundreds of groups have: a look-up takes hardly longer, and they go in any order. */
static void find_among_many(void **state)
{
    static struct ko_segment *segments[MANY];
    const int64_t alone = time_of_misses();
    int64_t among;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ko_segment_create(64, &segments[i]), KOLO_OK);
        ko_segment_close_fd(segments[i]);
    }
    among = time_of_misses();
    if (among > 20 * alone)
        fail_msg("%lld ns among many, %lld ns alone", (long long)among, (long long)alone);
    for (int part = 0; part < 3; part++)
        for (int i = part; i < MANY; i += 3) {
            const uint64_t id = segments[i]->id;

            assert_ptr_equal(ko_segment_find(id), segments[i]);
            ko_segment_release(segments[i]);
            ko_segment_release(segments[i]);
            assert_null(ko_segment_find(id));
        }
}

static void map_again(void **state)
{
    struct ko_segment *own, *other;

    (void)state;
    assert_int_equal(ko_segment_create(5000, &own), KOLO_OK);
    assert_int_equal(ko_segment_map(dup(own->fd), 5000, &other), KOLO_OK);
    assert_true(own->memory != other->memory);
    assert_int_equal(other->id, 0);
    assert_int_equal(other->fd, -1);
    strcpy(own->memory, "seen by both");
    assert_string_equal(other->memory, "seen by both");
    ko_segment_close_fd(own);
    ko_segment_close_fd(own);
    assert_int_equal(own->fd, -1);
    ko_segment_release(own);
    assert_string_equal(other->memory, "seen by both"); /* it outlives its maker */
    ko_segment_release(other);
}

static void sealed(void **state)
{
    struct ko_segment *segment;

    (void)state;
    assert_int_equal(ko_segment_create(8192, &segment), KOLO_OK);
    assert_int_equal(ftruncate(segment->fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(segment->fd, 16384), -1);
    assert_int_equal(fcntl(segment->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ko_segment_release(segment);
}

static void refuse(size_t nbytes, int seals, size_t expected)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct ko_segment *segment = NULL;

    assert_int_equal(ftruncate(fd, (off_t)nbytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    assert_int_equal(ko_segment_map(fd, expected, &segment), KOLO_E_PROTOCOL);
    assert_null(segment);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* it was taken over */
}

static void refused(void **state)
{
    struct ko_segment *segment = NULL;

    (void)state;
    refuse(4096, 0, 4096);
    refuse(4096, F_SEAL_GROW, 4096);
    refuse(4095, F_SEAL_SHRINK, 4096);
    refuse(4097, F_SEAL_SHRINK, 4096);
    refuse(0, F_SEAL_SHRINK, 4096);
    assert_int_equal(ko_segment_map(-1, 4096, &segment), KOLO_E_SYSTEM);
    assert_null(segment);
}

static void faults(void **state)
{
    struct ko_segment *segment = NULL;

    (void)state;
    ko_fault_arm(KO_FAULT_SEGMENT, 1);
    assert_int_not_equal(ko_segment_create(4096, &segment), KOLO_OK);
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    assert_int_equal(ko_segment_create(4096, &segment), KOLO_E_NOMEM);
    ko_fault_arm(KO_FAULT_ALLOC, 1);
    assert_int_equal(ko_segment_map(dup(0), 4096, &segment), KOLO_E_NOMEM);
    assert_null(segment);
}

/* What a process wrote stays when it has gone. */
static void gone_user(void **state)
{
    struct ko_segment *segment;
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(ko_segment_create(4096, &segment), KOLO_OK);
    pid = fork();
    if (pid == 0) {
        strcpy(segment->memory, "from the child");
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_string_equal(segment->memory, "from the child");
    ko_segment_release(segment);
}

static int nrefusals; /* of getrandom's next calls, as by a sandbox */

ssize_t getrandom(void *bytes, size_t nbytes, unsigned flags)
{
    if (nrefusals > 0) {
        nrefusals--;
        errno = EPERM;
        return -1;
    }
    return syscall(SYS_getrandom, bytes, nbytes, flags);
}

static void no_random_numbers(void **state)
{
    struct ko_segment *segment = NULL;

    (void)state;
    nrefusals = 3;
    assert_int_equal(ko_segment_create(4096, &segment), KOLO_E_SYSTEM);
    assert_int_equal(nrefusals, 2);
    assert_null(segment);
    nrefusals = 0;
}

/* Bytes of a machine that only seems to give them; 0: this one. Those that it has given. */
static size_t machine, given;

/* As of an older kernel to a thread that a profiler's signals come to. */
int posix_fallocate(int fd, off_t offset, off_t nbytes)
{
    sigset_t blocked;

    if (machine) {
        given += (size_t)nbytes;
        return ftruncate(fd, offset + nbytes) ? errno : 0;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGPROF) || !sigismember(&blocked, SIGALRM))
        return EINTR;
    return fallocate(fd, 0, offset, nbytes) ? errno : 0;
}

static void signals_do_not_interrupt(void **state)
{
    struct ko_segment *segment = NULL;
    sigset_t some, before, after;

    (void)state;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &some, &before);
    assert_int_equal(ko_segment_create(4096, &segment), KOLO_OK);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    assert_true(sigismember(&after, SIGUSR2));
    assert_false(sigismember(&after, SIGPROF));
    ko_segment_release(segment);
}

FILE *fopen(const char *name, const char *mode)
{
    static char text[64];
    int fd;

    (void)mode; /* nobody here writes */
    if (machine && !strcmp(name, "/proc/meminfo")) {
        snprintf(text, sizeof text, "MemAvailable: %zu kB\n", (machine - given) >> 10);
        return fmemopen(text, strlen(text), "r");
    }
    fd = open(name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopen(fd, "r");
}

/* Segments that are each too small to be looked at before may be many. */
static void small_ones_are_counted(void **state)
{
    enum { MOST = 200, EACH = 4 << 20, LEFT = 64 << 20 };
    struct ko_segment *segments[MOST];
    int n = 0, err = KOLO_OK;

    (void)state;
    machine = 512 << 20;
    while (n < MOST && !err) {
        err = ko_segment_create(EACH, &segments[n]);
        if (!err)
            ko_segment_close_fd(segments[n++]);
    }
    assert_int_equal(err, KOLO_E_NOMEM);
    assert_non_null(strstr(kolo_last_error(), "could still be given"));
    assert_int_equal(n, (machine - LEFT) / EACH);
    while (n)
        ko_segment_release(segments[--n]);
    machine = given = 0;
    assert_int_equal(ko_segment_create(EACH, &segments[0]), KOLO_OK);
    ko_segment_release(segments[0]);
}

static size_t bytes_of(const struct ko_segment *segment)
{
    struct stat status;

    assert_int_equal(fstat(segment->fd, &status), 0);
    return (size_t)status.st_blocks * 512;
}

/* Behind its front a segment has what either side has reserved, and keeps what lies there. */
static void by_parts(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), nbytes = 64 * page + 1;
    struct ko_segment *own, *other;
    unsigned char *bytes;

    (void)state;
    assert_int_equal(ko_segment_begin(nbytes, page + 1, &own), KOLO_OK);
    if (bytes_of(own) > nbytes) { /* an older kernel, where it has all at once */
        ko_segment_release(own);
        skip();
    }
    assert_int_equal(ko_segment_map(dup(own->fd), nbytes, &other), KOLO_OK);
    bytes = own->memory;
    assert_int_equal(bytes_of(own), 2 * page);
    bytes[2 * page - 1] = 7;
    assert_int_equal(ko_segment_reserve(bytes + 2 * page - 1, 2 * page), KOLO_OK);
    assert_int_equal(bytes_of(own), 4 * page);
    assert_int_equal(ko_segment_reserve((unsigned char *)other->memory + 64 * page, 1), KOLO_OK);
    assert_int_equal(bytes_of(own), 5 * page);
    assert_int_equal(bytes[2 * page - 1], 7);
    assert_int_equal(bytes[2 * page], 0);
    ko_fault_arm(KO_FAULT_PAGES, 1);
    assert_int_equal(ko_segment_reserve(bytes + 8 * page, 1), KOLO_E_NOMEM);
    assert_int_equal(bytes_of(own), 5 * page);
    ko_segment_release(own);
    ko_segment_release(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(create),
                                       cmocka_unit_test(find),
                                       cmocka_unit_test(find_among_many),
                                       cmocka_unit_test(map_again),
                                       cmocka_unit_test(sealed),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(faults),
                                       cmocka_unit_test(gone_user),
                                       cmocka_unit_test(no_random_numbers),
                                       cmocka_unit_test(signals_do_not_interrupt),
                                       cmocka_unit_test(small_ones_are_counted),
                                       cmocka_unit_test(by_parts)};

    return cmocka_run_group_tests_name("shmem", tests, NULL, NULL);
}
