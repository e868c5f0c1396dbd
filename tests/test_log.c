/* SPDX-License-Identifier: MIT
 *
 * Log lines: levels, their form, where they go, and that they disturb nothing.
 */
#include "log.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/test-log-XXXXXX";
static char path[128];
static char content[1 << 16];

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

/* Logs from now on go to the file called name in the directory. */
static void log_to(const char *level, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    setenv("KOLO_DEBUG", level, 1);
    setenv("KOLO_DEBUG_FILE", path, 1);
    ko_log_reopen();
}

/* The end of that: what the file called name holds. */
static const char *logged(const char *name)
{
    ssize_t n;
    int fd;

    setenv("KOLO_DEBUG", "NONE", 1);
    unsetenv("KOLO_DEBUG_FILE");
    ko_log_reopen();
    snprintf(path, sizeof path, "%s/%s", directory, name);
    fd = open(path, O_RDONLY);
    if (fd < 0)
        return "no file";
    n = read(fd, content, sizeof content - 1);
    close(fd);
    unlink(path);
    content[n < 0 ? 0 : n] = '\0';
    return content;
}

static void levels_select(void **state)
{
    static const char *const names[] = {"NONE", "ERROR", "WARN", "INFO", "DEBUG", "trace"};
    const char *text;
    int nlines;

    (void)state;
    for (int level = KO_LOG_NONE; level <= KO_LOG_TRACE; level++) {
        log_to(names[level], "log");
        for (int l = KO_LOG_ERROR; l <= KO_LOG_TRACE; l++) {
            assert_int_equal(ko_log_wants((enum ko_log_level)l), l <= level);
            ko_log((enum ko_log_level)l, "line");
        }
        assert_false(ko_log_wants(KO_LOG_NONE));
        text = logged("log");
        for (nlines = 0; (text = strchr(text, '\n')); text++)
            nlines++;
        assert_int_equal(nlines, level);
    }
}

static void lines_have_a_form(void **state)
{
    char host[65] = "", read_host[65], level[16], rank[16], text[64];
    double seconds;
    int pid, end = 0;
    long tid;

    (void)state;
    gethostname(host, sizeof host - 1);
    log_to("INFO", "log");
    ko_log_set_rank(7);
    ko_log(KO_LOG_INFO, "ring of %d", 4);
    ko_log_set_rank(-1);
    ko_log(KO_LOG_ERROR, "no rank");
    assert_int_equal(sscanf(logged("log"), "%lf %64[^:]:%d:%ld %15s kolo %15s %63[^\n]%n", &seconds,
                            read_host, &pid, &tid, rank, level, text, &end),
                     7);
    assert_true(seconds > 0 && tid > 0);
    assert_string_equal(read_host, host);
    assert_int_equal(pid, getpid());
    assert_string_equal(rank, "[7]");
    assert_string_equal(level, "INFO");
    assert_string_equal(text, "ring of 4");
    assert_null(strchr(content + end, '['));
    assert_non_null(strstr(content + end, " kolo ERROR no rank\n"));
}

static void errno_survives(void **state)
{
    (void)state;
    log_to("INFO", "log");
    errno = E2BIG;
    ko_log(KO_LOG_INFO, "line");
    ko_log(KO_LOG_TRACE, "not logged");
    assert_int_equal(errno, E2BIG);
    logged("log");
}

static void long_lines_are_cut_and_end(void **state)
{
    char text[5000];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_to("INFO", "log");
    ko_log(KO_LOG_INFO, "%s", text);
    ko_log(KO_LOG_INFO, "next");
    logged("log");
    assert_true(strcspn(content, "\n") > 900 && strcspn(content, "\n") < 1024);
    assert_non_null(strstr(content, "xxx\n"));
    assert_non_null(strstr(content, "INFO next\n"));
}

static void file_names_are_expanded(void **state)
{
    char host[65] = "", name[128];

    (void)state;
    gethostname(host, sizeof host - 1);
    unsetenv("RANK");
    log_to("INFO", "%h-%p-%r-%%-%z-%");
    ko_log(KO_LOG_INFO, "expanded");
    snprintf(name, sizeof name, "%s-%d-x-%%-z-%%", host, (int)getpid());
    assert_non_null(strstr(logged(name), "expanded"));

    setenv("RANK", "5", 1);
    log_to("INFO", "%r");
    ko_log(KO_LOG_INFO, "expanded");
    assert_non_null(strstr(logged("5"), "expanded"));

    ko_log_set_rank(6);
    log_to("INFO", "%r");
    ko_log(KO_LOG_INFO, "expanded");
    assert_non_null(strstr(logged("6"), "expanded"));
    ko_log_set_rank(-1);
    unsetenv("RANK");
}

