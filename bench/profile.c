/* SPDX-License-Identifier: MIT
 *
 * Where the time of a step goes, and how far each part is from what this device's peaks allow.
 *
 *     profile [--device cpu] [--threads N] [--before TRACE.json]... [--json FILE] TRACE.json...
 *
 * Reads what `logging.trace` wrote on this device; steps of several files are pooled, and so are those of --before,
 * another build's traces of the same work, which get a column.  An operation's limit is the least time that its flops
 * at the products' peak and its bytes at the memory's take (kernels/ops/cost.h), whichever is longer; peaks are
 * measured at the start and at the end, and the best counts.  Time is a group's median over the steps, so that a step
 * that others disturbed counts for little; the medians' sum stands for the step, and shares are shares of it.
 *
 * A Markdown page goes to the standard output, a JSON object a page to FILE.
 */
#include "bench/profile_figures.h"
#include "runtime/engine/engine.h"

#define FOLDED_BELOW 0.005 /* of the step: what is less in both builds is one row */
enum { MOST_TRACES = 16 };

typedef struct Options {
    HsEngineOptions engine;
    const char *paths[SIDES][MOST_TRACES];
    int count[SIDES];
    FILE *json;
} Options;

/* --- options --- */

static HsStatus add_path(Options *options, int side, const char *path)
{
    if (options->count[side] == MOST_TRACES)
        return hs_fail(HS_EINVAL, "at most %d traces", MOST_TRACES);
    options->paths[side][options->count[side]++] = path;
    return HS_OK;
}

static HsStatus read_options(Options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--device") == 0 && has_value)
            options->engine.device = argv[++i];
        else if (strcmp(argv[i], "--threads") == 0 && has_value)
            options->engine.threads = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--before") == 0 && has_value)
            HS_TRY(add_path(options, BEFORE, argv[++i]));
        else if (strcmp(argv[i], "--json") == 0 && has_value && !options->json) {
            options->json = fopen(argv[++i], "a");
            if (!options->json)
                return hs_fail(HS_EIO, "%s: cannot be written", argv[i]);
        } else if (argv[i][0] != '-')
            HS_TRY(add_path(options, NOW, argv[i]));
        else
            return hs_fail(HS_EINVAL,
                           "%s is not known; [--device NAME] [--threads N] [--before TRACE.json]... [--json FILE] "
                           "TRACE.json...",
                           argv[i]);
    }
    return options->count[NOW] > 0 ? HS_OK
                                   : hs_fail(HS_EINVAL, "which trace? run the trainer with logging.trace=10-12");
}

/* --- the page --- */

/* The cells from the time on. */
static void print_figures(const Profile *profile, const Row *row)
{
    printf(" %.4g | %.1f%% |", row->ms[NOW], 100.0 * row->ms[NOW] / profile->total.ms[NOW]);
    if (row->limit_ms > 0.0 && row->ms[NOW] > 0.0)
        printf(" %.4g | %.0f%% | %s |", row->limit_ms, 100.0 * row->limit_ms / row->ms[NOW], bound_of(row));
    else
        printf(" | | |");
    if (profile->compared && row->ms[NOW] > 0.0 && row->ms[BEFORE] > 0.0)
        printf(" %.4g | %.2f |", row->ms[BEFORE], row->ms[BEFORE] / row->ms[NOW]);
    else if (profile->compared)
        printf(" %.4g | |", row->ms[BEFORE]);
    printf("\n");
}

static void print_head(const Profile *profile, const char *names, int columns)
{
    printf("| %s | ms a step | share | limit, ms | of the limit | bound by |%s\n|", names,
           profile->compared ? " before, ms | before / now |" : "");
    for (int i = 0; i < columns + 5 + (profile->compared ? 2 : 0); i++)
        printf("---|");
    printf("\n");
}

static bool folded(const Profile *profile, const Row *row)
{
    for (int side = 0; side < SIDES; side++)
        if (row->ms[side] > 0.0 && row->ms[side] >= FOLDED_BELOW * profile->total.ms[side])
            return false;
    return true;
}

