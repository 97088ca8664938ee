/* SPDX-License-Identifier: MIT
 *
 * Codes of less than 16 bits (kernels/ops/codes.h): casts, and their scales from step to step.
 *
 * Where a scale follows from the whole tensor and what made it has not left its largest magnitude, a first kernel leaves
 * that of each of its blocks; every block of the second reads them all, which costs less than a kernel between the two.
 * That one takes square tiles: a tile
 * is read once, and codes of it are written along its rows and, for the transpose, along its columns, 16 at a time by
 * a thread.  Tiles are as wide as the widest block of scales, so that none needs another's numbers.
 *
 * Bound by memory: 2 bytes read and 1 or 2 written for an element, 4 read where there are two kernels.  Maxima and counts
 * are integers: their order does not matter.
 */
#include "kernels/cuda/toolbox/cast.cuh"
#include "kernels/cuda/product/codes.cuh"
#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/ptx_settle.cuh"
#include "kernels/cuda/toolbox/rng.cuh"
#include "kernels/cuda/toolbox/view.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { THREADS = 256, RUN = HS_CODES_RUN, AMAX_BLOCKS = 512, AMAX_PACKS = 4, LANES_READ = 8 };

/* --- largest magnitudes --- */

/* amax: of each block, or the largest of all and of what was there. */
template <int width, typename X>
__global__ void __launch_bounds__(THREADS) amax_kernel(const X x, int64_t count, uint32_t *amax, bool together)
{
    HS_SHARED(uint32_t, scratch, WARP_SIZE);
    begin_after_kernel_before();
    uint32_t most = 0;
    const int64_t stride = (int64_t)gridDim.x * THREADS * width;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * width;
#pragma unroll AMAX_PACKS
    for (; i + width <= count; i += stride) {
        float values[width];
        x.load(i, values);
#pragma unroll
        for (int j = 0; j < width; j++)
            most = larger(most, magnitude_of(values[j]));
    }
    const int64_t rest = count / width * width + threadIdx.x;
    if (width > 1 && blockIdx.x == 0 && rest < count) {
        float one[1];
        x.load(rest, one);
        most = larger(most, magnitude_of(one[0]));
    }
    most = block_reduce<Maximum>(most, 0u, scratch);
    if (threadIdx.x != 0)
        return;
    if (together)
        atomicMax(amax, most);
    else
        amax[blockIdx.x] = most;
}

/* The same of runs of RUN rows of a column, rotated; what is left behind the last run as it is. */
__global__ void __launch_bounds__(THREADS)
    rotated_amax_kernel(const AnyView x, int64_t rows, int64_t columns, uint32_t *amax)
{
    HS_SHARED(uint32_t, scratch, WARP_SIZE);
    begin_after_kernel_before();
    uint32_t most = 0;
    const int64_t runs = (rows + RUN - 1) / RUN;
    for (int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x; item < runs * columns;
         item += (int64_t)gridDim.x * THREADS) {
        const int64_t row = item / columns * RUN, column = item % columns;
        float values[RUN];
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            float one[1] = { 0.0f };
            if (row + i < rows)
                x.load((row + i) * columns + column, one);
            values[i] = one[0];
        }
        if (row + RUN <= rows)
            hs_code_rotate(values);
#pragma unroll
        for (int i = 0; i < RUN; i++)
            most = larger(most, magnitude_of(values[i]));
    }
    most = block_reduce<Maximum>(most, 0u, scratch);
    if (threadIdx.x == 0)
        amax[blockIdx.x] = most;
}

/* --- casts --- */

/* One direction's codes; data NULL: not wanted. */
struct CodesOut {
    unsigned char *data, *block_scales;
    HsScaling *scaling;
    const uint32_t *amax; /* [amax_count], for a scale from the tensor itself */
    int amax_count;
    int64_t row_bytes, blocks;
};

template <typename X> struct QuantizeParameters {
    X x;
    int64_t rows, columns;
    CodesOut along, across;
    HsScaleSource source;
    bool squares, power_of_two, records, rotates, vector;
    HsRng rng;
};

/* What a block of threads knows of one direction's scale. */
struct CastScale {
    float scale, inverse;
};

