/* SPDX-License-Identifier: MIT
 *
 * store_records.h: the file of a file store. It is a row of records, each a key and a value with
 * 32-bit lengths before them, as PyTorch's FileStore writes them; the last one of a key counts, and
 * a "-" before a key deletes it. Records are only ever appended, by whoever holds an exclusive lock
 * on the file, and read under a shared one.
 *
 * A process that is killed may leave half a record at the end. Nobody can be writing while the file
 * is locked, so a reader passes over such an end, and a writer cuts it off.
 */
#ifndef KO_STORE_RECORDS_H
#define KO_STORE_RECORDS_H

#include "clock.h"
#include "store_table.h"
#include "store_wire.h"

#include <limits.h>
#include <pthread.h>
#include <sys/types.h>

struct ko_records {
    pthread_mutex_t lock; /* for all of this; the caller of each function here holds it */
    bool is_stopped;
    struct ko_table *table; /* what the records say */
    struct ko_buffer fresh; /* read, and not understood yet */
    off_t read_to;          /* all records before it are in the table */
    dev_t device;
    ino_t inode;
    char path[PATH_MAX];
    char where[PATH_MAX + 32]; /* "the file store /tmp/x" */
};

/* Opens the file, locks it (how is LOCK_SH or LOCK_EX) and brings the table up to date; *fd is for
 * ko_records_leave, if this succeeds. */
int ko_records_enter(struct ko_records *file, int how, const ko_deadline *deadline, int *fd);
/* Unlocks the file and closes it. */
void ko_records_leave(int fd);

/* Lets other threads of this process in for a moment. KOLO_E_ABORTED once the store is stopped,
 * KOLO_E_TIMEOUT past the deadline; what names what was waited for. */
int ko_records_wait(struct ko_records *file, const ko_deadline *deadline, const char *what);

/* One more record, of prefix and key, to records. */
int ko_records_put(struct ko_buffer *records, const char *prefix, kolo_bytes key, kolo_bytes value);

/* Writes them behind the last whole record of the file, which has been entered by LOCK_EX. */
int ko_records_append(struct ko_records *file, int fd, struct ko_buffer *records);

#endif
