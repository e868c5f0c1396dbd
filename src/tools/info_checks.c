/* SPDX-License-Identifier: MIT
 *
 * What a job would say of a variable's value, found out by the functions that read it there. Those
 * that only say who a process is in its job (KOLO_RANK and the like) stand among the job's facts.
 */
#include "info.h"

#include "costs.h"
#include "group_wishes.h"
#include "log.h"
#include "protocols.h"
#include "secret_token.h"
#include "socket.h"
#include "status.h"
#include "topology.h"
#include "tuning.h"

#include <unistd.h>

static int check_algorithms(void)
{
    short rows[KO_NCOLLECTIVES];

    return ko_wishes_read(ko_config_text(KO_CONFIG_ALGO), rows);
}

static int check_costs(void)
{
    struct ko_costs costs;

    return ko_tuning_get(&costs);
}

static int check_protocols(void)
{
    unsigned protocols;

    return ko_protocols_read(&protocols);
}

static int check_ports(void)
{
    int low, high;

    return ko_config_port_range(ko_config_text(KO_CONFIG_PORT_RANGE), &low, &high);
}

static int check_store_fd(void)
{
    int64_t inherited;
    int fd, port;
    int err = ko_config_number(KO_CONFIG_STORE_FD, &inherited);

    if (err || inherited < 0)
        return err;
    err = ko_socket_adopt((int)inherited, &fd, &port);
    if (!err)
        close(fd);
    return err;
}

/* A token is not looked at before it is known whether there is to be one. */
static int check_token(void)
{
    struct ko_guard guard;
    int err;

    if (ko_config_check_one(KO_CONFIG_AUTH))
        return KOLO_OK;
    err = ko_guard_read(&guard);
    ko_secret_forget(&guard.secret);
    return err;
}

int ko_variable_check(enum ko_config_id id)
{
    static int (*const checks[KO_CONFIG_COUNT])(void) = {
        [KO_CONFIG_DEBUG] = ko_log_check_level,
        [KO_CONFIG_DEBUG_FILE] = ko_log_check_file,
        [KO_CONFIG_TRANSPORT] = ko_topology_check_transports,
        [KO_CONFIG_ALGO] = check_algorithms,
        [KO_CONFIG_TUNING] = check_costs,
        [KO_CONFIG_PROTO] = check_protocols,
        [KO_CONFIG_IFADDR] = ko_topology_check_address,
        [KO_CONFIG_PORT_RANGE] = check_ports,
        [KO_CONFIG_STORE_FD] = check_store_fd,
        [KO_CONFIG_AUTH_TOKEN_FILE] = check_token,
        [KO_CONFIG_AUTH_TOKEN] = check_token,
        [KO_CONFIG_HOST] = ko_topology_check_host,
    };

    if (!ko_config_is_set(id))
        return KOLO_OK;
    return checks[id] ? checks[id]() : ko_config_check_one(id);
}
