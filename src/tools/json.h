/* SPDX-License-Identifier: MIT
 *
 * json.h: text in JSON.
 */
#ifndef KO_JSON_H
#define KO_JSON_H

#include <stdio.h>

/* Prints text as a JSON string, U+FFFD in place of each byte that is not UTF-8. */
void ko_json_string(FILE *file, const char *text);

#endif
