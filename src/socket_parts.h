/* SPDX-License-Identifier: MIT
 *
 * socket_parts.h: what the files of socket.h share.
 */
#ifndef KO_SOCKET_PARTS_H
#define KO_SOCKET_PARTS_H

#include <sys/socket.h>

/* A socket as socket.h says they all are; -1 and errno. */
int ko_socket_open(int family);

/* Gives one that was not opened by us, but accepted, the same options. */
void ko_socket_prepare(int fd);

/* The port of an address of either family. */
int ko_socket_port_of(const struct sockaddr_storage *address);
void ko_socket_set_port(struct sockaddr_storage *address, int port);

#endif
