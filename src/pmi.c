/* SPDX-License-Identifier: MIT
 *
 * A text is put under a key in the job's space, all wait for one another, then it can be got. That
 * the process takes leave at once (finalize) is needed: mpiexec takes one that ends without having
 * done so for a crash.
 */
#include "pmi.h"

#include "beside_mpi.h"
#include "poller.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { LINE = 1024, LEAVE_MS = 10000 };

static int refuse(const char *what, const char *answer)
{
    return ko_fail(KOLO_E_PROTOCOL, "PMI: %s was answered by \"%.200s\"", what, answer);
}

/* One line, without its end. */
static int read_line(int fd, char line[LINE], const ko_deadline *deadline)
{
    size_t used = 0;

    while (used < LINE) {
        int err = ko_socket_wait(fd, KO_POLL_IN, deadline);
        ssize_t n = err ? 0 : recv(fd, line + used, 1, MSG_DONTWAIT);

        if (err)
            return err;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return ko_fail_errno(errno, "recv from descriptor %d", fd);
        if (n == 0)
            return ko_fail(KOLO_E_PEER_LOST,
                           "the launcher has gone; it ends a job of which a rank has "
                           "ended, and says so itself");
        if (line[used] == '\n') {
            line[used] = 0;
            return KOLO_OK;
        }
        used++;
    }
    return ko_fail(KOLO_E_PROTOCOL, "the launcher sent a line of more than %d bytes", LINE);
}

/* The value of a field of the answer: "rc=0" gives "0" for "rc". False: it has none, or one too
 * long. */
static bool find_field(const char *line, const char *name, char *value, size_t cap)
{
    size_t length = strlen(name), n;

    for (; line; line = strchr(line, ' ')) {
        line += strspn(line, " ");
        if (strncmp(line, name, length) || line[length] != '=')
            continue;
        line += length + 1;
        n = strcspn(line, " ");
        if (n >= cap)
            return false;
        memcpy(value, line, n);
        value[n] = 0;
        return true;
    }
    return false;
}

static int fail_request(const char *request, int err)
{
    char cause[KO_ERROR_TEXT];

    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "PMI: no answer to \"%.100s\": %.200s", request, cause);
}

/* Sends a request and reads its answer, which must be of the kind `answer` and say no failure. */
static int __attribute__((format(printf, 5, 6)))
ask(int fd, const char *answer, char line[LINE], const ko_deadline *deadline, const char *format,
    ...)
{
    char request[LINE], kind[32], code[16] = "0";
    va_list arguments;
    size_t length;
    int err;

    va_start(arguments, format);
    vsnprintf(request, sizeof request, format, arguments);
    va_end(arguments);
    length = strlen(request);
    request[length] = '\n'; /* in place of the NUL, for as long as it is sent */
    err = ko_socket_send_all(fd, request, length + 1, deadline);
    request[length] = 0;
    if (!err)
        err = read_line(fd, line, deadline);
    if (err)
        return fail_request(request, err);
    if (!find_field(line, "cmd", kind, sizeof kind) || strcmp(kind, answer))
        return refuse(request, line);
    find_field(line, "rc", code, sizeof code);
    return strcmp(code, "0") ? refuse(request, line) : KOLO_OK;
}

static int wait_for_all(int fd, char line[LINE], const ko_deadline *deadline)
{
    int err = ask(fd, "barrier_out", line, deadline, "cmd=barrier_in");

    if (err != KOLO_E_TIMEOUT)
        return err;
    return ko_fail(KOLO_E_TIMEOUT,
                   "waited %d ms over PMI (cmd=barrier_in) for all ranks to come; " KO_PMI_WHO,
                   deadline->timeout_ms);
}

static int share(int fd, int rank, const char *key, char text[KO_PMI_TEXT],
                 const ko_deadline *deadline)
{
    char line[LINE], space[256];
    int err = ask(fd, "my_kvsname", line, deadline, "cmd=get_my_kvsname");

    if (!err && !find_field(line, "kvsname", space, sizeof space))
        err = refuse("cmd=get_my_kvsname", line);
    if (!err && rank == 0)
        err = ask(fd, "put_result", line, deadline, "cmd=put kvsname=%s key=%s value=%s", space,
                  key, text);
    if (!err)
        err = wait_for_all(fd, line, deadline);
    if (!err && rank != 0)
        err = ask(fd, "get_result", line, deadline, "cmd=get kvsname=%s key=%s", space, key);
    if (!err && rank != 0 && !find_field(line, "value", text, KO_PMI_TEXT))
        err = refuse("cmd=get", line);
    return err;
}

static int begin(int fd, char line[LINE], const ko_deadline *deadline)
{
    int err =
        ask(fd, "response_to_init", line, deadline, "cmd=init pmi_version=1 pmi_subversion=1");

    if (err == KOLO_E_PEER_LOST)
        return ko_fail(
            KOLO_E_PEER_LOST,
            "PMI: the launcher does not answer: it has gone, or this process has joined "
            "before, which over PMI it can once; KOLO_MASTER=host:port of rank 0 lets it "
            "join again");
    return err;
}

static void leave(int fd)
{
    const ko_deadline soon = ko_deadline_in(LEAVE_MS);
    char line[LINE];

    (void)ask(fd, "finalize_ack", line, &soon, "cmd=finalize");
}

static int kept_fd;

static void leave_unless_mpi_has(void)
{
    if (ko_mpi_state() == KO_MPI_BEFORE)
        leave(kept_fd);
}

/* MPI does so itself, if it runs or is yet to run. */
static void leave_beside(enum ko_mpi mpi, int fd)
{
    if (mpi == KO_MPI_NONE)
        leave(fd);
    if (mpi != KO_MPI_BEFORE)
        return;
    kept_fd = fd;
    ko_mpi_at_end(leave_unless_mpi_has);
}

int ko_pmi_share(int fd, int rank, const char *key, char text[KO_PMI_TEXT],
                 const ko_deadline *deadline)
{
    const enum ko_mpi mpi = ko_mpi_state();
    char line[LINE];
    int err;

    if (mpi == KO_MPI_OVER)
        return ko_fail(KOLO_E_INVALID, KO_PMI_MPI_OVER);
    err = mpi == KO_MPI_RUNNING ? KOLO_OK : begin(fd, line, deadline);
    if (!err)
        err = share(fd, rank, key, text, deadline);
    if (!err)
        leave_beside(mpi, fd);
    return err;
}
