/* SPDX-License-Identifier: MIT
 *
 * The job's token lies in memory, under a descriptor of kolorun's that ranks do not inherit: they
 * open it by its path below /proc, which the system allows processes of the same user only, unless
 * they are in a user namespace of their own (rootless containers), who need a file instead. So it
 * stands in no environment, command line or folder, needs no descriptor to survive the programs
 * between kolorun and a rank, and is gone when kolorun is, however it ends.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM_BYTES = 32 };

/* What ranks will find in a variable; "" if it has no value. */
static const char *value_of(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

/* A token, or the word that none is needed; any other word asks for one, as the default does. */
static bool is_given(void)
{
    return !strcmp(value_of("KOLO_AUTH"), "none") || *value_of("KOLO_AUTH_TOKEN") ||
           *value_of("KOLO_AUTH_TOKEN_FILE");
}

/* By its spelling: many systems have a loopback address for their own name. */
static bool is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

/* In hexadecimal digits: spaces around a token do not belong to it. */
static int write_token(int fd, mode_t mode)
{
    unsigned char bytes[RANDOM_BYTES];
    char text[2 * RANDOM_BYTES + 2];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -1;
    for (int i = 0; i < RANDOM_BYTES; i++)
        snprintf(text + 2 * (size_t)i, 4, "%02x\n", bytes[i]);
    return fchmod(fd, mode) || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1;
}

int ko_token_hold(const struct ko_launch_options *options, struct ko_token *token)
{
    *token = (struct ko_token){.fd = -1};
    if (options->nnodes > 1 || is_given())
        return 0;
    token->fd = memfd_create("kolo-token", MFD_CLOEXEC);
    if (token->fd < 0 || write_token(token->fd, S_IRUSR))
        return -1;
    snprintf(token->path, sizeof token->path, "/proc/%d/fd/%d", (int)getpid(), token->fd);
    return 0;
}

static int fail_to_make(const char *path)
{
    fprintf(stderr, "kolorun: --make-token %s: %s\n", path,
            errno == EEXIST ? "it is there already, and stays as it is" : strerror(errno));
    return KO_EXIT_SELF;
}

/* What others could read at any moment is no token. */
int ko_token_make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR), code = 0;
    const bool is_written = fd >= 0 && !write_token(fd, S_IRUSR | S_IWUSR);

    if (!is_written)
        code = fail_to_make(path);
    if (fd >= 0 && close(fd) && is_written)
        code = fail_to_make(path);
    if (fd >= 0 && code)
        unlink(path);
    return code;
}

int ko_token_check(const struct ko_launch_options *options)
{
    if (options->nnodes == 1 || is_loopback(options->master_addr) || is_given())
        return 0;
    fprintf(stderr, "kolorun: ranks on other machines need the job's token: set "
                    "KOLO_AUTH_TOKEN_FILE to a file that holds the same on all of them (kolorun "
                    "--make-token FILE makes one), or KOLO_AUTH=none to trust the network\n");
    return -1;
}
