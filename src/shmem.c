/* SPDX-License-Identifier: MIT
 *
 * This process's own segments are in a registry, guarded by one lock, which a fork finds free:
 * lists by the last bits of their ids, short ones for as many as the groups of a machine's ranks
 * have.
 */
#include "shmem.h"

#include "fault.h"
#include "numa.h"
#include "spare_memory.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* older headers */
#define MADV_POPULATE_WRITE 23
#endif

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ko_segment *registry[4096];

static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static pthread_once_t is_watching_forks = PTHREAD_ONCE_INIT;

static void lock_registry(void)
{
    pthread_mutex_lock(&registry_lock);
}

static void unlock_registry(void)
{
    pthread_mutex_unlock(&registry_lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock_registry, unlock_registry, unlock_registry);
}

static int map(struct ko_segment *segment, int protection)
{
    void *memory = ko_fault(KO_FAULT_SEGMENT)
                       ? MAP_FAILED
                       : mmap(NULL, segment->nbytes, protection, MAP_SHARED, segment->fd, 0);
    if (memory == MAP_FAILED)
        return ko_fail_errno(errno, "mapping a shared segment of %zu bytes", segment->nbytes);
    segment->memory = memory;
    return KOLO_OK;
}

/* What makes those between two ranks smaller: users' own have the length that these ask for. */
static const char of_windows[] =
    " (fewer groups at once, or smaller KOLO_SLICE_BYTES and KOLO_SLOTS, take less)";

/* Who asks for more pages than there are gets them one after another until the kernel kills
 * something. To look takes longer than to be given a few: those are counted, and there is a look
 * when they have become many. The less is left the sooner comes the next one, since other ranks of
 * the machine take of the same, each without the others' knowledge. */
static int check_spare(size_t nbytes, const char *advice)
{
    enum { MANY = 64 << 20, KEPT = 64 << 20, TAKERS = 64 };
    static atomic_llong until_look = MANY;
    size_t spare, left;

    if (atomic_fetch_sub(&until_look, (long long)nbytes) >= (long long)nbytes)
        return KOLO_OK;
    spare = ko_spare_memory();
    left = nbytes < spare ? spare - nbytes : 0;
    if (left >= KEPT) {
        atomic_store(&until_look, left / TAKERS < MANY ? (long long)(left / TAKERS) : MANY);
        return KOLO_OK;
    }
    atomic_store(&until_look, 0);
    return ko_fail(KOLO_E_NOMEM,
                   "%zu bytes of shared memory: this process could still be given %zu, of which %d "
                   "MiB are left alone%s",
                   nbytes, spare, KEPT >> 20, advice);
}

/* On older kernels any signal ends it, and a retry begins again: where a profiler's come every few
 * milliseconds, as many pages as it takes longer to find would never be found. */
static int reserve(int fd, size_t nbytes)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = posix_fallocate(fd, 0, (off_t)nbytes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Whether memory can be had later, without a descriptor: from Linux 5.14 on. */
static bool can_populate(void)
{
    return !madvise(NULL, 0, MADV_POPULATE_WRITE);
}

/* Pages that are had later lie near this thread, which reads them, and not near who writes there
 * first. Where that is refused, as in some containers, they lie there. */
static void keep_near(const struct ko_segment *segment)
{
    enum { BITS = 8 * sizeof(unsigned long), MOST = 1024 };
    const int node = ko_numa_of_thread();
    unsigned long nodes[MOST / BITS] = {0};

    if (node < 0 || node >= MOST)
        return;
    nodes[node / BITS] = 1UL << node % BITS;
    (void)syscall(SYS_mbind, segment->memory, segment->nbytes, MPOL_PREFERRED, nodes, MOST, 0);
}

/* fallocate, not ftruncate alone: a file system's limit is an error here and not a signal later. */
static int allocate(struct ko_segment *segment, size_t front, const char *advice)
{
    int error = check_spare(front, advice);

    if (error)
        return error;
    segment->fd = memfd_create("kolo", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->fd < 0 || fchmod(segment->fd, S_IRUSR | S_IWUSR))
        return ko_fail_errno(errno, "memfd_create");
    error = reserve(segment->fd, front);
    if (!error && front < segment->nbytes && ftruncate(segment->fd, (off_t)segment->nbytes))
        error = errno;
    if (error)
        return ko_fail_errno(error, "allocating a shared segment of %zu bytes%s", segment->nbytes,
                             advice);
    if (fcntl(segment->fd, F_ADD_SEALS, seals))
        return ko_fail_errno(errno, "sealing a shared segment");
    error = map(segment, PROT_READ | PROT_WRITE);
    if (!error && front < segment->nbytes)
        keep_near(segment);
    return error;
}

static int choose_id(uint64_t *id)
{
    while (!*id)
        if (getrandom(id, sizeof *id, 0) < 0 && errno != EINTR)
            return ko_fail_errno(errno, "getrandom, for a shared segment");
    return KOLO_OK;
}

static struct ko_segment **list_of(uint64_t id)
{
    return &registry[id % (sizeof registry / sizeof *registry)];
}

static void enroll(struct ko_segment *segment)
{
    struct ko_segment **list = list_of(segment->id);

    lock_registry();
    segment->link = list;
    segment->next = *list;
    if (segment->next)
        segment->next->link = &segment->next;
    *list = segment;
    unlock_registry();
}

/* Under the lock. */
static void strike_off(struct ko_segment *segment)
{
    if (segment->link)
        *segment->link = segment->next;
    if (segment->next)
        segment->next->link = segment->link;
}

static int make(size_t nbytes, size_t front, const char *advice, struct ko_segment **segment_out)
{
    struct ko_segment *segment = ko_alloc(sizeof *segment, "a shared segment");
    int err;

    if (!segment)
        return KOLO_E_NOMEM;
    (void)pthread_once(&is_watching_forks, watch_forks);
    *segment = (struct ko_segment){.nbytes = nbytes, .users = 1, .fd = -1};
    err = choose_id(&segment->id);
    if (!err)
        err = allocate(segment, front < nbytes && can_populate() ? front : nbytes, advice);
    if (err) {
        ko_segment_close_fd(segment);
        free(segment);
        return err;
    }
    enroll(segment);
    *segment_out = segment;
    return KOLO_OK;
}

int ko_segment_begin(size_t nbytes, size_t front, struct ko_segment **segment)
{
    return make(nbytes, front, of_windows, segment);
}

int ko_segment_create(size_t nbytes, struct ko_segment **segment)
{
    return make(nbytes, nbytes, "", segment);
}

/* Gives the pages around these bytes memory. False if there is none, of which the kernel says that
 * the address is bad. */
static bool populate(void *from, size_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)from % page;
    int error;

    if (ko_fault(KO_FAULT_PAGES))
        return false;
    do
        error = madvise((char *)from - before, before + nbytes, MADV_POPULATE_WRITE) ? errno : 0;
    while (error == EINTR || error == EAGAIN);
    return !error || error == EINVAL; /* an older kernel: all has been reserved at once */
}

