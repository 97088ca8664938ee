/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: whole or not there, whatever happens while one is being saved.
 */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/support/scratch.h"

enum { ELEMENTS = 6 };

static HsStatus write_config(void *user, const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    return hs_storage_write_file(path, user, strlen(user));
}

/* A checkpoint in which every number encodes its step.  best: NULL, or a further name of it. */
static HsStatus save_named(const char *out_dir, int64_t step, int64_t keep, int64_t elements, const char *best)
{
    float *weights = malloc((size_t)elements * sizeof *weights);
    cr_assert_not_null(weights);
    for (int64_t i = 0; i < elements; i++)
        weights[i] = (float)(step + i);
    float moment[2] = { (float)step, 0.5f };
    const HsNamedTensor model = { .name = "w", .tensor = hs_tensor_1d(weights, HS_F32, elements) };
    const HsNamedTensor optimizer = { .name = "w.m", .tensor = hs_tensor_1d(moment, HS_F32, 2) };
    HsJson *state = hs_json_object();
    hs_json_set_integer(state, "step", step);
    char config[] = "seed: 1\n";
    const HsCheckpointContent content = {
        .step = step,
        .model = &model,
        .model_count = 1,
        .optimizer = &optimizer,
        .optimizer_count = 1,
        .state = state,
        .write_extra = write_config,
        .user = config,
        .names = &best,
        .name_count = best ? 1 : 0,
    };
    HsStatus status = hs_checkpoint_save(out_dir, &content, keep);
    hs_json_destroy(state);
    free(weights);
    return status;
}

static HsStatus save(const char *out_dir, int64_t step, int64_t keep, int64_t elements)
{
    return save_named(out_dir, step, keep, elements, NULL);
}

static void expect_saved(const Scratch *scratch, int64_t step, int64_t keep)
{
    cr_assert_eq(save(scratch->folder, step, keep, ELEMENTS), HS_OK, "%s", hs_error_message());
}

/* The step of the latest checkpoint after opening it whole; -1 when there is none. */
static int64_t opened_step(const char *out_dir)
{
    char *folder = NULL;
    cr_assert_eq(hs_checkpoint_latest(out_dir, &folder), HS_OK, "%s", hs_error_message());
    if (!folder)
        return -1;
    HsCheckpoint checkpoint;
    cr_assert_eq(hs_checkpoint_open(folder, true, &checkpoint), HS_OK, "%s", hs_error_message());
    int64_t step = -1;
    cr_expect_eq(hs_json_need_integer("trainer.json", checkpoint.state, "step", &step), HS_OK);
    const float *weights = hs_safetensors_find(&checkpoint.model, "w")->tensor.data;
    const float *moment = hs_safetensors_find(&checkpoint.optimizer, "w.m")->tensor.data;
    cr_expect_eq(weights[0], (float)step);
    cr_expect_eq(moment[0], (float)step);
    hs_checkpoint_close(&checkpoint);
    free(folder);
    return step;
}

/* Names in checkpoints/, joined by blanks. */
static void list_checkpoints(const Scratch *scratch, char *text, size_t size)
{
    HsFolderListing listing;
    cr_assert_eq(hs_storage_list(scratch_path(scratch, "checkpoints"), &listing), HS_OK);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < listing.count; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", listing.names[i]);
    hs_storage_list_free(&listing);
}

/* Change one byte, or cut the file when offset is negative. */
static void damage(const Scratch *scratch, const char *name, int offset)
{
    const char *path = scratch_path(scratch, name);
    size_t size = 0;
    char *bytes = scratch_read(path, &size);
    if (offset >= 0)
        bytes[size - 1 - (size_t)offset] ^= 1;
    scratch_write(path, bytes, offset >= 0 ? size : size - 1);
    free(bytes);
}

