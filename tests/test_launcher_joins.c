/* SPDX-License-Identifier: MIT
 *
 * What a rank says to kolorun of its joining: into kolorun's pipe, and nowhere else.
 */
#include "launcher_joins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ko_placement placement = {
    .rank_name = "RANK", .rank = 5, .size = 8, .local_rank = 1, .attempt = 2};

static void open_pipe(int fds[2])
{
    char path[KO_JOINS_PATH];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    ko_joins_path(fds[1], path);
    setenv("KOLORUN_JOINS", path, 1);
}

static void close_pipe(const int fds[2])
{
    close(fds[0]);
    close(fds[1]);
    unsetenv("KOLORUN_JOINS");
}

static void assert_nothing_came(int fd)
{
    struct ko_join_word word;

    assert_int_equal(read(fd, &word, sizeof word), -1);
    assert_int_equal(errno, EAGAIN);
}

static void words_arrive_whole(void **state)
{
    struct ko_join_word word;
    int fds[2];

    (void)state;
    open_pipe(fds);
    ko_joins_say(&placement, KO_JOIN_WAITS);
    ko_joins_say(&placement, KO_JOIN_DONE);
    for (int i = 0; i < 2; i++) {
        const struct ko_join_word expected = {5, 8, 1, 2, i ? KO_JOIN_DONE : KO_JOIN_WAITS};

        assert_int_equal(read(fds[0], &word, sizeof word), sizeof word);
        assert_memory_equal(&word, &expected, sizeof word);
    }
    assert_nothing_came(fds[0]);
    close_pipe(fds);
}

/* What another launcher has placed, or nobody. */
static void others_say_nothing(void **state)
{
    struct ko_placement other = placement;
    int fds[2];

    (void)state;
    open_pipe(fds);
    other.rank_name = "KOLO_RANK";
    ko_joins_say(&other, KO_JOIN_WAITS);
    other.rank_name = NULL;
    ko_joins_say(&other, KO_JOIN_WAITS);
    unsetenv("KOLORUN_JOINS");
    ko_joins_say(&placement, KO_JOIN_WAITS);
    assert_nothing_came(fds[0]);
    close_pipe(fds);
}

/* As where /proc is another one: that path may lead to a file of somebody's. */
static void nothing_else_is_written_to(void **state)
{
    char path[KO_JOINS_PATH + 8], file[] = "/tmp/test-joins-XXXXXX";
    int other[2], fds[2], fd = mkstemp(file);

    (void)state;
    assert_true(fd >= 0);
    open_pipe(other);
    open_pipe(fds);
    snprintf(path, sizeof path, "%s", getenv("KOLORUN_JOINS"));
    assert_int_equal(dup2(other[1], fds[1]), fds[1]); /* another pipe of that number */
    ko_joins_say(&placement, KO_JOIN_WAITS);
    assert_nothing_came(other[0]);
    assert_int_equal(dup2(fd, fds[1]), fds[1]);
    ko_joins_say(&placement, KO_JOIN_WAITS);
    snprintf(strchr(path, ':'), 3, ":0"); /* what no pipe has */
    setenv("KOLORUN_JOINS", path, 1);
    ko_joins_say(&placement, KO_JOIN_WAITS);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    for (const char *const *value = (const char *const[]){"x", ":1", "/nowhere:1", NULL}; *value;
         value++) {
        setenv("KOLORUN_JOINS", *value, 1);
        ko_joins_say(&placement, KO_JOIN_WAITS);
    }
    close(fd);
    unlink(file);
    close_pipe(other);
    close_pipe(fds);
}

/* A kolorun that stands still keeps nobody, and its end kills nobody. */
static void nobody_waits_for_kolorun(void **state)
{
    int fds[2];

    (void)state;
    open_pipe(fds);
    while (write(fds[1], &placement, 1) == 1)
        continue;
    errno = ENOENT;
    ko_joins_say(&placement, KO_JOIN_WAITS);
    assert_int_equal(errno, ENOENT);
    close_pipe(fds);

    open_pipe(fds);
    close(fds[0]);
    ko_joins_say(&placement, KO_JOIN_WAITS); /* no SIGPIPE */
    close(fds[1]);
    unsetenv("KOLORUN_JOINS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_arrive_whole), cmocka_unit_test(others_say_nothing),
        cmocka_unit_test(nothing_else_is_written_to), cmocka_unit_test(nobody_waits_for_kolorun)};

    return cmocka_run_group_tests_name("launcher joins", tests, NULL, NULL);
}
