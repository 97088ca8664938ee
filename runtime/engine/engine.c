/* SPDX-License-Identifier: MIT
 *
 * Device choice as a table: name in the configuration -> how it is opened.  `auto` walks its own short list, and the
 * reason why the first of it could not be had explains the choice.
 */
#include "runtime/engine/engine.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/comm_nccl.h"
#include "kernels/base/log.h"
#include "kernels/parts/comm.h"
#include "runtime/engine/allocator.h"

/* A device under its name; `index` is what follows a colon. */
typedef struct DeviceRow {
    const char *name;
    HsStatus (*open)(HsEngine *engine, const HsEngineOptions *options, int index);
    bool numbered; /* takes an index */
    bool cublaslt; /* can multiply by it */
    bool tuned;    /* chooses among a GPU's kernels */
} DeviceRow;

/* As kernels.hopper has them. */
static const char *const hopper_uses[] = { [HS_HOPPER_ALL] = "all",
                                           [HS_HOPPER_PRODUCTS] = "products",
                                           [HS_HOPPER_ATTENTION] = "attention",
                                           [HS_HOPPER_NONE] = "none" };

static HsHopperUse hopper_use(const char *name)
{
    int use = HS_HOPPER_NONE;
    while (use > HS_HOPPER_ALL && strcmp(name, hopper_uses[use]) != 0)
        use--;
    return (HsHopperUse)use;
}

static HsGraphUse graph_use(const char *name)
{
    return strcmp(name, "true") == 0    ? HS_GRAPH_ALWAYS
           : strcmp(name, "false") == 0 ? HS_GRAPH_NEVER
                                        : HS_GRAPH_WHERE_POSSIBLE;
}

/* Cores this process may run on: fewer than the machine's under taskset or with a control group's cpuset.  OpenMP knows
 * them from the start of the process; under OMP_PROC_BIND this thread's own mask is down to one of them by now. */
static int usable_cores(void)
{
    return omp_get_num_procs();
}

static void describe(HsEngine *engine, const char *name, const char *detail)
{
    snprintf(engine->why, sizeof engine->why, "%s (%s, %s)", name, engine->device.description, detail);
}

/* Processes of one run share the cores that they may all run on, and the quota. */
static int own_threads(const HsLimits *limits, int cores, const HsComm *comm)
{
    HsLimits own = *limits;
    if (!comm || comm->local_size == 1)
        return hs_limits_threads(limits, cores);
    const int share = (int)(hs_comm_share_start((size_t)cores, comm->core_size, comm->core_rank + 1) -
                            hs_comm_share_start((size_t)cores, comm->core_size, comm->core_rank));
    own.processors /= comm->local_size;
    return hs_limits_threads(&own, share > 0 ? share : 1);
}

static HsStatus open_cpu(HsEngine *engine, const HsEngineOptions *options, int index)
{
    (void)index;
    char detail[96];
    HS_TRY(hs_device_host_init(&engine->device));
    HS_TRY(hs_backend_cpu(&engine->context.backend));
    engine->products.bf16 = hs_backend_cpu_has_bf16();
    const HsLimits *limits = &engine->device.limits;
    const int cores = usable_cores();
    /* More threads than the quota has processors would be stopped in turn, and wait for each other at every barrier. */
    const int threads = options->threads > 0 ? (int)options->threads : own_threads(limits, cores, options->comm);
    engine->context.threads = threads;
    snprintf(detail, sizeof detail, "%s, %d thread%s%s", hs_backend_cpu_isa(), threads, threads == 1 ? "" : "s",
             options->threads > 0 || threads == cores         ? ""
             : options->comm && options->comm->local_size > 1 ? ", this process's share"
                                                              : " by the group's quota");
    describe(engine, "cpu", detail);
    return HS_OK;
}

static HsStatus open_ref(HsEngine *engine, const HsEngineOptions *options, int index)
{
    (void)options;
    (void)index;
    HS_TRY(hs_device_host_init(&engine->device));
    engine->context.backend = hs_backend_ref();
    engine->context.threads = 1; /* the reference is serial by design */
    describe(engine, "ref", "plain C, sums in double");
    return HS_OK;
}

