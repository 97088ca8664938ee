/* SPDX-License-Identifier: MIT
 *
 * Which rank keeps what: spans that cut a model's parameters, equal shares of them, and groups of parameters that come
 * and go, checked element by element and byte by byte.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/model/layer.h"
#include "runtime/exchange/passing.h"
#include "runtime/exchange/weight_stream.h"
#include "tests/support/tiny_model.h"

enum { MOST = 64, GRAIN = 4096, PROCESSES = 9 };

static HsSpan span_of(int parameter, int64_t count)
{
    return (HsSpan){ .name = "p",
                     .parameter = parameter,
                     .count = count,
                     .weight = hs_tensor_1d(NULL, HS_BF16, count),
                     .gradient = hs_tensor_1d(NULL, HS_F32, count) };
}

/* A copy, which the shards take over. */
static void create(const HsSpan *spans, int count, bool cuts, bool (*stays)(const HsSpan *, const void *), HsComm *comm,
                   HsShards *shards)
{
    HsSpan *whole = calloc((size_t)count, sizeof *whole);
    cr_assert(whole);
    memcpy(whole, spans, (size_t)count * sizeof *whole);
    TINY_OK(hs_shards_create(whole, count, cuts, stays, NULL, true, comm, shards));
}

/* Every element is in one span, in order; processes have consecutive ones, and `starts` says which elements. */
static void check_spans(const HsShards *shards, int size)
{
    int at = 0;
    for (int w = 0; w < shards->whole_count; w++) {
        const HsSpan *whole = &shards->whole[w];
        int64_t next = 0;
        for (; at < shards->all_count && shards->all[at].parameter == whole->parameter; at++) {
            const HsSpan *span = &shards->all[at];
            cr_assert(span->first == next && span->count > 0 && span->first % GRAIN == 0);
            cr_assert_eq(hs_tensor_count(&span->gradient), span->count);
            next += span->count;
        }
        cr_assert_eq(next, whole->count, "parameter %d", whole->parameter);
    }
    cr_assert(at == shards->all_count && shards->first[0] == 0 && shards->first[size] == shards->all_count);
    for (int r = 0; r <= size; r++)
        for (int w = 0; w < shards->whole_count; w++) {
            int64_t before = 0;
            for (int i = 0; i < shards->first[r]; i++)
                before += shards->all[i].parameter == shards->whole[w].parameter ? shards->all[i].count : 0;
            cr_assert(r == 0 || shards->first[r] >= shards->first[r - 1]);
            cr_assert_eq(shards->starts[w * (size + 1) + r], before, "process %d, parameter %d", r, w);
        }
}

/* Largest less smallest share over all elements. */
static double unevenness(const HsShards *shards, int size)
{
    int64_t all = 0, least = INT64_MAX, largest = 0;
    for (int r = 0; r < size; r++) {
        int64_t share = 0;
        for (int i = shards->first[r]; i < shards->first[r + 1]; i++)
            share += shards->all[i].count;
        all += share;
        least = share < least ? share : least;
        largest = share > largest ? share : largest;
    }
    return (double)(largest - least) / (double)all;
}

static bool is_matrix_to_orthogonalize(const HsSpan *span, const void *user)
{
    (void)user;
    return span->parameter % 3 == 1;
}

Test(shards, have_equal_shares_of_many_sizes)
{
    for (uint32_t seed = 0; seed < 20; seed++) {
        HsSpan spans[MOST];
        const HsRng rng = { .seed = seed };
        int64_t all = 0;
        for (int i = 0; i < MOST; i++) {
            const HsPhilox bits = hs_rng_draw(&rng, (uint64_t)i);
            const int64_t count =
                bits.word[0] % 3 == 0 ? 768 : 1 + (int64_t)(bits.word[1] % (1u << (10 + bits.word[2] % 16)));
            spans[i] = span_of(2 * i + 1, count); /* every second one is frozen */
            all += count;
        }
        for (int size = 1; size <= PROCESSES; size++) {
            HsComm comm = { .size = size };
            HsShards shards;
            create(spans, MOST, true, NULL, &comm, &shards);
            check_spans(&shards, size);
            cr_assert_eq(shards.comm, size > 1 ? &comm : NULL);
            cr_assert(all < 128 * GRAIN * 64 || (shards.cut && unevenness(&shards, size) <= 1.0 / 64),
                      "seed %u, %d processes: shares differ by %g of %lld elements", seed, size,
                      unevenness(&shards, size), (long long)all);
            hs_shards_destroy(&shards);

            create(spans, MOST, true, is_matrix_to_orthogonalize, &comm, &shards);
            check_spans(&shards, size);
            for (int i = 0; i < shards.all_count; i++)
                cr_assert(!is_matrix_to_orthogonalize(&shards.all[i], NULL) || shards.all[i].part_of == 0);
            hs_shards_destroy(&shards);

            create(spans, MOST, false, NULL, &comm, &shards);
            check_spans(&shards, size);
            cr_assert(!shards.cut && shards.all_count == MOST);
            hs_shards_destroy(&shards);
        }
    }
}

