/* SPDX-License-Identifier: MIT
 *
 * DER++ (Buzzega et al. 2020, eq. 6) and LwF (Li & Hoiem 2016, eq. 2 and 3) written down plainly in double, over the
 * logits of a whole model, against what the head makes of them: the terms, and every parameter's gradient.
 */
#include <float.h>

#include "runtime/engine/program_internal.h"
#include "tests/support/tiny_model.h"

enum { BATCH = 3, LENGTH = 4, ROWS = BATCH * LENGTH, WIDTH = 8, VOCABULARY = 11, KEPT = 4 };

static const double alpha = 0.5, beta = 0.25, teacher_weight = 0.75, temperature = 2, weight_again = 1.25,
                    temperature_again = 0.5;

typedef struct Distilled {
    TinyModel tiny;
    bool matches, taught, taught_again, capped;
    int32_t replayed[ROWS], kept_index[ROWS * KEPT], top_index[ROWS * KEPT];
    float kept_value[ROWS * KEPT], top_value[ROWS * KEPT];
    double hidden[ROWS * WIDTH], head[VOCABULARY * WIDTH]; /* the teacher's */
    double logits[ROWS * VOCABULARY], teacher[ROWS * VOCABULARY];
    double losses[ROWS], terms[ROWS];
} Distilled;

/* Of the model's head and of the teacher's, where logits are capped. */
static const HsAttributes student_attributes = { .logit_factor = 1.25f, .logit_cap = 2.0f },
                          teacher_attributes = { .logit_factor = -0.75f, .logit_cap = 3.0f },
                          plain_attributes = { .logit_factor = 1.0f };

/* c tanh(f hidden head^T / c) */
static void multiply(const HsAttributes *attributes, const double *hidden, const double *head, double *logits)
{
    const double factor = (double)attributes->logit_factor, cap = (double)attributes->logit_cap;
    for (int n = 0; n < ROWS; n++)
        for (int v = 0; v < VOCABULARY; v++) {
            double sum = 0;
            for (int c = 0; c < WIDTH; c++)
                sum += hidden[n * WIDTH + c] * head[v * WIDTH + c];
            logits[n * VOCABULARY + v] = cap > 0 ? cap * tanh(factor * sum / cap) : factor * sum;
        }
}

static double log_softmax(const double *logits, int v, double t)
{
    double total = 0;
    for (int u = 0; u < VOCABULARY; u++)
        total += exp(logits[u] / t);
    return logits[v] / t - log(total);
}

/* alpha times the mean squared distance to the logits that were kept. */
static double matching(const Distilled *d, int n)
{
    double sum = 0;
    for (int k = n * KEPT; k < (n + 1) * KEPT; k++) {
        const double distance = d->logits[n * VOCABULARY + d->kept_index[k]] - (double)d->kept_value[k];
        sum += distance * distance;
    }
    return alpha * sum / KEPT;
}

/* Whether a teacher teaches in a row: LwF in new ones, generative replay in replayed ones. */
static bool is_taught(const Distilled *d, int n)
{
    return d->replayed[n] ? d->taught_again : d->taught;
}

/* The cross-entropy of the teacher's softened answer and the student's, less the teacher's own entropy. */
static double teaching(const Distilled *d, int n)
{
    double sum = 0;
    const double t = d->replayed[n] ? temperature_again : temperature;
    for (int v = 0; v < VOCABULARY; v++) {
        const double q = log_softmax(d->teacher + n * VOCABULARY, v, t);
        sum += exp(q) * (q - log_softmax(d->logits + n * VOCABULARY, v, t));
    }
    return (d->replayed[n] ? weight_again : teacher_weight) * sum;
}

