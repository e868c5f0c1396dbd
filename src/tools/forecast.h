/* SPDX-License-Identifier: MIT
 *
 * forecast.h: how long each algorithm of a collective is predicted to take for a range of sizes,
 * for kolo-explain --simulate. It is gathered first and printed after. Times are in microseconds,
 * sizes are those of a block as in kolo-info --algorithms.
 */
#ifndef KO_FORECAST_H
#define KO_FORECAST_H

#include "choice.h"
#include "explain.h"

enum { KO_FORECAST_LARGE = 1000 }; /* more ranks are many */
enum { KO_FORECAST_RANKS = 100000, KO_FORECAST_ROWS = 16, KO_FORECAST_SIZES = 64 };

/* most is 2^40 at most, so that all sizes have room. */
struct ko_forecast_wish {
    struct ko_explain_wish call; /* algorithm: perhaps several, with commas between */
    int per_host, cores;         /* of each host; 0: what fits, those of the costs */
    const char *costs_path;      /* of any machine's; NULL: those in use */
    size_t least, most;          /* bytes; most 0: what fits */
    size_t factor;               /* from size to size, 2 at least; 0: what fits */
    FILE *table; /* gets several sizes among many ranks as they are predicted; NULL: none does */
};

struct ko_forecast_size {
    size_t nbytes;
    double us[KO_FORECAST_ROWS];         /* 0: the row cannot, or is too large even to estimate */
    bool is_estimated[KO_FORECAST_ROWS]; /* by what fewer ranks take */
    int fastest; /* of equals that of the size before, or the first; -1: none */
    int chosen;  /* row of algorithms.h that a group takes */
};

/* Row `to` is the fastest from nbytes on, where row `from` needs as long, us; us 0: one of the two
 * has no time on one side, and nbytes is the first size on the other. */
struct ko_crossing {
    double nbytes, us;
    int from, to;
    int size; /* it lies behind this one of the sizes, and not behind the next */
};

struct ko_forecast {
    enum ko_collective what;
    struct ko_costs costs;
    const char *costs_path; /* NULL: what usually holds */
    struct ko_hosts *hosts;
    struct ko_situation situation;
    int rows[KO_FORECAST_ROWS]; /* of algorithms.h */
    int nrows;
    struct ko_forecast_size sizes[KO_FORECAST_SIZES]; /* ascending; a barrier has the one 0 */
    int nsizes;
    struct ko_crossing crossings[KO_FORECAST_SIZES]; /* ascending */
    int ncrossings;
    bool is_told; /* the sizes are in the wish's table already */
};

/* Slices, slots and order as the variables say, for such links as these hosts' ranks have (NULL:
 * one's); ranks and costs are the caller's to fill in. KOLO_E_INVALID names the variable. */
int ko_situation_read(const struct ko_hosts *hosts, struct ko_situation *situation);

/* The forecast must stay where it is, and is to be closed, after errors too. KOLO_E_INVALID: wrong
 * names, variables or costs, or an algorithm that is not for such hosts. */
int ko_forecast_make(struct ko_forecast *forecast, const struct ko_forecast_wish *wish);
void ko_forecast_close(struct ko_forecast *forecast);

/* "ring": name of row i of the forecast's. */
const char *ko_forecast_name(const struct ko_forecast *forecast, int i);

/* "all_reduce among 16 ranks: 2 hosts of 8 ranks and 4 cores, costs that usually hold" */
void ko_forecast_title(const struct ko_forecast *forecast, char *text, size_t nbytes);

/* The table: what stands above the sizes, one of them, and what stands below. is_early: the later
 * sizes are not predicted yet, and columns are as wide as any time may be. */
void ko_forecast_text_begin(const struct ko_forecast *forecast, bool is_early, FILE *file);
void ko_forecast_text_size(const struct ko_forecast *forecast, int k, bool is_early, FILE *file);
void ko_forecast_text_end(const struct ko_forecast *forecast, FILE *file);
void ko_forecast_json(const struct ko_forecast *forecast, FILE *file);

/* forecast_svg.c: a line for each row, the lowest in bold, each crossing with its size. */
void ko_forecast_svg(const struct ko_forecast *forecast, FILE *file);

#endif