Test(checkpoint, nothing_saved_is_no_error)
{
    Scratch scratch = scratch_make();
    cr_expect_eq(opened_step(scratch.folder), -1);
    HsCheckpoint checkpoint;
    cr_expect_eq(hs_checkpoint_open(scratch.folder, false, &checkpoint), HS_EIO);
    char message[512];
    snprintf(message, sizeof message, "%s: neither a checkpoint (no checksums.json) nor a run folder (no checkpoints/)",
             scratch.folder);
    cr_expect_str_eq(hs_error_message(), message);
    scratch_remove(&scratch);
}

Test(checkpoint, saves_opens_and_keeps_the_last_ones)
{
    Scratch scratch = scratch_make();
    char names[512];
    for (int64_t step = 10; step <= 50; step += 10)
        expect_saved(&scratch, step, 2);
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000040 step-00000050");
    cr_expect_eq(opened_step(scratch.folder), 50);
    size_t size = 0;
    char *latest = scratch_read(scratch_path(&scratch, "checkpoints/latest"), &size);
    cr_expect_str_eq(latest, "step-00000050\n");
    free(latest);
    char *config = scratch_read(scratch_path(&scratch, "checkpoints/step-00000050/config.yaml"), &size);
    cr_expect_str_eq(config, "seed: 1\n");
    free(config);

    /* A run folder opens its latest; a step folder opens itself. */
    HsCheckpoint checkpoint;
    cr_assert_eq(hs_checkpoint_open(scratch.folder, false, &checkpoint), HS_OK, "%s", hs_error_message());
    cr_expect_not_null(strstr(checkpoint.folder, "step-00000050"));
    cr_expect_eq(checkpoint.optimizer.count, 0);
    hs_checkpoint_close(&checkpoint);
    cr_assert_eq(hs_checkpoint_open(scratch_path(&scratch, "checkpoints/step-00000040"), true, &checkpoint), HS_OK);
    cr_expect_eq(*(const float *)checkpoint.model.tensors[0].tensor.data, 40.0f);
    hs_checkpoint_close(&checkpoint);
    scratch_remove(&scratch);
}

/* The step of the checkpoint that a file names; -1 when it cannot be opened. */
static int64_t named_step(const Scratch *scratch, const char *name)
{
    HsCheckpoint checkpoint;
    int64_t step = -1;
    if (hs_checkpoint_open(scratch_path(scratch, name), true, &checkpoint) != HS_OK)
        return -1;
    cr_expect_eq(hs_json_need_integer("trainer.json", checkpoint.state, "step", &step), HS_OK);
    hs_checkpoint_close(&checkpoint);
    return step;
}

Test(checkpoint, what_a_best_names_stays_until_another_is_named)
{
    Scratch scratch = scratch_make();
    char names[512], *path = NULL;
    cr_expect_eq(hs_checkpoint_best(scratch.folder, &path), HS_EIO);
    cr_expect_null(path);
    cr_assert_eq(save_named(scratch.folder, 1, 1, ELEMENTS, "best"), HS_OK, "%s", hs_error_message());
    cr_assert_eq(save_named(scratch.folder, 2, 1, ELEMENTS, "best-2"), HS_OK, "%s", hs_error_message());
    for (int64_t step = 3; step < 6; step++)
        expect_saved(&scratch, step, 1);
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "best best-2 latest step-00000001 step-00000002 step-00000005");
    cr_expect_eq(named_step(&scratch, "checkpoints/best"), 1);
    cr_expect_eq(named_step(&scratch, "checkpoints/best-2"), 2);
    cr_expect_eq(named_step(&scratch, "checkpoints/latest"), 5);
    cr_expect_eq(opened_step(scratch.folder), 5);
    cr_assert_eq(hs_checkpoint_best(scratch.folder, &path), HS_OK);
    free(path);
    /* Another best: the one before goes with the save that names it. */
    cr_assert_eq(save_named(scratch.folder, 6, 1, ELEMENTS, "best"), HS_OK, "%s", hs_error_message());
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "best best-2 latest step-00000002 step-00000006");
    /* Moved aside by a save that died before its replacement was in place. */
    cr_assert_eq(rename(scratch_path(&scratch, "checkpoints/step-00000002"),
                        scratch_path(&scratch, "checkpoints/step-00000002.replaced")),
                 0);
    cr_expect_eq(named_step(&scratch, "checkpoints/best-2"), 2);
    scratch_remove(&scratch);
}

