# SPDX-License-Identifier: MIT
#
# Tests, benchmarks, checks and campaigns.

TEST_SOURCES := $(sort $(shell find tests -name 'test_*.c'))
TEST_SUPPORT = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/support/*.c))
# A program a folder: build/tests/room/NAME; --filter 'suite/*' chooses among its tests.  Those of tests/plain are programs
# without the framework: they count allocations, or are there for ThreadSanitizer.
PLAIN_TESTS  = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/plain/test_*.c))
ROOM_SOURCES = $(filter-out tests/plain/%,$(TEST_SOURCES))
TEST_FOLDERS = $(sort $(patsubst %/,%,$(dir $(ROOM_SOURCES))))
TEST_OBJECTS = $(ROOM_SOURCES:%.c=$(BUILD)/obj/%.o)
TESTS        = $(patsubst %,$(BUILD)/tests/room/%,$(notdir $(TEST_FOLDERS))) $(PLAIN_TESTS)
# tests/arm has a stand-in for it, which is a header.
CRITERION    = -lcriterion
# The emulator's own tests: kernels, some with planted bugs, compiled as the backend's are.
EMU_TESTS    = $(patsubst tests/%.cu,$(BUILD)/tests/%,$(wildcard tests/emu/test_*.cu))
# Programs that scripts of tests/cli run.
COMM_TESTS   = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/comm/*.c))
BENCHES      = $(patsubst bench/%.c,$(BUILD)/bench/%,$(wildcard bench/*.c))
FUZZERS      = $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))

define room_rule
$(BUILD)/tests/room/$(notdir $(1)): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)/test_*.c)) $(TEST_SUPPORT) $(LIBRARY)
	$$(call making,CC)
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$(filter-out $(LIBRARY),$$^) $$(LINK_HERE) $$(LDLIBS) $$(CRITERION)
endef
$(foreach folder,$(TEST_FOLDERS),$(eval $(call room_rule,$(folder))))

$(COMM_TESTS) $(PLAIN_TESTS): $(BUILD)/%: %.c $(TEST_SUPPORT) $(LIBRARY)
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(TEST_SUPPORT) $(LINK_HERE) $(LDLIBS) $(CRITERION)

# These have the emulator in themselves.
$(BUILD)/tests/emu/%: tests/emu/%.cu $(EMU_OBJECTS) $(LIBRARY)
	$(call making,CXX)
	$(Q)$(CXX) $(CXXFLAGS) -x c++ -MMD -MP -MF $@.d -c -o $@.o $<
	$(Q)$(CXX) $(LDFLAGS) -o $@ $@.o $(EMU_OBJECTS) $(LIBRARY) $(LDLIBS)

# Kernel addresses are looked up by name in this program, which must not move.
$(BUILD)/tests/launches: tests/kernels/launches.c $(EMU_OBJECTS) $(LIBRARY)
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) -fno-pie -no-pie $(LDFLAGS) -o $@ $< $(EMU_OBJECTS) $(LIBRARY) $(LDLIBS) -lstdc++

# The logits of a folder, for tests/huggingface.
$(BUILD)/tests/huggingface/logits: tests/huggingface/logits.c $(LIBRARY)
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LINK_HERE) $(LDLIBS)

$(BUILD)/bench/%: bench/%.c $(LIBRARY)
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(LINK_HERE) $(LDLIBS)

# The instructions that the emulator imitates, by the hardware and by the emulator: parts that hold the experiments, too.
EMU_FRAGMENTS  = $(BUILD)/obj/bench/fragments.emu.o $(BUILD)/obj/bench/fragments_hopper.emu.o
CUDA_FRAGMENTS = $(EMU_FRAGMENTS:.emu.o=.cuda.o)
$(BUILD)/bench/parts/libhalfstep-emu.so: $(EMU_OBJECTS) $(EMU_FRAGMENTS)
	$(call making,CXX)
	$(Q)$(CXX) $(LINK_PART) -o $@ $^
$(BUILD)/bench/parts/libhalfstep-cuda.so: $(CUDA_OBJECTS) $(CUDA_FRAGMENTS)
	$(call making,CXX)
	$(Q)$(CXX) $(LINK_PART) -o $@ $^ $(CUDART)
$(BUILD)/bench/fragments: bench/fragments.c $(LIBRARY) | $(BUILD)/bench/parts/libhalfstep-emu.so
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< $(call link_parts,$$ORIGIN/parts) $(WHOLE) $(LDLIBS)

$(BUILD)/bench/collectives: | $(STANDIN)

.PHONY: bench-programs test-programs
bench-programs: $(BENCHES) $(BENCH_PARTS)
test-programs: $(TESTS) $(EMU_TESTS) $(COMM_TESTS)
-include $(patsubst %.o,%.d,$(EMU_FRAGMENTS) $(CUDA_FRAGMENTS) $(TEST_SUPPORT) $(TEST_OBJECTS))
-include $(addsuffix .d,$(COMM_TESTS) $(PLAIN_TESTS) $(EMU_TESTS) $(BENCHES))

# --- running them ---

.PHONY: test test-quick test-whole run-tests accept
TIER = test
test: packages-test ## every test
	+$(MAKE) $(JOBS) run-tests
test-quick: packages-test ## those of at most five seconds that need no emulator
	+$(MAKE) $(JOBS) run-tests TIER=quick
test-whole: packages-test ## every test, with whole products of choices in place of pairwise coverings
	+$(MAKE) $(JOBS) run-tests TIER=nightly
run-tests: $(BUILD)/trainer $(EMU_PART) $(STANDIN) $(if $(MPICC),$(MPI_PART)) $(BUILD)/faults/shim.so test-programs examples $(BUILD)/bench/profile $(BUILD)/bench/fragments $(BUILD)/halfstep-gpu
	@BUILD=$(BUILD) TIER=$(TIER) BUDGET=$(if $(SANITIZE),no,yes) tests/run.sh $(TESTS) $(EMU_TESTS)
accept: $(BUILD)/trainer ## writes anew what the commands show to users (tests/cli/*.exact), for `git diff` to be read
	$(Q)for test in $$(grep -l '^shows ' tests/cli/test_*.sh); do BUILD=$(BUILD) ACCEPT=yes bash $$test; done

# gcc's analyzer looks at every path through the C sources.  Three of its questions it cannot answer here: what owns
# the pointers in an array (the sanitizers' leaks and `make faults` know), whether a loop filled one, and
# whether a table has the row of a name that was checked before; and it takes a vector's width for its elements'.  All
# others stay on, such as whether every allocation is looked at.
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

.PHONY: check check-format check-deps check-size check-plants check-docs format
check: check-format check-deps check-size check-plants check-warnings check-docs check-vectors $(if $(NVCC),check-kernels) ## format, folder dependencies, file sizes, warnings, generated documents, kernels
check-format:
	@clang-format --dry-run -Werror $(C_FILES)
check-deps: ## arrows between folders point one way; each outside library is used in one file
	@tests/check_deps.sh
check-size: ## no function over 80 lines, no CUDA kernel over 120; rooms and tests within their budgets of lines and time
	@tests/check_size.sh $(C_FILES)
	@tests/check_durations.sh
	@tests/check_lines.sh
check-plants: ## each mistake that a campaign plants changes a text that is there
	@for script in planted.sh ptx/planted.sh twins/run.sh gpu_faults.sh; do tests/$$script texts || exit 1; done
# In a separate folder, unless this build has no warnings already.
.PHONY: check-warnings
check-warnings: ## no file, tests included, compiles with a warning
	+@$(MAKE) $(JOBS) --no-print-directory WERROR=1 $(if $(WERROR),,BUILD=$(BUILD)/warnings NVCC=) all emu test-programs bench-programs
# Another compiler than gcc from 12 on splits wide vectors otherwise.
.PHONY: check-vectors
check-vectors: $(BUILD)/trainer ## kernels for AVX2 work on whole registers
	@$(if $(and $(MOVES),$(filter avx2,$(ISAS)),$(filter avx512,$(ISAS))),tests/check_vectors.sh $(BUILD)/obj/kernels/cpu/isa,echo "vectors: not checked with this compiler")
check-docs: $(BUILD)/trainer $(EMU_PART) ## pages: generated ones are fresh; sizes, words, links, commands
	@$(BUILD)/trainer reference | diff -u configs/REFERENCE.md - || { echo "run: make docs"; exit 1; }
	@BUILD=$(BUILD) tests/predicted.sh | diff -u kernels/cuda/PREDICTED.md - || { echo "run: make docs"; exit 1; }
	@python3 tests/messages.py | diff -u docs/messages.md - || { echo "run: make docs"; exit 1; }
	@tests/check_spine.sh
	@python3 tests/check_pages.py
.PHONY: check-kernels docs
check-kernels: $(CUDA_OBJECTS) $(BUILD)/tests/launches ## kernels: no spills, tensor cores, a fresh table; LIST=--list prints all
	$(if $(NVCC),,$(error check-kernels needs nvcc))
	@BUILD=$(BUILD) NVCC=$(NVCC) tests/check_kernels.sh $(LIST)
docs: $(BUILD)/trainer $(EMU_PART) $(if $(NVCC),$(CUDA_OBJECTS) $(BUILD)/tests/launches) ## generate configs/REFERENCE.md, docs/messages.md, kernels/cuda/PREDICTED.md and KERNELS.md
	$(BUILD)/trainer reference > configs/REFERENCE.md
	BUILD=$(BUILD) tests/predicted.sh > kernels/cuda/PREDICTED.md
	python3 tests/messages.py > docs/messages.md
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
	$(call making,CC)
	$(Q)clang $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<
$(BUILD)/fuzz/libhalfstep.a: $(FUZZ_OBJECTS)
	$(archive)
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/libhalfstep.a
	$(call making,CC)
	$(Q)clang $(FUZZ_FLAGS) -fsanitize=fuzzer -MMD -MP -MF $@.d -o $@ $< $(BUILD)/fuzz/libhalfstep.a $(LDLIBS)
-include $(FUZZ_OBJECTS:.o=.d) $(FUZZERS:=.d)

.PHONY: test-kill
test-kill: $(BUILD)/trainer $(EMU_PART) $(BUILD)/faults/shim.so ## the part of `make faults` that kills: in every phase and at a thousand moments, resume, compare with an undisturbed run
	@BUILD=$(BUILD) tests/faults/run.sh kills phases

# What fails calls of a program's from outside (LD_PRELOAD).
$(BUILD)/faults/shim.so: tests/faults/shim.c
	$(call making,CC)
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

# nvcc's text of every kernel, run on the emulator; what needs nvcc says so where there is none.
PTX_NEEDS = $(if $(NVCC),$(BUILD)/trainer $(EMU_PART))
PTX_SKIP  = $(if $(NVCC),,@echo "skipped: $@ needs nvcc")
.PHONY: test-ptx test-ptx-whole test-ptx-planted
test-ptx: $(PTX_NEEDS) $(if $(NVCC),$(PTX_EXACT)) ## every operation by the PTX that nvcc makes, on the emulator: against ref, and against the host compiler's bits
	$(or $(PTX_SKIP),@BUILD=$(BUILD) tests/ptx/run.sh)
test-ptx-whole: $(PTX_NEEDS) $(if $(NVCC),$(BUILD)/tests/room/ops $(BUILD)/bench/fragments $(BUILD)/bench/parts/libhalfstep-emu.so ptx) ## the same of all cases, tiles and orders of events, and training steps
	$(or $(PTX_SKIP),@BUILD=$(BUILD) tests/ptx/run.sh whole)
test-ptx-planted: $(PTX_NEEDS) $(if $(NVCC),$(PTX_EXACT) $(BUILD)/bench/fragments $(BUILD)/bench/parts/libhalfstep-emu.so) ## mistakes planted into inline assembly, each of which the run of its PTX has to find
	$(or $(PTX_SKIP),@BUILD=$(BUILD) NVCC="$(NVCC)" tests/ptx/planted.sh $(if $(PLANTED),'$(PLANTED)'))

.PHONY: test-twins
test-twins: ## wrappers of inline PTX against those of the hardware's makers, by the machine code of both; needs nvcc
	@BUILD=$(BUILD) NVCC="$(NVCC)" tests/twins/run.sh

# What CuTe says is compiled by the script, where its headers can be had.
LAYOUTS = $(patsubst %,$(BUILD)/obj/%.emu.o,$(basename $(filter-out %/cute.cpp,$(wildcard tests/layouts/*.cu tests/layouts/*.cpp))))
# An archive, as two of these objects include kernels, and those kernels' own objects must then stay out.
$(BUILD)/tests/libemulator.a: $(EMU_OBJECTS)
	$(archive)
$(BUILD)/tests/compare_layouts: $(LAYOUTS) $(BUILD)/tests/libemulator.a $(LIBRARY)
	$(call making,CXX)
	$(Q)$(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
-include $(LAYOUTS:.o=.d)

.PHONY: test-layouts
test-layouts: $(BUILD)/tests/compare_layouts ## layouts of tensor-core instructions against CuTe's, which pip brings
	@BUILD=$(BUILD) CXX="$(CXX)" NVCC="$(NVCC)" tests/layouts/run.sh

# What tests/tokenizers/compare.py runs.
$(BUILD)/tests/tokenize: tests/tokenizers/tokenize.c $(LIBRARY)
	$(call making,CC)
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
	@$(TRANSFORMERS_PYTHON) tests/huggingface/round_trips/continued_texts.py $(BUILD) $(BUILD)/continued_texts

.PHONY: test-widths
test-widths: $(BUILD)/trainer $(BUILD)/tests/huggingface/logits ## two layers of published widths against transformers, where TRANSFORMERS_PYTHON has it
	@$(TRANSFORMERS_PYTHON) tests/huggingface/widths.py $(BUILD) $(BUILD)/widths

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

.PHONY: test-deb
test-deb: ## the Debian packages of what is committed, tried on a bare system: installed, run, upgraded, removed
	@tests/packages.sh "$(SUDO)" $(APT_BUILD) debhelper debootstrap lintian
	+$(MAKE) deb
	tests/deb.sh $(DEB)

.PHONY: arm-check
arm-check: $(BUILD)/trainer ## the trainer for Arm (aarch64), cross-compiled, under qemu: every operation on each instruction set, and fifty steps against this machine's
	@tests/packages.sh "$(SUDO)" $(APT_ARM) || true
	+@BUILD=$(BUILD) PACKAGES="$(APT_ARM_LIBRARIES)" tests/arm/run.sh

# What takes too long for every change.
NIGHTLY = test-whole asan ubsan analyze clang-build arm-check test-layouts test-twins test-tokenizers test-round-trips test-widths test-folders test-gpu-script test-agreement test-schedules test-planted test-ptx-whole test-ptx-planted test-equal test-deb faults fuzz
.PHONY: nightly
nightly: packages-check ## the long campaigns, one after another (hours); NIGHTLY='faults fuzz' chooses
	+@failed=; for part in $(NIGHTLY); do echo "== $$part"; $(MAKE) $(JOBS) $$part || failed="$$failed $$part"; done; \
	    [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }
