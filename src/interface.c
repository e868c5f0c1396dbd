/* SPDX-License-Identifier: MIT */
#include "interface.h"

#include "config.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* Whether an address may be reached from other hosts without knowing more than its numbers. */
static bool is_reachable(const struct ifaddrs *item, int family, const char *name)
{
    const struct sockaddr_in6 *v6 = (const void *)item->ifa_addr;

    return item->ifa_addr && item->ifa_addr->sa_family == family && (item->ifa_flags & IFF_UP) &&
           (name ? !strcmp(item->ifa_name, name) : !(item->ifa_flags & IFF_LOOPBACK)) &&
           (family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr));
}

static bool find(const struct ifaddrs *list, int family, const char *name, char *host,
                 size_t nbytes)
{
    socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    for (const struct ifaddrs *item = list; item; item = item->ifa_next)
        if (is_reachable(item, family, name) &&
            !getnameinfo(item->ifa_addr, length, host, (socklen_t)nbytes, NULL, 0, NI_NUMERICHOST))
            return true;
    return false;
}

bool ko_interface_address(const char *name, char *host, size_t nbytes)
{
    struct ifaddrs *list = NULL;
    bool is_found;

    if (getifaddrs(&list))
        return false;
    is_found = find(list, AF_INET, name, host, nbytes) || find(list, AF_INET6, name, host, nbytes);
    freeifaddrs(list);
    return is_found;
}

bool ko_interface_exists(const char *name)
{
    return if_nametoindex(name) != 0;
}

static bool is_same(const struct sockaddr *a, const struct sockaddr *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

    if (a->sa_family != b->sa_family)
        return false;
    return a->sa_family == AF_INET ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
                                   : IN6_ARE_ADDR_EQUAL(&a6->sin6_addr, &b6->sin6_addr);
}

static bool is_of_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;

    return address->sa_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool ko_interface_has(const struct sockaddr *address)
{
    struct ifaddrs *list = NULL;
    bool has = is_of_loopback(address);

    if (has || (address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
        getifaddrs(&list))
        return has;
    for (const struct ifaddrs *item = list; item && !has; item = item->ifa_next)
        has = item->ifa_addr && is_same(item->ifa_addr, address);
    freeifaddrs(list);
    return has;
}

bool ko_interface_wanted(char *host, size_t nbytes)
{
    const char *text = ko_config_text(KO_CONFIG_IFADDR);

    if (!*text || !ko_interface_address(text, host, nbytes))
        snprintf(host, nbytes, "%s", text);
    return *text;
}
