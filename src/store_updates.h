/* SPDX-License-Identifier: MIT
 *
 * store_updates.h: of a store's session, what its client is told of the keys that it watches. Short
 * updates go out at once; long ones, and all behind them, are given in turns of the session's own,
 * so that whoever changes a value is not kept by those who watch it. Threads as store_session.h
 * says.
 */
#ifndef KO_STORE_UPDATES_H
#define KO_STORE_UPDATES_H

#include "store_session.h"

/* The longest that goes out at once. */
enum { KO_UPDATES_SHORT = 4 << 10 };

/* Notes an update. False: there is no room for it. */
bool ko_updates_note(struct ko_session *session, enum ko_change change, kolo_bytes key,
                     const struct ko_told *was, const struct ko_told *is);

/* Gives what its turn has time for; KO_AGAIN: there is more. Not within another reply. */
int ko_updates_give(struct ko_session *session);

/* Drops what its turn has time for; true when nothing is left. */
bool ko_updates_drop_some(struct ko_session *session);

#endif
