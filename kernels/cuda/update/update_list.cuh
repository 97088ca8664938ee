/* SPDX-License-Identifier: MIT
 *
 * An update rule on many tensors with one launch: those that have the formats, the step and the settings in common, as
 * many as fit into 4 KB of kernel parameters (56 of AdamW's, 36 where continual learning adds its streams).  Where a
 * tensor begins, its rate, decay and random numbers stand in its entry; a block of threads belongs to one tensor.
 *
 *     tensors        [ 0 ...... ][ 1 ][ 2 .................... ]
 *     parts, blocks  [    ][    ][  ][    ][    ][    ][       ]     Rule::part_elements each
 *
 * A rule has
 *     Settings, states               what a launch has of it; how many tensors it keeps of a parameter
 *     part_elements                  what a block of QUAD_THREADS takes
 *     of(settings, entry, rng)       the rule on one tensor, made by each thread
 * and a file of rules a struct of them, with overloads by the operation's arguments:
 *     settings_of(args), states_of(args), dispatch(args, body)
 *     kernel<Rule, guarded, Gradient, Parameter>()
 */
#ifndef HS_KERNELS_CUDA_UPDATE_UPDATE_LIST_CUH
#define HS_KERNELS_CUDA_UPDATE_UPDATE_LIST_CUH

#include "kernels/cuda/toolbox/multi_tensor.cuh"
#include "kernels/cuda/update/update_rule.cuh"

