/* SPDX-License-Identifier: MIT
 *
 * Every transport passes the suite: one row each.
 *   test_transports [PATTERN]
 * Real adapters in place of the double's: LD_PRELOAD with libibverbs.so.1 and librdmacm.so.1.
 */
#include "transport_suite.h"

#include "status.h"
#include "unix_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN "the token of this test"

static int dial_shm(const unsigned char *address, size_t nbytes)
{
    char name[KO_UNIX_NAME] = {0};
    int fd;

    memcpy(name, address, nbytes < sizeof name ? nbytes : sizeof name - 1);
    if (ko_unix_connect(name, &fd))
        return -1;
    fcntl(fd, F_SETFL, 0);
    return fd;
}

/* tcp.c's address: 64 bytes of numeric host, then the port in this machine's order. */
static int dial_tcp(const unsigned char *address, size_t nbytes)
{
    struct sockaddr_in where = {.sin_family = AF_INET};
    uint16_t port;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || nbytes < 64 + sizeof port)
        return -1;
    memcpy(&port, address + 64, sizeof port);
    where.sin_port = htons(port);
    if (inet_pton(AF_INET, (const char *)address, &where.sin_addr) == 1 &&
        !connect(fd, (struct sockaddr *)&where, sizeof where))
        return fd;
    close(fd);
    return -1;
}

static const struct transport_traits rows[] = {
    {.transport = &ko_transport_self, .alone = "a rank is alone with itself"},
    {.transport = &ko_transport_shm, .dial = dial_shm},
    {.transport = &ko_transport_rdma, .rdma = "fake0:roce"},
    {.transport = &ko_transport_rdma, .rdma = "fake0:ib"},
    {.transport = &ko_transport_rdma, .rdma = "fake0:plain"},
    {.transport = &ko_transport_rdma, .rdma = "fake0:iwarp"},
    {.transport = &ko_transport_rdma, .rdma = "fake0,fake1", .hca = "fake0,fake1", .qps = "2"},
    {.transport = &ko_transport_rdma, .rdma = "p0:plain,p1:plain", .hca = "p0,p1"},
    {.transport = &ko_transport_rdma, .sockets = 2, .token = TOKEN, .rdma = "fake0:roce"},
    {.transport = &ko_transport_tcp, .dial = dial_tcp, .sockets = 1},
    {.transport = &ko_transport_tcp, .dial = dial_tcp, .sockets = 2},
    {.transport = &ko_transport_tcp, .dial = dial_tcp, .sockets = 4},
    {.transport = &ko_transport_tcp, .sockets = 1, .token = TOKEN},
    {.transport = &ko_transport_tcp, .sockets = 3, .token = TOKEN},
    {.transport = &ko_transport_tcp, .sockets = 1, .token = TOKEN, .is_sealed = true},
    {.transport = &ko_transport_tcp, .sockets = 3, .token = TOKEN, .is_sealed = true},
};

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[SUITE_MOST * sizeof rows / sizeof *rows];
    size_t n = 0;

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        n += transport_suite_add(tests + n, &rows[i]);
    return _cmocka_run_group_tests("transports", tests, n, NULL, NULL);
}
