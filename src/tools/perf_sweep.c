/* SPDX-License-Identifier: MIT
 *
 * The loops around a measurement, the same on every rank: cycles, cases, dtypes, ops, roots, sizes.
 */
#include "perf.h"

#include "dtype.h"
#include "perf_case.h"
#include "perf_data.h"
#include "perf_device.h"
#include "reduce.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the report -------------------------------------------------------------------------- */

const char *ko_perf_form_name(int form)
{
    return form == KO_PERF_IN_PLACE ? "in_place" : "out_of_place";
}

int ko_perf_report_add(struct ko_perf_report *report, const struct ko_perf_row *row)
{
    if (report->nrows == report->cap) {
        size_t cap = report->cap ? 2 * report->cap : 64;
        struct ko_perf_row *grown = realloc(report->rows, cap * sizeof *grown);

        if (!grown)
            return KOLO_E_NOMEM;
        report->rows = grown;
        report->cap = cap;
    }
    report->rows[report->nrows++] = *row;
    return KOLO_OK;
}

int64_t ko_perf_report_wrong(const struct ko_perf_report *report, size_t from)
{
    int64_t wrong = 0;

    for (size_t i = from; i < report->nrows; i++)
        for (int form = 0; form < KO_PERF_NFORMS; form++)
            if (report->rows[i].forms[form].nwrong > 0)
                wrong += report->rows[i].forms[form].nwrong;
    return wrong;
}

double ko_perf_report_busbw(const struct ko_perf_report *report, size_t from)
{
    double sum = 0;
    int count = 0;

    for (size_t i = from; i < report->nrows; i++)
        for (int form = 0; form < KO_PERF_NFORMS; form++)
            if (report->rows[i].forms[form].is_measured) {
                sum += report->rows[i].forms[form].busbw;
                count++;
            }
    return count ? sum / count : 0;
}

void ko_perf_report_free(struct ko_perf_report *report)
{
    for (size_t i = 0; i < report->nrows; i++)
        for (int form = 0; form < KO_PERF_NFORMS; form++)
            free(report->rows[i].forms[form].samples);
    free(report->rows);
    *report = (struct ko_perf_report){0};
}

/* ---- the loops --------------------------------------------------------------------------- */

static void name_row(struct ko_perf_row *named, const struct ko_perf_case *row,
                     const struct ko_perf_call *call)
{
    bool reduces = row->flags & KO_PERF_REDUCES;

    *named = (struct ko_perf_row){.count = call->count, .root = call->root};
    named->nbytes = ko_perf_case_bytes(row, call->count, call->dtype, call->nranks);
    snprintf(named->collective, sizeof named->collective, "%s", row->name);
    snprintf(named->type, sizeof named->type, "%s", kolo_dtype_name(call->dtype));
    snprintf(named->op, sizeof named->op, "%s", reduces ? ko_perf_op_name(call->named_op) : "none");
}

/* On rank 0 the row is printed and kept; elsewhere it has no samples. */
static int sweep_row(struct ko_perf_rank *rank, const struct ko_perf_case *row,
                     struct ko_perf_call *call)
{
    static const unsigned missing[] = {KO_PERF_NO_OUT, KO_PERF_NO_IN};
    struct ko_perf_row named;
    int err = KOLO_OK;

    name_row(&named, row, call);
    for (int form = 0; form < KO_PERF_NFORMS && !err; form++) {
        named.forms[form].nwrong = -1;
        if (row->flags & missing[form])
            continue;
        err = ko_perf_measure(rank, row, form, call, &named.forms[form]);
        if (named.forms[form].nwrong > 0)
            rank->nwrong += named.forms[form].nwrong;
    }
    if (err || call->rank != 0) {
        for (int form = 0; form < KO_PERF_NFORMS && call->rank == 0; form++)
            free(named.forms[form].is_measured ? named.forms[form].samples : NULL);
        return err;
    }
    ko_perf_print_row(stdout, rank->options, &named);
    return ko_perf_report_add(rank->report, &named);
}

/* Sizes are cut to whole elements: those that become the same are one row. */
static int sweep_sizes(struct ko_perf_rank *rank, const struct ko_perf_case *row,
                       struct ko_perf_call *call)
{
    const struct ko_perf_options *options = rank->options;
    size_t last = SIZE_MAX;
    int err = KOLO_OK;

    for (size_t nbytes = options->min_bytes; nbytes <= options->max_bytes && !err;
         nbytes = ko_perf_next_size(options, nbytes)) {
        call->count = ko_perf_case_count(row, nbytes, call->dtype, call->nranks);
        if (call->count != last)
            err = sweep_row(rank, row, call);
        last = call->count;
        if (row->flags & KO_PERF_IS_EMPTY)
            break;
    }
    return err;
}

