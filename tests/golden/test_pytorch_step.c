/* SPDX-License-Identifier: MIT
 *
 * One whole training step against PyTorch: loss, norm of the gradients, every gradient, every weight after AdamW.
 * tests/golden/pytorch/make.py wrote the fixtures: GPT-2 (biases, tied head), Llama (one key head for three query
 * heads, untied head) and Qwen3 (QK-norm, heads wider together than the model), two micro-batches with unequal numbers
 * of targets, gradients that are clipped, decay on matrices only.
 *
 * Everything goes through files, as a user's run does: a run of one step is saved, weights and moments of its
 * checkpoint are replaced by the fixture's, and the run continues for one step more.  SGD with a rate of 0 leaves the
 * gradients themselves in its momentum; a second run is AdamW.
 *
 * Gradients.  n roundings of relative size u on the longest path forward, as many back, of random signs, make a
 * relative difference between two correct computations of
 *     rho = 4 sqrt(2) sqrt(2 n) u      with a probability of 1 - 2 exp(-8)   (Higham & Mary 2019, theorem 2.4)
 * for activations of about 1, which the fixtures' weights make.  It is required of each row, over the row's length or
 * the rows' root mean square, whichever is larger: elements of a row are sums that cancel more or less, rows are not.
 *     fp32        u = 2^-24, n as the sums in float32 are long
 *     fp32, ref   u = 2^-24; sums are in double, n counts what is stored: 8 values a block and 2 in the head
 *     bf16        u = 2^-8, the same n of stored values
 *     bf16, ref   u = 2^-24: the fixture is rounded to bf16 in the very same places, from exact sums, so that the two
 *                 differ by what is stored in float32
 * and PyTorch's own distance from float64, which the script measured, on top in fp32.
 *     loss        a mean over the counted targets: rho / sqrt(targets) of it
 *     norm        rows add up to sqrt(2) rho of it
 *
 * Weights.  What the two gradients differ by is known by now, element by element.  With the clipped gradient x, AdamW
 * goes in the direction
 *     u(x) = m' / (sqrt(v') + eps),   m' = (b1 m + (1 - b1) x) / c1,   v' = (b2 v + (1 - b2) x^2) / c2
 * As m^2 = v, |m'| <= K sqrt(v') (Cauchy-Schwarz), and |(1 - b2) x| <= sqrt((1 - b2) c2 v').  So |u| <= K, and
 *     |du/dx| <= L = ((1 - b1) / c1 + K sqrt((1 - b2) / c2)) / (sqrt(b2 v / c2) + eps)
 *     K = sqrt(b1^2 / b2 + (1 - b1)^2 / (1 - b2)) sqrt(c2) / c1
 * A weight differs by learning rate * L |dx| and by the roundings of the update in both computations.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "kernels/base/tolerance.h"
#include "runtime/model/layer.h"
#include "runtime/train/run.h"
#include "tests/support/scratch.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

enum { MOST_OVERRIDES = 20, MOST_TENSORS = 64 };

typedef struct Case {
    const char *family, *device, *mode;
} Case;

/* --- the fixture --- */

typedef struct Fixture {
    char config_path[128];
    HsSafetensors tensors;
    HsJson *results;    /* FAMILY.json */
    const HsJson *mode; /* its part on the mode */
} Fixture;

static const char *fixture_path(const char *family, const char *extension)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "tests/golden/pytorch/%s.%s", family, extension);
    return path;
}

static Fixture open_fixture(const Case *test)
{
    Fixture fixture;
    size_t size;
    snprintf(fixture.config_path, sizeof fixture.config_path, "%s", fixture_path(test->family, "yaml"));
    OK(hs_safetensors_open(fixture_path(test->family, "safetensors"), &fixture.tensors));
    const char *path = fixture_path(test->family, "json");
    char *text = scratch_read(path, &size);
    OK(hs_json_parse(path, text, size, &fixture.results));
    free(text);
    fixture.mode = hs_json_get(fixture.results, test->mode);
    cr_assert_not_null(fixture.mode);
    return fixture;
}

static void close_fixture(Fixture *fixture)
{
    hs_safetensors_close(&fixture->tensors);
    hs_json_destroy(fixture->results);
}

