# SPDX-License-Identifier: MIT
#
# What is installed: packages here, the program on this machine, and what a machine with a GPU gets.

# Nothing but a C compiler, make and apt is expected of a machine.
APT_BUILD = gcc g++ libc6-dev make pkg-config libyaml-dev libcjson-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libsnappy-dev libsodium-dev libmicrohttpd-dev
APT_TEST  = libcriterion-dev zstd python3 openmpi-bin libopenmpi-dev
APT_CHECK = git clang clang-format libclang-rt-14-dev libomp-dev python3-yaml
# The cross compiler for arm-check, and the libraries that it unpacks next to the build.
APT_ARM   = gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
APT_ARM_LIBRARIES = libc6-dev libgomp1 $(filter %-dev,$(filter-out libc6-dev,$(APT_BUILD)))
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
              $(COMPLETIONS) include/halfstep/memory_hooks.h
# Where each shell looks, by the path that ends in its name.
ZSH_FOLDER  = share/zsh/site-functions
COMPLETIONS = share/bash-completion/completions/trainer $(ZSH_FOLDER)/_trainer share/fish/vendor_completions.d/trainer.fish
STRIP       = -s
.PHONY: install uninstall
install: $(BUILD)/trainer ## install under PREFIX (/usr/local): the trainer, parts that were built, manual page, completion, the header for allocators
	install -d $(addprefix $(ROOT)/,$(sort $(dir $(INSTALLED))))
	install $(STRIP) -m 755 $(BUILD)/trainer $(ROOT)/bin/trainer
	$(foreach part,$(wildcard $(EMU_PART) $(CUDA_PART) $(MPI_PART)),install $(STRIP) -m 755 $(part) $(ROOT)/lib/halfstep;)
	install -m 644 kernels/base/memory_hooks.h $(ROOT)/include/halfstep
	$(BUILD)/trainer reference --man >$(ROOT)/share/man/man1/trainer.1
	$(foreach file,$(COMPLETIONS),$(BUILD)/trainer reference --completion $(word 2,$(subst /, ,$(file:share/bash-completion%=share/bash%))) >$(ROOT)/$(file);)
	chmod 644 $(addprefix $(ROOT)/,share/man/man1/trainer.1 $(COMPLETIONS))
uninstall: ## remove what install put there
	rm -f $(addprefix $(ROOT)/,$(INSTALLED))
	@for folder in lib include; do [ ! -d $(ROOT)/$$folder/halfstep ] || rmdir --ignore-fail-on-non-empty $(ROOT)/$$folder/halfstep; done

# An archive of what git knows, which builds without git, and Debian packages of it: the trainer, and the emulator apart.
# CHANGED is the packages' date, DEBFULLNAME and DEBEMAIL in the environment their maintainer; DEB_FLAGS go to
# dpkg-buildpackage.
VERSION   := $(shell sed -n 's/^\#define HS_VERSION "\(.*\)"/\1/p' runtime/commands/command.h)
DIST       = $(BUILD)/halfstep-$(VERSION).tar.gz
DEB        = $(BUILD)/deb
CHANGED   ?= $(shell git log -1 --format=%aD 2>/dev/null || date -R)
DEB_FLAGS ?= -us -uc
MAINTAINER = $(or $(DEBFULLNAME),Halfstep) <$(or $(DEBEMAIL),halfstep@localhost)>
.PHONY: dist deb
dist: ## build/halfstep-VERSION.tar.gz: the sources, which build without git
	@mkdir -p $(BUILD)
	git archive --format=tar.gz --prefix=halfstep-$(VERSION)/ -o $(DIST) HEAD
deb: dist ## build/deb: Debian packages halfstep and halfstep-emulator, of what is committed; needs debhelper
	rm -rf $(DEB) && mkdir -p $(DEB)
	cp $(DIST) $(DEB)/halfstep_$(VERSION).orig.tar.gz
	tar -xf $(DIST) -C $(DEB)
	cp -r mk/debian $(DEB)/halfstep-$(VERSION)/debian
	sed -i 's/^Maintainer: .*/Maintainer: $(MAINTAINER)/' $(DEB)/halfstep-$(VERSION)/debian/control
	printf 'halfstep (%s-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' '$(VERSION)' \
	    '$(MAINTAINER)' '$(CHANGED)' >$(DEB)/halfstep-$(VERSION)/debian/changelog
	cd $(DEB)/halfstep-$(VERSION) && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -b $(DEB_FLAGS)
	@ls -l $(DEB)/*.deb

# The programs of bench/gpu.sh as one, so that the library is there once: each source with another name for main.
PACKAGE_PROGRAMS = trainer fragments agreement products fp8 attention bandwidth ops collectives
# Named here, where prerequisites first need it: make expands those as it reads.
BENCH_PARTS      = $(BUILD)/bench/parts/libhalfstep-emu.so $(if $(NVCC),$(BUILD)/bench/parts/libhalfstep-cuda.so)
PACKAGE_OBJECTS  = $(PACKAGE_PROGRAMS:%=$(BUILD)/obj/package/%.o)
PACKAGE_TABLE    = -DHS_PACKAGE_PROGRAMS(X)=$(foreach program,$(PACKAGE_PROGRAMS),X($(program)))
PACKAGE_DEFINES  = -Dmain=hs_main_$(*F) -Wno-missing-prototypes
$(BUILD)/obj/package/%.o: bench/%.c
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(PACKAGE_DEFINES) -MMD -MP -c -o $@ $<
$(BUILD)/obj/package/trainer.o: $(MAIN)
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) $(PACKAGE_DEFINES) -MMD -MP -c -o $@ $<
$(BUILD)/halfstep-gpu: bench/package/multicall.c $(PACKAGE_OBJECTS) $(LIBRARY) | $(BUILD)/bench/parts/libhalfstep-emu.so
	$(call making,CC)
	$(Q)$(CC) $(CFLAGS) '$(PACKAGE_TABLE)' $(LDFLAGS) -o $@ $< $(PACKAGE_OBJECTS) $(call link_parts,$$ORIGIN/parts:$$ORIGIN/bench/parts) $(WHOLE) $(LDLIBS)
.PHONY: gpu-package
gpu-package: $(BUILD)/halfstep-gpu $(BENCH_PARTS) $(STANDIN) ## build/gpu-package: what bench/gpu.sh needs on a machine with a GPU and nothing else
	@bench/package/make.sh $(BUILD) $(BUILD)/gpu-package
-include $(PACKAGE_OBJECTS:.o=.d)
