/* SPDX-License-Identifier: MIT
 *
 * What is reported of a step's casts, from records that are written by hand.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/comm.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/codes.h"
#include "runtime/model/coded_figures.h"

enum { LAYERS = 2, PER_NODE = 3 };

static HsDevice device;
static HsContext context;

static void open_device(void)
{
    cr_assert_eq(hs_device_host_init(&device), HS_OK, "%s", hs_error_message());
    context = (HsContext){ .backend = hs_backend_ref(), .device = &device, .threads = 1 };
}

TestSuite(coded_figures, .init = open_device);

/* Two linear layers in codes and, between them, a node that has none. */
typedef struct Made {
    HsNode nodes[3];
    HsScaling report[LAYERS * PER_NODE];
    HsModel model;
} Made;

static void make(Made *made, HsScaleGranularity granularity)
{
    *made = (Made){ .nodes = { { .name = "block.0.up" }, { .name = "block.0.norm" }, { .name = "block.0.down" } } };
    made->nodes[0].attributes.code_policy.granularity = granularity;
    made->nodes[2].attributes.code_policy.granularity = granularity;
    made->nodes[2].attributes.scaling = PER_NODE;
    made->model.nodes = made->nodes;
    made->model.node_count = 3;
    made->model.precision.scaling.forward.granularity = granularity;
    made->model.scalings =
        (HsModelScalings){ .count = LAYERS * PER_NODE, .per_node = PER_NODE, .report = made->report };
}

Test(coded_figures, shares_are_of_all_layers_elements)
{
    Made made;
    HsScalingFigures figures[HS_SCALING_ROLES];
    int count;
    make(&made, HS_SCALE_TENSOR);
    made.report[HS_SCALING_X] =
        (HsScaling){ .amax = 4, .largest = 448, .elements = 1000, .saturated = 10, .zeroed = 20 };
    made.report[PER_NODE + HS_SCALING_X] = (HsScaling){ .amax = 7, .largest = 448, .elements = 3000, .zeroed = 180 };
    made.report[PER_NODE + HS_SCALING_DY] = (HsScaling){ .amax = 0.5f, .largest = 57344, .elements = 8 };
    cr_assert_eq(hs_scaling_figures(&made.model, &context, hs_comm_alone(), figures, &count), HS_OK, "%s",
                 hs_error_message());
    cr_assert_eq(count, 2, "nothing was cast of weights");
    cr_expect_str_eq(figures[0].role, "x");
    cr_expect_eq(figures[0].amax, 7);
    cr_expect_eq(figures[0].lowest, 64);
    cr_expect_eq(figures[0].highest, 112);
    cr_expect_eq(figures[0].saturated, 10.0 / 4000);
    cr_expect_eq(figures[0].zeroed, 200.0 / 4000);
    cr_expect_str_eq(figures[0].layer, "block.0.down");
    cr_expect_eq(figures[0].layer_lost, 180.0 / 3000);
    cr_expect_str_eq(figures[1].role, "dy");
    cr_expect_str_eq(figures[1].layer, "", "nothing was lost");
    cr_expect_eq(figures[1].lowest, 57344 / 0.5);
    made.model.precision.scaling.delayed = true; /* what was kept, once there is a history */
    made.report[PER_NODE + HS_SCALING_DY].recorded = 1;
    made.report[PER_NODE + HS_SCALING_DY].scale = 2;
    cr_assert_eq(hs_scaling_figures(&made.model, &context, hs_comm_alone(), figures, &count), HS_OK);
    cr_expect_eq(figures[1].lowest, 2);
}

Test(coded_figures, what_is_not_finite_stays_visible)
{
    static const float amaxes[] = { INFINITY, NAN };
    for (int i = 0; i < 2; i++) {
        Made made;
        HsScalingFigures figures[HS_SCALING_ROLES];
        int count;
        make(&made, HS_SCALE_MX);
        made.report[HS_SCALING_WEIGHT] = (HsScaling){ .amax = amaxes[i], .scale = 1, .elements = 4 };
        made.report[PER_NODE + HS_SCALING_WEIGHT] = (HsScaling){ .amax = 9, .scale = 1, .elements = 4 };
        cr_assert_eq(hs_scaling_figures(&made.model, &context, hs_comm_alone(), figures, &count), HS_OK, "%s",
                     hs_error_message());
        cr_assert_eq(count, 1);
        cr_expect(isnan(figures[0].amax));
        cr_expect(isnan(figures[0].lowest) && isnan(figures[0].highest), "blocks have no scale of a tensor");
    }
}

Test(coded_figures, models_without_codes_have_none)
{
    Made made;
    HsScalingFigures figures[HS_SCALING_ROLES];
    int count = 7;
    make(&made, HS_SCALE_TENSOR);
    made.model.scalings = (HsModelScalings){ 0 };
    cr_assert_eq(hs_scaling_figures(&made.model, &context, hs_comm_alone(), figures, &count), HS_OK);
    cr_expect_eq(count, 0);
}
