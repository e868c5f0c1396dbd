/* SPDX-License-Identifier: MIT */
#include "protocols.h"

#include "config.h"
#include "kolo.h"
#include "status.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bit;
} protocols_of[] = {{"simple", 0}, /* nothing else */
                    {"inline", KO_PROTO_INLINE},
                    {"reference", KO_PROTO_REFERENCE},
                    {"cma", KO_PROTO_CMA},
                    {"try-cma", KO_PROTO_TRY_CMA}};

enum { NPROTOCOLS = sizeof protocols_of / sizeof *protocols_of };

/* has_none: whether "simple" has been named. */
static int add(const char *name, size_t length, unsigned *protocols, bool *has_none)
{
    for (int i = 0; i < NPROTOCOLS; i++)
        if (strlen(protocols_of[i].name) == length && !memcmp(name, protocols_of[i].name, length)) {
            *protocols |= protocols_of[i].bit;
            *has_none |= !protocols_of[i].bit;
            return KOLO_OK;
        }
    return ko_fail(
        KOLO_E_INVALID,
        "KOLO_PROTO names \"%.*s\"; it lists ways of simple, inline, reference, cma and try-cma",
        (int)(length < 64 ? length : 64), name);
}

int ko_protocols_read(unsigned *protocols)
{
    const char *list = ko_config_text(KO_CONFIG_PROTO);
    bool has_none = false;
    int err = KOLO_OK;

    *protocols = 0;
    while (!err) {
        const size_t length = strcspn(list, ",");

        err = add(list, length, protocols, &has_none);
        list += length;
        if (!*list)
            break;
        list++;
    }
    if (!err && has_none && *protocols)
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_PROTO is \"%.64s\"; simple, which is none of the ways, stands alone",
                       ko_config_text(KO_CONFIG_PROTO));
    return err;
}
