/* SPDX-License-Identifier: MIT
 *
 * PTX text on the emulator: instructions with the results that the PTX manual's words give for them, worked out by
 * hand; threads that exchange; addresses; and text or kernels that must be refused.
 */
#include <fstream>
#include <stdlib.h>

#include "kernels/emu/ptx/program.h"
#include "tests/emu/harness.h"

using namespace hs_emu;
using namespace test;

namespace
{

const char *const HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n\n";

/* A kernel `test` of `body`, whose parameters are a pointer, %rd1, and an integer, %r1; `before` it stands what the
 * module declares. */
std::string kernel_text(const std::string &body, const std::string &before = "")
{
    return HEAD + before +
           ".visible .entry test(\n\t.param .u64 test_param_0,\n\t.param .u32 test_param_1\n)\n{\n"
           "\t.reg .pred %p<10>;\n\t.reg .b16 %rs<10>;\n\t.reg .b32 %r<40>;\n\t.reg .f32 %f<10>;\n"
           "\t.reg .b64 %rd<20>;\n\t.reg .f64 %fd<10>;\n"
           "\tld.param.u64 %rd1, [test_param_0];\n\tld.param.u32 %r1, [test_param_1];\n" +
           body + "\tret;\n}\n";
}

/* Runs the text's kernel `test` with a pointer to `out` and `number`. */
bool launch_text(const std::string &text, dim3 grid, dim3 block, size_t shared_bytes, unsigned *out, int number)
{
    char folder[] = "/tmp/halfstep-ptx-XXXXXX";
    if (mkdtemp(folder) == nullptr)
        return false;
    const std::string file = std::string(folder) + "/test.ptx";
    std::ofstream(file) << text;
    static emulator::ptx::Library library;
    library = emulator::ptx::read_library(folder);
    remove(file.c_str());
    remove(folder);
    const emulator::ptx::Program &program =
        emulator::ptx::program_of(library, "test", library.entries.at("test"), false);
    return emulate_launch("test", grid, block, shared_bytes, nullptr, [&program, out, number] {
               unsigned *pointer = out;
               int value = number;
               char *parameters[] = { reinterpret_cast<char *>(&pointer), reinterpret_cast<char *>(&value) };
               emulator::ptx::run_program(program, parameters);
           }) == cudaSuccess;
}

struct Case {
    const char *text; /* leaves its result in %r9 */
    unsigned expected;
};

#define F9 " mov.b32 %r9, %f9;"
const Case CASES[] = {
    { "add.s32 %r9, 2147483647, 1;", 0x80000000u },
    { "sub.s32 %r9, 3, 5;", (unsigned)-2 },
    { "mad.lo.s32 %r9, 3, -4, 5;", (unsigned)-7 },
    { "mul.hi.s32 %r9, -2, 1073741824;", 0xffffffffu },
    { "mul.wide.s32 %rd9, -2, 3; cvt.u32.u64 %r9, %rd9;", (unsigned)-6 },
    { "mul.wide.u16 %r9, 65535, 65535;", 0xfffe0001u },
    { "div.s32 %r9, -7, 2;", (unsigned)-3 },
    { "rem.s32 %r9, -7, 2;", (unsigned)-1 },
    { "shr.s32 %r9, -8, 40;", 0xffffffffu },
    { "shr.u32 %r9, -8, 40;", 0 },
    { "shl.b32 %r9, 1, 32;", 0 },
    { "shl.b32 %r9, 1, 31;", 0x80000000u },
    { "bfi.b32 %r9, 5, -1, 4, 8;", 0xfffff05fu },
    { "bfi.b32 %r9, 5, 16, 28, 8;", 0x50000010u },
    { "prmt.b32 %r9, 0x03020100, 0x87060504, 0x7f21;", 0x87ff0201u },
    { "bfind.shiftamt.u32 %r9, 1;", 31 },
    { "bfind.shiftamt.u32 %r9, 0;", 0xffffffffu },
    { "clz.b32 %r9, 0;", 32 },
    { "popc.b32 %r9, 0xf0f0;", 8 },
    { "brev.b32 %r9, 6;", 0x60000000u },
    { "neg.s32 %r9, 5;", (unsigned)-5 },
    { "not.b32 %r9, 5;", ~5u },
    { "min.s32 %r9, -1, 1;", (unsigned)-1 },
    { "min.u32 %r9, -1, 1;", 1 },
    /* 1 + 2^-24 is a tie and becomes even; 1 + 0.75 units rounds up, or down where that is asked for */
    { "add.rn.f32 %f9, 0f3F800000, 0f33800000;" F9, 0x3f800000u },
    { "fma.rn.f32 %f9, 0f3F800000, 0f3F800000, 0f33C00000;" F9, 0x3f800001u },
    { "fma.rm.f32 %f9, 0f3F800000, 0f3F800000, 0f33C00000;" F9, 0x3f800000u },
    /* (1 + 2^-23)^2 - (1 + 2^-22) is 2^-46 in one rounding, 0 in two */
    { "fma.rn.f32 %f9, 0f3F800001, 0f3F800001, 0fBF800002;" F9, 0x28800000u },
    { "mul.rn.f32 %f8, 0f3F800001, 0f3F800001; add.rn.f32 %f9, %f8, 0fBF800002;" F9, 0 },
    { "max.f32 %f9, 0f7FC00000, 0f3F800000;" F9, 0x3f800000u },
    { "max.NaN.f32 %f9, 0f7FC00000, 0f3F800000;" F9, 0x7fffffffu },
    { "min.f32 %f9, 0f00000000, 0f80000000;" F9, 0x80000000u },
    { "copysign.f32 %f9, 0f80000000, 0f3F800000;" F9, 0xbf800000u },
    { "sqrt.rn.f32 %f9, 0f40000000;" F9, 0x3fb504f3u },
    { "rcp.rn.f32 %f9, 0f40400000;" F9, 0x3eaaaaabu },
    { "div.rn.f32 %f9, 0f3F800000, 0f40400000;" F9, 0x3eaaaaabu },
    { "setp.gtu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r9, 1, 0, %p1;", 1 },
    { "setp.gt.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r9, 1, 0, %p1;", 0 },
    { "setp.neu.f32 %p1, 0f7FC00000, 0f7FC00000; selp.b32 %r9, 1, 0, %p1;", 1 },
    { "setp.lt.s32 %p1, -1, 1; selp.b32 %r9, 1, 0, %p1;", 1 },
    { "setp.lt.u32 %p1, -1, 1; selp.b32 %r9, 1, 0, %p1;", 0 },
    { "mov.pred %p1, -1; not.pred %p2, %p1; selp.b32 %r9, 1, 0, %p2;", 0 },
    { "cvt.rzi.s32.f32 %r9, 0fC0200000;", (unsigned)-2 },
    { "cvt.rni.s32.f32 %r9, 0f40200000;", 2 },
    { "cvt.rzi.s32.f32 %r9, 0f7F800000;", 0x7fffffffu },
    { "cvt.rzi.u32.f32 %r9, 0fBF800000;", 0 },
    { "cvt.rzi.s32.f32 %r9, 0f7FC00000;", 0 },
    { "cvt.rn.f32.u32 %f9, -1;" F9, 0x4f800000u },
    { "cvt.rn.f32.s32 %f9, -1;" F9, 0xbf800000u },
    { "cvt.sat.f32.f32 %f9, 0f3FC00000;" F9, 0x3f800000u },
    { "cvt.u16.u32 %rs1, 0x1ff; cvt.s32.s8 %r9, %rs1;", 0xffffffffu },
    { "cvt.u16.u32 %rs1, 0x1ff; cvt.u32.u8 %r9, %rs1;", 0xff },
    { "mov.u32 %r8, -1; cvt.s64.s32 %rd9, %r8; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r9, %rd9;", 0xffffffffu },
    { "mov.u32 %r8, -1; cvt.u64.u32 %rd9, %r8; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r9, %rd9;", 0 },
    /* the first operand goes into the upper half */
    { "cvt.rn.bf16x2.f32 %r9, 0f3F800000, 0f40000000;", 0x3f804000u },
    { "cvt.rn.bf16x2.f32 %r9, 0f3F808000, 0f3F818000;", 0x3f803f82u },
    { "cvt.rn.f16x2.f32 %r9, 0f3F800000, 0f477FF000;", 0x3c007c00u },
    { "cvt.rna.tf32.f32 %r9, 0f3F801000;", 0x3f802000u },
    /* Codes: the largest number for what is beyond, one NaN, ties to even. */
    { "cvt.rn.satfinite.e4m3x2.f32 %rs1, 0f3F800000, 0f44000000; cvt.u32.u16 %r9, %rs1;", 0x387eu },
    { "cvt.rn.satfinite.e4m3x2.f32 %rs1, 0fFFC00000, 0fBF800000; cvt.u32.u16 %r9, %rs1;", 0x7fb8u },
    { "cvt.rn.satfinite.e4m3x2.f32 %rs1, 0f3F980000, 0f3F880000; cvt.u32.u16 %r9, %rs1;", 0x3a38u },
    { "cvt.rn.satfinite.e5m2x2.f32 %rs1, 0f40000000, 0f7F800000; cvt.u32.u16 %r9, %rs1;", 0x407bu },
    { "mov.u16 %rs1, 0x1234; mov.u16 %rs2, 0x5678; mov.b32 %r9, {%rs1, %rs2};", 0x56781234u },
    { "mov.u64 %rd9, 0x123456789abcdef0; mov.b64 {%r8, %r9}, %rd9;", 0x12345678u },
    { "mov.f64 %fd1, 0d4008000000000000; cvt.rn.f32.f64 %f9, %fd1;" F9, 0x40400000u },
    { "mov.u32 %r9, 1; @%p9 mov.u32 %r9, 2; setp.eq.s32 %p8, 1, 1; @!%p8 mov.u32 %r9, 3;", 1 },
    /* names that hold between braces, the same ones twice */
    { "{ .reg .pred over; again: setp.eq.s32 over, 1, 1; @!over bra again; selp.b32 %r9, 7, 0, over; }", 7 },
    { "{ .reg .pred over; bra again; mov.u32 %r9, 1; again: mov.u32 %r9, 8; }", 8 },
    { "mov.u32 %r9, %ntid.x;", 1 },
    { "{ .param .b64 param0; st.param.f64 [param0+0], 0d4008000000000000; .param .b64 retval0;"
      " call.uni (retval0), doubled, (param0); ld.param.f64 %fd1, [retval0+0]; }"
      " cvt.rn.f32.f64 %f9, %fd1;" F9,
      0x40c00000u },
    { "ld.const.u32 %r9, [numbers+4];", 0xfffffffeu },
};

const char *const DECLARED =
    ".const .align 4 .u32 numbers[2] = {1, -2};\n"
    ".func (.param .b64 func_retval0) doubled(\n\t.param .b64 doubled_param_0\n)\n;\n"
    ".func (.param .b64 func_retval0) doubled(\n\t.param .b64 doubled_param_0\n)\n{\n"
    "\t.reg .f64 %fd<3>;\n\tld.param.f64 %fd1, [doubled_param_0];\n\tadd.rn.f64 %fd2, %fd1, %fd1;\n"
    "\tst.param.f64 [func_retval0+0], %fd2;\n\tret;\n}\n";

bool instructions()
{
    std::string body = "setp.ne.s32 %p9, 0, 0;\n";
    const size_t count = sizeof CASES / sizeof CASES[0];
    for (size_t i = 0; i < count; i++)
        body += std::string("\t") + CASES[i].text + "\n\tst.global.u32 [%rd1+" + std::to_string(4 * i) + "], %r9;\n";
    unsigned *out = to_device(std::vector<unsigned>(count, 0xdeadbeefu));
    bool right = launch_text(kernel_text(body, DECLARED), 1, 1, 0, out, 0);
    const std::vector<unsigned> results = to_host(out, count);
    for (size_t i = 0; i < count; i++)
        if (results[i] != CASES[i].expected) {
            fprintf(stderr, "%s: %08x, not %08x\n", CASES[i].text, results[i], CASES[i].expected);
            right = false;
        }
    return right;
}

/* Each lane gives its number; what comes, and whether it came from inside the segment. */
bool shuffles()
{
    const struct {
        const char *mode;
        int b, c;
        int (*source)(int lane);
    } cases[] = {
        { "bfly", 1, 31, [](int lane) { return lane ^ 1; } },
        { "up", 2, 0, [](int lane) { return lane - 2; } },
        { "down", 3, 31, [](int lane) { return lane + 3 < 32 ? lane + 3 : -1; } },
        { "idx", 5, 31, [](int) { return 5; } },
        /* segments of eight: c is (32 - 8) << 8, and 7 where the upper end limits */
        { "idx", 9, 0x1807, [](int lane) { return (lane & 24) + 1; } },
        { "down", 7, 0x1807, [](int lane) { return lane % 8 == 0 ? lane + 7 : -1; } },
        { "up", 7, 0x1800, [](int lane) { return lane % 8 == 7 ? lane - 7 : -1; } },
    };
    bool right = true;
    for (const auto &now : cases) {
        const std::string body = "mov.u32 %r2, %tid.x;\n mul.wide.u32 %rd2, %r2, 8;\n add.s64 %rd3, %rd1, %rd2;\n"
                                 " shfl.sync." +
                                 std::string(now.mode) + ".b32 %r3|%p1, %r2, " + std::to_string(now.b) + ", " +
                                 std::to_string(now.c) +
                                 ", -1;\n selp.u32 %r4, 1, 0, %p1;\n st.global.v2.u32 [%rd3], {%r3, %r4};\n";
        unsigned *out = to_device(std::vector<unsigned>(64));
        right = launch_text(kernel_text(body), 1, 32, 0, out, 0) && right;
        const std::vector<unsigned> results = to_host(out, 64);
        for (int lane = 0; lane < 32; lane++) {
            const int source = now.source(lane);
            const unsigned value = (unsigned)(source < 0 ? lane : source);
            if (results[(size_t)lane * 2] != value || results[(size_t)lane * 2 + 1] != (source < 0 ? 0u : 1u)) {
                fprintf(stderr, "%s: lane %d got %u, %u\n", now.mode, lane, results[(size_t)lane * 2],
                        results[(size_t)lane * 2 + 1]);
                right = false;
            }
        }
    }
    return right;
}

const char *const SHARED = ".extern .shared .align 1024 .b8 own[];\n";

/* Threads hand numbers on through shared memory, declared and the launch's own; block b, thread t gets t + 1 of both.
 * */
std::string exchange_text(bool synchronized)
{
    return kernel_text(std::string("\t.shared .align 16 .b8 words[256];\n"
                                   "mov.u32 %r2, %tid.x;\n shl.b32 %r3, %r2, 2;\n mov.u32 %r4, words;\n"
                                   " add.s32 %r5, %r4, %r3;\n st.shared.u32 [%r5], %r2;\n mov.u32 %r6, own;\n"
                                   " add.s32 %r7, %r6, %r3;\n add.s32 %r8, %r2, 100;\n st.shared.u32 [%r7], %r8;\n") +
                           (synchronized ? " bar.sync 0;\n" : "") +
                           " add.s32 %r10, %r2, 1;\n rem.u32 %r11, %r10, %r1;\n shl.b32 %r12, %r11, 2;\n"
                           " add.s32 %r13, %r4, %r12;\n ld.shared.u32 %r14, [%r13];\n add.s32 %r15, %r6, %r12;\n"
                           " ld.shared.u32 %r16, [%r15];\n mov.u32 %r17, %ctaid.x;\n mad.lo.s32 %r18, %r17, %r1, %r2;\n"
                           " mul.wide.u32 %rd2, %r18, 8;\n add.s64 %rd3, %rd1, %rd2;\n"
                           " st.global.v2.u32 [%rd3], {%r14, %r16};\n",
                       SHARED);
}

bool exchanges(bool synchronized)
{
    const int threads = 64, blocks = 3;
    unsigned *out = to_device(std::vector<unsigned>((size_t)(2 * threads * blocks)));
    bool right = launch_text(exchange_text(synchronized), blocks, threads, 4 * threads, out, threads);
    const std::vector<unsigned> results = to_host(out, (size_t)(2 * threads * blocks));
    for (size_t i = 0; i < results.size(); i++) {
        const unsigned next = (unsigned)(i / 2 % threads + 1) % threads;
        right = right && results[i] == next + (i % 2 != 0 ? 100 : 0);
    }
    return right;
}

/* atom.inc counts to a limit and begins anew; 96 threads in three blocks. */
bool atomics()
{
    const std::string body = "atom.global.add.u32 %r2, [%rd1], 2;\n atom.global.inc.u32 %r3, [%rd1+4], 9;\n"
                             " mov.u32 %r4, %tid.x;\n atom.global.max.u32 %r5, [%rd1+8], %r4;\n";
    unsigned *out = to_device(std::vector<unsigned>(3, 0));
    const bool ran = launch_text(kernel_text(body), 3, 32, 0, out, 0);
    return ran && to_host(out, 3) == std::vector<unsigned>{ 192, 96 % 10, 31 };
}

bool refused(const std::string &body)
{
    unsigned *out = to_device(std::vector<unsigned>(4, 0));
    return launch_text(kernel_text(body, SHARED), 1, 32, 64, out, 0) && cudaDeviceSynchronize() == cudaSuccess;
}

void refusals()
{
    const struct {
        const char *name, *report, *body;
    } cases[] = {
        { "an instruction that is not known", "an instruction that is not known: sin.approx.f32",
          "sin.approx.f32 %f1, %f2;\n" },
        { "a register that was not declared", "a register that was not declared", "mov.u32 %r99, 1;\n" },
        { "a label that is not there", "no label nowhere", "bra nowhere;\n" },
        { "a name that is not declared", "no variable missing", "mov.u32 %r2, missing;\n" },
        { "text without an end", "expected", "add.s32 %r2, %r1 %r1;\n" },
        { "a misaligned vector", "8 bytes at an address that is no multiple of that",
          "ld.global.v2.u32 {%r2, %r3}, [%rd1+4];\n" },
        { "a load past an allocation", "past the end of an allocation of 16 bytes",
          "ld.global.u32 %r2, [%rd1+4096];\n" },
        { "a load past shared memory", "shared array own", "mov.u32 %r2, own;\n ld.shared.u32 %r3, [%r2+4096];\n" },
        { "trap", "trap", "trap;\n" },
        { "a barrier that some threads miss", "__syncthreads",
          "mov.u32 %r2, %tid.x;\n setp.eq.s32 %p1, %r2, 3;\n @%p1 bra over;\n bar.sync 0;\nover:\n" },
    };
    for (const auto &now : cases)
        catches(now.name, now.report, [&now] { return refused(now.body); });
}

bool names()
{
    using emulator::ptx::host_name;
    return host_name("_ZN7hs_cuda18token_count_kernelEPKiS1_liPi") == "_ZN6hs_emu18token_count_kernelEPKiS1_liPi" &&
           host_name(
               "_ZN7hs_cuda44_GLOBAL__N__2daf130a_11_channels_cu_73bbecfc22channel_factors_kernelENS0_8ChannelsE") ==
               "_ZN6hs_emu12_GLOBAL__N_122channel_factors_kernelENS0_8ChannelsE";
}

} // namespace

int main()
{
    holds("instructions", instructions);
    holds("shuffles", shuffles);
    finds(
        "a missing bar.sync", nullptr, [] { return exchanges(true); }, [] { return exchanges(false); });
    holds("atomics", atomics);
    holds("names of kernels", names);
    refusals();
    return result();
}
