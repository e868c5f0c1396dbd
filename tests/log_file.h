/* SPDX-License-Identifier: MIT
 *
 * log_file.h: what is logged while a test runs, by any thread. Asserts; for the test's own thread.
 */
#ifndef KO_TESTS_LOG_FILE_H
#define KO_TESTS_LOG_FILE_H

enum { LOG_LINE = 1024 };

/* From now on the log of that level goes to a file. */
void log_file_open(const char *level);
/* The log is as before. How many lines have that text; the first of them in line. */
int log_file_close(const char *text, char line[LOG_LINE]);

#endif