Test(checkpoint, what_best_names_may_have_another_name)
{
    Scratch scratch = scratch_make();
    char names[512];
    expect_saved(&scratch, 1, 1);
    cr_assert_eq(hs_checkpoint_name_best(scratch.folder, "best-1"), HS_OK, "%s", hs_error_message());
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000001", "there is no best yet");
    cr_assert_eq(save_named(scratch.folder, 2, 1, ELEMENTS, "best"), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_checkpoint_name_best(scratch.folder, "best-1"), HS_OK, "%s", hs_error_message());
    cr_assert_eq(save_named(scratch.folder, 3, 1, ELEMENTS, "best"), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_checkpoint_name_best(scratch.folder, "best-1"), HS_OK, "%s", hs_error_message());
    cr_expect_eq(named_step(&scratch, "checkpoints/best-1"), 2, "a name that is taken stays");
    cr_expect_eq(named_step(&scratch, "checkpoints/best"), 3);
    scratch_remove(&scratch);
}

Test(checkpoint, the_same_step_again_replaces_it)
{
    Scratch scratch = scratch_make();
    char names[512];
    expect_saved(&scratch, 10, 3);
    cr_assert_eq(save(scratch.folder, 10, 3, ELEMENTS + 1), HS_OK, "%s", hs_error_message());
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000010");
    HsCheckpoint checkpoint;
    cr_assert_eq(hs_checkpoint_open(scratch.folder, false, &checkpoint), HS_OK, "%s", hs_error_message());
    cr_expect_eq(checkpoint.model.tensors[0].tensor.shape[0], ELEMENTS + 1);
    hs_checkpoint_close(&checkpoint);
    scratch_remove(&scratch);
}

Test(checkpoint, leftovers_go_but_the_only_copy_stays)
{
    Scratch scratch = scratch_make();
    char names[512];
    expect_saved(&scratch, 10, 3);
    cr_assert_eq(mkdir(scratch_path(&scratch, "checkpoints/.tmp-step-00000020"), 0777), 0);
    scratch_write(scratch_path(&scratch, "checkpoints/.tmp-step-00000020/model.safetensors"), "x", 1);
    scratch_write(scratch_path(&scratch, "checkpoints/.tmp-latest"), "x", 1);
    cr_assert_eq(hs_checkpoint_clean(scratch.folder), HS_OK, "%s", hs_error_message());
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000010");

    /* Killed between moving the old folder aside and putting the new one in its place. */
    cr_assert_eq(rename(scratch_path(&scratch, "checkpoints/step-00000010"),
                        scratch_path(&scratch, "checkpoints/step-00000010.replaced")),
                 0);
    hs_log_set_level(HS_LOG_ERROR);
    cr_assert_eq(hs_checkpoint_clean(scratch.folder), HS_OK);
    cr_expect_eq(opened_step(scratch.folder), 10);
    expect_saved(&scratch, 10, 3);
    cr_assert_eq(hs_checkpoint_clean(scratch.folder), HS_OK);
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000010");
    scratch_remove(&scratch);
}

/* Any single changed byte or a missing one, in any file: found, named, and the one before is taken. */
Test(checkpoint, damage_is_found_and_the_one_before_is_taken)
{
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors", "trainer.json", "config.yaml" };
    hs_log_set_level(HS_LOG_ERROR);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        for (int offset = -1; offset < 2; offset++) {
            Scratch scratch = scratch_make();
            char name[128];
            expect_saved(&scratch, 10, 5);
            expect_saved(&scratch, 20, 5);
            snprintf(name, sizeof name, "checkpoints/step-00000020/%s", files[i]);
            damage(&scratch, name, offset);
            HsCheckpoint checkpoint;
            cr_expect_eq(hs_checkpoint_open(scratch_path(&scratch, "checkpoints/step-00000020"), true, &checkpoint),
                         HS_EFORMAT);
            cr_expect_not_null(strstr(hs_error_message(), files[i]), "%s", hs_error_message());
            cr_expect_not_null(strstr(hs_error_message(), "damaged"), "%s", hs_error_message());
            cr_expect_eq(opened_step(scratch.folder), 10);
            scratch_remove(&scratch);
        }
    }
}

