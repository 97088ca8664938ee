/* SPDX-License-Identifier: MIT
 *
 * The strategies' part of a checkpoint.
 *
 *   trainer.json             member "continual": every integer and real that a strategy visits, the reservoir's age,
 *                            the matrix so far
 *   continual.safetensors    "family/parameter" f32 for each strategy's tensors; "teacher/parameter" as the model reads it;
 *                            replay.tokens, replay.task,
 *                            replay.mask, replay.logits, replay.logit_index, replay.marks: the rows in use; not written
 *                            when there is none of them; rehearsal.openings [finished tasks, vocabulary]
 *
 * Saving and loading are the same walk over the strategies (HsStateVisitor).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/files.h"
#include "kernels/base/array.h"
#include "runtime/train/run.h"

#define FILE_NAME "continual.safetensors"
#define OPENINGS  "rehearsal.openings"
enum { REPLAY_MASK = 2, REPLAY_TENSORS = 6 };

static const char *const accuracy_keys[HS_ITEM_SET_COUNT] = { "matrix_accuracy_seen", "matrix_accuracy_unseen" };

/* --- saving --- */

static HsStatus save_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    (void)most;
    hs_json_set_integer(user, name, *value);
    return HS_OK;
}

static HsStatus save_real(void *user, const char *name, double *value)
{
    hs_json_set_real(user, name, *value);
    return HS_OK;
}

static HsStatus pass_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    (void)user;
    (void)family;
    (void)span;
    (void)tensor;
    return HS_OK;
}

static HsJson *json_reals(const double *values, int count)
{
    HsJson *array = hs_json_array();
    for (int i = 0; array && i < count; i++)
        hs_json_append(array, hs_json_new_real(values[i]));
    return array;
}

static HsJson *json_integers(const int64_t *values, int count)
{
    HsJson *array = hs_json_array();
    for (int i = 0; array && i < count; i++)
        hs_json_append(array, hs_json_new_integer(values[i]));
    return array;
}

HsStatus hs_run_save_continual(HsRun *run, HsJson *state)
{
    HsTraining *training = &run->training;
    HsJson *object = hs_json_object();
    HsStateVisitor visitor = { object, save_integer, save_real, pass_tensor, save_integer };
    HsStatus status = hs_continual_visit(training->continual, &visitor);
    if (training->has_reservoir)
        hs_json_set_integer(object, "replay_seen", training->reservoir.seen);
    if (training->lengths.unmarked)
        hs_json_set(object, "task_ends", json_integers(training->lengths.task_ends, training->data.count));
    if (training->teaching.has_teacher)
        hs_json_set_integer(object, "taught", training->teaching.taught);
    if (run->has_matrix) {
        const HsMatrix *matrix = &run->matrix;
        hs_json_set(object, "matrix_untrained", json_reals(matrix->untrained, matrix->tasks));
        hs_json_set(object, "matrix_loss", json_reals(matrix->loss, matrix->tasks * matrix->tasks));
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            hs_json_set(object, accuracy_keys[set],
                        json_reals(matrix->accuracy[set], (matrix->tasks + 1) * matrix->tasks));
        hs_json_set(object, "watch_at_end", json_reals(run->watch.at_end, matrix->tasks));
        hs_json_set(object, "watch_warned", json_reals(run->watch.warned, matrix->tasks));
    }
    hs_json_set(state, "continual", object);
    return status;
}

typedef struct TensorList {
    HsNamedTensor *items;
    int count;
    size_t capacity;
    HsContext *device; /* of the strategies' tensors */
    const HsShards *shards;
} TensorList;

/* context: NULL: host memory */
static HsStatus add_tensor(TensorList *list, const char *family, const char *name, const HsTensor *tensor,
                           HsContext *context)
{
    HS_TRY(hs_array_grow(&list->items, sizeof *list->items, (size_t)list->count + 1, &list->capacity));
    HsNamedTensor *entry = &list->items[list->count++];
    memset(entry, 0, sizeof *entry);
    snprintf(entry->name, sizeof entry->name, "%s%s%s", family, name[0] ? "/" : "", name);
    entry->tensor = *tensor;
    entry->context = context;
    return HS_OK;
}

