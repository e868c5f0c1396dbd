/* SPDX-License-Identifier: MIT
 *
 * foreign_process.h: the process at the other end of a wire, and bytes from its memory to ours or
 * back, by one copy of the system's (process_vm_readv, process_vm_writev); between threads, a plain
 * one. The system may forbid it. Who the peer is, the kernel says (SO_PEERCRED), not the peer. Its
 * number may be given to another process when it ends, once all others have been given away: a word
 * of the peer's, which it has published in its window, is read with what is read, and before what
 * is written, unless that was done so short a time ago that they cannot have been. (A process that
 * becomes another program with sends that have not ended loses these all the same.)
 */
#ifndef KO_FOREIGN_PROCESS_H
#define KO_FOREIGN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ko_link;

struct ko_foreign_process {
    pid_t pid; /* 0: nothing is read there */
    uint64_t word, word_at;
    int64_t found_ns; /* when the word was found there last */
};

/* The one at the other end; 0 if it is none that can be named here. */
pid_t ko_foreign_pid(const struct ko_link *link);

/* Whether the word is there: pid is 0 if not. */
void ko_foreign_process_find(struct ko_foreign_process *process, pid_t pid, uint64_t word,
                             uint64_t word_at);

/* 0 if all bytes have been copied; ESRCH if the process is not there any more; or another errno,
 * where only these bytes cannot be, and some may have been. */
int ko_foreign_process_read(struct ko_foreign_process *process, uint64_t address, void *to,
                            size_t nbytes);
int ko_foreign_process_write(struct ko_foreign_process *process, uint64_t address, const void *from,
                             size_t nbytes);

/* Whether it is there: 0 or an errno as above. */
int ko_foreign_process_look(struct ko_foreign_process *process);

#endif