static double result(const Fixture *fixture, const char *key)
{
    const double value = hs_json_number(hs_json_get(fixture->mode, key));
    cr_assert(isfinite(value), "%s", key);
    return value;
}

/* --- tensors --- */

static const HsTensor *find(const HsSafetensors *file, const char *prefix, const char *name, const char *suffix)
{
    char full[200];
    snprintf(full, sizeof full, "%s%s%s", prefix, name, suffix);
    const HsNamedTensor *found = hs_safetensors_find(file, full);
    cr_assert_not_null(found, "no tensor %s", full);
    return &found->tensor;
}

static double *values_of(const HsTensor *tensor)
{
    const int64_t count = hs_tensor_count(tensor);
    double *values = malloc((size_t)count * sizeof *values);
    cr_assert_not_null(values);
    hs_safetensors_load(tensor, 0, 1, count, values);
    return values;
}

/* What a checkpoint calls part number `part` (q, k, v) of a parameter that is stacked in memory -> own, its name where it has
 * no parts.  False: there are no more. */
static bool part_of(const char *name, int part, char own[128])
{
    static const struct {
        const char *stacked, *parts[4];
    } rows[] = {
        { "qkv_proj", { "q_proj", "k_proj", "v_proj" } },
        { "gate_up_proj", { "gate_proj", "up_proj" } },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const char *const place = strstr(name, rows[r].stacked);
        if (!place)
            continue;
        if (rows[r].parts[part])
            snprintf(own, 128, "%.*s%s%s", (int)(place - name), name, rows[r].parts[part],
                     place + strlen(rows[r].stacked));
        return rows[r].parts[part] != NULL;
    }
    snprintf(own, 128, "%s", name);
    return part == 0;
}

/* Of a parameter, as it is in memory. */
static double *stacked_values(const HsSafetensors *file, const char *name)
{
    double *all = NULL;
    int64_t count = 0;
    char own[128];
    for (int part = 0; part_of(name, part, own); part++) {
        const HsTensor *tensor = find(file, "", own, "");
        const int64_t more = hs_tensor_count(tensor);
        all = realloc(all, (size_t)(count + more) * sizeof *all);
        cr_assert_not_null(all);
        hs_safetensors_load(tensor, 0, 1, more, all + count);
        count += more;
    }
    return all;
}

/* The parameter that SGD's momentum number i belongs to. */
static const char *parameter_of(const HsSafetensors *momenta, int i, char name[128])
{
    snprintf(name, 128, "%.*s", (int)(strlen(momenta->tensors[i].name) - strlen(".momentum")),
             momenta->tensors[i].name);
    return name;
}

static double length_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

/* --- a run --- */

/* What replaces a checkpoint's tensors; its own memory for the moments. */
typedef struct Replacement {
    HsNamedTensor model[MOST_TENSORS], optimizer[2 * MOST_TENSORS];
    int model_count, optimizer_count;
    char *config, *tokenizer;
    size_t config_bytes, tokenizer_bytes;
} Replacement;

static const char initial[] = "initial.";

/* AdamW's m = w / 32 and v = m^2, as the script has them; SGD's momentum is 0. */
static void add_state(Replacement *with, const HsNamedTensor *model, const char *suffix, bool zero, bool square)
{
    const int64_t count = hs_tensor_count(&model->tensor);
    HsNamedTensor *entry = &with->optimizer[with->optimizer_count++];
    *entry = *model;
    snprintf(entry->name, sizeof entry->name, "%.80s.%s", model->name, suffix);
    double *w = values_of(&model->tensor);
    float *state = calloc((size_t)count, sizeof *state);
    cr_assert_not_null(state);
    for (int64_t i = 0; i < count && !zero; i++) {
        const float m = (float)w[i] / 32;
        state[i] = square ? m * m : m;
    }
    free(w);
    entry->tensor.data = state;
}

