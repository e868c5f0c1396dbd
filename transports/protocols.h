/* SPDX-License-Identifier: MIT
 *
 * protocols.h: the ways of a slice through windows, by KOLO_PROTO. A place of the window takes any
 * slice; what else a sender may do is said by the kind of its frames, so the two ends need not
 * agree.
 */
#ifndef KO_PROTOCOLS_H
#define KO_PROTOCOLS_H

/* Bits of a set. */
enum ko_protocol {
    KO_PROTO_INLINE = 1,    /* short slices beside their flag, in one line */
    KO_PROTO_REFERENCE = 2, /* memory of kolo_mem_alloc stays where it is (reference.h) */
    KO_PROTO_CMA = 4,       /* so does any memory, if the peer can read it (foreign.h) */
    KO_PROTO_TRY_CMA = 8    /* so does what the peer just moves, where that is sooner */
};

/* The set that KOLO_PROTO names. KOLO_E_INVALID: a name in it is none. */
int ko_protocols_read(unsigned *protocols);

#endif
