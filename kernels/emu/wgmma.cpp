/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of wgmma, m64nNk16 of 16-bit operands and m64nNk32 of FP8: how matrix descriptors lead to elements of shared memory (PTX ISA, "Strides" and
 * "Matrix Descriptor Format" of wgmma), and the product.  As in mma.sync (tensor.cpp), products are exact and sums are
 * taken in f32, over k upwards, or as truncated.h says.
 *
 * A descriptor: start address / 16 in bits 0 - 13, leading byte offset / 16 in 16 - 29, stride byte offset / 16 in
 * 32 - 45, swizzle in 62 - 63 (0: none, 1: 128 bytes, 2: 64, 3: 32).  Shared addresses of the emulator are longer than
 * 18 bits; the rest is in bits 52 - 61, which hardware wants zero, and what advancing a descriptor carries in 14
 * and 15.
 *
 * With span = the swizzle's bytes and "outer" the index that survives in the product, element (outer, k) of a 16-bit
 * operand lies at start + ..., then swizzled by its address:
 *
 *     K-major            (outer / 8) stride + (outer % 8) span + 2 k
 *     K-major, none      (outer / 8) stride + (outer % 8) 16 + (k / 8) leading + 2 (k % 8)
 *     outer-major        (outer / s) leading + 2 (outer % s) + (k / 8) stride + (k % 8) span,  s = span / 2 elements
 *     outer-major, none  (outer / 8) stride + 2 (outer % 8) + (k / 8) leading + (k % 8) 16
 *
 * FP8 operands are K-major, and lie as if two neighbours along k were one element of 16 bits.
 */
#include <memory>

#include "kernels/emu/tensor_map.h"
#include "kernels/emu/truncated.h"
#include "kernels/emu/wgmma.h"
#include "kernels/emu/worker.h"

extern "C" {
#include "kernels/base/dtype.h"
}

