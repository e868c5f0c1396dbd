/* SPDX-License-Identifier: MIT
 *
 * A second engine of the group's: collectives need not wait for a message here, nor it for them,
 * unless the stream has them do so.
 */
#include "p2p_stream.h"

#include "log.h"
#include "p2p_gpu.h"

#include <string.h>

/* What a call gives. */
struct list {
    const kolo_p2p *ops;
    size_t n;
    bool is_on_gpu; /* any of them */
    bool is_held;   /* the stream is to wait for them */
};

/* A call's messages, which are one work to the user. */
struct ko_behind {
    struct kolo_work work;
    kolo_group *group;
    ko_p2p_carry *carry;
    struct ko_gpu_mark *mark; /* NULL: none is in GPU memory */
    struct ko_behind *next;   /* of those that are not done */
    struct ko_letter *letters;
    size_t nops;
    kolo_p2p ops[]; /* the letters are behind them */
};

/* ---- order ------------------------------------------------------------------------------- */

/* Whether two messages keep their order. Those of another tag do not: one of them may be received
 * only once the other end has something that is sent later. */
static bool is_of_one_way(const kolo_p2p *a, const kolo_p2p *b)
{
    return !a->is_send == !b->is_send && a->peer == b->peer && a->tag == b->tag;
}

static bool is_behind(const struct ko_behind *behind, const kolo_p2p *ops, size_t nops)
{
    for (size_t i = 0; i < behind->nops; i++)
        for (size_t k = 0; k < nops; k++)
            if (is_of_one_way(&behind->ops[i], &ops[k]))
                return true;
    return false;
}

/* Under listing: whether these would overtake others. */
static bool is_behind_any(const kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    const struct ko_behind *behind = group->first_behind;

    while (behind && !is_behind(behind, ops, nops))
        behind = behind->next;
    return behind;
}

static bool would_overtake(kolo_group *group, const struct list *list)
{
    bool would;

    pthread_mutex_lock(&group->listing);
    would = is_behind_any(group, list->ops, list->n);
    pthread_mutex_unlock(&group->listing);
    return would;
}

static void enlist(struct ko_behind *behind)
{
    kolo_group *group = behind->group;

    pthread_mutex_lock(&group->listing);
    behind->next = group->first_behind;
    group->first_behind = behind;
    pthread_mutex_unlock(&group->listing);
}

static void forget(struct ko_behind *behind)
{
    kolo_group *group = behind->group;
    struct ko_behind **at = &group->first_behind;

    pthread_mutex_lock(&group->listing);
    while (*at != behind)
        at = &(*at)->next;
    *at = behind->next;
    pthread_cond_broadcast(&group->fewer_behind);
    pthread_mutex_unlock(&group->listing);
}

/* ---- works ------------------------------------------------------------------------------- */

static void run_behind(struct kolo_work *work)
{
    struct ko_behind *behind = (struct ko_behind *)work;
    kolo_group *group = behind->group;
    int err = ko_group_check(group); /* it may have failed meanwhile */

    ko_log_set_rank(group->rank);
    if (!err)
        err = behind->carry(group, behind->ops, behind->nops, behind->letters, behind->mark);
    if (err && err != KOLO_E_TRUNCATED && err != KOLO_E_MISMATCH) /* its stream goes on */
        err = ko_group_fail(group, err, kolo_last_error());
    if (err == KOLO_E_TIMEOUT && atomic_load(&group->behind.nqueued) > 1)
        ko_log(KO_LOG_WARN, "behind it in the stream are other messages, which have not begun; "
                            "kolo_batch_async takes those together that wait for each other");
    forget(behind);
    ko_gpu_let_go(group->gpu, behind->mark);
    ko_work_complete(work, err);
}

static void await_behind(struct kolo_work *work, const ko_deadline *deadline,
                         const struct ko_works *others)
{
    ko_engine_await(&((struct ko_behind *)work)->group->behind, work, deadline, others);
}

