/* SPDX-License-Identifier: MIT
 *
 * Writing and reading the matrix as JSON.  Reading trusts nothing: counts, types and lengths are checked before a
 * figure is stored, and the summary is left alone, since it follows from the rest.
 */
#include "runtime/record/matrix_json.h"

#include <math.h>
#include <string.h>

#include "runtime/io/utf8.h"

static const char *const accuracy_keys[HS_ITEM_SET_COUNT] = { "accuracy_seen", "accuracy_unseen" };

static HsJson *reals(const double *values, int count)
{
    HsJson *array = hs_json_array();
    for (int i = 0; i < count; i++)
        hs_json_append(array, hs_json_new_real(values[i]));
    return array;
}

static bool known(const double *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!isnan(values[i]))
            return true;
    return false;
}

/* Which tasks are to be retained, and how much is left of the others; nothing where all are. */
static void write_retained(const HsMatrix *matrix, HsJson *object)
{
    if (!hs_matrix_forgets(matrix))
        return;
    HsJson *retain = hs_json_array(), *left = hs_json_array();
    for (int task = 0; task < matrix->tasks; task++) {
        hs_json_append(retain, hs_json_new_bool(!matrix->forgets[task]));
        hs_json_append(left, hs_json_new_real(matrix->forgets[task] ? hs_matrix_left(matrix, task) : NAN));
    }
    hs_json_set(object, "retain", retain);
    hs_json_set(object, "left", left);
}

HsJson *hs_matrix_summary_json(const HsMatrix *matrix)
{
    HsMatrixSummary summary = hs_matrix_summary(matrix);
    HsJson *object = hs_json_object();
    for (int i = 0; i < hs_matrix_member_count; i++)
        if (!hs_matrix_members[i].rare || !isnan(hs_matrix_member_value(&summary, i)))
            hs_json_set_real(object, hs_matrix_members[i].name, hs_matrix_member_value(&summary, i));
    return object;
}

void hs_matrix_to_json(const HsMatrix *matrix, int rows, HsJson *object)
{
    HsJson *names = hs_json_array(), *losses = hs_json_array();
    for (int i = 0; i < matrix->tasks; i++) {
        /* A name that its buffer cut inside a character would make the text unreadable as JSON. */
        char name[sizeof matrix->names[i]] = "";
        memcpy(name, matrix->names[i],
               hs_utf8_valid_prefix(matrix->names[i], strnlen(matrix->names[i], sizeof name - 1)));
        hs_json_append(names, hs_json_new_string(name));
    }
    for (int row = 0; row < rows; row++)
        hs_json_append(losses, reals(hs_matrix_at(matrix, row, 0), matrix->tasks));
    hs_json_set(object, "names", names);
    hs_json_set(object, "losses", losses);
    hs_json_set(object, "untrained", reals(matrix->untrained, matrix->tasks));
    hs_json_set(object, "floor", reals(matrix->floor, matrix->tasks));
    hs_json_set(object, "joint", reals(matrix->joint, matrix->tasks));
    write_retained(matrix, object);
    if (matrix->known > 0)
        hs_json_set_integer(object, "known", matrix->known);
    if (known(matrix->bytes_per_token, matrix->tasks))
        hs_json_set(object, "bytes_per_token", reals(matrix->bytes_per_token, matrix->tasks));
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        if (!known(matrix->accuracy[set], (matrix->tasks + 1) * matrix->tasks))
            continue;
        HsJson *accuracies = hs_json_array();
        for (int row = -1; row < rows; row++)
            hs_json_append(accuracies, reals(hs_matrix_accuracy(matrix, set, row, 0), matrix->tasks));
        hs_json_set(object, accuracy_keys[set], accuracies);
    }
}

/* An array of exactly `count` numbers or nulls -> values. */
static HsStatus read_reals(const char *name, const char *key, const HsJson *array, double *values, int count)
{
    if (!hs_json_is_array(array) || hs_json_count(array) != count)
        return hs_fail(HS_EFORMAT, "%s: `%s` must be an array of %d numbers, one for each of the names", name, key,
                       count);
    int i = 0;
    for (const HsJson *item = hs_json_first(array); item; item = hs_json_next(item)) {
        if (hs_json_is_string(item) || hs_json_is_array(item) || hs_json_is_object(item))
            return hs_fail(HS_EFORMAT, "%s: `%s` must hold numbers or null", name, key);
        double value = hs_json_number(item); /* of null: NAN */
        values[i++] = isinf(value) ? NAN : value;
    }
    return HS_OK;
}

