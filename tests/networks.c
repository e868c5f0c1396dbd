/* SPDX-License-Identifier: MIT */
#include "networks.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int networks_command(const char *format, ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!system(text)) // NOLINT(cert-env33-c): a test's or a bench's own words
        return 0;
    fprintf(stderr, "# failed: %s\n", text);
    return 1;
}

static int open_here(void)
{
    return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* A new namespace, in which the thread then is; -1 if that is not allowed. */
static int make(void)
{
    return unshare(CLONE_NEWNET) ? -1 : open_here();
}

int networks_enter(const struct networks *networks, int host)
{
    return setns(host < 0 ? networks->home : networks->fds[host], CLONE_NEWNET) != 0;
}

const char *networks_address(int host, char *text, int nbytes)
{
    snprintf(text, (size_t)nbytes, "10.77.0.%d", host + 1);
    return text;
}

/* In the bridge's namespace: a cable to the host. */
static int plug(const struct networks *networks, int host)
{
    return networks_command("ip link add h%d type veth peer name k0 netns /proc/%d/fd/%d", host,
                            (int)getpid(), networks->fds[host]) ||
           networks_command("ip link set h%d master bridge0 up", host);
}

/* In the host's. */
static int set_up(int host)
{
    char address[32];

    return networks_command("ip link set lo up") ||
           networks_command("ip address add %s/24 dev k0",
                            networks_address(host, address, sizeof address)) ||
           networks_command("ip link set k0 up");
}

static int build(struct networks *networks)
{
    int failed = networks_command("ip link add bridge0 type bridge && ip link set bridge0 up");

    for (int h = 0; h < networks->n && !failed; h++)
        failed = plug(networks, h);
    for (int h = 0; h < networks->n && !failed; h++)
        failed = networks_enter(networks, h) || set_up(h);
    return failed;
}

int networks_open(struct networks *networks, int n)
{
    int failed = 0;

    *networks = (struct networks){.n = n, .home = open_here()};
    for (int h = 0; h < n; h++) {
        networks->fds[h] = make();
        failed |= networks->fds[h] < 0;
    }
    networks->bridge = make();
    failed |= networks->bridge < 0;
    if (failed)
        fprintf(stderr, "# network namespaces are not allowed here\n");
    if (failed || build(networks)) {
        networks_close(networks);
        return 1;
    }
    return networks_enter(networks, -1);
}

void networks_close(struct networks *networks)
{
    networks_enter(networks, -1);
    for (int h = 0; h < networks->n; h++)
        if (networks->fds[h] >= 0)
            close(networks->fds[h]);
    if (networks->bridge >= 0)
        close(networks->bridge);
    close(networks->home);
}

/* Of an Ethernet frame, of IPv4, and of TCP with time stamps; and what a segment has beside. */
enum { HEADERS = 14 + 20 + 32, SEGMENT = 1500 - 20 - 32 };

/* Finds the line that begins so, of digits behind that, and reads its numbers of these places. */
static void read_numbers(const char *path, const char *begins, const int *places, int64_t **numbers)
{
    FILE *file = fopen(path, "re");
    char line[1024];

    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, begins);

        if (!at || !strpbrk(at += strlen(begins), "0123456789"))
            continue;
        for (int place = 0, i = 0; numbers[i]; place++) {
            char *end;
            const long long number = strtoll(at, &end, 10);

            if (end == at)
                break;
            if (place == places[i])
                *numbers[i++] = number;
            at = end;
        }
    }
    if (file)
        fclose(file);
}

struct networks_traffic networks_traffic(void)
{
    struct networks_traffic traffic = {0};
    int64_t *of_device[] = {&traffic.bytes, &traffic.frames, NULL},
            *of_tcp[] = {&traffic.again, NULL};

    read_numbers("/proc/thread-self/net/dev", "k0:", (const int[]){8, 9}, of_device);
    read_numbers("/proc/thread-self/net/snmp", "Tcp:", (const int[]){11}, of_tcp);
    return traffic;
}

struct networks_payload networks_payload(const struct networks_traffic *since)
{
    const struct networks_traffic now = networks_traffic();
    const int64_t all = now.bytes - since->bytes - HEADERS * (now.frames - since->frames);

    return (struct networks_payload){.least = all - SEGMENT * (now.again - since->again),
                                     .most = all};
}

uint64_t networks_sent(void)
{
    return (uint64_t)networks_traffic().bytes;
}
