/* SPDX-License-Identifier: MIT
 *
 * The matrix of losses and what is read from it.
 *
 * "So far" is one number: L, the highest row that knows tasks 0..L.  Every formula of matrix.h is taken over tasks 0..L, so that
 * a run in its middle has figures too and a finished one (L = T-1) has the published ones.  NAN travels through sums by
 * itself: a figure that needs an unknown loss is unknown.  A mean over no task (forgetting with one task) is unknown as
 * well, not 0.
 *
 * On a terminal a table of many tasks is cut into blocks of columns instead of running over the edge.
 */
#include "runtime/record/matrix.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/utf8.h"

#define MEMBER_OF(member, doc, rare, leads)                          \
    {                                                                \
#member, doc, offsetof(HsMatrixSummary, member), rare, leads \
    }
#define MEMBER(member, doc)  MEMBER_OF(member, doc, false, false)
#define LEADING(member, doc) MEMBER_OF(member, doc, false, true)
const HsMatrixMember hs_matrix_members[] = {
    LEADING(learned, "mean loss on each task right after training on it; lower is better"),
    LEADING(retained, "mean loss on all tasks trained so far, after the last of them; lower is better"),
    LEADING(forgetting, "mean rise of an earlier task's loss above the lowest it ever had; lower is better"),
    MEMBER(bwt, "backward transfer: how much later tasks helped earlier ones; below 0 is forgetting"),
    MEMBER(fwt, "forward transfer: how much earlier tasks helped a task before its own training"),
    MEMBER(excess_over_joint, "retained above what training on all tasks at once reaches; lower is better"),
    MEMBER(excess_over_floor, "retained above the entropy of the data, which no model can beat; lower is better"),
    MEMBER(perplexity_ratio, "perplexity against joint training: exp of the excess, 1 is equal; lower is better"),
    MEMBER(bits_per_byte, "retained in bits a byte of text, so that tokenizers compare; lower is better"),
    MEMBER(accuracy_seen, "share of exact greedy completions at the end, on prompts of the training text; mean over "
                          "the tasks that have them, higher is better"),
    LEADING(accuracy_unseen, "share of exact greedy completions at the end, on prompts that are not in the training "
                             "text; mean over the tasks "
                             "that have them, higher is better"),
    MEMBER_OF(left,
              "what is left of the tasks that are not to be retained: 1 is as well as they were ever known, 0 as the "
              "untrained model knows them; the other figures leave them out",
              true, true),
};
const int hs_matrix_member_count = sizeof hs_matrix_members / sizeof *hs_matrix_members;

#define SET_NAME(NAME, name) #name,
const char *const hs_item_set_names[HS_ITEM_SET_COUNT] = { HS_ITEM_SETS(SET_NAME) };

HsStatus hs_matrix_init(HsMatrix *matrix, int tasks)
{
    *matrix = (HsMatrix){ 0 };
    if (tasks < 1)
        return hs_fail(HS_EINVAL, "a matrix needs at least one task (got %d)", tasks);
    size_t count = (size_t)tasks, accuracies = (count + 1) * count;
    size_t figures = count * count + 4 * count + HS_ITEM_SET_COUNT * accuracies;
    /* One block for all figures: loss first, then the four rows, then the accuracies. */
    double *block = malloc(figures * sizeof *block);
    matrix->names = calloc(count, sizeof *matrix->names);
    matrix->forgets = calloc(count, sizeof *matrix->forgets);
    if (!block || !matrix->names || !matrix->forgets) {
        free(block);
        free(matrix->names);
        free(matrix->forgets);
        matrix->names = NULL;
        matrix->forgets = NULL;
        return hs_fail(HS_ENOMEM, "no memory for a matrix of %d tasks", tasks);
    }
    for (size_t i = 0; i < figures; i++)
        block[i] = NAN;
    matrix->tasks = tasks;
    matrix->loss = block;
    matrix->untrained = block + count * count;
    matrix->floor = matrix->untrained + count;
    matrix->joint = matrix->floor + count;
    matrix->bytes_per_token = matrix->joint + count;
    for (size_t set = 0; set < HS_ITEM_SET_COUNT; set++)
        matrix->accuracy[set] = matrix->bytes_per_token + count + set * accuracies;
    return HS_OK;
}

