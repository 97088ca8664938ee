# SPDX-License-Identifier: MIT
#
# make          build/trainer (warnings are errors)
# One library from every folder, one program, one test program per file of tests/.  kernels/cpu/isa is compiled once for
# each instruction set; which one runs is chosen from cpuid at start.  V=1 shows whole command lines.  Lines with two hashes
# are `make help`.

CC       ?= gcc
BUILD    ?= build
PREFIX   ?= /usr/local
OPTIMIZE ?= -O2
SANITIZE ?=
V        ?=

# Folders that make up the library, lowest first.
DIRS     ?= kernels/base kernels kernels/ref kernels/cpu kernels/cuda optim runtime runtime/layers runtime/data runtime/selftest runtime/commands
ISAS     ?= $(if $(filter x86_64,$(shell uname -m)),portable avx2 avx512 avx512bf16,portable)

# CUDA: `make NVCC=` builds without it.  The static runtime library needs no CUDA library at start.
NVCC     ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_LIBRARIES = $(firstword $(foreach d,lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib,\
                   $(patsubst %/libcudart_static.a,%,$(wildcard $(dir $(realpath $(NVCC)))../$(d)/libcudart_static.a))))
# Machine code for Ampere, Ada (which runs Ampere's) and Hopper, for Blackwell (10.0, 12.0) where this nvcc knows it, and
# PTX that the driver translates for what comes after.  For one GPU alone, in a third of the time:
# make CUDA_ARCHITECTURES='-gencode arch=compute_90,code=sm_90'
, := ,
CUDA_CODES          := $(if $(NVCC),$(shell $(NVCC) --list-gpu-code 2>/dev/null))
CUDA_ARCHITECTURES  ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
                       $(foreach c,100 120,$(if $(filter sm_$(c),$(CUDA_CODES)),-gencode arch=compute_$(c)$(,)code=sm_$(c)))
