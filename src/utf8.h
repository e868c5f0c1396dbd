/* SPDX-License-Identifier: MIT
 *
 * utf8.h: text whose bytes may be any. No state; any thread.
 */
#ifndef KO_UTF8_H
#define KO_UTF8_H

/* Length in bytes of the well-formed character that text begins with, 1 to 4; 0 if there is none.
 */
int ko_utf8_length(const char *text);

#endif