static void print_rows(const Profile *profile)
{
    Row other = { NULL }, gaps = { NULL };
    int folded_count = 0;
    print_head(profile, "phase | layer | operation | calls a step", 4);
    for (int i = 0; i < profile->groups.count; i++) {
        const Row *row = &profile->rows[i];
        if (row->group->class == CLASS_GAPS)
            add_row(&gaps, row);
        else if (folded(profile, row)) {
            add_row(&other, row);
            folded_count++;
        } else {
            printf("| %s | %s | %s | %.4g |", row->group->phase, row->group->layer, row->group->operation, row->calls);
            print_figures(profile, row);
        }
    }
    if (folded_count > 0) {
        printf("| other | | %d kinds | %.4g |", folded_count, other.calls);
        print_figures(profile, &other);
    }
    printf("| | | in no operation | |");
    print_figures(profile, &gaps);
    printf("| **step** | | | %.4g |", profile->total.calls);
    print_figures(profile, &profile->total);
}

#define CLASS_NAME(enumerator, name) name,
static const char *const class_names[] = { PROFILE_CLASSES(CLASS_NAME) };

static void print_classes(const Profile *profile)
{
    Row rows[CLASSES];
    sum_classes(profile, rows);
    printf("\n");
    print_head(profile, "class", 1);
    for (int c = 0; c < CLASSES; c++) {
        if (rows[c].ms[NOW] == 0.0 && rows[c].ms[BEFORE] == 0.0)
            continue;
        printf("| %s |", class_names[c]);
        print_figures(profile, &rows[c]);
    }
}

static void print_steps(const char *which, const ProfileTrace *trace)
{
    double least = INFINITY, most = 0.0;
    for (int i = 0; i < trace->steps; i++) {
        least = fmin(least, trace->step_ms[i]);
        most = fmax(most, trace->step_ms[i]);
    }
    printf("- %s: %d steps of %.4g ms (median; %.4g to %.4g)\n", which, trace->steps,
           median(trace->step_ms, trace->steps), least, most);
}

static void print_page(const Profile *profile)
{
    const Peaks *peaks = &profile->peaks;
    printf("## %s\n\n- device: %s, threads: %d\n", profile->traces[NOW].title, profile->device, profile->threads);
    for (int i = 0; i < PROFILE_FORMATS; i++)
        if (profile_uses(&profile->traces[NOW], i))
            printf("- peak of products, %s: %.1f GFLOP/s measured first, %.1f last; the better counts\n",
                   profile_formats[i].name, 1e-9 * peaks->flops[i][0], 1e-9 * peaks->flops[i][1]);
    printf("- peak of memory: %.1f GB/s measured first, %.1f last; the better counts\n", 1e-9 * peaks->bytes[0],
           1e-9 * peaks->bytes[1]);
    print_steps("now", &profile->traces[NOW]);
    if (profile->compared)
        print_steps("before", &profile->traces[BEFORE]);
    printf("\nms a step: the median over the steps. The limit: the longer of an operation's flops at the products' "
           "peak and "
           "its bytes at the memory's; what lies in a cache may beat it (over 100%%).\n\n");
    print_rows(profile);
    print_classes(profile);
    const double at_peak_ms = products_at_peak_ms(profile);
    printf("\nProducts and attention: %.4g GFLOP a step, %.4g ms at the peak: **%.1f%% of the peak** over the whole "
           "step.\n",
           1e-9 * profile->total.flops, at_peak_ms, 100.0 * at_peak_ms / profile->total.ms[NOW]);
    printf("In no operation, ms:");
    const char *comma = "";
    for (int i = 0; i < profile->groups.count; i++) {
        const Row *row = &profile->rows[i];
        if (row->group->class != CLASS_GAPS)
            continue;
        printf("%s %s %.3g", comma, row->group->phase, row->ms[NOW]);
        comma = ",";
    }
    printf(".\n");
}

static HsJson *figures_json(const Profile *profile, const Row *row)
{
    HsJson *object = hs_json_object();
    hs_json_set_real(object, "calls", row->calls);
    hs_json_set_real(object, "ms", row->ms[NOW]);
    hs_json_set_real(object, "share", row->ms[NOW] / profile->total.ms[NOW]);
    hs_json_set_real(object, "flops", row->flops);
    hs_json_set_real(object, "limit_ms", row->limit_ms);
    hs_json_set_string(object, "bound", bound_of(row));
    if (profile->compared)
        hs_json_set_real(object, "before_ms", row->ms[BEFORE]);
    return object;
}

