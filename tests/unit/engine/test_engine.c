/* SPDX-License-Identifier: MIT
 *
 * Which device a configuration gets, what it says about it, and what is refused.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/engine/engine.h"

Test(engine, each_name_opens_its_device)
{
    const struct {
        const char *device, *begins;
        int host_accessible, threads;
        bool tf32;
    } cases[] = {
        { "cpu", "cpu (", 1, 2, false },
        { "ref", "ref (", 1, 1, false },
        { "emu", "emu (", 0, 1, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsEngine engine;
        const HsEngineOptions options = { .device = cases[i].device, .threads = 2 };
        cr_assert_eq(hs_engine_init(&engine, &options), HS_OK, "%s", hs_error_message());
        cr_expect_eq(strncmp(engine.why, cases[i].begins, strlen(cases[i].begins)), 0, "%s", engine.why);
        cr_expect_not_null(strstr(engine.why, ": as configured"), "%s", engine.why);
        cr_expect_eq(engine.device.host_accessible, cases[i].host_accessible);
        cr_expect_eq(engine.context.threads, cases[i].threads);
        cr_expect_eq(engine.products.rounds_to[HS_TF32], cases[i].tf32);
        cr_expect_eq(engine.context.device, &engine.device);
        hs_engine_deinit(&engine);
        hs_engine_deinit(&engine); /* twice does no harm */
    }
}

/* With or without a GPU, auto opens something and gives a reason. */
Test(engine, auto_opens_the_best_and_says_why)
{
    HsEngine automatic, gpu;
    const HsEngineOptions options = { .device = "auto" }, wanted = { .device = "cuda" };
    cr_assert_eq(hs_engine_init(&automatic, &options), HS_OK, "%s", hs_error_message());
    if (hs_engine_init(&gpu, &wanted) == HS_OK) {
        cr_expect_eq(strncmp(automatic.why, "cuda:0 (", 8), 0, "%s", automatic.why);
        hs_engine_deinit(&gpu);
    } else {
        const char *reason = strrchr(hs_error_message(), ')');
        cr_assert_not_null(reason);
        cr_expect_eq(strncmp(automatic.why, "cpu (", 5), 0, "%s", automatic.why);
        /* The same reason that an explicit `cuda` is refused with. */
        cr_expect_not_null(strstr(automatic.why, strstr(hs_error_message(), "): ") + 3), "%s", automatic.why);
    }
    hs_engine_deinit(&automatic);
}

Test(engine, what_a_device_cannot_do_is_refused_with_the_mend)
{
    const struct {
        HsEngineOptions options;
        HsStatus status;
        const char *says;
    } cases[] = {
        { { .device = "gpu" }, HS_ECONFIG, "use auto, cpu, cuda, cuda:N, emu or ref" },
        { { .device = "cpu:1" }, HS_ECONFIG, "is not known" },
        { { .device = "cpu", .cuda_graph = HS_GRAPH_ALWAYS }, HS_ECONFIG, "kernels.cuda_graph" },
        { { .device = "ref", .cuda_graph = HS_GRAPH_ALWAYS }, HS_ECONFIG, "set it to false" },
        { { .device = "cpu", .cublaslt = true }, HS_ECONFIG, "set it to native" },
        { { .device = "emu", .cublaslt = true }, HS_ECONFIG, "kernels.matmul" },
        { { .device = "cuda:4096" }, HS_EUNSUPPORTED, "device: cuda:4096" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsEngine engine;
        cr_expect_eq(hs_engine_init(&engine, &cases[i].options), cases[i].status, "case %zu", i);
        cr_expect_not_null(strstr(hs_error_message(), cases[i].says), "%s", hs_error_message());
        hs_engine_deinit(&engine);
    }
}

Test(engine, graphs_and_synchronous_launches_are_honoured)
{
    HsEngine engine;
    const HsEngineOptions recorded = { .device = "emu", .cuda_graph = HS_GRAPH_ALWAYS };
    cr_assert_eq(hs_engine_init(&engine, &recorded), HS_OK, "%s", hs_error_message());
    cr_expect(engine.cuda_graph);
    hs_engine_deinit(&engine);
    /* Where operations run at once there is nothing to wait for. */
    const HsEngineOptions waiting = { .device = "cpu", .sync_launch = true };
    cr_assert_eq(hs_engine_init(&engine, &waiting), HS_OK, "%s", hs_error_message());
    hs_engine_deinit(&engine);
}
