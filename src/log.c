/* SPDX-License-Identifier: MIT
 *
 * The level and the file descriptor are the library's only mutable globals beside the store's
 * in-process registry. They are opened once, by whoever logs first.
 */
#include "log.h"

#include "clock.h"
#include "config.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const level_names[] = {"NONE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"};
enum { NLEVELS = sizeof level_names / sizeof *level_names, PROBLEM_CAP = 600 };

static atomic_int level_now = -1; /* -1: not read yet */
static atomic_int output = STDERR_FILENO;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int log_rank = -1;
static _Thread_local bool is_hushed;

/* Copies pattern to path with %h, %p and %r replaced by host, process and rank ("x" if unknown). */
static void expand_path(const char *pattern, char *path, size_t cap)
{
    size_t used = 0;
    const char *rank = getenv("RANK");
    char host[65] = "host";
    char piece[80];

    gethostname(host, sizeof host - 1);
    for (const char *p = pattern; *p && used + 1 < cap; p++) {
        snprintf(piece, sizeof piece, "%c", *p);
        if (p[0] == '%' && p[1]) {
            p++;
            if (*p == 'h')
                snprintf(piece, sizeof piece, "%s", host);
            else if (*p == 'p')
                snprintf(piece, sizeof piece, "%d", (int)getpid());
            else if (*p == 'r' && log_rank >= 0)
                snprintf(piece, sizeof piece, "%d", log_rank);
            else if (*p == 'r')
                snprintf(piece, sizeof piece, "%s", rank ? rank : "x");
            else
                snprintf(piece, sizeof piece, "%c", *p);
        }
        used += (size_t)snprintf(path + used, cap - used, "%s", piece);
    }
}

/* What KOLO_DEBUG says; -1: nothing, and problem says so. */
static int find_level(char problem[PROBLEM_CAP])
{
    const char *text = ko_config_text(KO_CONFIG_DEBUG);

    for (int i = 0; i < NLEVELS; i++)
        if (!strcasecmp(text, level_names[i]))
            return i;
    snprintf(problem, PROBLEM_CAP,
             "KOLO_DEBUG is \"%.100s\"; it takes NONE ERROR WARN INFO DEBUG TRACE", text);
    return -1;
}

/* The file of KOLO_DEBUG_FILE, which is set; -1: it cannot be opened, and problem says why. */
static int open_file(char problem[PROBLEM_CAP])
{
    char path[4096];
    int fd;

    expand_path(ko_config_text(KO_CONFIG_DEBUG_FILE), path, sizeof path);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        snprintf(problem, PROBLEM_CAP, "KOLO_DEBUG_FILE %.400s: %s", path, strerror(errno));
    return fd;
}

static int read_level(void)
{
    char problem[PROBLEM_CAP];
    const int level = find_level(problem);

    if (level >= 0)
        return level;
    dprintf(STDERR_FILENO, "kolo: %s; taking WARN\n", problem);
    return KO_LOG_WARN;
}

static void open_output(void)
{
    char problem[PROBLEM_CAP];
    int fd = STDERR_FILENO;
    int old;

    if (ko_config_is_set(KO_CONFIG_DEBUG_FILE)) {
        fd = open_file(problem);
        if (fd < 0) {
            dprintf(STDERR_FILENO, "kolo: %s; logging to stderr\n", problem);
            fd = STDERR_FILENO;
        }
    }
    old = atomic_exchange(&output, fd);
    if (old != STDERR_FILENO)
        close(old);
}

int ko_log_check_level(void)
{
    char problem[PROBLEM_CAP];

    return find_level(problem) < 0 ? ko_fail(KOLO_E_INVALID, "%s", problem) : KOLO_OK;
}

int ko_log_check_file(void)
{
    char problem[PROBLEM_CAP];
    int fd;

    if (!ko_config_is_set(KO_CONFIG_DEBUG_FILE))
        return KOLO_OK;
    fd = open_file(problem);
    if (fd < 0)
        return ko_fail(KOLO_E_INVALID, "%s", problem);
    close(fd);
    return KOLO_OK;
}

void ko_log_reopen(void)
{
    pthread_mutex_lock(&open_lock);
    open_output();
    atomic_store(&level_now, read_level());
    pthread_mutex_unlock(&open_lock);
}

bool ko_log_wants(enum ko_log_level level)
{
    int now =
        atomic_load_explicit(&level_now, memory_order_relaxed); /* a stale level is harmless */

    if (now < 0) {
        int saved = errno;

        ko_log_reopen();
        errno = saved;
        now = atomic_load(&level_now);
    }
    return level != KO_LOG_NONE && (int)level <= now;
}

void ko_log_set_rank(int rank)
{
    log_rank = rank;
}

void ko_log_hush(bool hush)
{
    is_hushed = hush;
}

void ko_log(enum ko_log_level level, const char *format, ...)
{
    char line[1024];
    char host[65] = "host";
    char rank[24] = "";
    int used;
    int saved = errno;
    va_list arguments;

    if (!ko_log_wants(level) || (is_hushed && level == KO_LOG_INFO))
        return;
    gethostname(host, sizeof host - 1);
    if (log_rank >= 0)
        snprintf(rank, sizeof rank, " [%d]", log_rank);
    used = snprintf(line, sizeof line, "%.6f %s:%d:%ld%s kolo %s ", (double)ko_now_ns() * 1e-9,
                    host, (int)getpid(), syscall(SYS_gettid), rank, level_names[level]);
    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    if (used > (int)sizeof line - 2)
        used = (int)sizeof line - 2;
    line[used] = '\n';
    /* A log that cannot be written must not disturb what it tells of. */
    (void)!write(atomic_load(&output), line, (size_t)used + 1);
    errno = saved;
}