/* A row of checksums.json left out, as after a deliberate change of its file. */
static void strike(const Scratch *scratch, const char *folder, const char *name)
{
    char path[256], key[64];
    snprintf(path, sizeof path, "%s/checksums.json", folder);
    snprintf(key, sizeof key, "\"%s\"", name);
    size_t size = 0;
    char *text = scratch_read(scratch_path(scratch, path), &size);
    char *row = strstr(text, key);
    cr_assert_not_null(row, "%s", name);
    char *end = strchr(row, '}') + 1;
    if (*end == ',')
        end++;
    else /* the last one: the comma before it goes */
        while (*row != ',')
            row--;
    memmove(row, end, strlen(end) + 1);
    scratch_write(scratch_path(scratch, path), text, strlen(text));
    free(text);
}

Test(checkpoint, every_file_of_it_is_listed)
{
    static const char *const names[] = { "model.safetensors", "optimizer.safetensors", "trainer.json", "config.yaml" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Scratch scratch = scratch_make();
        HsCheckpoint checkpoint;
        char *folder = NULL;
        expect_saved(&scratch, 7, 2);
        strike(&scratch, "checkpoints/step-00000007", names[i]);
        cr_expect_eq(hs_checkpoint_open(scratch_path(&scratch, "checkpoints/step-00000007"), true, &checkpoint),
                     HS_EFORMAT, "%s", names[i]);
        cr_expect_not_null(strstr(hs_error_message(), names[i]), "%s", hs_error_message());
        cr_expect_eq(hs_checkpoint_latest(scratch.folder, &folder), HS_EFORMAT);
        scratch_remove(&scratch);
    }
}

Test(checkpoint, a_wrong_latest_file_is_passed_over)
{
    static const char *const wrong[] = { "", "step-00000030\n", "../../etc\n", "step-1\n", "step-00000010x\n" };
    hs_log_set_level(HS_LOG_ERROR);
    Scratch scratch = scratch_make();
    expect_saved(&scratch, 10, 5);
    expect_saved(&scratch, 20, 5);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scratch_write(scratch_path(&scratch, "checkpoints/latest"), wrong[i], strlen(wrong[i]));
        cr_expect_eq(opened_step(scratch.folder), 20, "latest: `%s`", wrong[i]);
    }
    /* But a whole earlier one that it names is what is asked for. */
    scratch_write(scratch_path(&scratch, "checkpoints/latest"), "step-00000010\n", 14);
    cr_expect_eq(opened_step(scratch.folder), 10);
    scratch_remove(&scratch);
}

Test(checkpoint, damaged_ones_neither_count_nor_go)
{
    Scratch scratch = scratch_make();
    char names[512];
    expect_saved(&scratch, 10, 5);
    expect_saved(&scratch, 20, 5);
    expect_saved(&scratch, 30, 5);
    cr_assert_eq(remove(scratch_path(&scratch, "checkpoints/step-00000020/trainer.json")), 0);
    expect_saved(&scratch, 40, 2);
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000020 step-00000030 step-00000040");
    scratch_remove(&scratch);
}

