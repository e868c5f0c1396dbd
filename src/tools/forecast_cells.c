/* SPDX-License-Identifier: MIT */
#include "forecast_cells.h"

#include "status.h"

#include <unistd.h>

/* Actions of a simulation: all of them together take a second, or, for many ranks, one of them. */
enum { MOST_ACTIONS = 200 * 1000, LARGE_MOST_ACTIONS = 4 * 1000 * 1000 };

int ko_forecast_predict(const struct ko_forecast *forecast, int i, size_t nbytes, double *us,
                        bool *is_estimated)
{
    const struct ko_situation *situation = &forecast->situation;
    const int row = forecast->rows[i];
    const struct ko_simulation simulation = {
        .call = {.text = &ko_paper_texts[row],
                 .n = situation->n,
                 .count = nbytes,
                 .slice = situation->slice_bytes,
                 .slots = situation->slots,
                 .hosts = situation->hosts},
        .element = 1,
        .costs = situation->costs,
        .most_actions = situation->n > KO_FORECAST_LARGE ? LARGE_MOST_ACTIONS : MOST_ACTIONS};
    int err;

    *us = 0;
    *is_estimated = false;
    if (!ko_choice_allows(situation, row, false, ko_size_class(nbytes)))
        return KOLO_OK;
    err = ko_simulate(&simulation, us);
    *is_estimated = err == KOLO_E_UNSUPPORTED;
    if (*is_estimated)
        err = ko_simulate_many(&simulation, us);
    return err == KOLO_E_UNSUPPORTED ? KOLO_OK : err;
}

/* The next cell that nobody has begun, or -1; locked. */
static int take_cell(struct ko_forecast_cells *cells)
{
    return cells->err || cells->next == cells->ncells ? -1 : cells->next++;
}

/* Notes that a cell is done; locked. */
static void note(struct ko_forecast_cells *cells, int cell, int err)
{
    if (err && !cells->err) {
        cells->err = err;
        snprintf(cells->why, sizeof cells->why, "%s", kolo_last_error());
    }
    cells->missing[cell / cells->forecast->nrows]--;
    pthread_cond_broadcast(&cells->changed);
}

/* Predicts cells until there is none, or, in the thread that waits for a size, that has all. */
static void predict_cells(struct ko_forecast_cells *cells, const int *missing)
{
    const int nrows = cells->forecast->nrows;

    pthread_mutex_lock(&cells->lock);
    while (!missing || *missing) {
        const int cell = take_cell(cells);
        struct ko_forecast_size *size;
        int err;

        if (cell < 0)
            break;
        pthread_mutex_unlock(&cells->lock);
        size = &cells->forecast->sizes[cell / nrows];
        err = ko_forecast_predict(cells->forecast, cell % nrows, size->nbytes,
                                  &size->us[cell % nrows], &size->is_estimated[cell % nrows]);
        pthread_mutex_lock(&cells->lock);
        note(cells, cell, err);
    }
    pthread_mutex_unlock(&cells->lock);
}

static void *help(void *context)
{
    predict_cells(context, NULL);
    return NULL;
}

void ko_forecast_cells_begin(struct ko_forecast_cells *cells, struct ko_forecast *forecast)
{
    const long ncores = sysconf(_SC_NPROCESSORS_ONLN);

    *cells = (struct ko_forecast_cells){.forecast = forecast,
                                        .ncells = forecast->nsizes * forecast->nrows};
    for (int k = 0; k < forecast->nsizes; k++)
        cells->missing[k] = forecast->nrows;
    pthread_mutex_init(&cells->lock, NULL);
    pthread_cond_init(&cells->changed, NULL);
    while (cells->nthreads < KO_FORECAST_THREADS - 1 && cells->nthreads + 1 < ncores &&
           !pthread_create(&cells->threads[cells->nthreads], NULL, help, cells))
        cells->nthreads++; /* who waits for a size helps, too */
}

int ko_forecast_cells_await(struct ko_forecast_cells *cells, int size)
{
    int err;

    predict_cells(cells, &cells->missing[size]);
    pthread_mutex_lock(&cells->lock);
    while (cells->missing[size] && !cells->err)
        pthread_cond_wait(&cells->changed, &cells->lock);
    err = cells->err;
    pthread_mutex_unlock(&cells->lock);
    return err ? ko_fail(err, "%s", cells->why) : KOLO_OK;
}

void ko_forecast_cells_end(struct ko_forecast_cells *cells)
{
    pthread_mutex_lock(&cells->lock);
    cells->next = cells->ncells;
    pthread_mutex_unlock(&cells->lock);
    for (int i = 0; i < cells->nthreads; i++)
        pthread_join(cells->threads[i], NULL);
    pthread_cond_destroy(&cells->changed);
    pthread_mutex_destroy(&cells->lock);
}
