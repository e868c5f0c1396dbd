/* SPDX-License-Identifier: MIT
 *
 * Where a token comes from: variables, files, and what must not be taken for one.
 */
#include "folder.h"
#include "kolo.h"
#include "secret_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char token[] = "0123456789abcdef";

static int forget_all(void **state)
{
    (void)state;
    unsetenv("KOLO_AUTH");
    unsetenv("KOLO_AUTH_STORE");
    unsetenv("KOLO_AUTH_TOKEN");
    unsetenv("KOLO_AUTH_TOKEN_FILE");
    return 0;
}

static void use_file(const char *text, size_t nbytes, mode_t mode)
{
    const char *path = folder_path("token");

    unlink(path);
    folder_write(path, text, nbytes);
    assert_int_equal(chmod(path, mode), 0);
    setenv("KOLO_AUTH_TOKEN_FILE", path, 1);
}

static struct ko_guard read_guard(void)
{
    struct ko_guard guard;

    assert_int_equal(ko_guard_read(&guard), KOLO_OK);
    return guard;
}

static void expect_refusal(const char *sentence)
{
    struct ko_guard guard;

    assert_int_equal(ko_guard_read(&guard), KOLO_E_INVALID);
    assert_false(guard.has_secret);
    if (!strstr(kolo_last_error(), sentence))
        fail_msg("\"%s\" is not in: %s", sentence, kolo_last_error());
    assert_null(strstr(kolo_last_error(), token)); /* it would stand in logs */
}

static void none(void **state)
{
    struct ko_guard guard = read_guard();

    (void)state;
    assert_false(guard.has_secret || guard.is_open);
    setenv("KOLO_AUTH_TOKEN", "", 1);
    setenv("KOLO_AUTH_TOKEN_FILE", "", 1);
    guard = read_guard();
    assert_false(guard.has_secret || guard.is_open);
    setenv("KOLO_AUTH", "none", 1);
    guard = read_guard();
    assert_true(guard.is_open && !guard.has_secret);
}

static void from_both_places(void **state)
{
    static const char *const texts[] = {"0123456789abcdef", "0123456789abcdef\n",
                                        " \t0123456789abcdef\r\n\n"};
    struct ko_guard guard, other;

    (void)state;
    setenv("KOLO_AUTH_TOKEN", token, 1);
    guard = read_guard();
    assert_true(guard.has_secret && !guard.is_open);
    unsetenv("KOLO_AUTH_TOKEN");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        use_file(texts[i], strlen(texts[i]), i ? 0600 : 0400);
        other = read_guard();
        assert_memory_equal(&guard.secret, &other.secret, sizeof guard.secret);
    }
    use_file("0123456789 abcdef", 17, 0600); /* a space within belongs to it */
    other = read_guard();
    assert_memory_not_equal(&guard.secret, &other.secret, sizeof guard.secret);
}

/* As kolorun hands it over: a file that has no name. */
static void from_a_descriptor(void **state)
{
    int fd = memfd_create("token", MFD_CLOEXEC);
    struct ko_guard guard;
    char path[64];

    (void)state;
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(write(fd, token, sizeof token - 1), sizeof token - 1);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    setenv("KOLO_AUTH_TOKEN_FILE", path, 1);
    for (int i = 0; i < 2; i++) /* each reader begins at its beginning */
        assert_true(read_guard().has_secret);
    close(fd);
    assert_int_equal(ko_guard_read(&guard), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), path));
}

static void lengths(void **state)
{
    static char text[KO_TOKEN_MOST + 1000];

    (void)state;
    memset(text, 'x', sizeof text);
    setenv("KOLO_AUTH_TOKEN", "0123456789abcde", 1);
    expect_refusal("15 bytes");
    unsetenv("KOLO_AUTH_TOKEN");
    use_file("", 0, 0600);
    expect_refusal("0 bytes");
    use_file(" \n\t ", 4, 0600);
    expect_refusal("0 bytes");
    use_file(text, KO_TOKEN_MOST, 0600);
    assert_true(read_guard().has_secret);
    use_file(text, KO_TOKEN_MOST + 1, 0600);
    expect_refusal("4097 bytes");
    use_file(text, sizeof text, 0600);
    expect_refusal("it takes 16 to 4096");
}

