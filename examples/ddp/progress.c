/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include <string.h>
#include <time.h>

enum { BAR_WIDTH = 30 };

double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void print_figures(FILE *out, const struct progress *progress)
{
    fprintf(out, "%3u %%  loss %.4f  %.0f images/s  %.1f %% waiting for other ranks",
            (unsigned)(100 * progress->batch / progress->nbatches), progress->loss,
            progress->images_per_s, 100 * progress->communication);
}

static void print_bar(FILE *out, const struct progress *progress)
{
    size_t filled = (size_t)(BAR_WIDTH * progress->batch / progress->nbatches);
    char bar[BAR_WIDTH + 1];

    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(out, "\r\033[Kepoch %llu/%llu [%s] ", (unsigned long long)progress->epoch,
            (unsigned long long)progress->epochs, bar);
    print_figures(out, progress);
    fflush(out);
}

void progress_print(FILE *out, bool is_bar, const struct progress *progress,
                    uint64_t previous_batch)
{
    uint64_t tenths = 10 * progress->batch / progress->nbatches;

    if (is_bar) {
        print_bar(out, progress);
    } else if (tenths > 10 * previous_batch / progress->nbatches) {
        fprintf(out, "epoch %llu/%llu ", (unsigned long long)progress->epoch,
                (unsigned long long)progress->epochs);
        print_figures(out, progress);
        fputc('\n', out);
        fflush(out);
    }
}

void progress_clear(FILE *out, bool is_bar)
{
    if (is_bar)
        fputs("\r\033[K", out);
}