static HsStatus pass_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    (void)most;
    (void)user;
    (void)name;
    (void)value;
    return HS_OK;
}

static HsStatus pass_real(void *user, const char *name, double *value)
{
    (void)user;
    (void)name;
    (void)value;
    return HS_OK;
}

/* Whether a parameter is several spans: tensors of its name may be parts then.  Factors of a matrix are smaller than it,
 * too, and belong to a whole one. */
static bool is_cut(const HsShards *shards, int whole)
{
    for (int i = 0; whole >= 0 && i < shards->all_count; i++)
        if (shards->all[i].parameter == shards->whole[whole].parameter)
            return shards->all[i].count < shards->whole[whole].count;
    return false;
}

/* Tensors of a parameter's spans follow each other, in memory too: they are one in the file. */
static HsStatus list_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    TensorList *list = user;
    HsNamedTensor *const last = list->count > 0 ? &list->items[list->count - 1] : NULL;
    const int whole = hs_shards_find(list->shards, span);
    char name[sizeof last->name];
    snprintf(name, sizeof name, "%s/%s", family, span);
    if (last && strcmp(last->name, name) == 0) {
        last->tensor.data = last->tensor.data ? last->tensor.data : tensor->data;
        return HS_OK;
    }
    HsTensor all = whole < 0 ? *tensor : list->shards->whole[whole].weight;
    all.dtype = tensor->dtype;
    all.data = tensor->data;
    const bool is_part = is_cut(list->shards, whole) && hs_tensor_count(tensor) < hs_tensor_count(&all);
    HS_TRY(add_tensor(list, family, span, is_part || !tensor->data ? &all : tensor, list->device));
    if (whole >= 0)
        list->items[list->count - 1].share = hs_shards_share_of(list->shards, whole, 1);
    return HS_OK;
}

/* The reservoir's tensors with the rows in use; rank 0 where there is none. */
static void replay_tensors(const HsReservoir *reservoir, const char *names[REPLAY_TENSORS],
                           HsTensor tensors[REPLAY_TENSORS])
{
    const HsTensor whole[REPLAY_TENSORS] = { reservoir->tokens,     reservoir->task,       reservoir->mask,
                                             reservoir->kept_value, reservoir->kept_index, reservoir->marks };
    static const char *const all[REPLAY_TENSORS] = { "replay.tokens", "replay.task",        "replay.mask",
                                                     "replay.logits", "replay.logit_index", "replay.marks" };
    for (int i = 0; i < REPLAY_TENSORS; i++) {
        names[i] = all[i];
        tensors[i] = whole[i];
        tensors[i].shape[0] = reservoir->count;
    }
}

/* Counts of the tasks that are over; rank 0 where there are none. */
static HsTensor openings_of(const HsTraining *training)
{
    if (!training->openings || training->state.task == 0)
        return (HsTensor){ 0 };
    return hs_tensor_2d(training->openings, HS_I32, training->state.task, training->vocabulary);
}