static void fill_replacement(const Fixture *fixture, const HsCheckpoint *checkpoint, bool adamw, Replacement *with)
{
    int parameters = 0;
    for (int i = 0; i < fixture->tensors.count; i++) {
        HsNamedTensor whole = fixture->tensors.tensors[i];
        if (strncmp(whole.name, initial, sizeof initial - 1) != 0)
            continue;
        memmove(whole.name, whole.name + sizeof initial - 1, strlen(whole.name) - sizeof initial + 2);
        add_state(with, &whole, adamw ? "m" : "momentum", !adamw, false);
        if (adamw)
            add_state(with, &whole, "v", false, true);
        int64_t first = 0;
        char own[128];
        for (int part = 0; part_of(whole.name, part, own); part++) {
            cr_assert_lt(with->model_count, MOST_TENSORS);
            HsNamedTensor *model = &with->model[with->model_count++];
            const int64_t rows = find(&checkpoint->model, "", own, "")->shape[0];
            *model = whole;
            snprintf(model->name, sizeof model->name, "%.*s", (int)sizeof model->name - 1, own);
            model->tensor = hs_tensor_rows(whole.tensor, first, rows);
            first += rows;
        }
        cr_assert_eq(first, whole.tensor.shape[0]);
        parameters++;
    }
    cr_assert_eq((double)parameters, hs_json_number(hs_json_get(fixture->results, "parameters")));
}

static HsStatus write_kept(void *user, const char *folder)
{
    const Replacement *with = user;
    char path[4096];
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    HS_TRY(hs_storage_write_file(path, with->config, with->config_bytes));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    return hs_storage_write_file(path, with->tokenizer, with->tokenizer_bytes);
}

/* The run's checkpoint with the fixture's tensors and everything else as it was. */
static void replace_tensors(const Fixture *fixture, const char *out_dir, bool adamw)
{
    HsCheckpoint checkpoint;
    Replacement with = { 0 };
    char path[4096];
    OK(hs_checkpoint_open(out_dir, true, &checkpoint));
    fill_replacement(fixture, &checkpoint, adamw, &with);
    cr_assert_eq(with.optimizer_count, checkpoint.optimizer.count);
    snprintf(path, sizeof path, "%s/config.yaml", checkpoint.folder);
    with.config = scratch_read(path, &with.config_bytes);
    snprintf(path, sizeof path, "%s/tokenizer.json", checkpoint.folder);
    with.tokenizer = scratch_read(path, &with.tokenizer_bytes);
    const HsCheckpointContent content = { .step = 1,
                                          .model = with.model,
                                          .model_count = with.model_count,
                                          .optimizer = with.optimizer,
                                          .optimizer_count = with.optimizer_count,
                                          .state = checkpoint.state,
                                          .write_extra = write_kept,
                                          .user = &with };
    OK(hs_checkpoint_save(out_dir, &content, 2));
    for (int i = 0; i < with.optimizer_count; i++)
        free(with.optimizer[i].tensor.data);
    free(with.config);
    free(with.tokenizer);
    hs_checkpoint_close(&checkpoint);
}

static const char *const sgd_overrides[] = { "optimizer.kind=sgd", "optimizer.clip_norm=0", "weight_decay=0",
                                             "learning_rate=0", NULL };

static void load_config(const Case *test, const Fixture *fixture, const char *out_dir, bool adamw, int steps,
                        HsConfig *config)
{
    char device[64], mode[64], folder[600], length[64];
    snprintf(device, sizeof device, "device=%s", test->device);
    snprintf(mode, sizeof mode, "precision.mode=%s", test->mode);
    snprintf(folder, sizeof folder, "out_dir=%s", out_dir);
    snprintf(length, sizeof length, "max_steps=%d", steps);
    const char *overrides[MOST_OVERRIDES] = { device,
                                              mode,
                                              folder,
                                              length,
                                              "threads=1",
                                              "checkpoint_freq=0",
                                              "logging.progress=none",
                                              "logging.every=1",
                                              "logging.tensorboard=false",
                                              "logging.device_seconds=0",
                                              "evaluation.every=0",
                                              "evaluation.batches=1" };
    int count = 12;
    for (int i = 0; !adamw && sgd_overrides[i]; i++)
        overrides[count++] = sgd_overrides[i];
    OK(hs_config_load(config, fixture->config_path, count, overrides));
}

