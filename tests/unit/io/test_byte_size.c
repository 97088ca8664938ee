/* SPDX-License-Identifier: MIT
 *
 * Sizes in bytes: what is one, what is none, and the keys that take them.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/config/config.h"
#include "runtime/io/byte_size.h"

Test(byte_size, units_are_powers_of_1024_or_1000)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        { "0", 0 },
        { "4096", 4096 },
        { "17B", 17 },
        { "12GiB", INT64_C(12884901888) },
        { "12gib", INT64_C(12884901888) },
        { "12G", INT64_C(12884901888) },
        { "12 GiB", INT64_C(12884901888) },
        { "12GB", INT64_C(12000000000) },
        { "500MB", 500000000 },
        { "1.5 GiB", INT64_C(1610612736) },
        { "0.5KiB", 512 },
        { "0.1MB", 100000 },
        { "1.1kB", 1100 },
        { "0.000001kB", 0 },
        { "3T", INT64_C(3298534883328) },
        { "3TB", INT64_C(3000000000000) },
        { "2K", 2048 },
        { "9223372036854775806", INT64_MAX - 1 },
        { "8388607.5TiB", INT64_C(8388607) * (INT64_C(1) << 40) + (INT64_C(1) << 39) },
        /* more than there can be */
        { "9223372036854775808", INT64_MAX },
        { "8388608TiB", INT64_MAX },
        { "99999999999999999999999999GiB", INT64_MAX },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        cr_expect(hs_byte_size_read(cases[i].text, &bytes), "%s", cases[i].text);
        cr_expect_eq(bytes, cases[i].bytes, "%s: %lld", cases[i].text, (long long)bytes);
    }
}

Test(byte_size, anything_else_is_none)
{
    static const char *const texts[] = { "",      "GiB",   "-1",     "+1",     "1.5",     "1.5B",
                                         ".5GiB", "1.GiB", "1e9",    "12GiBs", "12 G iB", "1_000",
                                         "0x10",  "1,5GB", "12GiB ", " 12GiB", "12Gib/s", "nan" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t bytes;
        cr_expect_not(hs_byte_size_read(texts[i], &bytes), "`%s`", texts[i]);
    }
}

static const char *refusal(const char *override)
{
    HsConfig config;
    cr_assert_eq(hs_config_load(&config, NULL, 1, &override), HS_ECONFIG, "%s", override);
    return hs_error_message();
}

Test(byte_size, keys_take_sizes_and_say_what_is_wrong)
{
    static const char *const overrides[] = { "memory.limit=1.5 GiB", "tasks.0.synthetic_tokens=2kB" };
    HsConfig config;
    cr_assert_eq(hs_config_load(&config, NULL, 2, overrides), HS_OK, "%s", hs_error_message());
    cr_expect_eq(config.memory.limit, INT64_C(1610612736));
    cr_expect_eq(config.tasks[0].synthetic_tokens, 2000);
    hs_config_deinit(&config);
    const char text[] = "memory:\n  limit: 512MiB\ntasks:\n  - {synthetic_tokens: 1MB}\n";
    cr_assert_eq(hs_config_parse(&config, "t.yaml", text, strlen(text), 0, NULL), HS_OK, "%s", hs_error_message());
    cr_expect_eq(config.memory.limit, 536870912);
    cr_expect_eq(config.tasks[0].synthetic_tokens, 1000000);
    hs_config_deinit(&config);
    cr_expect(strstr(refusal("memory.limit=lots"), "memory.limit must be a size in bytes, such as 12GiB, 500MB or "
                                                   "1048576 (got lots)"),
              "%s", hs_error_message());
    cr_expect(strstr(refusal("memory.limit=99999999TiB"), "must be at most"), "%s", hs_error_message());
    cr_expect(strstr(refusal("memory.limit=8192"), "write 8192MiB"), "%s", hs_error_message());
    cr_expect(strstr(refusal("tasks.0.synthetic_tokens=999B"), "at least 1000"), "%s", hs_error_message());
}