HsStatus hs_training_write_continual(HsTraining *training, const char *folder)
{
    HsTeacher *teaching = &training->teaching;
    TensorList list = { .device = &training->engine.context, .shards = &training->exchange.shards };
    HsStateVisitor visitor = { &list, pass_integer, pass_real, list_tensor, pass_integer };
    HsStatus status = hs_continual_visit(training->continual, &visitor);
    for (int i = 0; teaching->taught && i < teaching->teacher.param_count && status == HS_OK; i++) {
        const HsParam *param = &teaching->teacher.params[i];
        if (param->stored.layout != HS_LAYOUT_NF4) /* else it never changes: the model has it */
            status = add_tensor(&list, "teacher", param->name, &param->stored.values, list.device);
    }
    const HsTensor openings = openings_of(training);
    if (status == HS_OK && hs_tensor_present(&openings))
        status = add_tensor(&list, OPENINGS, "", &openings, NULL);
    if (training->has_reservoir && training->reservoir.count > 0) {
        const char *names[REPLAY_TENSORS];
        HsTensor tensors[REPLAY_TENSORS];
        replay_tensors(&training->reservoir, names, tensors);
        for (int i = 0; i < REPLAY_TENSORS && status == HS_OK; i++)
            if (hs_tensor_present(&tensors[i]))
                status = add_tensor(&list, names[i], "", &tensors[i], NULL);
    }
    if (status == HS_OK && list.count > 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/" FILE_NAME, folder ? folder : "");
        status = hs_safetensors_write(folder ? path : NULL, list.items, list.count, NULL, NULL);
    }
    free(list.items);
    return status;
}

/* --- loading --- */

typedef struct Loading {
    const char *json_name, *file_name;
    const HsJson *object;
    const HsSafetensors *file; /* NULL: this checkpoint has none */
    HsContext *device;         /* of the strategies' tensors */
    const HsShards *shards;
    /* of a parameter that is several spans: all of its tensor, and how much of it has been passed */
    char whole_name[sizeof((HsNamedTensor *)0)->name];
    float *whole;
    int64_t passed;
} Loading;

static HsStatus load_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    const Loading *loading = user;
    return hs_json_need_range(loading->json_name, loading->object, name, 0, most, value);
}

static HsStatus load_added_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    const Loading *loading = user;
    *value = 0;
    return hs_json_get(loading->object, name) ? load_integer(user, name, value, most) : HS_OK;
}

static HsStatus load_real(void *user, const char *name, double *value)
{
    const Loading *loading = user;
    return hs_json_need_real(loading->json_name, loading->object, name, value);
}

/* The next elements of a tensor of `whole`, which is read when its first part comes. */
static HsStatus load_part(Loading *loading, const HsNamedTensor *part, const HsSpan *whole)
{
    const HsDevice *device = loading->device->device;
    const int64_t count = hs_tensor_count(&part->tensor);
    if (strcmp(loading->whole_name, part->name) != 0) {
        HsNamedTensor all = { .tensor = whole->weight };
        free(loading->whole);
        loading->passed = 0;
        loading->whole = malloc((size_t)whole->count * sizeof *loading->whole);
        if (!loading->whole)
            return hs_fail(HS_ENOMEM, "no memory to read %s", part->name);
        snprintf(all.name, sizeof all.name, "%s", part->name);
        snprintf(loading->whole_name, sizeof loading->whole_name, "%s", part->name);
        all.tensor.dtype = HS_F32;
        all.tensor.data = loading->whole;
        HS_TRY(hs_checkpoint_restore(loading->file_name, loading->file, &all, 1));
    }
    const float *from = loading->whole + loading->passed;
    loading->passed += count;
    if (!part->tensor.data) /* another process's */
        return HS_OK;
    HS_TRY(device->copy((HsDevice *)(uintptr_t)device, loading->device->stream, part->tensor.data, from,
                        (size_t)count * sizeof *from));
    return device->stream_sync((HsDevice *)(uintptr_t)device, loading->device->stream);
}

static HsStatus load_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    Loading *loading = user;
    if (!loading->file)
        return hs_fail(HS_EFORMAT, "%s is missing from this checkpoint", loading->file_name);
    HsNamedTensor destination = { .tensor = *tensor, .context = loading->device };
    snprintf(destination.name, sizeof destination.name, "%s/%s", family, span);
    const int whole = hs_shards_find(loading->shards, span);
    if (is_cut(loading->shards, whole) && hs_tensor_count(tensor) < loading->shards->whole[whole].count)
        return load_part(loading, &destination, &loading->shards->whole[whole]);
    return tensor->data ? hs_checkpoint_restore(loading->file_name, loading->file, &destination, 1) : HS_OK;
}

