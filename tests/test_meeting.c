/* SPDX-License-Identifier: MIT
 *
 * How ranks get to one store without an address: PMI against a small process manager in a thread,
 * one that answers wrong, one that goes away; Slurm's first node; names that name servers are late
 * with.
 */
#include "folder.h"
#include "kolo.h"
#include "log_file.h"
#include "meeting.h"
#include "pmi.h"
#include "ranks.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3, PATIENCE_MS = 60000, SHORT_MS = 200 };

/* ---- names ----------------------------------------------------------------------------------- */

static atomic_int refusals; /* of again.test, before it is an address */
static atomic_bool is_silent;

/* In libc's place: names as name servers of all kinds have them. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*const real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
            RTLD_NEXT, "getaddrinfo");

    if (!host || !strstr(host, ".test") || (hints->ai_flags & AI_NUMERICHOST))
        return real(host, service, hints, list);
    if (!strcmp(host, "again.test") && atomic_fetch_sub(&refusals, 1) > 0)
        return EAI_AGAIN;
    while (!strcmp(host, "silent.test") && atomic_load(&is_silent))
        usleep(1000);
    if (!strcmp(host, "none.test"))
        return EAI_NONAME;
    return real(strcmp(host, "loop.test") != 0 ? "127.0.0.1" : "127.0.1.1", service, hints, list);
}

static void *speak(void *unused)
{
    usleep(SHORT_MS * 1000);
    atomic_store(&is_silent, false);
    return unused;
}

/* ---- a process manager ----------------------------------------------------------------------- */

/* Serves the ends of all ranks in turns, which the order of PMI's calls permits. */
struct manager {
    int fds[RANKS];
    int n;
    const char *break_at; /* the request that is answered by broken_answer; NULL: none */
    const char *broken_answer;
    char value[KO_PMI_TEXT];
};

static bool read_request(int fd, char line[1024])
{
    size_t used = 0;

    while (used < 1023 && read(fd, line + used, 1) == 1)
        if (line[used++] == '\n') {
            line[used - 1] = 0;
            return true;
        }
    return false;
}

static void answer(int fd, const char *text)
{
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        fprintf(stderr, "the answer was not sent\n");
}