/* One truth value for each of the names; all true where there is no list. */
static HsStatus read_retained(const char *name, const HsJson *object, HsMatrix *matrix)
{
    const HsJson *retain = hs_json_get(object, "retain");
    if (!retain)
        return HS_OK;
    bool fits = hs_json_is_array(retain) && hs_json_count(retain) == matrix->tasks;
    int task = 0;
    for (const HsJson *item = hs_json_first(retain); fits && item; item = hs_json_next(item)) {
        fits = hs_json_is_bool(item);
        matrix->forgets[task++] = fits && !hs_json_is_true(item);
    }
    return fits ? HS_OK
                : hs_fail(HS_EFORMAT, "%s: `retain` must be an array of %d truth values, one for each of the names",
                          name, matrix->tasks);
}

/* How many of the names were learned before the run; 0 where there is none. */
static HsStatus read_known(const char *name, const HsJson *object, HsMatrix *matrix)
{
    const HsJson *known = hs_json_get(object, "known");
    const double count = known ? hs_json_number(known) : 0;
    if (!(count >= 0 && count <= matrix->tasks && count == floor(count)))
        return hs_fail(HS_EFORMAT, "%s: `known` must be a number of names, 0 to %d", name, matrix->tasks);
    matrix->known = (int)count;
    return HS_OK;
}

/* Left out where all of it is unknown. */
static HsStatus read_added(const char *name, const HsJson *object, HsMatrix *matrix)
{
    const HsJson *bytes = hs_json_get(object, "bytes_per_token");
    HS_TRY(read_retained(name, object, matrix));
    HS_TRY(read_known(name, object, matrix));
    if (bytes)
        HS_TRY(read_reals(name, "bytes_per_token", bytes, matrix->bytes_per_token, matrix->tasks));
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        const HsJson *rows = hs_json_get(object, accuracy_keys[set]);
        int row = -1;
        if (rows && (!hs_json_is_array(rows) || hs_json_count(rows) > matrix->tasks + 1))
            return hs_fail(HS_EFORMAT, "%s: `%s` must be an array of at most %d rows", name, accuracy_keys[set],
                           matrix->tasks + 1);
        for (const HsJson *item = hs_json_first(rows); item; item = hs_json_next(item))
            HS_TRY(
                read_reals(name, accuracy_keys[set], item, hs_matrix_accuracy(matrix, set, row++, 0), matrix->tasks));
    }
    return HS_OK;
}

static HsStatus read_members(const char *name, const HsJson *object, HsMatrix *matrix)
{
    const struct {
        const char *key;
        double *values;
    } rows[] = { { "untrained", matrix->untrained }, { "floor", matrix->floor }, { "joint", matrix->joint } };
    const HsJson *losses = hs_json_get(object, "losses");
    int task = 0;
    for (const HsJson *item = hs_json_first(hs_json_get(object, "names")); item; item = hs_json_next(item)) {
        if (!hs_json_is_string(item))
            return hs_fail(HS_EFORMAT, "%s: `names` must hold strings", name);
        hs_matrix_set_name(matrix, task++, hs_json_string(item));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        HS_TRY(read_reals(name, rows[i].key, hs_json_get(object, rows[i].key), rows[i].values, matrix->tasks));
    if (!hs_json_is_array(losses) || hs_json_count(losses) > matrix->tasks)
        return hs_fail(HS_EFORMAT, "%s: `losses` must be an array of at most %d rows", name, matrix->tasks);
    int row = 0;
    for (const HsJson *item = hs_json_first(losses); item; item = hs_json_next(item))
        HS_TRY(read_reals(name, "losses", item, hs_matrix_at(matrix, row++, 0), matrix->tasks));
    return read_added(name, object, matrix);
}

HsStatus hs_matrix_from_json(const char *name, const HsJson *object, HsMatrix *matrix)
{
    *matrix = (HsMatrix){ 0 };
    const HsJson *names = hs_json_get(object, "names");
    int tasks = hs_json_is_array(names) ? hs_json_count(names) : 0;
    if (tasks < 1 || tasks > HS_MATRIX_TASKS_MOST)
        return hs_fail(HS_EFORMAT, "%s: `names` must be an array of 1 to %d strings", name, HS_MATRIX_TASKS_MOST);
    HS_TRY(hs_matrix_init(matrix, tasks));
    HsStatus status = read_members(name, object, matrix);
    if (status != HS_OK)
        hs_matrix_deinit(matrix);
    return status;
}
