/* SPDX-License-Identifier: MIT
 *
 * Recursive descent, by RFC 8259 to the letter: what other readers refuse is refused here. Depth is
 * limited, since the stack is.
 */
#include "json_read.h"

#include "kolo.h"
#include "status.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

struct ko_json {
    enum ko_json_kind kind;
    double number;
    char *name; /* as a member */
    char *text;
    struct ko_json *first, *last, *next;
};

struct reader {
    const char *name, *text, *at;
    int depth;
};

static int read_value(struct reader *reader, struct ko_json **value);

static int wrong(const struct reader *reader, const char *what)
{
    int line = 1;

    for (const char *at = reader->text; at < reader->at; at++)
        line += *at == '\n';
    return ko_fail(KOLO_E_INVALID, "%s:%d: %s", reader->name, line, what);
}

static char skip(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
    return *reader->at;
}

static int expect(struct reader *reader, char c)
{
    char what[] = "'?' is missing";

    if (skip(reader) == c) {
        reader->at++;
        return KOLO_OK;
    }
    what[1] = c;
    return wrong(reader, what);
}

/* ---- strings ----------------------------------------------------------------------------- */

static bool read_hex(const char *at, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit =
            at[i] ? strchr(digits, at[i] >= 'A' && at[i] <= 'F' ? at[i] | 32 : at[i]) : NULL;

        if (!digit)
            return false;
        *code = *code << 4 | (uint32_t)(digit - digits);
    }
    return true;
}

/* Writes code as UTF-8; returns where it ends. */
static char *put_code(char *to, uint32_t code)
{
    static const uint32_t firsts[] = {0, 0xc0, 0xe0, 0xf0};
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;

    *to++ = (char)(firsts[more] | code >> 6 * more);
    while (more-- > 0)
        *to++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    return to;
}

/* \uXXXX, behind its u; two of them for what lies beyond 16 bits. */
static int read_code(struct reader *reader, char **to)
{
    uint32_t code, low;

    if (!read_hex(reader->at, &code) || code == 0)
        return wrong(reader, "\\u wants four hexadecimal digits, not all 0");
    reader->at += 4;
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || strncmp(reader->at, "\\u", 2) != 0 ||
            !read_hex(reader->at + 2, &low) || low < 0xdc00 || low > 0xdfff)
            return wrong(reader, "half of a surrogate pair");
        reader->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_code(*to, code);
    return KOLO_OK;
}

static int read_escape(struct reader *reader, char **to)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char letter = *++reader->at;
    const char *found = letter ? strchr(letters, letter) : NULL;

    if (letter == 'u') {
        reader->at++;
        return read_code(reader, to);
    }
    if (!found)
        return wrong(reader, "a backslash before what it cannot stand before");
    reader->at++;
    *(*to)++ = meanings[found - letters];
    return KOLO_OK;
}

/* Bytes up to the quote that ends the string, or to the text's end. */
static size_t length_of(const char *at)
{
    size_t n = 0;

    while (at[n] && at[n] != '"')
        n += at[n] == '\\' && at[n + 1] ? 2 : 1;
    return n;
}

/* No string becomes longer by being read. */
static int read_string(struct reader *reader, char **text)
{
    char *to, *made;
    int err = expect(reader, '"');

    if (err)
        return err;
    made = to = ko_alloc(length_of(reader->at) + 1, "a string");
    if (!made)
        return KOLO_E_NOMEM;
    while (*reader->at != '"' && !err)
        if ((unsigned char)*reader->at < 0x20)
            err = wrong(reader, "a string does not end on its line");
        else if (*reader->at == '\\')
            err = read_escape(reader, &to);
        else
            *to++ = *reader->at++;
    reader->at += !err;
    *to = '\0';
    if (!err)
        *text = made;
    else
        kolo_free(made);
    return err;
}

/* ---- values ------------------------------------------------------------------------------ */

static size_t digits(const char *at)
{
    return strspn(at, "0123456789");
}

static int read_number(struct reader *reader, struct ko_json *value)
{
    const char *at = reader->at + (*reader->at == '-');
    size_t whole = digits(at), fraction = 1, power = 1;

    if (*at == '0' && whole > 1)
        whole = 0;
    at += whole;
    if (*at == '.')
        at += 1 + (fraction = digits(at + 1));
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '+' || at[1] == '-');
        at += power = digits(at);
    }
    if (!whole || !fraction || !power)
        return wrong(reader, "this is no value");
    value->kind = KO_JSON_NUMBER;
    value->number = strtod(reader->at, NULL);
    if (!isfinite(value->number))
        return wrong(reader, "this number is too large");
    reader->at = at;
    return KOLO_OK;
}

