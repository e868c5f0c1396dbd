/* SPDX-License-Identifier: MIT
 *
 * The KOLO_ variables as this environment has them. An unknown one is most often a typing error, so
 * the known name at the smallest edit distance is offered, if it is near enough to be meant.
 */
#include "info.h"

#include "kolo.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions and replacements of one letter that turn a into b, both < KO_NAME_CAP. */
static int edit_distance(const char *a, const char *b)
{
    int row[KO_NAME_CAP];
    int width = (int)strlen(b);

    for (int j = 0; j <= width; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];

        row[0] = i;
        for (int j = 1; j <= width; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[width];
}

static const char *nearest_name(const char *name)
{
    const char *nearest = NULL;
    int best = (int)(strlen(name) - strlen("KOLO_")) / 2 + 2; /* about half must be right */

    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        int distance = edit_distance(name, ko_config_table[i].name);

        if (distance < best) {
            best = distance;
            nearest = ko_config_table[i].name;
        }
    }
    return nearest;
}

static bool is_known(const char *name, size_t length)
{
    for (int i = 0; i < KO_CONFIG_COUNT; i++)
        if (strlen(ko_config_table[i].name) == length &&
            !memcmp(ko_config_table[i].name, name, length))
            return true;
    return false;
}

static void add_unknown(struct ko_variables *variables, const char *name, size_t length)
{
    struct ko_unknown *unknown = &variables->unknown[variables->nunknown];

    variables->nproblems++;
    if (variables->nunknown == KO_UNKNOWN_CAP)
        return;
    snprintf(unknown->name, sizeof unknown->name, "%.*s", (int)length, name);
    unknown->nearest = nearest_name(unknown->name);
    variables->nunknown++;
}

static void read_variable(struct ko_variable *variable, enum ko_config_id id)
{
    variable->entry = &ko_config_table[id];
    variable->value = ko_config_text(id);
    if (variable->entry->type == KO_CONFIG_TYPE_SECRET && *variable->value)
        variable->value = "(hidden)";
    variable->is_set = ko_config_is_set(id);
    variable->problem[0] = '\0';
    if (ko_variable_check(id))
        snprintf(variable->problem, sizeof variable->problem, "%s", kolo_last_error());
}

void ko_variables_read(struct ko_variables *variables)
{
    variables->nunknown = 0;
    variables->nproblems = 0;
    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        read_variable(&variables->list[i], (enum ko_config_id)i);
        variables->nproblems += variables->list[i].problem[0] != '\0';
    }
    for (char **pair = environ; *pair; pair++) {
        size_t length = strcspn(*pair, "=");

        if (!strncmp(*pair, "KOLO_", strlen("KOLO_")) && !is_known(*pair, length))
            add_unknown(variables, *pair, length);
    }
}
