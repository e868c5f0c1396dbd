/* SPDX-License-Identifier: MIT */
#include "store_listen.h"

#include "config.h"
#include "socket.h"
#include "status.h"

#include <stdatomic.h>
#include <unistd.h>

/* Two servers on one socket would each have some of the clients. */
static atomic_flag is_taken = ATOMIC_FLAG_INIT;

void ko_listeners_close(struct ko_listeners *listeners)
{
    while (listeners->n > 0)
        close(listeners->fds[--listeners->n]);
    if (listeners->is_inherited)
        atomic_flag_clear(&is_taken);
    listeners->is_inherited = false;
}

/* Nothing if there is none, or it is another server's, or on another port. */
static int inherit(struct ko_listeners *listeners, int port)
{
    int64_t inherited;
    int err = ko_config_number(KO_CONFIG_STORE_FD, &inherited);

    if (err || inherited < 0 || atomic_flag_test_and_set(&is_taken))
        return err;
    listeners->is_inherited = true;
    err = ko_socket_adopt((int)inherited, listeners->fds, &listeners->port);
    if (!err)
        listeners->n = 1;
    if (err || (port != 0 && port != listeners->port))
        ko_listeners_close(listeners);
    return err;
}

int ko_listeners_open(struct ko_listeners *listeners, const char *host, int port,
                      const ko_deadline *deadline)
{
    int err = inherit(listeners, port);

    if (err || listeners->n > 0)
        return err;
    return ko_socket_listen_all(host, port, deadline, listeners->fds, KO_LISTENERS, &listeners->n,
                                &listeners->port);
}