void hs_matrix_deinit(HsMatrix *matrix)
{
    free(matrix->loss);
    free(matrix->names);
    free(matrix->forgets);
    *matrix = (HsMatrix){ 0 };
}

void hs_matrix_set_name(HsMatrix *matrix, int task, const char *name)
{
    size_t room = sizeof matrix->names[task] - 1, length = strlen(name);
    length = hs_utf8_valid_prefix(name, length < room ? length : room);
    memset(matrix->names[task], 0, sizeof matrix->names[task]);
    memcpy(matrix->names[task], name, length);
}

int hs_matrix_last_row(const HsMatrix *matrix)
{
    for (int row = matrix->tasks - 1; row >= 0; row--) {
        bool whole = true;
        for (int task = 0; task <= row; task++)
            whole = whole && !isnan(*hs_matrix_at(matrix, row, task));
        if (whole)
            return row;
    }
    return -1;
}

double hs_matrix_forgetting(const HsMatrix *matrix, int task)
{
    int last = hs_matrix_last_row(matrix);
    if (last < 0)
        return NAN;
    double lowest = INFINITY;
    for (int row = 0; row <= last; row++) {
        double loss = *hs_matrix_at(matrix, row, task);
        if (isnan(loss) && row >= task && isnan(*hs_matrix_at(matrix, row, row)))
            return NAN;              /* the lowest may be the unmeasured one */
        lowest = fmin(lowest, loss); /* of NAN and a number: the number */
    }
    return *hs_matrix_at(matrix, last, task) - lowest;
}

bool hs_matrix_forgets(const HsMatrix *matrix)
{
    for (int task = 0; task < matrix->tasks; task++)
        if (matrix->forgets[task])
            return true;
    return false;
}

double hs_matrix_left(const HsMatrix *matrix, int task)
{
    const int last = hs_matrix_last_row(matrix);
    if (last < task)
        return NAN;
    const double lost = hs_matrix_forgetting(matrix, task), now = *hs_matrix_at(matrix, last, task);
    const double learned = matrix->untrained[task] - (now - lost);
    return learned > 0 ? 1 - lost / learned : NAN;
}

bool hs_matrix_is_joint(const HsMatrix *matrix)
{
    return matrix->tasks > 1 && hs_matrix_last_row(matrix) == matrix->tasks - 1 && isnan(*hs_matrix_at(matrix, 0, 0));
}

static double mean(double sum, int count)
{
    return count > 0 ? sum / count : NAN;
}

/* Over the tasks so far that have such items. */
static double mean_accuracy(const HsMatrix *matrix, int set, int last)
{
    double sum = 0;
    int count = 0;
    for (int task = 0; task <= last; task++) {
        const double accuracy = *hs_matrix_accuracy(matrix, set, last, task);
        if (isnan(accuracy) || matrix->forgets[task])
            continue;
        sum += accuracy;
        count++;
    }
    return mean(sum, count);
}

/* How many tasks the figures are means over. */
typedef struct Counts {
    int retained, trained, before, behind; /* before the last row's; behind the first */
    int left;
} Counts;

/* Sums over the tasks so far. */
static HsMatrixSummary sum_tasks(const HsMatrix *matrix, int last, Counts *counts)
{
    HsMatrixSummary sum = { 0 };
    *counts = (Counts){ 0 };
    for (int task = 0; task <= last; task++) {
        double now = *hs_matrix_at(matrix, last, task), own = *hs_matrix_at(matrix, task, task);
        if (matrix->forgets[task]) {
            sum.left += hs_matrix_left(matrix, task);
            counts->left++;
            continue;
        }
        sum.learned += task < matrix->known ? 0 : own;
        sum.retained += now;
        sum.excess_over_joint += now - matrix->joint[task];
        sum.excess_over_floor += now - matrix->floor[task];
        sum.bits_per_byte += now / (M_LN2 * matrix->bytes_per_token[task]);
        if (task < last) {
            sum.forgetting += hs_matrix_forgetting(matrix, task);
            sum.bwt += own - now;
        }
        if (task > 0)
            sum.fwt += matrix->untrained[task] - *hs_matrix_at(matrix, task - 1, task);
        counts->retained++;
        counts->trained += task >= matrix->known;
        counts->before += task < last;
        counts->behind += task > 0;
    }
    return sum;
}

