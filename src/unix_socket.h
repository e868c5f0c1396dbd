/* SPDX-License-Identifier: MIT
 *
 * unix_socket.h: stream sockets between processes of one machine and one user, in Linux's abstract
 * namespace: a name lives as long as its listener and leaves no file. They also carry descriptors
 * (socket.h). All are non-blocking and close-on-exec; descriptors are the caller's to close.
 */
#ifndef KO_UNIX_SOCKET_H
#define KO_UNIX_SOCKET_H

#include "clock.h"

/* Longest name, its NUL included. */
#define KO_UNIX_NAME 40

/* Listens under a random name, which is written to name. */
int ko_unix_listen(int *fd, char name[KO_UNIX_NAME]);

/* Connects to a name. KO_AGAIN if the listener's queue is full; KOLO_E_PEER_LOST if nobody listens,
 * KOLO_E_PROTOCOL if another user does: a name is free again when its listener has died. */
int ko_unix_connect(const char *name, int *fd);

/* Called now and then by who waits for others to connect; an error ends the wait. */
typedef int ko_unix_look(void *owner);

/* Who connects next; strangers may, too. look may be NULL. KOLO_E_TIMEOUT without a text. */
int ko_unix_accept(int listener, const ko_deadline *deadline, ko_unix_look *look, void *owner,
                   int *fd);

/* KOLO_OK if the process at the other end has this process's user, else KOLO_E_PROTOCOL. */
int ko_unix_check_user(int fd);

#endif
