/* SPDX-License-Identifier: MIT
 *
 * The file is opened anew each time, as PyTorch does: it may be another one by then. What is read
 * is kept in a table, so that each byte is read once.
 */
#include "store_records.h"

#include "log.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 4, LOOK_MS = 10, PIECE = 64 << 10 };

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};

    nanosleep(&pause, NULL);
}

static int fail_file(const struct ko_records *file, const char *what)
{
    return ko_fail_errno(errno, "%s: cannot %s it", file->where, what);
}

/* Lets other threads of this process in while it waits. */
int ko_records_wait(struct ko_records *file, const ko_deadline *deadline, const char *what)
{
    if (file->is_stopped)
        return ko_fail(KOLO_E_ABORTED, "%s was closed during the call", file->where);
    if (ko_deadline_passed(deadline))
        return ko_fail(KOLO_E_TIMEOUT, "%s: waited %d ms to %s it", file->where,
                       deadline->timeout_ms, what);
    pthread_mutex_unlock(&file->lock);
    nap();
    pthread_mutex_lock(&file->lock);
    return KOLO_OK;
}

static const char *advice_for(int error)
{
    switch (error) {
    case ENOENT:
        return " (make its folder first)";
    case ENOTDIR:
        return " (what stands before its last / is no folder)";
    case EISDIR:
        return " (name a file in it)";
    case EACCES:
    case EPERM:
        return " (all ranks need leave to read and write it)";
    case EROFS:
        return " (nothing can be written there: name one elsewhere)";
    default:
        return "";
    }
}

static bool has_folder(const struct ko_records *file)
{
    const char *slash = strrchr(file->path, '/');
    char folder[PATH_MAX];
    struct stat status;

    if (!slash)
        return true;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - file->path + 1), file->path);
    return stat(folder, &status) == 0 || errno != ENOENT;
}

/* A network's file system may deny for a while that a file is there. That its folder is not is
 * believed: a wrong path is far more likely. */
static bool may_pass(const struct ko_records *file, int error)
{
    return error == EINTR || error == ESTALE || (error == ENOENT && has_folder(file));
}

/* What has no length would be read for ever, or as nothing. */
static int check_kind(const struct ko_records *file, int *fd)
{
    struct stat status;
    int err = KOLO_OK;

    if (fstat(*fd, &status))
        err = fail_file(file, "look at");
    else if (!S_ISREG(status.st_mode))
        err = ko_fail(KOLO_E_SYSTEM, "%s: it is a pipe or a device (name a file)", file->where);
    if (err) {
        close(*fd);
        *fd = -1;
    }
    return err;
}

static int open_file(struct ko_records *file, const ko_deadline *deadline, int *fd)
{
    int err = KOLO_OK;
    int error;

    while (!err && (*fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
        error = errno;
        if (!may_pass(file, error))
            return ko_fail_errno(error, "%s: cannot open it%s", file->where, advice_for(error));
        err = ko_records_wait(file, deadline, "open");
        if (err == KOLO_E_TIMEOUT)
            err = ko_fail(err, "%s: waited %d ms to open it: %s", file->where, deadline->timeout_ms,
                          strerror(error));
    }
    return err ? err : check_kind(file, fd);
}

static int lock_file(struct ko_records *file, int fd, int how, const ko_deadline *deadline)
{
    int err = KOLO_OK;

    while (flock(fd, how | LOCK_NB) && !err) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fail_file(file, "lock");
        err = ko_records_wait(file, deadline, "lock");
    }
    return err;
}

static int take_record(struct ko_records *file, kolo_bytes key, kolo_bytes value)
{
    const char *text = key.data;

    if (key.nbytes == 0 || *text != '-')
        return ko_table_set(file->table, key, value);
    ko_table_delete(file->table, (kolo_bytes){text + 1, key.nbytes - 1});
    return KOLO_OK;
}

/* One record at the head of fresh. KO_AGAIN if it is not whole. */
static int understand_one(struct ko_records *file)
{
    const uint8_t *at = ko_buffer_bytes(&file->fresh);
    size_t fill = ko_buffer_fill(&file->fresh);
    size_t key_nbytes, value_nbytes;

    if (fill < LENGTH)
        return KO_AGAIN;
    key_nbytes = ko_wire_u32(at);
    if (!key_nbytes || key_nbytes > KO_STORE_KEY_MAX + 2)
        return ko_fail(KOLO_E_PROTOCOL, "%s is no file store: it has a key of %zu bytes",
                       file->where, key_nbytes);
    if (fill < 2 * LENGTH + key_nbytes)
        return KO_AGAIN;
    value_nbytes = ko_wire_u32(at + LENGTH + key_nbytes);
    if (value_nbytes > KO_STORE_VALUE_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "%s is no file store: it has a value of %zu bytes",
                       file->where, value_nbytes);
    if (fill < 2 * LENGTH + key_nbytes + value_nbytes)
        return KO_AGAIN;
    return take_record(file, (kolo_bytes){at + LENGTH, key_nbytes},
                       (kolo_bytes){at + 2 * LENGTH + key_nbytes, value_nbytes});
}

