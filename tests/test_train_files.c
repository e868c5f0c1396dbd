/* SPDX-License-Identifier: MIT
 *
 * What the trainer reads and writes: IDX files, data sets, checkpoints. Each kind of bad file must
 * be one sentence that names it, and leave nothing changed.
 */
#include "../examples/ddp/checkpoint.h"
#include "../examples/ddp/data.h"
#include "../examples/ddp/failure.h"
#include "../examples/ddp/idx.h"

#include "folder.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static void write_gzip(const char *path, const void *bytes, size_t nbytes)
{
    gzFile file = gzopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)nbytes), (int)nbytes);
    assert_int_equal(gzclose(file), Z_OK);
}

/* ---- IDX ------------------------------------------------------------------------------------- */

/* Two images of 2x3. */
static const uint8_t small[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const struct idx_shape small_shape = {3, {0, 2, 3}};

static void test_idx_reads_plain_and_gzipped(void **state)
{
    const char *paths[2] = {folder_path("plain"), folder_path("small.gz")};

    (void)state;
    folder_write(paths[0], small, sizeof small);
    write_gzip(paths[1], small, sizeof small);
    for (int i = 0; i < 2; i++) {
        size_t items;
        uint8_t *bytes;
        assert_int_equal(idx_read(paths[i], &small_shape, &items, &bytes), 0);
        assert_int_equal(items, 2);
        assert_memory_equal(bytes, small + 16, 12);
        free(bytes);
    }
}

static void refuse_idx(const void *bytes, size_t nbytes, const char *sentence)
{
    const char *path = folder_path("bad");
    size_t items = 77;
    uint8_t *elements = (uint8_t *)&items;

    folder_write(path, bytes, nbytes);
    stderr_listen();
    assert_int_equal(idx_read(path, &small_shape, &items, &elements), TRAIN_FAILED);
    stderr_assert(sentence);
    assert_int_equal(items, 77);
    assert_ptr_equal(elements, &items);
}

static void refuse_changed_idx(size_t offset, uint8_t value, const char *sentence)
{
    uint8_t bad[sizeof small];

    memcpy(bad, small, sizeof small);
    bad[offset] = value;
    refuse_idx(bad, sizeof bad, sentence);
}

static void test_idx_refuses(void **state)
{
    uint8_t longer[sizeof small + 1] = {0};

    (void)state;
    refuse_changed_idx(0, 1, "bad is no IDX file: it begins with 01 00");
    refuse_changed_idx(2, 9, "elements of type 0x09");
    refuse_changed_idx(3, 1, "has 1 dimensions instead of 3");
    refuse_changed_idx(11, 3, "dimension 1 = 3 instead of 2");
    refuse_changed_idx(12, 1, "dimension 2 = 16777219 instead of 3");
    refuse_changed_idx(4, 0xff, "has 4278190082 items");
    refuse_changed_idx(7, 0, "has 0 items");
    refuse_changed_idx(7, 3, "bad is truncated: it ends 6 bytes early");
    refuse_changed_idx(7, 1, "bad has bytes after its last element");
    for (size_t n = 0; n < sizeof small; n++)
        refuse_idx(small, n, "is truncated");
    memcpy(longer, small, sizeof small);
    refuse_idx(longer, sizeof longer, "bytes after its last element");
}

static void test_idx_refuses_damaged_gzip(void **state)
{
    char gzip[256];
    size_t nbytes;

    (void)state;
    write_gzip(folder_path("small.gz"), small, sizeof small);
    nbytes = folder_read(folder_path("small.gz"), gzip, sizeof gzip);
    for (size_t n = nbytes - 8; n < nbytes; n++) /* in the trailer: checksum and length */
        refuse_idx(gzip, n, "is truncated");
    gzip[nbytes - 5] ^= 1;
    refuse_idx(gzip, nbytes, "is damaged: ");
    gzip[nbytes - 5] ^= 1;
    memset(gzip + 12, 0xff, 8);
    refuse_idx(gzip, nbytes, "is damaged: ");
}

static void test_idx_names_a_missing_file(void **state)
{
    size_t items;
    uint8_t *bytes;

    (void)state;
    stderr_listen();
    assert_int_equal(idx_read("/nowhere/x", &small_shape, &items, &bytes), TRAIN_FAILED);
    stderr_assert("cannot open /nowhere/x: No such file");
}

/* ---- data sets ------------------------------------------------------------------------------- */

/* A set of n images whose pixels are i * 3, and labels i % 10. */
static void write_set(const char *images_name, const char *labels_name, uint8_t n, uint8_t nlabels)
{
    static uint8_t images[16 + 20 * IMAGE_AREA];
    uint8_t labels[8 + 20] = {0, 0, 8, 1, 0, 0, 0, nlabels};
    const uint8_t header[16] = {0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 28, 0, 0, 0, 28};

    memcpy(images, header, sizeof header);
    for (uint8_t i = 0; i < n; i++)
        memset(images + 16 + (size_t)i * IMAGE_AREA, i * 3, IMAGE_AREA);
    for (uint8_t i = 0; i < nlabels; i++)
        labels[8 + i] = i % NCLASSES;
    write_gzip(folder_path(images_name), images, 16 + (size_t)n * IMAGE_AREA);
    folder_write(folder_path(labels_name), labels, 8 + (size_t)nlabels);
}

static void test_dataset_reads_and_gathers(void **state)
{
    const uint32_t samples[3] = {12, 0, 5};
    static float images[3 * IMAGE_AREA];
    uint8_t labels[3];
    struct dataset set;

    (void)state;
    write_set("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", 20, 20);
    assert_int_equal(dataset_read(folder_path(""), DATA_TRAIN, &set), 0);
    assert_int_equal(set.count, 20);
    dataset_gather(&set, samples, 3, images, labels);
    assert_memory_equal(labels, ((uint8_t[]){2, 0, 5}), 3);
    assert_true(images[IMAGE_AREA] == (0.0f - 0.1307f) / 0.3081f);
    assert_true(images[IMAGE_AREA - 1] == (36.0f / 255.0f - 0.1307f) / 0.3081f);
    dataset_free(&set);
    assert_null(set.pixels);
}

static void refuse_dataset(enum data_part part, const char *sentence)
{
    struct dataset set = {.count = 5};

    stderr_listen();
    assert_int_equal(dataset_read(folder_path(""), part, &set), TRAIN_FAILED);
    stderr_assert(sentence);
    assert_int_equal(set.count, 5);
}

static void test_dataset_refuses(void **state)
{
    uint8_t bad_label[8 + 20] = {0, 0, 8, 1, 0, 0, 0, 20, [8 + 4] = 10};

    (void)state;
    refuse_dataset(DATA_TEST, "t10k-images-idx3-ubyte.gz: No such file");
    write_set("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte", 20, 19);
    refuse_dataset(DATA_TEST, "t10k-labels-idx1-ubyte has dimension 0 = 19 instead of 20");
    folder_write(folder_path("t10k-labels-idx1-ubyte"), bad_label, sizeof bad_label);
    refuse_dataset(DATA_TEST, "t10k-labels-idx1-ubyte: label 4 is 10; there are only 10 classes");
}

static void test_synthetic_set(void **state)
{
    struct dataset train, test;
    size_t per_class[NCLASSES] = {0};

    (void)state;
    assert_int_equal(dataset_make(DATA_TRAIN, &train), 0);
    assert_int_equal(dataset_make(DATA_TEST, &test), 0);
    assert_int_equal(train.count, 6000);
    assert_int_equal(test.count, 1000);
    for (size_t i = 0; i < train.count; i++)
        per_class[train.labels[i]]++;
    for (size_t k = 0; k < NCLASSES; k++)
        assert_in_range(per_class[k], 500, 700);
    assert_memory_not_equal(train.pixels, test.pixels, IMAGE_AREA);
    dataset_free(&train);
    dataset_free(&test);
}

/* ---- weights and checkpoints ----------------------------------------------------------------- */

static struct model model;
static struct sgd sgd;
static const struct run_state run = {2 * 938 + 3, 2, 3, 1234, 64, 60000, 1, 0};

static void open_model(uint64_t seed)
{
    assert_int_equal(model_create(NULL, 1, &model), 0);
    assert_int_equal(sgd_create(NULL, model.count, 0.1f, 0.5f, &sgd), 0);
    model_init(&model, seed);
    for (size_t i = 0; i < sgd.count; i++)
        sgd.velocity[i] = model.values[sgd.count - 1 - i];
}

static void close_model(void)
{
    model_free(&model);
    sgd_free(&sgd);
}

static void test_model_load(void **state)
{
    float *kept;
    const char *path = folder_path("weights");

    (void)state;
    open_model(3);
    folder_write(path, model.values, model.count * sizeof(float));
    kept = malloc(model.count * sizeof *kept);
    memcpy(kept, model.values, model.count * sizeof *kept);
    model_init(&model, 4);
    assert_int_equal(model_load(&model, path), 0);
    assert_memory_equal(model.values, kept, model.count * sizeof *kept);

    folder_write(path, kept, model.count * sizeof *kept - 1);
    stderr_listen();
    assert_int_equal(model_load(&model, path), TRAIN_FAILED);
    stderr_assert("weights must hold exactly 21840 float32 (87360 bytes): it is shorter");
    folder_write(path, kept, 0);
    assert_int_equal(truncate(path, (off_t)(model.count * sizeof *kept + 1)), 0);
    stderr_listen();
    assert_int_equal(model_load(&model, path), TRAIN_FAILED);
    stderr_assert("it is longer");
    stderr_listen();
    assert_int_equal(model_load(&model, "/nowhere/weights"), TRAIN_FAILED);
    stderr_assert("cannot open /nowhere/weights");
    free(kept);
    close_model();
}

static void test_checkpoint_brings_everything_back(void **state)
{
    const char *path = folder_path("run.kolo");
    struct run_state back;
    float *values, *velocity;

    (void)state;
    open_model(5);
    values = malloc(model.count * sizeof *values);
    velocity = malloc(model.count * sizeof *velocity);
    memcpy(values, model.values, model.count * sizeof *values);
    memcpy(velocity, sgd.velocity, model.count * sizeof *velocity);
    assert_int_equal(checkpoint_write(path, &run, &model, &sgd), 0);
    assert_int_equal(access(folder_path("run.kolo.tmp"), F_OK), -1);
    model_init(&model, 6);
    memset(sgd.velocity, 0, model.count * sizeof *velocity);
    assert_int_equal(checkpoint_read(path, &back, &model, &sgd), 0);
    assert_memory_equal(&back, &run, sizeof run);
    assert_memory_equal(model.values, values, model.count * sizeof *values);
    assert_memory_equal(sgd.velocity, velocity, model.count * sizeof *velocity);
    free(values);
    free(velocity);
    close_model();
}

static char image[400000];
static size_t image_nbytes;

static void refuse_checkpoint(size_t nbytes, const char *sentence)
{
    const char *path = folder_path("bad.kolo");
    struct run_state back = {.step = 99};
    float first = model.values[0];

    folder_write(path, image, nbytes);
    stderr_listen();
    assert_int_equal(checkpoint_read(path, &back, &model, &sgd), TRAIN_FAILED);
    stderr_assert(sentence);
    assert_int_equal(back.step, 99);
    assert_true(model.values[0] == first);
}

static void refuse_changed_checkpoint(size_t offset, const char *sentence)
{
    image[offset] ^= 0x10;
    refuse_checkpoint(image_nbytes, sentence);
    image[offset] ^= 0x10;
}

static void test_checkpoint_refuses(void **state)
{
    struct run_state back;

    (void)state;
    open_model(7);
    assert_int_equal(checkpoint_write(folder_path("run.kolo"), &run, &model, &sgd), 0);
    image_nbytes = folder_read(folder_path("run.kolo"), image, sizeof image);
    assert_int_equal(image_nbytes, 8 + 8 + 8 * 8 + 8 * 4 * 4 + 2 * 21840 * 4 + 4);
    refuse_checkpoint(0, "bad.kolo is no checkpoint of kolo-train");
    refuse_checkpoint(15, "is no checkpoint of kolo-train");
    refuse_checkpoint(16, "is truncated: 16 of 174932 bytes");
    refuse_checkpoint(image_nbytes - 1, "is truncated: 174931 of 174932 bytes");
    refuse_checkpoint(image_nbytes + 1, "has bytes after its end");
    refuse_changed_checkpoint(0, "is no checkpoint of kolo-train");
    refuse_changed_checkpoint(8, "has version 17; this program reads version 1");
    refuse_changed_checkpoint(12, "is of another network: 24 parameters instead of 8");
    refuse_changed_checkpoint(20, "is damaged: its checksum is wrong");
    refuse_changed_checkpoint(90, "is damaged: its checksum is wrong");
    refuse_changed_checkpoint(image_nbytes / 2, "is damaged: its checksum is wrong");
    refuse_changed_checkpoint(image_nbytes - 1, "is damaged: its checksum is wrong");
    stderr_listen();
    assert_int_equal(checkpoint_read("/nowhere/run", &back, &model, &sgd), TRAIN_FAILED);
    stderr_assert("cannot open checkpoint /nowhere/run: No such file");
    stderr_listen();
    assert_int_equal(checkpoint_read(folder_path(""), &back, &model, &sgd), TRAIN_FAILED);
    stderr_assert(": Is a directory");
    close_model();
}

/* The image with the right checksum, whatever is in it. */
static void refuse_forged_checkpoint(const char *sentence)
{
    const uint32_t sum = (uint32_t)crc32(0, (const Bytef *)image, (uInt)image_nbytes - 4);

    for (size_t i = 0; i < 4; i++)
        image[image_nbytes - 4 + i] = (char)(sum >> 8 * i);
    refuse_checkpoint(image_nbytes, sentence);
}

static void test_checkpoint_refuses_other_shapes(void **state)
{
    (void)state;
    open_model(7);
    assert_int_equal(checkpoint_write(folder_path("run.kolo"), &run, &model, &sgd), 0);
    image_nbytes = folder_read(folder_path("run.kolo"), image, sizeof image);
    image[16 + 64 + 16] = 11; /* conv1.bias[10] */
    refuse_forged_checkpoint("is of another network: conv1.bias has another shape");
    close_model();
}

/* Each number of the state in turn, so that it cannot be what a run had come to. */
static void test_checkpoint_refuses_an_impossible_course(void **state)
{
    static const struct {
        size_t member;
        uint64_t value;
        const char *sentence;
    } forged[] = {
        {0, 0, "is damaged: 2 epochs of 938 batches and 3 batches are not 0 steps"},
        {0, UINT64_MAX, "and 3 batches are not 18446744073709551615 steps"},
        {1, 3, "is damaged: 3 epochs of 938 batches and 3 batches are not 1879 steps"},
        {1, UINT64_MAX, "is damaged: 18446744073709551615 epochs of 938 batches"},
        {2, 938 + 3, "2 epochs of 938 batches and 941 batches are not 1879 steps"},
        {2, UINT64_MAX, "and 18446744073709551615 batches are not 1879 steps"},
        {4, 0, "is damaged: it is of 60000 images, 0 per step"},
        {4, 32, "is damaged: 2 epochs of 1875 batches and 3 batches are not 1879 steps"},
        {5, 0, "is damaged: it is of 0 images, 64 per step"},
        {5, UINT64_MAX, "is damaged: 2 epochs of 288230376151711744 batches and 3 batches"},
    };

    (void)state;
    open_model(7);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        assert_int_equal(checkpoint_write(folder_path("run.kolo"), &run, &model, &sgd), 0);
        image_nbytes = folder_read(folder_path("run.kolo"), image, sizeof image);
        for (size_t k = 0; k < 8; k++)
            image[16 + 8 * forged[i].member + k] = (char)(forged[i].value >> 8 * k);
        refuse_forged_checkpoint(forged[i].sentence);
    }
    close_model();
}

