/* SPDX-License-Identifier: MIT
 *
 * Token files that stay in their files: any range is what the files hold, over borders of files of both widths; and what
 * is wrong in a file, or becomes so while it is read, is an error with its place.
 */
#include <stdint.h>

#include "runtime/data/source/token_file.h"
#include "runtime/data/source/token_shards.h"
#include "tests/support/scratch.h"

enum { VOCABULARY = 70000 };

/* Token number i of the stream. */
static int32_t token_at(int64_t i, int width)
{
    return (int32_t)((i * 7919 + 13) % (width == 2 ? 60000 : VOCABULARY));
}

static void write_shard(const char *path, int64_t first, int64_t count, int width)
{
    const HsTokenLayout *layout = &hs_token_layouts[width == 2 ? 0 : 1];
    const size_t size = HS_TOKEN_HEADER_BYTES + (size_t)(count * width);
    unsigned char *bytes = calloc(size, 1);
    const int32_t header[] = { (int32_t)layout->magic, (int32_t)layout->version, (int32_t)count };
    cr_assert_not_null(bytes);
    memcpy(bytes, header, sizeof header);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t token = (uint32_t)token_at(first + i, width);
        for (int b = 0; b < width; b++)
            bytes[HS_TOKEN_HEADER_BYTES + i * width + b] = (unsigned char)(token >> (8 * b));
    }
    scratch_write(path, bytes, size);
    free(bytes);
}

static const char *shard_path(const Scratch *scratch, int shard)
{
    char name[32];
    snprintf(name, sizeof name, "%03d.bin", shard);
    return scratch_path(scratch, name);
}

/* 300 files, more than stay open, of 0 to 99 tokens and both widths; one of 20,000 tokens, more than a chunk. */
enum { SHARDS = 300 };
static int64_t count_of(int shard)
{
    return shard == 150 ? 20000 : shard * 37 % 100;
}
static int width_of(int shard)
{
    return shard % 3 == 0 ? 4 : 2;
}

Test(token_shards, any_range_is_what_the_files_hold)
{
    const Scratch scratch = scratch_make();
    HsTokenShards shards = { .vocabulary = VOCABULARY };
    int32_t *expected = malloc(60000 * sizeof *expected), *got = malloc(60000 * sizeof *got);
    cr_assert(expected && got);
    int64_t total = 0;
    for (int s = 0; s < SHARDS; s++) {
        write_shard(shard_path(&scratch, s), total, count_of(s), width_of(s));
        cr_assert_eq(hs_token_shards_add(&shards, shard_path(&scratch, s), false), HS_OK, "%s", hs_error_message());
        for (int64_t i = 0; i < count_of(s); i++, total++)
            expected[total] = token_at(total, width_of(s));
    }
    cr_assert_eq(shards.tokens, total);
    cr_assert_eq(hs_token_shards_read(&shards, 0, total, got), HS_OK, "%s", hs_error_message());
    cr_expect_arr_eq(got, expected, (size_t)total * sizeof *got);
    for (int64_t start = 0; start < total; start += 211) {
        const int64_t count = start * 31 % 700 < total - start ? start * 31 % 700 : total - start;
        cr_assert_eq(hs_token_shards_read(&shards, start, count, got), HS_OK, "%s", hs_error_message());
        cr_expect_arr_eq(got, expected + start, (size_t)count * sizeof *got);
    }
    hs_token_shards_deinit(&shards);
    free(expected);
    free(got);
    scratch_remove(&scratch);
}

Test(token_shards, a_file_that_is_cut_while_it_is_read)
{
    const Scratch scratch = scratch_make();
    const char *path = shard_path(&scratch, 0);
    HsTokenShards shards = { .vocabulary = VOCABULARY };
    int32_t got[100];
    write_shard(path, 0, 1000, 2);
    cr_assert_eq(hs_token_shards_add(&shards, path, false), HS_OK);
    cr_assert_eq(truncate(path, HS_TOKEN_HEADER_BYTES + 2 * 500), 0);
    cr_expect_eq(hs_token_shards_read(&shards, 400, 100, got), HS_OK);
    cr_expect_eq(hs_token_shards_read(&shards, 450, 100, got), HS_EIO);
    cr_expect_not_null(strstr(hs_error_message(), "000.bin: ends before byte 2024, and was longer when the run began"),
                       "%s", hs_error_message());
    hs_token_shards_deinit(&shards);
    scratch_remove(&scratch);
}

Test(token_shards, a_token_beyond_the_vocabulary)
{
    const Scratch scratch = scratch_make();
    const char *path = shard_path(&scratch, 0);
    HsTokenShards shards = { .vocabulary = 59999 };
    write_shard(path, 0, 40000, 2);
    int64_t wrong = 0; /* the first with number 59999 */
    while (wrong < 40000 && token_at(wrong, 2) < 59999)
        wrong++;
    cr_assert_lt(wrong, 40000);
    char place[64];
    snprintf(place, sizeof place, "byte %lld: token 59999 is not below",
             (long long)(HS_TOKEN_HEADER_BYTES + 2 * wrong));
    cr_expect_eq(hs_token_shards_add(&shards, path, false), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), place), "%s", hs_error_message());
    /* Changed after it was checked: found where it is read. */
    shards.vocabulary = VOCABULARY;
    cr_assert_eq(hs_token_shards_add(&shards, path, false), HS_OK);
    shards.vocabulary = 59999;
    int32_t got[2];
    cr_expect_eq(hs_token_shards_read(&shards, wrong, 1, got), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), place), "%s", hs_error_message());
    hs_token_shards_deinit(&shards);
    scratch_remove(&scratch);
}
