/* SPDX-License-Identifier: MIT
 *
 * Rows without a target are left out of the head on a GPU, too, here the emulated one.  The truth is ref with a head that
 * runs on all rows: losses and gradients of training, evaluation and a probe that draws its labels.
 *
 * n roundings of relative size u on the longest path forward, as many back, of random signs, make a relative difference
 * of    rho = 4 sqrt(2) sqrt(2 n) u    with a probability of 1 - 2 exp(-8)   (Higham & Mary 2019, theorem 2.4)
 * n as the sums on that path are long; it is required of each loss, and of each gradient as a whole.
 */
#include <math.h>

#include "tests/support/device_rig.h"

enum { BATCH = 4, LENGTH = 24, ROWS = BATCH * LENGTH, WIDTH = 32, HEADS = 2, VOCABULARY = 19, CHUNK = 40 };

/* Row after row, over and over; x: a row with a target. */
static const char *const masks[] = { ".", "x", "x.xx...x.xxx.x..xx..x.x.", "..................xxxxxx", "x..........." };
enum { MASKS = sizeof masks / sizeof *masks };

static void open_rig(Rig *rig, const char *device, bool leaves_out)
{
    const TinySpec spec = { .family = "gpt2",
                            .layers = 1,
                            .heads = HEADS,
                            .width = WIDTH,
                            .length = LENGTH,
                            .bias = true,
                            .head_chunk = CHUNK };
    tiny_config(&spec, &rig->config);
    rig_open(rig, device, "fp32", VOCABULARY);
    HsAttributes *head = &rig->model.nodes[rig->model.loss_node].attributes;
    cr_assert(head->leaves_out);
    head->leaves_out = leaves_out;
    rig_start(rig, BATCH, LENGTH);
}

static void fetch_gradient(Rig *rig, int p, double *values)
{
    HsDevice *device = &rig->engine.device;
    const HsTensor *gradient = &rig->model.params[p].gradient;
    void *image = malloc(hs_tensor_bytes(gradient));
    cr_assert_not_null(image);
    TINY_OK(device->copy(device, rig->engine.context.stream, image, gradient->data, hs_tensor_bytes(gradient)));
    TINY_OK(device->stream_sync(device, rig->engine.context.stream));
    for (int64_t i = 0; i < hs_tensor_count(gradient); i++)
        values[i] = hs_dtype_load(gradient->dtype, image, i);
    free(image);
}

static void clear_gradients(Rig *rig)
{
    HsDevice *device = &rig->engine.device;
    for (int p = 0; p < rig->model.param_count; p++) {
        const HsTensor *gradient = &rig->model.params[p].gradient;
        TINY_OK(device->fill_zero(device, rig->engine.context.stream, gradient->data, hs_tensor_bytes(gradient)));
    }
}

typedef enum Pass { TRAIN, EVALUATE, PROBE, PASSES } Pass;
static const char *const names[PASSES] = { "training", "evaluation", "a probe" };

static void run(Rig *rig, Pass pass, const int32_t *targets, float losses[ROWS])
{
    HsContext *context = &rig->engine.context;
    int32_t tokens[ROWS];
    double sum;
    for (int row = 0; row < ROWS; row++)
        tokens[row] = row * row % VOCABULARY;
    clear_gradients(rig);
    if (pass == EVALUATE)
        TINY_OK(hs_program_evaluate(&rig->evaluate, context, tokens, targets, &sum, losses));
    else if (pass == PROBE)
        TINY_OK(hs_program_probe(&rig->train, context, tokens, targets, true, 17, 4, 6, 1.0f, &sum, losses));
    else
        TINY_OK(hs_program_train(&rig->train, context, tokens, targets, 11, 3, 0, 2.0f, &sum));
    for (int row = 0; row < ROWS && pass == TRAIN; row++)
        losses[row] = (float)hs_program_row_loss(&rig->train, row);
}

static double length_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

static void compare_gradients(Rig *left, Rig *truth, double rho, const char *what)
{
    static double a[ROWS * WIDTH * 16], b[ROWS * WIDTH * 16];
    for (int p = 0; p < left->model.param_count; p++) {
        const HsParam *param = &left->model.params[p];
        const int64_t count = hs_tensor_count(&param->gradient);
        cr_assert_leq(count, (int64_t)(sizeof a / sizeof *a));
        fetch_gradient(left, p, a);
        fetch_gradient(truth, p, b);
        const double length = length_of(b, count);
        for (int64_t i = 0; i < count; i++)
            a[i] -= b[i];
        cr_expect_leq(length_of(a, count), rho * length, "%s: %s is off by %.3g of %.3g", what, param->name,
                      length_of(a, count), length);
    }
}

static void compare(Rig *left, Rig *truth, Pass pass, const char *mask)
{
    const double summed = 5 * WIDTH + 7 * WIDTH + WIDTH / HEADS + LENGTH + 2 * WIDTH + VOCABULARY + ROWS;
    const double rho = 4 * sqrt(2) * sqrt(2 * summed) * 0x1p-24;
    int32_t targets[ROWS];
    float losses[2][ROWS];
    for (int row = 0; row < ROWS; row++)
        targets[row] = mask[(size_t)row % strlen(mask)] == 'x' ? row * 7 % VOCABULARY : -1;
    run(left, pass, targets, losses[0]);
    run(truth, pass, targets, losses[1]);
    for (int row = 0; row < ROWS; row++) {
        const double loss = (double)losses[0][row], exact = (double)losses[1][row];
        cr_expect(targets[row] < 0 ? loss == 0 : fabs(loss - exact) <= rho * fmax(1, exact),
                  "%s, %s, row %d: %.9g, on ref %.9g", names[pass], mask, row, loss, exact);
    }
    if (pass != EVALUATE)
        compare_gradients(left, truth, rho, mask);
}