static HsStatus load_reals(const Loading *loading, const char *name, double *values, int count)
{
    const HsJson *array = hs_json_get(loading->object, name);
    if (!array || !hs_json_is_array(array) || hs_json_count(array) != count)
        return hs_fail(HS_EFORMAT, "%s: continual.%s must be a list of %d numbers", loading->json_name, name, count);
    for (const HsJson *item = hs_json_first(array); item; item = hs_json_next(item))
        *values++ = hs_json_number(item); /* null: NAN, not measured yet */
    return HS_OK;
}

/* Whether the tasks that the checkpoint's run had ignore targets: where only appended ones do, its reservoir has no mask.
 */
static bool was_masked(const HsRun *run)
{
    bool masked = false;
    for (int i = 0; i < run->training.data.count - run->appended; i++)
        masked = masked || hs_dataset_is_masked(&run->training.data.tasks[i]);
    return masked;
}

/* Logits are read and written at their indices. */
static HsStatus check_logits(const HsTraining *training, const char *file_name)
{
    const HsReservoir *reservoir = &training->reservoir;
    const HsTensor *index = &reservoir->kept_index;
    const double none = index->dtype == HS_U16 ? UINT16_MAX : -1;
    for (int64_t i = 0; i < reservoir->count * reservoir->sequence_length * reservoir->kept; i++) {
        const double at = hs_dtype_load(index->dtype, index->data, i);
        if (at != none && !(at >= 0 && at < (double)training->model.vocabulary))
            return hs_fail(HS_EFORMAT, "%s: replay.logit_index holds %.0f, but the model has %lld logits", file_name,
                           at, (long long)training->model.vocabulary);
        if (!isfinite(hs_dtype_load(HS_F16, reservoir->kept_value.data, i)))
            return hs_fail(HS_EFORMAT, "%s: replay.logits holds a number that is not finite", file_name);
    }
    return HS_OK;
}

/* Tokens are later used as indices: each must be one of the vocabulary. */
static HsStatus check_replay(const HsRun *run, const char *file_name)
{
    const HsTraining *training = &run->training;
    const HsReservoir *reservoir = &training->reservoir;
    const int known = training->data.count - run->appended;
    int64_t vocabulary = hs_tokenizer_vocabulary(training->data.tokenizer);
    int64_t tokens = reservoir->count * (reservoir->sequence_length + 1);
    for (int64_t i = 0; i < tokens; i++) {
        double token = hs_dtype_load(reservoir->tokens.dtype, reservoir->tokens.data, i);
        if (!(token >= 0 && token < (double)vocabulary))
            return hs_fail(HS_EFORMAT, "%s: replay.tokens holds %.0f, but the vocabulary has %lld tokens", file_name,
                           token, (long long)vocabulary);
    }
    for (int64_t i = 0; i < reservoir->count; i++) {
        double task = hs_dtype_load(reservoir->task.dtype, reservoir->task.data, i);
        if (!(task >= 0 && task < (double)known))
            return hs_fail(HS_EFORMAT, "%s: replay.task names task %.0f of %d", file_name, task, known);
        if (!hs_continual_retains(&training->continual_config, (int)task))
            return hs_fail(HS_EFORMAT, "%s: replay.task names task %.0f, which tasks.%.0f.retain: false keeps out",
                           file_name, task, task);
    }
    return HS_OK;
}

