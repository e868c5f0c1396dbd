/* SPDX-License-Identifier: MIT
 *
 * json_read.h: a document of JSON as a tree of values, for tools that read what tools have written.
 * Every function takes NULL for a value that is not there, so that a path can be followed and its
 * end be asked once.
 */
#ifndef KO_JSON_READ_H
#define KO_JSON_READ_H

#include <stddef.h>

enum ko_json_kind {
    KO_JSON_NULL,
    KO_JSON_FALSE,
    KO_JSON_TRUE,
    KO_JSON_NUMBER,
    KO_JSON_STRING,
    KO_JSON_ARRAY,
    KO_JSON_OBJECT
};

struct ko_json;

/* Reads the whole file. KOLO_E_INVALID with file and line if it cannot be read or is not JSON. */
int ko_json_read(const char *path, struct ko_json **document);

/* The same of text, which `name` stands for in errors. */
int ko_json_parse(const char *name, const char *text, struct ko_json **document);

void ko_json_free(struct ko_json *document);

/* Of an object: the member called name. */
const struct ko_json *ko_json_member(const struct ko_json *object, const char *name);

/* Of an array or an object: its first value, and the one after an item of it. */
const struct ko_json *ko_json_first(const struct ko_json *value);
const struct ko_json *ko_json_next(const struct ko_json *item);
size_t ko_json_length(const struct ko_json *value);

/* NULL: it is no string. otherwise: it is no number. Text lives as long as the document. */
const char *ko_json_text(const struct ko_json *value);
double ko_json_number(const struct ko_json *value, double otherwise);
enum ko_json_kind ko_json_kind(const struct ko_json *value); /* KO_JSON_NULL for NULL */

#endif