template <HsDtype format, HsScaleGranularity granularity>
HS_DEVICE CastScale own_scale(uint32_t amax, bool power_of_two)
{
    CastScale own = { 1.0f, 1.0f };
    if constexpr (granularity == HS_SCALE_TENSOR) {
        own.scale = hs_code_tensor_scale(format, amax, power_of_two);
        own.inverse = 1.0f / own.scale;
    } else if constexpr (granularity == HS_SCALE_NV) {
        own.inverse = hs_code_nv_inverse(amax);
        own.scale = 1.0f / own.inverse;
    }
    return own;
}

/* Every thread calls; the first block leaves it for the products. */
template <HsDtype format, HsScaleGranularity granularity>
HS_DEVICE CastScale find_scale(const CodesOut &out, HsScaleSource source, bool power_of_two, uint32_t *scratch)
{
    if (source == HS_SCALE_LATEST)
        return CastScale{ out.scaling->scale, out.scaling->inverse };
    CastScale found = { 1.0f, 1.0f };
    if (source == HS_SCALE_KEPT) {
        found.scale = out.scaling->kept;
        found.inverse = 1.0f / found.scale;
    } else if (granularity == HS_SCALE_TENSOR || granularity == HS_SCALE_NV) {
        uint32_t most = 0;
        for (int i = (int)threadIdx.x; i < out.amax_count; i += THREADS)
            most = larger(most, out.amax[i]);
        most = block_reduce<Maximum>(most, 0u, scratch);
        found = own_scale<format, granularity>(most, power_of_two);
        if (most >= 0x7F800000u)
            found.inverse = hs_code_float(0x7FC00000u);
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
        out.scaling->scale = found.scale;
        out.scaling->inverse = found.inverse;
    }
    return found;
}

/* Codes of a run, a byte each, four in a word, the first in its lowest: in registers. */
struct RunCodes {
    uint32_t word[RUN / 4];
};

HS_DEVICE uint8_t code_at(const RunCodes &codes, int i)
{
    return (uint8_t)(codes.word[i / 4] >> (8 * (i % 4)));
}

struct RunPlace {
    int64_t row, k; /* of the direction's codes */
    int count;      /* elements that there are: up to RUN, 0 outside */
};

template <HsDtype format> HS_DEVICE void store_run(const CodesOut &out, const RunPlace &place, const RunCodes &codes)
{
    if constexpr (format == HS_E2M1) {
        unsigned char *const to = out.data + place.row * out.row_bytes + place.k / 2;
#pragma unroll
        for (int i = 0; i < RUN; i += 2)
            if (i < place.count)
                to[i / 2] = (unsigned char)(code_at(codes, i) | (i + 1 < place.count ? code_at(codes, i + 1) << 4 : 0));
    } else {
        unsigned char *const to = out.data + place.row * out.row_bytes + place.k;
        if (place.count == RUN && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
            *reinterpret_cast<uint4 *>(to) = make_uint4(codes.word[0], codes.word[1], codes.word[2], codes.word[3]);
            return;
        }
#pragma unroll
        for (int i = 0; i < RUN; i++)
            if (i < place.count)
                to[i] = code_at(codes, i);
    }
}

/* Of a run's elements in the tensor: x[0], and the distance from one to the next. */
struct RunElements {
    int64_t first, stride;
};

template <HsDtype format>
HS_DEVICE uint32_t stochastic_pair(float low, float high, const HsRng &rng, const RunElements &elements, int i)
{
    uint32_t pair = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint64_t element = (uint64_t)(elements.first + (i + j) * elements.stride);
        const uint32_t random = rng_word(rng_draw(rng, element / 4), (int)(element % 4));
        pair |= (uint32_t)hs_code_encode_stochastic(format, j == 0 ? low : high, random) << (8 * j);
    }
    return pair;
}

/* Outside the tensor x is 0, which counts as nothing. */
template <HsDtype format, HsScaleGranularity granularity, bool stochastic>
HS_DEVICE RunCodes cast_run(const float (&x)[RUN], float factor, const HsRng &rng, const RunElements &elements,
                            CastCounts &counts)
{
    RunCodes codes = {};
#pragma unroll
    for (int i = 0; i < RUN; i += 2) {
        float low = hs_code_scaled(granularity, x[i], factor), high = hs_code_scaled(granularity, x[i + 1], factor);
        if (stochastic) { /* one after the other: all random numbers at once are too many registers */
            ptx::settle(low);
            ptx::settle(high);
        }
        const uint32_t pair =
            stochastic ? stochastic_pair<format>(low, high, rng, elements, i) : nearest_pair<format>(low, high);
        codes.word[i / 4] |= pair << (8 * (i % 4));
        count_pair<format>(x + i, low, high, pair, counts);
    }
    return codes;
}