int ko_segment_reserve(void *from, size_t nbytes)
{
    const int err = check_spare(nbytes, of_windows);

    if (err || populate(from, nbytes))
        return err;
    return ko_fail(KOLO_E_NOMEM, "there is no memory for %zu bytes of a shared segment%s", nbytes,
                   of_windows);
}

bool ko_segment_give_back(void *from, size_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = (page - (uintptr_t)from % page) % page;
    const size_t pages = nbytes > before ? (nbytes - before) / page * page : 0;

    return can_populate() && (!pages || !madvise((char *)from + before, pages, MADV_REMOVE));
}

struct ko_segment *ko_segment_find(uint64_t id)
{
    struct ko_segment *segment;

    lock_registry();
    for (segment = *list_of(id); segment && segment->id != id; segment = segment->next)
        continue;
    if (segment)
        segment->users++;
    unlock_registry();
    return segment;
}

static int check_foreign(int fd, size_t nbytes)
{
    struct stat status;
    int has = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &status))
        return ko_fail_errno(errno, "looking at a peer's shared segment");
    if (has < 0 || !(has & F_SEAL_SHRINK) || status.st_size != (off_t)nbytes)
        return ko_fail(KOLO_E_PROTOCOL,
                       "a peer's shared segment has %lld bytes and seals %#x; %zu sealed ones were "
                       "expected",
                       (long long)status.st_size, (unsigned)has, nbytes);
    return KOLO_OK;
}

static int map_foreign(int fd, size_t nbytes, int protection, struct ko_segment **segment_out)
{
    struct ko_segment *segment = ko_alloc(sizeof *segment, "a peer's shared segment");
    int err = segment ? check_foreign(fd, nbytes) : KOLO_E_NOMEM;

    if (!err) {
        *segment = (struct ko_segment){.nbytes = nbytes, .users = 1, .fd = fd};
        err = map(segment, protection);
    }
    close(fd);
    if (err) {
        free(segment);
        return err;
    }
    segment->fd = -1;
    *segment_out = segment;
    return KOLO_OK;
}

int ko_segment_map(int fd, size_t nbytes, struct ko_segment **segment)
{
    return map_foreign(fd, nbytes, PROT_READ | PROT_WRITE, segment);
}

int ko_segment_view(int fd, size_t nbytes, struct ko_segment **segment)
{
    int err = map_foreign(fd, nbytes, PROT_READ, segment);

    if (!err)
        (*segment)->is_view = true;
    return err;
}

int ko_segment_open(struct ko_segment *segment)
{
    if (!segment->is_view)
        return KOLO_OK;
    if (mprotect(segment->memory, segment->nbytes, PROT_READ | PROT_WRITE))
        return ko_fail_errno(errno, "opening a peer's shared segment for writing");
    segment->is_view = false;
    return KOLO_OK;
}

void ko_segment_retain(struct ko_segment *segment)
{
    lock_registry();
    segment->users++;
    unlock_registry();
}

void ko_segment_close_fd(struct ko_segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    segment->fd = -1;
}

void ko_segment_release(struct ko_segment *segment)
{
    int users;

    if (!segment)
        return;
    lock_registry();
    users = --segment->users;
    if (!users)
        strike_off(segment);
    unlock_registry();
    if (users)
        return;
    ko_segment_close_fd(segment);
    munmap(segment->memory, segment->nbytes);
    free(segment);
}