/* Trains, or continues, until `steps` steps are applied. */
static void train(const Case *test, const Fixture *fixture, const char *out_dir, bool adamw, int steps)
{
    HsConfig config;
    HsRun run;
    load_config(test, fixture, out_dir, adamw, steps, &config);
    OK(hs_run_create(&config, &run, NULL));
    OK(hs_run_train(&run));
    hs_run_destroy(&run);
    hs_config_deinit(&config);
}

typedef struct Step {
    HsCheckpoint after;
    double loss, grad_norm;
} Step;

/* What the record says of the second step. */
static void read_record(const char *out_dir, Step *step)
{
    char path[600];
    size_t size;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out_dir);
    char *text = scratch_read(path, &size);
    step->loss = NAN;
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        HsJson *json;
        OK(hs_json_parse("metrics", at, (size_t)(end - at), &json));
        if (strcmp(hs_json_string(hs_json_get(json, "event")), "step") == 0 &&
            hs_json_number(hs_json_get(json, "step")) == 2) {
            step->loss = hs_json_number(hs_json_get(json, "loss"));
            step->grad_norm = hs_json_number(hs_json_get(json, "grad_norm"));
        }
        hs_json_destroy(json);
    }
    free(text);
    cr_assert(isfinite(step->loss), "no record of the second step");
}

static void run_step(const Case *test, const Fixture *fixture, const Scratch *scratch, bool adamw, Step *step)
{
    char out_dir[512];
    snprintf(out_dir, sizeof out_dir, "%s", scratch_path(scratch, adamw ? "adamw" : "sgd"));
    train(test, fixture, out_dir, adamw, 1);
    replace_tensors(fixture, out_dir, adamw);
    train(test, fixture, out_dir, adamw, 2);
    OK(hs_checkpoint_open(out_dir, true, &step->after));
    read_record(out_dir, step);
}

/* --- bounds --- */

static double unit_roundoff(HsDtype dtype)
{
    return hs_dtype_info(dtype)->epsilon / 2;
}

/* rho of the header. */
static double relative_bound(const Case *test, const HsConfig *config)
{
    const int64_t width = config->model.width, layers = config->model.layers;
    const int64_t head = config->model.head_dim ? config->model.head_dim : width / config->model.heads;
    const int64_t mixed = config->model.heads * head, rows = config->training.batch_size * config->training.max_length;
    const bool exact_sums = hs_is(test->device, "ref"), half = hs_is(test->mode, "bf16");
    const int64_t stored = 8 * layers + 2;
    /* Of a block: two norms, four products, both norms of heads, scores, softmax; of the head: norm, product, softmax;
     * the sum over rows that makes a weight's gradient. */
    const int64_t summed =
        layers * (4 * width + mixed + config->model.mlp_width + 3 * head + config->training.max_length) + 2 * width +
        config->model.vocabulary + rows;
    const double roundings = (double)(exact_sums || half ? stored : summed);
    return 4 * sqrt(2) * sqrt(2 * roundings) * unit_roundoff(half && !exact_sums ? HS_BF16 : HS_F32);
}

/* PyTorch's own; of bf16's fixture, with exact sums, there is none. */
static double distance_of(const Case *test, const Fixture *fixture, const char *name)
{
    if (!hs_is(test->mode, "fp32"))
        return 0;
    const double distance = hs_json_number(hs_json_get(hs_json_get(fixture->mode, "distances"), name));
    cr_assert(isfinite(distance), "%s", name);
    return distance;
}

static double largest_distance(const Case *test, const Fixture *fixture)
{
    double largest = 0;
    const HsJson *distances = hs_json_get(fixture->mode, "distances");
    for (const HsJson *node = distances ? hs_json_first(distances) : NULL; node; node = hs_json_next(node))
        largest = fmax(largest, distance_of(test, fixture, hs_json_key(node)));
    return largest;
}

/* --- comparisons --- */

static void check_rows(const char *name, const HsTensor *tensor, const double *computed, const double *expected,
                       double bound)
{
    const int64_t rows = tensor->rank == 2 ? tensor->shape[0] : 1, columns = hs_tensor_count(tensor) / rows;
    const double typical = length_of(expected, rows * columns) / sqrt((double)rows);
    for (int64_t row = 0; row < rows; row++) {
        const double *a = computed + row * columns, *b = expected + row * columns, length = length_of(b, columns);
        double far = 0;
        for (int64_t i = 0; i < columns; i++)
            far += (a[i] - b[i]) * (a[i] - b[i]);
        /* What no target and no token touched is 0 in both. */
        const double scale = length > 0 ? fmax(length, typical) : 0;
        cr_expect_leq(sqrt(far), bound * scale, "gradient of %s, row %lld: off by %.3g of %.3g, bound %.3g", name,
                      (long long)row, sqrt(far), scale, bound * scale);
    }
}

