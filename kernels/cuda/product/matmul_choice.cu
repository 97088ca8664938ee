/* SPDX-License-Identifier: MIT
 *
 * Which kernel, which tile, and in how many slices of k: as the device's table of measured choices says
 * (matmul_table.cuh), else the pair that the model of the GPU finds fastest (matmul_model.cuh); unless one is
 * prescribed (matmul_choice.cuh).
 *
 * A product with too few tiles of c to fill the multiprocessors (weight gradients: a small c, a long k) is cut along k.
 * Where c is the plain sum in f32, Hopper's clusters share tiles and add their parts to c in turn
 * (matmul_hopper_work.cuh); else each slice's sums go to the workspace, and a second kernel adds them in order.
 *
 * Codes that tensor cores multiply as they are can also be decoded to bf16 and multiplied by the kernels of 16 bits: these
 * are weighed and measured like all others.
 */
#include "kernels/cuda/product/products.cuh"

#include <stdio.h>
#include <string.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/matmul_fp8.cuh"

namespace HS_CUDA_NAMESPACE
{

MatmulShape matmul_shape(const HsProductKey &key, const DeviceLimits &limits)
{
    MatmulShape shape;
    shape.key = key;
    shape.family = key.format == HS_PRODUCT_F32    ? MATMUL_F32
                   : key.format == HS_PRODUCT_TF32 ? MATMUL_TF32
                                                   : MATMUL_16BIT;
    shape.m = key.m;
    shape.n = key.n;
    shape.k = key.k;
    const int64_t element = shape.family == MATMUL_16BIT ? 2 : 4;
    const int64_t row_a = key.transpose_a ? key.m : key.k, row_b = key.transpose_b ? key.k : key.n;
    const bool aligned = row_a * element % 16 == 0 && row_b * element % 16 == 0;
    shape.any_layout = (key.transpose_a && key.transpose_b) || !aligned;
    shape.hopper = shape.family == MATMUL_16BIT && aligned && limits.hopper_products;
    shape.joint = shape.hopper && key.n % 4 == 0; /* if its c is a plain sum in f32 */
    shape.quantized = shape.promoted = false;
    shape.work = MatmulWork{ HS_EPILOGUE_NONE, false, 0, (int)element };
    const bool along = !key.transpose_a && key.transpose_b;
    if (key.format < HS_PRODUCT_FP8 || !has_fp8_products(limits) || (!along && limits.hopper_products))
        return shape;
    shape.family = MATMUL_FP8;
    shape.k /= 2;
    shape.any_layout = false;
    shape.hopper = limits.hopper_products;
    shape.promoted = key.format != HS_PRODUCT_FP8;
    return shape;
}

MatmulShape decoded_shape(const MatmulShape &shape)
{
    MatmulShape decoded = shape;
    decoded.family = MATMUL_16BIT;
    decoded.k = shape.key.k;
    decoded.promoted = false;
    decoded.work = MatmulWork{ HS_EPILOGUE_NONE, false, 0, (int)sizeof(float) };
    return decoded;
}

static int bytes_of(const HsTensor &tensor)
{
    return hs_tensor_present(&tensor) ? (int)hs_dtype_bytes(tensor.dtype) : 0;
}

/* c (+)= op(a) op(b) in f32, by rows that tensor copies can store.  factor_is_free: the kernel has it in its sums. */
static bool is_plain_sum(const HsMatmulArgs *args, bool factor_is_free)
{
    return args->c.dtype == HS_F32 && args->c.shape[1] % 4 == 0 && args->epilogue == HS_EPILOGUE_NONE &&
           (factor_is_free || args->alpha == 1.0f) && !hs_tensor_present(&args->addend) &&
           !hs_tensor_present(&args->bias) && !hs_tensor_present(&args->residual) && args->c.amax == NULL;
}

MatmulShape matmul_shape(const HsMatmulArgs *args, const DeviceLimits &limits)
{
    MatmulShape shape = matmul_shape(hs_product_key(args), limits);
    const bool activates = hs_epilogue_activates(args->epilogue),
               derivative = hs_epilogue_differentiates(args->epilogue);
    shape.quantized = args->b.layout == HS_LAYOUT_NF4;
    shape.hopper = shape.hopper && !shape.quantized;
    shape.joint = shape.hopper && is_plain_sum(args, shape.family == MATMUL_FP8);
    shape.work.function = args->epilogue;
    shape.work.bias = hs_tensor_present(&args->bias);
    if (hs_epilogue_reshapes(args->epilogue)) { /* two columns of the product are one of c, or one is two */
        const bool gates = hs_epilogue_gates(args->epilogue);
        shape.work.written = gates ? bytes_of(args->pre) + bytes_of(args->c) / 2 : 2 * bytes_of(args->c);
        shape.work.read = gates ? 0 : 2 * bytes_of(args->pre);
        return shape;
    }
    shape.work.written = bytes_of(args->c) + (activates ? bytes_of(args->pre) : 0);
    shape.work.read = bytes_of(args->residual) + (derivative ? bytes_of(args->pre) : 0) +
                      (args->accumulate && args->c.dtype != HS_F32 ? bytes_of(args->c) : 0);
    return shape;
}

namespace
{

const int ANY_KERNEL = -1;

/* The fastest by the model.  kernel, slices: prescribed, unless ANY_KERNEL or 0. */
MatmulChoice best_choice(const MatmulShape &shape, const DeviceLimits &limits, int kernel, int slices)
{
    const int first = kernel == ANY_KERNEL ? 0 : kernel, end = kernel == ANY_KERNEL ? count_kernels(shape) : kernel + 1;
    MatmulChoice best = { false, 0, 1, false, false };
    double best_clocks = 0.0;
    for (int candidate = first; candidate < end; candidate++) {
        for (int wanted = 1; wanted <= MATMUL_MOST_SLICES; wanted++) {
            const int cut = real_slices(shape.k, slices > 0 ? slices : wanted);
            const double clocks = product_clocks(shape, limits, candidate, cut);
            if (best_clocks == 0.0 || clocks < best_clocks) {
                best = choice_of(shape, candidate, cut);
                best_clocks = clocks;
            }
            if (slices > 0 || !worth_cutting(shape, limits, candidate, wanted))
                break;
        }
    }
    return best;
}

/* Of a list with commas, its first word. */
size_t word_length(const char *list)
{
    return strcspn(list, ",");
}

bool is_word(const char *list, const char *name)
{
    return strlen(name) == word_length(list) && strncmp(list, name, strlen(name)) == 0;
}

const char *next_word(const char *list)
{
    list += word_length(list);
    return *list == ',' ? list + 1 : list;
}

/* The first of the list that can serve the product. */
int forced_kernel(const MatmulShape &shape, const char *list)
{
    char name[HS_TUNING_KERNEL];
    for (; *list != '\0'; list = next_word(list))
        for (int kernel = 0; kernel < count_kernels(shape); kernel++) {
            name_kernel(shape, kernel, name, sizeof name);
            if (is_word(list, name))
                return kernel;
        }
    return ANY_KERNEL;
}

/* Every kernel that this GPU has, by one product for each family and layout.  Returns whether `list` begins with one;
 * names: all, for a message. */
bool is_kernel(const char *list, const DeviceLimits &limits, char *names, size_t bytes)
{
    bool found = false;
    names[0] = '\0';
    for (int format = 0; format < HS_PRODUCT_FORMATS; format++)
        for (int layout = 0; layout < 3; layout++) { /* nn, nt, tt */
            const HsProductKey key = { 64, 64, 64, layout == 2, layout > 0, (HsProductFormat)format };
            const MatmulShape shape = matmul_shape(key, limits);
            for (int kernel = 0; kernel < count_kernels(shape); kernel++) {
                char name[HS_TUNING_KERNEL];
                name_kernel(shape, kernel, name, sizeof name);
                found = found || is_word(list, name);
                const size_t used = strlen(names);
                if (strstr(names, name) == nullptr)
                    snprintf(names + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
            }
        }
    return found;
}

} // namespace

MatmulChoice choose_by_model(const MatmulShape &shape, const DeviceLimits &limits)
{
    return best_choice(shape, limits, ANY_KERNEL, 0);
}

static MatmulChoice make_choice(const MatmulShape &shape, const HsDevice *device)
{
    const Products &products = *device_products(device);
    const MatmulForce &force = products.force;
    const bool forced = force.kernels[0] != '\0' || force.slices > 0;
    if (products.table != nullptr && !forced && !shape.quantized) {
        const MatmulChoice *const measured = find_choice(*products.table, shape.key);
        if (measured != nullptr && (!measured->joint || shape.joint))
            return *measured;
    }
    return best_choice(shape, device_limits(device), forced_kernel(shape, force.kernels), force.slices);
}

static bool same_product(const HsProductKey &a, const HsProductKey &b)
{
    return a.m == b.m && a.n == b.n && a.k == b.k && a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b &&
           a.format == b.format;
}

static bool same_work(const MatmulWork &a, const MatmulWork &b)
{
    return a.function == b.function && a.bias == b.bias && a.read == b.read && a.written == b.written;
}

/* Multiplicative hashing: the high bits of a product with an odd number. */
static size_t place_of(const HsProductKey &key)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t hash = (uint64_t)key.m * odd + (uint64_t)key.n;
    hash = hash * odd + (uint64_t)key.k;
    hash = hash * odd + (key.transpose_a ? 1u : 0u) + (key.transpose_b ? 2u : 0u) + 4u * (uint64_t)key.format;
    return (size_t)(hash * odd >> 32) % ChoiceCache::PLACES;
}

MatmulChoice choose_matmul(const MatmulShape &shape, const HsDevice *device)
{
    ChoiceCache::Place &place = device_products(device)->cache.places[place_of(shape.key)];
    if (!place.taken || place.quantized != shape.quantized || place.joint != shape.joint ||
        !same_product(place.key, shape.key) || !same_work(place.work, shape.work))
        place = { true, shape.quantized, shape.joint, shape.key, shape.work, make_choice(shape, device) };
    return place.choice;
}

HsStatus force_matmul(HsDevice *device, const char *kernels, int slices)
{
    char names[768];
    forget_choices(device_products(device));
    MatmulForce &force = device_products(device)->force;
    force = MatmulForce{};
    if (kernels == nullptr)
        kernels = "";
    if (strlen(kernels) >= sizeof force.kernels)
        return hs_fail(HS_ECONFIG, "products: a list of kernels of at most %zu characters (got %zu)",
                       sizeof force.kernels - 1, strlen(kernels));
    for (const char *word = kernels; *word != '\0'; word = next_word(word))
        if (!is_kernel(word, device_limits(device), names, sizeof names))
            return hs_fail(HS_ECONFIG, "products: no kernel %.*s on this GPU: use some of %s", (int)word_length(word),
                           word, names);
    if (slices < 0 || slices > HS_TUNING_MOST_SLICES)
        return hs_fail(HS_ECONFIG, "products: slices must be from 1 to %d, or 0 for as many as suit (got %d)",
                       (int)HS_TUNING_MOST_SLICES, slices);
    snprintf(force.kernels, sizeof force.kernels, "%s", kernels);
    force.slices = slices;
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE
