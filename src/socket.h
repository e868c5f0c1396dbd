/* SPDX-License-Identifier: MIT
 *
 * socket.h: TCP sockets with deadlines. All sockets are non-blocking, close-on-exec, without delay
 * (TCP_NODELAY) and never raise SIGPIPE; the waits here poll. Descriptors are the caller's to
 * close.
 */
#ifndef KO_SOCKET_H
#define KO_SOCKET_H

#include "clock.h"

#include <netdb.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Longest text of ko_socket_name. */
#define KO_SOCKET_NAME 80

/* Listens on host:port; port 0 is any free one, of KOLO_PORT_RANGE if that is set. *port_out is the
 * one taken. host NULL or "" is all interfaces; a name, to be looked up in ten seconds, listens on
 * the first address it resolves to. */
int ko_socket_listen(const char *host, int port, int *fd, int *port_out);
/* The same on each address of a name, looked up by the deadline, up to cap of them, and on one
 * port; those of a family that this machine lacks are left out, if there is another. "::" alone
 * takes IPv4 too. */
int ko_socket_listen_all(const char *host, int port, const ko_deadline *deadline, int *fds, int cap,
                         int *n, int *port_out);

/* Binds a socket of address's family to a free port, of KOLO_PORT_RANGE if that is set, and says
 * which; others that name it may share it until one listens. host is for the error's text. */
int ko_socket_bind_any(int fd, const char *host, struct sockaddr_storage *address,
                       socklen_t length);

/* KOLO_E_INVALID if nothing can listen on host, which the variable called name says. */
int ko_socket_check_address(const char *name, const char *host);

/* A socket of our own that listens where an inherited one does, that of KOLO_STORE_FD.
 * KOLO_E_INVALID if that does not. */
int ko_socket_adopt(int inherited, int *fd, int *port);

/* Connects to host:port by any address that host has, all families and all at once but for a small
 * lead of each before the next; tries again (refused, unreachable, reset, name not known yet) with
 * growing pauses until the deadline. The error's text says for each address how it failed last, and
 * how often it was tried. */
int ko_socket_connect(const char *host, int port, const ko_deadline *deadline, int *fd);

/* The same, but KOLO_E_ABORTED soon after another thread has set *is_stopped (NULL: none will). */
int ko_socket_connect_unless(const char *host, int port, const ko_deadline *deadline,
                             const atomic_bool *is_stopped, int *fd);

/* Whether all of a host's addresses say at once that nobody listens at the port. */
bool ko_socket_is_refused(const char *host, int port);

/* Until ms have passed, or a little after another thread has set *is_stopped (NULL: none will). */
void ko_socket_pause(int ms, const atomic_bool *is_stopped);

/* One race of all addresses of a list: 0 and *fd, or an errno. EAGAIN: none was there by the limit,
 * and cause says of each why. */
int ko_socket_race(const struct addrinfo *list, const ko_deadline *limit, int *fd, char *cause,
                   size_t cap);

/* Starts a connection to one address and returns at once; *fd is writable when it is made or has
 * failed (then ko_socket_connected says how). */
int ko_socket_connect_start(const struct sockaddr *address, socklen_t length, int *fd);
/* The same, returning 0 or an errno. */
int ko_socket_start(const struct sockaddr *address, socklen_t length, int *fd);
/* KOLO_OK, KO_AGAIN while under way, or the error of a connection begun by connect_start. */
int ko_socket_connected(int fd);
/* The same as 0, EINPROGRESS or another errno. */
int ko_socket_connect_error(int fd);

/* Of a connected socket: listens on another port of its near end's address; starts a connection to
 * another port of its far end's. */
int ko_socket_listen_beside(int fd, int *listen_fd, int *port);
int ko_socket_connect_beside(int fd, int port, int *beside);

/* The next connection, or KO_AGAIN. When descriptors run out it is KO_AGAIN too, with one warning
 * and a pause of some milliseconds, so that a caller that polls does not spin. */
int ko_socket_accept(int listen_fd, int *fd);

/* Whole buffers, waiting until the deadline. KOLO_E_PEER_LOST if the other end has closed. */
int ko_socket_send_all(int fd, const void *data, size_t nbytes, const ko_deadline *deadline);
int ko_socket_recv_all(int fd, void *data, size_t nbytes, const ko_deadline *deadline);

/* True of an errno of send or recv that means: try again, when the socket is ready. */
bool ko_socket_is_not_yet(int error);

/* As send and recv on a stream socket (the count, or -1 and errno; never waiting), on Unix sockets
 * with a descriptor beside the bytes: pass_fd < 0 passes none; *got_fd is set if one came (one
 * already there, or the first of several, is kept and the others are closed). EMFILE: one came for
 * which this process has no number left, and so is lost, and the bytes with it. */
ssize_t ko_socket_send_pieces(int fd, const struct iovec *pieces, int npieces, int pass_fd);
ssize_t ko_socket_send_with(int fd, const void *data, size_t nbytes, int pass_fd);
ssize_t ko_socket_recv_with(int fd, void *data, size_t nbytes, int *got_fd);

/* True if the other end's machine has acknowledged all that was sent over a connection over TCP, of
 * which this end's then acknowledges at once what has come. */
bool ko_socket_has_delivered(int fd);

/* Waits until fd has one of the KO_POLL_ bits wanted (poller.h). */
int ko_socket_wait(int fd, int wanted, const ko_deadline *deadline);

/* True if the far ends of two sockets have the same address, whatever their ports. */
bool ko_socket_same_host(int fd, int other);

/* "10.0.0.1:29500", "[::1]:29500", or "unknown" and false for the far end of a socket. */
bool ko_socket_peer_name(int fd, char name[KO_SOCKET_NAME]);
/* The same for its near end. */
void ko_socket_own_name(int fd, char name[KO_SOCKET_NAME]);

/* True if both ends of a connection over TCP sit on this machine, or only such can come to a
 * listening socket. */
bool ko_socket_is_within_machine(int fd);

#endif
