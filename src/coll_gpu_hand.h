/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_hand.h: GPU memory in pieces is named by descriptors, which a rank hands to the others'
 * processes.
 */
#ifndef KO_COLL_GPU_HAND_H
#define KO_COLL_GPU_HAND_H

#include "gpu_share.h"

/* Hands over what a place of this rank's needs, if it does, to all other processes of the group;
 * one that ends meanwhile fails the group. With the engine's turn. */
int ko_coll_hand_over(kolo_group *group, struct ko_gpu_share *share,
                      const struct ko_gpu_place *place);

#endif
