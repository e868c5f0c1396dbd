/* SPDX-License-Identifier: MIT
 *
 * Messages that a graph takes in. Their two ends find each other by letters while they are being
 * captured: so the receiver knows where a message will lie, and both know its number, which says
 * what words are its. Afterwards only streams wait for each other: the receiver's until the message
 * is there, which it copies, the sender's until it has been taken. All that a call sends is said to
 * be there before it waits for anything, and a message is said to be taken before the call waits
 * for the next, so that ranks may exchange messages. A rank's message to itself is a copy, since
 * both its ends are in one call: of a single one the letter would wait for the other for ever.
 */
#include "p2p_gpu_graph.h"

#include "gpu_batch.h"
#include "group_watch.h"
#include "p2p_gpu.h"
#include "p2p_stream.h"
#include "status.h"

#include <stdlib.h>

struct ko_p2p_graph {
    kolo_group *group;
    size_t n;
    const kolo_p2p *ops;
    struct ko_gpu_handover *handover; /* of what is sent, while the letters are under way */
    struct ko_placed placed[];
};

/* ---- beginning ------------------------------------------------------------------------------- */

static int refuse(const char *why)
{
    return ko_fail(KOLO_E_UNSUPPORTED, "messages cannot be captured for a graph: %s", why);
}

static int find_any_on_host(kolo_group *group, const kolo_p2p *ops, size_t nops, bool *is_any)
{
    bool is_on_gpu;
    int err = KOLO_OK;

    *is_any = false;
    for (size_t i = 0; i < nops && !err; i++)
        if (ops[i].count) {
            err = ko_gpu_holds(group->gpu, ops[i].buffer, &is_on_gpu);
            *is_any |= !is_on_gpu;
        }
    return err;
}

/* Whether each of a call's messages to a rank has words of its own. */
static bool are_too_many(const kolo_p2p *ops, size_t nops)
{
    size_t counts[KO_FOLD_MOST] = {0};
    bool are = false;

    for (size_t i = 0; i < nops; i++)
        are |= ops[i].is_send && ++counts[ops[i].peer] > KO_GPU_MESSAGES;
    return are;
}

static int check(kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    bool is_any_on_host;
    int err;

    if (!atomic_load(&group->places))
        return refuse("the ranks do not reach each other's GPU memory");
    if (group->hosts->n > 1)
        return refuse("the group has ranks on several hosts");
    err = find_any_on_host(group, ops, nops, &is_any_on_host);
    if (err)
        return err;
    if (is_any_on_host)
        return refuse("some of a batch are in host memory");
    return are_too_many(ops, nops) ? refuse("more than 64 of a batch go to one rank") : KOLO_OK;
}

/* What the other rank cannot reach it is told so, and refuses. */
static void fill(struct ko_p2p_graph *graph, size_t i)
{
    const kolo_p2p *op = &graph->ops[i];
    struct ko_placed *placed = &graph->placed[i];

    placed->is_captured = true;
    if (op->is_send && op->count &&
        !ko_places_describe_captured(graph->group, op, ko_p2p_bytes(op), graph->handover,
                                     &placed->place))
        placed->place = (struct ko_gpu_place){.kind = KO_GPU_HOST};
}

/* is_taken: what has been need not be handed over again. */
static void end(const struct ko_p2p_graph *graph, bool is_taken)
{
    ko_gpu_handover_end(graph->handover);
    for (size_t i = 0; i < graph->n; i++)
        if (graph->ops[i].is_send)
            ko_places_end(graph->group, graph->ops[i].peer, &graph->placed[i].place, is_taken);
}

static int describe(struct ko_p2p_graph *graph)
{
    kolo_group *group = graph->group;
    int err = ko_gpu_handover_new(&graph->handover);

    if (err)
        return err;
    for (size_t i = 0; i < graph->n; i++)
        fill(graph, i);
    err = ko_gpu_handover_start(graph->handover, &group->endpoint->crew);
    if (err)
        end(graph, false);
    return err;
}

int ko_p2p_graph_begin(kolo_group *group, const kolo_p2p *ops, size_t nops,
                       struct ko_p2p_graph **graph_out)
{
    struct ko_p2p_graph *graph;
    int err = check(group, ops, nops);

    if (!err)
        err = ko_group_watch(group, KO_GPU_GRAPHS);
    if (err)
        return err;
    graph = ko_alloc(sizeof *graph + nops * sizeof *graph->placed, "messages of a graph");
    if (!graph)
        return KOLO_E_NOMEM;
    graph->group = group;
    graph->n = nops;
    graph->ops = ops;
    err = describe(graph);
    if (err) {
        free(graph);
        return err;
    }
    ko_p2p_let_pass(group, ops, nops);
    *graph_out = graph;
    return KOLO_OK;
}