/* Runs body with standard error in a file; returns what it wrote. */
static const char *stderr_of(void (*body)(void))
{
    int saved = dup(STDERR_FILENO);
    int fd;

    snprintf(path, sizeof path, "%s/stderr", directory);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
    body();
    dup2(saved, STDERR_FILENO);
    close(saved);
    return logged("stderr");
}

static void log_to_nowhere(void)
{
    log_to("INFO", "no/such/directory");
    ko_log(KO_LOG_INFO, "to stderr then");
}

static void log_at_no_level(void)
{
    setenv("KOLO_DEBUG", "LOUD", 1);
    ko_log_reopen();
    ko_log(KO_LOG_WARN, "a warning");
    ko_log(KO_LOG_INFO, "an info");
}

static void mistakes_are_told_on_stderr(void **state)
{
    const char *text;

    (void)state;
    text = stderr_of(log_to_nowhere);
    assert_non_null(
        strstr(text, "no/such/directory: No such file or directory; logging to stderr"));
    assert_non_null(strstr(text, "INFO to stderr then\n"));
    text = stderr_of(log_at_no_level);
    assert_non_null(strstr(text, "KOLO_DEBUG is \"LOUD\"; it takes NONE ERROR WARN"));
    assert_non_null(strstr(text, "WARN a warning"));
    assert_null(strstr(text, "an info"));
}

static void mistakes_can_be_asked_for(void **state)
{
    (void)state;
    setenv("KOLO_DEBUG", "LOUD", 1);
    assert_int_equal(ko_log_check_level(), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(),
                        "KOLO_DEBUG is \"LOUD\"; it takes NONE ERROR WARN INFO DEBUG TRACE");
    setenv("KOLO_DEBUG", "warn", 1);
    assert_int_equal(ko_log_check_level(), KOLO_OK);
    setenv("KOLO_DEBUG_FILE", "/no/such/file", 1);
    assert_int_equal(ko_log_check_file(), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(),
                        "KOLO_DEBUG_FILE /no/such/file: No such file or directory");
    setenv("KOLO_DEBUG_FILE", "/dev/null", 1);
    assert_int_equal(ko_log_check_file(), KOLO_OK);
    unsetenv("KOLO_DEBUG_FILE");
    assert_int_equal(ko_log_check_file(), KOLO_OK);
}

/* A log that nobody reads any more is no reason to fail. */
static void a_full_disk_disturbs_nothing(void **state)
{
    (void)state;
    setenv("KOLO_DEBUG", "INFO", 1);
    setenv("KOLO_DEBUG_FILE", "/dev/full", 1);
    ko_log_reopen();
    errno = 0;
    ko_log(KO_LOG_INFO, "line");
    assert_int_equal(errno, 0);
    logged("none");
}

enum { NTHREADS = 4, NLINES = 100 };

static void *log_some(void *argument)
{
    ko_log_set_rank((int)(size_t)argument);
    for (int i = 0; i < NLINES; i++)
        ko_log(KO_LOG_INFO, "line of a thread");
    return NULL;
}

static void threads_do_not_mix_lines(void **state)
{
    pthread_t threads[NTHREADS];
    int nlines = 0;

    (void)state;
    log_to("INFO", "log");
    for (size_t t = 0; t < NTHREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, log_some, (void *)t), 0);
    for (size_t t = 0; t < NTHREADS; t++)
        pthread_join(threads[t], NULL);
    for (const char *line = logged("log"); *line; line = strchr(line, '\n') + 1) {
        assert_memory_equal(strchr(line, '\n') - 16, "line of a thread", 16);
        nlines++;
    }
    assert_int_equal(nlines, NTHREADS * NLINES);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_select),
        cmocka_unit_test(lines_have_a_form),
        cmocka_unit_test(errno_survives),
        cmocka_unit_test(long_lines_are_cut_and_end),
        cmocka_unit_test(file_names_are_expanded),
        cmocka_unit_test(mistakes_are_told_on_stderr),
        cmocka_unit_test(mistakes_can_be_asked_for),
        cmocka_unit_test(a_full_disk_disturbs_nothing),
        cmocka_unit_test(threads_do_not_mix_lines),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