namespace HS_CUDA_NAMESPACE
{

template <int states> struct UpdateEntry {
    void *grad, *master, *weight, *state[states]; /* null: absent */
    int64_t count, first_element;                 /* first_element: rng.row_offset */
    float weight_decay, learning_rate_scale;
    uint32_t site;
    uint32_t first_part : 31, aligned : 1; /* of this launch; all streams can be moved by quads */
};

template <int states> struct GuardedUpdateEntry : UpdateEntry<states> {
    Protection protection;
};

template <int states> HS_DEVICE Protection protection_of(const UpdateEntry<states> &)
{
    return Protection{};
}

template <int states> HS_DEVICE Protection protection_of(const GuardedUpdateEntry<states> &entry)
{
    return entry.protection;
}

template <int states> static inline void set_protection(UpdateEntry<states> &, const HsProtection &)
{
}

template <int states> static inline void set_protection(GuardedUpdateEntry<states> &entry, const HsProtection &given)
{
    entry.protection = Protection(given);
}

template <typename Rule, bool is_guarded_list> struct UpdateList {
    using Entry = std::conditional_t<is_guarded_list, GuardedUpdateEntry<Rule::states>, UpdateEntry<Rule::states>>;
    static constexpr int CAPACITY = (4096 - 64) / (int)sizeof(Entry);
    const HsStepScalars *scalars;
    uint64_t seed;
    const uint32_t *step_counter;
    uint32_t step;
    typename Rule::Settings settings;
    int count;
    uint32_t parts;
    Entry entry[CAPACITY];

    __device__ __forceinline__ HsRng rng_of(const Entry &of) const
    {
        return HsRng{ seed, step, of.site, of.first_element, step_counter };
    }
};

/* The tensors that a rule keeps, in the order of the entry's states. */
template <int states> struct UpdateStates {
    const HsTensor *tensor[states];
};

/* Whether both can be in one launch. */
template <typename Rules, typename Args> bool are_mates(const Args &a, const Args &b)
{
    const HsUpdateArgs &x = a.update, &y = b.update;
    return x.grad.dtype == y.grad.dtype && x.weight.dtype == y.weight.dtype &&
           hs_tensor_present(&x.master) == hs_tensor_present(&y.master) &&
           is_guarded(x.protection) == is_guarded(y.protection) && x.scalars == y.scalars && x.rng.seed == y.rng.seed &&
           x.rng.step == y.rng.step && x.rng.step_counter == y.rng.step_counter &&
           Rules::states_of(a).tensor[0]->dtype == Rules::states_of(b).tensor[0]->dtype &&
           Rules::settings_of(a) == Rules::settings_of(b);
}

template <typename Rules, typename Entry, typename Args> Entry update_entry_of(const Args &args)
{
    const HsUpdateArgs &update = args.update;
    const auto states = Rules::states_of(args);
    Entry entry = {};
    entry.count = hs_tensor_count(&update.weight);
    bool aligned = update_aligned(update);
    for (size_t i = 0; i < sizeof states.tensor / sizeof states.tensor[0]; i++) {
        entry.state[i] = optional_data<void>(*states.tensor[i]);
        if (hs_tensor_count(states.tensor[i]) == entry.count) /* else it is read one by one */
            aligned = aligned && quad_aligned(*states.tensor[i]);
    }
    entry.grad = data_of<void>(update.grad);
    entry.master = optional_data<void>(update.master);
    entry.weight = data_of<void>(update.weight);
    entry.first_element = update.rng.row_offset;
    entry.weight_decay = update.weight_decay;
    entry.learning_rate_scale = update.learning_rate_scale;
    entry.site = update.rng.site;
    entry.aligned = aligned;
    set_protection(entry, update.protection);
    return entry;
}

/* The mates of items[first], from there on. */
template <typename Rules, typename Rule, bool guarded, typename Kernel, typename Args>
HsStatus launch_mates(const HsContext *context, const char *name, Kernel kernel, const Args *items, int first,
                      int count)
{
    using List = UpdateList<Rule, guarded>;
    static_assert(sizeof(List) <= 4096, "kernel parameters");
    const HsUpdateArgs &update = items[first].update;
    List list = {};
    list.scalars = update.scalars;
    list.seed = update.rng.seed;
    list.step = update.rng.step;
    list.step_counter = update.rng.step_counter;
    list.settings = Rules::settings_of(items[first]);
    for (int i = first; i < count; i++) {
        if (!are_mates<Rules>(items[first], items[i]))
            continue;
        if (list.count == List::CAPACITY) {
            HS_TRY(hs_launch_after(context, name, kernel, list.parts, QUAD_THREADS, 0, list));
            list.count = 0;
            list.parts = 0;
        }
        typename List::Entry &entry = list.entry[list.count++];
        entry = update_entry_of<Rules, typename List::Entry>(items[i]);
        entry.first_part = list.parts & 0x7fffffffu;
        list.parts += blocks_for(entry.count, Rule::part_elements);
    }
    return hs_launch_after(context, name, kernel, list.parts, QUAD_THREADS, 0, list);
}

/* Each of the items. */
template <typename Rules, typename Args>
HsStatus update_tensors(const HsContext *context, const char *name, const Args *items, int count)
{
    for (int first = 0; first < count; first++) {
        int mate = 0;
        while (mate < first && !are_mates<Rules>(items[mate], items[first]))
            mate++;
        if (mate < first) /* went with that one */
            continue;
        const HsUpdateArgs &update = items[first].update;
        HS_TRY(Rules::dispatch(items[first], [&](auto rule_tag) {
            using Rule = typename decltype(rule_tag)::Type;
            return dispatch_act(update.grad.dtype, [&](auto gradient) {
                using Gradient = decltype(gradient);
                return dispatch_parameter(update.master, update.weight, update.rng, [&](auto parameter) {
                    using Parameter = decltype(parameter);
                    if (is_guarded(update.protection))
                        return launch_mates<Rules, Rule, true>(
                            context, name, Rules::template kernel<Rule, true, Gradient, Parameter>(), items, first,
                            count);
                    return launch_mates<Rules, Rule, false>(
                        context, name, Rules::template kernel<Rule, false, Gradient, Parameter>(), items, first, count);
                });
            });
        }));
    }
    return HS_OK;
}

/* What follows the rule on each of them. */
template <typename Args> HsStatus follow_updates(HsContext *context, const Args *items, int count)
{
    for (int i = 0; i < count; i++)
        HS_TRY(update_follow(context, &items[i].update));
    return HS_OK;
}

template <typename T> struct RuleTag {
    using Type = T;
};

/* update_8bit.cu */
HsStatus update_adamw8bit(HsContext *context, const HsAdamW8bitArgs *items, int count);

} // namespace HS_CUDA_NAMESPACE

#endif