struct ko_placed *ko_p2p_graph_placed(struct ko_p2p_graph *graph, size_t i)
{
    return &graph->placed[i];
}

/* ---- into the stream ------------------------------------------------------------------------- */

/* Until the peer has done its part, which is another launch's next. */
static int await(kolo_group *group, int peer, enum ko_gpu_message_word word, uint64_t seq)
{
    const ko_cu_ptr at = ko_gpu_share_message_word(group->share, group->rank, peer, word, seq);
    struct ko_gpu_batch batch = ko_gpu_batch(group->gpu, ko_gpu_user_stream(group->gpu));

    ko_gpu_batch_say(&batch, KO_GPU_GRAPHS, ko_awaited_of_message(peer));
    ko_gpu_batch_await(&batch, at);
    ko_gpu_batch_put(&batch, at, 0);
    ko_gpu_batch_say(&batch, KO_GPU_GRAPHS, 0);
    return ko_gpu_batch_end(&batch);
}

/* Adds a word of the peer's to those that are to be told; a full list goes. */
static int add(kolo_group *group, struct ko_tell *tell, ko_cu_ptr word)
{
    int err = KOLO_OK;

    if (tell->n == KO_FOLD_MOST) {
        err = ko_cuda_tell(*tell, ko_gpu_user_stream(group->gpu));
        tell->n = 0;
    }
    tell->given_up = ko_gpu_share_given_up(group->share, group->rank);
    tell->words[tell->n++] = word;
    return err;
}

/* Whether op i is a message to another rank. */
static bool is_sent(const struct ko_p2p_graph *graph, size_t i)
{
    const kolo_p2p *op = &graph->ops[i];

    return op->is_send && op->count && op->peer != graph->group->rank;
}

static int tell_sent(const struct ko_p2p_graph *graph, const struct ko_letter *letters)
{
    kolo_group *group = graph->group;
    struct ko_tell tell = {.n = 0};
    int err = KOLO_OK;

    for (size_t i = 0; i < graph->n && !err; i++)
        if (is_sent(graph, i))
            err = add(group, &tell,
                      ko_gpu_share_message_word(group->share, letters[i].peer, group->rank,
                                                KO_GPU_SENT, letters[i].seq));
    return err || !tell.n ? err : ko_cuda_tell(tell, ko_gpu_user_stream(group->gpu));
}

static int copy(kolo_group *group, const struct ko_placed *placed, void *buffer)
{
    const struct ko_cuda *cuda = ko_gpu_driver(group->gpu);

    if (placed->at == (uintptr_t)buffer)
        return KOLO_OK;
    return ko_cuda_check(
        cuda,
        cuda->copy((uintptr_t)buffer, placed->at, placed->nbytes, ko_gpu_user_stream(group->gpu)),
        "a message on the GPU cannot be copied");
}

static int take(kolo_group *group, const struct ko_placed *placed, void *buffer)
{
    const int from = placed->from;
    struct ko_tell tell = {.n = 0};
    int err;

    if (from == group->rank)
        return copy(group, placed, buffer);
    err = await(group, from, KO_GPU_SENT, placed->seq);
    if (!err)
        err = copy(group, placed, buffer);
    if (!err)
        err = add(
            group, &tell,
            ko_gpu_share_message_word(group->share, from, group->rank, KO_GPU_TAKEN, placed->seq));
    return err ? err : ko_cuda_tell(tell, ko_gpu_user_stream(group->gpu));
}

static int put_all(const struct ko_p2p_graph *graph, const struct ko_letter *letters)
{
    kolo_group *group = graph->group;
    int err = tell_sent(graph, letters);

    for (size_t i = 0; i < graph->n && !err; i++)
        if (!graph->ops[i].is_send && graph->placed[i].nbytes)
            err = take(group, &graph->placed[i], graph->ops[i].buffer);
    for (size_t i = 0; i < graph->n && !err; i++)
        if (is_sent(graph, i))
            err = await(group, graph->ops[i].peer, KO_GPU_TAKEN, letters[i].seq);
    return err;
}

int ko_p2p_graph_end(struct ko_p2p_graph *graph, const struct ko_letter *letters, int err)
{
    struct ko_gpu *gpu = graph->group->gpu;

    end(graph, !err);
    if (!err)
        err = ko_gpu_enter(gpu);
    if (!err) {
        err = put_all(graph, letters);
        ko_gpu_leave(gpu);
    }
    ko_gpu_tidy(gpu);
    free(graph);
    return err;
}
