# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Building the module in the lab. In: the checkout as it stands, committed or
# not. Out: rxe_cc.ko in a copy below the cache, one copy for each checkout, so
# that nothing is written into the checkout, builds are incremental, and two
# checkouts never meet. How a module is built is the Makefile's matter.

# build_dir KERNEL: this checkout's place. The path is its name, hashed.
build_dir() {
	echo "$CACHE/build/$(basename "$SRC")-$(sha256sum <<<"$SRC" | cut -c1-12)$([[ $1 == stock ]] || echo "-$1")"
}

# source_files: what belongs to the checkout, NUL-separated: tracked or new, not
# what .gitignore names. Without git everything but usual build output.
source_files() (
	cd "$SRC" || exit
	if git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1; then
		git -c safe.directory='*' ls-files -z --cached --others --exclude-standard --deduplicate
	else
		find . -name target -prune -o -name '.*.cmd' -o -name '*.o' -o -name '*.ko' -o -name '*.mod*' -o -type f -printf '%P\0'
	fi | while IFS= read -r -d '' file; do
		[[ ! -f $file && ! -L $file ]] || printf '%s\0' "$file"
	done | sort -z
)

# copy_sources DIR: bring DIR to the state of the checkout. What changed gets the
# time of the copy, not its own: a file that was saved during the last build is
# older than that build's output. What left the checkout leaves the copy.
copy_sources() {
	local copy=$1/src list=$1/files new=$1/new file try
	mkdir -p "$copy"
	rm -rf "$new"
	mkdir "$new"
	# Someone may be saving a file at this moment: then once more.
	for try in 1 2 3; do
		source_files >"$list.new"
		tar -C "$SRC" --null --verbatim-files-from -T "$list.new" -cf "$1/files.tar" 2>"$list.err" && break
		((try < 3)) || die "cannot copy the checkout: $(head -n 1 "$list.err")"
		sleep 0.2
	done
	tar -C "$new" --no-same-owner --touch -xf "$1/files.tar"
	rm "$1/files.tar"
	while IFS= read -r -d '' file; do
		cmp -s -- "$new/$file" "$copy/$file" && continue
		mkdir -p -- "$(dirname "$copy/$file")"
		mv -f -- "$new/$file" "$copy/$file"
	done <"$list.new"
	rm -rf "$new"
	if [[ -e $list ]]; then
		comm -z -23 "$list" "$list.new" | (cd "$copy" && xargs -0 -r rm -f --)
	fi
	mv "$list.new" "$list"
}

# build_module RESULT KERNEL: rxe_cc.ko at RESULT, for the stock kernel or the one that
# use_uml named; complaints of the compiler on stderr.
build_module() {
	local dir result=$1 log started=$SECONDS status=0 build_lock key kdir options=() words=()
	[[ -f $SRC/Kbuild ]] || die "no Kbuild in $SRC: nothing to build"
	case $2 in
	stock) kdir=$(lab_kdir) key=$(headers_key) ;;
	*)
		kdir=$UML_TREE key=$(uml_key)
		options=(-r "$UML/tree" "$UML_TREE" -r "$UML/modules" "/usr/lib/modules/$(uml_krel)")
		words=(ARCH=um KCFLAGS=-Wno-null-pointer-arithmetic KRUSTFLAGS="-Crelocation-model=static -Ccode-model=large")
		;;
	esac
	dir=$(build_dir "$2")
	mkdir -p "$dir"
	log=$dir/build.log
	exec {build_lock}>"$dir/lock"
	flock -n "$build_lock" || { say "waiting for another build of this checkout"; flock "$build_lock"; }
	copy_sources "$dir"
	# Compiler output of another kernel or compiler is of no use.
	if [[ ! -e $dir/kernel || $(<"$dir/kernel") != "$key" ]]; then
		find "$dir/src" \( -name '*.o' -o -name '*.ko' -o -name '*.cmd' -o -name '*.rmeta' -o -name '*.mod' -o -name '*.mod.c' \) -delete
		echo "$key" >"$dir/kernel"
	fi
	wait_child in_rootfs -b "$dir/src" /src "${options[@]}" -C /src -- \
		make --no-print-directory -j"$(nproc)" KDIR="$kdir" "${words[@]}" modules >"$log" 2>&1 || status=$?
	if ((status)); then
		cat "$log" >&2
		die "the module does not build (above; $log)"
	fi
	# Warnings, up to the blank line or the build step that ends each.
	awk '/^(warning|WARNING)|: warning:/ { on = 1 } /^$|^  [A-Z]+ (\[M\])?/ { on = 0 } on' "$log" >&2
	cp "$dir/src/rxe_cc.ko" "$result.tmp"
	mv "$result.tmp" "$result"
	exec {build_lock}>&-
	say "built rxe_cc.ko ($((SECONDS - started))s)"
}