static int sweep_roots(struct ko_perf_rank *rank, const struct ko_perf_case *row,
                       struct ko_perf_call *call)
{
    const int wanted = rank->options->root;
    int err = KOLO_OK;

    if (!(row->flags & KO_PERF_HAS_ROOT)) {
        call->root = -1;
        return sweep_sizes(rank, row, call);
    }
    for (int root = 0; root < call->nranks && !err; root++) {
        call->root = root;
        if (wanted == KO_PERF_ALL || wanted == root)
            err = sweep_sizes(rank, row, call);
    }
    return err;
}

/* Not every type has every op; a case that reduces nothing has none. */
static bool is_wanted(const struct ko_perf_options *options, const struct ko_perf_case *row,
                      kolo_dtype dtype, int op)
{
    const kolo_op joins = op == KO_PERF_MULSUM ? KOLO_SUM : (kolo_op)op;
    struct ko_reduction unused;

    if (options->dtype != KO_PERF_ALL && options->dtype != (int)dtype)
        return false;
    if (!(row->flags & KO_PERF_REDUCES))
        return op == KOLO_SUM;
    return options->op == KO_PERF_ALL ? !ko_reduction_find(dtype, joins, &unused)
                                      : options->op == op;
}

/* As kolo knows it, for this rank's calls; free_op has it back. */
static int make_op(struct ko_perf_call *call, int op)
{
    call->named_op = op;
    call->op = (kolo_op)op;
    return op == KO_PERF_MULSUM
               ? kolo_op_premul_sum(call->group, ko_perf_factor(call->rank), &call->op)
               : KOLO_OK;
}

static void free_op(const struct ko_perf_call *call)
{
    if (call->named_op == KO_PERF_MULSUM)
        (void)kolo_op_free(call->group, call->op);
}

static int sweep_op(struct ko_perf_rank *rank, const struct ko_perf_case *row,
                    struct ko_perf_call *call, int op)
{
    int err = make_op(call, op);

    if (err)
        return err;
    err = sweep_roots(rank, row, call);
    free_op(call);
    return err;
}

static int sweep_case(struct ko_perf_rank *rank, const struct ko_perf_case *row)
{
    struct ko_perf_call call;
    int err = ko_perf_call_open(&call, rank->group, row, rank->options->tensors);

    if (err)
        return err;
    for (int dtype = 0; dtype < KOLO_NDTYPES && !err; dtype++)
        for (int op = 0; op < KO_PERF_NOPS && !err; op++) {
            call.dtype = (kolo_dtype)dtype;
            if (is_wanted(rank->options, row, call.dtype, op))
                err = sweep_op(rank, row, &call, op);
        }
    ko_perf_call_close(&call);
    return err;
}

/* ---- rank 0's account -------------------------------------------------------------------- */

/* What every rank tells of itself. */
struct seat {
    char host[64], device[128];
    int32_t pid;
};

static int print_seats(const struct ko_perf_rank *rank)
{
    int n = kolo_group_size(rank->group), err;
    struct seat *seats = calloc((size_t)n, sizeof *seats);
    struct seat mine = {.device = " 0 [host memory]", .pid = getpid()};

    if (!seats)
        return KOLO_E_NOMEM;
    gethostname(mine.host, sizeof mine.host - 1);
    err =
        rank->device ? ko_perf_device_name(rank->device, mine.device, sizeof mine.device) : KOLO_OK;
    if (!err)
        err = kolo_all_gather(rank->group, &mine, seats, sizeof mine, KOLO_UINT8);
    for (int r = 0; r < n && !err && rank->report; r++)
        printf("#  Rank %2d Group  0 Pid %6d on %10s device %s\n", r, seats[r].pid, seats[r].host,
               seats[r].device);
    free(seats);
    return err;
}

/* One table, as one program of nccl-tests prints it. */
static int sweep_table(struct ko_perf_rank *rank, const struct ko_perf_case *row)
{
    size_t from = rank->report ? rank->report->nrows : 0;
    int err;

    if (rank->report)
        ko_perf_print_start(stdout, rank->options, row);
    err = print_seats(rank);
    if (!err && rank->report)
        ko_perf_print_head(stdout, rank->options);
    if (!err)
        err = sweep_case(rank, row);
    if (!err && rank->report)
        ko_perf_print_end(stdout, rank->report, from, row->name);
    return err;
}

int ko_perf_sweep(struct ko_perf_rank *rank)
{
    int ncases, err = KOLO_OK;
    const struct ko_perf_case *cases = ko_perf_cases(&ncases);

    for (int cycle = 0; cycle < rank->options->cycles && !err; cycle++)
        for (int i = 0; i < ncases && !err; i++)
            if (rank->options->cases & 1U << i)
                err = sweep_table(rank, &cases[i]);
    return err;
}