/* The scale of a block with this largest magnitude, and what its elements are multiplied (nv: divided) by. */
template <HsDtype format, HsScaleGranularity granularity>
HS_DEVICE float block_factor(uint32_t amax, const CastScale &scale, uint8_t *block)
{
    if constexpr (granularity == HS_SCALE_TENSOR)
        return scale.scale;
    if constexpr (granularity == HS_SCALE_NV) {
        *block = hs_code_nv_block(amax, scale.inverse);
        return hs_code_nv_worth(*block, scale.inverse);
    }
    *block = (uint8_t)hs_code_block_exponent(format, amax);
    return hs_code_inverse_power(*block);
}

/* A tile in shared memory: [side][side + 1] f32, so that columns are read without conflicts; and of squares of blocks their
 * largest magnitudes. */
template <int side> struct CastTile {
    enum { runs = side / RUN, items = side * runs, pitch = side + 1, squares = runs * runs };
    enum { shared_bytes = (side * pitch + squares) * 4 };
    float *x;
    uint32_t *square;
};

template <int side, typename X>
HS_DEVICE uint32_t load_cast_tile(const QuantizeParameters<X> &parameters, int64_t top, int64_t left,
                                  CastTile<side> tile)
{
    uint32_t most = 0;
    for (int i = (int)threadIdx.x * LANES_READ; i < side * side; i += THREADS * LANES_READ) {
        const int r = i / side, c = i % side;
        const int64_t row = top + r, column = left + c;
        float values[LANES_READ] = {};
        if (row < parameters.rows && parameters.vector && column < parameters.columns) {
            if constexpr (!std::is_same<X, AnyView>::value)
                parameters.x.load(row * parameters.columns + column, values);
        } else if (row < parameters.rows) {
            for (int j = 0; j < LANES_READ && column + j < parameters.columns; j++) {
                float one[1];
                parameters.x.load(row * parameters.columns + column + j, one);
                values[j] = one[0];
            }
        }
#pragma unroll
        for (int j = 0; j < LANES_READ; j++) {
            tile.x[r * tile.pitch + c + j] = values[j];
            most = larger(most, magnitude_of(values[j]));
        }
    }
    return most;
}

HS_DEVICE int run_count(int64_t rows, int64_t row, int64_t depth, int64_t k)
{
    if (row >= rows || k >= depth)
        return 0;
    return depth - k < RUN ? (int)(depth - k) : (int)RUN;
}

/* Largest magnitude of the block that a run is part of: of the neighbouring lanes that have the other runs. */
template <HsScaleGranularity granularity> HS_DEVICE uint32_t block_amax(const float (&x)[RUN])
{
    constexpr int lanes = granularity == HS_SCALE_BLOCK ? HS_SCALE_BLOCK_ELEMENTS / RUN
                          : granularity == HS_SCALE_MX  ? HS_SCALE_MX_ELEMENTS / RUN
                                                        : 1;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < RUN; i++)
        most = larger(most, magnitude_of(x[i]));
#pragma unroll
    for (int offset = 1; offset < lanes; offset *= 2)
        most = larger(most, __shfl_xor_sync(FULL_WARP, most, offset));
    return most;
}

