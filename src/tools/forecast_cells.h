/* SPDX-License-Identifier: MIT
 *
 * forecast_cells.h: the times of a forecast, predicted by as many threads as there are cores: no
 * time depends on another.
 */
#ifndef KO_FORECAST_CELLS_H
#define KO_FORECAST_CELLS_H

#include "forecast.h"

#include <pthread.h>

enum { KO_FORECAST_THREADS = 4 }; /* at most: each has its own ranks in memory */

struct ko_forecast_cells {
    struct ko_forecast *forecast;
    int next, ncells;               /* of all, size by size */
    int missing[KO_FORECAST_SIZES]; /* by size: rows that have no time yet */
    int err;                        /* of the first that failed */
    char why[512];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[KO_FORECAST_THREADS];
    int nthreads;
};

/* *us is 0 for what cannot be predicted; what is too large to simulate as it is, is estimated by
 * what fewer ranks take. */
int ko_forecast_predict(const struct ko_forecast *forecast, int i, size_t nbytes, double *us,
                        bool *is_estimated);

/* Begins to predict all rows of all sizes of the forecast. cells is to be ended, and must stay
 * where it is until then. */
void ko_forecast_cells_begin(struct ko_forecast_cells *cells, struct ko_forecast *forecast);

/* Waits until all rows of a size have their times. */
int ko_forecast_cells_await(struct ko_forecast_cells *cells, int size);

/* Leaves what has not begun. */
void ko_forecast_cells_end(struct ko_forecast_cells *cells);

#endif
