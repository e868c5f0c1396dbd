/* SPDX-License-Identifier: MIT */
#include "secret_token.h"

#include "config.h"
#include "status.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest token, and spaces around it. */
enum { FILE_BYTES = KO_TOKEN_MOST + 256 };

/* True if a variable that takes "token" or "none" says none. */
static int read_choice(enum ko_config_id id, bool *is_none)
{
    const char *word;
    int err = ko_config_word(id, &word);

    if (!err)
        *is_none = !strcmp(word, "none");
    return err;
}

/* A token is what stands between spaces, and the newline at a file's end. */
static int make_secret(enum ko_config_id id, const char *text, size_t nbytes,
                       struct ko_secret *secret)
{
    char why[KO_ERROR_TEXT];
    int err;

    while (nbytes && isspace((unsigned char)text[nbytes - 1]))
        nbytes--;
    for (; nbytes && isspace((unsigned char)*text); nbytes--)
        text++;
    err = ko_secret_make(text, nbytes, secret);
    if (!err)
        return KOLO_OK;
    snprintf(why, sizeof why, "%s", kolo_last_error());
    return ko_fail(err, "%s: %s", ko_config_table[id].name, why);
}

static int check_private(const char *path, int fd)
{
    struct stat status;

    if (fstat(fd, &status))
        return ko_fail_errno(errno, "KOLO_AUTH_TOKEN_FILE: looking at %s", path);
    if (!S_ISREG(status.st_mode))
        return ko_fail(KOLO_E_INVALID, "KOLO_AUTH_TOKEN_FILE: %s is not an ordinary file", path);
    if (status.st_uid != geteuid() || status.st_mode & (S_IRWXG | S_IRWXO))
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_AUTH_TOKEN_FILE: %s belongs to user %u with mode %03o; a token is for "
                       "its owner, user %u, alone: chmod 600, and a new token if others have read "
                       "it",
                       path, (unsigned)status.st_uid, (unsigned)status.st_mode & 0777,
                       (unsigned)geteuid());
    return KOLO_OK;
}

/* The whole file, at most FILE_BYTES of it. */
static int read_all(const char *path, int fd, char *text, size_t *nbytes)
{
    ssize_t n;

    *nbytes = 0;
    do {
        n = read(fd, text + *nbytes, FILE_BYTES - *nbytes);
        if (n < 0 && errno != EINTR)
            return ko_fail_errno(errno, "KOLO_AUTH_TOKEN_FILE: reading %s", path);
        *nbytes += n > 0 ? (size_t)n : 0;
    } while (n && *nbytes < FILE_BYTES);
    return KOLO_OK;
}

/* kolorun's file lies below /proc, where a process's descriptors are there for those of its own
 * user namespace alone, and its number for those of its own process namespace. */
static int fail_to_open(const char *path, int error)
{
    const bool is_hidden = error == EACCES || error == EPERM || error == ENOENT;

    if (!is_hidden || strncmp(path, "/proc/", 6) != 0)
        return ko_fail_errno(error, "KOLO_AUTH_TOKEN_FILE: opening %s", path);
    return ko_fail_errno(error,
                         "KOLO_AUTH_TOKEN_FILE is kolorun's, which has ended, or this rank runs in "
                         "a namespace of its own, as in a container, where it cannot be read: give "
                         "kolorun -x KOLO_AUTH_TOKEN_FILE=FILE, with a file of your own that all "
                         "ranks can read; opening %s",
                         path);
}

static int read_file(const char *path, struct ko_secret *secret)
{
    char text[FILE_BYTES];
    size_t nbytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int err;

    if (fd < 0)
        return fail_to_open(path, errno);
    err = check_private(path, fd);
    if (!err)
        err = read_all(path, fd, text, &nbytes);
    if (!err)
        err = make_secret(KO_CONFIG_AUTH_TOKEN_FILE, text, nbytes, secret);
    sodium_memzero(text, sizeof text);
    close(fd);
    return err;
}

static int read_secret(struct ko_guard *guard)
{
    const char *token = ko_config_text(KO_CONFIG_AUTH_TOKEN);
    const char *path = ko_config_text(KO_CONFIG_AUTH_TOKEN_FILE);
    int err;

    if (*token && *path)
        return ko_fail(KOLO_E_INVALID,
                       "both KOLO_AUTH_TOKEN and KOLO_AUTH_TOKEN_FILE are set; unset one of them");
    if ((*token || *path) && guard->is_open)
        return ko_fail(KOLO_E_INVALID, "KOLO_AUTH=none does without a token, but one is set; unset "
                                       "KOLO_AUTH, or KOLO_AUTH_TOKEN and KOLO_AUTH_TOKEN_FILE");
    if (!*token && !*path)
        return KOLO_OK;
    err = *path ? read_file(path, &guard->secret)
                : make_secret(KO_CONFIG_AUTH_TOKEN, token, strlen(token), &guard->secret);
    guard->has_secret = !err;
    return err;
}

int ko_guard_read(struct ko_guard *guard)
{
    int err;

    *guard = (struct ko_guard){0};
    err = read_choice(KO_CONFIG_AUTH, &guard->is_open);
    return err ? err : read_secret(guard);
}

int ko_guard_read_for_store(struct ko_guard *guard)
{
    bool is_foreign;
    int err = ko_guard_read(guard);

    if (!err)
        err = read_choice(KO_CONFIG_AUTH_STORE, &is_foreign);
    if (!err && is_foreign)
        *guard = (struct ko_guard){.is_open = true};
    return err;
}