HsMatrixSummary hs_matrix_summary(const HsMatrix *matrix)
{
    int last = hs_matrix_last_row(matrix);
    if (last < 0)
        return (HsMatrixSummary){ NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN };
    Counts counts;
    const HsMatrixSummary sum = sum_tasks(matrix, last, &counts);
    double excess = mean(sum.excess_over_joint, counts.retained);
    return (HsMatrixSummary){
        .learned = mean(sum.learned, counts.trained),
        .retained = mean(sum.retained, counts.retained),
        .forgetting = mean(sum.forgetting, counts.before),
        .bwt = mean(sum.bwt, counts.before),
        .fwt = mean(sum.fwt, counts.behind),
        .excess_over_joint = excess,
        .excess_over_floor = mean(sum.excess_over_floor, counts.retained),
        .perplexity_ratio = exp(excess),
        .bits_per_byte = mean(sum.bits_per_byte, counts.retained),
        .accuracy_seen = mean_accuracy(matrix, HS_ITEMS_SEEN, last),
        .accuracy_unseen = mean_accuracy(matrix, HS_ITEMS_UNSEEN, last),
        .left = mean(sum.left, counts.left),
    };
}

/* ---- for a terminal ---- */

enum { COLUMNS_LEAST = 56, CELL_LEAST = 10, CELL_MOST = 18, LABEL_MOST = 24, DOC_INDENT = 30 };

/* At most `room` characters of a name, padded to it with blanks: the cut is marked "~", control characters (a terminal
 * would obey them) are "?".  right: blanks first. */
static void print_name(FILE *stream, const char *prefix, const char *name, int room, bool right)
{
    char text[256];
    size_t used = 0, shown = 0, length = 0;
    for (int part = 0; part < 2; part++) {
        const char *rest = part == 0 ? prefix : name;
        for (size_t left = strlen(rest); left > 0; length++) {
            size_t bytes = hs_utf8_decode(rest, left, NULL);
            bool plain = bytes > 1 || (bytes == 1 && (unsigned char)*rest >= 0x20 && *rest != 0x7f);
            bytes = bytes > 0 ? bytes : 1;
            if (length < (size_t)room && used + bytes < sizeof text) {
                memcpy(text + used, plain ? rest : "?", plain ? bytes : 1);
                used += plain ? bytes : 1;
                shown++;
            }
            rest += bytes;
            left -= bytes;
        }
    }
    if (length > shown && used > 0) { /* the last character, whole, gives way to the mark */
        do
            used--;
        while (used > 0 && ((unsigned char)text[used] & 0xc0) == 0x80);
        text[used++] = '~';
    }
    int blanks = room - (int)shown;
    fprintf(stream, "%*s%.*s%*s", right ? blanks : 0, "", (int)used, text, right ? 0 : blanks, "");
}

/* `cell` characters, at the right: "12.345 ", or "[12.345]" with a mark; nothing measured is "-". */
static void print_figure(FILE *stream, double value, bool mark, int cell)
{
    char text[32];
    if (isnan(value))
        snprintf(text, sizeof text, "-");
    else if (fabs(value) < 1000)
        snprintf(text, sizeof text, "%.3f", value);
    else
        snprintf(text, sizeof text, "%.2g", value);
    char framed[40];
    snprintf(framed, sizeof framed, "%s%s%s", mark ? "[" : "", text, mark ? "]" : " ");
    fprintf(stream, "%*s", cell, framed);
}

static bool known(const double *row, int count)
{
    for (int i = 0; i < count; i++) {
        if (!isnan(row[i]))
            return true;
    }
    return false;
}

/* Where a block of columns lies: characters of the label and of a cell, tasks [first, end). */
typedef struct Block {
    int label, cell, first, end;
} Block;

static void print_row(const double *row, int tasks, const char *prefix, const char *name, int marked,
                      const Block *block, FILE *stream)
{
    if (!known(row, tasks))
        return;
    print_name(stream, prefix, name, block->label, false);
    for (int task = block->first; task < block->end; task++)
        print_figure(stream, row[task], task == marked, block->cell);
    fputc('\n', stream);
}