static HsStatus load_replay(HsRun *run, const Loading *loading)
{
    HsReservoir *reservoir = &run->training.reservoir;
    int64_t seen;
    HS_TRY(hs_json_need_range(loading->json_name, loading->object, "replay_seen", 0, HS_COUNT_MOST, &seen));
    reservoir->seen = seen;
    reservoir->count = seen < reservoir->capacity ? seen : reservoir->capacity;
    if (reservoir->count == 0)
        return HS_OK;
    if (!loading->file)
        return hs_fail(HS_EFORMAT, "%s is missing from this checkpoint", loading->file_name);
    const char *names[REPLAY_TENSORS];
    HsTensor tensors[REPLAY_TENSORS];
    replay_tensors(reservoir, names, tensors);
    if (hs_tensor_present(&reservoir->mask) && !was_masked(run)) {
        hs_reservoir_count_all(reservoir);
        tensors[REPLAY_MASK] = (HsTensor){ 0 };
    }
    for (int i = 0; i < REPLAY_TENSORS; i++) {
        const HsNamedTensor *found = hs_safetensors_find(loading->file, names[i]);
        if (!hs_tensor_present(&tensors[i]))
            continue;
        if (!found || found->tensor.dtype != tensors[i].dtype || found->tensor.rank != tensors[i].rank ||
            hs_tensor_bytes(&found->tensor) != hs_tensor_bytes(&tensors[i]) ||
            found->tensor.shape[0] != tensors[i].shape[0])
            return hs_fail(HS_EFORMAT, "%s: %s is missing or does not hold %lld sequences of %lld tokens",
                           loading->file_name, names[i], (long long)reservoir->count,
                           (long long)reservoir->sequence_length);
        memcpy(tensors[i].data, found->tensor.data, hs_tensor_bytes(&tensors[i]));
    }
    HS_TRY(check_replay(run, loading->file_name));
    return check_logits(&run->training, loading->file_name);
}

static HsStatus load_teacher(HsTraining *training, const Loading *loading)
{
    HsTeacher *teaching = &training->teaching;
    int64_t taught;
    HS_TRY(hs_json_need_range(loading->json_name, loading->object, "taught", 0, 1, &taught));
    teaching->taught = taught != 0;
    for (int i = 0; teaching->taught && i < teaching->teacher.param_count; i++) {
        HsParam *param = &teaching->teacher.params[i];
        if (param->stored.layout != HS_LAYOUT_NF4)
            HS_TRY(load_tensor((void *)(uintptr_t)loading, "teacher", param->name, &param->stored.values));
        else
            HS_TRY(hs_training_copy_to_teacher(training, i));
    }
    return teaching->taught ? hs_model_pack(&teaching->teacher, &training->engine.context) : HS_OK;
}

static HsStatus load_openings(HsTraining *training, const Loading *loading)
{
    HsTensor openings = openings_of(training);
    if (!hs_tensor_present(&openings))
        return HS_OK;
    if (!loading->file)
        return hs_fail(HS_EFORMAT, "%s is missing from this checkpoint", loading->file_name);
    const HsNamedTensor destination = { .name = OPENINGS, .tensor = openings };
    HS_TRY(hs_checkpoint_restore(loading->file_name, loading->file, &destination, 1));
    for (int64_t i = 0; i < hs_tensor_count(&openings); i++)
        if (training->openings[i] < 0)
            return hs_fail(HS_EFORMAT, "%s: " OPENINGS " holds a count below 0", loading->file_name);
    return HS_OK;
}

/* Where tasks of an unmarked stream end says which text a step saw: only the last one's end may be another. */
static HsStatus check_task_ends(const HsTraining *training, const Loading *loading)
{
    const HsJson *array = hs_json_get(loading->object, "task_ends");
    if (!array || !hs_json_is_array(array) || hs_json_count(array) != training->data.count)
        return hs_fail(HS_EFORMAT, "%s: continual.task_ends must be a list of %d numbers", loading->json_name,
                       training->data.count);
    const HsJson *item = hs_json_first(array);
    for (int task = 0; task + 1 < training->data.count; task++, item = hs_json_next(item))
        if (hs_json_number(item) != (double)training->lengths.task_ends[task])
            return hs_fail(
                HS_ECONFIG,
                "%s: task %s ended after step %.0f of the stream, and would now after step %lld: with "
                "continual.boundaries: none the lengths of all tasks but the last stay as they were: set them back",
                loading->json_name, training->config->tasks[task].name, hs_json_number(item),
                (long long)training->lengths.task_ends[task]);
    return HS_OK;
}