static int understand(struct ko_records *file)
{
    const uint8_t *at;
    size_t nbytes;
    int err;

    while (!(err = understand_one(file))) {
        at = ko_buffer_bytes(&file->fresh);
        nbytes = 2 * LENGTH + ko_wire_u32(at);
        nbytes += ko_wire_u32(at + nbytes - LENGTH);
        ko_buffer_consume(&file->fresh, nbytes);
        file->read_to += (off_t)nbytes;
    }
    return err == KO_AGAIN ? KOLO_OK : err;
}

/* Another file has taken the place of the one that was read. */
static int start_over(struct ko_records *file, const struct stat *status)
{
    struct ko_table *empty;
    int err = ko_table_open(SIZE_MAX, &empty);

    if (err)
        return err;
    ko_table_free(file->table);
    file->table = empty;
    file->read_to = 0;
    file->device = status->st_dev;
    file->inode = status->st_ino;
    return KOLO_OK;
}

/* Reads what has been appended. */
static int refresh(struct ko_records *file, int fd)
{
    struct stat status;
    off_t at;
    ssize_t n = 1;
    int err = KOLO_OK;

    if (fstat(fd, &status))
        return fail_file(file, "look at");
    if (status.st_dev != file->device || status.st_ino != file->inode ||
        status.st_size < file->read_to)
        err = start_over(file, &status);
    at = file->read_to;
    while (!err && n > 0 && at < status.st_size) {
        err = ko_buffer_reserve(&file->fresh, PIECE);
        if (err)
            break;
        n = pread(fd, file->fresh.data + file->fresh.tail, PIECE, at);
        if (n < 0)
            err = fail_file(file, "read");
        if (n > 0) {
            file->fresh.tail += (size_t)n;
            at += n;
            err = understand(file);
        }
    }
    ko_buffer_free(&file->fresh); /* half a record is read again when it has become whole */
    return err;
}

static void put_part(struct ko_buffer *records, const char *prefix, kolo_bytes bytes)
{
    size_t n = strlen(prefix);

    ko_buffer_put_u32(records, (uint32_t)(n + bytes.nbytes));
    memcpy(records->data + records->tail, prefix, n);
    if (bytes.nbytes > 0)
        memcpy(records->data + records->tail + n, bytes.data, bytes.nbytes);
    records->tail += n + bytes.nbytes;
}

int ko_records_put(struct ko_buffer *records, const char *prefix, kolo_bytes key, kolo_bytes value)
{
    int err = ko_buffer_reserve(records, 2 * LENGTH + 2 + key.nbytes + value.nbytes);

    if (err)
        return err;
    put_part(records, prefix, key);
    put_part(records, "", value);
    return KOLO_OK;
}

/* Cuts off the half record that a killed writer has left. Where no whole one stands before it, this
 * may be somebody's file of another kind, which a wrong path must not destroy. */
static int mend_end(struct ko_records *file, int fd)
{
    struct stat status;

    if (fstat(fd, &status))
        return fail_file(file, "look at");
    if (status.st_size > 0 && file->read_to == 0)
        return ko_fail(KOLO_E_PROTOCOL,
                       "%s is left as it is: its %lld bytes are no record of a file store (remove "
                       "it if it is one whose first writer was killed)",
                       file->where, (long long)status.st_size);
    if (status.st_size > file->read_to && ftruncate(fd, file->read_to))
        return fail_file(file, "mend");
    return KOLO_OK;
}

/* Behind the last whole record. The file has been locked and read. */
int ko_records_append(struct ko_records *file, int fd, struct ko_buffer *records)
{
    size_t done = 0;
    ssize_t n;
    int err = mend_end(file, fd);

    if (err)
        return err;
    while (done < ko_buffer_fill(records) && !err) {
        n = pwrite(fd, ko_buffer_bytes(records) + done, ko_buffer_fill(records) - done,
                   file->read_to + (off_t)done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            err = fail_file(file, "write to");
    }
    if (err && ftruncate(fd, file->read_to))
        ko_log(KO_LOG_WARN, "%s has half a record at its end", file->where);
    return err ? err : refresh(file, fd);
}

/* To close it would not do: a child that another thread has forked meanwhile has it open, too, and
 * with it the lock, for as long as it lives. */
void ko_records_leave(int fd)
{
    (void)flock(fd, LOCK_UN);
    close(fd);
}

int ko_records_enter(struct ko_records *file, int how, const ko_deadline *deadline, int *fd)
{
    int err = open_file(file, deadline, fd);

    if (err)
        return err;
    err = lock_file(file, *fd, how, deadline);
    if (!err)
        err = refresh(file, *fd);
    if (err)
        ko_records_leave(*fd);
    return err;
}
