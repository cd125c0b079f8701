# SPDX-License-Identifier: GPL-2.0
#
# What users type. In: KDIR, the headers of the kernel to build for. Out:
# rxe_cc.ko here, or what the lab's guest does with it. How the module is made
# of its parts stands in Kbuild, which the kernel's own make reads; how the lab
# works in scripts/lab.

KREL ?= $(shell uname -r)
# Debian's headers lack Rust metadata; scripts/rust-headers makes a tree beside
# them that has it.
KDIR ?= $(firstword $(wildcard /usr/src/linux-headers-$(KREL)-rust) /lib/modules/$(KREL)/build)

# The compiler that the kernel was built with, unless told otherwise. Distributions
# write their name before clang's.
KCC := $(shell sed -n 's/^CONFIG_CC_VERSION_TEXT="*\([A-Z][a-z]* \)*\([^ "]*\).*/\2/p' $(KDIR)/include/config/auto.conf 2>/dev/null)
ifneq ($(findstring clang,$(KCC)),)
KFLAGS := LLVM=1
else
KFLAGS := LLVM= $(if $(KCC),CC=$(KCC))
endif
KMAKE = +$(MAKE) -C $(KDIR) M=$(CURDIR) $(KFLAGS)

.PHONY: modules install clean help preflight tools install-tools lab demo check check-long bench fmt lint

modules: preflight
	$(KMAKE) modules

preflight:
	@scripts/preflight $(KDIR)

# Signed only where the kernel's key is at hand.
install: modules
	$(KMAKE) $(if $(wildcard $(KDIR)/certs/signing_key.pem),,CONFIG_MODULE_SIG_ALL=) modules_install
	depmod -a $$(cat $(KDIR)/include/config/kernel.release)

# The user's command. Built as whoever calls make, installed as root: sudo may not
# have cargo.
PREFIX ?= /usr/local
RXECC = target/release/rxecc

tools:
	cargo build --locked --release --package rxecc --target-dir target

install-tools:
	@test -x $(RXECC) || { echo 'rxecc is not built: make tools, then this again'; exit 1; }
	install -D -m 755 $(RXECC) $(DESTDIR)$(PREFIX)/bin/rxecc
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(RXECC) man $(DESTDIR)$(PREFIX)/share/man/man1
	$(RXECC) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/rxecc
	$(RXECC) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_rxecc
	$(RXECC) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/rxecc.fish

clean:
	$(KMAKE) clean

lab:
	scripts/lab setup

fmt:
	cargo fmt --all
	rustfmt --edition 2021 --config skip_children=false rust/rxe_cc_main.rs

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	shellcheck $$(git grep -lE "^#!.*\b(ba)?sh$$|^# shellcheck shell=" -- .)

# The experiments and tests, all of them in the lab; each sets up what is missing.
check check-long demo bench:
	scripts/$(@:check-long=check) $(if $(filter check-long,$@),--long)

help:
	@echo 'make            build rxe_cc.ko for KDIR ($(KDIR))'
	@echo 'make install    install it below /lib/modules and run depmod'
	@echo 'make tools      build rxecc, the command to look at it and tune it; install-tools: with'
	@echo '                manual pages and completions below PREFIX ($(PREFIX))'
	@echo 'make clean      remove what the build made'
	@echo 'make preflight  say what is missing for a build'
	@echo
	@echo 'make demo       the incast experiment, without and with rxe_cc, in the lab'
	@echo 'make check      every test, on the host and in the lab; check-long: the slow ones too'
	@echo 'make bench      what the module costs'
	@echo 'make lab        set up the lab: root file system, kernel, virtual machine'
	@echo 'make fmt lint   format; find fault'
	@echo
	@echo 'scripts/lab help, scripts/rust-headers --help: the tools behind them'
