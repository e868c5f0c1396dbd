/* SPDX-License-Identifier: MIT
 *
 * Gathers a forecast: which sizes, which algorithms, each one's time, and where one algorithm takes
 * over from another.
 */
#include "forecast.h"

#include "config.h"
#include "forecast_cells.h"
#include "group_wishes.h"
#include "layout.h"
#include "status.h"
#include "tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t LEAST = 8, MOST = 64 << 20;

/* From size to size, if the caller does not say: for many ranks fewer sizes. */
enum { FACTOR = 4, LARGE_FACTOR = 64 };

/* On one host, and on each of several, if the caller does not say. */
enum { MOST_ALONE = 64, USUAL_PER_HOST = 8 };

/* A crossing is looked for until the two times differ by so little, or so often. */
static const double CLOSE = 2e-4;
enum { MOST_TRIES = 12, LARGE_MOST_TRIES = 3 };

/* ---- the situation ----------------------------------------------------------------------- */

int ko_situation_read(const struct ko_hosts *hosts, struct ko_situation *situation)
{
    int64_t slots = 0, slice_bytes = 0, is_ordered = 0;
    int err = ko_config_number(KO_CONFIG_SLOTS, &slots);

    if (!err)
        err = ko_config_number(KO_CONFIG_SLICE_BYTES, &slice_bytes);
    if (!err)
        err = ko_config_number(KO_CONFIG_DETERMINISTIC, &is_ordered);
    *situation = (struct ko_situation){.hosts = hosts,
                                       .slice_bytes = (size_t)slice_bytes,
                                       .slots = (int)slots,
                                       .is_ordered = is_ordered != 0};
    if (hosts)
        situation->slice_bytes = ko_layout_slice_bytes(hosts, (uint32_t)slice_bytes);
    return err;
}

static int read_hosts(const struct ko_forecast_wish *wish, int *n, struct ko_hosts **hosts)
{
    int per_host = wish->per_host;

    *n = wish->call.ranks ? wish->call.ranks : KO_EXPLAIN_RANKS;
    if (wish->call.hosts)
        return ko_explain_hosts(wish->call.hosts, n, hosts);
    if (!per_host)
        per_host = *n <= MOST_ALONE ? *n : USUAL_PER_HOST;
    return ko_layout_even(*n, per_host, hosts);
}

/* path: of --costs, or NULL. */
static int read_costs(struct ko_forecast *forecast, const char *path)
{
    forecast->costs_path = path;
    if (path)
        return ko_tuning_read_any("--costs", path, &forecast->costs);
    if (ko_config_is_set(KO_CONFIG_TUNING))
        forecast->costs_path = ko_config_text(KO_CONFIG_TUNING);
    return ko_tuning_get(&forecast->costs);
}

static int read_all(struct ko_forecast *forecast, const struct ko_forecast_wish *wish)
{
    int n = 0, err = read_hosts(wish, &n, &forecast->hosts);

    if (!err)
        err = ko_situation_read(forecast->hosts, &forecast->situation);
    if (!err)
        err = read_costs(forecast, wish->costs_path);
    if (!err && wish->call.ranks && n != wish->call.ranks)
        err = ko_fail(KOLO_E_INVALID, "--hosts %s are %d ranks, not %d", wish->call.hosts, n,
                      wish->call.ranks);
    if (wish->cores)
        forecast->costs.cores = wish->cores;
    forecast->situation.n = n;
    forecast->situation.costs = &forecast->costs;
    return err;
}

/* ---- what to predict --------------------------------------------------------------------- */

static void choose_sizes(struct ko_forecast *forecast, const struct ko_forecast_wish *wish)
{
    const size_t most = wish->most ? wish->most : MOST;
    size_t next = wish->most ? wish->least : LEAST, factor = wish->factor;

    if (!factor)
        factor = forecast->situation.n > KO_FORECAST_LARGE ? LARGE_FACTOR : FACTOR;
    if (forecast->what == KO_BARRIER) {
        forecast->sizes[forecast->nsizes++].nbytes = 0;
        return;
    }
    for (; next < most; next *= factor)
        forecast->sizes[forecast->nsizes++].nbytes = next;
    forecast->sizes[forecast->nsizes++].nbytes = most;
}

/* A row, unless it is for several hosts and there are none. */
static void add_row(struct ko_forecast *forecast, int row)
{
    if (ko_paper_texts[row].flags & KO_SPREAD && !ko_choice_is_spread(&forecast->situation))
        return;
    for (int i = 0; i < forecast->nrows; i++)
        if (forecast->rows[i] == row)
            return;
    if (forecast->nrows < KO_FORECAST_ROWS)
        forecast->rows[forecast->nrows++] = row;
}