static int read_word(struct reader *reader, struct ko_json *value)
{
    static const char *const words[] = {
        [KO_JSON_NULL] = "null", [KO_JSON_FALSE] = "false", [KO_JSON_TRUE] = "true"};

    for (int i = KO_JSON_NULL; i <= KO_JSON_TRUE; i++)
        if (!strncmp(reader->at, words[i], strlen(words[i]))) {
            value->kind = (enum ko_json_kind)i;
            reader->at += strlen(words[i]);
            return KOLO_OK;
        }
    return read_number(reader, value);
}

static void append(struct ko_json *value, struct ko_json *item)
{
    if (value->last)
        value->last->next = item;
    else
        value->first = item;
    value->last = item;
}

static int read_item(struct reader *reader, struct ko_json *value)
{
    struct ko_json *item = NULL;
    char *name = NULL;
    int err = KOLO_OK;

    if (value->kind == KO_JSON_OBJECT) {
        err = read_string(reader, &name);
        if (!err)
            err = expect(reader, ':');
    }
    if (!err)
        err = read_value(reader, &item);
    if (err) {
        kolo_free(name);
        return err;
    }
    item->name = name;
    append(value, item);
    return KOLO_OK;
}

/* An array or an object, from its bracket on. */
static int read_items(struct reader *reader, struct ko_json *value)
{
    const bool is_array = *reader->at == '[';
    const char end = is_array ? ']' : '}';
    int err;

    value->kind = is_array ? KO_JSON_ARRAY : KO_JSON_OBJECT;
    if (++reader->depth > DEEPEST)
        return wrong(reader, "too deep");
    reader->at++;
    if (skip(reader) == end) {
        reader->at++;
        reader->depth--;
        return KOLO_OK;
    }
    err = read_item(reader, value);
    while (!err && skip(reader) == ',') {
        reader->at++;
        err = read_item(reader, value);
    }
    reader->depth--;
    return err ? err : expect(reader, end);
}

static int read_value(struct reader *reader, struct ko_json **value)
{
    struct ko_json *made = ko_alloc(sizeof *made, "a value");
    int err;

    if (!made)
        return KOLO_E_NOMEM;
    switch (skip(reader)) {
    case '[':
    case '{':
        err = read_items(reader, made);
        break;
    case '"':
        made->kind = KO_JSON_STRING;
        err = read_string(reader, &made->text);
        break;
    default:
        err = read_word(reader, made);
    }
    if (!err)
        *value = made;
    else
        ko_json_free(made);
    return err;
}

/* ---- documents --------------------------------------------------------------------------- */

int ko_json_parse(const char *name, const char *text, struct ko_json **document)
{
    struct reader reader = {.name = name, .text = text, .at = text};
    struct ko_json *made;
    int err = read_value(&reader, &made);

    if (err)
        return err;
    if (skip(&reader)) {
        ko_json_free(made);
        return wrong(&reader, "something follows the document");
    }
    *document = made;
    return KOLO_OK;
}

/* What file still holds, to be freed; NULL with errno. */
static char *read_all(FILE *file)
{
    char *text = NULL;
    size_t length = 0;

    errno = ENODATA; /* in case it is empty */
    if (getdelim(&text, &length, '\0', file) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

int ko_json_read(const char *path, struct ko_json **document)
{
    FILE *file = fopen(path, "re");
    char *text = file ? read_all(file) : NULL;
    int err = text ? ko_json_parse(path, text, document)
                   : ko_fail(KOLO_E_INVALID, "%s: %s", path,
                             errno == ENODATA ? "the file is empty" : strerror(errno));

    if (file)
        fclose(file);
    free(text);
    return err;
}

void ko_json_free(struct ko_json *document)
{
    struct ko_json *next;

    for (struct ko_json *item = document ? document->first : NULL; item; item = next) {
        next = item->next;
        ko_json_free(item);
    }
    if (!document)
        return;
    kolo_free(document->name);
    kolo_free(document->text);
    kolo_free(document);
}

/* ---- asking ------------------------------------------------------------------------------ */

const struct ko_json *ko_json_member(const struct ko_json *object, const char *name)
{
    if (ko_json_kind(object) != KO_JSON_OBJECT)
        return NULL;
    for (const struct ko_json *item = object->first; item; item = item->next)
        if (!strcmp(item->name, name))
            return item;
    return NULL;
}

const struct ko_json *ko_json_first(const struct ko_json *value)
{
    return value ? value->first : NULL;
}

const struct ko_json *ko_json_next(const struct ko_json *item)
{
    return item ? item->next : NULL;
}

size_t ko_json_length(const struct ko_json *value)
{
    size_t length = 0;

    for (const struct ko_json *item = ko_json_first(value); item; item = item->next)
        length++;
    return length;
}

const char *ko_json_text(const struct ko_json *value)
{
    return value ? value->text : NULL;
}

double ko_json_number(const struct ko_json *value, double otherwise)
{
    return ko_json_kind(value) == KO_JSON_NUMBER ? value->number : otherwise;
}

enum ko_json_kind ko_json_kind(const struct ko_json *value)
{
    return value ? value->kind : KO_JSON_NULL;
}