static void test_failed_checkpoint_leaves_nothing(void **state)
{
    char path[PATH_MAX + 8];

    (void)state;
    open_model(8);
    stderr_listen();
    assert_int_equal(checkpoint_write("/nowhere/run.kolo", &run, &model, &sgd), TRAIN_FAILED);
    stderr_assert("cannot create checkpoint /nowhere/run.kolo.tmp: No such file");
    stderr_listen();
    assert_int_equal(checkpoint_write("/dev/full/x", &run, &model, &sgd), TRAIN_FAILED);
    stderr_assert("cannot create checkpoint /dev/full/x.tmp: Not a directory");

    assert_int_equal(mkdir(folder_path("a-folder"), 0700), 0);
    folder_write(folder_path("a-folder/x"), "x", 1);
    stderr_listen();
    assert_int_equal(checkpoint_write(folder_path("a-folder"), &run, &model, &sgd), TRAIN_FAILED);
    stderr_assert("cannot rename");
    assert_int_equal(access(folder_path("a-folder.tmp"), F_OK), -1);

    assert_int_equal(symlink("/dev/full", folder_path("full.kolo.tmp")), 0);
    stderr_listen();
    assert_int_equal(checkpoint_write(folder_path("full.kolo"), &run, &model, &sgd), TRAIN_FAILED);
    stderr_assert("full.kolo.tmp: No space left on device");
    assert_int_equal(access(folder_path("full.kolo"), F_OK), -1);

    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    stderr_listen();
    assert_int_equal(checkpoint_write(path, &run, &model, &sgd), TRAIN_FAILED);
    stderr_assert("is too long");
    close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx_reads_plain_and_gzipped),
        cmocka_unit_test(test_idx_refuses),
        cmocka_unit_test(test_idx_refuses_damaged_gzip),
        cmocka_unit_test(test_idx_names_a_missing_file),
        cmocka_unit_test(test_dataset_reads_and_gathers),
        cmocka_unit_test(test_dataset_refuses),
        cmocka_unit_test(test_synthetic_set),
        cmocka_unit_test(test_model_load),
        cmocka_unit_test(test_checkpoint_brings_everything_back),
        cmocka_unit_test(test_checkpoint_refuses),
        cmocka_unit_test(test_checkpoint_refuses_other_shapes),
        cmocka_unit_test(test_checkpoint_refuses_an_impossible_course),
        cmocka_unit_test(test_failed_checkpoint_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