/* Those of the names, which commas divide. */
static int add_named(struct ko_forecast *forecast, const struct ko_explain_wish *wish)
{
    struct ko_explain_wish one = *wish;
    char name[64];
    const char *at = wish->algorithm;
    int err;

    one.algorithm = name;
    do {
        const size_t length = strcspn(at, ",");
        const struct ko_paper_text *text;

        snprintf(name, sizeof name, "%.*s", (int)length, at);
        err = ko_explain_find(&one, &text);
        if (!err)
            add_row(forecast, (int)(text - ko_paper_texts));
        at += length;
        at += strspn(at, ",");
    } while (*at && !err);
    return err;
}

static int choose_rows(struct ko_forecast *forecast, const struct ko_explain_wish *wish)
{
    int err = wish->algorithm ? add_named(forecast, wish) : KOLO_OK;

    for (int row = 0; row < ko_npaper_texts && !wish->algorithm; row++)
        if (ko_paper_texts[row].what == forecast->what)
            add_row(forecast, row);
    if (!err && !forecast->nrows)
        err = ko_fail(KOLO_E_INVALID,
                      "%s is for several hosts of several ranks; --hosts, or --ranks and "
                      "--per-host, say how many",
                      wish->algorithm);
    return err;
}

/* ---- predicting -------------------------------------------------------------------------- */

/* Whether row i is so much faster than the one that is the fastest so far. */
static bool is_faster(const struct ko_forecast_size *size, int i)
{
    const int fastest = size->fastest;

    return size->us[i] > 0 && (fastest < 0 || size->us[fastest] <= 0 ||
                               ko_choice_is_better(size->us[i], size->us[fastest]));
}

/* last: the fastest of the size before; it stays that among equals. -1: none. */
static int judge_size(const struct ko_forecast *forecast, int wanted, int last,
                      struct ko_forecast_size *size)
{
    double unused;

    size->fastest = last >= 0 && size->us[last] > 0 ? last : -1;
    for (int i = 0; i < forecast->nrows; i++)
        if (is_faster(size, i))
            size->fastest = i;
    size->chosen = ko_choose(&forecast->situation, forecast->what, false,
                             ko_size_class(size->nbytes), wanted, &unused);
    return size->chosen < 0 ? KOLO_E_NOMEM : KOLO_OK;
}

/* Tells each size as soon as it is predicted, if anybody wants to know. */
static int predict_sizes(struct ko_forecast *forecast, int wanted, FILE *table)
{
    struct ko_forecast_cells cells;
    int err = KOLO_OK;

    if (table)
        ko_forecast_text_begin(forecast, true, table);
    ko_forecast_cells_begin(&cells, forecast);
    for (int k = 0; k < forecast->nsizes && !err; k++) {
        err = ko_forecast_cells_await(&cells, k);
        if (!err)
            err = judge_size(forecast, wanted, k ? forecast->sizes[k - 1].fastest : -1,
                             &forecast->sizes[k]);
        if (!err && table)
            ko_forecast_text_size(forecast, k, true, table);
    }
    ko_forecast_cells_end(&cells);
    return err;
}

/* ---- crossings --------------------------------------------------------------------------- */

/* Where on a logarithmic scale the line between two points is 0: the false position. */
struct bracket {
    double low, high;       /* logarithms of sizes */
    double at_low, at_high; /* of the ratio of times: above 0, not above 0 */
};

/* Looks where `to` begins to take less than `from`, between two sizes. */
static int find_crossing(const struct ko_forecast *forecast, struct ko_crossing *crossing,
                         struct bracket bracket)
{
    const int most = forecast->situation.n > KO_FORECAST_LARGE ? LARGE_MOST_TRIES : MOST_TRIES;

    for (int tries = 0; tries < most && bracket.high - bracket.low > CLOSE; tries++) {
        const double part = bracket.at_low / (bracket.at_low - bracket.at_high);
        const double middle = bracket.low + part * (bracket.high - bracket.low);
        double from_us, to_us, ratio;
        bool unused;
        int err;

        crossing->nbytes = floor(exp(middle) + 0.5);
        err = ko_forecast_predict(forecast, crossing->from, (size_t)crossing->nbytes, &from_us,
                                  &unused);
        if (!err)
            err = ko_forecast_predict(forecast, crossing->to, (size_t)crossing->nbytes, &to_us,
                                      &unused);
        if (err || from_us <= 0 || to_us <= 0)
            return err;
        crossing->us = to_us;
        ratio = log(to_us / from_us);
        if (fabs(ratio) < CLOSE)
            return KOLO_OK;
        /* half of the other end: it moves as well */
        bracket = ratio > 0 ? (struct bracket){middle, bracket.high, ratio, bracket.at_high / 2}
                            : (struct bracket){bracket.low, middle, bracket.at_low / 2, ratio};
    }
    return KOLO_OK;
}

