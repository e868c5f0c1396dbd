/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "log.h"
#include "status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const struct ko_config_entry ko_config_table[] = {
#define KO_CONFIG_ROW(id, type, standard, low, high, help) \
    [KO_CONFIG_##id] = {"KOLO_" #id, KO_CONFIG_TYPE_##type, standard, low, high, help},
    KO_CONFIG_LIST(KO_CONFIG_ROW)
#undef KO_CONFIG_ROW
};

const char *ko_config_type_name(enum ko_config_type type)
{
    static const char *const names[] = {"TEXT", "SECRET", "INT", "SIZE", "BOOL"};

    return names[type];
}

bool ko_config_is_set(enum ko_config_id id)
{
    const char *value = getenv(ko_config_table[id].name);

    return value && *value;
}

const char *ko_config_text(enum ko_config_id id)
{
    return ko_config_is_set(id) ? getenv(ko_config_table[id].name) : ko_config_table[id].standard;
}

/* Multiplies *number by what the suffix at *end says and moves *end past it. */
static void apply_suffix(char **end, int64_t *number)
{
    static const char suffixes[] = "KMG";
    int letter = **end & ~0x20; /* its capital; of a space, nothing */
    const char *suffix = letter ? strchr(suffixes, letter) : NULL;

    if (!suffix)
        return;
    for (const char *s = suffixes; s <= suffix; s++)
        if (__builtin_mul_overflow(*number, 1024, number))
            errno = ERANGE;
    (*end)++;
}

int ko_config_number(enum ko_config_id id, int64_t *value)
{
    const struct ko_config_entry *entry = &ko_config_table[id];
    const char *text = ko_config_text(id);
    char *end;
    int64_t number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (end != text && entry->type == KO_CONFIG_TYPE_SIZE)
        apply_suffix(&end, &number);
    if (end == text || *end || errno || number < entry->low || number > entry->high)
        return ko_fail(KOLO_E_INVALID, "%s is \"%s\"; it takes a whole number from %lld to %lld%s",
                       entry->name, text, (long long)entry->low, (long long)entry->high,
                       entry->type == KO_CONFIG_TYPE_SIZE ? " (K, M, G may follow)" : "");
    *value = number;
    return KOLO_OK;
}

int ko_config_whole(const char *name, const char *text, long low, long high, int *number)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high)
        return ko_fail(KOLO_E_INVALID, "%s is \"%.100s\"; it takes a whole number from %ld to %ld",
                       name, text, low, high);
    *number = (int)value;
    return KOLO_OK;
}

static bool is_known(const char *name, size_t length)
{
    for (int i = 0; i < KO_CONFIG_COUNT; i++)
        if (strlen(ko_config_table[i].name) == length &&
            !strncmp(ko_config_table[i].name, name, length))
            return true;
    return false;
}

int ko_config_check(void)
{
    int64_t ignored;

    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        int err = ko_config_is_number((enum ko_config_id)i)
                      ? ko_config_number((enum ko_config_id)i, &ignored)
                      : KOLO_OK;
        if (err)
            return err;
    }
    for (char **variable = environ; *variable; variable++) {
        size_t length = strcspn(*variable, "=");

        if (!strncmp(*variable, "KOLO_", 5) && !is_known(*variable, length))
            ko_log(KO_LOG_WARN, "%.*s is no variable of kolo's; kolo-info lists them", (int)length,
                   *variable);
    }
    return KOLO_OK;
}
