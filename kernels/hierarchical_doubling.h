/* SPDX-License-Identifier: MIT
 *
 * hierarchical_doubling.h: all_reduce over many hosts in few steps. Lanes are those of
 * hierarchical.h; between the hosts their carriers meet as the ranks of doubling.h do: log2(hosts)
 * steps, in each of which a host sends the buffer once.
 */
#ifndef KO_HIERARCHICAL_DOUBLING_H
#define KO_HIERARCHICAL_DOUBLING_H

#include "doubling.h"
#include "hierarchical.h"

#define LANE(lane) slice_of(chunk_of(v->count, v->hosts->least, lane), v->slice, s)

/* Each host adds up inside, lane by lane, each carrier a lane; those of a lane join what they have,
 * and give the result to their hosts. */
KO_FN void hierarchical_doubling_all_reduce(verbs *v)
{
    const struct ko_hosts *hosts = v->hosts;
    const int host = hosts->host[v->rank], place = hosts->place[v->rank], lanes = hosts->least;
    const int size = host_size(hosts, host);
    const int *mates = hosts->ranks + hosts->begins[host];

    v->by_host = true; /* a lane's carriers may be in another order than their hosts */
    for (size_t s = 0; s < slices_of(chunk_of(v->count, lanes, 0).count, v->slice); s++) {
        for (int lane = 0; lane < lanes; lane++)
            if (lane != place)
                send(v, mates[lane], IN, LANE(lane));
        if (place < lanes && size > 1)
            reduce_from(v, mates, size, LANE(place), LANE(place), hosts->n == 1);
        if (place < lanes && hosts->n > 1)
            doubling_slice(v, place, size > 1 ? OUT : IN, LANE(place));
        if (place < lanes)
            hierarchical_tell(v, -1, LANE(place));
        for (int lane = 0; lane < lanes; lane++)
            if (lane != place)
                recv(v, mates[lane], LANE(lane));
    }
}

#undef LANE

#endif
