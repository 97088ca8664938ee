# SPDX-License-Identifier: MIT
#
# The kernels of kernels/cuda, for GPUs and for the emulator, and the other parts that programs open while they run.

# CUDA: `make NVCC=` knows of none.  The static runtime library needs no CUDA library at start.
NVCC     ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_LIBRARIES = $(firstword $(foreach d,lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib,\
                   $(patsubst %/libcudart_static.a,%,$(wildcard $(dir $(realpath $(NVCC)))../$(d)/libcudart_static.a))))
# Machine code for Ampere (8.0; 8.6, GeForce RTX 30), Ada (8.9, RTX 40) and Hopper, for Blackwell (10.0; 12.0, RTX 50)
# where this nvcc knows it, and PTX that the driver translates for what comes after.  For one GPU alone, in a fifth of the
# time: make CUDA_ARCHITECTURES='-gencode arch=compute_90,code=sm_90'
# Whether there is a GPU to build for by default.
GPU      := $(if $(NVCC),$(or $(wildcard /proc/driver/nvidia/version),$(shell nvidia-smi -L 2>/dev/null)))
, := ,
CUDA_CODES          := $(if $(NVCC),$(shell $(NVCC) --list-gpu-code 2>/dev/null))
CUDA_ARCHITECTURES  ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
                       $(foreach c,86 89 100 120,$(if $(filter sm_$(c),$(CUDA_CODES)),-gencode arch=compute_$(c)$(,)code=sm_$(c)))