static void private_only(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0666, 0777};

    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        use_file(token, sizeof token - 1, modes[i]);
        expect_refusal("alone: chmod 600");
    }
    setenv("KOLO_AUTH_TOKEN_FILE", folder_path(""), 1);
    expect_refusal("not an ordinary file");
    setenv("KOLO_AUTH_TOKEN_FILE", "/dev/null", 1);
    expect_refusal("not an ordinary file");
    if (geteuid())
        return;
    use_file(token, sizeof token - 1, 0600);
    assert_int_equal(chown(folder_path("token"), 4711, 0), 0);
    expect_refusal("belongs to user 4711");
}

static void not_there(void **state)
{
    struct ko_guard guard;

    (void)state;
    setenv("KOLO_AUTH_TOKEN_FILE", folder_path("nowhere"), 1);
    assert_int_equal(ko_guard_read(&guard), KOLO_E_SYSTEM);
    assert_non_null(strstr(kolo_last_error(), "nowhere"));
}

static void contradictions(void **state)
{
    (void)state;
    use_file(token, sizeof token - 1, 0600);
    setenv("KOLO_AUTH_TOKEN", token, 1);
    expect_refusal("both");
    unsetenv("KOLO_AUTH_TOKEN");
    setenv("KOLO_AUTH", "none", 1);
    expect_refusal("does without a token");
    setenv("KOLO_AUTH", "maybe", 1);
    expect_refusal("KOLO_AUTH is \"maybe\"; it takes token or none");
}

static void stores(void **state)
{
    struct ko_guard guard;

    (void)state;
    setenv("KOLO_AUTH_TOKEN", token, 1);
    assert_int_equal(ko_guard_read_for_store(&guard), KOLO_OK);
    assert_true(guard.has_secret && !guard.is_open);
    setenv("KOLO_AUTH_STORE", "none", 1);
    assert_int_equal(ko_guard_read_for_store(&guard), KOLO_OK);
    assert_true(guard.is_open && !guard.has_secret);
    assert_true(read_guard().has_secret); /* wires are another matter */
    setenv("KOLO_AUTH_STORE", "pytorch", 1);
    assert_int_equal(ko_guard_read_for_store(&guard), KOLO_E_INVALID);
    unsetenv("KOLO_AUTH_STORE");
    setenv("KOLO_AUTH", "none", 1);
    assert_int_equal(ko_guard_read_for_store(&guard), KOLO_E_INVALID);
}

/* As the file that kolorun makes, for a rank in a namespace of its own. */
static void below_proc(void **state)
{
    static const char *const paths[] = {"/proc/2147483647/fd/5", "/nowhere/2147483647/fd/5"};
    struct ko_guard guard;

    (void)state;
    for (int i = 0; i < 2; i++) {
        setenv("KOLO_AUTH_TOKEN_FILE", paths[i], 1);
        assert_int_equal(ko_guard_read(&guard), KOLO_E_SYSTEM);
        assert_non_null(strstr(kolo_last_error(), paths[i]));
        assert_int_equal(!strstr(kolo_last_error(), "in a namespace of its own"), i);
        assert_int_equal(!strstr(kolo_last_error(), "-x KOLO_AUTH_TOKEN_FILE=FILE"), i);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, forget_all, forget_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(none),         CASE(from_both_places), CASE(lengths),        CASE(from_a_descriptor),
        CASE(private_only), CASE(not_there),        CASE(contradictions), CASE(stores),
        CASE(below_proc)};

    return cmocka_run_group_tests_name("secret token", tests, folder_make, folder_remove);
}