/* The corner of the tasks that the checkpoint's run had, `rows` of them, into rows of `stride`. */
static HsStatus load_corner(const Loading *loading, const char *name, double *values, int rows, int columns, int stride)
{
    double *corner = calloc((size_t)rows, (size_t)columns * sizeof *corner);
    if (!corner)
        return hs_fail(HS_ENOMEM, "no memory for a matrix of %d tasks", columns);
    HsStatus status = load_reals(loading, name, corner, rows * columns);
    for (int row = 0; status == HS_OK && row < rows; row++)
        memcpy(values + row * stride, corner + row * columns, (size_t)columns * sizeof *corner);
    free(corner);
    return status;
}

/* What lies outside the corner stays as it is. */
static HsStatus load_matrix(HsRun *run, const Loading *loading)
{
    const HsMatrix *matrix = &run->matrix;
    const int known = matrix->tasks - run->appended;
    if (known == 1) /* it had none */
        return HS_OK;
    HS_TRY(load_reals(loading, "matrix_untrained", matrix->untrained, known));
    HS_TRY(load_corner(loading, "matrix_loss", matrix->loss, known, known, matrix->tasks));
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        HS_TRY(load_corner(loading, accuracy_keys[set], matrix->accuracy[set], known + 1, known, matrix->tasks));
    return HS_OK;
}

/* Not in every checkpoint: without it nothing was measured, and of nothing was warned. */
static HsStatus load_watch(HsRun *run, const Loading *loading)
{
    const int known = run->matrix.tasks - run->appended;
    if (known == 1 || !hs_json_get(loading->object, "watch_at_end"))
        return HS_OK;
    HS_TRY(load_reals(loading, "watch_at_end", run->watch.at_end, known));
    return load_reals(loading, "watch_warned", run->watch.warned, known);
}

static HsStatus restore(HsRun *run, Loading *loading)
{
    HsTraining *training = &run->training;
    HsStateVisitor visitor = { loading, load_integer, load_real, load_tensor, load_added_integer };
    HS_TRY(hs_continual_visit(training->continual, &visitor));
    if (training->lengths.unmarked)
        HS_TRY(check_task_ends(training, loading));
    if (training->teaching.has_teacher)
        HS_TRY(load_teacher(training, loading));
    HS_TRY(load_openings(training, loading));
    if (training->has_reservoir)
        HS_TRY(load_replay(run, loading));
    if (!run->has_matrix)
        return HS_OK;
    HS_TRY(load_matrix(run, loading));
    return load_watch(run, loading);
}

HsStatus hs_run_restore_continual(HsRun *run, const char *folder, const HsJson *state)
{
    char json_name[4096], file_name[4096];
    snprintf(json_name, sizeof json_name, "%s/trainer.json", folder);
    snprintf(file_name, sizeof file_name, "%s/" FILE_NAME, folder);
    Loading loading = { .json_name = json_name,
                        .file_name = file_name,
                        .object = hs_json_get(state, "continual"),
                        .device = &run->training.engine.context,
                        .shards = &run->training.exchange.shards };
    if (!loading.object || !hs_json_is_object(loading.object))
        return hs_fail(HS_EFORMAT, "%s: member `continual` is missing", json_name);
    HsSafetensors file;
    bool exists;
    HS_TRY(hs_path_exists(file_name, &exists));
    if (exists)
        HS_TRY(hs_safetensors_open(file_name, &file));
    loading.file = exists ? &file : NULL;
    HsStatus status = restore(run, &loading);
    free(loading.whole);
    if (exists)
        hs_safetensors_close(&file);
    return status;
}
