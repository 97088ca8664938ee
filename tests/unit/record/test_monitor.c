/* SPDX-License-Identifier: MIT
 *
 * Samples of the device: the file's lines, the period, what is left out, and the driver's management library, replaced
 * by one that the test compiles: written from the library's documentation and with the compiler's own idea of its
 * structures, it proves names, layouts and units without a GPU.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

#include "runtime/io/json.h"
#include "runtime/record/monitor.h"
#include "runtime/record/nvml.h"
#include "tests/support/scratch.h"

/* --- the file --- */

static HsStatus read_given(void *user, HsDeviceSample *sample)
{
    *sample = *(const HsDeviceSample *)user;
    return HS_OK;
}

static HsStatus read_nothing(void *user, HsDeviceSample *sample)
{
    (void)user;
    (void)sample;
    return hs_fail(HS_EDEVICE, "the device is lost");
}

static HsMonitor *make_monitor(const Scratch *scratch, HsDevice *device, double every_s, bool append)
{
    HsMonitor *monitor;
    const HsMonitorOptions options = {
        .device = device, .every_s = every_s, .out_dir = scratch->folder, .append = append
    };
    cr_assert_eq(hs_monitor_create(&options, &monitor), HS_OK, "%s", hs_error_message());
    return monitor;
}

static bool poll(HsMonitor *monitor, int64_t step, HsDeviceSample *sample)
{
    bool taken;
    cr_assert_eq(hs_monitor_poll(monitor, step, sample, &taken), HS_OK, "%s", hs_error_message());
    return taken;
}

static char *read_lines(const Scratch *scratch)
{
    size_t size;
    return scratch_read(scratch_path(scratch, "device.jsonl"), &size);
}

Test(monitor, a_line_holds_what_is_known)
{
    Scratch scratch = scratch_make();
    HsDevice device;
    HsDeviceSample sample, full = { .used_bytes = 9000000000u,
                                    .total_bytes = 12884901888u,
                                    .process_bytes = 4096,
                                    .utilisation = 0.5,
                                    .power_w = 123.25,
                                    .temperature_c = 61 };
    HsDeviceSample sparse = { .process_bytes = 7, .utilisation = NAN, .power_w = NAN, .temperature_c = NAN };
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsMonitor *monitor = make_monitor(&scratch, &device, 1e-9, false);
    hs_monitor_set_sampler(monitor, (HsDeviceSampler){ read_given, &full });
    cr_expect(poll(monitor, 3, &sample));
    cr_expect_eq(sample.used_bytes, full.used_bytes);
    hs_monitor_set_sampler(monitor, (HsDeviceSampler){ read_given, &sparse });
    cr_expect(poll(monitor, 4, &sample));
    hs_monitor_destroy(monitor);

    char *text = read_lines(&scratch), *second = strchr(text, '\n') + 1;
    const char *expected = ",\"step\":3,\"device_used_bytes\":9000000000,\"device_total_bytes\":12884901888,"
                           "\"process_bytes\":4096,\"utilisation\":0.5,\"power_w\":123.25,\"temperature_c\":61}\n";
    cr_expect_eq(strncmp(text, "{\"time_s\":0.", 12), 0, "%s", text);
    cr_expect_eq(strncmp(strchr(text, ','), expected, strlen(expected)), 0, "%s", text);
    cr_expect_str_eq(strchr(second, ','), ",\"step\":4,\"process_bytes\":7}\n");
    HsJson *json;
    cr_expect_eq(hs_json_parse("line", text, (size_t)(second - text), &json), HS_OK, "%s", hs_error_message());
    hs_json_destroy(json);
    free(text);
    scratch_remove(&scratch);
}