/* Where the fastest of `high` takes over from that of `low`. */
static int cross(const struct ko_forecast *forecast, const struct ko_forecast_size *low,
                 const struct ko_forecast_size *high, struct ko_crossing *crossing)
{
    const int from = low->fastest, to = high->fastest;
    struct bracket bracket = {log((double)low->nbytes), log((double)high->nbytes), 0, 0};

    *crossing = (struct ko_crossing){.nbytes = (double)high->nbytes, .from = from, .to = to};
    if (high->us[from] <= 0 || low->us[to] <= 0)
        return KOLO_OK;
    crossing->us = high->us[to];
    bracket.at_low = log(low->us[to] / low->us[from]);
    bracket.at_high = log(high->us[to] / high->us[from]);
    if (bracket.at_low > 0)
        return find_crossing(forecast, crossing, bracket);
    crossing->nbytes = (double)low->nbytes; /* equals there, of which the other stayed */
    crossing->us = low->us[to];
    return KOLO_OK;
}

/* Whether a third row is faster where the two of a crossing meet; *middle is that size then. Among
 * many ranks that is not looked for. */
static int find_third(const struct ko_forecast *forecast, const struct ko_crossing *crossing,
                      struct ko_forecast_size *middle, bool *is_there)
{
    double best_us = crossing->us;
    int err = KOLO_OK;

    *middle = (struct ko_forecast_size){.nbytes = (size_t)crossing->nbytes};
    *is_there = false;
    for (int i = 0; i < forecast->nrows && !err && forecast->situation.n <= KO_FORECAST_LARGE;
         i++) {
        err = ko_forecast_predict(forecast, i, middle->nbytes, &middle->us[i],
                                  &middle->is_estimated[i]);
        if (middle->us[i] <= 0 || !ko_choice_is_better(middle->us[i], best_us))
            continue;
        *is_there = i != crossing->from && i != crossing->to;
        middle->fastest = i;
        best_us = middle->us[i];
    }
    return err;
}

/* Between two sizes, of which another row is the fastest. */
static int add_crossings(struct ko_forecast *forecast, const struct ko_forecast_size *low,
                         const struct ko_forecast_size *high, int k)
{
    struct ko_forecast_size middle;
    struct ko_crossing crossing;
    bool has_third = false;
    int err = cross(forecast, low, high, &crossing);

    if (!err && crossing.nbytes > (double)low->nbytes && crossing.nbytes < (double)high->nbytes)
        err = find_third(forecast, &crossing, &middle, &has_third);
    if (!err && has_third) {
        err = add_crossings(forecast, low, &middle, k);
        return err ? err : add_crossings(forecast, &middle, high, k);
    }
    crossing.size = k;
    if (!err && forecast->ncrossings < KO_FORECAST_SIZES)
        forecast->crossings[forecast->ncrossings++] = crossing;
    return err;
}

static int find_crossings(struct ko_forecast *forecast)
{
    int err = KOLO_OK;

    for (int k = 0; k + 1 < forecast->nsizes && !err; k++) {
        const struct ko_forecast_size *size = &forecast->sizes[k];

        if (size[0].fastest >= 0 && size[1].fastest >= 0 && size[0].fastest != size[1].fastest)
            err = add_crossings(forecast, &size[0], &size[1], k);
    }
    return err;
}

/* ---- all --------------------------------------------------------------------------------- */

int ko_forecast_make(struct ko_forecast *forecast, const struct ko_forecast_wish *wish)
{
    struct ko_explain_wish any = wish->call;
    const struct ko_paper_text *text;
    short wanted[KO_NCOLLECTIVES];
    int err;

    any.algorithm = NULL;
    *forecast = (struct ko_forecast){.hosts = NULL};
    err = ko_explain_find(&any, &text);
    if (err)
        return err;
    forecast->what = text->what;
    err = read_all(forecast, wish);
    if (!err)
        err = ko_wishes_read(ko_config_text(KO_CONFIG_ALGO), wanted);
    if (!err)
        err = choose_rows(forecast, &wish->call);
    if (!err)
        choose_sizes(forecast, wish);
    forecast->is_told =
        wish->table && forecast->situation.n > KO_FORECAST_LARGE && forecast->nsizes > 1;
    if (!err)
        err =
            predict_sizes(forecast, wanted[forecast->what], forecast->is_told ? wish->table : NULL);
    return err ? err : find_crossings(forecast);
}

void ko_forecast_close(struct ko_forecast *forecast)
{
    free(forecast->hosts);
    forecast->hosts = NULL;
}

const char *ko_forecast_name(const struct ko_forecast *forecast, int i)
{
    return ko_paper_texts[forecast->rows[i]].name;
}
