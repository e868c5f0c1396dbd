/* SPDX-License-Identifier: MIT
 *
 * Whether a transport can be used is found out by opening it, as a rank would if KOLO_TRANSPORT
 * lets it.
 */
#include "info.h"

#include "algorithms.h"
#include "interface.h"
#include "kolo.h"
#include "topology.h"
#include "transport.h"

static void try_transport(const struct ko_transport *transport, struct ko_transport_row *row)
{
    struct ko_site site = {.listen_host = "127.0.0.1"};
    struct ko_device *device;

    row->name = transport->name;
    row->kind = transport->kind == KO_WINDOW ? "window" : "message";
    row->reason[0] = '\0';
    if (!ko_topology_allows(transport)) {
        snprintf(row->reason, sizeof row->reason, "KOLO_TRANSPORT, \"%.100s\", does not list it",
                 ko_config_text(KO_CONFIG_TRANSPORT));
        return;
    }
    if (!ko_interface_wanted(site.listen_host, sizeof site.listen_host))
        snprintf(site.listen_host, sizeof site.listen_host, "127.0.0.1");
    if (transport->open(&site, &device))
        snprintf(row->reason, sizeof row->reason, "%s", kolo_last_error());
    else
        transport->close(device);
}

void ko_transport_rows_read(struct ko_transport_rows *rows)
{
    rows->count = 0;
    for (const struct ko_transport *const *row = ko_transports;
         *row && rows->count < KO_TRANSPORTS_CAP; row++)
        try_transport(*row, &rows->list[rows->count++]);
}

/* Names as text, one constant for each collective, so that the rows below need no code. */
enum { COLLECTIVE_TEXT_CAP = 24 };
#define COLLECTIVE_TEXT(id, name) static const char text_of_##id[COLLECTIVE_TEXT_CAP] = #name;
KO_COLLECTIVE_LIST(COLLECTIVE_TEXT)
#undef COLLECTIVE_TEXT

const struct ko_algorithm_row *ko_algorithm_rows(int *count)
{
    static const struct ko_algorithm_row rows[] = {
#define ALGORITHM(what, name, text, flags, why) {text_of_##what, name, why},
        KO_ALGORITHM_LIST(ALGORITHM)
#undef ALGORITHM
    };

    *count = sizeof rows / sizeof *rows;
    return rows;
}