Test(left_out_on_gpus, agrees_with_all_rows_on_ref)
{
    static Rig left, whole, truth;
    open_rig(&left, "emu", true);
    open_rig(&whole, "emu", false);
    open_rig(&truth, "ref", false);
    for (Pass pass = 0; pass < PASSES; pass++)
        for (int m = 0; m < MASKS; m++) {
            compare(&left, &truth, pass, masks[m]);
            compare(&whole, &truth, pass, masks[m]);
        }
    rig_close(&left);
    rig_close(&whole);
    rig_close(&truth);
}

/* --- recordings --- */

enum { SIZES = 3, TARGETS = 0, LIST = ROWS, TOKENS = 2 * ROWS, NUMBERS = 3 * ROWS };

typedef struct Scalars {
    uint32_t step;
    float scale;
} Scalars;

/* What a queued micro-batch reads and writes, on the device. */
typedef struct Queued {
    Rig rig;
    int32_t *numbers;
    float *losses;
    Scalars *scalars;
} Queued;

static void make_queued(Queued *queued)
{
    open_rig(&queued->rig, "emu", true);
    HsDevice *device = &queued->rig.engine.device;
    void *memory[3];
    TINY_OK(device->alloc(device, NUMBERS * sizeof *queued->numbers, &memory[0]));
    TINY_OK(device->alloc(device, ROWS * sizeof *queued->losses, &memory[1]));
    TINY_OK(device->alloc(device, sizeof *queued->scalars, &memory[2]));
    queued->numbers = memory[0];
    queued->losses = memory[1];
    queued->scalars = memory[2];
}

static HsProgramFeed feed_of(const Queued *queued, int64_t rows)
{
    return (HsProgramFeed){ .tokens = queued->numbers + TOKENS,
                            .targets = queued->numbers + TARGETS,
                            .seed = 11,
                            .step_counter = &queued->scalars->step,
                            .gradient_scale = &queued->scalars->scale,
                            .losses = queued->losses,
                            .target_rows = { queued->numbers + LIST, rows } };
}

/* As many targets as `counted`, spread over the rows; other ones in each round. */
static void load(Queued *queued, int counted, int round)
{
    HsDevice *device = &queued->rig.engine.device;
    HsStream *stream = queued->rig.engine.context.stream;
    int32_t host[NUMBERS];
    const Scalars scalars = { 3, 2.0f };
    for (int row = 0; row < ROWS; row++) {
        const bool has = (row + 1) * counted / ROWS > row * counted / ROWS;
        host[TARGETS + row] = has ? (row * 5 + round) % VOCABULARY : -1;
        host[TOKENS + row] = (row * row + round) % VOCABULARY;
    }
    cr_assert_eq(hs_target_rows_list(host + TARGETS, ROWS, host + LIST), counted);
    TINY_OK(device->copy(device, stream, queued->numbers, host, sizeof host));
    TINY_OK(device->copy(device, stream, queued->scalars, &scalars, sizeof scalars));
    clear_gradients(&queued->rig);
}

typedef struct Result {
    float losses[ROWS];
    double head[VOCABULARY * WIDTH];
} Result;

static void fetch(Queued *queued, Result *result)
{
    Rig *rig = &queued->rig;
    HsDevice *device = &rig->engine.device;
    TINY_OK(device->copy(device, rig->engine.context.stream, result->losses, queued->losses, sizeof result->losses));
    fetch_gradient(rig, rig->model.nodes[rig->model.loss_node].params[0], result->head);
}

/* What was recorded with one number of rows is replayed with other targets, among recordings with other numbers. */
Test(left_out_on_gpus, recordings_are_replayed_in_any_order)
{
    static const int rows[SIZES] = { 12, 45, ROWS }, order[] = { 2, 0, 1, 1, 0, 2, 1 };
    static Queued queued;
    static Result eager, replayed;
    make_queued(&queued);
    HsContext *context = &queued.rig.engine.context;
    HsDevice *device = &queued.rig.engine.device;
    HsGraph *graphs[SIZES];
    for (int s = 0; s < SIZES; s++) {
        const HsProgramFeed feed = feed_of(&queued, rows[s]);
        TINY_OK(device->graph_begin(device, context->stream));
        TINY_OK(hs_program_train_queued(&queued.rig.train, context, &feed));
        TINY_OK(device->graph_end(device, context->stream, &graphs[s]));
    }
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++) {
        const int size = order[i], counted = rows[size] - i; /* the last of a recording's rows are none */
        const HsProgramFeed feed = feed_of(&queued, rows[size]);
        load(&queued, counted, i);
        TINY_OK(hs_program_train_queued(&queued.rig.train, context, &feed));
        fetch(&queued, &eager);
        load(&queued, counted, i);
        TINY_OK(device->graph_launch(device, graphs[size], context->stream));
        fetch(&queued, &replayed);
        cr_expect_eq(memcmp(&eager, &replayed, sizeof eager), 0, "replay %d differs", i);
        for (int row = 0, seen = 0; row < ROWS; row++) {
            seen += eager.losses[row] > 0;
            cr_expect(row < ROWS - 1 || seen == counted, "%d losses of %d targets", seen, counted);
        }
    }
    for (int s = 0; s < SIZES; s++)
        device->graph_destroy(device, graphs[s]);
    device->release(device, queued.numbers);
    device->release(device, queued.losses);
    device->release(device, queued.scalars);
    rig_close(&queued.rig);
}
