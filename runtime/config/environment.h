/* SPDX-License-Identifier: MIT
 *
 * The environment variables of this program, for the reference: they choose among ways to compute the same, and serve
 * tests and measurements.  What a run computes stands in its configuration.  `make check-deps` finds a variable that is
 * read somewhere and missing here.
 */
#ifndef HS_RUNTIME_CONFIG_ENVIRONMENT_H
#define HS_RUNTIME_CONFIG_ENVIRONMENT_H

/* name, values, what it is when not set, meaning */
#define HS_ENVIRONMENT(X)                                                                                              \
    X(HALFSTEP_CPU_ISA, "portable, avx2, avx512, avx512bf16, amx; on Arm neon, neonbf16",                              \
      "the best that the processor has", "instruction set of the CPU's kernels")                                       \
    X(HALFSTEP_CPU_PEAK, "operations a second, such as 2.5e11", "measured as a run begins and ends",                   \
      "what shares of the CPU's peak are of, so that runs compare; a start is a tenth of a second shorter")            \
    X(HALFSTEP_MULTIPROCESSORS, "1 to 4096", "the GPU's own",                                                          \
      "lay work out as for a GPU of this many multiprocessors (cuda, emu); the device's description in the log says "  \
      "so. "                                                                                                           \
      "Sums are cut in other places, so the last bits change")                                                         \
    X(HALFSTEP_HOPPER_STORES, "lines, copies", "lines",                                                                \
      "how Hopper's products store: whole lines by their warps, or all by tensor copies, for comparison")              \
    X(HALFSTEP_GATES, "epilogue, apart", "epilogue",                                                                   \
      "where a GPU computes SwiGLU and GEGLU: at the end of the product before them, or in a kernel behind it, for "   \
      "comparison, with the same bits")                                                                                \
    X(HALFSTEP_NCCL, "a path", "libnccl.so.2; its stand-in for device: emu",                                           \
      "the library by which GPUs exchange, NCCL 2.14 or later (cuda, emu)")                                            \
    X(HALFSTEP_EMU_SCHEDULE, "pct, forward, reverse, random", "pct", "device: emu: which thread runs next")            \
    X(HALFSTEP_EMU_SEED, "0 to 2^64 - 1", "1", "device: emu: of the schedule and of poisoned memory")                  \
    X(HALFSTEP_EMU_COPIES, "late, early", "late", "device: emu: when asynchronous copies arrive")                      \
    X(HALFSTEP_EMU_STREAMS, "late, early", "late", "device: emu: when a stream's work is done")                        \
    X(HALFSTEP_EMU_GUARD, "on, off", "on", "device: emu: the host cannot touch device memory")                         \
    X(HALFSTEP_EMU_APPROXIMATE, "exact, above, below, mixed", "exact",                                                 \
      "device: emu: how approximate instructions are off, by all that is documented")                                  \
    X(HALFSTEP_EMU_SUMS, "exact, truncate", "exact",                                                                   \
      "device: emu: tensor cores add in f32, or cut terms at the largest one's exponent as published, FP8 at 13 bits") \
    X(HALFSTEP_EMU_THREADS, "1 to 256", "one a core, at most 8", "device: emu: host threads that run blocks")          \
    X(HALFSTEP_EMU_SHARED, "48 to 1024 (KiB)", "227",                                                                  \
      "device: emu: shared memory of a block, and so which GPU it is: 227 compute capability 9.0, 163 8.0, 99 8.9")    \
    X(HALFSTEP_EMU_PTX, "a folder", "none",                                                                            \
      "device: emu: run the kernels of this folder's PTX, which make ptx writes, in place of the host compiler's")     \
    X(HALFSTEP_EMU_PTX_COMPARE, "a path", "none",                                                                      \
      "device: emu: run each kernel both ways; a line for each goes into this file: launches, and how many differ")    \
    X(HALFSTEP_FAULT, "rank=R,step=S,do=kill, stop, exit or delay:SECONDS", "none",                                    \
      "for tests: what happens to one process of several as it comes to a step")                                       \
    X(HALFSTEP_SECRET, "16 bytes or more", "none",                                                                     \
      "where ranks meet over TCP (torchrun, srun, mpirun): what each proves that it knows before anything it sends "   \
      "is read; the "                                                                                                  \
      "same for all ranks, and needed where rank 0 is not on the loopback address")                                    \
    X(HALFSTEP_SECRET_FILE, "a path", "none", "the same from a file, which only its owner may read (chmod 600)")       \
    X(HALFSTEP_RANK, "0 to 1023", "none", "set by --processes for those it starts: which of them this is")             \
    X(HALFSTEP_PROCESSES, "1 to 1024", "none", "set by --processes for those it starts: how many there are")           \
    X(HALFSTEP_SEGMENT, "a descriptor", "none", "set by --processes for those it starts: their shared memory")

#endif
