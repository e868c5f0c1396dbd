/* SPDX-License-Identifier: MIT
 *
 * launch_logs.h: the files of a job, one folder for each attempt and rank of this machine:
 * FOLDER/attempt_0/3/stdout.log, stderr.log and error.json, as torchrun lays them out. error.json
 * is what a rank may write before it ends, TORCHELASTIC_ERROR_FILE. One thread.
 */
#ifndef KO_LAUNCH_LOGS_H
#define KO_LAUNCH_LOGS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum { KO_ERROR_CAP = 4096 };

struct ko_logs {
    char folder[PATH_MAX / 2]; /* from the root on; "": there is none, and no file either */
    bool is_kept;              /* asked for; else it goes with the job */
};

/* dir, or where folders go without one: TMPDIR, else /tmp. */
const char *ko_logs_place(const char *dir);

/* Makes the job's folder, kolorun_RUN_ID_XXXXXX below ko_logs_place(dir). Without is_kept a folder
 * that cannot be made is left out; else -1 with errno. */
int ko_logs_open(struct ko_logs *logs, const char *dir, const char *run_id, bool is_kept);

/* Makes the folders of an attempt. -1 with errno. */
int ko_logs_begin(struct ko_logs *logs, int attempt, int nprocs);

/* FOLDER/attempt_A/R/NAME */
void ko_logs_path(const struct ko_logs *logs, int attempt, int local_rank, const char *name,
                  char path[PATH_MAX]);

/* The message of a rank's error.json, without control characters but for newlines between its
 * lines; of many lines the first and the last. "" if there is none. */
void ko_logs_error(const struct ko_logs *logs, int attempt, int local_rank,
                   char text[KO_ERROR_CAP]);

/* Removes what is not kept. */
void ko_logs_close(struct ko_logs *logs);

/* What -r and -t take for local_rank: 0 nothing, 1 stdout, 2 stderr, 3 both; text is one number for
 * all ranks or a list like 0:1,3:2, NULL is nothing. -1: text is neither. */
int ko_logs_mask(const char *text, int local_rank);

/* Whether a list of ranks like 0,3 has local_rank: 1 or 0, -1: text is no such list. */
int ko_logs_lists(const char *text, int local_rank);

#endif
