/* SPDX-License-Identifier: MIT
 *
 * Opened for reading too: a pipe whose reader has just ended would end the rank by SIGPIPE.
 */
#include "launcher_joins.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned long long inode_of(int fd)
{
    struct stat status;

    return fstat(fd, &status) || !S_ISFIFO(status.st_mode) ? 0 : status.st_ino;
}

void ko_joins_path(int pipe_fd, char path[KO_JOINS_PATH])
{
    snprintf(path, KO_JOINS_PATH, "/proc/%d/fd/%d:%llu", (int)getpid(), pipe_fd, inode_of(pipe_fd));
}

/* -1 if there is none. */
static int open_pipe(void)
{
    const char *value = getenv("KOLORUN_JOINS");
    char path[KO_JOINS_PATH];
    unsigned long long inode;
    int fd;

    if (!value || sscanf(value, "%63[^:]:%llu", path, &inode) != 2)
        return -1;
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (!inode || inode_of(fd) != inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

void ko_joins_say(const struct ko_placement *placement, enum ko_join what)
{
    const struct ko_join_word word = {.rank = placement->rank,
                                      .size = placement->size,
                                      .local_rank = placement->local_rank,
                                      .attempt = placement->attempt,
                                      .what = (int32_t)what};
    const bool is_of_kolorun = placement->rank_name && !strcmp(placement->rank_name, "RANK");
    const int error = errno, fd = is_of_kolorun ? open_pipe() : -1;

    if (fd >= 0) {
        (void)!write(fd, &word, sizeof word); /* unless kolorun has long stood still */
        close(fd);
    }
    errno = error;
}
