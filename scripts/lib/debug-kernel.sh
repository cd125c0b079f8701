# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The debug kernel: User-mode Linux from the lab's linux-source, with the options
# of debug-kernel.config. It looks for bugs that the stock kernel lets pass (uses
# after free, lock order, sleeping where one must not, leaks), runs KUnit suites,
# and makes allocations fail on request. It is a program, so it runs at the speed
# of this machine, KVM or not. In: the lab's root file system. Out: $DEBUG with
# the kernel (linux), its modules, and the tree that modules are built against.
#
# KASAN and Rust together want clang, so all of it is built with LLVM=1.

DEBUG=$CACHE/debug
# The tree's place inside the root file system, the same for building and using.
DEBUG_TREE=/usr/src/linux-debug
DEBUG_NEED_MB=3000

# Raise when the way it is built changes, so that existing ones are built again.
DEBUG_REVISION=1

# What it depends on: the source, the configuration, the compilers.
debug_key() {
	local tools
	tools=$(awk '/^Package: (clang|rustc|bindgen|lld)$/ { on = 1 } /^$/ { on = 0 } on && /^Version: / { print $2 }' \
		"$ROOTFS/var/lib/dpkg/status" | tr '\n' ' ')
	echo "$DEBUG_REVISION $(lab_kver) $(sha256sum <"$SRC/scripts/lib/debug-kernel.config" | cut -c1-16) $tools"
}
source_key() { echo "$DEBUG_REVISION $(lab_kver)"; }
debug_ready() { [[ -x $DEBUG/linux ]] && stamped debug "$(debug_key)"; }
debug_krel() { cat "$DEBUG/tree/include/config/kernel.release"; }

# in_debug_tree TREE [OPTION]... -- CMD...: become CMD in the root file system, in
# the tree.
in_debug_tree() {
	local tree=$1
	shift
	in_rootfs -b "$tree" "$DEBUG_TREE" -r "$SRC/scripts/lib" /lab -C "$DEBUG_TREE" "$@"
}

debug_make() {
	in_debug_tree "$DEBUG/tree.tmp" -- nice -n 10 make ARCH=um LLVM=1 -j"$(nproc)" "$@"
}