Test(monitor, samples_are_no_closer_than_the_period)
{
    Scratch scratch = scratch_make();
    HsDevice device;
    HsDeviceSample sample;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsMonitor *monitor = make_monitor(&scratch, &device, 0.05, false);
    int taken = 0;
    const int polls = 60; /* each later by 5 ms at least: that many cannot all be within one period, nor all be due */
    for (int i = 0; i < polls; i++) {
        taken += poll(monitor, i, &sample);
        usleep(5000);
    }
    cr_expect_geq(taken, 6); /* 0.3 s at least, and the first at once */
    cr_expect_lt(taken, polls);
    hs_monitor_destroy(monitor);
    char *text = read_lines(&scratch), *end;
    double before = -INFINITY;
    for (char *at = text; *at; at = strchr(at, '\n') + 1) {
        const double time_s = strtod(at + strlen("{\"time_s\":"), &end);
        cr_expect_geq(time_s - before, 0.05 - 0.001, "%g after %g", time_s, before); /* written to the millisecond */
        before = time_s;
        taken--;
    }
    cr_expect_eq(taken, 0);
    free(text);

    cr_assert_eq(unlink(scratch_path(&scratch, "device.jsonl")), 0);
    monitor = make_monitor(&scratch, &device, 0, false);
    cr_expect_not(poll(monitor, 1, &sample));
    cr_expect_not(scratch_exists(scratch_path(&scratch, "device.jsonl")), "a period of 0 writes nothing");
    hs_monitor_destroy(monitor);
    scratch_remove(&scratch);
}

Test(monitor, a_fresh_run_starts_the_file_anew_and_a_resumed_one_continues)
{
    Scratch scratch = scratch_make();
    const char *torn = "{\"time_s\":1.000,\"step\":1}\n{\"time_s\":2.0";
    HsDevice device;
    HsDeviceSample sample, empty = { .utilisation = NAN, .power_w = NAN, .temperature_c = NAN };
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    for (int append = 0; append < 2; append++) {
        scratch_write(scratch_path(&scratch, "device.jsonl"), torn, strlen(torn));
        HsMonitor *monitor = make_monitor(&scratch, &device, 1, append);
        hs_monitor_set_sampler(monitor, (HsDeviceSampler){ read_given, &empty });
        cr_expect(poll(monitor, 2, &sample));
        hs_monitor_destroy(monitor);
        char *text = read_lines(&scratch), *second = strchr(text, '\n') + 1;
        if (append)
            cr_expect_eq(strncmp(text, torn, (size_t)(second - text)), 0, "%s", text);
        cr_expect_str_eq(strchr(append ? second : text, ','), ",\"step\":2}\n");
        free(text);
    }
    scratch_remove(&scratch);
}

Test(monitor, a_failing_sampler_or_file_is_an_error)
{
    Scratch scratch = scratch_make();
    HsDevice device;
    HsDeviceSample sample;
    bool taken;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsMonitor *monitor = make_monitor(&scratch, &device, 1, false);
    hs_monitor_set_sampler(monitor, (HsDeviceSampler){ read_nothing, NULL });
    cr_expect_eq(hs_monitor_poll(monitor, 1, &sample, &taken), HS_EDEVICE);
    cr_expect_not(taken);
    hs_monitor_destroy(monitor);
    const HsMonitorOptions nowhere = { .device = &device, .every_s = 1, .out_dir = "/nonexistent" };
    cr_expect_eq(hs_monitor_create(&nowhere, &monitor), HS_EIO);
    hs_monitor_destroy(NULL);
    scratch_remove(&scratch);
}

/* --- the sources --- */

Test(monitor, the_host_reports_memory_in_use_and_of_this_process)
{
    Scratch scratch = scratch_make();
    HsDevice device;
    HsDeviceSample sample;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsMonitor *monitor = make_monitor(&scratch, &device, 1e-9, false);
    cr_assert(poll(monitor, 0, &sample));
    cr_expect_eq(sample.total_bytes, device.memory_bytes);
    cr_expect(sample.used_bytes > 0 && sample.used_bytes <= sample.total_bytes);
    cr_expect(isnan(sample.utilisation) && isnan(sample.power_w) && isnan(sample.temperature_c));
    /* 64 MiB that are written to are resident. */
    const size_t before = sample.process_bytes, block_bytes = (size_t)64 << 20;
    volatile char *block = malloc(block_bytes);
    cr_assert(block);
    for (size_t i = 0; i < block_bytes; i += 512)
        block[i] = 1;
    cr_assert(poll(monitor, 1, &sample));
    cr_expect_geq(sample.process_bytes, before + block_bytes);
    free((void *)block);
    hs_monitor_destroy(monitor);
    scratch_remove(&scratch);
}