namespace hs_emu
{
namespace emulator
{

enum { ROWS = 16, PAIRS = 16, DEPTH = 32, MOST_COLUMNS = 256, CHUNK = 16 };

struct Descriptor {
    uint32_t start, leading, stride;
    int span; /* bytes of the swizzle; 0: none */
};

static Descriptor decode(uint64_t bits, Site site)
{
    static const int spans[] = { 0, 128, 64, 32 };
    if ((bits >> 49 & 7) != 0)
        fault("wgmma (%s:%d): a base offset in the descriptor; tiles begin where the swizzle's pattern does", site.file,
              site.line);
    return Descriptor{ ((uint32_t)(bits & 0xffff) << 4) + ((uint32_t)(bits >> 52 & 0x3ff) << 18),
                       (uint32_t)(bits >> 16 & 0x3fff) << 4, (uint32_t)(bits >> 32 & 0x3fff) << 4, spans[bits >> 62] };
}

/* Of the 16-byte chunk that begins at element (outer, k) and continues along the contiguous index. */
static uint32_t chunk_address(const Descriptor &d, bool transposed, int outer, int k)
{
    const uint32_t o = (uint32_t)outer, depth = (uint32_t)k, span = (uint32_t)d.span;
    if (!transposed && span > 0)
        return d.start + o / 8 * d.stride + o % 8 * span + 2 * depth;
    if (!transposed)
        return d.start + o / 8 * d.stride + o % 8 * CHUNK + depth / 8 * d.leading;
    if (span > 0)
        return d.start + o / (span / 2) * d.leading + 2 * (o % (span / 2)) + depth / 8 * d.stride + depth % 8 * span;
    return d.start + o / 8 * d.stride + depth / 8 * d.leading + depth % 8 * CHUNK;
}

static bool is_fp8(TensorFormat format)
{
    return format == TensorFormat::E4M3 || format == TensorFormat::E5M2;
}

static int depth_of(const WarpgroupProduct &product)
{
    return is_fp8(product.a_format) ? DEPTH : DEPTH / 2;
}

static float decode_element(uint16_t bits, TensorFormat format)
{
    return format == TensorFormat::F16 ? hs_f16_decode(bits) : __uint_as_float((uint32_t)bits << 16);
}

static float decode_code(uint8_t code, TensorFormat format)
{
    return format == TensorFormat::E4M3 ? hs_e4m3_decode(code) : hs_e5m2_decode(code);
}

/* element(outer - first, k) for `count` of an operand's rows or columns, a chunk of eight, or of sixteen codes, at a
 * time. */
template <typename Element>
static void read_operand(uint64_t bits, bool transposed, int first, int count, TensorFormat format, Site site,
                         Element element)
{
    const Descriptor d = decode(bits, site);
    const bool fp8 = is_fp8(format);
    if (fp8 && transposed)
        fault("wgmma (%s:%d): operands in FP8 are K-major", site.file, site.line);
    for (int outer = first; outer < first + count; outer += transposed ? 8 : 1)
        for (int k = 0; k < PAIRS; k += transposed ? 1 : 8) {
            const uint32_t address = swizzled(chunk_address(d, transposed, outer, k), d.span);
            uint16_t chunk[8];
            uint8_t codes[CHUNK];
            memcpy(chunk, cluster_pointer(address, CHUNK, CHUNK, "wgmma"), sizeof chunk);
            memcpy(codes, chunk, sizeof codes);
            for (int i = 0; i < CHUNK && fp8; i++)
                element(outer - first, k * 2 + i) = decode_code(codes[i], format);
            for (int i = 0; i < 8 && !fp8; i++)
                element(outer - first + (transposed ? i : 0), k + (transposed ? 0 : i)) =
                    decode_element(chunk[i], format);
        }
}

/* A lane's registers hold rows lane / 4 and that + 8 of its warp's. */
static int row_of(int lane, int i)
{
    return lane / 4 + i * 8;
}

static void registers_of_a(const uint32_t *registers, TensorFormat format, float (&a)[ROWS][DEPTH])
{
    for (int lane = 0; lane < LANES; lane++)
        for (int r = 0; r < 4; r++)
            for (int half = 0; half < 2; half++) {
                const uint32_t pair = registers[lane * 4 + r];
                a[row_of(lane, r % 2)][lane % 4 * 2 + r / 2 * 8 + half] =
                    decode_element((uint16_t)(pair >> 16 * half), format);
            }
}

/* Eight columns, and as many of them as stay in registers while k goes by. */
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

template <int eights>
static inline __attribute__((always_inline)) void
multiply_columns(const float (&a)[DEPTH], const float (&b)[DEPTH][MOST_COLUMNS], int depth, int first, float *sums)
{
    Eight part[eights];
    for (int i = 0; i < eights; i++)
        part[i] = reinterpret_cast<const Eight *>(sums + first)[i];
    for (int k = 0; k < depth; k++)
        for (int i = 0; i < eights; i++)
            part[i] += a[k] * reinterpret_cast<const Eight *>(b[k] + first)[i];
    for (int i = 0; i < eights; i++)
        reinterpret_cast<Eight *>(sums + first)[i] = part[i];
}

static inline __attribute__((always_inline)) void
multiply_row(const float (&a)[DEPTH], const float (&b)[DEPTH][MOST_COLUMNS], int depth, int columns, float *sums)
{
    int n = 0;
    for (; n + 64 <= columns; n += 64)
        multiply_columns<8>(a, b, depth, n, sums);
    for (; n < columns; n += 8)
        multiply_columns<1>(a, b, depth, n, sums);
}

static bool all_finite(const float (&b)[DEPTH][MOST_COLUMNS], int depth, int columns)
{
    uint32_t carries = 0; /* of one more in the exponent, out of it where it is all ones */
    for (int k = 0; k < depth; k++)
        for (int n = 0; n < columns; n++)
            carries |= (__float_as_uint(b[k][n]) & 0x7FFFFFFFu) + 0x00800000u;
    return carries < 0x80000000u;
}

/* Zeros times finite numbers, added to zeros, which stay zeros, cut or not.  So it is in most rows of the tiles of small
 * products. */
static bool adds_zeros(const float (&a)[DEPTH], int depth, const float *sums, int columns)
{
    int more = 0;
    for (int k = 0; k < depth; k++)
        more |= a[k] != 0.0f;
    for (int n = 0; n < columns && more == 0; n++)
        more |= __float_as_uint(sums[n]) != 0;
    return more == 0;
}

/* With the same bits on every machine: neither version fuses multiplication and addition. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
multiply_row_avx2(const float (&a)[DEPTH], const float (&b)[DEPTH][MOST_COLUMNS], int depth, int columns, float *sums)
{
    multiply_row(a, b, depth, columns, sums);
}
static const bool has_avx2 = __builtin_cpu_supports("avx2");
#endif

/* Register 4 j + 2 i + e of a thread: row i, column 8 j + 2 (t % 4) + e. */
template <typename Body>
static void for_each_pair(float *registers, int count, float (&sums)[ROWS][MOST_COLUMNS], Body body)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 2; i++) {
            float *const pairs = registers + lane * count + 2 * i, *const row = sums[row_of(lane, i)] + lane % 4 * 2;
            for (int j = 0; j < count / 4; j++)
                body(pairs + 4 * j, row + 8 * j);
        }
}

