/* SPDX-License-Identifier: MIT
 *
 * launch_binding.h: which processors a rank may use. Only those that kolorun itself may use are
 * given away.
 */
#ifndef KO_LAUNCH_BINDING_H
#define KO_LAUNCH_BINDING_H

#include <sched.h>

enum ko_binding {
    KO_BIND_NONE,
    KO_BIND_CORE,    /* one core each, with all its hyperthreads; in turns if there are too few */
    KO_BIND_NUMA,    /* one NUMA node each, neighbouring ranks on the same one */
    KO_BIND_SOCKET,  /* the same of sockets */
    KO_BIND_HWTHREAD /* one processor each, in turns */
};

/* What local_rank of nprocs ranks gets out of `all`; system is where the kernel describes the
 * machine, "/sys/devices/system". All of it if the machine is not described there. */
void ko_binding_choose(enum ko_binding binding, const char *system, const cpu_set_t *all,
                       int local_rank, int nprocs, cpu_set_t *chosen);

/* "0-3,8" */
void ko_binding_describe(const cpu_set_t *set, char *text, int cap);

#endif
