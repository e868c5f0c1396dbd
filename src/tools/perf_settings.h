/* SPDX-License-Identifier: MIT
 *
 * perf_settings.h: what a run was like, beside its rows. Where two runs differ in it, their times
 * say little of each other.
 */
#ifndef KO_PERF_SETTINGS_H
#define KO_PERF_SETTINGS_H

#include <stdio.h>

struct ko_json;
struct ko_perf_options;

enum ko_perf_setting {
    KO_PERF_SET_HOST,
    KO_PERF_SET_CORES, /* that rank 0 could use, before it was pinned; 0: not known */
    KO_PERF_SET_PINNED,
    KO_PERF_SET_TOGETHER,
    KO_PERF_SET_BLOCKING,
    KO_PERF_SET_EACH_TIMED,
    KO_PERF_SET_AVERAGE,
    KO_PERF_SET_DIRTY,
    KO_PERF_SET_UNALIGN,
    KO_PERF_SET_TENSORS,
    KO_PERF_SET_MEMORY,
    KO_PERF_SET_DEVICE,
    KO_PERF_SET_GRAPH,
    KO_PERF_NSETTINGS
};

struct ko_perf_settings {
    char text[KO_PERF_NSETTINGS][72]; /* "": an older file does not say */
};

/* Of this run, before its ranks are pinned. */
void ko_perf_settings_take(struct ko_perf_settings *s, const struct ko_perf_options *options);
/* As members of an object that has others before and behind; out of it, as far as they are there.
 */
void ko_perf_settings_print(FILE *file, const struct ko_perf_settings *s);
void ko_perf_settings_read(const struct ko_json *document, struct ko_perf_settings *s);
/* A line for each that differs. */
void ko_perf_settings_compare(FILE *file, const struct ko_perf_settings *base,
                              const struct ko_perf_settings *now);

#endif