# Sources that only Hopper runs: its own instructions are in none of the others.
HOPPER_SOURCES      = $(filter %_hopper.cu,$(call sources,cu)) $(wildcard bench/*_hopper.cu)
HOPPER_ARCHITECTURE = -gencode arch=compute_90a,code=sm_90a

CXX_WARNINGS = -Wall -Wextra -Wshadow -Wno-unknown-pragmas -Wno-psabi $(if $(WERROR),-Werror)
# Of a part only its entry is visible.  What threads of the emulator keep is found without a call.
PART_FLAGS   = -fPIC -fvisibility=hidden
# gcc 12 for Arm stops with an internal error where it makes vectors of a loop that takes a maximum.
CXXFLAGS += -std=c++17 -D_GNU_SOURCE -DHS_EMU -g -O2 $(CXX_WARNINGS) $(PART_FLAGS) -ftls-model=initial-exec -ffp-contract=off -I. $(SANITIZE) \
            $(if $(filter aarch64,$(MACHINE)),-fno-tree-vectorize)
# The smallest form, which drivers for CUDA 13 unpack (its nvcc knows sm_110).
NVCCFLAGS += -std=c++17 -O3 -I. $(or $(ARCHITECTURE),$(CUDA_ARCHITECTURES)) -Xfatbin -compress-all -Xptxas -v \
             $(if $(filter sm_110,$(CUDA_CODES)),--compress-mode=size) -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(if $(WERROR),-Werror all-warnings)

# kernels/cuda is compiled twice: for the emulator by the host's C++ compiler, and for GPUs where there is an nvcc.
CUDA_SOURCES := $(call sources,cu)
EMU_SOURCES  := $(call sources,cpp)
EMU_OBJECTS  = $(CUDA_SOURCES:%.cu=$(BUILD)/obj/%.emu.o) $(EMU_SOURCES:%.cpp=$(BUILD)/obj/%.emu.o)
CUDA_OBJECTS = $(if $(NVCC),$(CUDA_SOURCES:%.cu=$(BUILD)/obj/%.cuda.o))
EMU_PART     = $(BUILD)/libhalfstep-emu.so
CUDA_PART    = $(BUILD)/libhalfstep-cuda.so
# Ranks over MPI: built with the compiler of the site's MPI, which knows its headers and libraries.
MPICC       ?= $(shell command -v mpicc)
MPI_PART     = $(BUILD)/libhalfstep-mpi.so
# In place of libnccl.so.2 on the emulator: for tests, and not installed.
STANDIN      = $(BUILD)/libhalfstep-nccl-standin.so
STANDIN_OBJECTS = $(patsubst %.cpp,$(BUILD)/obj/%.emu.o,$(wildcard tests/nccl/*.cpp))

.PHONY: cuda emu mpi
cuda: $(if $(NVCC),$(CUDA_PART)) ## build the kernels for NVIDIA GPUs (device: cuda), also where there is no GPU; needs nvcc
	$(if $(NVCC),,@echo "make cuda needs nvcc, which was not found: install the CUDA toolkit, or say make cuda NVCC=/path/to/nvcc" >&2; exit 1)
emu: $(EMU_PART) $(STANDIN) ## build the emulator (device: emu), which runs the same kernels on the CPU for tests

mpi: $(if $(MPICC),$(MPI_PART)) ## build the part for training over MPI; needs the mpicc of the MPI that mpirun is of
	$(if $(MPICC),,@echo "make mpi needs mpicc, which was not found: install or load an MPI, or say make mpi MPICC=/path/to/mpicc" >&2; exit 1)

LINK_PART   = $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=kernels/parts/exports.map
CUDART      = $(if $(NVCC),-L$(CUDA_LIBRARIES) -Wl$(,)--exclude-libs$(,)ALL -lcudart_static -lrt -ldl -pthread)

$(EMU_PART): $(EMU_OBJECTS)
	$(call making,CXX)
	$(Q)$(CXX) $(LINK_PART) -o $@ $^

$(MPI_PART): kernels/mpi/comm_mpi.c kernels/mpi/exports.map
	$(call making,MPICC)
	$(Q)$(MPICC) $(CFLAGS) -Wno-pedantic -fPIC -fvisibility=hidden $(LDFLAGS) -shared -Wl,-soname,$(@F) \
	    -Wl,--version-script=kernels/mpi/exports.map -MMD -MP -MF $@.d -o $@ $<
-include $(MPI_PART).d
$(STANDIN): $(STANDIN_OBJECTS)
	$(call making,CXX)
	$(Q)$(CXX) $(LDFLAGS) -shared -Wl,-soname,$(@F) -o $@ $^ -lrt

$(CUDA_PART): $(CUDA_OBJECTS)
	$(call making,CXX)
	$(Q)$(CXX) $(LINK_PART) -o $@ $^ $(CUDART)

$(BUILD)/obj/%.emu.o: %.cu
	$(call making,CXX)
	$(Q)$(CXX) $(CXXFLAGS) -x c++ -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.emu.o: %.cpp
	$(call making,CXX)
	$(Q)$(CXX) $(CXXFLAGS) -MMD -MP -c -o $@ $<

# What ptxas says (registers, shared memory, spills) and machine code are kept next to the object, for
# tests/check_kernels.sh: NAME.cuda.cubin, whose instructions are counted, is for sm_80 (sm_90a of Hopper's, sm_89 of what
# needs mma.sync of FP8); NAME.cuda.sm_90.cubin and so on are those in which a kernel may begin before the last has ended.
KEPT_CODE = 80
$(BUILD)/obj/kernels/cuda/product/matmul_fp8.cuda.o: KEPT_CODE = 89
$(BUILD)/obj/%.cuda.o: %.cu
	@mkdir -p $(@D)/keep
	$(call making,NVCC)
	$(Q)$(NVCC) $(NVCCFLAGS) -keep -keep-dir $(@D)/keep -MMD -MP -c -o $@ $< 2>$(@:.o=.ptxas) || \
	    { cat $(@:.o=.ptxas); rm -f $@; exit 1; }
	@for code in 90 100 120; do \
	    find $(@D)/keep -name "$(*F).*_$$code.cubin" -exec mv {} $(@:.o=).sm_$$code.cubin \;; done; \
	find $(@D)/keep \( -name '$(*F).*$(KEPT_CODE)*.cubin' -o -name '$(*F).cubin' \) -exec mv {} $(@:.o=.cubin) \;; rm -f $(@D)/keep/$(*F).*

$(HOPPER_SOURCES:%.cu=$(BUILD)/obj/%.cuda.o): ARCHITECTURE = $(HOPPER_ARCHITECTURE)

# The text that nvcc makes before ptxas makes machine code of it, which the emulator can run: as it is shipped, and without
# fused multiplication and addition that the source does not ask for, so that its results have the bits of the host's code.
PTX_CODE    = 90
PTX_SHIPPED = $(CUDA_SOURCES:%.cu=$(BUILD)/ptx/shipped/%.ptx)
PTX_EXACT   = $(patsubst %.cu,$(BUILD)/ptx/exact/%.ptx,$(CUDA_SOURCES) $(wildcard bench/fragments*.cu))
$(filter %/matmul_fp8.ptx %/fragments.ptx,$(PTX_SHIPPED) $(PTX_EXACT)): PTX_CODE = 89
$(filter %_hopper.ptx,$(PTX_SHIPPED) $(PTX_EXACT)): PTX_CODE = 90a
define make_ptx
	$(call making,NVCC)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -O3 -I. -arch=compute_$(PTX_CODE) $(1) -MMD -MP -MF $@.d -ptx -o $@ $<
endef
$(BUILD)/ptx/shipped/%.ptx: %.cu
	$(call make_ptx)
$(BUILD)/ptx/exact/%.ptx: %.cu
	$(call make_ptx,-fmad=false)
-include $(wildcard $(PTX_SHIPPED:=.d) $(PTX_EXACT:=.d))
.PHONY: ptx
ptx: $(PTX_SHIPPED) $(PTX_EXACT) ## the kernels as PTX, which the emulator runs with HALFSTEP_EMU_PTX=build/ptx/shipped; needs nvcc

# AMD's compiler, on the kernels that need neither tensor cores nor other instructions of NVIDIA's alone.
HIPCC           ?= hipcc
HIP_ARCHITECTURE ?= gfx90a
HIP_SOURCES      = $(wildcard kernels/cuda/layers/*.cu kernels/cuda/update/*.cu kernels/cuda/attention/*_exact.cu) \
                   kernels/cuda/attention/attention_cached.cu kernels/cuda/attention/attention_sinks.cu \
                   kernels/cuda/product/matmul_bias_backward.cu kernels/cuda/comm/fold.cu
HIP_OBJECTS      = $(HIP_SOURCES:%.cu=$(BUILD)/obj/%.hip.o)
$(BUILD)/obj/%.hip.o: %.cu
	$(call making,HIPCC)
	$(Q)$(HIPCC) -x hip --offload-arch=$(HIP_ARCHITECTURE) -std=c++17 -O3 -fPIC -I. -MMD -MP -c -o $@ $<
-include $(HIP_OBJECTS:.o=.d)
.PHONY: hip
hip: $(HIP_OBJECTS) ## compile for AMD GPUs what needs no tensor cores; untried on hardware, and no part of a trainer
	@echo "compiled for $(HIP_ARCHITECTURE): $(words $(HIP_OBJECTS)) sources; never run on such a GPU, and products and the device are missing: nothing trains with them yet"

-include $(patsubst %.o,%.d,$(EMU_OBJECTS) $(STANDIN_OBJECTS) $(CUDA_OBJECTS))