# host_certificates: the file with those that this machine trusts, if it can be found.
host_certificates() {
	local file
	for file in "${CARGO_HTTP_CAINFO-}" "${SSL_CERT_FILE-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
		[[ -z $file || ! -r $file ]] || { echo "$file"; return; }
	done
}

# cargo_home DIR: crates, kept over builds, and how this machine reaches them:
# certificates, and what its own cargo is told of mirrors and of the network.
cargo_home() {
	local file config=${CARGO_HOME:-${HOME:-/root}/.cargo}/config.toml
	mkdir -p "$1"
	rm -f "$1/config.toml" "$1/certificates"
	file=$(host_certificates)
	[[ -z $file ]] || install -m 644 "$file" "$1/certificates"
	[[ ! -r $config ]] ||
		awk '/^\[/ { on = /^\[(source|registries|registry|http|net)[].]/ } on' "$config" >"$1/config.toml"
}

# tool_key: one word for all that the user's command, rxecc, is made of.
tool_key() (
	cd "$SRC" || exit
	{
		packages_key
		source_files | grep -zE '^(Cargo\.(toml|lock)$|rust/(lib\.rs$|roce/|dcqcn/)|tools/rxecc/)' | xargs -0 sha256sum
	} | sha256sum | cut -d' ' -f1
)

# build_tool RESULT: rxecc at RESULT, made by the lab's own cargo, so that it fits the
# guest's libraries; nothing is done while its sources are the same, nor where another
# checkout made it of the same ones. A tool that cannot be built keeps no guest from its
# module.
build_tool() {
	local dir result=$1 key twin started=$SECONDS build_lock options
	[[ -f $SRC/tools/rxecc/Cargo.toml ]] || return 0
	dir=$(build_dir stock)-tools
	mkdir -p "$dir/target"
	exec {build_lock}>"$dir/lock"
	flock -n "$build_lock" || { say "waiting for another build of rxecc"; flock "$build_lock"; }
	key=$(tool_key)
	if [[ -e $dir/broken && $(<"$dir/broken") == "$key" ]]; then
		say "there will be no rxecc in the guest: it does not build ($CACHE/log/${dir##*/}.log)"
	elif [[ ! -x $dir/rxecc || ! -e $dir/key || $(<"$dir/key") != "$key" ]]; then
		rm -f "$dir/rxecc" "$dir/key" "$dir/broken"
		twin=$(grep -slxF "$key" "$CACHE"/build/*-tools/key | head -n 1) || true
		if [[ -n $twin ]] && cp "${twin%/key}/rxecc" "$dir/rxecc"; then
			echo "$key" >"$dir/key"
		fi
	fi
	if [[ ! -e $dir/key && ! -e $dir/broken ]]; then
		copy_sources "$dir"
		cargo_home "$CACHE/cargo"
		options=(-b "$dir/src" /src -b "$dir/target" /tmp/target -b "$CACHE/cargo" /tmp/cargo -C /src
			-e CARGO_HOME=/tmp/cargo -e CARGO_TARGET_DIR=/tmp/target -e CARGO_TERM_COLOR=never
			-e CARGO_INCREMENTAL=1 -e CARGO_PROFILE_RELEASE_STRIP=true)
		[[ ! -e $CACHE/cargo/certificates ]] || options+=(-e CARGO_HTTP_CAINFO=/tmp/cargo/certificates)
		if wait_child logged "${dir##*/}" "building rxecc (a minute or two the first time)" \
			in_rootfs "${options[@]}" -- cargo build --locked --release --package rxecc; then
			cp "$dir/target/release/rxecc" "$dir/rxecc"
			echo "$key" >"$dir/key"
			say "built rxecc ($((SECONDS - started))s)"
		else
			# Not worth another try, unless it was the network.
			! grep -q '^error: could not compile' "$CACHE/log/${dir##*/}.log" || echo "$key" >"$dir/broken"
			say "there will be no rxecc in the guest (above)"
		fi
	fi
	exec {build_lock}>&-
	give_tool "$result"
}

# give_tool RESULT: the rxecc that was built last, if there is one, at RESULT.
give_tool() {
	local tool
	tool=$(build_dir stock)-tools/rxecc
	[[ -x $tool ]] || return 0
	mkdir -p "$(dirname "$1")"
	cp "$tool" "$1"
}

lab_build() {
	(($# == 0)) || die "lab build takes no $1"
	use_lab build
	local dir
	dir=$(build_dir stock)
	mkdir -p "$dir"
	build_module "$dir/rxe_cc.ko" stock
	echo "$dir/rxe_cc.ko"
}