Test(monitor, an_emulated_device_holds_what_this_process_allocated)
{
    Scratch scratch = scratch_make();
    HsDevice device;
    HsDeviceSample sample;
    HsMonitor *monitor;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    device.current_bytes = 12345;
    snprintf(device.bus_id, sizeof device.bus_id, "0000:00:00.0");
    const HsMonitorOptions options = {
        .device = &device, .emulated = true, .every_s = 1, .out_dir = scratch.folder, .nvml_library = "/dev/null"
    };
    cr_assert_eq(hs_monitor_create(&options, &monitor), HS_OK, "%s", hs_error_message());
    cr_assert(poll(monitor, 0, &sample));
    cr_expect_eq(sample.used_bytes, 12345);
    cr_expect_eq(sample.total_bytes, device.memory_bytes);
    hs_monitor_destroy(monitor);
    scratch_remove(&scratch);
}

/* --- NVML --- */

/* A card of 80 GiB at 0000:65:00.0.  NO_x: that query is not supported (code 3); BROKEN: the driver is not loaded;
 * OLD: a library from before nvmlInit_v2.  Shutdown leaves a mark. */
static const char fake_source[] =
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "typedef int nvmlReturn_t;\n"
    "typedef struct nvmlDevice_st { int magic; } *nvmlDevice_t;\n"
    "typedef struct nvmlMemory_st { unsigned long long total, free, used; } nvmlMemory_t;\n"
    "typedef struct nvmlUtilization_st { unsigned int gpu, memory; } nvmlUtilization_t;\n"
    "typedef enum nvmlTemperatureSensors_enum { NVML_TEMPERATURE_GPU = 0 } nvmlTemperatureSensors_t;\n"
    "static struct nvmlDevice_st card = { 77 };\n"
    "static int started;\n"
    "#ifdef OLD\nnvmlReturn_t nvmlInit(void) { return 0; }\n"
    "#elif defined BROKEN\nnvmlReturn_t nvmlInit_v2(void) { return 9; }\n"
    "#else\nnvmlReturn_t nvmlInit_v2(void) { started++; return 0; }\n#endif\n"
    "nvmlReturn_t nvmlShutdown(void) {\n"
    "    FILE *mark = fopen(getenv(\"FAKE_MARK\"), \"a\");\n"
    "    fputs(started == 1 ? \"down\" : \"never up\", mark); fclose(mark); started--; return 0; }\n"
    "const char *nvmlErrorString(nvmlReturn_t code) {\n"
    "    return code == 3 ? \"Not Supported\" : code == 6 ? \"Not Found\" : code == 9 ? \"Driver Not Loaded\" : \"?\"; "
    "}\n"
    "nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device) {\n"
    "    *device = &card; return strcmp(pciBusId, \"0000:65:00.0\") == 0 ? 0 : 6; }\n"
    "nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {\n"
    "    if (NO_MEMORY) return 3;\n"
    "    memory->total = 80ull << 30; memory->free = 50ull << 30; memory->used = 30ull << 30;\n"
    "    return device == &card ? 0 : 2; }\n"
    "nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {\n"
    "    if (NO_UTILIZATION) return 3;\n"
    "    utilization->gpu = 37; utilization->memory = 91; return device == &card ? 0 : 2; }\n"
    "nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {\n"
    "    if (NO_POWER) return 3;\n"
    "    *power = 123456; return device == &card ? 0 : 2; }\n"
    "nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *temp) "
    "{\n"
    "    *temp = 61; return device == &card && sensor == NVML_TEMPERATURE_GPU ? 0 : 2; }\n";

