/* SPDX-License-Identifier: MIT
 *
 * The language of --strategies and --grid: lists, products, folders, and what is refused and how.
 */
#include <criterion/criterion.h>

#include <string.h>

#include "runtime/study/compare_variants.h"

static HsVariants variants;

static void parse(const char *strategies, int grid_count, const char *const *grids)
{
    cr_assert_eq(hs_variants_parse(strategies, grids, grid_count, &variants), HS_OK, "%s", hs_error_message());
}

static void refuses(const char *strategies, int grid_count, const char *const *grids, const char *text)
{
    cr_expect_eq(hs_variants_parse(strategies, grids, grid_count, &variants), HS_ECONFIG, "%s", text);
    cr_expect(strstr(hs_error_message(), text), "%s: %s", text, hs_error_message());
    hs_variants_deinit(&variants);
}

/* The variant's overrides, separated by bars. */
static const char *overrides_of(int index)
{
    static char text[1024];
    const HsStringList *list = &variants.items[index].overrides;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "|" : "", list->items[i]);
    return text;
}

Test(compare_variants, strategies_alone)
{
    parse("none, ewc+er:ewc.lambda=10:er.x=[1,2],joint", 0, NULL);
    cr_assert_eq(variants.count, 3);
    cr_expect_str_eq(overrides_of(0), "continual.strategy=none");
    cr_expect_str_eq(overrides_of(1), "continual.strategy=ewc+er|ewc.lambda=10|er.x=[1,2]");
    cr_expect_str_eq(variants.items[1].label, "ewc+er:ewc.lambda=10:er.x=[1,2]");
    cr_expect_str_eq(variants.items[1].folder, "ewc+er_ewc.lambda=10_er.x=_1_2_");
    hs_variants_deinit(&variants);
}

Test(compare_variants, a_product_with_the_last_key_fastest)
{
    parse("none,er", 2,
          (const char *const[]){ "learning_rate=1e-3, 1e-4,1e-5", "optimizer.betas=[0.9, 0.99],[0.9, 0.95]" });
    cr_assert_eq(variants.count, 12);
    cr_assert_eq(variants.axis_count, 3);
    cr_expect_str_eq(overrides_of(0), "continual.strategy=none|learning_rate=1e-3|optimizer.betas=[0.9, 0.99]");
    cr_expect_str_eq(overrides_of(1), "continual.strategy=none|learning_rate=1e-3|optimizer.betas=[0.9, 0.95]");
    cr_expect_str_eq(overrides_of(11), "continual.strategy=er|learning_rate=1e-5|optimizer.betas=[0.9, 0.95]");
    for (int i = 0; i < 12; i++) {
        cr_expect_eq(hs_variants_value(&variants, i, 0), i / 6);
        cr_expect_eq(hs_variants_value(&variants, i, 1), i / 2 % 3);
        cr_expect_eq(hs_variants_value(&variants, i, 2), i % 2);
    }
    hs_variants_deinit(&variants);
}

Test(compare_variants, without_strategies_a_combination_is_its_values)
{
    parse(NULL, 2, (const char *const[]){ "a=\"x,y\",{b: 1, c: [2, 3]}", "d=e=f" });
    cr_assert_eq(variants.count, 2);
    cr_expect_str_eq(overrides_of(0), "a=\"x,y\"|d=e=f");
    cr_expect_str_eq(overrides_of(1), "a={b: 1, c: [2, 3]}|d=e=f");
    cr_expect_str_eq(variants.items[1].label, "a={b: 1, c: [2, 3]}:d=e=f");
    hs_variants_deinit(&variants);
}

Test(compare_variants, long_names_of_folders_are_cut_and_stay_apart)
{
    char grid[1024] = "tokenizer.path=";
    for (int which = 0; which < 2; which++) {
        strcat(grid, which ? "," : "");
        for (int i = 0; i < 40; i++)
            strcat(grid, "folder/");
        strcat(grid, which ? "b" : "a");
    }
    parse(NULL, 1, (const char *const[]){ grid });
    cr_assert_eq(variants.count, 2);
    cr_expect_lt(strlen(variants.items[0].folder), HS_VARIANT_FOLDER_BYTES);
    cr_expect_str_neq(variants.items[0].folder, variants.items[1].folder);
    hs_variants_deinit(&variants);
}

Test(compare_variants, what_cannot_be_is_refused)
{
    refuses("none,nothing", 0, NULL, "no strategy `nothing`");
    refuses("er+nothing", 0, NULL, "no strategy `nothing`");
    refuses("er+", 0, NULL, "no strategy ``");
    refuses("none,,er", 0, NULL, "between two commas");
    refuses("none,", 0, NULL, "between two commas");
    refuses("", 0, NULL, "between two commas");
    refuses(":ewc.lambda=1", 0, NULL, "not a variant");
    refuses("er,er", 0, NULL, "twice");
    refuses("er:lambda", 0, NULL, "section.key=value");
    refuses(NULL, 1, (const char *const[]){ "learning_rate" }, "KEY=VALUE");
    refuses(NULL, 1, (const char *const[]){ "=1,2" }, "KEY=VALUE");
    refuses(NULL, 1, (const char *const[]){ "learning_rate=" }, "KEY=VALUE");
    refuses(NULL, 1, (const char *const[]){ "learning_rate=1,1" }, "twice");
    refuses(NULL, 1, (const char *const[]){ "seed=1,2" }, "--seeds");
    refuses(NULL, 1, (const char *const[]){ "strategy=er" }, "continual.strategy?");
    refuses(NULL, 2, (const char *const[]){ "a=1,2", "a=3" }, "given twice");
    refuses("er", 1, (const char *const[]){ "continual.strategy=ewc" }, "leave one out");
    refuses("er:a=1", 1, (const char *const[]){ "a=2" }, "leave one out");
    refuses(NULL, 1, (const char *const[]){ "a=x y,x_y" }, "same folder");
    refuses(NULL, 4,
            (const char *const[]){ "a=0,1,2,3,4,5,6,7,8,9", "b=0,1,2,3,4,5,6,7,8,9", "c=0,1,2,3,4,5,6,7,8,9",
                                   "d=0,1,2,3,4" },
            "more than 4096");
}