# Sources that only Hopper runs: its own instructions are in none of the others.
HOPPER_SOURCES      = $(wildcard kernels/cuda/*_hopper.cu bench/*_hopper.cu)
HOPPER_ARCHITECTURE = -gencode arch=compute_90a,code=sm_90a

PACKAGES  = yaml-0.1 libcjson libpcre2-8 libutf8proc libxxhash zlib libzstd
# Asked once: before `make packages` these are empty, and the make that it is followed by asks again.
PACKAGE_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PACKAGE_LIBS   := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)
WARNINGS  = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Werror
CFLAGS   += -std=c11 -D_GNU_SOURCE -g $(OPTIMIZE) $(WARNINGS) -ffp-contract=off -fno-math-errno -fopenmp -I. $(SANITIZE) \
            $(PACKAGE_CFLAGS)
LDLIBS   += $(PACKAGE_LIBS) $(if $(NVCC),-L$(CUDA_LIBRARIES) -lcudart_static -lrt) -lstdc++ -lm -ldl -pthread
CXX_WARNINGS = -Wall -Wextra -Wshadow -Wno-unknown-pragmas -Wno-psabi -Werror
CXXFLAGS += -std=c++17 -D_GNU_SOURCE -DHS_EMU -g -O2 $(CXX_WARNINGS) -ffp-contract=off -I. $(SANITIZE)
NVCCFLAGS += -std=c++17 -O3 -I. $(or $(ARCHITECTURE),$(CUDA_ARCHITECTURES)) -Xfatbin -compress-all -Xcompiler -Wall,-Wextra -Werror all-warnings -Xptxas -v
LDFLAGS  += -fopenmp $(SANITIZE)

# Per instruction set: the same sources, wider vectors.  Products and sums contract to fused multiply-adds here.
ISA_COMMON      = -O3 -ffp-contract=fast -fno-trapping-math -Wno-psabi
ISA_portable    = $(ISA_COMMON)
ISA_avx2        = $(ISA_COMMON) -mavx2 -mfma -mf16c -mprfchw
ISA_avx512      = $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
ISA_avx512bf16  = $(ISA_avx512) -mavx512bf16

SOURCES      = $(filter-out runtime/main.c,$(foreach d,$(DIRS),$(wildcard $(d)/*.c)))
ISA_SOURCES  = $(if $(filter kernels/cpu,$(DIRS)),$(wildcard kernels/cpu/isa/*.c))
# kernels/cuda is compiled twice: for the emulator by the host's C++ compiler, and for GPUs where there is an nvcc.
CUDA_SOURCES = $(if $(filter kernels/cuda,$(DIRS)),$(wildcard kernels/cuda/*.cu))
EMU_SOURCES  = $(if $(filter kernels/cuda,$(DIRS)),$(wildcard kernels/cuda/emu/*.cpp))
EMU_OBJECTS  = $(CUDA_SOURCES:%.cu=$(BUILD)/obj/%.emu.o) $(EMU_SOURCES:%.cpp=$(BUILD)/obj/%.emu.o)
CUDA_OBJECTS = $(if $(NVCC),$(CUDA_SOURCES:%.cu=$(BUILD)/obj/%.cuda.o))
OBJECTS      = $(SOURCES:%.c=$(BUILD)/obj/%.o) $(foreach i,$(ISAS),$(ISA_SOURCES:%.c=$(BUILD)/obj/%.$(i).o)) \
               $(EMU_OBJECTS) $(CUDA_OBJECTS)
LIBRARY      = $(BUILD)/libhalfstep.a

TEST_DIRS    = unit ops grad golden
TEST_SOURCES = $(foreach d,$(TEST_DIRS),$(wildcard tests/$(d)/test_*.c))
TEST_SUPPORT = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/support/*.c))
TESTS        = $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
# The emulator's own tests: kernels, some with planted bugs, compiled as the backend's are.
EMU_TESTS    = $(patsubst tests/%.cu,$(BUILD)/tests/%,$(wildcard tests/emu/test_*.cu))
EXAMPLES     = $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))
BENCHES      = $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
FUZZERS      = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
C_FILES      = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')

Q = $(if $(V),,@)

.PHONY: all
all: $(BUILD)/trainer examples ## build the trainer and the examples
	$(if $(NVCC),,@echo "no nvcc was found: built without kernels for GPUs (device: emu runs them on the CPU, slowly)")

$(BUILD)/trainer: $(BUILD)/obj/runtime/main.o $(OBJECTS)
	@echo "  CC $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(LIBRARY): $(OBJECTS)
	@rm -f $@
	@echo "  AR $@"
	$(Q)ar rcs $@ $^

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

# What ptxas says (registers, shared memory, spills) and the machine code for sm_80 (or sm_90a) are kept beside the object:
# tests/check_kernels.sh reads them.
$(BUILD)/obj/%.cuda.o: %.cu
	@mkdir -p $(@D)/keep
	@echo "  NVCC $@"
	$(Q)$(NVCC) $(NVCCFLAGS) -keep -keep-dir $(@D)/keep -MMD -MP -c -o $@ $< 2>$(@:.o=.ptxas) || \
	    { cat $(@:.o=.ptxas); rm -f $@; exit 1; }
	@find $(@D)/keep \( -name '$(*F).*80*.cubin' -o -name '$(*F).cubin' \) -exec mv {} $(@:.o=.cubin) \;; rm -f $(@D)/keep/$(*F).*

$(HOPPER_SOURCES:%.cu=$(BUILD)/obj/%.cuda.o): ARCHITECTURE = $(HOPPER_ARCHITECTURE)

# kernels/cpu/isa/x.c -> x.portable.o, x.avx2.o, ...
define isa_rule
$(BUILD)/obj/kernels/cpu/isa/%.$(1).o: kernels/cpu/isa/%.c
	@mkdir -p $$(@D)
	@echo "  CC $$@"
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_$(1)) -DHS_ISA=$(1) -DHS_ISA_$(1)=1 -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))
# Whether this build has kernels for GPUs.
$(BUILD)/obj/runtime/engine.o: CFLAGS += $(if $(NVCC),-DHS_HAS_CUDA=1)
# The chooser lists the instruction sets of this build.
$(BUILD)/obj/kernels/cpu/cpu.o: CFLAGS += $(ISAS:%=-DHS_HAS_ISA_%=1)

.SECONDARY: $(TEST_SUPPORT)
$(BUILD)/tests/%: tests/%.c $(TEST_SUPPORT) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(TEST_SUPPORT) $(LIBRARY) $(LDLIBS) -lcriterion

$(BUILD)/tests/emu/%: tests/emu/%.cu $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CXX $@"
	$(Q)$(CXX) $(CXXFLAGS) -x c++ -MMD -MP -MF $@.d -c -o $@.o $<
	$(Q)$(CXX) $(LDFLAGS) -o $@ $@.o $(LIBRARY) $(LDLIBS)

# Kernel addresses are looked up by name in this program, which must not move.
$(BUILD)/tests/launches: tests/kernels/launches.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) -fno-pie -no-pie $(LDFLAGS) -o $@ $< $(LIBRARY) $(LDLIBS)

$(BUILD)/examples/%: examples/%.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LIBRARY) $(LDLIBS)

$(BUILD)/bench/%: bench/%.c $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LIBRARY) $(LDLIBS)

# The instructions that the emulator imitates, by the hardware and by the emulator, in one program.
FRAGMENTS = $(foreach f,fragments fragments_hopper,$(BUILD)/obj/bench/$(f).emu.o $(if $(NVCC),$(BUILD)/obj/bench/$(f).cuda.o))
$(BUILD)/bench/fragments: bench/fragments.c $(FRAGMENTS) $(LIBRARY)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $(filter-out %.h,$^) $(LDLIBS)

# Whether they can ask for the kernels for GPUs.
$(BENCHES): private CFLAGS += $(if $(NVCC),-DHS_HAS_CUDA=1)

# The programs of bench/gpu.sh as one, so that the kernels are there once: each source with another name for main.
PACKAGE_PROGRAMS = trainer fragments agreement products attention bandwidth ops
PACKAGE_OBJECTS  = $(PACKAGE_PROGRAMS:%=$(BUILD)/obj/package/%.o)
PACKAGE_TABLE    = -DHS_PACKAGE_PROGRAMS(X)=$(foreach program,$(PACKAGE_PROGRAMS),X($(program)))
PACKAGE_DEFINES  = -Dmain=hs_main_$(*F) -Wno-missing-prototypes $(if $(NVCC),-DHS_HAS_CUDA=1)
$(BUILD)/obj/package/%.o: bench/%.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(PACKAGE_DEFINES) -MMD -MP -c -o $@ $<
$(BUILD)/obj/package/trainer.o: runtime/main.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) $(PACKAGE_DEFINES) -MMD -MP -c -o $@ $<
$(BUILD)/halfstep-gpu: bench/package/multicall.c $(PACKAGE_OBJECTS) $(FRAGMENTS) $(LIBRARY)
	@echo "  CC $@"
	$(Q)$(CC) $(CFLAGS) '$(PACKAGE_TABLE)' $(LDFLAGS) -o $@ $^ $(LDLIBS)
.PHONY: gpu-package
gpu-package: $(BUILD)/halfstep-gpu ## build/gpu-package: what bench/gpu.sh needs on a machine with a GPU and nothing else
	@bench/package/make.sh $(BUILD) $(BUILD)/gpu-package

.PHONY: examples bench-programs test-programs
examples: $(EXAMPLES)
bench-programs: $(BENCHES)
test-programs: $(TESTS) $(EMU_TESTS)

-include $(OBJECTS:.o=.d) $(FRAGMENTS:.o=.d) $(PACKAGE_OBJECTS:.o=.d) $(TEST_SUPPORT:.o=.d) $(BUILD)/obj/runtime/main.d $(TESTS:=.d) $(EMU_TESTS:=.d) $(BENCHES:=.d)

# ---------------------------------------------------------------------------------------------------------------------
# Packages.  Nothing but a C compiler, make and apt is expected of a machine.
APT_BUILD = gcc g++ libc6-dev make pkg-config libyaml-dev libcjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev
APT_TEST  = libcriterion-dev zstd
APT_CHECK = git clang clang-format libclang-rt-14-dev python3-yaml
# One job a core, unless the caller already said how many.
JOBS      = $(if $(findstring j,$(firstword $(MAKEFLAGS))),,-j$(shell nproc))
SUDO      = $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: packages packages-test packages-check
packages: ## install what building needs (apt)
	@tests/packages.sh "$(SUDO)" $(APT_BUILD)
packages-test: ## install what the tests need besides
	@tests/packages.sh "$(SUDO)" $(APT_BUILD) $(APT_TEST)
packages-check: ## install what `make check` and `make fuzz` need besides
	@tests/packages.sh "$(SUDO)" $(APT_BUILD) $(APT_TEST) $(APT_CHECK)

.PHONY: demo
demo: packages ## install, build, train configs/cl.yaml (about three minutes), show what was learned and forgotten
	+$(MAKE) $(JOBS) all
	$(BUILD)/trainer --config configs/cl.yaml
	@echo "The run's files:"; find runs/cl -maxdepth 2 | sort
	@echo "The page: $(CURDIR)/runs/cl/report.html"
	@echo "Next: $(BUILD)/trainer generate --checkpoint runs/cl --prompt '12+30=' --tokens 60"

.PHONY: install
install: $(BUILD)/trainer ## install the trainer under PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BUILD)/trainer $(DESTDIR)$(PREFIX)/bin/trainer

# ---------------------------------------------------------------------------------------------------------------------
.PHONY: test run-tests
test: packages-test ## every test, under ten minutes on two cores
	+$(MAKE) $(JOBS) run-tests
run-tests: $(BUILD)/trainer $(BUILD)/faults/shim.so test-programs examples $(BUILD)/bench/profile $(BUILD)/bench/fragments $(BUILD)/halfstep-gpu
	@BUILD=$(BUILD) tests/run.sh $(TESTS) $(EMU_TESTS)

.PHONY: asan ubsan
asan: ## the tests under AddressSanitizer and LeakSanitizer
	+$(MAKE) BUILD=build/asan OPTIMIZE=-O1 SANITIZE="-fsanitize=address -fno-omit-frame-pointer" run-tests
ubsan: ## the tests under UndefinedBehaviorSanitizer
	+$(MAKE) BUILD=build/ubsan OPTIMIZE=-O1 SANITIZE="-fsanitize=undefined -fno-sanitize-recover=all" run-tests

.PHONY: check check-format check-deps check-size check-docs format
check: check-format check-deps check-size check-docs $(if $(NVCC),check-kernels) ## format, folder dependencies, file sizes, generated documents, kernels
check-format:
	@clang-format --dry-run -Werror $(C_FILES)
check-deps: ## arrows between folders point one way; each outside library lives in one file
	@tests/check_deps.sh
check-size: ## no file over 500 lines
	@tests/check_size.sh $(C_FILES)
check-docs: $(BUILD)/trainer ## the generated reference and predictions are fresh
	@$(BUILD)/trainer reference | diff -u configs/REFERENCE.md - || { echo "run: make docs"; exit 1; }
	@$(BUILD)/trainer reference --predicted | diff -u kernels/cuda/PREDICTED.md - || { echo "run: make docs"; exit 1; }
.PHONY: check-kernels docs
check-kernels: $(CUDA_OBJECTS) $(BUILD)/tests/launches ## kernels: no spills, tensor cores where they belong, a fresh table
	$(if $(NVCC),,$(error check-kernels needs nvcc))
	@BUILD=$(BUILD) NVCC=$(NVCC) tests/check_kernels.sh
docs: $(BUILD)/trainer $(if $(NVCC),$(CUDA_OBJECTS) $(BUILD)/tests/launches) ## generate configs/REFERENCE.md, kernels/cuda/PREDICTED.md and KERNELS.md
	$(BUILD)/trainer reference > configs/REFERENCE.md
	$(BUILD)/trainer reference --predicted > kernels/cuda/PREDICTED.md
	$(if $(NVCC),BUILD=$(BUILD) NVCC=$(NVCC) tests/check_kernels.sh --write,@echo "kernels/cuda/KERNELS.md needs nvcc: left as it is")
format: ## format every C file
	clang-format -i $(C_FILES)

# Fuzzing: clang's libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer over the parsers of bytes.
FUZZ_SECONDS ?= 600
FUZZ_FLAGS    = -std=c11 -D_GNU_SOURCE -g -O1 -I. -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
                $(PACKAGE_CFLAGS)
FUZZ_SOURCES  = $(wildcard kernels/base/*.c) $(wildcard kernels/*.c) $(wildcard kernels/ref/*.c) $(wildcard optim/*.c) $(wildcard runtime/data/*.c) $(wildcard runtime/config*.c) $(wildcard runtime/json*.c) \
                $(wildcard runtime/safetensors*.c) $(wildcard runtime/checkpoint*.c) runtime/files.c runtime/utf8.c runtime/byte_size.c
.PHONY: fuzz
fuzz: $(FUZZERS) ## fuzz every parser for FUZZ_SECONDS (600) each
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh $(FUZZERS)
$(BUILD)/fuzz/%: tests/fuzz/%.c $(FUZZ_SOURCES)
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)clang $(FUZZ_FLAGS) -o $@ $^ $(LDLIBS)

.PHONY: test-kill
test-kill: $(BUILD)/trainer $(BUILD)/faults/shim.so ## the part of `make faults` that kills: in every phase and at a thousand moments, resume, compare with an undisturbed run
	@BUILD=$(BUILD) tests/faults/run.sh kills phases

# What fails calls of a program's from outside (LD_PRELOAD).
$(BUILD)/faults/shim.so: tests/faults/shim.c
	@mkdir -p $(@D)
	@echo "  CC $@"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -g -O1 -fno-builtin -fPIC -shared $(WARNINGS) -o $@ $< -ldl -pthread

.PHONY: faults
faults: $(BUILD)/trainer $(BUILD)/faults/shim.so ## allocations, system calls and disks that fail, kills, hostile files: every part of tests/faults
	@BUILD=$(BUILD) tests/faults/run.sh

.PHONY: test-schedules
test-schedules: $(BUILD)/trainer $(BUILD)/tests/ops/test_matmul_tiles $(BUILD)/bench/agreement ## kernels with roles and rings on the emulator, in 16 orders of events
	BUILD=$(BUILD) tests/schedules.sh

.PHONY: test-planted
test-planted: $(BUILD)/trainer ## mistakes planted into the Hopper kernels, each of which the emulator has to find
	@BUILD=$(BUILD) CC="$(CC)" CFLAGS="$(CFLAGS)" CXX="$(CXX)" CXXFLAGS="$(CXXFLAGS)" LDFLAGS="$(LDFLAGS)" LDLIBS="$(LDLIBS)" OBJECTS="$(OBJECTS)" \
	    tests/planted.sh $(if $(PLANTED),'$(PLANTED)')

# What CuTe says is compiled by the script, where its headers can be had.
LAYOUTS = $(patsubst %,$(BUILD)/obj/%.emu.o,$(basename $(filter-out %/cute.cpp,$(wildcard tests/layouts/*.cu tests/layouts/*.cpp))))
$(BUILD)/tests/compare_layouts: $(LAYOUTS) $(LIBRARY)
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

.PHONY: test-gpu-script
test-gpu-script: $(BUILD)/halfstep-gpu ## bench/gpu.sh's three calls on the emulator, and faults that must not hide other results
	@BUILD=$(BUILD) CC="$(CC)" CFLAGS="$(CFLAGS)" CXX="$(CXX)" CXXFLAGS="$(CXXFLAGS)" LDFLAGS="$(LDFLAGS)" LDLIBS="$(LDLIBS)" \
	    PACKAGE_OBJECTS="$(PACKAGE_OBJECTS)" PACKAGE_DEFINE='$(PACKAGE_TABLE)' FRAGMENTS="$(FRAGMENTS)" tests/gpu_faults.sh

.PHONY: test-agreement
test-agreement: $(BUILD)/bench/agreement ## large products and attention on the emulator, laid out for 132 and 4 multiprocessors
	HALFSTEP_MULTIPROCESSORS=132 $(BUILD)/bench/agreement --device emu attention
	HALFSTEP_MULTIPROCESSORS=132 $(BUILD)/bench/agreement --device emu products:bias
	HALFSTEP_MULTIPROCESSORS=4 $(BUILD)/bench/agreement --device emu "products:GELU's derivative"

# What takes too long for every change.
NIGHTLY = test-layouts test-tokenizers test-gpu-script test-agreement test-schedules test-planted faults fuzz
.PHONY: nightly
nightly: packages-check ## the long campaigns, one after another (hours); NIGHTLY='faults fuzz' chooses
	+@failed=; for part in $(NIGHTLY); do echo "== $$part"; $(MAKE) $(JOBS) $$part || failed="$$failed $$part"; done; \
	    [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

.PHONY: help clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'
clean: ## remove what was built
	rm -rf build