/* GPUs and their emulation: separate parts, with the same kernels. */
static HsStatus open_part(HsEngine *engine, const char *name, const HsEngineOptions *options, int index)
{
    const HsCudaOptions cuda = { .index = index,
                                 .sync_launch = options->sync_launch,
                                 .no_overlap = options->no_overlap,
                                 .unordered = options->unordered,
                                 .cublaslt = options->cublaslt,
                                 .hopper = options->hopper,
                                 .card = options->card };
    const HsBackendPart *part;
    HS_TRY(hs_part_open(name, &part));
    HS_TRY(part->device_init(&engine->device, &cuda));
    engine->part = part;
    engine->tuner = part->tuner;
    engine->context.backend = part->backend;
    engine->context.threads = 1;
    engine->products = (HsProducts){ .bf16 = true, .f16 = true, .rounds_to[HS_TF32] = true };
    return engine->device.stream_create(&engine->device, &engine->context.stream);
}

static HsStatus open_cuda(HsEngine *engine, const HsEngineOptions *options, int index)
{
    HS_TRY(open_part(engine, "cuda", options, index));
    describe(engine, engine->device.name, options->cublaslt ? "products by cuBLASLt" : "kernels of this build");
    return HS_OK;
}

static HsStatus open_emu(HsEngine *engine, const HsEngineOptions *options, int index)
{
    HS_TRY(open_part(engine, "emu", options, index));
    engine->emulated = true;
    describe(engine, "emu", "the CUDA kernels, emulated: for tests, not for speed");
    return HS_OK;
}

static const DeviceRow rows[] = {
    { "cpu", open_cpu, false, false, false },
    { "cuda", open_cuda, true, true, true },
    { "emu", open_emu, false, false, true },
    { "ref", open_ref, false, false, false },
};

/* The row that `device` names, and the number behind a colon. */
static const DeviceRow *find_row(const char *device, int *index)
{
    size_t length = strcspn(device, ":");
    *index = device[length] == ':' ? atoi(device + length + 1) : 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == length && strncmp(device, rows[i].name, length) == 0 &&
            (rows[i].numbered || device[length] == '\0'))
            return &rows[i];
    return NULL;
}

/* `kernels` asks for more than some devices have. */
static HsStatus check_graphs(HsEngine *engine, const DeviceRow *row, const HsEngineOptions *options)
{
    const bool records = engine->device.graph_begin != NULL;
    const bool exchanges = options->comm && !hs_comm_can_be_recorded(options->comm);
    engine->cuda_graph = options->cuda_graph != HS_GRAPH_NEVER && records && !exchanges && !options->sync_launch;
    if (options->cuda_graph != HS_GRAPH_ALWAYS)
        return HS_OK;
    if (!records)
        return hs_fail(HS_ECONFIG,
                       "kernels.cuda_graph: true needs a device that can record steps, and %s cannot: set it to false, "
                       "or device: cuda",
                       row->name);
    if (exchanges)
        return hs_fail(HS_ECONFIG,
                       "kernels.cuda_graph: true records steps of one process, and %d train here: what they exchange "
                       "cannot be recorded; set it to false",
                       options->comm->size);
    return HS_OK;
}

static HsStatus check_products(const DeviceRow *row, const HsEngineOptions *options)
{
    if (options->cublaslt && !row->cublaslt)
        return hs_fail(HS_ECONFIG,
                       "kernels.matmul: cublaslt needs an NVIDIA GPU, and this run is on %s: set it to native, or "
                       "device: cuda",
                       row->name);
    const bool tuning = options->tuning && options->tuning[0] != '\0';
    if (tuning && !row->tuned)
        return hs_fail(HS_ECONFIG,
                       "kernels.tuning: %.200s chooses among a GPU's kernels, and this run is on %s: leave it out, or "
                       "device: cuda",
                       options->tuning, row->name);
    if (options->hopper != HS_HOPPER_ALL && !row->tuned)
        return hs_fail(HS_ECONFIG,
                       "kernels.hopper: %s chooses among a GPU's kernels, and this run is on %s: leave it out, or "
                       "device: cuda",
                       hopper_uses[options->hopper], row->name);
    if (options->unordered && !row->tuned)
        return hs_fail(
            HS_ECONFIG,
            "kernels.deterministic: false is for GPUs, and this run is on %s, where every sum has one order: "
            "leave it out, or device: cuda",
            row->name);
    if (tuning && options->cublaslt)
        return hs_fail(HS_ECONFIG,
                       "kernels.tuning: %.200s chooses among this project's kernels: leave it out, or kernels.matmul: "
                       "native",
                       options->tuning);
    return HS_OK;
}

