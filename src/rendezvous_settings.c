/* SPDX-License-Identifier: MIT */
#include "rendezvous_settings.h"

#include "config.h"
#include "group_wishes.h"
#include "status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Two ends of a link lay out its slots by the first two; the others decide who sends what in which
 * order. */
static const enum ko_config_id settings[] = {
    KO_CONFIG_SLOTS, KO_CONFIG_SLICE_BYTES,      KO_CONFIG_CHECK,  KO_CONFIG_DETERMINISTIC,
    KO_CONFIG_ALGO,  KO_CONFIG_CUDA_PIECE_BYTES, KO_CONFIG_ENCRYPT};

enum { NSETTINGS = sizeof settings / sizeof *settings, VALUE = 512 };

static const char *name_of(enum ko_config_id id)
{
    return ko_config_table[id].name;
}

/* As it is spelled, without what would end its line. */
static void read_own(enum ko_config_id id, char value[VALUE])
{
    snprintf(value, VALUE, "%.*s", (int)strcspn(ko_config_text(id), "\n"), ko_config_text(id));
}

void ko_settings_write(char *text, size_t nbytes)
{
    size_t used = 0;

    *text = 0;
    for (int i = 0; i < NSETTINGS && used < nbytes; i++) {
        char value[VALUE];

        read_own(settings[i], value);
        used +=
            (size_t)snprintf(text + used, nbytes - used, "%s=%s\n", name_of(settings[i]), value);
    }
}

/* False: it has no such line. */
static bool find(const char *text, enum ko_config_id id, char value[VALUE])
{
    const size_t length = strlen(name_of(id));

    for (const char *line = text; *line; line += *line == '\n') {
        const size_t whole = strcspn(line, "\n");

        if (whole > length && !strncmp(line, name_of(id), length) && line[length] == '=') {
            snprintf(value, VALUE, "%.*s", (int)(whole - length - 1), line + length + 1);
            return true;
        }
        line += whole;
    }
    return false;
}

/* Whether both ask for the same algorithms; what is none is told of when the group is made. */
static bool are_same_wishes(const char *a, const char *b)
{
    short rows[2][KO_NCOLLECTIVES];

    return !ko_wishes_read(a, rows[0]) && !ko_wishes_read(b, rows[1]) &&
           !memcmp(rows[0], rows[1], sizeof rows[0]);
}

/* However they are spelled: 128K is 131072. */
static bool are_same(enum ko_config_id id, const char *a, const char *b)
{
    int64_t numbers[2];

    if (!strcmp(a, b))
        return true;
    if (!ko_config_is_number(id))
        return are_same_wishes(a, b);
    return !ko_config_parse(id, a, &numbers[0]) && !ko_config_parse(id, b, &numbers[1]) &&
           numbers[0] == numbers[1];
}

int ko_settings_compare(const char *text, int rank, int own_rank)
{
    for (int i = 0; i < NSETTINGS; i++) {
        char theirs[VALUE], own[VALUE];

        read_own(settings[i], own);
        if (find(text, settings[i], theirs) && !are_same(settings[i], theirs, own))
            return ko_fail(KOLO_E_INVALID,
                           "rank %d has %s \"%.100s\", rank %d has \"%.100s\"; set it alike on all "
                           "ranks",
                           rank, name_of(settings[i]), theirs, own_rank, own);
    }
    return KOLO_OK;
}
