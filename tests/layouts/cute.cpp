/* SPDX-License-Identifier: MIT
 *
 * CuTe's side: what its layout algebra says of the tensor-core instructions, written to stdout as tables (table.h).
 * CuTe is CUTLASS's description of the same hardware by the hardware's makers; nothing of this project takes part.
 *
 * A row of a list below is an instruction, a tile or a product.  A new instruction is a new row here and one on the
 * emulator's side (emulated_*.cu); a row that only one side has is an error.
 */
#include <iostream>

#include "tests/layouts/table.h"

/* Shared memory, and the address that CuTe puts into descriptors.  The two lines after it make CuTe ask for that on the
 * host, where it has no shared memory. */
alignas(1024) static unsigned char shared_memory[layouts::SHARED_BYTES];
static inline uint32_t __nvvm_get_smem_pointer(const void *pointer)
{
    return (uint32_t)(static_cast<const unsigned char *>(pointer) - shared_memory);
}
#define CUTE_NVVM_GET_SMEM_POINTER_ACTIVATED 1
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

using namespace cute;
using layouts::Axes;
using layouts::Table;
using layouts::Tables;
using SM90::GMMA::Major;
using SM90::GMMA::ScaleIn;

static Tables tables;
static constexpr Major K = Major::K, MN = Major::MN;
static constexpr ScaleIn ONE = ScaleIn::One;

static std::string name_of(Major major)
{
    return major == K ? "K-major" : "outer-major";
}

/* ---- Fragments: a layout (thread, value) -> outer + outer extent * other. */

template <class Layout>
static void add_fragment(const char *kind, const std::string &name, Layout layout, const Axes &index, const Axes &value)
{
    Table &table = add_table(tables, Table(kind, name, index, value));
    const int64_t outer = value[0].count, other = value[1].count;
    const int threads = size<0>(layout), values = size<1>(layout);
    for (int thread = 0; thread < threads; thread++)
        for (int v = 0; v < values; v++) {
            const int64_t place = layout(thread, v);
            table.numbers.at((size_t)(thread * values + v)) = place % outer * other + place / outer;
        }
}

/* Values in registers of 32 bits: an axis for the halves (or bytes) only where there are any. */
template <class Type> static Axes register_axes(const char *thread, int threads, int values)
{
    const int each = 32 / sizeof_bits<Type>::value;
    Axes axes = { { thread, threads }, { "register", values / each } };
    if (each > 1)
        axes.push_back({ each == 2 ? "half" : "byte", each });
    return axes;
}

template <class Op> static void add_mma(const std::string &name)
{
    typedef MMA_Traits<Op> Traits;
    typedef typename Traits::Shape_MNK Shape;
    typedef typename Traits::ValTypeA Type;
    const int m = size<0>(Shape{}), n = size<1>(Shape{}), k = size<2>(Shape{});
    const typename Traits::ALayout a;
    const typename Traits::BLayout b;
    const typename Traits::CLayout c;
    add_fragment("mma", name + " A", a, register_axes<Type>("lane", 32, size<1>(a)), { { "row", m }, { "k", k } });
    add_fragment("mma", name + " B", b, register_axes<Type>("lane", 32, size<1>(b)), { { "column", n }, { "k", k } });
    add_fragment("mma", name + " C", c, register_axes<float>("lane", 32, size<1>(c)),
                 { { "row", m }, { "column", n } });
}

/* ---- ldmatrix: bit `place` of the matrices, which the source's layout gives to an addressing lane's row. */

template <class Op> static void add_load_matrix(const std::string &name, int matrices)
{
    const typename Copy_Traits<Op>::SrcLayout source;
    const typename Copy_Traits<Op>::DstLayout destination;
    std::map<int64_t, int64_t> owner; /* of every sixteenth bit: lane and element; the first lane with that address */
    for (int lane = 0; lane < 32; lane++)
        for (int element = 0; element < 8; element++)
            owner.insert({ (int64_t)source(lane, 16 * element), lane * 8 + element });
    Table &table =
        add_table(tables, Table("ldmatrix", name, { { "lane", 32 }, { "register", matrices }, { "half", 2 } },
                                { { "row of lane", 32 }, { "element", 8 } }));
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 2 * matrices; i++)
            table.numbers.at((size_t)(lane * 2 * matrices + i)) = owner.at((int64_t)destination(lane, 16 * i));
}

/* ---- Tiles in shared memory.  K-major: boxes of a line's width along k, next to each other; outer-major: boxes of a
 * line's width along the outer index: in both, a box's lines follow each other.  0: no swizzle, lines of 16 bytes. */

template <int swizzle, class Type, Major major> static constexpr auto atom()
{
    if constexpr (swizzle == 128)
        return SM90::GMMA::Layout_SW128_Atom<Type, major>{};
    else if constexpr (swizzle == 64)
        return SM90::GMMA::Layout_SW64_Atom<Type, major>{};
    else if constexpr (swizzle == 32)
        return SM90::GMMA::Layout_SW32_Atom<Type, major>{};
    else
        return SM90::GMMA::Layout_INTER_Atom<Type, major>{};
}

template <int swizzle, class Type, Major major, int outer, int depth> static auto tile_at(uint32_t address)
{
    typedef cute::conditional_t<major == K, Step<_1, _2>, Step<_2, _1>> Order;
    const auto layout = tile_to_shape(atom<swizzle, Type, major>(), Shape<Int<outer>, Int<depth>>{}, Order{});
    return make_tensor(make_smem_ptr(reinterpret_cast<Type *>(shared_memory + address)), layout);
}

/* (outer, k) -> bytes from the tile's begin. */
template <int swizzle, class Type, Major major, int outer, int depth>
static void add_tile(const char *kind, const std::string &name)
{
    auto tile = tile_at<swizzle, Type, major, outer, depth>(0);
    Table &table = add_table(tables, Table(kind, name, { { "outer", outer }, { "k", depth } },
                                           { { "byte", outer * depth * (int)sizeof(Type) } }));
    for (int o = 0; o < outer; o++)
        for (int k = 0; k < depth; k++)
            table.numbers.at((size_t)(o * depth + k)) = reinterpret_cast<unsigned char *>(&tile(o, k)) - shared_memory;
}

template <int swizzle, class Type> static void add_copied_tiles(const char *type)
{
    const std::string name = "swizzle " + std::to_string(swizzle) + " " + type + " ";
    add_tile<swizzle, Type, K, 64, 64>("tile", name + name_of(K));
    add_tile<swizzle, Type, MN, 64, 64>("tile", name + name_of(MN));
}

template <int bits> static void add_swizzle(const std::string &name)
{
    const int pieces = 4096;
    Table &table = add_table(tables, Table("swizzled", name, { { "piece", pieces } }, { { "byte", pieces * 16 } }));
    for (int piece = 0; piece < pieces; piece++)
        table.numbers.at((size_t)piece) = Swizzle<bits, 4, 3>{}(piece * 16);
}

/* ---- wgmma. */

/* An operand, as the instruction finds it by a descriptor: where its elements lie, and CuTe's descriptors for a tile at
 * 0, step by step of k. */
template <class Op, int swizzle, Major major, int outer, bool is_a> static void add_operand(const std::string &name)
{
    typedef typename MMA_Traits<Op>::ValTypeA Type;
    const std::string full = name + (is_a ? " A " : " B ") + name_of(major) + " swizzle " + std::to_string(swizzle);
    add_tile<swizzle, Type, major, outer, 64>("operand", full);
    const auto tile = tile_at<swizzle, Type, major, outer, 64>(0);
    const auto slice = make_tiled_mma(Op{}).get_slice(0);
    Table &table = add_table(tables, Table("given", full, { { "step", 4 } }, { { "bits", 1 } }));
    for (int step = 0; step < 4; step++) {
        GmmaDescriptor descriptor;
        if constexpr (is_a)
            descriptor = slice.make_fragment_A(slice.partition_A(tile))(0, 0, step);
        else
            descriptor = slice.make_fragment_B(slice.partition_B(tile))(0, 0, step);
        table.numbers.at((size_t)step) = (int64_t)descriptor.desc_;
    }
}

