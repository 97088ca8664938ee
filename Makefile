# SPDX-License-Identifier: MIT
#
# make          build/trainer, and with an NVIDIA GPU the part that runs on it
# Here: settings, the library from every folder, the program, the examples.  mk/cuda.mk: the CUDA backend and the emulator,
# shared objects which programs open when a device asks for them; mk/tests.mk: tests, benchmarks, checks; mk/package.mk:
# packages, installation.  kernels/cpu/isa is compiled once for each instruction set; which one runs is chosen at start by
# what the processor has.  V=1 shows whole command lines, WERROR=1 makes warnings errors.  Lines with two hashes are `make help`.

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
# By what the compiler compiles for: it may be another machine than this.
MACHINE  := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ISAS     ?= portable $(if $(filter x86_64,$(MACHINE)),avx2 avx512 avx512bf16 amx) $(if $(filter aarch64,$(MACHINE)),neon neonbf16)

PACKAGES  = yaml-0.1 libcjson libpcre2-8 libutf8proc libxxhash zlib libzstd libsodium libmicrohttpd
# Evaluated once: before `make packages` these are empty, and the make that follows it evaluates them again.
PACKAGE_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PACKAGE_LIBS   := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)
WARNINGS  = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
CFLAGS   += -std=c11 -D_GNU_SOURCE -g $(OPTIMIZE) $(WARNINGS) -ffp-contract=off -fno-math-errno -fopenmp -I. $(SANITIZE) \
            $(PACKAGE_CFLAGS)
LDLIBS   += $(PACKAGE_LIBS) -lsnappy -lm -ldl -pthread
LDFLAGS  += -fopenmp $(SANITIZE)

# Per instruction set: the same sources, wider vectors.  Products and sums contract to fused multiply-adds here.
# Of debugging information these have lines alone: what follows variables through unrolled loops takes as long as all else.
ISA_COMMON      = -g1 -O3 -ffp-contract=fast -fno-trapping-math -Wno-psabi
# Both of x86-64 and of Arm round every product and sum in portable: it gives the same bits there.
ISA_portable    = $(ISA_COMMON) $(if $(filter aarch64,$(MACHINE)),-ffp-contract=off)
AVX2            = -mavx2 -mfma -mf16c -mprfchw
# gcc copies sixteen numbers, two registers there, sixteen bytes at a time unless it is given the width: a load of what was
# stored in two pieces waits until both have left the store buffer.  Before gcc 12, and for clang: nothing.
MOVES           := $(shell $(CC) -mmove-max=256 -mstore-max=256 -E -x c /dev/null >/dev/null 2>&1 && \
                     echo -mmove-max=256 -mstore-max=256)
ISA_avx2        = $(ISA_COMMON) $(AVX2) $(MOVES)
ISA_avx512      = $(ISA_COMMON) $(AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
ISA_avx512bf16  = $(ISA_avx512) -mavx512bf16
# All of the one before, and its products of bf16 by tiles.
ISA_amx         = $(ISA_avx512bf16) -DHS_ISA_avx512bf16=1 -mamx-tile -mamx-bf16
# Armv8.0 has all that neon uses, and neonbf16 all that is for neon.  Where gcc reorders before it assigns registers, it loads
# all of a kernel's B at once, and the sums go to memory in every step.
ISA_neon        = $(ISA_COMMON) $(if $(findstring clang,$(CC)),,-fno-schedule-insns)
ISA_neonbf16    = $(ISA_neon) -DHS_ISA_neon=1 -march=armv8.2-a+bf16

MAIN         = runtime/commands/main.c
SOURCES     := $(filter-out $(MAIN) kernels/cpu/isa/% kernels/mpi/%,$(call sources,c))
ISA_SOURCES := $(wildcard kernels/cpu/isa/*.c)
# What takes longest to compile comes first.
OBJECTS      = $(foreach i,$(ISAS),$(ISA_SOURCES:%.c=$(BUILD)/obj/%.$(i).o)) $(SOURCES:%.c=$(BUILD)/obj/%.o)
LIBRARY      = $(BUILD)/libhalfstep.a
EXAMPLES     = $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))
C_FILES      = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')

Q = $(if $(V),,@)
# The head of a recipe: the folder, and a line that says what is made by what.
making = @mkdir -p $(@D); echo "  $(1) $@"

.DEFAULT_GOAL := all
include mk/cuda.mk

.PHONY: all examples
all: $(BUILD)/trainer examples $(if $(GPU),cuda) ## build the trainer and the examples, and for an NVIDIA GPU that is here its kernels
examples: $(EXAMPLES)

# A program lends the parts its hs_* functions, and looks for them in $(1).  An RPATH and not a RUNPATH: AddressSanitizer
# opens files in a program's place, and only the former counts then.
link_parts  = -Wl,--export-dynamic-symbol='hs_*' -Wl,--disable-new-dtags,-rpath,'$(1)'
# All of the library: what a part will ask for is not known.
WHOLE       = -Wl,--whole-archive $(LIBRARY) -Wl,--no-whole-archive
# Tests and benchmarks; a copy of one takes the parts next to it.
LINK_HERE   = $(call link_parts,$$ORIGIN:$(abspath $(BUILD))) $(WHOLE)

$(BUILD)/trainer: $(MAIN:%.c=$(BUILD)/obj/%.o) $(OBJECTS)
	$(call making,CC)
	$(Q)$(CC) $(LDFLAGS) $(call link_parts,$$ORIGIN:$$ORIGIN/../lib/halfstep) -o $@ $^ $(LDLIBS)

define archive
	$(call making,AR)
	@rm -f $@
	$(Q)ar rcs $@ $^
endef
$(LIBRARY): $(OBJECTS)
	$(archive)

$(BUILD)/obj/%.o: %.c
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# kernels/cpu/isa/x.c -> x.portable.o, x.avx2.o, ...
define isa_rule
$(BUILD)/obj/kernels/cpu/isa/%.$(1).o: kernels/cpu/isa/%.c
	$$(call making,CC)
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_$(1)) -DHS_ISA=$(1) -DHS_ISA_$(1)=1 -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))
# The chooser lists the instruction sets of this build.
$(BUILD)/obj/kernels/cpu/cpu.o: CFLAGS += $(ISAS:%=-DHS_HAS_ISA_%=1)

$(BUILD)/examples/%: examples/%.c $(LIBRARY)
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LINK_HERE) $(LDLIBS)

-include $(patsubst %.o,%.d,$(OBJECTS) $(MAIN:%.c=$(BUILD)/obj/%.o))

include mk/package.mk mk/tests.mk

.PHONY: help clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile mk/*.mk | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | awk -F'|' '{ printf "%-26s %s\n", $$1, $$2 }'
clean: ## remove what was built
	rm -rf build