static HsStatus open_row(HsEngine *engine, const DeviceRow *row, const HsEngineOptions *options, int index)
{
    memset(engine, 0, sizeof *engine);
    engine->context.device = &engine->device;
    HS_TRY(check_products(row, options));
    HsStatus status = row->open(engine, options, index);
    if (status == HS_OK)
        status = check_graphs(engine, row, options);
    if (status == HS_OK) {
        const HsBackend *const backend = engine->context.backend;
        engine->products.turns_codes = backend->turns_codes == NULL || backend->turns_codes(&engine->context);
    }
    if (status != HS_OK)
        hs_engine_deinit(engine);
    return status;
}

static void append_reason(HsEngine *engine, const char *reason)
{
    size_t used = strlen(engine->why);
    snprintf(engine->why + used, sizeof engine->why - used, ": %s", reason);
}

/* Processes of one host take its GPUs in their order; a launcher may have shown each process one GPU alone. */
static int own_gpu(const HsComm *comm)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return comm && !(visible && *visible && !strchr(visible, ',')) ? comm->local_rank : 0;
}

/* Whether the processes of a run train on the same kind of device. */
static HsStatus agree_on_gpus(HsEngine *engine, const HsComm *comm, bool opened, const char *reason)
{
    int64_t gpus = opened;
    HsStatus status = comm ? hs_comm_all_reduce((HsComm *)comm, NULL, &gpus, 1, HS_I64, HS_COMM_SUM) : HS_OK;
    if (status == HS_OK && comm && gpus > 0 && gpus < comm->size)
        status = hs_fail(HS_ECONFIG,
                         "device: auto found a GPU for %lld of %d processes only%s%s: start as many as there "
                         "are GPUs, or say device: cpu",
                         (long long)gpus, comm->size, opened ? "" : ", and none for this one: ", opened ? "" : reason);
    if (status != HS_OK && opened)
        hs_engine_deinit(engine);
    return status;
}

/* The best there is. */
static HsStatus open_auto(HsEngine *engine, const HsEngineOptions *options)
{
    int index;
    const bool opened = open_row(engine, find_row("cuda", &index), options, own_gpu(options->comm)) == HS_OK;
    char reason[256] = "";
    if (!opened)
        snprintf(reason, sizeof reason, "%.255s", hs_error_message());
    HS_TRY(agree_on_gpus(engine, options->comm, opened, reason));
    if (opened) {
        append_reason(engine, "auto takes a GPU where there is one");
        return HS_OK;
    }
    HsStatus status = open_row(engine, find_row("cpu", &index), options, 0);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s", reason);
    append_reason(engine, reason);
    return HS_OK;
}

static HsStatus open_named(HsEngine *engine, const HsEngineOptions *options)
{
    int index;
    const DeviceRow *row = find_row(options->device, &index);
    if (!row)
        return hs_fail(HS_ECONFIG, "device %s is not known: use auto, cpu, cuda, cuda:N, emu or ref", options->device);
    if (row->numbered && options->comm && options->comm->local_size > 1) {
        if (strchr(options->device, ':'))
            return hs_fail(HS_ECONFIG,
                           "device: %s is one GPU, and %d processes of this host train: say device: %s, and "
                           "each takes its own",
                           options->device, options->comm->local_size, row->name);
        index = own_gpu(options->comm);
    }
    HsStatus status = open_row(engine, row, options, index);
    if (status == HS_ECONFIG)
        return status;
    if (status != HS_OK)
        return hs_error_prefix(status, "device: %s cannot be used (auto would take the CPU)", options->device);
    append_reason(engine, "as configured");
    return HS_OK;
}