static double plain_loss(void *user)
{
    Distilled *d = user;
    TinyModel *tiny = &d->tiny;
    double unused, loss = 0;
    TINY_OK(hs_program_evaluate(&tiny->evaluate, &tiny->context, tiny->tokens, tiny->targets, &unused, NULL));
    const HsAction *head = &tiny->evaluate.actions[tiny->evaluate.action_count - 1];
    const HsModel *model = &tiny->model;
    multiply(d->capped ? &student_attributes : &plain_attributes,
             hs_program_tensor(&tiny->evaluate, head->inputs[0], ROWS).data,
             model->params[model->nodes[model->loss_node].params[0]].stored.values.data, d->logits);
    for (int n = 0; n < ROWS; n++) {
        if (tiny->targets[n] < 0)
            continue;
        const bool matched = d->matches && d->replayed[n];
        const double entropy = -log_softmax(d->logits + n * VOCABULARY, tiny->targets[n], 1);
        const bool again = d->replayed[n] && d->taught_again;
        loss += (matched || again ? beta : 1) * entropy + (matched ? matching(d, n) : 0) +
                (is_taught(d, n) ? teaching(d, n) : 0);
    }
    return loss;
}

static void train(Distilled *d)
{
    TinyModel *tiny = &d->tiny;
    const HsModel *model = &tiny->model;
    HsParam teacher_head = model->params[model->nodes[model->loss_node].params[0]];
    teacher_head.stored.values.data = d->head;
    const HsHeadWork work = {
        .kept = d->matches ? KEPT : 0,
        .weight = (float)alpha,
        .target_weight = (float)beta,
        .replayed = d->replayed,
        .kept_value = d->kept_value,
        .kept_index = d->kept_index,
        .top_value = d->top_value,
        .top_index = d->top_index,
        .fresh = { d->taught ? (float)teacher_weight : 0.0f, (float)temperature, 1.0f },
        .again = { d->taught_again ? (float)weight_again : 0.0f, (float)temperature_again, (float)beta },
        .teacher_hidden = d->taught || d->taught_again ? hs_tensor_2d(d->hidden, HS_F64, ROWS, WIDTH) : (HsTensor){ 0 },
        .teacher_head = &teacher_head,
        .teacher_attributes = d->capped ? &teacher_attributes : &plain_attributes,
        .terms = d->terms
    };
    const float scale = 1.0f;
    const uint32_t step = 0;
    int32_t list[ROWS];
    const HsTargetRows rows = { list, hs_target_rows_list(tiny->targets, ROWS, list) };
    const HsProgramFeed feed = { .tokens = tiny->tokens,
                                 .targets = tiny->targets,
                                 .step_counter = &step,
                                 .gradient_scale = &scale,
                                 .losses = d->losses,
                                 .head_work = &work,
                                 .target_rows = rows };
    tiny_clear_gradients(tiny);
    TINY_OK(hs_program_train_queued(&tiny->train, &tiny->context, &feed));
}

static double random_number(HsRng *rng)
{
    double normal[2];
    const HsPhilox draw = hs_rng_draw(rng, rng->step++);
    hs_rng_normal(draw.word[0], draw.word[1], normal);
    return normal[0];
}

static void create(Distilled *d, bool matches, bool taught, bool taught_again, bool capped)
{
    memset(d, 0, sizeof *d);
    d->matches = matches;
    d->taught = taught;
    d->taught_again = taught_again;
    d->capped = capped;
    tiny_create(&d->tiny, (TinySpec){ .family = "gpt2",
                                      .mode = "fp64",
                                      .layers = 2,
                                      .heads = 2,
                                      .width = WIDTH,
                                      .vocabulary = VOCABULARY,
                                      .batch = BATCH,
                                      .length = LENGTH,
                                      .tie_head = true,
                                      .policy = HS_RECOMPUTE_BLOCK,
                                      .head_work = true,
                                      .kept = KEPT });
    HsAttributes *head = &d->tiny.model.nodes[d->tiny.model.loss_node].attributes;
    if (capped) {
        head->logit_factor = student_attributes.logit_factor;
        head->logit_cap = student_attributes.logit_cap;
    }
    HsRng rng = { .seed = 8 };
    for (int i = 0; i < ROWS * WIDTH; i++)
        d->hidden[i] = random_number(&rng);
    for (int i = 0; i < VOCABULARY * WIDTH; i++)
        d->head[i] = random_number(&rng);
    for (int i = 0; i < ROWS * KEPT; i++) {
        d->kept_value[i] = (float)random_number(&rng);
        d->kept_index[i] = (i / KEPT + 3 * i) % VOCABULARY;
    }
    for (int n = 0; n < ROWS; n++) /* the second sequence */
        d->replayed[n] = n / LENGTH == 1;
    multiply(capped ? &teacher_attributes : &plain_attributes, d->hidden, d->head, d->teacher);
}

