/* SPDX-License-Identifier: MIT
 *
 * The Trace Event Format's file, read back as JSON: constructed spans arrive with their times, tracks and arguments,
 * inner ones within outer ones, names are escaped, and an unfinished file leaves nothing.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/clock.h"
#include "runtime/io/json.h"
#include "runtime/record/chrome_trace.h"
#include "tests/support/scratch.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

static const char *text_of(const HsJson *event, const char *key)
{
    return hs_json_string(hs_json_get(event, key));
}

static double number_of(const HsJson *event, const char *key)
{
    return hs_json_number(hs_json_get(event, key));
}

/* The first event of a phase ("X", "C", "M") and name. */
static const HsJson *find(const HsJson *root, const char *phase, const char *name)
{
    const HsJson *events = hs_json_get(root, "traceEvents");
    for (const HsJson *event = hs_json_first(events); event; event = hs_json_next(event))
        if (strcmp(text_of(event, "ph"), phase) == 0 && strcmp(text_of(event, "name"), name) == 0)
            return event;
    cr_assert_fail("no event %s of phase %s", name, phase);
    return NULL;
}

static HsJson *parse(const char *path)
{
    size_t size;
    HsJson *root;
    char *text = scratch_read(path, &size);
    OK(hs_json_parse(path, text, size, &root));
    free(text);
    return root;
}

Test(chrome_trace, spans_and_counters_are_read_back)
{
    const Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "trace.json");
    HsChromeTrace *trace;
    OK(hs_chrome_trace_create(path, "a \"run\"\\\n", "cpu", &trace));
    cr_expect_not(scratch_exists(path), "an unfinished file has its final name");
    const HsOpCost none = { 0 };
    const HsTraceSpan spans[] = {
        { HS_RANGE_DATA, "data", 0, 0.5, 0.25, none },
        { HS_RANGE_STEP, "optimizer step", 0, 0.75, 2.0, none },
        { HS_RANGE_FORWARD, "forward", 1, 0.75, 1.0, none },
        { HS_RANGE_LAYER, "block.0.mlp", 2, 1.0, 0.75000001, none }, /* stands out by 10 ns, as a rounding might */
        { HS_RANGE_OPERATION, "matmul", 3, 1.0, 0.80000000, { 0x1p60, 512, 2.5e-6, HS_BF16, HS_POLICY_AS_IS, "tn" } },
        { HS_RANGE_OPERATION, "combine", 1, 2.0, 0.25, { 0, 96, 0, HS_F32, HS_POLICY_AS_IS, NULL } },
    };
    const HsTraceSeries series[] = { { "weights", 1000 }, { "moments", (size_t)5 << 33 } };
    const double origin_s = hs_clock_s() + 1;
    OK(hs_chrome_trace_add_spans(trace, origin_s, 12, spans, sizeof spans / sizeof *spans));
    OK(hs_chrome_trace_add_counter(trace, origin_s + 0.5, "memory", series, 2));
    OK(hs_chrome_trace_finish(trace));
    hs_chrome_trace_destroy(trace);

    HsJson *root = parse(path);
    cr_expect_str_eq(text_of(hs_json_get(find(root, "M", "process_name"), "args"), "name"), "a \"run\"\\\n");
    /* Times are rounded to nanoseconds: two of them differ by one at most from their exact distance. */
    const double nanosecond = 1e-3 + 1e-6;
    const HsJson *data = find(root, "X", "data"), *step = find(root, "X", "optimizer step");
    const double zero = number_of(data, "ts") - 0.5e6;
    cr_expect_neq(number_of(data, "tid"), number_of(step, "tid"), "the host's waiting has its own track");
    cr_expect_eq(number_of(hs_json_get(step, "args"), "step"), 12);
    cr_expect(fabs(number_of(step, "dur") - 2e6) <= nanosecond);
    static const char *const names[] = { "optimizer step", "forward", "block.0.mlp", "matmul" };
    static const char *const categories[] = { "step", "phase", "layer", "operation" };
    static const double starts[] = { 0.75e6, 0.75e6, 1e6, 1e6 }, lengths[] = { 2e6, 1e6, 0.75e6, 0.75e6 };
    for (int i = 0; i < 4; i++) {
        const HsJson *event = find(root, "X", names[i]);
        cr_expect_str_eq(text_of(event, "cat"), categories[i]);
        cr_expect(fabs(number_of(event, "ts") - zero - starts[i]) <= nanosecond, "%s", names[i]);
        cr_expect(fabs(number_of(event, "dur") - lengths[i]) <= nanosecond, "%s: %.3f", names[i],
                  number_of(event, "dur"));
    }
    const HsJson *matmul = find(root, "X", "matmul");
    cr_expect_str_eq(text_of(hs_json_get(matmul, "args"), "formula"), hs_op_formula("matmul"));
    cr_expect_eq(number_of(hs_json_get(matmul, "args"), "flops"), 0x1p60);
    cr_expect_eq(number_of(hs_json_get(matmul, "args"), "bytes"), 512);
    cr_expect_str_eq(text_of(hs_json_get(matmul, "args"), "format"), "bf16");
    cr_expect_str_eq(text_of(hs_json_get(matmul, "args"), "transposes"), "tn");
    cr_expect_eq(number_of(hs_json_get(matmul, "args"), "predicted_us"), 2.5);
    const HsJson *add = hs_json_get(find(root, "X", "combine"), "args");
    cr_expect_eq(number_of(add, "flops"), 0);
    cr_expect_eq(number_of(add, "bytes"), 96);
    cr_expect(!hs_json_get(add, "format") && !hs_json_get(add, "transposes") && !hs_json_get(add, "predicted_us"),
              "of products only");
    const HsJson *counter = find(root, "C", "memory");
    cr_expect(fabs(number_of(counter, "ts") - number_of(data, "ts")) <= nanosecond);
    cr_expect_eq(number_of(hs_json_get(counter, "args"), "weights"), 1000);
    cr_expect_eq(number_of(hs_json_get(counter, "args"), "moments"), 5 * 0x1p33);
    hs_json_destroy(root);
    scratch_remove(&scratch);
}