/* Small ones are not cut, and some processes may have nothing. */
Test(shards, of_few_elements)
{
    const HsSpan spans[] = { span_of(0, 3), span_of(1, 65536), span_of(2, 65537) };
    HsComm comm = { .size = 8 };
    HsShards shards;
    create(spans, 3, true, NULL, &comm, &shards);
    check_spans(&shards, 8);
    cr_assert(shards.all_count == 4 && shards.all[3].count == 1);
    cr_assert(shards.all[0].part_of == 0 && shards.all[1].part_of == 0 && shards.all[2].part_of == 65537);
    hs_shards_destroy(&shards);
}

/* --- groups --- */

static bool touches(const HsNode *node, int parameter)
{
    for (int i = 0; i < HS_NODE_PARAMS; i++)
        if (node->params[i] == parameter)
            return true;
    return false;
}

/* Tensors of a group have separate places in it, and each process's range is that of its elements. */
static void check_groups(const HsParamGroups *groups, const HsShards *shards, int size)
{
    const HsModel *model = groups->model;
    for (int p = 0; p < model->param_count; p++) {
        const HsTensor a = hs_param_groups_tensor(groups, p);
        cr_assert_eq(groups->group_of[p] >= 0, model->params[p].trainable);
        if (groups->group_of[p] < 0)
            continue;
        cr_assert_eq(groups->offset_of[p] % HS_ARENA_ALIGNMENT, 0);
        cr_assert(groups->offset_of[p] + hs_tensor_bytes(&a) <= groups->groups[groups->group_of[p]].bytes);
        for (int q = 0; q < p; q++) {
            const HsTensor b = hs_param_groups_tensor(groups, q);
            cr_assert(groups->group_of[q] != groups->group_of[p] ||
                      (a.dtype == b.dtype && groups->offset_of[q] + hs_tensor_bytes(&b) <= groups->offset_of[p]));
        }
    }
    for (int g = 0; g < groups->count; g++) {
        hs_param_groups_start(groups, g);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < shards->all_count; i++) {
                const HsSpan *span = &shards->all[i];
                if (groups->group_of[span->parameter] != g)
                    continue;
                const size_t first = groups->offset_of[span->parameter] / hs_dtype_bytes(groups->groups[g].dtype) +
                                     (size_t)span->first,
                             end = first + (size_t)span->count;
                const bool mine = i >= shards->first[r] && i < shards->first[r + 1];
                cr_assert(mine ? first >= groups->starts[r] && end <= groups->starts[r + 1]
                               : end <= groups->starts[r] || first >= groups->starts[r + 1],
                          "process %d of %d, group %d, %s from %lld on", r, size, g, span->name,
                          (long long)span->first);
            }
    }
}

