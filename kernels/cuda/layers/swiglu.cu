/* SPDX-License-Identifier: MIT
 *
 * SwiGLU and GEGLU (Shazeer 2020, eq. 5), row n of x = [gate | up], f = silu or gelu (activation.cuh):
 *     y = f(gate) up,     dgate = dy up f'(gate),     dup = dy f(gate)
 *
 * For operations by themselves, and behind products whose kernel has no such epilogue (matmul_hopper_epilogue.cuh has).
 * Bound by memory: 3 values move for each y forward, 5 backward.  A thread takes a pack of y and the two packs of x
 * that belong to it; threads count through all packs of the matrix, so that no row's end leaves lanes idle.
 */
#include "kernels/cuda/toolbox/activation.cuh"
#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/view.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { THREADS = 256 };

/* Pack i of y [N,F] begins at element i * width; the gate that goes with it stands one row's F further for each row
 * before it. */
struct Place {
    int64_t y, gate, up;
};

template <int width> HS_DEVICE Place place_of(uint64_t pack, uint32_t packs_in_row)
{
    const uint64_t row = pack / packs_in_row;
    const int64_t columns = (int64_t)packs_in_row * width, y = (int64_t)pack * width;
    const int64_t gate = y + (int64_t)row * columns;
    return { y, gate, gate + columns };
}

template <HsActivation function, typename X, typename Y> struct SwigluForward {
    static constexpr HsActivation f = function;
    X x;
    Y y;
    int64_t packs;
    uint32_t packs_in_row;
    AmaxOut amax; /* of y */
};

template <int width, typename Task> __global__ void __launch_bounds__(THREADS) swiglu_forward_kernel(const Task task)
{
    begin_after_kernel_before();
    const int64_t pack = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t most = 0;
    if (pack < task.packs) {
        const Place place = place_of<width>((uint64_t)pack, task.packs_in_row);
        float gate[width], up[width];
        task.x.load(place.gate, gate);
        task.x.load(place.up, up);
#pragma unroll
        for (int i = 0; i < width; i++)
            up[i] *= activate<Task::f>(gate[i]);
        task.y.store(place.y, up);
        most = largest_of(up, most);
    }
    leave_amax(task.amax, most);
}

template <HsActivation function, typename Gradient, typename X> struct SwigluBackward {
    static constexpr HsActivation f = function;
    Gradient dy;
    X x, dx;
    int64_t packs;
    uint32_t packs_in_row;
    AmaxOut amax; /* of dx */
};

template <int width, typename Task> __global__ void __launch_bounds__(THREADS) swiglu_backward_kernel(const Task task)
{
    begin_after_kernel_before();
    const int64_t pack = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t most = 0;
    if (pack < task.packs) {
        const Place place = place_of<width>((uint64_t)pack, task.packs_in_row);
        float dy[width], gate[width], up[width];
        task.dy.load(place.y, dy);
        task.x.load(place.gate, gate);
        task.x.load(place.up, up);
#pragma unroll
        for (int i = 0; i < width; i++) {
            const Activated activated = activate_with_slope<Task::f>(gate[i]);
            gate[i] = dy[i] * activated.slope * up[i]; /* in the order of products with a gate in their epilogue */
            up[i] = dy[i] * activated.value;
        }
        task.dx.store(place.gate, gate);
        task.dx.store(place.up, up);
        most = largest_of(up, largest_of(gate, most));
    }
    leave_amax(task.amax, most);
}

template <HsActivation f, int width, typename X, typename Y>
static HsStatus launch_forward(const HsContext *context, const HsUnaryArgs *args, X x, Y y)
{
    using Task = SwigluForward<f, X, Y>;
    const Task task = { x, y, hs_tensor_count(&args->y) / width, (uint32_t)(args->y.shape[1] / width),
                        amax_out(args->y) };
    return hs_launch_after(context, HS_KERNEL((swiglu_forward_kernel<width, Task>)), blocks_for(task.packs, THREADS),
                           THREADS, 0, task);
}

template <HsActivation f, int width, typename Gradient, typename X>
static HsStatus launch_backward(const HsContext *context, const HsUnaryBackwardArgs *args, Gradient dy, X x, X dx)
{
    using Task = SwigluBackward<f, Gradient, X>;
    const Task task = {
        dy, x, dx, hs_tensor_count(&args->dy) / width, (uint32_t)(args->dy.shape[1] / width), amax_out(args->dx)
    };
    return hs_launch_after(context, HS_KERNEL((swiglu_backward_kernel<width, Task>)), blocks_for(task.packs, THREADS),
                           THREADS, 0, task);
}

/* The precision modes give every operand one dtype. */
template <HsActivation f> static HsStatus run_forward(const HsContext *context, const HsUnaryArgs *args)
{
    if (args->x.dtype != args->y.dtype || !packs_fit(args->y.shape[1], args->x, args->y))
        return launch_forward<f, 1>(context, args, any_view_of(args->x), any_view_of(args->y));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_forward<f, access_width<T>>(context, args, view_of<T>(args->x), view_of<T>(args->y));
    });
}

template <HsActivation f> static HsStatus run_backward(const HsContext *context, const HsUnaryBackwardArgs *args)
{
    const bool one_dtype = args->dy.dtype == args->x.dtype && args->x.dtype == args->dx.dtype;
    if (!one_dtype || !packs_fit(args->dy.shape[1], args->dy, args->x, args->dx))
        return launch_backward<f, 1>(context, args, any_view_of(args->dy), any_view_of(args->x), any_view_of(args->dx));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_backward<f, access_width<T>>(context, args, view_of<T>(args->dy), view_of<T>(args->x),
                                                   view_of<T>(args->dx));
    });
}

HsStatus op::swiglu_forward(HsContext *context, const HsUnaryArgs *args)
{
    return args->gate == HS_ACTIVATION_SILU ? run_forward<HS_ACTIVATION_SILU>(context, args)
                                            : run_forward<HS_ACTIVATION_GELU>(context, args);
}

HsStatus op::swiglu_backward(HsContext *context, const HsUnaryBackwardArgs *args)
{
    return args->gate == HS_ACTIVATION_SILU ? run_backward<HS_ACTIVATION_SILU>(context, args)
                                            : run_backward<HS_ACTIVATION_GELU>(context, args);
}

} // namespace HS_CUDA_NAMESPACE