# The source without what UML has no use for; Kconfig wants its own files.
unpack_debug() {
	rm -rf --one-file-system "$DEBUG/tree.tmp"
	mkdir -p "$DEBUG/tree.tmp"
	tar -C "$DEBUG/tree.tmp" --strip-components=1 --wildcards --wildcards-match-slash \
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
mend_debug() {
	local tree=$DEBUG/tree.tmp/arch/um/kernel
	sed -i 's/if (__kernel_text_address(addr))/if ((unsigned long)sp == bp + sizeof(long) \&\& __kernel_text_address(addr))/' "$tree/stacktrace.c"
	sed -i 's/^ *\*(COMMON)$/&\n   *(.lbss .lbss.*)/' "$tree/dyn.lds.S"
	sed -i 's/^CFLAGS_stub\.o := .*/& -fomit-frame-pointer/' "$tree/skas/Makefile"
	grep -qF 'bp + sizeof(long) && __kernel' "$tree/stacktrace.c" && grep -qF '.lbss.*' "$tree/dyn.lds.S" &&
		grep -q '^CFLAGS_stub\.o.*-fomit-frame-pointer' "$tree/skas/Makefile"
}

# Each option must be there in the end: one that lost a dependency vanishes in
# silence.
configure_debug() {
	local lacks
	wait_child in_debug_tree "$DEBUG/tree.tmp" -- make ARCH=um LLVM=1 -s KCONFIG_ALLCONFIG=/lab/debug-kernel.config allnoconfig
	lacks=$(grep -E '^(# )?CONFIG_' "$SRC/scripts/lib/debug-kernel.config" | grep -vxFf "$DEBUG/tree.tmp/.config" || true)
	[[ -z $lacks ]] || { printf 'not in the configuration: %s\n' "$lacks"; return 1; }
}

compile_debug() {
	local krel modules=$DEBUG/modules.tmp
	# In the tree while it is built: only that is bound into the root file system.
	wait_child debug_make vmlinux modules
	wait_child debug_make -s INSTALL_MOD_PATH=install modules_install
	krel=$(<"$DEBUG/tree.tmp/include/config/kernel.release")
	rm -rf "$modules"
	mv "$DEBUG/tree.tmp/install/lib/modules/$krel" "$modules"
	rm -rf "$modules/build" "$modules/source" "$DEBUG/tree.tmp/install"
}

# What is neither the kernel nor needed to build modules goes.
trim_debug() {
	local tree=$DEBUG/tree.tmp
	llvm_strip() { in_debug_tree "$tree" -- llvm-strip --strip-debug -o linux.stripped vmlinux; }
	wait_child llvm_strip
	mv "$tree/linux.stripped" "$DEBUG/linux.tmp"
	rm -f "$tree"/{.mended,linux,vmlinux*,.tmp_vmlinux*,modules.*} "$tree"/{vmlinux,.vmlinux}.*
	find "$tree" \( -name '*.o' -o -name '*.a' -o -name '.*.cmd' -o -name '*.o.d' \) ! -path "$tree/scripts/*" ! -path "$tree/rust/*" -delete
	find "$tree/rust" -name '*.o' -delete
	find "$tree/arch" -mindepth 1 -maxdepth 1 -type d ! -name um ! -name x86 -exec rm -rf {} +
	find "$tree" -mindepth 1 -maxdepth 1 -type d ! -name arch ! -name include ! -name scripts ! -name rust ! -name tools -exec rm -rf {} +
}

# setup_debug: build it, if it is not there. One at a time, and not while one runs.
setup_debug() {
	debug_ready && return 0
	local lock_debug
	mkdir -p "$DEBUG"
	exec {lock_debug}>"$DEBUG/lock"
	flock -n "$lock_debug" || { say "waiting for another build of the debug kernel, or a guest that runs it, to end"; flock "$lock_debug"; }
	if ! debug_ready; then
		check_space "$DEBUG_NEED_MB"
		unstamp debug
		rm -rf --one-file-system "$DEBUG"/{tree,modules,linux}
		# A build that was broken off goes on, from the same source.
		if [[ ! -e $DEBUG/tree.tmp/.mended || $(<"$DEBUG/tree.tmp/.mended") != "$(source_key)" ]]; then
			logged debug-unpack "debug kernel: unpacking the source of $(lab_kver)" unpack_debug
			mend_debug || die "the source of $(lab_kver) is not the one that mend_debug() mends"
			source_key >"$DEBUG/tree.tmp/.mended"
		fi
		logged debug-config "debug kernel: configuring" configure_debug
		logged debug-build "debug kernel: building (some 15 minutes of two CPUs, once)" compile_debug
		logged debug-trim "debug kernel: trimming" trim_debug
		mv "$DEBUG/tree.tmp" "$DEBUG/tree"
		mv "$DEBUG/modules.tmp" "$DEBUG/modules"
		mv "$DEBUG/linux.tmp" "$DEBUG/linux"
		stamp debug "$(debug_key)"
		say "debug kernel: $(du -sm "$DEBUG" | cut -f1) MB"
	fi
	exec {lock_debug}>&-
}

# hold_debug: make it if missing, then hold it for as long as this script lives.
hold_debug() {
	setup_debug
	exec {debug_lock}>"$DEBUG/lock"
	flock -s "$debug_lock"
	debug_ready || die "the debug kernel changed meanwhile: try again"
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
	lab_setup "$refresh"
	case $kernel in
	stock) ;;
	debug)
		use_lab setup
		hold_debug
		say "debug kernel ready: $(debug_krel)"
		;;
	*) die "no kernel '$kernel': stock or debug" ;;
	esac
}
