#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# scripts/preflight says every problem in one line, and only real ones. In:
# nothing; headers, module directories and tools are made up in a temporary
# directory. Out: KTAP; status 1 if a case failed. Runs anywhere, builds nothing.
set -euo pipefail

preflight=$(cd "$(dirname "$0")/.." && pwd -P)/scripts/preflight
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

rustc_text='rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)'

# fake NAME SCRIPT: a tool in $bin.
fake() {
	printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
	chmod +x "$bin/$1"
}

# Each case starts from a machine where nothing is missing, and breaks one thing.
good() {
	local file
	rm -rf "$top/case"
	kdir=$top/case/kdir bin=$top/case/bin modules=$top/case/modules
	mkdir -p "$kdir/include/config" "$kdir/rust" "$bin" "$modules/kernel/drivers/infiniband/sw/rxe"
	: >"$kdir/Makefile"
	echo 7.3.4-test >"$kdir/include/config/kernel.release"
	cat >"$kdir/include/config/auto.conf" <<-CONF
		CONFIG_CC_VERSION_TEXT=x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0
		CONFIG_RUST=y
		CONFIG_RUSTC_VERSION_TEXT=$rustc_text
		CONFIG_INFINIBAND=m
		CONFIG_RDMA_RXE=m
	CONF
	printf '0x00000000\t%s\tdrivers/infiniband/core/ib_core\tEXPORT_SYMBOL\t\n' \
		ib_register_client rdma_restrack_begin_del >"$kdir/Module.symvers"
	for file in libcore.rmeta libffi.rmeta libbindings.rmeta libkernel.rmeta libmacros.so; do
		: >"$kdir/rust/$file"
	done
	: >"$modules/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz"
	for file in awk bash cat dirname env grep head mktemp rm sed; do
		ln -s "$(command -v "$file")" "$bin/$file"
	done
	fake make 'exit 0'
	fake x86_64-linux-gnu-gcc-14 'exit 0'
	fake rustc "echo '$rustc_text'"
	fake bindgen 'exit 0'
}

number=0 failed=0
# expect STATUS LINES REGEX NAME: what preflight has to say: as many lines, one of
# them as REGEX.
expect() {
	local want=$1 lines=$2 regex=$3 name=$4 status=0 said said_lines
	number=$((number + 1))
	said=$(env -i PATH="$bin" "$(command -v bash)" "$preflight" "$kdir" "$modules" 2>&1) || status=$?
	said_lines=$(grep -c . <<<"$said" || true)
	if [[ $status == "$want" && $said_lines == "$lines" ]] && grep -qE "$regex" <<<"$said"; then
		echo "ok $number $name"
	else
		echo "not ok $number $name"
		echo "# status $status, wanted $want; $said_lines lines, wanted $lines with: $regex"
		echo "#   ${said//$'\n'/$'\n#   '}"
		failed=$((failed + 1))
	fi
}
without() { sed -i "/$1/d" "$2"; }

echo "KTAP version 1"
echo "1..23"

good
expect 0 0 '^$' 'says nothing where nothing is missing'

good
sed -i 's/\(_TEXT\)=\(.*\)/\1="\2"/' "$kdir/include/config/auto.conf"
expect 0 0 '^$' 'reads the quoted settings of older kernels as well'

good
rm -r "$kdir"
expect 1 1 'error: no kernel headers at .*: apt-get install linux-headers-' 'names the headers package'

good
rm "$kdir/include/config/auto.conf"
expect 1 1 'error: no kernel headers' 'takes an unconfigured tree for none'

good
without '^CONFIG_RUST=' "$kdir/include/config/auto.conf"
expect 1 1 'error: kernel 7.3.4-test was built without CONFIG_RUST' 'refuses a kernel without Rust'

good
rm "$kdir"/rust/*
expect 1 1 'error: .* lacks Rust metadata .*rust-headers --kernel 7.3.4-test' 'sends headers without metadata to rust-headers'

good
rm "$kdir/rust/libkernel.rmeta"
expect 1 1 'error: .* lacks Rust metadata \(rust/libkernel.rmeta, 1 missing' 'sees one missing metadata file'

good
rm "$kdir/rust/libmacros.so"
expect 1 1 'error: .* lacks Rust metadata \(rust/libmacros.so' 'sees the missing macro library'

good
rm "$kdir/Module.symvers"
expect 1 1 'error: .* has no Module.symvers' 'needs Module.symvers'

good
: >"$kdir/Module.symvers"
expect 1 1 'error: .* no RDMA core .*CONFIG_INFINIBAND' 'refuses a kernel without RDMA core'

good
without rdma_restrack_begin_del "$kdir/Module.symvers"
expect 1 1 'error: .* does not export rdma_restrack_begin_del: .* destroyed' 'refuses a kernel whose restrack shows dying QPs, and says why'

good
sed -i 's/rdma_restrack_begin_del/rdma_restrack_begin_del_other/' "$kdir/Module.symvers"
expect 1 1 'error: .* does not export rdma_restrack_begin_del:' 'wants the very symbol'

good
without CONFIG_RDMA_RXE "$kdir/include/config/auto.conf"
expect 0 1 'warning: .* built without soft-RoCE' 'warns of a kernel without soft-RoCE'

good
rm "$modules"/kernel/drivers/infiniband/sw/rxe/*
expect 0 1 'warning: rdma_rxe is not installed .*: apt-get install linux-image-7.3.4-test' 'warns of rdma_rxe not installed'

good
rm -r "$modules"
expect 0 0 '^$' 'asks no modules of a kernel that is not installed'

good
rm "$bin/make"
expect 1 1 'error: no make: apt-get install make' 'names make'

good
rm "$bin/x86_64-linux-gnu-gcc-14"
expect 1 1 'error: no C compiler x86_64-linux-gnu-gcc-14, .* apt-get install gcc-14$' 'names the compiler of the kernel'

good
sed -i 's/^CONFIG_CC_VERSION_TEXT=.*/CONFIG_CC_VERSION_TEXT="Debian clang version 19.1.7 (3+b1)"/' "$kdir/include/config/auto.conf"
expect 1 1 'error: no C compiler clang, .* apt-get install clang$' 'knows clang behind the name of a distribution'

good
rm "$bin/rustc"
expect 1 1 'error: no rustc: apt-get install rustc' 'names rustc'

good
fake rustc 'echo "rustc 1.93.0 (254b59607 2026-01-19)"'
expect 1 1 "error: rustc is 'rustc 1.93.0 .*', kernel 7.3.4-test was built with 'rustc 1.85.1 " 'refuses another rustc than the kernel had'

good
rm "$bin/bindgen"
expect 1 1 'error: no bindgen: apt-get install bindgen' 'names bindgen'

good
fake bindgen 'echo "thread main panicked at x:1:2:" >&2; echo "Unable to find libclang: \"could not find any of: [libclang.so]\"" >&2; exit 101'
expect 1 1 'error: bindgen finds no libclang: apt-get install libclang-dev' 'names libclang'

good
rm "$bin/bindgen" "$bin/rustc" "$kdir/rust/libcore.rmeta"
without rdma_restrack_begin_del "$kdir/Module.symvers"
expect 1 4 'error: no bindgen' 'says all problems at once'

echo "# totals: pass:$((number - failed)) fail:$failed"
exit $((failed > 0))