/* One begins where the other ends, and is a tenth of a nanosecond early, across a tie of the rounding. */
Test(chrome_trace, spans_side_by_side_do_not_overlap)
{
    const Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "trace.json");
    HsChromeTrace *trace;
    OK(hs_chrome_trace_create(path, "run", "cpu", &trace));
    const HsOpCost none = { 0 };
    enum { PAIRS = 50 };
    HsTraceSpan spans[2 * PAIRS];
    for (int i = 0; i < PAIRS; i++) { /* whatever the origin's own fraction is, some pair meets at a tie */
        const double meet_s = 1e-3 * (i + 1) + i * 2e-11;
        spans[2 * i] = (HsTraceSpan){ HS_RANGE_STEP, "first", 0, meet_s - 1e-4, 1e-4, none };
        spans[2 * i + 1] = (HsTraceSpan){ HS_RANGE_STEP, "second", 0, meet_s - 1e-10, 1e-4, none };
    }
    OK(hs_chrome_trace_add_spans(trace, hs_clock_s(), 1, spans, 2 * PAIRS));
    OK(hs_chrome_trace_finish(trace));
    hs_chrome_trace_destroy(trace);
    HsJson *root = parse(path);
    const HsJson *events = hs_json_get(root, "traceEvents");
    double end = 0;
    int seen = 0;
    for (const HsJson *event = hs_json_first(events); event; event = hs_json_next(event)) {
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        cr_expect_geq(number_of(event, "ts"), end - 1e-6, "span %d begins within the one before", seen);
        end = number_of(event, "ts") + number_of(event, "dur");
        seen++;
    }
    cr_expect_eq(seen, 2 * PAIRS);
    hs_json_destroy(root);
    scratch_remove(&scratch);
}

Test(chrome_trace, what_is_not_finished_leaves_no_file)
{
    const Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "trace.json");
    HsFolderListing listing;
    HsChromeTrace *trace;
    scratch_write(path, "{}", 2); /* an earlier one stays */
    OK(hs_chrome_trace_create(path, "run", "cpu", &trace));
    hs_chrome_trace_destroy(trace);
    OK(hs_storage_list(scratch.folder, &listing));
    cr_expect_eq(listing.count, 1);
    cr_expect_str_eq(listing.names[0], "trace.json");
    hs_storage_list_free(&listing);
    cr_expect_eq(hs_chrome_trace_create(scratch_path(&scratch, "none/trace.json"), "run", "cpu", &trace), HS_EIO);
    cr_expect_null(trace);
    scratch_remove(&scratch);
}

/* A device that is always full. */
Test(chrome_trace, a_full_disk_is_reported)
{
    const Scratch scratch = scratch_make();
    const char *path = scratch_path(&scratch, "trace.json");
    char temporary[600];
    HsChromeTrace *trace;
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    cr_assert_eq(symlink("/dev/full", temporary), 0);
    OK(hs_chrome_trace_create(path, "run", "cpu", &trace));
    cr_expect_eq(hs_chrome_trace_finish(trace), HS_EIO);
    cr_expect(strstr(hs_error_message(), "trace.json") && strstr(hs_error_message(), "space"), "%s",
              hs_error_message());
    hs_chrome_trace_destroy(trace);
    cr_expect_not(scratch_exists(path));
    scratch_remove(&scratch);
}
