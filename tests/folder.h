/* SPDX-License-Identifier: MIT
 *
 * folder.h: a test program's folder for files, and what it says on stderr. Asserts; for the test's
 * own thread.
 */
#ifndef FOLDER_H
#define FOLDER_H

#include <stddef.h>

/* For cmocka_run_group_tests: makes it, removes it with all that is in it. */
int folder_make(void **state);
int folder_remove(void **state);

/* The path of a file in it; good for four calls. */
const char *folder_path(const char *name);

void folder_write(const char *path, const void *bytes, size_t nbytes);

/* At most cap - 1 bytes of a file, as a string. */
size_t folder_read(const char *path, char *text, size_t cap);

/* From now on stderr is kept, until it is looked at: one line, of which sentence is part. */
void stderr_listen(void);
void stderr_assert(const char *sentence);

#endif