static const char *build_fake(const Scratch *scratch, const char *defines)
{
    const char *source = scratch_path(scratch, "fake.c"), *library = scratch_path(scratch, "libfake.so");
    const char *compiler = getenv("CC");
    char command[2048];
    scratch_write(source, fake_source, strlen(fake_source));
    snprintf(command, sizeof command,
             "%s -w -shared -fPIC -DNO_MEMORY=0%s -DNO_UTILIZATION=0%s -DNO_POWER=0%s %s -o %s %s",
             compiler && compiler[0] ? compiler : "cc", strstr(defines, "memory") ? "+1" : "",
             strstr(defines, "utilisation") ? "+1" : "", strstr(defines, "power") ? "+1" : "",
             defines[0] == '-' ? defines : "", library, source);
    cr_assert_eq(system(command), 0, "%s", command);
    cr_assert_eq(setenv("FAKE_MARK", scratch_path(scratch, "mark"), 1), 0);
    return library;
}

Test(nvml, values_come_in_our_units)
{
    Scratch scratch = scratch_make();
    HsNvml *nvml;
    HsNvmlReading reading;
    char missing[256];
    size_t size;
    cr_assert_eq(hs_nvml_open(build_fake(&scratch, ""), "0000:65:00.0", &nvml), HS_OK, "%s", hs_error_message());
    hs_nvml_read(nvml, &reading, missing, sizeof missing);
    cr_expect_str_eq(missing, "");
    cr_expect_eq(reading.total_bytes, (size_t)80 << 30);
    cr_expect_eq(reading.used_bytes, (size_t)30 << 30);
    cr_expect_float_eq(reading.utilisation, 0.37, 1e-15);
    cr_expect_float_eq(reading.power_w, 123.456, 1e-12);
    cr_expect_eq(reading.temperature_c, 61);
    hs_nvml_close(nvml);
    char *mark = scratch_read(scratch_path(&scratch, "mark"), &size);
    cr_expect_str_eq(mark, "down", "shut down once");
    free(mark);
    scratch_remove(&scratch);
}

Test(nvml, unanswered_queries_are_named)
{
    Scratch scratch = scratch_make();
    HsNvml *nvml;
    HsNvmlReading reading;
    char missing[256], little[16];
    cr_assert_eq(hs_nvml_open(build_fake(&scratch, "memory utilisation power"), "0000:65:00.0", &nvml), HS_OK);
    hs_nvml_read(nvml, &reading, missing, sizeof missing);
    cr_expect_str_eq(missing, "memory (Not Supported), utilisation (Not Supported), power (Not Supported)");
    cr_expect(reading.total_bytes == 0 && isnan(reading.utilisation) && isnan(reading.power_w));
    cr_expect_eq(reading.temperature_c, 61);
    hs_nvml_read(nvml, &reading, little, sizeof little);
    cr_expect_str_eq(little, "memory (Not Sup");
    hs_nvml_close(nvml);
    scratch_remove(&scratch);
}

Test(nvml, what_cannot_be_had_says_why)
{
    Scratch scratch = scratch_make();
    const struct {
        const char *defines, *bus_id, *says;
    } cases[] = {
        { "-DBROKEN", "0000:65:00.0", "does not start: Driver Not Loaded" },
        { "-DOLD", "0000:65:00.0", "lacks nvmlInit_v2" },
        { "", "0000:66:00.0", "does not give access to 0000:66:00.0: Not Found" },
    };
    HsNvml *nvml;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *library = build_fake(&scratch, cases[i].defines);
        cr_expect_eq(hs_nvml_open(library, cases[i].bus_id, &nvml), HS_EUNSUPPORTED);
        cr_expect(strstr(hs_error_message(), cases[i].says), "%s", hs_error_message());
        cr_expect_null(nvml);
    }
    cr_expect_eq(hs_nvml_open("/nonexistent/libnvidia-ml.so", "0000:65:00.0", &nvml), HS_EUNSUPPORTED);
    cr_expect(strstr(hs_error_message(), "is not there"), "%s", hs_error_message());
    hs_nvml_close(NULL);
    scratch_remove(&scratch);
}

