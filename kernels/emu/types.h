/* SPDX-License-Identifier: MIT
 *
 * CUDA's keywords and small vector types, for the emulator.
 */
#ifndef HS_KERNELS_EMU_TYPES_H
#define HS_KERNELS_EMU_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __shared__       static_assert(false, "declare shared memory by HS_SHARED or HS_DYNAMIC_SHARED");

/* CUDA's headers bring these into every source. */
#include <math.h>
#include <string.h>

namespace hs_emu
{

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* Two, three and four of a type, aligned as CUDA aligns them, so that one access moves all. */
#define HS_EMU_VECTORS(type, name, align2, align4)                                 \
    struct alignas(align2) name##2                                                 \
    {                                                                              \
        type x, y;                                                                 \
    };                                                                             \
    struct name##3                                                                 \
    {                                                                              \
        type x, y, z;                                                              \
    };                                                                             \
    struct alignas(align4) name##4                                                 \
    {                                                                              \
        type x, y, z, w;                                                           \
    };                                                                             \
    static inline constexpr name##2 make_##name##2(type x, type y)                 \
    {                                                                              \
        return name##2 { x, y };                                                   \
    }                                                                              \
    static inline constexpr name##3 make_##name##3(type x, type y, type z)         \
    {                                                                              \
        return name##3 { x, y, z };                                                \
    }                                                                              \
    static inline constexpr name##4 make_##name##4(type x, type y, type z, type w) \
    {                                                                              \
        return name##4 { x, y, z, w };                                             \
    }
HS_EMU_VECTORS(signed char, char, 2, 4)
HS_EMU_VECTORS(unsigned char, uchar, 2, 4)
HS_EMU_VECTORS(short, short, 4, 8)
HS_EMU_VECTORS(unsigned short, ushort, 4, 8)
HS_EMU_VECTORS(int, int, 8, 16)
HS_EMU_VECTORS(unsigned, uint, 8, 16)
HS_EMU_VECTORS(float, float, 8, 16)
HS_EMU_VECTORS(long long, longlong, 16, 16)
HS_EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
HS_EMU_VECTORS(double, double, 16, 16)
#undef HS_EMU_VECTORS

/* What is not CUDA's own is in a separate namespace. */
namespace emulator
{

/* A place in the source, for reports.  As a default argument, here() is the place of the call. */
struct Site {
    const char *file, *function; /* the function with its template's arguments: each instance is code apart on a GPU */
    int line;
    static constexpr Site here(const char *file = __builtin_FILE(), const char *function = __builtin_FUNCTION(),
                               int line = __builtin_LINE())
    {
        return Site{ file, function, line };
    }
    bool operator==(const Site &other) const
    {
        return line == other.line && (function == other.function || strcmp(function, other.function) == 0);
    }
};

} // namespace emulator
} // namespace hs_emu

#define HS_EMU_HERE ::hs_emu::emulator::Site::here()

#endif
