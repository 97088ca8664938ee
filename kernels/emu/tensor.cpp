/* SPDX-License-Identifier: MIT
 *
 * mma.sync and ldmatrix (PTX ISA, "Warp-level matrix instructions"); the fragments are drawn in ptx_mma.cuh.
 * Products of two numbers of at most 16 bits, or of tf32, are exact in f32; sums are taken in f32, over k upwards.
 * Hardware has its own order and rounding: results agree within tolerances only; truncated.h imitates it on demand.
 */
#include "kernels/emu/truncated.h"
#include "kernels/emu/worker.h"

extern "C" {
#include "kernels/base/dtype.h"
}

namespace hs_emu
{
namespace emulator
{

/* The operands that the lanes of one mma left. */
struct Fragments {
    const uint32_t *a, *b;
    float *d;
};

static Fragments fragments_of(const Warp &warp, int lane)
{
    void *const *operands = warp.threads[lane].operands;
    return Fragments{ static_cast<uint32_t *>(operands[0]), static_cast<uint32_t *>(operands[1]),
                      static_cast<float *>(operands[2]) };
}

static float decode_bf16(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* Exponent and mantissa moved into f32's place; multiplying by 2^112 corrects the exponent's bias and makes subnormals
 * normal.  An exponent of all ones then has to become f32's. */
static float decode_f16(uint32_t bits)
{
    const uint32_t magnitude = (bits & 0x7fffu) << 13;
    float value = __uint_as_float(magnitude) * 0x1p112f;
    if (magnitude >= 0x7c00u << 13)
        value = __uint_as_float(magnitude | 0x7f800000u);
    return __uint_as_float(__float_as_uint(value) | (bits & 0x8000u) << 16);
}

static float decode_tf32(uint32_t bits)
{
    return __uint_as_float(bits & 0xffffe000u);
}

/* A row of b or d: one or two vector registers of the host. */
typedef float Row __attribute__((vector_size(32)));

/* d[16][8] += a[16][k] b[k][8].  Four rows at a time, because one row's sums wait for each other. */
template <int depth>
static inline __attribute__((always_inline)) void multiply_rows(Row (&d)[16], const float (&a)[16][depth],
                                                                const Row (&b)[depth])
{
    for (int row = 0; row < 16; row += 4) {
        Row sum0 = d[row], sum1 = d[row + 1], sum2 = d[row + 2], sum3 = d[row + 3];
        for (int k = 0; k < depth; k++) {
            sum0 += a[row][k] * b[k];
            sum1 += a[row + 1][k] * b[k];
            sum2 += a[row + 2][k] * b[k];
            sum3 += a[row + 3][k] * b[k];
        }
        d[row] = sum0;
        d[row + 1] = sum1;
        d[row + 2] = sum2;
        d[row + 3] = sum3;
    }
}

/* With the same bits on every machine: neither version fuses multiplication and addition. */
#if defined(__x86_64__)
template <int depth>
__attribute__((target("avx2"))) static void multiply_avx2(Row (&d)[16], const float (&a)[16][depth],
                                                          const Row (&b)[depth])
{
    multiply_rows(d, a, b);
}
static const bool has_avx2 = __builtin_cpu_supports("avx2");
#endif

/* Eight products deep: tf32; 32: FP8. */
template <int depth>
static void multiply(Row (&d)[16], const float (&a)[16][depth], const Row (&b)[depth], LeastExponents least)
{
    if (settings().truncated_sums) {
        const TensorAdder adder = depth == 32 ? adder_of_fp8() : adder_of_mma(depth == 8);
        for (int row = 0; row < 16; row++)
            truncated_sums(adder, least, a[row], depth, reinterpret_cast<const float *>(b), 8, 8,
                           reinterpret_cast<float *>(&d[row]));
        return;
    }
#if defined(__x86_64__)
    if (has_avx2)
        return multiply_avx2(d, a, b);
#endif
    multiply_rows(d, a, b);
}

static void check_whole_warp(const Meeting &meeting)
{
    if (meeting.arrived != 0xffffffffu)
        fault("%s (%s:%d): lanes %08x of the warp do not take part", meeting.kind, meeting.site.file, meeting.site.line,
              ~meeting.arrived);
}

static void load_sums(const Warp &warp, Row (&d)[16])
{
    for (int lane = 0; lane < LANES; lane++) {
        const float *sums = fragments_of(warp, lane).d;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
    }
}

static void store_sums(const Warp &warp, const Row (&d)[16])
{
    for (int lane = 0; lane < LANES; lane++) {
        float *sums = fragments_of(warp, lane).d;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sums[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

/* m16n8, and k of 8, 16 or 32: of `held` elements a register, the first in the lowest bits, which a decoder is given with
 * what else lies above. */
template <int held, float (*decode_a)(uint32_t), float (*decode_b)(uint32_t)>
static void multiply_fragments(Warp &warp, const Meeting &meeting, LeastExponents least)
{
    enum { DEPTH = 8 * held, BITS = 32 / held };
    float a[16][DEPTH];
    Row b[DEPTH], d[16];
    check_whole_warp(meeting);
    for (int lane = 0; lane < LANES; lane++) {
        const Fragments fragments = fragments_of(warp, lane);
        const int group = lane / 4, first = lane % 4 * held;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int e = 0; e < held; e++)
                a[group + i % 2 * 8][first + i / 2 * (4 * held) + e] = decode_a(fragments.a[i] >> BITS * e);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
#pragma GCC unroll 4
            for (int e = 0; e < held; e++)
                b[first + i * (4 * held) + e][group] = decode_b(fragments.b[i] >> BITS * e);
    }
    load_sums(warp, d);
    multiply<DEPTH>(d, a, b, least);
    store_sums(warp, d);
}

template <float (*decode)(uint32_t)> static float decode_half(uint32_t bits)
{
    return decode(bits & 0xffffu);
}

/* Two 16-bit elements a register. */
template <float (*decode)(uint32_t)> static void multiply_16(Warp &warp, const Meeting &meeting)
{
    multiply_fragments<2, decode_half<decode>, decode_half<decode>>(warp, meeting, decode == decode_f16 ? -14 : -126);
}

static void multiply_tf32(Warp &warp, const Meeting &meeting)
{
    multiply_fragments<1, decode_tf32, decode_tf32>(warp, meeting, -126);
}

template <TensorFormat format> static float decode_code(uint32_t bits)
{
    const uint8_t code = (uint8_t)(bits & 0xffu);
    return format == TensorFormat::E4M3 ? hs_e4m3_decode(code) : hs_e5m2_decode(code);
}

template <TensorFormat a_format, TensorFormat b_format> static void multiply_fp8(Warp &warp, const Meeting &meeting)
{
    multiply_fragments<4, decode_code<a_format>, decode_code<b_format>>(warp, meeting,
                                                                        LeastExponents(a_format, b_format));
}

static void mma(const char *kind, float *d, const uint32_t *a, const uint32_t *b, Site site, Perform perform)
{
    Thread &thread = *worker->current;
    thread.operands[0] = const_cast<uint32_t *>(a);
    thread.operands[1] = const_cast<uint32_t *>(b);
    thread.operands[2] = d;
    meet(kind, 0xffffffffu, site, perform);
}

/* Lane 8 i + r brought the address of row r of matrix i. */
template <bool transposed> static void load_matrices(Warp &warp, const Meeting &meeting)
{
    check_whole_warp(meeting);
    const int matrices = warp.threads[0].source;
    for (int i = 0; i < matrices; i++) {
        const uint16_t *rows[8];
        for (int row = 0; row < 8; row++)
            rows[row] = reinterpret_cast<const uint16_t *>(
                shared_pointer((uint32_t)warp.threads[8 * i + row].value, 16, 16, "ldmatrix"));
        for (int lane = 0; lane < LANES; lane++) {
            const int line = lane / 4, first = lane % 4 * 2;
            const uint32_t low = transposed ? rows[first][line] : rows[line][first];
            const uint32_t high = transposed ? rows[first + 1][line] : rows[line][first + 1];
            static_cast<uint32_t *>(warp.threads[lane].operands[0])[i] = low | high << 16;
        }
    }
}

} // namespace emulator

void emulated_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], emulator::Site site)
{
    emulator::mma("mma.sync bf16", d, a, b, site, emulator::multiply_16<emulator::decode_bf16>);
}

void emulated_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], emulator::Site site)
{
    emulator::mma("mma.sync f16", d, a, b, site, emulator::multiply_16<emulator::decode_f16>);
}