template <template <Major, Major, ScaleIn, ScaleIn> class Op, int columns, int swizzle>
static void add_operands(const std::string &name)
{
    if constexpr (columns == 64) {
        add_operand<Op<K, K, ONE, ONE>, swizzle, K, 64, true>(name);
        add_operand<Op<MN, K, ONE, ONE>, swizzle, MN, 64, true>(name);
    }
    add_operand<Op<K, K, ONE, ONE>, swizzle, K, columns, false>(name);
    add_operand<Op<K, MN, ONE, ONE>, swizzle, MN, columns, false>(name);
}

template <template <Major, Major, ScaleIn, ScaleIn> class Op, int columns>
static void add_wgmma(const std::string &name)
{
    typedef MMA_Traits<Op<K, K, ONE, ONE>> Traits;
    const typename Traits::CLayout c;
    add_fragment("sums", name, c, register_axes<float>("thread", 128, size<1>(c)),
                 { { "row", 64 }, { "column", columns } });
    add_operands<Op, columns, 128>(name);
    add_operands<Op, columns, 64>(name);
    add_operands<Op, columns, 32>(name);
    add_operands<Op, columns, 0>(name);
}

template <template <Major, Major, ScaleIn, ScaleIn> class Op> static void add_wgmma_registers(const std::string &name)
{
    typedef MMA_Traits<Op<K, K, ONE, ONE>> Traits;
    const typename Traits::ALayout a;
    add_fragment("registers", name, a, register_axes<typename Traits::ValTypeA>("thread", 128, size<1>(a)),
                 { { "row", 64 }, { "k", (int)size<2>(typename Traits::Shape_MNK{}) } });
}

/* ---- The kernels' products: the descriptors of their steps. */

/* Fields of fragment(0, consumer or 0, step).  The leading byte offset is compared where hardware reads it.  K-major
 * with a swizzle it is not used and assumed to be 1 (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
 * Layout", on strides; CuTe's GmmaDescriptor says the same): CuTe writes 1, the kernels what suits them.  Outer-major
 * it leads from the 64 elements of a line to the next 64, which an operand of 64 rows or columns does not have. */
template <class Op, class Fragment>
static void add_descriptors(const std::string &name, const Fragment &fragment, Major major, int extent, bool halves)
{
    const int steps = size<2>(fragment);
    const Axes index = { { "consumer", 2 }, { "step", steps } }, bytes = { { "byte", 1 << 18 } };
    Table &start = add_table(tables, Table("start", name, { { "consumer", 2 } }, bytes));
    Table &advance = add_table(tables, Table("advance", name, index, bytes));
    Table &leading = add_table(tables, Table("leading", name, index, bytes));
    Table &stride = add_table(tables, Table("stride", name, index, bytes));
    Table &type = add_table(tables, Table("type", name, index, { { "base offset", 8 }, { "layout type", 4 } }));
    Table &instruction = add_table(
        tables, Table("instruction", name, index, { { "columns", 257 }, { "f16", 2 }, { "outer-major", 2 } }));
    const bool f16 = cute::is_same<typename MMA_Traits<Op>::ValTypeA, half_t>::value;
    const int columns = size<1>(typename MMA_Traits<Op>::Shape_MNK{});
    for (int consumer = 0; consumer < 2; consumer++)
        for (int step = 0; step < steps; step++) {
            const size_t place = (size_t)(consumer * steps + step);
            const GmmaDescriptor first = fragment(0, halves ? consumer : 0, 0);
            const GmmaDescriptor descriptor = fragment(0, halves ? consumer : 0, step);
            const auto &bits = descriptor.bitfield;
            start.numbers.at((size_t)consumer) = first.bitfield.start_address_ * 16;
            advance.numbers.at(place) = (bits.start_address_ - first.bitfield.start_address_) * 16;
            leading.numbers.at(place) = major == K || extent <= 64 ? layouts::UNREAD : bits.leading_byte_offset_ * 16;
            stride.numbers.at(place) = bits.stride_byte_offset_ * 16;
            type.numbers.at(place) = bits.base_offset_ * 4 + (int)bits.layout_type_;
            instruction.numbers.at(place) = (columns * 2 + f16) * 2 + (major == MN);
        }
}