static void check_gradients(const Case *test, const Fixture *fixture, const Step *step, double rho)
{
    for (int i = 0; i < step->after.optimizer.count; i++) {
        char prefix[32], text[128];
        const char *name = parameter_of(&step->after.optimizer, i, text);
        snprintf(prefix, sizeof prefix, "%s.gradient.", test->mode);
        const HsTensor *expected = find(&fixture->tensors, prefix, name, "");
        double *a = values_of(find(&step->after.optimizer, "", name, ".momentum")), *b = values_of(expected);
        check_rows(name, expected, a, b, rho + distance_of(test, fixture, name));
        free(a);
        free(b);
    }
}

static double clip_coefficient(const HsConfig *config, double norm)
{
    return fmin(1, config->optimizer.clip_norm / (norm + 1e-6));
}

/* One weight's bound; see the header. */
static double weight_bound(const HsConfig *config, double weight, double difference)
{
    const double b1 = config->optimizer.betas[0], b2 = config->optimizer.betas[1], m = weight / 32;
    const double c1 = 1 - b1 * b1, c2 = 1 - b2 * b2, rate = config->training.learning_rate;
    const double most = sqrt(b1 * b1 / b2 + (1 - b1) * (1 - b1) / (1 - b2)) * sqrt(c2) / c1;
    const double steepest =
        ((1 - b1) / c1 + most * sqrt((1 - b2) / c2)) / (sqrt(b2 / c2) * fabs(m) + config->optimizer.epsilon);
    /* w, its decay and the direction, at most `most`, are added.  The direction is ten roundings deep: gradient, clip,
     * moments with two products and a sum each, two corrections, root, sum, quotient. */
    const double magnitude = fabs(weight) * (1 + rate * config->training.weight_decay) + rate * most;
    return rate * steepest * difference + 2 * hs_tolerance(3, 10, HS_F32, HS_F32, magnitude, weight);
}

static void check_weights(const Case *test, const Fixture *fixture, const HsConfig *config, const Step *gradients,
                          const Step *step)
{
    const double clip = clip_coefficient(config, step->grad_norm);
    const double expected_clip = clip_coefficient(config, result(fixture, "grad_norm"));
    cr_expect_lt(expected_clip, 0.5, "the fixture's gradients are hardly clipped");
    for (int i = 0; i < gradients->after.optimizer.count; i++) {
        char gradient[32], after[32], text[128];
        const char *name = parameter_of(&gradients->after.optimizer, i, text);
        snprintf(gradient, sizeof gradient, "%s.gradient.", test->mode);
        snprintf(after, sizeof after, "%s.after.", test->mode);
        const HsTensor *tensor = find(&fixture->tensors, after, name, "");
        double *w = values_of(find(&fixture->tensors, initial, name, ""));
        double *g = values_of(find(&gradients->after.optimizer, "", name, ".momentum"));
        double *expected_g = values_of(find(&fixture->tensors, gradient, name, ""));
        double *computed = stacked_values(&step->after.model, name), *expected = values_of(tensor);
        for (int64_t e = 0; e < hs_tensor_count(tensor); e++) {
            const double bound = weight_bound(config, w[e], fabs(clip * g[e] - expected_clip * expected_g[e]));
            cr_expect_leq(fabs(computed[e] - expected[e]), bound,
                          "%s[%lld] after the step: %.9g, PyTorch %.9g, bound %.3g", name, (long long)e, computed[e],
                          expected[e], bound);
        }
        free(w), free(g), free(expected_g), free(computed), free(expected);
    }
}