/* The page as one line. */
static HsStatus write_json(const Profile *profile, FILE *file)
{
    HsJson *root = hs_json_object(), *rows = hs_json_array(), *classes = hs_json_object();
    Row sums[CLASSES];
    hs_json_set_string(root, "bench", "profile");
    hs_json_set_string(root, "run", profile->traces[NOW].title);
    hs_json_set_integer(root, "threads", profile->threads);
    for (int i = 0; i < PROFILE_FORMATS; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_flops_per_second", profile_formats[i].name);
        hs_json_set_real(root, key, best(profile->peaks.flops[i]));
    }
    hs_json_set_real(root, "bytes_per_second", best(profile->peaks.bytes));
    hs_json_set(root, "step", figures_json(profile, &profile->total));
    hs_json_set_real(root, "peak_share", products_at_peak_ms(profile) / profile->total.ms[NOW]);
    sum_classes(profile, sums);
    for (int c = 0; c < CLASSES; c++)
        hs_json_set(classes, class_names[c], figures_json(profile, &sums[c]));
    hs_json_set(root, "classes", classes);
    for (int i = 0; i < profile->groups.count; i++) {
        HsJson *row = figures_json(profile, &profile->rows[i]);
        hs_json_set_string(row, "phase", profile->rows[i].group->phase);
        hs_json_set_string(row, "layer", profile->rows[i].group->layer);
        hs_json_set_string(row, "operation", profile->rows[i].group->operation);
        hs_json_append(rows, row);
    }
    hs_json_set(root, "rows", rows);
    char *line = hs_json_write(root, false);
    hs_json_destroy(root);
    if (!line)
        return hs_fail(HS_ENOMEM, "no memory for the page's JSON");
    fprintf(file, "%s\n", line);
    free(line);
    return HS_OK;
}

static HsStatus read_traces(const Options *options, int side, Profile *profile)
{
    for (int i = 0; i < options->count[side]; i++) {
        const char *path = options->paths[side][i];
        HS_TRY(profile_read(path, &profile->traces[side], &profile->groups));
        if (!profile->traces[side].costs)
            return hs_fail(HS_EFORMAT, "%s does not say what operations cost: make the trace anew with this build",
                           path);
    }
    return HS_OK;
}

static HsStatus run(const Options *options, const HsEngine *engine, Profile *profile)
{
    const HsContext *context = &engine->context;
    profile->device = engine->why;
    profile->threads = context->threads;
    HS_TRY(read_traces(options, NOW, profile));
    profile_measure(context, &profile->traces[NOW], 0, &profile->peaks);
    HS_TRY(read_traces(options, BEFORE, profile));
    profile_measure(context, &profile->traces[NOW], 1, &profile->peaks);
    if (best(profile->peaks.bytes) <= 0.0)
        return hs_fail(HS_EUNSUPPORTED, "device %s has no peaks to measure", options->engine.device);
    HS_TRY(profile_figure(profile));
    print_page(profile);
    return options->json ? write_json(profile, options->json) : HS_OK;
}

int main(int argc, char **argv)
{
    Options options = { .engine = { .device = "cpu" } };
    Profile profile = { .traces = { { .costs = true }, { .costs = true } } };
    HsEngine engine = { 0 };
    HsStatus status = read_options(&options, argc, argv);
    profile.compared = options.count[BEFORE] > 0;
    if (status == HS_OK)
        status = hs_engine_init(&engine, &options.engine);
    if (status == HS_OK)
        status = run(&options, &engine, &profile);
    if (status != HS_OK)
        fprintf(stderr, "profile: %s\n", hs_error_message());
    hs_engine_deinit(&engine);
    for (int side = 0; side < SIDES; side++)
        profile_free(&profile.traces[side]);
    free(profile.groups.rows);
    free(profile.rows);
    if (options.json && fclose(options.json) != 0 && status == HS_OK) {
        fprintf(stderr, "profile: the JSON cannot be written\n");
        status = HS_EIO;
    }
    return status != HS_OK;
}