static void print_names(const HsMatrix *matrix, const Block *block, FILE *stream)
{
    fprintf(stream, "\n%*s", block->label, "");
    for (int task = block->first; task < block->end; task++) {
        fputc(' ', stream);
        print_name(stream, "", matrix->names[task], block->cell - 2, true);
        fputc(' ', stream);
    }
    fputc('\n', stream);
}

static void print_losses(const HsMatrix *matrix, const Block *block, FILE *stream)
{
    int tasks = matrix->tasks;
    print_names(matrix, block, stream);
    print_row(matrix->untrained, tasks, "untrained", "", -1, block, stream);
    for (int row = 0; row < tasks; row++)
        print_row(hs_matrix_at(matrix, row, 0), tasks, "after ", matrix->names[row], row, block, stream);
    print_row(matrix->floor, tasks, "floor", "", -1, block, stream);
    print_row(matrix->joint, tasks, "joint", "", -1, block, stream);
}

static void print_accuracies(const HsMatrix *matrix, int set, const Block *block, FILE *stream)
{
    int tasks = matrix->tasks;
    print_names(matrix, block, stream);
    print_row(hs_matrix_accuracy(matrix, set, -1, 0), tasks, "untrained", "", -1, block, stream);
    for (int row = 0; row < tasks; row++)
        print_row(hs_matrix_accuracy(matrix, set, row, 0), tasks, "after ", matrix->names[row], row, block, stream);
}

/* "name  value  doc", the doc wrapped at blanks under itself. */
static void print_member(const HsMatrixMember *member, double value, int columns, FILE *stream)
{
    char name[32];
    snprintf(name, sizeof name, "%s", member->name);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    fprintf(stream, fabs(value) < 1000 ? "%-18s%9.3f   " : "%-18s%9.2e   ", name, value);
    int room = columns - DOC_INDENT;
    const char *rest = member->doc;
    while ((int)strlen(rest) > room) {
        int cut = room;
        while (cut > 0 && rest[cut] != ' ')
            cut--;
        if (cut == 0) /* one word longer than the room: it stays whole */
            break;
        fprintf(stream, "%.*s\n%*s", cut, rest, DOC_INDENT, "");
        rest += cut + 1;
    }
    fprintf(stream, "%s\n", rest);
}

/* set: -1: the losses */
static void print_table(const HsMatrix *matrix, int set, int columns, FILE *stream)
{
    int label = columns / 3 < LABEL_MOST ? columns / 3 : LABEL_MOST;
    int cell = (columns - label) / matrix->tasks;
    cell = cell < CELL_LEAST ? CELL_LEAST : cell > CELL_MOST ? CELL_MOST : cell;
    int tasks_a_block = (columns - label) / cell;
    for (int first = 0; first < matrix->tasks; first += tasks_a_block) {
        int end = first + tasks_a_block < matrix->tasks ? first + tasks_a_block : matrix->tasks;
        const Block block = { label, cell, first, end };
        if (set < 0)
            print_losses(matrix, &block, stream);
        else
            print_accuracies(matrix, set, &block, stream);
    }
}

static void print_summary(const HsMatrix *matrix, int columns, FILE *stream)
{
    HsMatrixSummary summary = hs_matrix_summary(matrix);
    fputc('\n', stream);
    for (int i = 0; i < hs_matrix_member_count; i++) {
        double value = hs_matrix_member_value(&summary, i);
        if (!isnan(value))
            print_member(&hs_matrix_members[i], value, columns, stream);
        else if (hs_matrix_members[i].offset == offsetof(HsMatrixSummary, forgetting) && hs_matrix_is_joint(matrix))
            fprintf(stream, "%-18s%9s   all tasks at once\n", "forgetting", "none");
    }
}

void hs_matrix_print(const HsMatrix *matrix, int columns, FILE *stream)
{
    columns = columns < COLUMNS_LEAST ? COLUMNS_LEAST : columns;
    fprintf(stream, "held-out loss, nats a token (lower is better)\n[ ] the task just trained\n");
    print_table(matrix, -1, columns, stream);
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        if (!known(matrix->accuracy[set], (matrix->tasks + 1) * matrix->tasks))
            continue;
        fprintf(stream, "\nexact completions, prompts %s in training\n(share of them; higher is better)\n",
                hs_item_set_names[set]);
        print_table(matrix, set, columns, stream);
    }
    print_summary(matrix, columns, stream);
}