static struct ko_behind *make(kolo_group *group, const struct list *list, ko_p2p_carry *carry)
{
    const size_t n = list->n;
    struct ko_behind *made =
        ko_work_new(sizeof *made + n * (sizeof *made->ops + sizeof *made->letters));

    if (!made)
        return NULL;
    made->work.run = run_behind;
    made->work.await = await_behind;
    made->work.place = &group->behind;
    made->group = group;
    made->carry = carry;
    made->mark = NULL;
    made->next = NULL;
    made->nops = n;
    made->letters = (struct ko_letter *)(void *)(made->ops + n);
    memcpy(made->ops, list->ops, n * sizeof *made->ops);
    return made;
}

/* Under ordering, so that works come in the order of their marks: the thread of those that are
 * there does without, since the driver may have this one wait until there is room in the stream. */
static int submit(struct ko_behind *behind, const struct list *list)
{
    kolo_group *group = behind->group;
    const bool is_held = list->is_held && ko_gpu_can_wait(group->gpu);
    int err = list->is_on_gpu ? ko_gpu_mark(group->gpu, is_held, &behind->mark) : KOLO_OK;

    if (err)
        return err;
    enlist(behind); /* before it may be done */
    err = ko_engine_submit(&group->behind, &behind->work);
    if (err) {
        forget(behind);
        ko_gpu_let_go(group->gpu, behind->mark);
    }
    return err;
}

/* *work: NULL if they need not come behind the stream, or behind others. */
static int queue(kolo_group *group, const struct list *list, ko_p2p_carry *carry, kolo_work **work)
{
    struct ko_behind *behind = NULL;
    int err = KOLO_OK;

    *work = NULL;
    pthread_mutex_lock(&group->ordering);
    if (list->is_held || would_overtake(group, list)) {
        behind = make(group, list, carry);
        err = behind ? submit(behind, list) : KOLO_E_NOMEM;
    }
    pthread_mutex_unlock(&group->ordering);
    if (!err && behind)
        *work = &behind->work;
    else if (behind)
        ko_work_release(&behind->work);
    return err;
}

int ko_p2p_start(kolo_group *group, const kolo_p2p *ops, size_t nops, bool is_on_gpu,
                 ko_p2p_carry *carry, kolo_work **work)
{
    const struct list list = {.ops = ops, .n = nops, .is_on_gpu = is_on_gpu, .is_held = is_on_gpu};
    int err = queue(group, &list, carry, work);

    if (!err && *work && is_on_gpu && !ko_gpu_can_wait(group->gpu))
        (void)kolo_work_wait(*work, -1); /* its stream cannot */
    return err;
}

/* ---- blocking ---------------------------------------------------------------------------- */

static int run_now(kolo_group *group, const struct list *list, ko_p2p_carry *carry,
                   struct ko_letter *letters)
{
    struct ko_gpu_mark *mark = NULL;
    int err = list->is_on_gpu ? ko_gpu_mark(group->gpu, false, &mark) : KOLO_OK;

    if (!err)
        err = carry(group, list->ops, list->n, letters, mark);
    ko_gpu_let_go(group->gpu, mark);
    return err;
}

int ko_p2p_run(kolo_group *group, const kolo_p2p *ops, size_t nops, bool is_on_gpu,
               ko_p2p_carry *carry, struct ko_letter *letters)
{
    const struct list list = {.ops = ops, .n = nops, .is_on_gpu = is_on_gpu};
    kolo_work *work = NULL;
    int err = queue(group, &list, carry, &work);

    if (err)
        return err;
    if (!work)
        return run_now(group, &list, carry, letters);
    err = kolo_work_wait(work, -1);
    kolo_work_free(work);
    return err;
}

/* ---- others first ------------------------------------------------------------------------ */

/* No deadline: each of those has its own, from when it begins, and an abort ends all. */
void ko_p2p_let_pass(kolo_group *group, const kolo_p2p *ops, size_t nops)
{
    pthread_mutex_lock(&group->listing);
    while (is_behind_any(group, ops, nops))
        pthread_cond_wait(&group->fewer_behind, &group->listing);
    pthread_mutex_unlock(&group->listing);
}