/* A from shared memory, its tile followed by B's; a_halves: a consumer takes 64 rows of A; b_halves: 64 columns. */
template <class Op, Major a_major, int a_rows, Major b_major, int b_columns, int depth>
static void add_product(const std::string &name, bool a_halves, bool b_halves)
{
    typedef typename MMA_Traits<Op>::ValTypeA Type;
    const auto a = tile_at<128, Type, a_major, a_rows, depth>(layouts::TILE_ADDRESS);
    const auto b =
        tile_at<128, Type, b_major, b_columns, depth>(layouts::TILE_ADDRESS + a_rows * depth * (int)sizeof(Type));
    const auto slice = make_tiled_mma(Op{}).get_slice(0);
    add_descriptors<Op>(name + " A", slice.make_fragment_A(slice.partition_A(a)), a_major, 64, a_halves);
    add_descriptors<Op>(name + " B", slice.make_fragment_B(slice.partition_B(b)), b_major,
                        size<1>(typename MMA_Traits<Op>::Shape_MNK{}), b_halves);
}

template <template <Major, Major, ScaleIn, ScaleIn> class Op, int columns, Major a_major, Major b_major>
static void add_hopper_multiply(const std::string &type)
{
    add_product<Op<a_major, b_major, ONE, ONE>, a_major, 128, b_major, columns, 64>(
        "hopper_multiply " + std::to_string(columns) + " " + type + ", A " + name_of(a_major) + ", B " +
            name_of(b_major) + ":",
        true, false);
}

template <template <Major, Major, ScaleIn, ScaleIn> class Op, int columns>
static void add_hopper_multiplies(const std::string &type)
{
    add_hopper_multiply<Op, columns, K, K>(type);
    add_hopper_multiply<Op, columns, K, MN>(type);
    add_hopper_multiply<Op, columns, MN, K>(type);
    add_hopper_multiply<Op, columns, MN, MN>(type);
}

/* sum = A[64][width] . B[b_rows][width] of 128 rows of A. */
template <template <Major, Major, ScaleIn, ScaleIn> class Op, int width, int b_rows>
static void add_begin_rows(const std::string &type)
{
    add_product<Op<K, K, ONE, ONE>, K, 128, K, b_rows, width>(
        "begin_rows " + std::to_string(width) + " x " + std::to_string(b_rows) + " " + type + ":", true, false);
}

/* sum += W[64][rows] B[rows][width]. */
template <template <Major, Major, ScaleIn, ScaleIn> class Op, int width, int rows>
static void add_begin_weights(const std::string &type)
{
    typedef Op<K, MN, ONE, ONE> Mma;
    const auto b = tile_at<128, typename MMA_Traits<Mma>::ValTypeA, MN, width, rows>(layouts::TILE_ADDRESS);
    const auto slice = make_tiled_mma(Mma{}).get_slice(0);
    add_descriptors<Mma>("begin_weights " + std::to_string(width) + " x " + std::to_string(rows) + " " + type + ": B",
                         slice.make_fragment_B(slice.partition_B(b)), MN, width, false);
}

template <template <Major, Major, ScaleIn, ScaleIn> class Op> static void add_begin_query_part(const std::string &type)
{
    typedef Op<MN, MN, ONE, ONE> Mma;
    add_product<Mma, MN, 128, MN, 64, 128>("begin_query_part 64 " + type + ":", true, false);
    add_product<Mma, MN, 64, MN, 128, 128>("begin_query_part 128 " + type + ":", false, true);
}

/* ---- What the kernels lay out in shared memory. */

template <class Type, Major a_major, Major b_major, int columns> static void add_hopper_copy(const std::string &type)
{
    const std::string name = "hopper_copy " + std::to_string(columns) + " " + type + ", A " + name_of(a_major) +
                             ", B " + name_of(b_major) + ":";
    add_tile<128, Type, a_major, 128, 64>("tile", name + " A");
    add_tile<128, Type, b_major, columns, 64>("tile", name + " B");
}