/* A full disk, as a limit on file sizes: the save fails by name, and what was there stays. */
Test(checkpoint, a_failing_save_leaves_the_earlier_one)
{
    Scratch scratch = scratch_make();
    char names[512], message[512];
    expect_saved(&scratch, 10, 1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = { 4096, RLIM_INFINITY };
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(save(scratch.folder, 20, 1, 100000), HS_EIO);
    snprintf(message, sizeof message,
             "checkpoint of step 20 not saved (earlier ones are untouched): cannot write "
             "%s/checkpoints/.tmp-step-00000020/model.safetensors: File too large",
             scratch.folder);
    cr_expect_str_eq(hs_error_message(), message);
    list_checkpoints(&scratch, names, sizeof names);
    cr_expect_str_eq(names, "latest step-00000010");
    cr_expect_eq(opened_step(scratch.folder), 10);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    scratch_remove(&scratch);
}

static uint64_t hash_of(const Scratch *scratch)
{
    uint64_t hash = 0;
    cr_assert_eq(hs_checkpoint_hash(scratch_path(scratch, "checkpoints/step-00000010"), &hash), HS_OK);
    return hash;
}

Test(checkpoint, equal_content_has_an_equal_hash)
{
    Scratch one = scratch_make(), other = scratch_make();
    expect_saved(&one, 10, 1);
    expect_saved(&other, 10, 1);
    uint64_t hash = hash_of(&one);
    cr_expect_eq(hash_of(&other), hash);
    damage(&other, "checkpoints/step-00000010/config.yaml", 0);
    cr_expect_neq(hash_of(&other), hash);
    damage(&other, "checkpoints/step-00000010/config.yaml", 0);
    cr_expect_eq(hash_of(&other), hash);
    cr_assert_eq(rename(scratch_path(&other, "checkpoints/step-00000010/config.yaml"),
                        scratch_path(&other, "checkpoints/step-00000010/Config.yaml")),
                 0);
    cr_expect_neq(hash_of(&other), hash);
    scratch_remove(&one);
    scratch_remove(&other);
}

/* SIGKILL at 30 random instants of a process that does nothing but save. */
Test(checkpoint, killed_while_saving_always_leaves_a_whole_latest)
{
    Scratch scratch = scratch_make();
    hs_log_set_level(HS_LOG_WARNING);
    int64_t before = 0;
    for (uint32_t kill_index = 0; kill_index < 30; kill_index++) {
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            for (int64_t step = before + 1;; step++) {
                if (save(scratch.folder, step, 2, 20000) != HS_OK)
                    _exit(3);
            }
        }
        uint32_t wait_us = hs_philox(11, (const uint32_t[4]){ kill_index, 0, 0, 0 }).word[0] % 40000;
        usleep(wait_us + (before == 0 ? kill_index * 10000 : 0)); /* a busy machine may need more for the first */
        cr_assert_eq(kill(child, SIGKILL), 0);
        int state = 0;
        cr_assert_eq(waitpid(child, &state, 0), child);
        cr_assert(WIFSIGNALED(state), "the child failed to save by itself: %d", state);

        /* The strict part of the promise: `latest` itself is good, without falling back. */
        if (scratch_exists(scratch_path(&scratch, "checkpoints/latest"))) {
            size_t size = 0;
            char name[256];
            char *latest = scratch_read(scratch_path(&scratch, "checkpoints/latest"), &size);
            snprintf(name, sizeof name, "checkpoints/%.*s", (int)strcspn(latest, "\n"), latest);
            HsCheckpoint checkpoint;
            cr_assert_eq(hs_checkpoint_open(scratch_path(&scratch, name), true, &checkpoint), HS_OK, "kill %u: %s",
                         kill_index, hs_error_message());
            hs_checkpoint_close(&checkpoint);
            free(latest);
        }
        int64_t opened = opened_step(scratch.folder), now = opened > 0 ? opened : 0; /* -1: none complete yet */
        cr_assert(now >= before, "step %lld after %lld", (long long)now, (long long)before);
        before = now;
    }
    cr_expect_gt(before, 0, "no save was ever complete");
    expect_saved(&scratch, before + 1, 1);
    char names[512], expected[64];
    list_checkpoints(&scratch, names, sizeof names);
    snprintf(expected, sizeof expected, "latest step-%08lld", (long long)before + 1);
    cr_expect_not_null(strstr(names, expected));
    cr_expect_null(strstr(names, ".tmp"));
    scratch_remove(&scratch);
}

/* ---- restore ---- */

static void parse_file(const HsNamedTensor *tensors, int count, HsSafetensors *file)
{
    Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "f");
    cr_assert_eq(hs_safetensors_write(path, tensors, count, NULL, NULL), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_safetensors_open(path, file), HS_OK, "%s", hs_error_message());
    scratch_remove(&scratch); /* the mapping keeps the bytes */
}