/* All codes of one direction of a tile.  Consecutive threads have consecutive runs of a row of codes. */
template <HsDtype format, HsScaleGranularity granularity, int side, bool stochastic, bool turned, typename X>
HS_DEVICE void cast_side(const QuantizeParameters<X> &parameters, const CodesOut &out, const CastScale &scale,
                         int64_t top, int64_t left, CastTile<side> tile, CastCounts &counts)
{
    constexpr int block = granularity == HS_SCALE_BLOCK ? HS_SCALE_BLOCK_ELEMENTS
                          : granularity == HS_SCALE_MX  ? HS_SCALE_MX_ELEMENTS
                                                        : HS_SCALE_NV_ELEMENTS;
    const int64_t rows = turned ? parameters.columns : parameters.rows;
    const int64_t depth = turned ? parameters.rows : parameters.columns;
#pragma unroll 1
    for (int item = (int)threadIdx.x; item < tile.items; item += THREADS) {
        const int line = item / tile.runs, first = item % tile.runs * RUN;
        float x[RUN];
#pragma unroll
        for (int i = 0; i < RUN; i++)
            x[i] = turned ? tile.x[(first + i) * tile.pitch + line] : tile.x[line * tile.pitch + first + i];
        RunPlace place = { (turned ? left : top) + line, (turned ? top : left) + first, 0 };
        place.count = run_count(rows, place.row, depth, place.k);
        if (turned && parameters.rotates && place.count == RUN)
            hs_code_rotate(x);
        uint8_t block_scale = 0;
        uint32_t amax = 0;
        if constexpr (granularity != HS_SCALE_TENSOR)
            amax = block_amax<granularity>(x);
        if (granularity != HS_SCALE_TENSOR && parameters.squares)
            amax = tile.square[turned ? first / block * (side / block) + line / block
                                      : line / block * (side / block) + first / block];
        const float factor = block_factor<format, granularity>(amax, scale, &block_scale);
        const int64_t row = parameters.rng.row_offset + (turned ? place.k : place.row);
        const RunElements elements = { row * parameters.columns + (turned ? place.row : place.k),
                                       turned ? parameters.columns : 1 };
        const RunCodes codes = cast_run<format, granularity, stochastic>(x, factor, parameters.rng, elements, counts);
        store_run<format>(out, place, codes);
        if (granularity != HS_SCALE_TENSOR && place.count > 0 && first % block == 0)
            out.block_scales[place.row * out.blocks + place.k / block] = block_scale;
    }
}

/* Largest magnitudes of a tile's squares. */
template <HsScaleGranularity granularity, int side> HS_DEVICE void find_squares(CastTile<side> tile)
{
    constexpr int block = granularity == HS_SCALE_BLOCK ? HS_SCALE_BLOCK_ELEMENTS
                          : granularity == HS_SCALE_MX  ? HS_SCALE_MX_ELEMENTS
                                                        : HS_SCALE_NV_ELEMENTS;
    for (int i = (int)threadIdx.x; i < tile.squares; i += THREADS)
        tile.square[i] = 0;
    __syncthreads();
    for (int item = (int)threadIdx.x; item < tile.items; item += THREADS) {
        const int line = item / tile.runs, first = item % tile.runs * RUN;
        uint32_t most = 0;
        for (int i = 0; i < RUN; i++)
            most = larger(most, magnitude_of(tile.x[line * tile.pitch + first + i]));
        atomicMax(&tile.square[line / block * (side / block) + first / block], most);
    }
    __syncthreads();
}

HS_DEVICE void record(HsScaling *scaling, uint32_t amax, const CastCounts &counts, int64_t elements, uint32_t *scratch)
{
    amax = block_reduce<Maximum>(amax, 0u, scratch);
    const uint32_t saturated = block_reduce<Sum>(counts.saturated, 0u, scratch);
    const uint32_t zeroed = block_reduce<Sum>(counts.zeroed, 0u, scratch);
    if (threadIdx.x != 0)
        return;
    atomicMax(reinterpret_cast<unsigned *>(&scaling->amax), amax);
    add_elements(scaling, elements);
    add_counts(scaling, CastCounts{ saturated, zeroed });
}

template <HsDtype format, HsScaleGranularity granularity, int side, bool stochastic, typename X>
__global__ void __launch_bounds__(THREADS, stochastic ? 2 : 4) quantize_kernel(const QuantizeParameters<X> parameters)
{
    HS_DYNAMIC_SHARED(float, shared);
    HS_SHARED(uint32_t, scratch, WARP_SIZE);
    begin_after_kernel_before();
    CastTile<side> tile;
    tile.x = shared;
    tile.square = reinterpret_cast<uint32_t *>(shared + side * tile.pitch);
    const int64_t top = (int64_t)blockIdx.y * side, left = (int64_t)blockIdx.x * side;
    const bool along = parameters.along.data != nullptr, across = parameters.across.data != nullptr;
    const CodesOut &one = along ? parameters.along : parameters.across;
    const uint32_t amax = load_cast_tile<side>(parameters, top, left, tile);
    const CastScale scale = find_scale<format, granularity>(one, parameters.source, parameters.power_of_two, scratch);
    CastScale across_scale = scale;
    if (along && across && parameters.rotates)
        across_scale =
            find_scale<format, granularity>(parameters.across, parameters.source, parameters.power_of_two, scratch);
    __syncthreads();
    if (granularity != HS_SCALE_TENSOR && parameters.squares)
        find_squares<granularity>(tile);
    CastCounts counts = {}, of_across = {};
    if (along)
        cast_side<format, granularity, side, stochastic, false>(parameters, parameters.along, scale, top, left, tile,
                                                                counts);
    if (across)
        cast_side<format, granularity, side, stochastic, true>(parameters, parameters.across, across_scale, top, left,
                                                               tile, of_across);
    if (!along)
        counts = of_across;
    if (!parameters.records)
        return;
    const int64_t rows = parameters.rows - top < side ? parameters.rows - top : side;
    const int64_t columns = parameters.columns - left < side ? parameters.columns - left : side;
    record(one.scaling, amax, counts, rows * columns, scratch);
}