/* What a run on a GPU would do, here on the host's memory under a GPU's address; *log is what was said on the way. */
static HsDeviceSample sample_gpu(const Scratch *scratch, const char *library, size_t memory_bytes, char **log)
{
    HsDevice device;
    HsMonitor *monitor;
    HsDeviceSample sample;
    size_t size;
    const HsMonitorOptions options = {
        .device = &device, .every_s = 1e-9, .out_dir = scratch->folder, .nvml_library = library
    };
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    device.memory_bytes = memory_bytes > 0 ? memory_bytes : device.memory_bytes;
    snprintf(device.bus_id, sizeof device.bus_id, "0000:65:00.0");
    cr_assert_not_null(freopen(scratch_path(scratch, "log"), "w", stderr));
    cr_assert_eq(hs_monitor_create(&options, &monitor), HS_OK, "%s", hs_error_message());
    for (int step = 0; step < 3; step++)
        cr_assert(poll(monitor, step, &sample));
    hs_monitor_destroy(monitor);
    fflush(stderr);
    *log = scratch_read(scratch_path(scratch, "log"), &size);
    return sample;
}

Test(monitor, a_gpu_is_asked_through_nvml)
{
    Scratch scratch = scratch_make();
    char *log;
    HsDeviceSample sample =
        sample_gpu(&scratch, build_fake(&scratch, ""), ((size_t)80 << 30) - ((size_t)1 << 30), &log);
    cr_expect_eq(sample.used_bytes, (size_t)30 << 30);
    cr_expect_eq(sample.total_bytes, (size_t)80 << 30);
    cr_expect_eq(sample.temperature_c, 61);
    cr_expect_gt(sample.process_bytes, 0);
    cr_expect_str_eq(log, "");
    free(log);
    char *text = read_lines(&scratch);
    cr_expect(strstr(text, "\"utilisation\":0.37,\"power_w\":123.456,\"temperature_c\":61}\n"), "%s", text);
    free(text);

    /* A slice of the card: its memory is the device's to tell, the rest is still the card's. */
    const size_t slice_bytes = (size_t)20 << 30;
    sample = sample_gpu(&scratch, build_fake(&scratch, ""), slice_bytes, &log);
    cr_expect_eq(sample.total_bytes, slice_bytes);
    cr_expect_neq(sample.used_bytes, (size_t)30 << 30);
    cr_expect_eq(sample.temperature_c, 61);
    free(log);
    scratch_remove(&scratch);
}

Test(monitor, a_gpu_without_answers_is_said_once_and_is_no_error)
{
    Scratch scratch = scratch_make();
    char *log;
    HsDeviceSample sample = sample_gpu(&scratch, "/nonexistent/libnvidia-ml.so", 0, &log);
    cr_expect_gt(sample.total_bytes, 0, "the device reports its memory itself");
    cr_expect(isnan(sample.power_w));
    cr_expect(strstr(log, "no utilisation, power and temperature of the GPU: the NVIDIA driver"), "%s", log);
    cr_expect_eq(strchr(log, '\n'), log + strlen(log) - 1, "one line: %s", log);
    free(log);

    sample = sample_gpu(&scratch, build_fake(&scratch, "power memory"), 0, &log);
    cr_expect_gt(sample.total_bytes, 0);
    cr_expect(isnan(sample.power_w));
    cr_expect_float_eq(sample.utilisation, 0.37, 1e-15);
    cr_expect(strstr(log, "this GPU does not report its memory (Not Supported), power (Not Supported)\n"), "%s", log);
    cr_expect_eq(strchr(log, '\n'), log + strlen(log) - 1, "one line: %s", log);
    free(log);
    scratch_remove(&scratch);
}
