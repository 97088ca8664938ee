# SPDX-License-Identifier: MIT
#
# make          build/trainer, and with an NVIDIA GPU the part that runs on it
# One library from every folder, one program, one test program per file of tests/.  The CUDA backend and the emulator are
# shared objects, which programs open when a device asks for them (make cuda, make emu).  kernels/cpu/isa is compiled once
# for each instruction set; which one runs is chosen from cpuid at start.  V=1 shows whole command lines, WERROR=1 makes
# warnings errors.  Lines with two hashes are `make help`.

CC       ?= gcc
BUILD    ?= build
# Dependencies name objects as they were made: by one name, however BUILD was written.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))
PREFIX   ?= /usr/local
OPTIMIZE ?= -O2
SANITIZE ?=
WERROR   ?=
V        ?=

# Every source under these folders belongs to the library: a new file, or a new folder, needs no line here.
sources   = $(sort $(shell find kernels optim runtime -name '*.$(1)'))
ISAS     ?= $(if $(filter x86_64,$(shell uname -m)),portable avx2 avx512 avx512bf16 amx,portable)

# CUDA: `make NVCC=` knows of none.  The static runtime library needs no CUDA library at start.
NVCC     ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_LIBRARIES = $(firstword $(foreach d,lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib,\
                   $(patsubst %/libcudart_static.a,%,$(wildcard $(dir $(realpath $(NVCC)))../$(d)/libcudart_static.a))))
# Machine code for Ampere (8.0; 8.6, GeForce RTX 30), Ada (8.9, RTX 40) and Hopper, for Blackwell (10.0; 12.0, RTX 50)
# where this nvcc knows it, and PTX that the driver translates for what comes after.  For one GPU alone, in a fifth of the
# time: make CUDA_ARCHITECTURES='-gencode arch=compute_90,code=sm_90'
# Whether there is a GPU to build for without being asked.
GPU      := $(if $(NVCC),$(or $(wildcard /proc/driver/nvidia/version),$(shell nvidia-smi -L 2>/dev/null)))
, := ,
CUDA_CODES          := $(if $(NVCC),$(shell $(NVCC) --list-gpu-code 2>/dev/null))
CUDA_ARCHITECTURES  ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
                       $(foreach c,86 89 100 120,$(if $(filter sm_$(c),$(CUDA_CODES)),-gencode arch=compute_$(c)$(,)code=sm_$(c)))