/* --- launches --- */

unsigned amax_blocks(int64_t count)
{
    const int64_t wanted = (count + THREADS * LANES_READ * AMAX_PACKS - 1) / (THREADS * LANES_READ * AMAX_PACKS);
    return (unsigned)(wanted < AMAX_BLOCKS ? wanted : (int64_t)AMAX_BLOCKS);
}

bool turns_apart(const HsQuantizeArgs *args)
{
    return args->rotates && hs_codes_present(&args->across);
}

/* Whether x, as it is or rotated, is read for its largest magnitude. */
bool reads_amax(const HsQuantizeArgs *args)
{
    const HsCodes &one = hs_codes_present(&args->along) ? args->along : args->across;
    const bool as_it_is = hs_codes_present(&args->along) || !args->rotates;
    return args->source == HS_SCALE_OWN && args->x.amax == NULL && as_it_is && hs_scale_is_of_tensor(one.granularity);
}

/* Stochastic rounding that no recipe has. */
bool is_rare(const HsQuantizeArgs *args)
{
    const HsCodes &one = hs_codes_present(&args->along) ? args->along : args->across;
    return args->stochastic && one.granularity != HS_SCALE_NV;
}

bool reads_rotated(const HsQuantizeArgs *args)
{
    return turns_apart(args) && args->source == HS_SCALE_OWN;
}

CodesOut codes_out(const HsCodes &codes, const uint32_t *amax, unsigned amax_count)
{
    if (!hs_codes_present(&codes))
        return CodesOut{};
    return CodesOut{ codes.data,      codes.block_scales,         codes.scaling,          amax,
                     (int)amax_count, hs_codes_row_bytes(&codes), hs_codes_blocks(&codes) };
}

HsStatus launch_amax_pass(const HsContext *context, const HsTensor &x, uint32_t *amax, bool together)
{
    const int64_t count = hs_tensor_count(&x);
    const unsigned blocks = amax_blocks(count);
    if (!aligned_to(x.data, 16))
        return hs_launch_after(context, HS_KERNEL((amax_kernel<1, AnyView>)), dim3(blocks), dim3(THREADS), 0,
                               any_view_of(x), count, amax, together);
    return dispatch_act(x.dtype, [&](auto type) {
        using T = decltype(type);
        return hs_launch_after(context, HS_KERNEL((amax_kernel<LANES_READ, View<T>>)), dim3(blocks), dim3(THREADS), 0,
                               view_of<T>(x), count, amax, together);
    });
}

template <HsDtype format, HsScaleGranularity granularity, typename X>
HsStatus launch_cast(HsContext *context, const QuantizeParameters<X> &parameters, bool stochastic)
{
    constexpr int side = granularity == HS_SCALE_BLOCK ? 128 : 64;
    const dim3 grid(blocks_for(parameters.columns, side), blocks_for(parameters.rows, side));
    const size_t shared = (size_t)CastTile<side>::shared_bytes;
    /* Only nvfp4 rounds so in training; other formats by one kernel for all dtypes (is_rare). */
    if constexpr (granularity == HS_SCALE_NV || std::is_same<X, AnyView>::value) {
        if (stochastic)
            return hs_launch_after(context, HS_KERNEL((quantize_kernel<format, granularity, side, true, X>)), grid,
                                   dim3(THREADS), shared, parameters);
    }
    return hs_launch_after(context, HS_KERNEL((quantize_kernel<format, granularity, side, false, X>)), grid,
                           dim3(THREADS), shared, parameters);
}

