/* SPDX-License-Identifier: MIT
 *
 * init_method.h: what the text given to kolo_group_join means.
 */
#ifndef KO_INIT_METHOD_H
#define KO_INIT_METHOD_H

#include "launcher.h"

/* text: NULL or "env://" for the environment of the process, or
 * tcp://host:port?rank=R&world_size=N, or file:///path?rank=R&world_size=N. KOLO_E_INVALID says
 * what is wrong. */
int ko_init_method_read(const char *text, struct ko_placement *placement);

#endif
