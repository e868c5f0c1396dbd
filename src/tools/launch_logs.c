/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include "json_read.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a message; LINES of at most LINE_MOST characters are less than KO_ERROR_CAP. */
enum { LINES = 10, LINE_MOST = 400 };

/* Bytes of an error file that is read. */
enum { ERROR_MOST = 16 << 20 };

/* ---- folders ----------------------------------------------------------------------------- */

/* Makes a folder and those above it. */
static int make_folders(const char *path)
{
    char copy[PATH_MAX];

    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(copy, 0777) && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return mkdir(copy, 0777) && errno != EEXIST ? -1 : 0;
}

const char *ko_logs_place(const char *dir)
{
    const char *temporary = getenv("TMPDIR");

    return dir ? dir : temporary && *temporary ? temporary : "/tmp";
}

/* Ranks may have gone elsewhere when they look for it. */
static void make_absolute(char *folder, size_t cap)
{
    char *path = realpath(folder, NULL);
    const size_t nbytes = path ? strlen(path) + 1 : 0;

    if (path && nbytes <= cap)
        memcpy(folder, path, nbytes);
    free(path);
}

int ko_logs_open(struct ko_logs *logs, const char *dir, const char *run_id, bool is_kept)
{
    char name[64];

    logs->is_kept = is_kept;
    dir = ko_logs_place(dir);
    snprintf(name, sizeof name, "%.40s", run_id);
    for (char *c = name; *c; c++)
        if (*c == '/')
            *c = '_';
    if (snprintf(logs->folder, sizeof logs->folder, "%s/kolorun_%s_XXXXXX", dir, name) >=
        (int)sizeof logs->folder) {
        errno = ENAMETOOLONG;
    } else if ((!is_kept || !make_folders(dir)) && mkdtemp(logs->folder)) {
        make_absolute(logs->folder, sizeof logs->folder);
        return 0;
    }
    logs->folder[0] = 0;
    return is_kept ? -1 : 0;
}

int ko_logs_begin(struct ko_logs *logs, int attempt, int nprocs)
{
    char path[PATH_MAX];

    for (int rank = 0; logs->folder[0] && rank < nprocs; rank++) {
        snprintf(path, sizeof path, "%s/attempt_%d/%d", logs->folder, attempt, rank);
        if (!make_folders(path))
            continue;
        if (logs->is_kept)
            return -1;
        ko_logs_close(logs);
    }
    return 0;
}

void ko_logs_path(const struct ko_logs *logs, int attempt, int local_rank, const char *name,
                  char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/attempt_%d/%d/%s", logs->folder, attempt, local_rank, name);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    remove(path);
    return 0;
}

void ko_logs_close(struct ko_logs *logs)
{
    if (logs->folder[0] && !logs->is_kept)
        nftw(logs->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    logs->folder[0] = 0;
}

/* ---- errors ------------------------------------------------------------------------------ */

/* {"message": {"message": TEXT}}, or {"message": TEXT}. */
static const char *find_message(const struct ko_json *document)
{
    const struct ko_json *message = ko_json_member(document, "message");
    const char *text = ko_json_text(message);

    return text ? text : ko_json_text(ko_json_member(message, "message"));
}

static size_t line_length(const char *line)
{
    return strcspn(line, "\r\n");
}

static const char *skip_ends(const char *line)
{
    return line + strspn(line, "\r\n");
}

/* Behind others, without control characters. */
static void add_line(char text[KO_ERROR_CAP], const char *line, size_t length)
{
    const size_t used = strlen(text);

    if (length > LINE_MOST)
        length = LINE_MOST;
    snprintf(text + used, KO_ERROR_CAP - used, "%s%.*s", used ? "\n" : "", (int)length, line);
    for (char *c = text + used + (used > 0); *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = *c == '\t' ? ' ' : '?';
}

/* What went wrong stands in the first line of some, and in the last of a traceback. */
static void add_lines(char text[KO_ERROR_CAP], const char *message)
{
    int n = 0, i = 0;

    message = skip_ends(message);
    for (const char *line = message; *line; line = skip_ends(line + line_length(line)))
        n++;
    for (; *message; message = skip_ends(message + line_length(message)), i++)
        if (n <= LINES || i == 0 || i > n - LINES + 1)
            add_line(text, message, line_length(message));
        else if (i == 1)
            add_line(text, "...", 3);
}

/* What a rank has put there may be a pipe, which would keep us for ever, or without an end. */
static bool is_short_file(const char *path)
{
    struct stat status;

    return !stat(path, &status) && S_ISREG(status.st_mode) && status.st_size <= ERROR_MOST;
}

void ko_logs_error(const struct ko_logs *logs, int attempt, int local_rank, char text[KO_ERROR_CAP])
{
    char path[PATH_MAX];
    struct ko_json *document = NULL;
    const char *message;

    text[0] = 0;
    ko_logs_path(logs, attempt, local_rank, "error.json", path);
    if (!logs->folder[0] || !is_short_file(path) || access(path, R_OK) ||
        ko_json_read(path, &document))
        return;
    message = find_message(document);
    if (message)
        add_lines(text, message);
    ko_json_free(document);
}

/* ---- which streams ----------------------------------------------------------------------- */

int ko_logs_mask(const char *text, int local_rank)
{
    int mask = 0;

    if (!text)
        return 0;
    if (strlen(text) == 1)
        return *text >= '0' && *text <= '3' ? *text - '0' : -1;
    for (;;) {
        char *end;
        long rank = strtol(text, &end, 10);

        if (end == text || rank < 0 || end[0] != ':' || end[1] < '0' || end[1] > '3' ||
            (end[2] && end[2] != ','))
            return -1;
        if (rank == local_rank)
            mask = end[1] - '0';
        if (!end[2])
            return mask;
        text = end + 3;
    }
}

int ko_logs_lists(const char *text, int local_rank)
{
    int lists = 0;

    for (;; text++) {
        char *end;
        long rank = strtol(text, &end, 10);

        if (end == text || rank < 0 || (*end && *end != ','))
            return -1;
        lists |= rank == local_rank;
        text = end;
        if (!*text)
            return lists;
    }
}

/* ---- as the command line asks ------------------------------------------------------------ */

static bool wants_logs(const struct ko_launch_options *options)
{
    int mask = 0;

    for (int i = 0; i < options->nprocs; i++)
        mask |= ko_logs_mask(options->redirects, i) | ko_logs_mask(options->tees, i);
    return options->log_dir || mask;
}

int ko_logs_open_as_asked(struct ko_logs *logs, const struct ko_launch_options *options,
                          struct ko_sink *sink)
{
    const bool is_kept = wants_logs(options);

    if (ko_logs_open(logs, options->log_dir, options->run_id, is_kept)) {
        fprintf(stderr,
                "kolorun: no folder for logs can be made below %s: %s; --log-dir says where\n",
                ko_logs_place(options->log_dir), strerror(errno));
        return -1;
    }
    if (is_kept && !options->quiet)
        ko_sink_print(sink, "kolorun: logs are in %s", logs->folder);
    return 0;
}