template <typename X>
HsStatus dispatch_cast(HsContext *context, const HsCodes &one, const QuantizeParameters<X> &parameters, bool stochastic)
{
    const bool e4m3 = one.format == HS_E4M3;
    if (one.granularity == HS_SCALE_NV)
        return launch_cast<HS_E2M1, HS_SCALE_NV>(context, parameters, stochastic);
    if (one.granularity == HS_SCALE_TENSOR)
        return e4m3 ? launch_cast<HS_E4M3, HS_SCALE_TENSOR>(context, parameters, stochastic)
                    : launch_cast<HS_E5M2, HS_SCALE_TENSOR>(context, parameters, stochastic);
    if (one.granularity == HS_SCALE_BLOCK)
        return e4m3 ? launch_cast<HS_E4M3, HS_SCALE_BLOCK>(context, parameters, stochastic)
                    : launch_cast<HS_E5M2, HS_SCALE_BLOCK>(context, parameters, stochastic);
    return e4m3 ? launch_cast<HS_E4M3, HS_SCALE_MX>(context, parameters, stochastic)
                : launch_cast<HS_E5M2, HS_SCALE_MX>(context, parameters, stochastic);
}

template <typename X>
HsStatus run_cast(HsContext *context, const HsQuantizeArgs *args, X x, bool vector, const uint32_t *amax)
{
    const unsigned count = amax_blocks(hs_tensor_count(&args->x));
    const bool found = args->x.amax != NULL, apart = turns_apart(args);
    const uint32_t *const own = found ? reinterpret_cast<const uint32_t *>(args->x.amax) : amax;
    const unsigned own_count = found ? 1 : count;
    QuantizeParameters<X> parameters = {};
    parameters.x = x;
    parameters.rows = args->x.shape[0];
    parameters.columns = args->x.shape[1];
    parameters.along = codes_out(args->along, own, own_count);
    parameters.across = codes_out(args->across, apart ? amax + AMAX_BLOCKS : own, apart ? count : own_count);
    parameters.source = args->source;
    parameters.squares = args->squares;
    parameters.power_of_two = args->power_of_two;
    parameters.records = args->records;
    parameters.rotates = args->rotates;
    parameters.vector = vector;
    parameters.rng = args->rng;
    return dispatch_cast(context, hs_codes_present(&args->along) ? args->along : args->across, parameters,
                         args->stochastic);
}

} // namespace

HsStatus launch_amax(const HsContext *context, const HsTensor &tensor)
{
    uint32_t *const amax = reinterpret_cast<uint32_t *>(tensor.amax);
    return amax ? launch_amax_pass(context, tensor, amax, true) : HS_OK;
}

size_t workspace::quantize(const HsContext *, const HsQuantizeArgs *args)
{
    return reads_amax(args) || reads_rotated(args) ? 2 * AMAX_BLOCKS * sizeof(uint32_t) : 0;
}

HsStatus op::quantize(HsContext *context, const HsQuantizeArgs *args)
{
    uint32_t *const amax = static_cast<uint32_t *>(context->workspace);
    const HsTensor &x = args->x;
    if (reads_amax(args))
        HS_TRY(launch_amax_pass(context, x, amax, false));
    if (reads_rotated(args))
        HS_TRY(hs_launch_after(context, HS_KERNEL(rotated_amax_kernel), dim3(amax_blocks(hs_tensor_count(&x))),
                               dim3(THREADS), 0, any_view_of(x), x.shape[0], x.shape[1], amax + AMAX_BLOCKS));
    if (!aligned_to(x.data, 16) || x.shape[1] % LANES_READ != 0 || is_rare(args))
        return run_cast(context, args, any_view_of(x), false, amax);
    return dispatch_act(x.dtype, [&](auto type) {
        using T = decltype(type);
        return run_cast(context, args, view_of<T>(x), true, amax);
    });
}

/* --- scales from step to step --- */

