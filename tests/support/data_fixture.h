/* SPDX-License-Identifier: MIT
 *
 * For tests of data sources: a scratch folder with files in it, and a configuration that needs no YAML.
 * All inline, so that test programs that have nothing to do with data link as before.
 */
#ifndef HS_TESTS_SUPPORT_DATA_FIXTURE_H
#define HS_TESTS_SUPPORT_DATA_FIXTURE_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/dataset.h"

enum { DATA_FIXTURE_TASKS = 4 };

typedef struct DataFixture {
    char folder[96];
    char path[256]; /* of the file written last */
    char *train[4], validation[256];
    HsTaskConfig task;                      /* for tests of one dataset */
    HsTaskConfig tasks[DATA_FIXTURE_TASKS]; /* for tests of several: config.tasks */
    char *task_train[DATA_FIXTURE_TASKS];
    HsConfig config;
} DataFixture;

static inline void data_fixture_init(DataFixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    const char *temporary = getenv("TMPDIR");
    snprintf(fixture->folder, sizeof fixture->folder, "%.60s/halfstep-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(fixture->folder))
        abort();
    HsTaskConfig *task = &fixture->task;
    task->name = "t";
    task->train.items = fixture->train;
    task->validation = "50%";
    task->format = "auto";
    task->text_field = "text";
    task->prompt_field = "prompt";
    task->completion_field = "completion";
    task->synthetic_tokens = 20000;
    HsConfig *config = &fixture->config;
    config->training.seed = 1337;
    config->training.max_length = 4;
    config->training.init_from = "";
    config->training.out_dir = "none";
    config->tokenizer.kind = "byte";
    config->tokenizer.path = "";
    config->tokenizer.end_of_text = "";
    config->tokenizer.chat_template = "auto";
    config->data.sampling = "epoch";
    config->data.packing = "stream";
    config->data.token_file = "auto";
    config->data.cache = "off";
    config->data.verify = "quick";
}

/* Writes folder/name and makes it the path written last; one level of subfolder is made on the way. */
static inline const char *data_fixture_write(DataFixture *fixture, const char *name, const void *bytes, size_t size)
{
    snprintf(fixture->path, sizeof fixture->path, "%s/%s", fixture->folder, name);
    char *slash = strrchr(fixture->path, '/');
    *slash = '\0';
    (void)mkdir(fixture->path, 0700);
    *slash = '/';
    FILE *file = fopen(fixture->path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        abort();
    return fixture->path;
}

static inline void data_fixture_write_text(DataFixture *fixture, const char *name, const char *text)
{
    data_fixture_write(fixture, name, text, strlen(text));
}

/* folder/name, or a synthetic source, which has no folder. */
static inline char *data_fixture_source(const DataFixture *fixture, const char *name)
{
    char path[256];
    bool synthetic = strncmp(name, "synthetic:", 10) == 0;
    snprintf(path, sizeof path, "%s%s%s", synthetic ? "" : fixture->folder, synthetic ? "" : "/", name);
    return strdup(path);
}

/* Appends a source to the task's train list. */
static inline void data_fixture_train(DataFixture *fixture, const char *name)
{
    fixture->train[fixture->task.train.count++] = data_fixture_source(fixture, name);
}

/* Appends a task with one source to config.tasks; in all else it is like fixture->task. */
static inline HsTaskConfig *data_fixture_add_task(DataFixture *fixture, char *name, const char *train)
{
    int index = fixture->config.task_count++;
    HsTaskConfig *task = &fixture->tasks[index];
    *task = fixture->task;
    task->name = name;
    fixture->task_train[index] = data_fixture_source(fixture, train);
    task->train = (HsStringList){ .count = 1, .items = &fixture->task_train[index] };
    fixture->config.tasks = fixture->tasks;
    return task;
}

static inline void data_fixture_validation(DataFixture *fixture, const char *name)
{
    snprintf(fixture->validation, sizeof fixture->validation, "%s/%s", fixture->folder, name);
    fixture->task.validation = fixture->validation;
}

static inline HsStatus data_fixture_create(DataFixture *fixture, HsDataset *dataset)
{
    return hs_dataset_create(&fixture->config, &fixture->task, NULL, dataset);
}

/* The little-endian header of a token file, 1024 bytes. */
static inline void data_fixture_header(unsigned char *header, uint32_t magic, uint32_t version, uint32_t count)
{
    const uint32_t words[3] = { magic, version, count };
    memset(header, 0, 1024);
    for (size_t i = 0; i < 12; i++)
        header[i] = (unsigned char)(words[i / 4] >> (8 * (i % 4)));
}

static inline int data_fixture_remove(const char *path, const struct stat *about, int kind, struct FTW *position)
{
    (void)about;
    (void)kind;
    (void)position;
    return remove(path);
}

static inline void data_fixture_deinit(DataFixture *fixture)
{
    for (int i = 0; i < fixture->task.train.count; i++)
        free(fixture->train[i]);
    for (int i = 0; i < fixture->config.task_count; i++)
        free(fixture->task_train[i]);
    if (nftw(fixture->folder, data_fixture_remove, 8, FTW_DEPTH | FTW_PHYS) != 0)
        abort();
}

#endif