/* Of one host thread.  Not thread-local themselves: a shared object that is opened late has little room for such. */
struct Numbers {
    float a[ROWS][DEPTH], b[DEPTH][MOST_COLUMNS], sums[ROWS][MOST_COLUMNS];
};

void wgmma_multiply(const WgmmaOperands &operands, int warp, float *registers)
{
    const WarpgroupProduct &product = operands.product;
    static thread_local const std::unique_ptr<Numbers> numbers(new Numbers());
    auto &a = numbers->a;
    auto &b = numbers->b;
    auto &sums = numbers->sums;
    if (!operands.a_registers.empty())
        registers_of_a(operands.a_registers.data() + warp * LANES * 4, product.a_format, a);
    else
        read_operand(product.a_descriptor, product.a_transposed, warp * ROWS, ROWS, product.a_format, operands.site,
                     [&a](int outer, int k) -> float & { return a[outer][k]; });
    read_operand(product.b_descriptor, product.b_transposed, 0, product.columns, product.b_format, operands.site,
                 [&b](int outer, int k) -> float & { return b[k][outer]; });
    const int count = product.columns / 2;
    float *const own = registers + warp * LANES * count;
    if (product.add)
        for_each_pair(own, count, sums, [](float *pair, float *sum) { memcpy(sum, pair, 2 * sizeof *sum); });
    else
        for (auto &row : sums)
            memset(row, 0, (size_t)product.columns * sizeof row[0]);
    const int depth = depth_of(product);
    bool looked = false, finite_b = false;
    for (int row = 0; row < ROWS; row++) {
        const bool zeros = adds_zeros(a[row], depth, sums[row], product.columns);
        if (zeros && !looked) {
            finite_b = all_finite(b, depth, product.columns);
            looked = true;
        }
        if (zeros && finite_b)
            continue;
        if (settings().truncated_sums) {
            truncated_sums(is_fp8(product.a_format) ? adder_of_fp8() : adder_of_wgmma(),
                           LeastExponents(product.a_format, product.b_format), a[row], depth, b[0], MOST_COLUMNS,
                           product.columns, sums[row]);
            continue;
        }
#if defined(__x86_64__)
        if (has_avx2) {
            multiply_row_avx2(a[row], b, depth, product.columns, sums[row]);
            continue;
        }
#endif
        multiply_row(a[row], b, depth, product.columns, sums[row]);
    }
    for_each_pair(own, count, sums, [](float *pair, float *sum) { memcpy(pair, sum, 2 * sizeof *sum); });
}

} // namespace emulator
} // namespace hs_emu