static void check_gradients(Distilled *d)
{
    /* Each loss is a chain of sums of at most a few hundred terms: n u times the sum's size. */
    const double rounding = 300 * DBL_EPSILON * fabs(plain_loss(d));
    for (int p = 0; p < d->tiny.model.param_count; p++) {
        const HsParam *param = &d->tiny.model.params[p];
        tiny_check_gradient(plain_loss, d, param, param->gradient.data, rounding);
    }
}

static void check_terms(const Distilled *d)
{
    for (int n = 0; n < ROWS; n++) {
        if (d->tiny.targets[n] < 0)
            continue;
        const bool matched = d->matches && d->replayed[n], taught = is_taught(d, n);
        const double expected = matched ? matching(d, n) : taught ? teaching(d, n) : 0;
        if (matched || taught)
            cr_expect_float_eq(d->terms[n], expected, 1e-13 * fmax(1, expected), "row %d: %.17g, expected %.17g", n,
                               d->terms[n], expected);
    }
}

static void check_with(bool matches, bool taught, bool taught_again, bool capped)
{
    static Distilled d;
    create(&d, matches, taught, taught_again, capped);
    train(&d);
    plain_loss(&d);
    check_terms(&d);
    check_gradients(&d);
    tiny_destroy(&d.tiny);
}

static void check(bool matches, bool taught, bool taught_again)
{
    check_with(matches, taught, taught_again, false);
}

Test(distill, derpp_is_its_equation)
{
    check(true, false, false);
}

Test(distill, lwf_is_its_equation)
{
    check(false, true, false);
}

Test(distill, both_at_once)
{
    check(true, true, false);
}

Test(distill, generative_is_its_equation)
{
    check(false, false, true);
}

Test(distill, lwf_and_generative)
{
    check(false, true, true);
}

static void check_kept(bool leaves_out, bool capped)
{
    static Distilled d;
    create(&d, true, false, false, capped);
    d.tiny.model.nodes[d.tiny.model.loss_node].attributes.leaves_out = leaves_out;
    train(&d);
    plain_loss(&d);
    for (int n = 0; n < ROWS; n++) {
        const double *row = d.logits + n * VOCABULARY;
        for (int k = n * KEPT; k < (n + 1) * KEPT && leaves_out && d.tiny.targets[n] < 0; k++)
            cr_expect(d.top_index[k] == 0 && d.top_value[k] == 0.0f, "row %d was left out", n);
        if (leaves_out && d.tiny.targets[n] < 0)
            continue;
        bool taken[VOCABULARY] = { false };
        for (int k = 0; k < KEPT; k++) {
            int best = -1;
            for (int v = 0; v < VOCABULARY; v++)
                if (!taken[v] && (best < 0 || row[v] > row[best]))
                    best = v;
            taken[best] = true;
            cr_expect_eq(d.top_index[n * KEPT + k], best);
            cr_expect_float_eq((double)d.top_value[n * KEPT + k], row[best], 1e-6 * fmax(1, fabs(row[best])));
        }
    }
    tiny_destroy(&d.tiny);
}

/* What is kept are the model's own largest logits, in falling order; none of a row that the head leaves out. */
Test(distill, the_largest_logits_are_kept)
{
    check_kept(false, false);
    check_kept(true, false);
    check_kept(true, true);
}

/* A head with a factor and a cap, and a teacher's with others. */
Test(distill, of_scaled_and_capped_logits)
{
    check_with(true, true, false, true);
    check_with(false, true, true, true);
}