/* After the device was chosen: a table that cannot be used is no reason to train elsewhere. */
static HsStatus load_tuning(HsEngine *engine, const HsEngineOptions *options)
{
    if (!options->tuning || options->tuning[0] == '\0')
        return HS_OK;
    HsTuningTable table;
    HsStatus status = hs_tuning_read(options->tuning, &table);
    if (status == HS_OK) {
        status = engine->tuner->use(&engine->device, &table, options->tuning);
        engine->tuning_hash = table.hash;
        if (status == HS_OK)
            hs_info("products by the table %s: %d measured choices, hash %012llx; others by the model", options->tuning,
                    table.count, (unsigned long long)table.hash);
        hs_tuning_deinit(&table);
    }
    if (status == HS_OK)
        return HS_OK;
    return hs_error_prefix(status == HS_EFORMAT || status == HS_EIO ? HS_ECONFIG : status, "kernels.tuning");
}

/* Before anything is allocated, as memory is given back to the allocator that it came from. */
static HsStatus set_memory(HsEngine *engine, const HsEngineOptions *options)
{
    HsDevice *const device = &engine->device;
    device->cap_bytes = options->cap_bytes;
    if (!options->allocator || options->allocator[0] == '\0')
        return HS_OK;
    HS_TRY(hs_allocator_open(options->allocator, device->name, &device->hooks));
    static const char *const served[2][2] = { { "", "pinned" }, { "device", "device and pinned" } };
    hs_info("%s memory of %s is the allocator's: %s (%s)",
            served[device->hooks->alloc != NULL][device->hooks->pinned != NULL], device->name, device->hooks->name,
            options->allocator);
    return HS_OK;
}

/* Devices with their own memory exchange directly. */
static HsStatus join_devices(HsEngine *engine, const HsEngineOptions *options)
{
    const HsPartCommOptions wanted = { .exact = !options->library_sums, .timeout_s = options->timeout_s };
    engine->comm = options->comm ? options->comm : hs_comm_alone();
    if (engine->comm->size == 1 || !engine->part)
        return HS_OK;
    HS_TRY(hs_part_comm_create(engine->part, &engine->device, options->comm, &wanted, &engine->devices));
    engine->comm = engine->devices;
    hs_info("between devices: %s, sums %s", hs_comm_name(engine->devices),
            engine->devices->exact ? "along the tree of processes" : "in its own order");
    return HS_OK;
}

HsEngineOptions hs_engine_options(const HsConfig *config)
{
    return (HsEngineOptions){
        .device = config->training.device,
        .threads = config->training.threads,
        .cublaslt = hs_is(config->kernels.matmul, "cublaslt"),
        .hopper = hopper_use(config->kernels.hopper),
        .sync_launch = config->kernels.sync_launch,
        .no_overlap = !config->kernels.overlap,
        .unordered = !config->kernels.deterministic,
        .cuda_graph = graph_use(config->kernels.cuda_graph),
        .tuning = config->kernels.tuning,
        .allocator = config->memory.allocator,
        .cap_bytes = (size_t)config->memory.limit,
        .library_sums = !config->distributed.exact,
        .timeout_s = config->distributed.timeout,
    };
}

HsStatus hs_engine_init(HsEngine *engine, const HsEngineOptions *options)
{
    memset(engine, 0, sizeof *engine);
    HS_TRY(strcmp(options->device, "auto") == 0 ? open_auto(engine, options) : open_named(engine, options));
    HsStatus status = set_memory(engine, options);
    if (status == HS_OK)
        status = load_tuning(engine, options);
    if (status == HS_OK)
        status = join_devices(engine, options);
    if (status != HS_OK)
        hs_engine_deinit(engine);
    return status;
}

void hs_engine_deinit(HsEngine *engine)
{
    if (engine->devices)
        engine->comm = hs_comm_alone();
    hs_comm_destroy(engine->devices);
    engine->devices = NULL;
    if (engine->context.stream)
        engine->device.stream_destroy(&engine->device, engine->context.stream);
    engine->context.stream = NULL;
    hs_device_deinit(&engine->device);
}
