/* SPDX-License-Identifier: MIT */
#include "folder.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test-train-XXXXXX";

const char *folder_path(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;

    next = (next + 1) % 4;
    snprintf(paths[next], PATH_MAX, "%s/%s", folder, name);
    return paths[next];
}

void folder_write(const char *path, const void *bytes, size_t nbytes)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

size_t folder_read(const char *path, char *text, size_t cap)
{
    FILE *file = fopen(path, "rb");
    size_t nbytes;

    assert_non_null(file);
    nbytes = fread(text, 1, cap - 1, file);
    fclose(file);
    text[nbytes] = '\0';
    return nbytes;
}

/* ---- what was said on stderr ----------------------------------------------------------------- */

static int kept_stderr;

void stderr_listen(void)
{
    int fd = open(folder_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    fflush(stderr);
    kept_stderr = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

/* What has been said, once it is a line or nothing has come for long: another thread may be about
 * to say it. */
static void await_line(char *said, size_t cap)
{
    enum { LONG_MS = 10000 };

    for (int ms = 0; ms < LONG_MS; ms++) {
        folder_read(folder_path("stderr"), said, cap);
        if (strchr(said, '\n'))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void stderr_assert(const char *sentence)
{
    char said[4096];

    fflush(stderr);
    await_line(said, sizeof said);
    dup2(kept_stderr, STDERR_FILENO);
    close(kept_stderr);
    if (!strstr(said, sentence) || !strchr(said, '\n') || strchr(said, '\n')[1] != '\0')
        fail_msg("said \"%s\" instead of one line with \"%s\"", said, sentence);
}

int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

int folder_remove(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
