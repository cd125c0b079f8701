# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Kernels of our own: User-mode Linux from the lab's linux-source, with the options
# of uml.config and of one more file each. They are programs, so they run at the
# speed of this machine, KVM or not.
#   debug   looks for bugs that the stock kernel lets pass (uses after free, lock
#           order, sleeping where one must not, leaks), runs KUnit suites, and makes
#           allocations fail on request (debug-kernel.config)
#   native  is for measuring what time things take (native-kernel.config)
# In: the lab's root file system. Out: the kernel's directory, $UML, with the kernel
# (linux), its modules, and the tree that modules are built against.
#
# KASAN and Rust together want clang, so all of it is built with LLVM=1.

UML_KERNELS=(debug native)
# The tree's place inside the root file system, the same for building and using.
UML_TREE=/usr/src/linux-uml
UML_NEED_MB=3000

# Raise when the way it is built changes, so that existing ones are built again.
UML_REVISION=1

# use_uml KERNEL: the one that all else here is about.
use_uml() {
	uml=$1 UML=$CACHE/$1
	UML_CONFIG=("$SRC/scripts/lib/uml.config" "$SRC/scripts/lib/$1-kernel.config")
}

# What it depends on: the source, the configuration, the compilers.
uml_key() {
	local tools
	tools=$(awk '/^Package: (clang|rustc|bindgen|lld)$/ { on = 1 } /^$/ { on = 0 } on && /^Version: / { print $2 }' \
		"$ROOTFS/var/lib/dpkg/status" | tr '\n' ' ')
	echo "$UML_REVISION $(lab_kver) $(cat "${UML_CONFIG[@]}" | sha256sum | cut -c1-16) $tools"
}
source_key() { echo "$UML_REVISION $(lab_kver)"; }
uml_ready() { [[ -x $UML/linux ]] && stamped "$uml" "$(uml_key)"; }
uml_krel() { cat "$UML/tree/include/config/kernel.release"; }

# in_uml_tree TREE [OPTION]... -- CMD...: become CMD in the root file system, in
# the tree.
in_uml_tree() {
	local tree=$1
	shift
	in_rootfs -b "$tree" "$UML_TREE" -C "$UML_TREE" "$@"
}

uml_make() {
	in_uml_tree "$UML/tree.tmp" -- nice -n 10 make ARCH=um LLVM=1 -j"$(nproc)" "$@"
}

# The source without what UML has no use for; Kconfig wants its own files.
unpack_uml() {
	rm -rf --one-file-system "$UML/tree.tmp"
	mkdir -p "$UML/tree.tmp"
	tar -C "$UML/tree.tmp" --strip-components=1 --wildcards --wildcards-match-slash \
		--exclude='*/sound/*.[ch]' --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/media/*.[ch]' \
		--exclude='*/drivers/net/ethernet/*.[ch]' --exclude='*/drivers/net/wireless/*.[ch]' \
		--exclude='*/drivers/staging/*.[ch]' --exclude='*/drivers/scsi/*.[ch]' --exclude='*/Documentation/*.rst' \
		--exclude='*.dts' --exclude='*.dtsi' --exclude='*.yaml' --exclude='*/tools/perf/*' --exclude='*/tools/testing/*' \
		-xf "$ROOTFS/usr/src/linux-source-$KERNEL_SERIES.tar.xz"
}

# Places in 7.3 that do not expect this configuration:
# - With clang's large code model most variables lie in .lbss, which the linker script
#   does not know: they come to lie behind __bss_stop. Lockdep takes their locks for
#   freed memory and gives up at the first one; kmemleak does not look there.
# - The function that returns from a signal in a process must not touch its stack, but
#   saves the frame pointer there if there are frame pointers.
# - A stack trace asks for every word of the stack whether it is an address in a
#   module, which takes a lock that lockdep checks, and then keeps those that the
#   frame pointers lead to. Each allocation has one: booting took ten times as long.
mend_uml() {
	local tree=$UML/tree.tmp/arch/um/kernel
	sed -i 's/if (__kernel_text_address(addr))/if ((unsigned long)sp == bp + sizeof(long) \&\& __kernel_text_address(addr))/' "$tree/stacktrace.c"
	sed -i 's/^ *\*(COMMON)$/&\n   *(.lbss .lbss.*)/' "$tree/dyn.lds.S"
	sed -i 's/^CFLAGS_stub\.o := .*/& -fomit-frame-pointer/' "$tree/skas/Makefile"
	grep -qF 'bp + sizeof(long) && __kernel' "$tree/stacktrace.c" && grep -qF '.lbss.*' "$tree/dyn.lds.S" &&
		grep -q '^CFLAGS_stub\.o.*-fomit-frame-pointer' "$tree/skas/Makefile"
}