template <class Type> static void add_kernel_tiles(const std::string &type)
{
    add_hopper_copy<Type, K, K, 128>(type);
    add_hopper_copy<Type, MN, MN, 128>(type);
    add_hopper_copy<Type, K, K, 256>(type);
    add_hopper_copy<Type, MN, MN, 256>(type);
    add_tile<128, Type, K, 128, 64>("tile", "load_head 64 x 128 " + type);
    add_tile<128, Type, K, 128, 128>("tile", "load_head 128 x 128 " + type);
    add_tile<128, Type, K, 64, 128>("tile", "load_head 128 x 64 " + type);
    /* Written by threads, in the swizzle of the tensor copies that take them away or of the products that read them. */
    add_tile<128, Type, K, 64, 64>("staging", "stage_results 64 " + type);
    add_tile<128, Type, K, 64, 128>("staging", "stage_results 128 " + type);
    add_tile<128, Type, K, 128, 128>("staging", "store_scores 64 " + type);
    add_tile<128, Type, K, 128, 64>("staging", "store_scores 128 " + type);
    add_tile<128, Type, K, 16, 64>("staging", "stage_blocks " + type);
}

#define WGMMA(columns, Type)           SM90_64x##columns##x16_F32##Type##Type##_SS
#define WGMMA_REGISTERS(columns, Type) SM90_64x##columns##x16_F32##Type##Type##_RS

#define WGMMA_ROWS(Type, type)                                               \
    add_wgmma<WGMMA(64, Type), 64>("wgmma.m64n64k16 " type);                 \
    add_wgmma<WGMMA(128, Type), 128>("wgmma.m64n128k16 " type);              \
    add_wgmma<WGMMA(256, Type), 256>("wgmma.m64n256k16 " type);              \
    add_wgmma_registers<WGMMA_REGISTERS(64, Type)>("wgmma.m64n64k16 " type); \
    add_wgmma_registers<WGMMA_REGISTERS(128, Type)>("wgmma.m64n128k16 " type)

#define PRODUCT_ROWS(Type, type)                                   \
    add_hopper_multiplies<WGMMA(128, Type), 128>(type);            \
    add_hopper_multiplies<WGMMA(256, Type), 256>(type);            \
    add_begin_rows<WGMMA(128, Type), 64, 128>(type);               \
    add_begin_rows<WGMMA(128, Type), 128, 128>(type);              \
    add_begin_rows<WGMMA(64, Type), 128, 64>(type);                \
    add_begin_weights<WGMMA_REGISTERS(64, Type), 64, 128>(type);   \
    add_begin_weights<WGMMA_REGISTERS(128, Type), 128, 128>(type); \
    add_begin_weights<WGMMA_REGISTERS(128, Type), 128, 64>(type);  \
    add_begin_query_part<WGMMA(64, Type)>(type)

int main()
{
    add_mma<SM80_16x8x16_F32BF16BF16F32_TN>("mma.m16n8k16 bf16");
    add_mma<SM80_16x8x16_F32F16F16F32_TN>("mma.m16n8k16 f16");
    add_mma<SM80_16x8x8_F32TF32TF32F32_TN>("mma.m16n8k8 tf32");
    add_load_matrix<SM75_U32x4_LDSM_N>("ldmatrix.x4", 4);
    add_load_matrix<SM75_U16x8_LDSM_T>("ldmatrix.x4.trans", 4);
    WGMMA_ROWS(BF16, "bf16");
    WGMMA_ROWS(F16, "f16");
    add_swizzle<3>("swizzle 128");
    add_swizzle<2>("swizzle 64");
    add_swizzle<1>("swizzle 32");
    add_swizzle<0>("swizzle 0");
    add_copied_tiles<128, bfloat16_t>("16-bit");
    add_copied_tiles<64, bfloat16_t>("16-bit");
    add_copied_tiles<32, bfloat16_t>("16-bit");
    add_copied_tiles<0, bfloat16_t>("16-bit");
    add_copied_tiles<128, float>("32-bit");
    add_copied_tiles<64, float>("32-bit");
    add_copied_tiles<32, float>("32-bit");
    add_copied_tiles<0, float>("32-bit");
    add_kernel_tiles<bfloat16_t>("bf16");
    add_kernel_tiles<half_t>("f16");
    add_tile<128, float, K, 16, 32>("staging", "stage_blocks f32");
    add_tile<128, float, K, 16, 64>("staging", "HopperStaging::place");
    PRODUCT_ROWS(BF16, "bf16");
    PRODUCT_ROWS(F16, "f16");
    write_tables(std::cout, tables);
    return std::cout.good() ? 0 : 1;
}
