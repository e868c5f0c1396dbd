/* SPDX-License-Identifier: MIT */
#include "perf_cores.h"

#include "clock.h"
#include "portable.h"
#include "status.h"

#include <math.h>
#include <sched.h>
#include <time.h>

enum { BATCHES = 20, THROWS = 50, LOOKS_TO_YIELD = 10000 };

/* So long nobody waits for the other end. */
static const int64_t LONGEST_NS = 1000000000;

/* One wait for the cores to be as usual. Rest brings them near each other as a rule, work takes
 * them apart on some hosts only. */
static const int64_t WAIT_NS = 300000000;
enum { MOST_WORKS = 10 };

/* Between near and far lies a factor of two and more; two looks at the same differ by a fifth. */
static const double USUAL = 1.5;

static bool catch_ball(const struct ko_ball *ball, int end, int64_t until)
{
    for (int looks = 1; ko_load_acquire(&ball->turn) % 2 != (uint64_t)end; looks++) {
        if (looks % LOOKS_TO_YIELD) {
            ko_pause();
            continue;
        }
        if (ko_now_ns() > until)
            return false;
        sched_yield();
    }
    return true;
}

/* The best of some batches: the first begins when the other end comes, and others may be
 * interrupted. */
double ko_ball_throw(struct ko_ball *ball, int end)
{
    const int64_t until = ko_now_ns() + LONGEST_NS;
    double best = 0;

    for (int batch = 0; batch < BATCHES; batch++) {
        const int64_t began = ko_now_ns();
        double us;

        for (int i = 0; i < THROWS; i++) {
            if (!catch_ball(ball, end, until))
                return best;
            ko_store_release(&ball->turn, ball->turn + 1);
        }
        us = (double)(ko_now_ns() - began) / 1e3 / THROWS;
        best = best > 0 ? fmin(best, us) : us;
    }
    return best;
}

int ko_cores_look(kolo_group *group, struct ko_cores *cores, bool *are_usual)
{
    int rank, err;

    *are_usual = true;
    if (!cores->ball)
        return KOLO_OK;
    err = kolo_barrier(group);
    if (err)
        return err;
    rank = kolo_group_rank(group);
    cores->apart = rank < 2 ? ko_ball_throw(cores->ball, rank) : 0;
    err = kolo_broadcast(group, &cores->apart, 1, KOLO_FLOAT64, 0);
    if (cores->usual <= 0)
        cores->usual = cores->apart;
    *are_usual = cores->apart <= USUAL * cores->usual && cores->usual <= USUAL * cores->apart;
    cores->tries -= !*are_usual;
    return err;
}

static void rest(void)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};

    (void)nanosleep(&pause, NULL);
}

static void work(void)
{
    const int64_t until = ko_now_ns() + WAIT_NS;

    while (ko_now_ns() < until)
        ko_pause();
}

int ko_cores_await(kolo_group *group, struct ko_cores *cores)
{
    bool are_usual = false;
    int err = ko_cores_look(group, cores, &are_usual);

    for (int works = 0; !err && !are_usual && cores->tries > 0 && works < MOST_WORKS;) {
        if (cores->apart > cores->usual) {
            rest();
        } else {
            work();
            works++;
        }
        err = ko_cores_look(group, cores, &are_usual);
    }
    if (err || !cores->ball || (are_usual && cores->tries > 0))
        return err;
    return ko_fail(KOLO_E_TIMEOUT, "the cores, which were %.3g us from each other, became %.3g us",
                   cores->usual, cores->apart);
}
