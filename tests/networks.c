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

uint64_t networks_sent(void)
{
    FILE *file = fopen("/proc/thread-self/net/dev", "re");
    unsigned long long sent = 0;
    char line[512];

    while (file && fgets(line, sizeof line, file)) {
        const char *figures = strstr(line, "k0:");

        if (figures)
            (void)sscanf(figures + 3, "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &sent);
    }
    if (file)
        fclose(file);
    return sent;
}
