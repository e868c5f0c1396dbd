/* SPDX-License-Identifier: MIT
 *
 * Unix sockets without files: names, refusals, and descriptors that travel.
 */
#include "fault.h"
#include "socket.h"
#include "status.h"
#include "unix_socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void pair(int ends[2])
{
    char name[KO_UNIX_NAME];
    int listener;

    assert_int_equal(ko_unix_listen(&listener, name), KOLO_OK);
    assert_int_equal(ko_unix_connect(name, &ends[0]), KOLO_OK);
    assert_int_equal(ko_socket_accept(listener, &ends[1]), KOLO_OK);
    close(listener);
}

static void names(void **state)
{
    char a[KO_UNIX_NAME], b[KO_UNIX_NAME];
    int first, second, fd;

    (void)state;
    assert_int_equal(ko_unix_listen(&first, a), KOLO_OK);
    assert_int_equal(ko_unix_listen(&second, b), KOLO_OK);
    assert_string_not_equal(a, b);
    assert_true(fcntl(first, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(first, F_GETFL) & O_NONBLOCK);
    assert_int_equal(ko_unix_connect(a, &fd), KOLO_OK);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    close(fd);
    close(first);
    assert_int_equal(ko_unix_connect(a, &fd), KOLO_E_PEER_LOST);
    assert_non_null(strstr(kolo_last_error(), a));
    close(second);
}

/* A queue that is full is no refusal. */
static void full_queue(void **state)
{
    enum { MOST = 10000 };
    static int fds[MOST];
    char name[KO_UNIX_NAME];
    int listener, n = 0, err = KOLO_OK;

    (void)state;
    assert_int_equal(ko_unix_listen(&listener, name), KOLO_OK);
    while (n < MOST && !(err = ko_unix_connect(name, &fds[n])))
        n++;
    if (err == KOLO_E_SYSTEM)
        print_message("# descriptors ran out before the queue was full\n");
    else
        assert_int_equal(err, KO_AGAIN);
    while (n > 0)
        close(fds[--n]);
    close(listener);
}

static void users(void **state)
{
    int ends[2];

    (void)state;
    pair(ends);
    assert_int_equal(ko_unix_check_user(ends[0]), KOLO_OK);
    assert_int_equal(ko_unix_check_user(ends[1]), KOLO_OK);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(ko_unix_check_user(-1), KOLO_E_SYSTEM);
}

enum { NOBODY = 65534 };

/* Runs body as another user in another process, which goes on after it until `end` is closed. */
static pid_t as_nobody(int (*body)(char *), char *name, int end[2])
{
    pid_t pid;
    char byte;

    assert_int_equal(pipe(end), 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    close(end[1]);
    if (setgid(NOBODY) || setuid(NOBODY) || body(name) || read(end[0], &byte, 1) < 0)
        _exit(1);
    _exit(0);
}

static void end_nobody(pid_t pid, int end[2])
{
    int status;

    close(end[0]);
    close(end[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int connects(char *name)
{
    int fd;

    return ko_unix_connect(name, &fd) != KOLO_E_PROTOCOL;
}

static int listens(char *name)
{
    int fd;

    return ko_unix_listen(&fd, name);
}

/* Neither end talks to another user. */
static void other_users(void **state)
{
    char *name =
        mmap(NULL, KO_UNIX_NAME, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int listener, fd, end[2], err;
    pid_t pid;

    (void)state;
    if (geteuid())
        skip();
    assert_int_equal(ko_unix_listen(&listener, name), KOLO_OK);
    pid = as_nobody(connects, name, end);
    while ((err = ko_socket_accept(listener, &fd)) == KO_AGAIN)
        poll(NULL, 0, 1);
    assert_int_equal(err, KOLO_OK);
    assert_int_equal(ko_unix_check_user(fd), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "user 65534"));
    close(fd);
    close(listener);
    end_nobody(pid, end);
    name[0] = '\0';
    pid = as_nobody(listens, name, end);
    while ((err = ko_unix_connect(name, &fd)) == KOLO_E_PEER_LOST)
        poll(NULL, 0, 1);
    assert_int_equal(err, KOLO_E_PROTOCOL);
    end_nobody(pid, end);
    munmap(name, KO_UNIX_NAME);
}

static void descriptors(void **state)
{
    int ends[2], pipe_ends[2], got = -1;
    char bytes[8];

    (void)state;
    pair(ends);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(ko_socket_send_with(ends[0], "abc", 3, pipe_ends[1]), 3);
    assert_int_equal(ko_socket_send_with(ends[0], "de", 2, -1), 2);
    assert_int_equal(ko_socket_recv_with(ends[1], bytes, 3, &got), 3);
    assert_memory_equal(bytes, "abc", 3);
    assert_true(got >= 0 && got != pipe_ends[1]);
    assert_true(fcntl(got, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(got, "x", 1), 1);
    assert_int_equal(read(pipe_ends[0], bytes, 1), 1);
    assert_int_equal(ko_socket_recv_with(ends[1], bytes, 8, &got), 2);
    assert_int_equal(ko_socket_recv_with(ends[1], bytes, 8, &got), -1);
    assert_int_equal(errno, EAGAIN);
    close(pipe_ends[1]);
    close(got);
    assert_int_equal(read(pipe_ends[0], bytes, 1), 0); /* that was the last writer */
    close(pipe_ends[0]);
    close(ends[0]);
    got = -1;
    assert_int_equal(ko_socket_recv_with(ends[1], bytes, 8, &got), 0);
    assert_int_equal(got, -1);
    close(ends[1]);
}

/* A second descriptor, which nobody has asked for, is closed at once. */
static void one_descriptor(void **state)
{
    int ends[2], pipe_ends[2], got = -1, first;
    char byte;

    (void)state;
    pair(ends);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(ko_socket_send_with(ends[0], "a", 1, pipe_ends[1]), 1);
    assert_int_equal(ko_socket_send_with(ends[0], "b", 1, pipe_ends[1]), 1);
    close(pipe_ends[1]);
    assert_int_equal(ko_socket_recv_with(ends[1], &byte, 1, &got), 1);
    first = got;
    assert_int_equal(ko_socket_recv_with(ends[1], &byte, 1, &got), 1);
    assert_int_equal(got, first);
    close(got);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 0); /* no writer is left */
    close(pipe_ends[0]);
    close(ends[0]);
    close(ends[1]);
}

/* Of several that have come with one byte the first is taken, and the others are closed. */
static void first_descriptor(void **state)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    char byte = 'a';
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int ends[2], first[2], second[2], got = -1;

    (void)state;
    pair(ends);
    assert_int_equal(pipe(first), 0);
    assert_int_equal(pipe(second), 0);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(header), (int[]){first[1], second[1]}, 2 * sizeof(int));
    assert_int_equal(sendmsg(ends[0], &message, MSG_NOSIGNAL), 1);
    close(first[1]);
    close(second[1]);
    assert_int_equal(ko_socket_recv_with(ends[1], &byte, 1, &got), 1);
    assert_int_equal(fcntl(second[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(read(second[0], &byte, 1), 0); /* no writer is left */
    assert_int_equal(write(got, "x", 1), 1);
    assert_int_equal(read(first[0], &byte, 1), 1);
    close(got);
    close(first[0]);
    close(second[0]);
    close(ends[0]);
    close(ends[1]);
}

/* A process that has as many files as it may gets the bytes without the descriptor: that is said,
 * and not that none came. */
static void no_descriptor_left(void **state)
{
    struct rlimit limit, none;
    int ends[2], got = -1;
    char byte;

    (void)state;
    pair(ends);
    assert_int_equal(ko_socket_send_with(ends[0], "a", 1, ends[0]), 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(ko_socket_recv_with(ends[1], &byte, 1, &got), -1);
    assert_int_equal(errno, EMFILE);
    assert_int_equal(got, -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(ends[0]);
    close(ends[1]);
}

static void faults(void **state)
{
    char name[KO_UNIX_NAME] = "nobody";
    int fd = -7;

    (void)state;
    ko_fault_arm(KO_FAULT_SOCKET, 1);
    assert_int_equal(ko_unix_listen(&fd, name), KOLO_E_SYSTEM);
    ko_fault_arm(KO_FAULT_SOCKET, 1);
    assert_int_equal(ko_unix_connect(name, &fd), KOLO_E_SYSTEM);
    assert_int_equal(fd, -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names),
                                       cmocka_unit_test(full_queue),
                                       cmocka_unit_test(users),
                                       cmocka_unit_test(other_users),
                                       cmocka_unit_test(descriptors),
                                       cmocka_unit_test(one_descriptor),
                                       cmocka_unit_test(first_descriptor),
                                       cmocka_unit_test(no_descriptor_left),
                                       cmocka_unit_test(faults)};

    return cmocka_run_group_tests_name("unix_socket", tests, NULL, NULL);
}
