/* SPDX-License-Identifier: MIT
 *
 * error_file.h: the file in which a launcher looks for what a process that failed has to say:
 * TORCHELASTIC_ERROR_FILE, of kolorun and torchrun.
 */
#ifndef KO_ERROR_FILE_H
#define KO_ERROR_FILE_H

/* Writes text there, as torchrun reads it, unless there is such a file already: the first error is
 * the one to know. Without the variable, or if it cannot be done, nothing happens. Any thread. */
void ko_error_file_write(const char *text);

/* Removes what ko_error_file_write has written there, since the process goes on all the same; what
 * others have stays. Any thread. */
void ko_error_file_take_back(void);

#endif