/* The windows that the loader cuts for the second step are the fixture's rows, in whatever order. */
static void check_batch(const Fixture *fixture, const HsConfig *config, int64_t *counted)
{
    const int64_t rows = config->training.batch_size * config->training.gradient_accumulation_steps;
    const int64_t length = config->training.max_length;
    const HsTensor *tokens = find(&fixture->tensors, "", "tokens", ""),
                   *targets = find(&fixture->tensors, "", "targets", "");
    double *expected_tokens = values_of(tokens), *expected_targets = values_of(targets);
    int32_t *row = malloc(2 * (size_t)length * sizeof *row), *target = row + length;
    HsTaskData data;
    OK(hs_task_data_create(config, NULL, &data));
    cr_assert_eq(hs_dataset_windows(&data.tasks[0]), rows);
    *counted = 0;
    for (int64_t i = 0; i < rows; i++) {
        bool found = false;
        hs_dataset_sample(&data.tasks[0], rows + i, row, target);
        for (int64_t r = 0; r < rows && !found; r++) {
            found = true;
            for (int64_t t = 0; t < length; t++)
                found = found && row[t] == (int32_t)expected_tokens[r * length + t] &&
                        target[t] == (int32_t)expected_targets[r * length + t];
        }
        cr_assert(found,
                  "window %lld of the second step is none of the fixture's rows: does another seed in make.py "
                  "begin it at the first token?",
                  (long long)i);
        for (int64_t t = 0; t < length; t++)
            *counted += target[t] >= 0;
    }
    hs_task_data_deinit(&data);
    free(row), free(expected_tokens), free(expected_targets);
}

static void check(Case test)
{
    hs_log_set_level(HS_LOG_ERROR);
    Fixture fixture = open_fixture(&test);
    Scratch scratch = scratch_make();
    HsConfig config;
    Step gradients, step;
    int64_t counted;
    load_config(&test, &fixture, "unused", true, 1, &config);
    check_batch(&fixture, &config, &counted);
    const double rho = relative_bound(&test, &config), loss = result(&fixture, "loss"),
                 norm = result(&fixture, "grad_norm");
    const double loss_distance = hs_is(test.mode, "fp32") ? result(&fixture, "loss_distance") : 0;
    run_step(&test, &fixture, &scratch, false, &gradients);
    check_gradients(&test, &fixture, &gradients, rho);
    run_step(&test, &fixture, &scratch, true, &step);
    check_weights(&test, &fixture, &config, &gradients, &step);
    const double loss_bound = (rho / sqrt((double)counted) + loss_distance) * loss;
    cr_expect_leq(fabs(step.loss - loss), loss_bound, "loss %.9g, PyTorch %.9g, bound %.3g", step.loss, loss,
                  loss_bound);
    const double norm_bound = sqrt(2) * (rho + largest_distance(&test, &fixture)) * norm;
    cr_expect_leq(fabs(step.grad_norm - norm), norm_bound, "norm of the gradients %.9g, PyTorch %.9g, bound %.3g",
                  step.grad_norm, norm, norm_bound);
    hs_checkpoint_close(&gradients.after);
    hs_checkpoint_close(&step.after);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
    close_fixture(&fixture);
}

#define FAMILY(family)                           \
    Test(pytorch_step, family##_on_cpu_in_fp32)  \
    {                                            \
        check((Case){ #family, "cpu", "fp32" }); \
    }                                            \
    Test(pytorch_step, family##_on_cpu_in_bf16)  \
    {                                            \
        check((Case){ #family, "cpu", "bf16" }); \
    }                                            \
    Test(pytorch_step, family##_on_ref_in_fp32)  \
    {                                            \
        check((Case){ #family, "ref", "fp32" }); \
    }                                            \
    Test(pytorch_step, family##_on_ref_in_bf16)  \
    {                                            \
        check((Case){ #family, "ref", "bf16" }); \
    }

FAMILY(gpt2)
FAMILY(llama)
FAMILY(qwen3)

/* The kernels for GPUs, on the emulator, which takes longer: both families' layers once. */
Test(pytorch_step, gpt2_on_emu_in_bf16)
{
    check((Case){ "gpt2", "emu", "bf16" });
}
Test(pytorch_step, qwen3_on_emu_in_bf16)
{
    check((Case){ "qwen3", "emu", "bf16" });
}
Test(pytorch_step, qwen3_on_emu_in_fp32)
{
    check((Case){ "qwen3", "emu", "fp32" });
}
