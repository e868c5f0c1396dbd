/* SPDX-License-Identifier: MIT */
#include "wire.h"

#include "kolo.h"
#include "socket.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

enum { PATIENCE_MS = 30000 };

size_t wire_unhex(const char *hex, uint8_t *bytes)
{
    size_t n = 0;
    unsigned byte;

    for (const char *at = hex; *at; at++) {
        if (*at == ' ')
            continue;
        assert_int_equal(sscanf(at, "%2x", &byte), 1);
        assert_true(n < WIRE_LONGEST);
        bytes[n++] = (uint8_t)byte;
        at++;
    }
    return n;
}

void say(int fd, const char *hex)
{
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    uint8_t bytes[WIRE_LONGEST];

    assert_int_equal(ko_socket_send_all(fd, bytes, wire_unhex(hex, bytes), &deadline), 0);
}

void hear(int fd, const char *hex)
{
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    uint8_t expected[WIRE_LONGEST];
    uint8_t got[WIRE_LONGEST];
    size_t n = wire_unhex(hex, expected);

    assert_int_equal(ko_socket_recv_all(fd, got, n, &deadline), 0);
    assert_memory_equal(got, expected, n);
}

void hear_end(int fd)
{
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char byte;

    assert_int_equal(ko_socket_recv_all(fd, &byte, 1, &deadline), KOLO_E_PEER_LOST);
    close(fd);
}