void emulated_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], emulator::Site site)
{
    emulator::mma("mma.sync tf32", d, a, b, site, emulator::multiply_tf32);
}

void emulated_mma_fp8(TensorFormat a_format, TensorFormat b_format, float (&d)[4], const uint32_t (&a)[4],
                      const uint32_t (&b)[2], emulator::Site site)
{
    using emulator::multiply_fp8;
    constexpr TensorFormat e4m3 = TensorFormat::E4M3, e5m2 = TensorFormat::E5M2;
    const bool a_e4m3 = a_format == e4m3, b_e4m3 = b_format == e4m3;
    emulator::mma("mma.sync fp8", d, a, b, site,
                  a_e4m3 && b_e4m3 ? multiply_fp8<e4m3, e4m3>
                  : a_e4m3         ? multiply_fp8<e4m3, e5m2>
                  : b_e4m3         ? multiply_fp8<e5m2, e4m3>
                                   : multiply_fp8<e5m2, e5m2>);
}

void emulated_load_matrix(uint32_t *result, int matrices, bool transposed, uint32_t address, emulator::Site site)
{
    emulator::Thread &thread = *emulator::worker->current;
    thread.operands[0] = result;
    thread.value = address;
    thread.source = matrices;
    emulator::meet(transposed ? "ldmatrix.trans" : "ldmatrix", 0xffffffffu, site,
                   transposed ? emulator::load_matrices<true> : emulator::load_matrices<false>);
}

} // namespace hs_emu
