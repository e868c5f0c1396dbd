/* SPDX-License-Identifier: MIT
 *
 * corpus.h: the inputs that are kept for a fuzz target, one file each, in a folder.
 */
#ifndef KO_TESTS_CORPUS_H
#define KO_TESTS_CORPUS_H

#include <stddef.h>
#include <stdint.h>

/* Gives each file's bytes to the target. How many there were; -1 if one cannot be read, or there is
 * no such folder. */
int corpus_replay(const char *folder, int (*target)(const uint8_t *data, size_t nbytes));

#endif
