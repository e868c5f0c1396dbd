/* SPDX-License-Identifier: MIT */
#include "group_wishes.h"

#include "status.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const collectives[] = {
#define COLLECTIVE_NAME(id, name) #name,
    KO_COLLECTIVE_LIST(COLLECTIVE_NAME)
#undef COLLECTIVE_NAME
};

struct row {
    enum ko_collective what;
    const char *name;
};

static const struct row rows_of_table[] = {
#define ROW(what, name, text, flags, why) {KO_##what, name},
    KO_ALGORITHM_LIST(ROW)
#undef ROW
};

enum { NROWS = sizeof rows_of_table / sizeof *rows_of_table };

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && !memcmp(text, word, length);
}

bool ko_name_is(const char *name, const char *text, size_t length)
{
    const char *end = text + length;

    for (;; name++, text++) {
        name += strspn(name, "_");
        while (text < end && *text == '_')
            text++;
        if (text == end || !*name)
            return text == end && !*name;
        if (tolower((unsigned char)*text) != *name)
            return false;
    }
}

int ko_collective_find(const char *text, size_t length)
{
    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        if (ko_name_is(collectives[i], text, length))
            return i;
    return -1;
}

static void append(char names[KO_NAMES_CAP], const char *name)
{
    const size_t used = strlen(names);

    snprintf(names + used, KO_NAMES_CAP - used, "%s%s", used ? ", " : "", name);
}

void ko_collectives_list(char names[KO_NAMES_CAP])
{
    *names = 0;
    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        append(names, collectives[i]);
}

/* text of so many bytes is no algorithm of this collective's, or of any (what < 0). */
static int fail_name(const char *text, size_t length, int what)
{
    const int shown = (int)(length < 64 ? length : 64);
    char names[KO_NAMES_CAP] = "";

    if (what < 0)
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_ALGO is \"%.*s\", which no collective has; kolo-info lists the "
                       "algorithms",
                       shown, text);
    for (int i = 0; i < NROWS; i++)
        if ((int)rows_of_table[i].what == what)
            append(names, rows_of_table[i].name);
    return ko_fail(KOLO_E_INVALID,
                   "KOLO_ALGO asks for %s by \"%.*s\", which it does not have; it has %s",
                   collectives[what], shown, text, names);
}

/* The same collective by one algorithm and by another. */
static int check_once(int before, int now)
{
    const char *const names[] = {before < 0 ? "" : rows_of_table[before].name,
                                 rows_of_table[now].name};

    if (before < 0 || !strcmp(names[0], names[1]))
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID, "KOLO_ALGO asks for %s by both \"%s\" and \"%s\"",
                   collectives[rows_of_table[now].what], names[0], names[1]);
}

/* An algorithm for one collective, or for all (what < 0). */
static int read_name(const char *text, size_t length, int what, short rows[KO_NCOLLECTIVES])
{
    bool is_known = false;
    int err = KOLO_OK;

    for (int i = 0; i < NROWS && !err; i++)
        if ((what < 0 || (int)rows_of_table[i].what == what) &&
            is_word(text, length, rows_of_table[i].name)) {
            err = check_once(rows[rows_of_table[i].what], i);
            rows[rows_of_table[i].what] = (short)i;
            is_known = true;
        }
    return is_known ? err : fail_name(text, length, what);
}

/* own: for the collective that is named, and else general: for all that have it. */
static int read_wish(const char *text, size_t length, short own[KO_NCOLLECTIVES],
                     short general[KO_NCOLLECTIVES])
{
    const char *equals = memchr(text, '=', length);
    const size_t before = equals ? (size_t)(equals - text) : 0;
    char names[KO_NAMES_CAP];
    int what;

    if (!equals)
        return read_name(text, length, -1, general);
    what = ko_collective_find(text, before);
    if (what < 0) {
        ko_collectives_list(names);
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_ALGO names \"%.*s\", which is no collective; there are %s",
                       (int)(before < 64 ? before : 64), text, names);
    }
    return read_name(equals + 1, length - before - 1, what, own);
}

int ko_wishes_read(const char *text, short rows[KO_NCOLLECTIVES])
{
    short general[KO_NCOLLECTIVES];
    int err = KOLO_OK;

    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        rows[i] = general[i] = -1;
    while (*text && !err) {
        const size_t length = strcspn(text, ",");

        err = read_wish(text, length, rows, general);
        text += length + (text[length] == ',');
    }
    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        if (rows[i] < 0)
            rows[i] = general[i];
    return err;
}
