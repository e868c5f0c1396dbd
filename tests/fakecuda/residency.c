/* SPDX-License-Identifier: MIT
 *
 * When a block of a kernel may start: a GPU has places for so many at once, which a block keeps
 * until it ends, and processes have the GPU one after the other. Kernels that wait for each other
 * come to nothing where one finds no place, and burn the time of those that could go on. What
 * processes have of the GPUs is in a file that they share.
 */
#include "double.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_TENANTS = 32,
    RESTS_OF_A_YIELD = 16, /* each of which may take as long as others have the core */
    MANY_RESTS = 4096,
    RESTING_US = 100
};

/* A process that has blocks on the GPU, or wants to. */
struct tenant {
    pid_t pid; /* 0: none */
    int running, waiting;
};

struct gpu {
    struct tenant tenants[MOST_TENANTS];
    int owner; /* the tenant whose turn it is */
    int64_t since_ns;
};

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    struct gpu *gpus; /* [DOUBLE_MOST_DEVICES] */
    int fd;           /* the file; -1: none */
    int slots, slice_us;
    atomic_uint_fast64_t rests, lost_slices;
} house = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void open_house(void)
{
    static struct gpu own[DOUBLE_MOST_DEVICES];
    const char *path = getenv("FAKECUDA_SHARED");

    house.slots = double_number("FAKECUDA_SLOTS", 0);
    house.slice_us = double_number("FAKECUDA_SLICE", 0);
    house.fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    house.gpus = own;
    if (!path)
        return;
    if (house.fd < 0 || ftruncate(house.fd, sizeof own))
        abort();
    house.gpus = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, house.fd, 0);
    if (house.gpus == MAP_FAILED)
        abort();
}

/* A process that dies lets go of a file's lock, and of its blocks by bury. */
static void lock_house(void)
{
    pthread_mutex_lock(&house.lock);
    while (house.fd >= 0 && flock(house.fd, LOCK_EX))
        continue;
}

static void unlock_house(void)
{
    if (house.fd >= 0)
        (void)flock(house.fd, LOCK_UN);
    pthread_mutex_unlock(&house.lock);
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void bury(struct gpu *gpu)
{
    for (int i = 0; i < MOST_TENANTS; i++)
        if (gpu->tenants[i].pid && kill(gpu->tenants[i].pid, 0) && errno == ESRCH)
            gpu->tenants[i] = (struct tenant){0};
}

static struct tenant *own_tenant(struct gpu *gpu)
{
    struct tenant *free_one = NULL;

    for (int i = 0; i < MOST_TENANTS; i++) {
        if (gpu->tenants[i].pid == getpid())
            return &gpu->tenants[i];
        if (!gpu->tenants[i].pid && !free_one)
            free_one = &gpu->tenants[i];
    }
    if (!free_one)
        abort();
    free_one->pid = getpid();
    return free_one;
}

static int running_of(const struct gpu *gpu)
{
    int n = 0;

    for (int i = 0; i < MOST_TENANTS; i++)
        n += gpu->tenants[i].running;
    return n;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void give_to(struct gpu *gpu, const struct tenant *tenant)
{
    gpu->owner = (int)(tenant - gpu->tenants);
    gpu->since_ns = now_ns();
}

/* Takes the turn if it is nobody's. */
static bool has_turn(struct gpu *gpu, const struct tenant *self)
{
    struct tenant *owner = &gpu->tenants[gpu->owner];

    if (!house.slice_us || owner == self)
        return true;
    if (owner->running)
        return false;
    give_to(gpu, self);
    return true;
}

/* Who waits has had the GPU for a slice, and somebody else wants it. */
static void end_slice(struct gpu *gpu, const struct tenant *self)
{
    const int own = (int)(self - gpu->tenants);

    if (gpu->owner != own || now_ns() - gpu->since_ns < house.slice_us * 1000LL)
        return;
    for (int i = 1; i < MOST_TENANTS; i++) {
        const struct tenant *next = &gpu->tenants[(own + i) % MOST_TENANTS];

        if (next->waiting) {
            atomic_fetch_add(&house.lost_slices, 1);
            give_to(gpu, next);
            return;
        }
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

bool double_has_slots(void)
{
    pthread_once(&house.once, open_house);
    return house.slots || house.slice_us;
}

/* With a turn, slots are this process's alone: the others' blocks have left with all they had. */
static bool has_slot(const struct gpu *gpu, const struct tenant *self)
{
    return !house.slots || (house.slice_us ? self->running : running_of(gpu)) < house.slots;
}

/* Waits for the process's turn, and with `starts` for a slot too, which is taken. */
static void await(struct gpu *gpu, bool starts)
{
    bool waits = false, may;

    do {
        struct tenant *self;

        lock_house();
        bury(gpu);
        self = own_tenant(gpu);
        may = has_turn(gpu, self) && (!starts || has_slot(gpu, self));
        if (may == waits)
            self->waiting += may ? -1 : 1;
        self->running += may && starts;
        unlock_house();
        waits = !may;
        if (waits)
            usleep(20);
    } while (waits);
}

void double_block_begin(int device)
{
    await(&house.gpus[device], true);
}

void double_block_end(int device)
{
    struct gpu *gpu = &house.gpus[device];

    lock_house();
    own_tenant(gpu)->running--;
    unlock_house();
}

/* Who has waited for long takes no processor from those for whom it waits. */
static void let_others_run(unsigned nrests)
{
    if (nrests % RESTS_OF_A_YIELD)
        return;
    if (nrests < MANY_RESTS)
        sched_yield();
    else
        usleep(RESTING_US);
}

void double_block_rest(int device, unsigned nrests)
{
    struct gpu *gpu;

    atomic_fetch_add(&house.rests, 1);
    let_others_run(nrests);
    if (!double_has_slots() || !house.slice_us)
        return;
    gpu = &house.gpus[device];
    lock_house();
    end_slice(gpu, own_tenant(gpu));
    unlock_house();
    await(gpu, false);
}

void fakecuda_blocks(int device, struct fakecuda_blocks *blocks)
{
    blocks->running = 0;
    if (double_has_slots()) {
        lock_house();
        blocks->running = running_of(&house.gpus[device]);
        unlock_house();
    }
    blocks->rests = atomic_load(&house.rests);
    blocks->lost_slices = atomic_load(&house.lost_slices);
}