namespace
{

constexpr int GATHER_THREADS = 128;

__global__ void __launch_bounds__(GATHER_THREADS)
    gather_maxima_kernel(const HsScaling *scalings, float *maxima, int64_t count)
{
    begin_after_kernel_before();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        maxima[i] = hs_code_maximum(scalings + i);
}

/* A warp a scaling.  maxima: nullptr for those of this process alone. */
__global__ void __launch_bounds__(WARP_SIZE)
    roll_scales_kernel(HsScaling *scalings, HsScaling *report, const float *maxima, float *history, int64_t length,
                       bool most_recent, float headroom)
{
    begin_after_kernel_before();
    HsScaling *const scaling = scalings + blockIdx.x;
    float *const ring = history != nullptr ? history + blockIdx.x * length : nullptr;
    if (threadIdx.x == 0)
        hs_code_roll_in(scaling, report != nullptr ? report + blockIdx.x : nullptr,
                        maxima != nullptr ? maxima[blockIdx.x] : scaling->amax, ring, length);
    __syncwarp();
    const int64_t filled = hs_code_filled(scaling, length);
    float amax = 0.0f;
    if (most_recent && filled > 0)
        amax = ring[(scaling->recorded - 1) % (uint64_t)length];
    for (int64_t i = threadIdx.x; i < filled && !most_recent; i += WARP_SIZE)
        amax = ring[i] > amax ? ring[i] : amax;
    amax = warp_reduce<Maximum>(amax);
    if (threadIdx.x == 0)
        hs_code_keep(scaling, amax, headroom);
}

} // namespace

HsStatus op::roll_scales(HsContext *context, const HsRollScalesArgs *args)
{
    const bool remembers = hs_tensor_present(&args->history);
    float *const maxima = hs_tensor_present(&args->maxima) ? data_of<float>(args->maxima) : nullptr;
    if (args->count == 0)
        return HS_OK;
    if (args->gathers)
        return hs_launch_after(context, HS_KERNEL(gather_maxima_kernel),
                               dim3((unsigned)((args->count + GATHER_THREADS - 1) / GATHER_THREADS)),
                               dim3(GATHER_THREADS), 0, (const HsScaling *)args->scalings, maxima, args->count);
    return hs_launch_after(context, HS_KERNEL(roll_scales_kernel), dim3((unsigned)args->count), dim3(WARP_SIZE), 0,
                           args->scalings, args->report, (const float *)maxima,
                           remembers ? data_of<float>(args->history) : nullptr,
                           remembers ? args->history.shape[1] : (int64_t)0, args->most_recent, exp2f(-args->margin));
}

/* --- reading them --- */

namespace
{

template <HsDtype format> __global__ void __launch_bounds__(THREADS) decode_codes_kernel(const HsCodes codes, Bf16 *out)
{
    begin_after_kernel_before();
    const int64_t row_bytes = hs_codes_row_bytes(&codes), blocks = hs_codes_blocks(&codes);
    const int size = hs_scale_block(codes.granularity);
    const int64_t runs = (codes.depth + RUN - 1) / RUN;
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = item / runs, k = item % runs * RUN;
    if (row >= codes.rows)
        return;
    const unsigned char *const line = codes.data + row * row_bytes;
    const float worth =
        size > 0 ? hs_code_block_worth(codes.granularity, codes.block_scales[row * blocks + k / size]) : 1.0f;
    const int count = codes.depth - k < RUN ? (int)(codes.depth - k) : (int)RUN;
    for (int i = 0; i < count; i++) {
        uint8_t code;
        if constexpr (format == HS_E2M1)
            code = (k + i) % 2 == 0 ? line[(k + i) / 2] & 15 : line[(k + i) / 2] >> 4;
        else
            code = line[k + i];
        round_to(out[row * codes.depth + k + i], hs_code_decode(format, code) * worth);
    }
}

} // namespace

HsStatus launch_decode_codes(HsContext *context, const HsCodes &codes, void *out)
{
    const int64_t runs = codes.rows * ((codes.depth + RUN - 1) / RUN);
    const dim3 grid(blocks_for(runs, THREADS));
    Bf16 *const to = static_cast<Bf16 *>(out);
    if (codes.format == HS_E4M3)
        return hs_launch_after(context, HS_KERNEL(decode_codes_kernel<HS_E4M3>), grid, dim3(THREADS), 0, codes, to);
    if (codes.format == HS_E5M2)
        return hs_launch_after(context, HS_KERNEL(decode_codes_kernel<HS_E5M2>), grid, dim3(THREADS), 0, codes, to);
    return hs_launch_after(context, HS_KERNEL(decode_codes_kernel<HS_E2M1>), grid, dim3(THREADS), 0, codes, to);
}

} // namespace HS_CUDA_NAMESPACE