# Sources that only Hopper runs: its own instructions are in none of the others.
HOPPER_SOURCES      = $(filter %_hopper.cu,$(call sources,cu)) $(wildcard bench/*_hopper.cu)
HOPPER_ARCHITECTURE = -gencode arch=compute_90a,code=sm_90a

PACKAGES  = yaml-0.1 libcjson libpcre2-8 libutf8proc libxxhash zlib libzstd libsodium
# Asked once: before `make packages` these are empty, and the make that it is followed by asks again.
PACKAGE_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PACKAGE_LIBS   := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)
WARNINGS  = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
CFLAGS   += -std=c11 -D_GNU_SOURCE -g $(OPTIMIZE) $(WARNINGS) -ffp-contract=off -fno-math-errno -fopenmp -I. $(SANITIZE) \
            $(PACKAGE_CFLAGS)
LDLIBS   += $(PACKAGE_LIBS) -lm -ldl -pthread
CXX_WARNINGS = -Wall -Wextra -Wshadow -Wno-unknown-pragmas -Wno-psabi $(if $(WERROR),-Werror)
# Of a part only its entry is visible.  What threads of the emulator keep is found without a call.
PART_FLAGS   = -fPIC -fvisibility=hidden
CXXFLAGS += -std=c++17 -D_GNU_SOURCE -DHS_EMU -g -O2 $(CXX_WARNINGS) $(PART_FLAGS) -ftls-model=initial-exec -ffp-contract=off -I. $(SANITIZE)
NVCCFLAGS += -std=c++17 -O3 -I. $(or $(ARCHITECTURE),$(CUDA_ARCHITECTURES)) -Xfatbin -compress-all -Xptxas -v \
             -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(if $(WERROR),-Werror all-warnings)
LDFLAGS  += -fopenmp $(SANITIZE)

# Per instruction set: the same sources, wider vectors.  Products and sums contract to fused multiply-adds here.
# Of debugging information these have lines alone: what follows variables through unrolled loops takes as long as all else.
ISA_COMMON      = -g1 -O3 -ffp-contract=fast -fno-trapping-math -Wno-psabi
ISA_portable    = $(ISA_COMMON)
ISA_avx2        = $(ISA_COMMON) -mavx2 -mfma -mf16c -mprfchw
ISA_avx512      = $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
ISA_avx512bf16  = $(ISA_avx512) -mavx512bf16
# All of the one before, and its products of bf16 by tiles.
ISA_amx         = $(ISA_avx512bf16) -DHS_ISA_avx512bf16=1 -mamx-tile -mamx-bf16

MAIN         = runtime/commands/main.c
SOURCES     := $(filter-out $(MAIN) kernels/cpu/isa/% kernels/mpi/%,$(call sources,c))
ISA_SOURCES := $(wildcard kernels/cpu/isa/*.c)
# kernels/cuda is compiled twice: for the emulator by the host's C++ compiler, and for GPUs where there is an nvcc.
CUDA_SOURCES := $(call sources,cu)
EMU_SOURCES  := $(call sources,cpp)
EMU_OBJECTS  = $(CUDA_SOURCES:%.cu=$(BUILD)/obj/%.emu.o) $(EMU_SOURCES:%.cpp=$(BUILD)/obj/%.emu.o)
CUDA_OBJECTS = $(if $(NVCC),$(CUDA_SOURCES:%.cu=$(BUILD)/obj/%.cuda.o))
# What takes longest to compile comes first.
OBJECTS      = $(foreach i,$(ISAS),$(ISA_SOURCES:%.c=$(BUILD)/obj/%.$(i).o)) $(SOURCES:%.c=$(BUILD)/obj/%.o)
LIBRARY      = $(BUILD)/libhalfstep.a
EMU_PART     = $(BUILD)/libhalfstep-emu.so
CUDA_PART    = $(BUILD)/libhalfstep-cuda.so
# Ranks over MPI: built with the compiler of the site's MPI, which knows its headers and libraries.
MPICC       ?= $(shell command -v mpicc)
MPI_PART     = $(BUILD)/libhalfstep-mpi.so
# In place of libnccl.so.2 on the emulator: for tests, and not installed.
STANDIN      = $(BUILD)/libhalfstep-nccl-standin.so
STANDIN_OBJECTS = $(patsubst %.cpp,$(BUILD)/obj/%.emu.o,$(wildcard tests/nccl/*.cpp))

TEST_SOURCES := $(sort $(shell find tests -name 'test_*.c'))
TEST_SUPPORT = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/support/*.c))
# A program a folder: build/tests/room/NAME; --filter 'suite/*' chooses among its tests.  Those of tests/plain are programs
# without the framework: they count allocations, or are there for ThreadSanitizer.
PLAIN_TESTS  = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/plain/test_*.c))
ROOM_SOURCES = $(filter-out tests/plain/%,$(TEST_SOURCES))
TEST_FOLDERS = $(sort $(patsubst %/,%,$(dir $(ROOM_SOURCES))))
TEST_OBJECTS = $(ROOM_SOURCES:%.c=$(BUILD)/obj/%.o)
TESTS        = $(patsubst %,$(BUILD)/tests/room/%,$(notdir $(TEST_FOLDERS))) $(PLAIN_TESTS)
# The emulator's own tests: kernels, some with planted bugs, compiled as the backend's are.
EMU_TESTS    = $(patsubst tests/%.cu,$(BUILD)/tests/%,$(wildcard tests/emu/test_*.cu))
# Programs that scripts of tests/cli run.
COMM_TESTS   = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/comm/*.c))
EXAMPLES     = $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))
BENCHES      = $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
FUZZERS      = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
C_FILES      = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')

Q = $(if $(V),,@)

.PHONY: all cuda emu mpi
all: $(BUILD)/trainer examples $(if $(GPU),cuda) ## build the trainer and the examples, and for an NVIDIA GPU that is here its kernels
cuda: $(if $(NVCC),$(CUDA_PART)) ## build the kernels for NVIDIA GPUs (device: cuda), also where there is no GPU; needs nvcc
	$(if $(NVCC),,@echo "make cuda needs nvcc, which was not found: install the CUDA toolkit, or say make cuda NVCC=/path/to/nvcc" >&2; exit 1)
emu: $(EMU_PART) $(STANDIN) ## build the emulator (device: emu), which runs the same kernels on the CPU for tests

mpi: $(if $(MPICC),$(MPI_PART)) ## build the part for training over MPI; needs the mpicc of the MPI that mpirun is of
	$(if $(MPICC),,@echo "make mpi needs mpicc, which was not found: install or load an MPI, or say make mpi MPICC=/path/to/mpicc" >&2; exit 1)

# A program lends the parts its hs_* functions, and looks for them in $(1).  An RPATH and not a RUNPATH: AddressSanitizer
# opens files in a program's place, and only the former counts then.
link_parts  = -Wl,--export-dynamic-symbol='hs_*' -Wl,--disable-new-dtags,-rpath,'$(1)'
# All of the library, as nobody knows what a part will ask for.
WHOLE       = -Wl,--whole-archive $(LIBRARY) -Wl,--no-whole-archive
# Tests and benchmarks; a copy of one takes the parts beside it.
LINK_HERE   = $(call link_parts,$$ORIGIN:$(abspath $(BUILD))) $(WHOLE)
LINK_PART   = $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=kernels/parts/exports.map
CUDART      = $(if $(NVCC),-L$(CUDA_LIBRARIES) -Wl$(,)--exclude-libs$(,)ALL -lcudart_static -lrt -ldl -pthread)

$(BUILD)/trainer: $(MAIN:%.c=$(BUILD)/obj/%.o) $(OBJECTS)
	@echo "  CC $@"
	$(Q)$(CC) $(LDFLAGS) $(call link_parts,$$ORIGIN:$$ORIGIN/../lib/halfstep) -o $@ $^ $(LDLIBS)

$(EMU_PART): $(EMU_OBJECTS)
	@echo "  CXX $@"
	$(Q)$(CXX) $(LINK_PART) -o $@ $^

$(MPI_PART): kernels/mpi/comm_mpi.c kernels/mpi/exports.map
	@mkdir -p $(@D)
	@echo "  MPICC $@"
	$(Q)$(MPICC) $(CFLAGS) -Wno-pedantic -fPIC -fvisibility=hidden $(LDFLAGS) -shared -Wl,-soname,$(@F) \
	    -Wl,--version-script=kernels/mpi/exports.map -MMD -MP -MF $@.d -o $@ $<
-include $(MPI_PART).d
$(STANDIN): $(STANDIN_OBJECTS)
	@echo "  CXX $@"
	$(Q)$(CXX) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^ -lrt

$(CUDA_PART): $(CUDA_OBJECTS)
	@echo "  CXX $@"
	$(Q)$(CXX) $(LINK_PART) -o $@ $^ $(CUDART)

define archive
	@mkdir -p $(@D)
	@rm -f $@
	@echo "  AR $@"
	$(Q)ar rcs $@ $^
endef
$(LIBRARY): $(OBJECTS)
	$(archive)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.emu.o: %.cu
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(CXXFLAGS) -x c++ -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.emu.o: %.cpp
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(CXXFLAGS) -MMD -MP -c -o $@ $<

# What ptxas says (registers, shared memory, spills) and the machine code for sm_80 (sm_90a of Hopper's, sm_89 of what needs
# mma.sync of FP8) are kept beside the object: tests/check_kernels.sh reads them.
KEPT_CODE = 80
$(BUILD)/obj/kernels/cuda/product/matmul_fp8.cuda.o: KEPT_CODE = 89
$(BUILD)/obj/%.cuda.o: %.cu
	@mkdir -p $(@D)/keep
	@echo "  NVCC $@"
	$(Q)$(NVCC) $(NVCCFLAGS) -keep -keep-dir $(@D)/keep -MMD -MP -c -o $@ $< 2>$(@:.o=.ptxas) || \
	    { cat $(@:.o=.ptxas); rm -f $@; exit 1; }
	@find $(@D)/keep \( -name '$(*F).*$(KEPT_CODE)*.cubin' -o -name '$(*F).cubin' \) -exec mv {} $(@:.o=.cubin) \;; rm -f $(@D)/keep/$(*F).*

$(HOPPER_SOURCES:%.cu=$(BUILD)/obj/%.cuda.o): ARCHITECTURE = $(HOPPER_ARCHITECTURE)

# kernels/cpu/isa/x.c -> x.portable.o, x.avx2.o, ...
define isa_rule
$(BUILD)/obj/kernels/cpu/isa/%.$(1).o: kernels/cpu/isa/%.c
	@mkdir -p $$(@D)
	@echo "  CC $$@"
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_$(1)) -DHS_ISA=$(1) -DHS_ISA_$(1)=1 -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))
# The chooser lists the instruction sets of this build.
$(BUILD)/obj/kernels/cpu/cpu.o: CFLAGS += $(ISAS:%=-DHS_HAS_ISA_%=1)

define room_rule
$(BUILD)/tests/room/$(notdir $(1)): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)/test_*.c)) $(TEST_SUPPORT) $(LIBRARY)
	@mkdir -p $$(@D)
	@echo "  CC $$@"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$(filter-out $(LIBRARY),$$^) $$(LINK_HERE) $$(LDLIBS) -lcriterion
endef
$(foreach folder,$(TEST_FOLDERS),$(eval $(call room_rule,$(folder))))

$(COMM_TESTS) $(PLAIN_TESTS): $(BUILD)/%: %.c $(TEST_SUPPORT) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(TEST_SUPPORT) $(LINK_HERE) $(LDLIBS) -lcriterion

# These have the emulator in themselves.
$(BUILD)/tests/emu/%: tests/emu/%.cu $(EMU_OBJECTS) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(CXXFLAGS) -x c++ -MMD -MP -MF $@.d -c -o $@.o $<
	$(Q)$(CXX) $(LDFLAGS) -o $@ $@.o $(EMU_OBJECTS) $(LIBRARY) $(LDLIBS)

# Kernel addresses are looked up by name in this program, which must not move.
$(BUILD)/tests/launches: tests/kernels/launches.c $(EMU_OBJECTS) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) -fno-pie -no-pie $(LDFLAGS) -o $@ $< $(EMU_OBJECTS) $(LIBRARY) $(LDLIBS) -lstdc++

# The logits of a folder, for tests/huggingface.
$(BUILD)/tests/huggingface/logits: tests/huggingface/logits.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LINK_HERE) $(LDLIBS)

$(BUILD)/examples/%: examples/%.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LINK_HERE) $(LDLIBS)

$(BUILD)/bench/%: bench/%.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LINK_HERE) $(LDLIBS)

# The instructions that the emulator imitates, by the hardware and by the emulator: parts that hold the experiments, too.
BENCH_PARTS = $(BUILD)/bench/parts/libhalfstep-emu.so $(if $(NVCC),$(BUILD)/bench/parts/libhalfstep-cuda.so)
EMU_FRAGMENTS  = $(BUILD)/obj/bench/fragments.emu.o $(BUILD)/obj/bench/fragments_hopper.emu.o
CUDA_FRAGMENTS = $(EMU_FRAGMENTS:.emu.o=.cuda.o)
$(BUILD)/bench/parts/libhalfstep-emu.so: $(EMU_OBJECTS) $(EMU_FRAGMENTS)
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(LINK_PART) -o $@ $^
$(BUILD)/bench/parts/libhalfstep-cuda.so: $(CUDA_OBJECTS) $(CUDA_FRAGMENTS)
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(LINK_PART) -o $@ $^ $(CUDART)
$(BUILD)/bench/fragments: bench/fragments.c $(LIBRARY) | $(BUILD)/bench/parts/libhalfstep-emu.so
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(call link_parts,$$ORIGIN/parts) $(WHOLE) $(LDLIBS)

$(BUILD)/bench/collectives: | $(STANDIN)

# The programs of bench/gpu.sh as one, so that the library is there once: each source with another name for main.
PACKAGE_PROGRAMS = trainer fragments agreement products fp8 attention bandwidth ops collectives
PACKAGE_OBJECTS  = $(PACKAGE_PROGRAMS:%=$(BUILD)/obj/package/%.o)
PACKAGE_TABLE    = -DHS_PACKAGE_PROGRAMS(X)=$(foreach program,$(PACKAGE_PROGRAMS),X($(program)))
PACKAGE_DEFINES  = -Dmain=hs_main_$(*F) -Wno-missing-prototypes
$(BUILD)/obj/package/%.o: bench/%.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(PACKAGE_DEFINES) -MMD -MP -c -o $@ $<
$(BUILD)/obj/package/trainer.o: $(MAIN)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(PACKAGE_DEFINES) -MMD -MP -c -o $@ $<
$(BUILD)/halfstep-gpu: bench/package/multicall.c $(PACKAGE_OBJECTS) $(LIBRARY) | $(BUILD)/bench/parts/libhalfstep-emu.so
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) '$(PACKAGE_TABLE)' $(LDFLAGS) -o $@ $< $(PACKAGE_OBJECTS) $(call link_parts,$$ORIGIN/parts:$$ORIGIN/bench/parts) $(WHOLE) $(LDLIBS)
.PHONY: gpu-package
gpu-package: $(BUILD)/halfstep-gpu $(BENCH_PARTS) $(STANDIN) ## build/gpu-package: what bench/gpu.sh needs on a machine with a GPU and nothing else
	@bench/package/make.sh $(BUILD) $(BUILD)/gpu-package

# AMD's compiler, on the kernels that need neither tensor cores nor other instructions of NVIDIA's alone.
HIPCC           ?= hipcc
HIP_ARCHITECTURE ?= gfx90a
HIP_SOURCES      = $(wildcard kernels/cuda/layers/*.cu kernels/cuda/update/*.cu kernels/cuda/attention/*_exact.cu) \
                   kernels/cuda/attention/attention_cached.cu kernels/cuda/product/matmul_bias_backward.cu kernels/cuda/comm/fold.cu
HIP_OBJECTS      = $(HIP_SOURCES:%.cu=$(BUILD)/obj/%.hip.o)
$(BUILD)/obj/%.hip.o: %.cu
	@mkdir -p $(@D)
	@echo "  HIPCC $@"
	$(Q)$(HIPCC) -x hip --offload-arch=$(HIP_ARCHITECTURE) -std=c++17 -O3 -fPIC -I. -MMD -MP -c -o $@ $<
-include $(HIP_OBJECTS:.o=.d)
.PHONY: hip
hip: $(HIP_OBJECTS) ## compile for AMD GPUs what needs no tensor cores; untried on hardware, and no part of a trainer
	@echo "compiled for $(HIP_ARCHITECTURE): $(words $(HIP_OBJECTS)) sources; never run on such a GPU, and products and the device are missing: nothing trains with them yet"

.PHONY: examples bench-programs test-programs
examples: $(EXAMPLES)
bench-programs: $(BENCHES) $(BENCH_PARTS)
test-programs: $(TESTS) $(EMU_TESTS) $(COMM_TESTS)

-include $(patsubst %.o,%.d,$(OBJECTS) $(EMU_OBJECTS) $(STANDIN_OBJECTS) $(CUDA_OBJECTS) $(EMU_FRAGMENTS) $(CUDA_FRAGMENTS)) $(PACKAGE_OBJECTS:.o=.d) $(TEST_SUPPORT:.o=.d) $(TEST_OBJECTS:.o=.d) $(MAIN:%.c=$(BUILD)/obj/%.d) $(COMM_TESTS:=.d) $(PLAIN_TESTS:=.d) $(EMU_TESTS:=.d) $(BENCHES:=.d)

# ---------------------------------------------------------------------------------------------------------------------
# Packages.  Nothing but a C compiler, make and apt is expected of a machine.
APT_BUILD = gcc g++ libc6-dev make pkg-config libyaml-dev libcjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libsodium-dev
APT_TEST  = libcriterion-dev zstd python3 openmpi-bin libopenmpi-dev
APT_CHECK = git clang clang-format libclang-rt-14-dev libomp-dev python3-yaml
# One job a core, unless the caller already said how many.
JOBS      = $(if $(findstring j,$(firstword $(MAKEFLAGS))),,-j$(shell nproc))
SUDO      = $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: packages packages-test packages-check packages-hip
packages: ## install what building needs (apt)
	@tests/packages.sh "$(SUDO)" $(APT_BUILD)
packages-test: ## install what the tests need besides
	@tests/packages.sh "$(SUDO)" $(APT_BUILD) $(APT_TEST)
packages-check: ## install what `make check` and `make fuzz` need besides
	@tests/packages.sh "$(SUDO)" $(APT_BUILD) $(APT_TEST) $(APT_CHECK)
packages-hip: ## install AMD's compiler for `make hip`, where the system has it as a package
	@tests/packages.sh "$(SUDO)" hipcc

.PHONY: demo
demo: packages ## install, build, train configs/cl.yaml, show what was learned and forgotten
	+$(MAKE) $(JOBS) all
	$(BUILD)/trainer --config configs/cl.yaml
	@echo "The run's files:"; find runs/cl -maxdepth 2 | sort
	@echo "The page: $(CURDIR)/runs/cl/report.html"
	@echo "Next: $(BUILD)/trainer generate --checkpoint runs/cl --prompt '12+30=' --tokens 60"

# The parts that were built go along.
ROOT        = $(DESTDIR)$(PREFIX)
INSTALLED   = bin/trainer $(addprefix lib/halfstep/,$(notdir $(EMU_PART) $(CUDA_PART) $(MPI_PART))) share/man/man1/trainer.1 \
              share/bash-completion/completions/trainer include/halfstep/memory_hooks.h
.PHONY: install uninstall
install: $(BUILD)/trainer ## install under PREFIX (/usr/local): the trainer, parts that were built, manual page, completion, the header for allocators
	install -d $(addprefix $(ROOT)/,$(sort $(dir $(INSTALLED))))
	install -s -m 755 $(BUILD)/trainer $(ROOT)/bin/trainer
	$(foreach part,$(wildcard $(EMU_PART) $(CUDA_PART) $(MPI_PART)),install -s -m 755 $(part) $(ROOT)/lib/halfstep;)
	install -m 644 kernels/base/memory_hooks.h $(ROOT)/include/halfstep
	$(BUILD)/trainer reference --man >$(ROOT)/share/man/man1/trainer.1
	$(BUILD)/trainer reference --completion bash >$(ROOT)/share/bash-completion/completions/trainer
	chmod 644 $(ROOT)/share/man/man1/trainer.1 $(ROOT)/share/bash-completion/completions/trainer
uninstall: ## remove what install put there
	rm -f $(addprefix $(ROOT)/,$(INSTALLED))
	@for folder in lib include; do [ ! -d $(ROOT)/$$folder/halfstep ] || rmdir --ignore-fail-on-non-empty $(ROOT)/$$folder/halfstep; done

# ---------------------------------------------------------------------------------------------------------------------
.PHONY: test test-quick test-whole run-tests
TIER = test
test: packages-test ## every test
	+$(MAKE) $(JOBS) run-tests
test-quick: packages-test ## those of at most five seconds that need no emulator
	+$(MAKE) $(JOBS) run-tests TIER=quick
test-whole: packages-test ## every test, with whole products of choices in place of pairwise coverings
	+$(MAKE) $(JOBS) run-tests TIER=nightly
run-tests: $(BUILD)/trainer $(EMU_PART) $(STANDIN) $(if $(MPICC),$(MPI_PART)) $(BUILD)/faults/shim.so test-programs examples $(BUILD)/bench/profile $(BUILD)/bench/fragments $(BUILD)/halfstep-gpu
	@BUILD=$(BUILD) TIER=$(TIER) BUDGET=$(if $(SANITIZE),no,yes) tests/run.sh $(TESTS) $(EMU_TESTS)

# gcc's analyzer looks at every path through the C sources.  Three of its questions it cannot answer here: who owns what was put
# into an array (the sanitizers' leaks and `make faults` know), whether a loop filled one, and whether a table has the
# row of a name that was checked before; and it takes a vector's width for its elements'.  It is asked all others, as
# whether every allocation is looked at.
ANALYZE = -O1 -fanalyzer -include tests/support/analyze.h -Wno-analyzer-malloc-leak -Wno-analyzer-use-of-uninitialized-value \
          -Wno-analyzer-null-dereference -Wno-analyzer-shift-count-overflow
.PHONY: analyze clang-build
analyze: ## gcc's static analyzer over every C file
	+@$(MAKE) --no-print-directory BUILD=build/analyze ISAS=portable NVCC= OPTIMIZE="$(ANALYZE)" WERROR=1 build/analyze/libhalfstep.a
clang-build: ## trainer and parts by clang, which warns of other things
	+@$(MAKE) --no-print-directory BUILD=build/clang CC=clang CXX=clang++ WERROR=1 all emu
	build/clang/trainer selftest --no-speed

.PHONY: asan ubsan
asan: ## the tests under AddressSanitizer and LeakSanitizer
	+$(MAKE) BUILD=build/asan OPTIMIZE=-O1 SANITIZE="-fsanitize=address -fno-omit-frame-pointer" run-tests
ubsan: ## the tests under UndefinedBehaviorSanitizer
	+$(MAKE) BUILD=build/ubsan OPTIMIZE=-O1 SANITIZE="-fsanitize=undefined -fno-sanitize-recover=all" run-tests

.PHONY: check check-format check-deps check-size check-docs format
check: check-format check-deps check-size check-warnings check-docs $(if $(NVCC),check-kernels) ## format, folder dependencies, file sizes, warnings, generated documents, kernels
check-format:
	@clang-format --dry-run -Werror $(C_FILES)
check-deps: ## arrows between folders point one way; each outside library lives in one file
	@tests/check_deps.sh
check-size: ## no function over 80 lines, no CUDA kernel over 120; rooms and tests within their budgets of lines and time
	@tests/check_size.sh $(C_FILES)
	@tests/check_durations.sh
	@tests/check_lines.sh
# In a folder of its own, unless this build has no warnings already.
.PHONY: check-warnings
check-warnings: ## no file, tests included, compiles with a warning
	+@$(MAKE) $(JOBS) --no-print-directory WERROR=1 $(if $(WERROR),,BUILD=$(BUILD)/warnings NVCC=) all emu test-programs bench-programs
check-docs: $(BUILD)/trainer $(EMU_PART) ## the generated reference, predictions and reading order are fresh
	@$(BUILD)/trainer reference | diff -u configs/REFERENCE.md - || { echo "run: make docs"; exit 1; }
	@BUILD=$(BUILD) tests/predicted.sh | diff -u kernels/cuda/PREDICTED.md - || { echo "run: make docs"; exit 1; }
	@tests/check_spine.sh
.PHONY: check-kernels docs
check-kernels: $(CUDA_OBJECTS) $(BUILD)/tests/launches ## kernels: no spills, tensor cores where they belong, a fresh table
	$(if $(NVCC),,$(error check-kernels needs nvcc))
	@BUILD=$(BUILD) NVCC=$(NVCC) tests/check_kernels.sh
docs: $(BUILD)/trainer $(EMU_PART) $(if $(NVCC),$(CUDA_OBJECTS) $(BUILD)/tests/launches) ## generate configs/REFERENCE.md, kernels/cuda/PREDICTED.md and KERNELS.md
	$(BUILD)/trainer reference > configs/REFERENCE.md
	BUILD=$(BUILD) tests/predicted.sh > kernels/cuda/PREDICTED.md
	tests/check_spine.sh --write
	$(if $(NVCC),BUILD=$(BUILD) NVCC=$(NVCC) tests/check_kernels.sh --write,@echo "kernels/cuda/KERNELS.md needs nvcc: left as it is")
format: ## format every C file
	clang-format -i $(C_FILES)

# Fuzzing: clang's libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer over the parsers of bytes.
FUZZ_SECONDS ?= 600
FUZZ_FLAGS    = -std=c11 -D_GNU_SOURCE -g -O1 -I. -fsanitize=address,undefined -fno-sanitize-recover=undefined $(PACKAGE_CFLAGS)
# Of all sources a fuzzer takes what its parser calls.
FUZZ_OBJECTS  = $(SOURCES:%.c=$(BUILD)/fuzz/obj/%.o)
.PHONY: fuzz
fuzz: $(FUZZERS) ## fuzz every parser for FUZZ_SECONDS (600) each
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh $(FUZZERS)
$(BUILD)/fuzz/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)clang $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<
$(BUILD)/fuzz/libhalfstep.a: $(FUZZ_OBJECTS)
	$(archive)
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/libhalfstep.a
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)clang $(FUZZ_FLAGS) -fsanitize=fuzzer -MMD -MP -MF $@.d -o $@ $< $(BUILD)/fuzz/libhalfstep.a $(LDLIBS)
-include $(FUZZ_OBJECTS:.o=.d) $(FUZZERS:=.d)

.PHONY: test-kill
test-kill: $(BUILD)/trainer $(EMU_PART) $(BUILD)/faults/shim.so ## the part of `make faults` that kills: in every phase and at a thousand moments, resume, compare with an undisturbed run
	@BUILD=$(BUILD) tests/faults/run.sh kills phases

# What fails calls of a program's from outside (LD_PRELOAD).
$(BUILD)/faults/shim.so: tests/faults/shim.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -g -O1 -fno-builtin -fPIC -shared $(WARNINGS) -o $@ $< -ldl -pthread

.PHONY: test-equal
test-equal: $(BUILD)/trainer ## the same bits by 1, 2 and 4 processes in every stage of distributed.zero, for every strategy and update rule
	@BUILD=$(BUILD) tests/equal_processes.sh

.PHONY: faults
faults: $(BUILD)/trainer $(EMU_PART) $(BUILD)/faults/shim.so ## allocations, system calls and disks that fail, kills, hostile files: every part of tests/faults
	@BUILD=$(BUILD) tests/faults/run.sh

.PHONY: test-schedules
test-schedules: $(BUILD)/trainer $(EMU_PART) $(BUILD)/tests/room/ops $(BUILD)/bench/agreement ## kernels with roles and rings on the emulator, in 16 orders of events
	BUILD=$(BUILD) tests/schedules.sh

.PHONY: test-planted
test-planted: $(BUILD)/trainer $(EMU_PART) $(BUILD)/tests/room/ops $(BUILD)/bench/agreement ## mistakes planted into the Hopper kernels, each of which the emulator has to find
	@BUILD=$(BUILD) CXX="$(CXX)" CXXFLAGS="$(CXXFLAGS)" LDFLAGS="$(LDFLAGS)" OBJECTS="$(EMU_OBJECTS)" \
	    tests/planted.sh $(if $(PLANTED),'$(PLANTED)')

# What CuTe says is compiled by the script, where its headers can be had.
LAYOUTS = $(patsubst %,$(BUILD)/obj/%.emu.o,$(basename $(filter-out %/cute.cpp,$(wildcard tests/layouts/*.cu tests/layouts/*.cpp))))
# An archive, as two of these objects include kernels whose own objects must then stay out.
$(BUILD)/tests/libemulator.a: $(EMU_OBJECTS)
	$(archive)
$(BUILD)/tests/compare_layouts: $(LAYOUTS) $(BUILD)/tests/libemulator.a $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
-include $(LAYOUTS:.o=.d)

.PHONY: test-layouts
test-layouts: $(BUILD)/tests/compare_layouts ## layouts of tensor-core instructions against CuTe's, which pip brings
	@BUILD=$(BUILD) CXX="$(CXX)" NVCC="$(NVCC)" tests/layouts/run.sh

# What tests/tokenizers/compare.py runs.
$(BUILD)/tests/tokenize: tests/tokenizers/tokenize.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LIBRARY) $(LDLIBS)
-include $(BUILD)/tests/tokenize.d

.PHONY: test-tokenizers
test-tokenizers: $(BUILD)/trainer $(BUILD)/tests/tokenize ## tokenizers token for token against the `tokenizers` library, which pip brings
	@BUILD=$(BUILD) tests/tokenizers/run.sh

# Python with transformers, PEFT, gguf and torch; where these are not installed the test is skipped.
TRANSFORMERS_PYTHON = python3
.PHONY: test-round-trips
test-round-trips: $(BUILD)/trainer $(BUILD)/tests/tokenize $(BUILD)/tests/huggingface/logits ## exports read by transformers, PEFT and llama.cpp, where TRANSFORMERS_PYTHON has them
	@RUST_BACKTRACE=0 $(TRANSFORMERS_PYTHON) tests/huggingface/round_trips/compare_exports.py $(BUILD) $(BUILD)/round_trips

# A seed a day; one folder takes a tenth of a second.
FOLDERS      = 5000
FOLDERS_SEED = $(shell date +%j)
.PHONY: test-folders
test-folders: $(BUILD)/trainer ## models' folders changed at random, read by transformers and by the trainer
	@$(TRANSFORMERS_PYTHON) tests/huggingface/folders.py $(BUILD)/trainer $(FOLDERS) $(FOLDERS_SEED)

.PHONY: test-gpu-script
test-gpu-script: $(BUILD)/halfstep-gpu $(BENCH_PARTS) $(STANDIN) ## bench/gpu.sh's three calls on the emulator, and faults that must not hide other results
	@BUILD=$(BUILD) CXX="$(CXX)" CXXFLAGS="$(CXXFLAGS)" LDFLAGS="$(LDFLAGS)" OBJECTS="$(EMU_OBJECTS) $(EMU_FRAGMENTS)" tests/gpu_faults.sh

.PHONY: test-agreement
test-agreement: $(BUILD)/bench/agreement $(EMU_PART) ## large products and attention on the emulator, laid out for 132 and 4 multiprocessors
	HALFSTEP_MULTIPROCESSORS=132 $(BUILD)/bench/agreement --device emu attention
	HALFSTEP_MULTIPROCESSORS=132 $(BUILD)/bench/agreement --device emu products:bias
	HALFSTEP_MULTIPROCESSORS=4 $(BUILD)/bench/agreement --device emu "products:GELU's derivative"

# What takes too long for every change.
NIGHTLY = test-whole asan ubsan analyze clang-build test-layouts test-tokenizers test-round-trips test-folders test-gpu-script test-agreement test-schedules test-planted test-equal faults fuzz
.PHONY: nightly
nightly: packages-check ## the long campaigns, one after another (hours); NIGHTLY='faults fuzz' chooses
	+@failed=; for part in $(NIGHTLY); do echo "== $$part"; $(MAKE) $(JOBS) $$part || failed="$$failed $$part"; done; \
	    [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

.PHONY: help clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'
clean: ## remove what was built
	rm -rf build
