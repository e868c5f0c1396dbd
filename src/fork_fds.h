/* SPDX-License-Identifier: MIT
 *
 * fork_fds.h: descriptors that are not for children of fork. A peer learns that this process has
 * died by the end of its connections, which do not end while a child has them open: so a child
 * closes them, by the time that fork returns. Any thread.
 */
#ifndef KO_FORK_FDS_H
#define KO_FORK_FDS_H

/* Its owner's, and where it is until it is closed. */
struct ko_fork_fd {
    int fd; /* -1: none; also in a child */
    struct ko_fork_fd *next, **link;
};

/* Takes fd over, which may be -1. */
void ko_fork_fd_keep(struct ko_fork_fd *own, int fd);

/* Also of one that is -1, or zeroed but for that. */
void ko_fork_fd_close(struct ko_fork_fd *own);

#endif