Test(restore, converts_between_float_formats)
{
    const float values[3] = { 0.1f, -65504, 0x1p-20f };
    uint16_t f16[3], bf16[3];
    float back[3];
    for (int i = 0; i < 3; i++)
        f16[i] = hs_f16_encode(values[i]);
    const HsNamedTensor stored = { .name = "w", .tensor = hs_tensor_1d(f16, HS_F16, 3) };
    HsSafetensors file;
    parse_file(&stored, 1, &file);
    const HsNamedTensor as_f32 = { .name = "w", .tensor = hs_tensor_1d(back, HS_F32, 3) };
    const HsNamedTensor as_bf16 = { .name = "w", .tensor = hs_tensor_1d(bf16, HS_BF16, 3) };
    cr_assert_eq(hs_checkpoint_restore("f", &file, &as_f32, 1), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_checkpoint_restore("f", &file, &as_bf16, 1), HS_OK, "%s", hs_error_message());
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(back[i], hs_f16_decode(f16[i]));
        cr_expect_eq(bf16[i], hs_bf16_encode(hs_f16_decode(f16[i])));
    }
    hs_safetensors_close(&file);
}

Test(restore, refuses_what_does_not_fit_and_says_so)
{
    float good[2] = { 1, 2 }, large[2] = { 1, 1e6f }, nan[2] = { 1, NAN }, infinite[2] = { -INFINITY, 1 };
    int32_t integers[2] = { 1, 2 };
    const HsNamedTensor stored[] = {
        { .name = "good", .tensor = hs_tensor_1d(good, HS_F32, 2) },
        { .name = "large", .tensor = hs_tensor_1d(large, HS_F32, 2) },
        { .name = "nan", .tensor = hs_tensor_1d(nan, HS_F32, 2) },
        { .name = "infinite", .tensor = hs_tensor_1d(infinite, HS_F32, 2) },
        { .name = "integers", .tensor = hs_tensor_1d(integers, HS_I32, 2) },
    };
    HsSafetensors file;
    parse_file(stored, 5, &file);
    static const struct {
        const char *name;
        int rank;
        int64_t rows;
        HsDtype dtype;
        HsStatus status;
        const char *message;
    } cases[] = {
        { "none", 1, 2, HS_F32, HS_EFORMAT, "f: tensor `none` is missing" },
        { "good", 1, 3, HS_F32, HS_ESHAPE, "f: tensor `good` has shape [2], the model needs [3]" },
        { "good", 2, 2, HS_F32, HS_ESHAPE, "f: tensor `good` has shape [2], the model needs [2, 1]" },
        { "large", 1, 2, HS_F16, HS_EFORMAT, "f: tensor `large`: element 1, 1e+06, is too large for f16" },
        { "nan", 1, 2, HS_F32, HS_EFORMAT, "f: tensor `nan`: element 1 is NaN" },
        { "infinite", 1, 2, HS_F32, HS_EFORMAT, "f: tensor `infinite`: element 0 is infinite" },
        { "integers", 1, 2, HS_F32, HS_ESHAPE, "f: tensor `integers` is i32 and cannot become f32" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float first[2] = { 7, 7 }, second[4];
        HsNamedTensor to[2] = { { .name = "good", .tensor = hs_tensor_1d(first, HS_F32, 2) } };
        strcpy(to[1].name, cases[i].name);
        to[1].tensor = (HsTensor){
            .data = second, .dtype = cases[i].dtype, .rank = cases[i].rank, .shape = { cases[i].rows, 1, 1, 1 }
        };
        cr_expect_eq(hs_checkpoint_restore("f", &file, to, 2), cases[i].status);
        cr_expect_str_eq(hs_error_message(), cases[i].message);
        /* Names and shapes are looked at before anything is written. */
        if (cases[i].status == HS_ESHAPE)
            cr_expect_eq(first[0], 7.0f);
    }
    hs_safetensors_close(&file);
}