/* At each action every group that it needs has one visit, and no two that are there share a byte of `bytes`. */
static void check_visits(const HsParamGroups *groups, const HsProgram *program, const HsVisit *visits, int count,
                         size_t bytes, bool gradients)
{
    const HsModel *model = groups->model;
    short *owner = malloc(bytes * sizeof *owner);
    cr_assert(owner);
    for (int a = 0; a < program->action_count; a++) {
        const HsAction *action = &program->actions[a];
        int there[MOST] = { 0 };
        memset(owner, 0xFF, bytes * sizeof *owner);
        for (int v = 0; v < count; v++) {
            const HsVisit *visit = &visits[v];
            if (a < visit->first_action || a > visit->last_action)
                continue;
            there[visit->group]++;
            cr_assert(visit->offset + groups->groups[visit->group].bytes <= bytes);
            for (size_t b = 0; b < groups->groups[visit->group].bytes; b++) {
                cr_assert_eq(owner[visit->offset + b], -1, "action %d: groups %d and %d share a byte", a, visit->group,
                             owner[visit->offset + b]);
                owner[visit->offset + b] = (short)visit->group;
            }
        }
        for (int p = 0; p < model->param_count; p++)
            if (groups->group_of[p] >= 0 && touches(&model->nodes[action->node], p) &&
                (!gradients || action->kind == HS_ACTION_BACKWARD))
                cr_assert_eq(there[groups->group_of[p]], 1, "action %d: %s is not there", a, model->params[p].name);
    }
    free(owner);
}

/* Not all at once: that is what they are for. */
static size_t bytes_of_all(const HsParamGroups *groups)
{
    size_t bytes = 0;
    for (int g = 0; g < groups->count; g++)
        bytes += groups->groups[g].bytes;
    return bytes;
}

static void check_model(TinySpec spec, int size)
{
    static TinyModel tiny;
    HsSpan spans[MOST];
    HsComm comm = { .rank = size - 1, .size = size };
    HsShards shards;
    tiny_create(&tiny, spec);
    create(spans, hs_model_spans(&tiny.model, spans), true, NULL, &comm, &shards);
    cr_assert(shards.cut && shards.all_count < MOST);
    HsSpanShare share = hs_shards_share(&shards, &comm);

    const HsProgram *const programs[] = { &tiny.train, &tiny.evaluate };
    HsSideStream side = { 0 };
    HsWeightStream stream = { .model = &tiny.model, .share = &share, .side = &side };
    TINY_OK(hs_param_groups_create(&tiny.model, &shards, HS_SPAN_WEIGHT, &stream.groups));
    check_groups(&stream.groups, &shards, size);
    for (int i = 0; i < 2; i++) {
        HsWeightVisits visits;
        size_t bytes;
        TINY_OK(hs_weight_visits_find(&stream, programs[i], &tiny.context, &visits, &bytes));
        check_visits(&stream.groups, programs[i], visits.items, visits.count, bytes, false);
        cr_assert_lt(bytes, bytes_of_all(&stream.groups));
        hs_weight_visits_destroy(&visits);
    }
    hs_param_groups_destroy(&stream.groups);

    HsPassing passing;
    TINY_OK(hs_passing_create(&tiny.model, &tiny.train, &shards, &share, &side, false, &tiny.context, &passing));
    check_groups(&passing.groups, &shards, size);
    check_visits(&passing.groups, &tiny.train, passing.visits, passing.visit_count, passing.memory.used, true);
    cr_assert_lt(passing.memory.used, bytes_of_all(&passing.groups));
    for (int i = 0; i < share.all_count; i++)
        cr_assert_eq(share.all[i].gradient.data != NULL, i >= share.first && i < share.first + share.count);
    hs_passing_destroy(&passing);
    hs_shards_destroy(&shards);
    tiny_destroy(&tiny);
}

Test(groups, have_their_memory_alone_while_they_are_there)
{
    static char block[] = "*.1.*";
    static char *frozen[] = { block };
    const TinySpec specs[] = {
        { .family = "gpt2", .mode = "bf16", .vocabulary = 2100, .bias = true, .tie_head = true },
        { .family = "llama", .mode = "fp32", .vocabulary = 2100, .qk_norm = true },
        { .family = "llama",
          .mode = "bf16",
          .vocabulary = 2100,
          .policy = HS_RECOMPUTE_BLOCK,
          .gradients_in_16_bits = true },
        { .family = "gpt2",
          .mode = "fp16",
          .vocabulary = 2100,
          .policy = HS_RECOMPUTE_MLP,
          .freeze = { .count = 1, .items = frozen } },
    };
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++)
        for (int size = 1; size <= 5; size++) {
            TinySpec spec = specs[s];
            spec.layers = 3;
            spec.heads = 2;
            spec.width = 48;
            spec.batch = 2;
            spec.length = 4;
            check_model(spec, size);
        }
}
