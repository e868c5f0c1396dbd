/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "log.h"
#include "status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const struct ko_config_entry ko_config_table[] = {
#define KO_CONFIG_ROW(id, type, standard, low, high, help) \
    [KO_CONFIG_##id] = {"KOLO_" #id, KO_CONFIG_TYPE_##type, standard, low, high, help},
    KO_CONFIG_LIST(KO_CONFIG_ROW)
#undef KO_CONFIG_ROW
};

enum { MOST_WORDS = 4, LIST_CAP = 64 };

/* NULL behind the last of each row; nothing for those that are no word. */
static const char *const words[KO_CONFIG_COUNT][MOST_WORDS + 1] = {
#define KO_CONFIG_WORDS(id, ...) [KO_CONFIG_##id] = {__VA_ARGS__},
    KO_CONFIG_WORD_LIST(KO_CONFIG_WORDS)
#undef KO_CONFIG_WORDS
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

int ko_config_parse(enum ko_config_id id, const char *text, int64_t *value)
{
    const struct ko_config_entry *entry = &ko_config_table[id];
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

int ko_config_number(enum ko_config_id id, int64_t *value)
{
    return ko_config_parse(id, ko_config_text(id), value);
}

int ko_config_timeout(int *timeout_ms)
{
    int64_t standard;
    int err = *timeout_ms < 0 ? ko_config_number(KO_CONFIG_TIMEOUT_MS, &standard) : KOLO_OK;

    if (!err && *timeout_ms < 0)
        *timeout_ms = (int)standard;
    return err;
}

int ko_config_deadline(int *timeout_ms, ko_deadline *deadline)
{
    const bool is_given = *timeout_ms >= 0;
    int err = ko_config_timeout(timeout_ms);

    *deadline = ko_deadline_in(*timeout_ms);
    deadline->is_given = is_given;
    return err;
}

/* "all, legacy, vmm or off" */
static void list_words(enum ko_config_id id, char list[LIST_CAP])
{
    size_t used = 0;

    for (const char *const *word = words[id]; *word; word++) {
        const char *before = word == words[id] ? "" : word[1] ? ", " : " or ";

        used += (size_t)snprintf(list + used, LIST_CAP - used, "%s%s", before, *word);
    }
}

int ko_config_word(enum ko_config_id id, const char **word)
{
    const char *text = ko_config_text(id);
    char list[LIST_CAP];

    for (const char *const *known = words[id]; *known; known++)
        if (!strcmp(text, *known)) {
            *word = *known;
            return KOLO_OK;
        }
    list_words(id, list);
    return ko_fail(KOLO_E_INVALID, "%s is \"%.100s\"; it takes %s", ko_config_table[id].name, text,
                   list);
}

int ko_config_check_one(enum ko_config_id id)
{
    const char *word;
    int64_t number;

    if (ko_config_is_number(id))
        return ko_config_number(id, &number);
    return words[id][0] ? ko_config_word(id, &word) : KOLO_OK;
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

int ko_config_port_range(const char *text, int *low, int *high)
{
    int first, last;
    int length = -1;

    if (!*text)
        return KOLO_OK;
    if (sscanf(text, "%5d-%5d%n", &first, &last, &length) != 2 || length != (int)strlen(text) ||
        first < 1 || first > last || last > 65535)
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_PORT_RANGE is \"%.100s\"; it takes two ports, like 30000-30999", text);
    *low = first;
    *high = last;
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
    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        int err = ko_config_check_one((enum ko_config_id)i);

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