/* Answers one request of a rank, but that to barrier_in. False: it has gone. */
static bool serve(struct manager *manager, int fd)
{
    char line[1024], reply[1200];
    const char *value;

    if (!read_request(fd, line))
        return false;
    value = strstr(line, " value=");
    if (value)
        snprintf(manager->value, sizeof manager->value, "%.250s", value + 7);
    if (manager->break_at && strstr(line, manager->break_at)) {
        answer(fd, manager->broken_answer);
        return *manager->broken_answer;
    }
    if (strstr(line, "cmd=init"))
        answer(fd, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (strstr(line, "cmd=get_my_kvsname"))
        answer(fd, "cmd=my_kvsname kvsname=kvs_1\n");
    else if (strstr(line, "cmd=put kvsname=kvs_1 key=kolo"))
        answer(fd, "cmd=put_result rc=0 msg=success\n");
    else if (strstr(line, "cmd=get kvsname=kvs_1 key=kolo")) {
        snprintf(reply, sizeof reply, "cmd=get_result rc=0 msg=success value=%s\n", manager->value);
        answer(fd, reply);
    } else if (strstr(line, "cmd=finalize"))
        answer(fd, "cmd=finalize_ack\n");
    return true;
}

static void *manage(void *argument)
{
    struct manager *manager = argument;
    /* init, kvsname, put on rank 0, barrier */
    for (int rank = 0; rank < manager->n; rank++)
        for (int i = 0; i < (rank == 0 ? 4 : 3); i++)
            if (!serve(manager, manager->fds[rank]))
                goto out;
    for (int rank = 0; rank < manager->n; rank++)
        answer(manager->fds[rank], "cmd=barrier_out rc=0\n");
    for (int rank = 0; rank < manager->n; rank++)
        for (int i = 0; i < (rank == 0 ? 1 : 2); i++)
            serve(manager, manager->fds[rank]);
out:
    for (int rank = 0; rank < manager->n; rank++)
        close(manager->fds[rank]);
    return NULL;
}

static void start_manager(struct manager *manager, int ends[RANKS], pthread_t *thread)
{
    for (int rank = 0; rank < manager->n; rank++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        manager->fds[rank] = pair[0];
        ends[rank] = pair[1];
    }
    assert_int_equal(pthread_create(thread, NULL, manage, manager), 0);
}

/* ---- PMI ------------------------------------------------------------------------------------- */

struct member {
    struct ko_placement placement;
    int err;
    char text[600];
};

/* Joins the store and leaves a mark there. */
static void *meet(void *argument)
{
    struct member *member = argument;
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    kolo_store *store;
    const char *const keys[] = {"0", "1", "2"};
    char key[16];

    member->err = ko_meeting_open(&member->placement, &deadline, &store);
    if (member->err) {
        snprintf(member->text, sizeof member->text, "%s", kolo_last_error());
        return NULL;
    }
    snprintf(key, sizeof key, "%d", member->placement.rank);
    member->err = kolo_store_set(store, key, (kolo_bytes){"x", 1});
    if (!member->err)
        member->err = kolo_store_wait(store, keys, (size_t)member->placement.size, PATIENCE_MS);
    if (member->placement.rank == 0)
        usleep(100000); /* the others are let go by the same store */
    kolo_store_close(store);
    return NULL;
}

static void run_members(struct member *members, int n)
{
    pthread_t threads[RANKS];

    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, meet, &members[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void ranks_meet_over_pmi(void **state)
{
    struct member members[RANKS] = {0};
    struct manager manager = {.n = RANKS};
    pthread_t thread;
    int ends[RANKS];

    (void)state;
    for (int local = 0; local < 2; local++) {
        start_manager(&manager, ends, &thread);
        for (int i = 0; i < RANKS; i++)
            members[i].placement = (struct ko_placement){.rank = i,
                                                         .size = RANKS,
                                                         .local_size = local ? RANKS : -1,
                                                         .meeting = KO_MEET_PMI,
                                                         .pmi_fd = ends[i]};
        run_members(members, RANKS);
        pthread_join(thread, NULL);
        for (int i = 0; i < RANKS; i++) {
            assert_int_equal(members[i].err, 0);
            close(ends[i]);
        }
        if (local)
            assert_non_null(strstr(manager.value, "[127.0.0.1]:"));
    }
}

static void a_rank_0_that_cannot_serve_is_said(void **state)
{
    struct member members[2] = {0};
    struct manager manager = {.n = 2};
    pthread_t thread;
    int ends[RANKS];

    (void)state;
    setenv("KOLO_IFADDR", "192.0.2.1", 1); /* of nobody */
    start_manager(&manager, ends, &thread);
    for (int i = 0; i < 2; i++)
        members[i].placement = (struct ko_placement){
            .rank = i, .size = 2, .local_size = -1, .meeting = KO_MEET_PMI, .pmi_fd = ends[i]};
    run_members(members, 2);
    pthread_join(thread, NULL);
    unsetenv("KOLO_IFADDR");
    assert_int_equal(members[0].err, KOLO_E_SYSTEM);
    assert_non_null(strstr(members[0].text, "192.0.2.1"));
    assert_int_equal(members[1].err, KOLO_E_PEER_LOST);
    assert_non_null(strstr(members[1].text, "rank 0 cannot serve the store"));
    close(ends[0]);
    close(ends[1]);
}

/* One rank, whose manager answers one request in its own way. */
static void expect_refusal(const char *break_at, const char *broken_answer, int rank, int code,
                           const char *why)
{
    struct manager manager = {.n = 1, .break_at = break_at, .broken_answer = broken_answer};
    ko_deadline deadline = ko_deadline_in(PATIENCE_MS);
    char text[KO_PMI_TEXT] = "value";
    int ends[RANKS];
    pthread_t thread;
    int err;

    start_manager(&manager, ends, &thread);
    err = ko_pmi_share(ends[0], rank, "kolo", text, &deadline);
    if (err != code || !strstr(kolo_last_error(), why))
        fail_msg("%s: status %d, %s", break_at, err, kolo_last_error());
    close(ends[0]);
    pthread_join(thread, NULL);
}

static void wrong_answers_of_pmi_are_refused(void **state)
{
    char endless[2000];

    (void)state;
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = 0;
    expect_refusal("init", "cmd=response_to_init rc=-1\n", 0, KOLO_E_PROTOCOL,
                   "cmd=init pmi_version=1 pmi_subversion=1 was answered by "
                   "\"cmd=response_to_init rc=-1\"");
    expect_refusal("init", "hello\n", 0, KOLO_E_PROTOCOL, "was answered by \"hello\"");
    expect_refusal("init", "\n", 0, KOLO_E_PROTOCOL, "was answered by \"\"");
    expect_refusal("init", endless, 0, KOLO_E_PROTOCOL, "a line of more than 1024 bytes");
    expect_refusal("init", "", 0, KOLO_E_PEER_LOST, "the launcher does not answer");
    expect_refusal("get_my_kvsname", "", 0, KOLO_E_PEER_LOST,
                   "no answer to \"cmd=get_my_kvsname\": the launcher has gone");
    expect_refusal("get_my_kvsname", "cmd=my_kvsname\n", 0, KOLO_E_PROTOCOL, "was answered by");
    expect_refusal("put", "cmd=put_result rc=1\n", 0, KOLO_E_PROTOCOL, "cmd=put");
    expect_refusal("barrier_in", "cmd=barrier_out rc=1\n", 0, KOLO_E_PROTOCOL, "cmd=barrier_in");
}

/* The manager answers nothing after the first two requests: a rank has not come. */
static void missing_ranks_over_pmi_are_a_timeout(void **state)
{
    static const char answers[] = "cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=k\n";
    ko_deadline deadline = ko_deadline_in(SHORT_MS);
    char text[KO_PMI_TEXT];
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    answer(pair[0], answers);
    assert_int_equal(ko_pmi_share(pair[1], 1, "kolo", text, &deadline), KOLO_E_TIMEOUT);
    assert_non_null(
        strstr(kolo_last_error(), "waited 200 ms over PMI (cmd=barrier_in) for all ranks to come"));
    assert_non_null(strstr(kolo_last_error(), "With KOLO_MASTER=host:port of rank 0"));
    close(pair[0]);
    close(pair[1]);
}

/* The same from outside: who waited is named, and how long. */
static void a_rank_that_waits_over_pmi_is_named(void **state)
{
    static const char answers[] = "cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=k\n";
    struct ko_placement placement = {
        .rank = 1, .size = 3, .local_size = -1, .meeting = KO_MEET_PMI};
    ko_deadline deadline = ko_deadline_in(SHORT_MS);
    kolo_store *store;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    answer(pair[0], answers);
    placement.pmi_fd = pair[1];
    assert_int_equal(ko_meeting_open(&placement, &deadline, &store), KOLO_E_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "rank 1 of 3, "));
    assert_non_null(strstr(kolo_last_error(), " ms after it began to meet the others: waited 200"));
    close(pair[0]);
    close(pair[1]);
}

/* ---- Slurm's first node ---------------------------------------------------------------------- */

static void set_node0(struct member *members, int n, const char *host, int nnodes)
{
    int port = ranks_reserve_port();

    for (int i = 0; i < n; i++) {
        members[i].placement = (struct ko_placement){.rank = i,
                                                     .size = n,
                                                     .local_size = -1,
                                                     .nnodes = nnodes,
                                                     .meeting = KO_MEET_NODE0,
                                                     .port = port};
        snprintf(members[i].placement.host, sizeof members[i].placement.host, "%s", host);
    }
}

static void ranks_meet_at_the_first_node(void **state)
{
    struct member members[RANKS] = {0};

    (void)state;
    /* on one node its name need not be known */
    set_node0(members, RANKS, "none.test", 1);
    run_members(members, RANKS);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(members[i].err, 0);
    /* nor does the node itself look for its name */
    set_node0(members, 1, "none.test", 2);
    run_members(members, 1);
    assert_int_equal(members[0].err, 0);
    set_node0(members, 2, "loop.test", 2);
    run_members(members, 2);
    assert_int_equal(members[0].err, 0);
    assert_int_equal(members[1].err, 0);
    set_node0(members, 2, "none.test", 2);
    run_members(members + 1, 1);
    assert_int_equal(members[1].err, KOLO_E_SYSTEM);
    assert_non_null(
        strstr(members[1].text, "rank 0 is on node none.test, which has no address here"));
    /* a name server that is just then not there is asked again */
    set_node0(members, 2, "again.test", 2);
    setenv("KOLO_IFADDR", "127.0.0.1", 1);
    atomic_store(&refusals, 4);
    run_members(members, 2);
    assert_int_equal(members[0].err, 0);
    assert_int_equal(members[1].err, 0);
    unsetenv("KOLO_IFADDR");
}

/* ---- an address by name ---------------------------------------------------------------------- */

static void set_rank0(struct member *members, int n, const char *host)
{
    set_node0(members, n, host, 2);
    for (int i = 0; i < n; i++)
        members[i].placement.meeting = KO_MEET_RANK0;
}

/* Its machine may have its name later than the ranks begin, and the others' server before. */
static void rank_0_need_not_know_its_own_name(void **state)
{
    struct member members[2] = {0};

    (void)state;
    setenv("KOLO_IFADDR", "127.0.0.1", 1);
    atomic_store(&refusals, 4);
    set_rank0(members, 2, "again.test");
    run_members(members, 2);
    assert_int_equal(members[0].err, 0);
    assert_int_equal(members[1].err, 0);
    set_rank0(members, 1, "none.test");
    run_members(members, 1);
    assert_int_equal(members[0].err, 0);
    unsetenv("KOLO_IFADDR");
}

/* However long the look-up takes. */
static void a_silent_name_server_keeps_nobody(void **state)
{
    struct member members[2] = {0};
    pthread_t speaker;
    kolo_store *store;

    (void)state;
    atomic_store(&is_silent, true);
    for (int is_server = 0; is_server < 2; is_server++) {
        assert_int_equal(kolo_store_open_tcp("silent.test", 1, is_server, SHORT_MS, &store),
                         KOLO_E_TIMEOUT);
        assert_non_null(strstr(kolo_last_error(), "silent.test"));
        assert_non_null(strstr(kolo_last_error(), "the name server is silent"));
    }
    /* nor rank 0 from serving; and an answer that comes in time is one */
    setenv("KOLO_IFADDR", "127.0.0.1", 1);
    set_rank0(members, 1, "silent.test");
    run_members(members, 1);
    assert_int_equal(members[0].err, 0);
    set_rank0(members, 2, "silent.test");
    assert_int_equal(pthread_create(&speaker, NULL, speak, NULL), 0);
    run_members(members, 2);
    assert_int_equal(members[0].err, 0);
    assert_int_equal(members[1].err, 0);
    unsetenv("KOLO_IFADDR");
    pthread_join(speaker, NULL);
}

/* And the log has it while there is still time to wait. */
static void a_silent_name_server_is_named(void **state)
{
    char line[LOG_LINE];
    kolo_store *store;

    (void)state;
    log_file_open("WARN");
    atomic_store(&is_silent, true);
    assert_int_equal(kolo_store_open_tcp("silent.test", 1, 0, 1500, &store), KOLO_E_TIMEOUT);
    atomic_store(&is_silent, false);
    assert_int_equal(log_file_close("the address of \"silent.test\" is still looked up", line), 1);
    assert_non_null(strstr(line, "the name server is silent"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_over_pmi),
        cmocka_unit_test(a_rank_0_that_cannot_serve_is_said),
        cmocka_unit_test(wrong_answers_of_pmi_are_refused),
        cmocka_unit_test(missing_ranks_over_pmi_are_a_timeout),
        cmocka_unit_test(a_rank_that_waits_over_pmi_is_named),
        cmocka_unit_test(ranks_meet_at_the_first_node),
        cmocka_unit_test(rank_0_need_not_know_its_own_name),
        cmocka_unit_test(a_silent_name_server_keeps_nobody),
        cmocka_unit_test(a_silent_name_server_is_named),
    };

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("meeting", tests, folder_make, folder_remove);
}