# Each option must be there in the end: one that lost a dependency vanishes in
# silence.
configure_uml() {
	local lacks
	cat "${UML_CONFIG[@]}" >"$UML/tree.tmp/wanted.config"
	wait_child in_uml_tree "$UML/tree.tmp" -- make ARCH=um LLVM=1 -s KCONFIG_ALLCONFIG=wanted.config allnoconfig
	lacks=$(grep -E '^(# )?CONFIG_' "$UML/tree.tmp/wanted.config" | grep -vxFf "$UML/tree.tmp/.config" || true)
	[[ -z $lacks ]] || { printf 'not in the configuration: %s\n' "$lacks"; return 1; }
}

compile_uml() {
	local krel modules=$UML/modules.tmp
	# In the tree while it is built: only that is bound into the root file system.
	wait_child uml_make vmlinux modules
	wait_child uml_make -s INSTALL_MOD_PATH=install modules_install
	krel=$(<"$UML/tree.tmp/include/config/kernel.release")
	rm -rf "$modules"
	mv "$UML/tree.tmp/install/lib/modules/$krel" "$modules"
	rm -rf "$modules/build" "$modules/source" "$UML/tree.tmp/install"
}

# What is neither the kernel nor needed to build modules goes.
trim_uml() {
	local tree=$UML/tree.tmp
	llvm_strip() { in_uml_tree "$tree" -- llvm-strip --strip-debug -o linux.stripped vmlinux; }
	wait_child llvm_strip
	mv "$tree/linux.stripped" "$UML/linux.tmp"
	rm -f "$tree"/{.mended,wanted.config,linux,vmlinux*,.tmp_vmlinux*,modules.*} "$tree"/{vmlinux,.vmlinux}.*
	find "$tree" \( -name '*.o' -o -name '*.a' -o -name '.*.cmd' -o -name '*.o.d' \) ! -path "$tree/scripts/*" ! -path "$tree/rust/*" -delete
	find "$tree/rust" -name '*.o' -delete
	find "$tree/arch" -mindepth 1 -maxdepth 1 -type d ! -name um ! -name x86 -exec rm -rf {} +
	find "$tree" -mindepth 1 -maxdepth 1 -type d ! -name arch ! -name include ! -name scripts ! -name rust ! -name tools -exec rm -rf {} +
}

# setup_uml: build it, if it is not there. One at a time, and not while one runs.
setup_uml() {
	uml_ready && return 0
	local lock_uml
	mkdir -p "$UML"
	exec {lock_uml}>"$UML/lock"
	flock -n "$lock_uml" || { say "waiting for another build of the $uml kernel, or a guest that runs it, to end"; flock "$lock_uml"; }
	if ! uml_ready; then
		check_space "$UML_NEED_MB"
		unstamp "$uml"
		rm -rf --one-file-system "$UML"/{tree,modules,linux}
		# A build that was broken off goes on, from the same source.
		if [[ ! -e $UML/tree.tmp/.mended || $(<"$UML/tree.tmp/.mended") != "$(source_key)" ]]; then
			logged "$uml-unpack" "$uml kernel: unpacking the source of $(lab_kver)" unpack_uml
			mend_uml || die "the source of $(lab_kver) is not the one that mend_uml() mends"
			source_key >"$UML/tree.tmp/.mended"
		fi
		logged "$uml-config" "$uml kernel: configuring" configure_uml
		logged "$uml-build" "$uml kernel: building (7 to 20 minutes of two CPUs, once)" compile_uml
		logged "$uml-trim" "$uml kernel: trimming" trim_uml
		mv "$UML/tree.tmp" "$UML/tree"
		mv "$UML/modules.tmp" "$UML/modules"
		mv "$UML/linux.tmp" "$UML/linux"
		stamp "$uml" "$(uml_key)"
		say "$uml kernel: $(du -sm "$UML" | cut -f1) MB"
	fi
	exec {lock_uml}>&-
}

# hold_uml: make it if missing, then hold it for as long as this script lives.
hold_uml() {
	setup_uml
	exec {uml_lock}>"$UML/lock"
	flock -s "$uml_lock"
	uml_ready || die "the $uml kernel changed meanwhile: try again"
}

# lab setup, with this kernel if it is asked for.
setup_verb() {
	local refresh='' kernel=stock
	while (($#)); do
		case $1 in
		--refresh) refresh=$1; shift ;;
		--kernel) kernel=${2-}; shift $(($# > 1 ? 2 : 1)) ;;
		*) die "lab setup takes no $1" ;;
		esac
	done
	need_kernel "$kernel"
	lab_setup "$refresh"
	if [[ $kernel != stock ]]; then
		use_lab setup
		use_uml "$kernel"
		hold_uml
		say "$kernel kernel ready: $(uml_krel)"
	fi
}

# need_kernel NAME: there is one of this name.
need_kernel() {
	local kernel
	for kernel in stock "${UML_KERNELS[@]}"; do
		[[ $1 != "$kernel" ]] || return 0
	done
	die "no kernel '$1': one of stock ${UML_KERNELS[*]}"
}
