/* SPDX-License-Identifier: MIT */
#include "store_served.h"

#include "socket.h"
#include "status.h"
#include "store_text.h"
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int store_served_open(void **state)
{
    kolo_store *store = NULL;
    int err = kolo_store_open_tcp("127.0.0.1", 0, 1, 60000, &store);

    *state = store;
    return err;
}

int store_served_close(void **state)
{
    kolo_store_close(*state);
    return 0;
}

pid_t store_start_process(int *port, unsigned most_files)
{
    const struct rlimit limit = {most_files, most_files};
    int channel[2];
    kolo_store *store;
    pid_t child;

    assert_int_equal(pipe(channel), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (most_files && setrlimit(RLIMIT_NOFILE, &limit))
            _exit(1);
        if (kolo_store_open_tcp("127.0.0.1", *port, 1, 60000, &store))
            _exit(1);
        *port = kolo_store_port(store);
        if (write(channel[1], port, sizeof *port) != sizeof *port)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    close(channel[1]);
    assert_int_equal(read(channel[0], port, sizeof *port), sizeof *port);
    close(channel[0]);
    return child;
}

void store_stop_process(pid_t server)
{
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
}

int store_dial(void **state)
{
    ko_deadline deadline = ko_deadline_in(30000);
    int fd = -1;

    assert_int_equal(ko_socket_connect("127.0.0.1", kolo_store_port(*state), &deadline, &fd),
                     KOLO_OK);
    return fd;
}

void store_hear_nothing(int fd)
{
    say(fd, "0d 78563412");
    hear(fd, "78563412");
}

void store_work_honestly(void **state)
{
    void *value;
    size_t nbytes;
    int64_t sum = 0;

    for (int i = 0; i < 20; i++) {
        assert_int_equal(kolo_store_set(*state, "honest", text("work")), KOLO_OK);
        assert_int_equal(kolo_store_get(*state, "honest", &value, &nbytes), KOLO_OK);
        assert_string_equal(value, "work");
        kolo_free(value);
        assert_int_equal(kolo_store_add(*state, "count", 1, &sum), KOLO_OK);
    }
    assert_int_equal(kolo_store_delete(*state, "count", NULL), KOLO_OK);
    assert_int_equal(sum, 20);
}
