# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the lab is made of, and making it: a Debian root file system (the build
# environment and the guest's root at once), a stock kernel with its headers,
# and those headers' Rust metadata. In: Debian's mirror. Out: $ROOTFS and one
# stamp for each finished step, which holds what the step depended on; a step
# is done again when that changed. Booting the result is left to vm.sh.

SUITE=trixie
KERNEL_SERIES=7.3
NEED_MB=8000

# Raise when the way a step works changes, so that existing labs do it again.
BASE_REVISION=1

PACKAGES=(
	# to build the kernel's headers and the module
	gcc-14 make flex bison bc libelf-dev libssl-dev libdw-dev dwarves pahole kmod xz-utils zstd
	cpio rsync git rustc rust-src rustfmt rust-clippy cargo bindgen clang libclang-dev lld llvm libc6-dev
	# to boot
	qemu-system-x86 virtiofsd
	# RDMA and its user space
	rdma-core nfs-kernel-server ibverbs-utils ibverbs-providers rdmacm-utils libibverbs-dev librdmacm-dev perftest
	# network, measuring, tests
	iproute2 iputils-ping iperf3 tcpdump nftables ethtool procps psmisc strace less jq
	trace-cmd bpftrace python3 python3-scapy python3-pytest ca-certificates
)

stamped() { [[ -e $CACHE/stamps/$1 && $(<"$CACHE/stamps/$1") == "$2" ]]; }
stamp() {
	mkdir -p "$CACHE/stamps"
	printf '%s\n' "$2" >"$CACHE/stamps/$1.tmp"
	mv "$CACHE/stamps/$1.tmp" "$CACHE/stamps/$1"
}
unstamp() { (cd "$CACHE/stamps" 2>/dev/null && rm -f -- "$@") || true; }

base_key() { echo "$BASE_REVISION $SUITE"; }
packages_key() { printf '%s\n' "${PACKAGES[@]}" | sort -u | tr '\n' ' '; }
headers_revision() { sed -n 's/^REVISION=//p' "$SRC/scripts/rust-headers"; }
headers_key() { echo "$(headers_revision) $(<"$CACHE/stamps/kernel")"; }

# The release and package version of the lab's kernel.
lab_krel() { cut -d' ' -f1 "$CACHE/stamps/kernel"; }
lab_kver() { cut -d' ' -f2 "$CACHE/stamps/kernel"; }
lab_kdir() { echo "/usr/src/linux-headers-$(lab_krel)-rust"; }

lab_ready() {
	stamped base "$(base_key)" && stamped packages "$(packages_key)" &&
		[[ -s $CACHE/stamps/kernel ]] && stamped headers "$(headers_key)"
}

# host_mirror LABEL: where this machine itself gets Debian from, if it is one.
host_mirror() {
	command -v apt-get >/dev/null || return 0
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI)|$(ORIGIN)|$(LABEL)' 'Created-By: Packages' 2>/dev/null |
		awk -F'|' -v label="$1" '$2 == "Debian" && $3 == label { print $1; exit }'
}

# find_mirror: the first of these that answers and has the suite, in $MIRROR.
find_mirror() {
	local probe mirror mirrors=("${DEBIAN_MIRROR-}")
	[[ -n ${DEBIAN_MIRROR-} ]] || mirrors=("$(host_mirror Debian)" http://deb.debian.org/debian)
	probe=$(mktemp)
	for mirror in "${mirrors[@]}"; do
		[[ -n $mirror ]] || continue
		MIRROR=${mirror%/}
		if /usr/lib/apt/apt-helper -q -o Acquire::Retries=2 -o Acquire::http::Timeout=20 \
			download-file "$MIRROR/dists/$SUITE/InRelease" "$probe" >/dev/null 2>&1; then
			rm -f "$probe"
			return 0
		fi
	done
	rm -f "$probe"
	die "no network: cannot read $MIRROR/dists/$SUITE (another mirror: DEBIAN_MIRROR=http://... scripts/lab setup)"
}

sources() {
	echo "deb $MIRROR $SUITE main"
	echo "deb $MIRROR $SUITE-updates main"
	echo "deb $MIRROR $SUITE-backports main"
}

check_space() {
	local have
	have=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
	((have >= NEED_MB)) ||
		die "$CACHE has $have MB free and the lab needs $NEED_MB (another place: XDG_CACHE_HOME=DIR scripts/lab setup)"
}

# remove_tree DIR: rm -rf that never follows a mount.
remove_tree() {
	[[ -e $1 ]] || return 0
	if awk -v top="$1/" '{ if (index($5 "/", top) == 1 && $5 "/" != top) { found = 1 } } END { exit !found }' /proc/self/mountinfo; then
		die "something is mounted below $1: umount it first"
	fi
	rm -rf --one-file-system -- "$1"
}

make_base() {
	local new=$ROOTFS.tmp line list proxy options=()
	# As this machine's apt reaches the mirror.
	proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
	[[ -z $proxy ]] || options+=(--aptopt="Acquire::http::Proxy \"$proxy\"")
	list=$(printf '%s\n' "${PACKAGES[@]}" | sort -u | paste -sd,)
	rm -rf --one-file-system "$new"
	mapfile -t line < <(sources)
	exec_ns mmdebstrap --variant=minbase --mode=root --architectures=amd64 --components=main \
		--keyring=/usr/share/keyrings \
		--aptopt='APT::Install-Recommends "false"' --aptopt='APT::Sandbox::User "root"' \
		--aptopt='Acquire::Retries "3"' --aptopt='Acquire::Languages "none"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		"${options[@]}" --include="$list" "$SUITE" "$new" "${line[@]}"
}

# What we add to Debian's files.
furnish() {
	local new=$1
	# Nothing starts in the chroot.
	printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d"
	chmod 755 "$new/usr/sbin/policy-rc.d"
	printf '127.0.0.1 localhost lab\n::1 localhost ip6-localhost\n' >"$new/etc/hosts"
	printf 'lab\n' >"$new/etc/hostname"
	rm -f "$new/etc/resolv.conf"
	: >"$new/etc/resolv.conf"
	mkdir -p "$new/src" "$new/share" "$new/lab"
}

# mend_apt: finish what an interrupted installation left, and read the lists again.
mend_apt() {
	wait_child in_rootfs -- dpkg --configure -a
	wait_child apt_rootfs -f install
	sources >"$ROOTFS/etc/apt/sources.list"
	wait_child apt_rootfs update
}

apt_rootfs() {
	in_rootfs -e DEBIAN_FRONTEND=noninteractive -- apt-get -qy --no-install-recommends "$@"
}

step_base() {
	stamped base "$(base_key)" && return 0
	check_space
	unstamp base packages kernel headers
	remove_tree "$ROOTFS"
	remove_tree "$ROOTFS.tmp"
	logged base "root file system: Debian $SUITE and ${#PACKAGES[@]} packages from $MIRROR (a minute or two, 2 GB)" make_base
	furnish "$ROOTFS.tmp"
	mv "$ROOTFS.tmp" "$ROOTFS"
	stamp packages "$(packages_key)"
	stamp base "$(base_key)"
}

step_packages() {
	stamped packages "$(packages_key)" && return 0
	install_packages() {
		mend_apt
		wait_child apt_rootfs install "${PACKAGES[@]}"
		wait_child apt_rootfs clean
	}
	logged packages "packages: the list changed, installing what is new" install_packages
	stamp packages "$(packages_key)"
}

# newest_kernel: "release version" of the newest 7.3.x whose image, headers and
# source the mirror has in one and the same version.
newest_kernel() {
	# shellcheck disable=SC2016
	wait_child in_rootfs -- bash -c '
		series=$1 pattern="^linux-image-(${1//./\\.}\.[0-9]+[^ -]*-amd64)\$"
		versions() { apt-cache madison "$1" | awk "{ print \$3 }"; }
		source=$(versions "linux-source-$series")
		for package in $(apt-cache search --names-only "$pattern" | cut -d" " -f1); do
			krel=${package#linux-image-}
			for version in $(versions "$package"); do
				grep -qxF "$version" <<<"$source" || continue
				versions "linux-headers-$krel" | grep -qxF "$version" && echo "$version $krel"
			done
		done | sort -V | tail -n 1' newest_kernel "$KERNEL_SERIES" | awk '{ print $2, $1 }'
}

# The image depends on something that makes initramfs images. The lab boots
# without one, and a real one costs a minute of every installation.
no_initramfs() {
	local dir=$ROOTFS/root/no-initramfs
	mkdir -p "$dir/DEBIAN"
	cat >"$dir/DEBIAN/control" <<-CONTROL
		Package: lab-no-initramfs
		Version: 1
		Architecture: all
		Provides: linux-initramfs-tool
		Conflicts: linux-initramfs-tool
		Maintainer: lab <root@localhost>
		Description: stands in for an initramfs generator: the lab boots without one
	CONTROL
	wait_child in_rootfs -- sh -c 'dpkg-deb -b /root/no-initramfs /root/no-initramfs.deb && dpkg -i /root/no-initramfs.deb'
	rm -rf "$dir" "$dir.deb"
}

step_kernel() {
	[[ -s $CACHE/stamps/kernel && -e $ROOTFS/boot/vmlinuz-$(lab_krel) ]] && return 0
	unstamp kernel
	local kernel krel kver
	logged kernel-list "kernel: looking for the newest $KERNEL_SERIES in $SUITE-backports" mend_apt
	kernel=$(newest_kernel)
	[[ -n $kernel ]] || die "the mirror $MIRROR has no linux $KERNEL_SERIES with image, headers and source of one version in $SUITE-backports"
	read -r krel kver <<<"$kernel"
	install_kernel() {
		no_initramfs
		# An older one goes: the lab holds one kernel, and the source is large.
		local old
		# shellcheck disable=SC2016
		old=$(chroot "$ROOTFS" dpkg-query -W -f '${Package}\n' 'linux-*-7.*' 2>/dev/null | grep -vF -e "${krel%-amd64}" -e "linux-source-$KERNEL_SERIES" | sed 's/$/-/' || true)
		# shellcheck disable=SC2086
		wait_child apt_rootfs -t "$SUITE-backports" install "linux-image-$krel=$kver" "linux-headers-$krel=$kver" \
			"linux-source-$KERNEL_SERIES=$kver" $old
		wait_child apt_rootfs autoremove --purge
		find "$ROOTFS/usr/src" "$ROOTFS/boot" -mindepth 1 -maxdepth 1 ! -name "*-$krel*" \
			\( -name 'linux-headers-*-rust' -o -name 'vmlinux-*' \) -exec rm -rf {} +
		wait_child apt_rootfs clean
	}
	logged kernel "kernel: Debian's $krel ($kver), headers and source (200 MB)" install_kernel
	stamp kernel "$krel $kver"
}

step_headers() {
	stamped headers "$(headers_key)" && return 0
	unstamp headers
	make_headers() {
		wait_child in_rootfs -r "$SRC/scripts" /lab -- nice /lab/rust-headers --kernel "$(lab_krel)"
		wait_child in_rootfs -- "$(lab_kdir)/scripts/extract-vmlinux" "/boot/vmlinuz-$(lab_krel)" >"$vmlinux"
	}
	# Booted uncompressed: unpacking it costs a second of emulated CPU.
	local vmlinux
	vmlinux=$ROOTFS/boot/vmlinux-$(lab_krel)
	logged headers "headers: Rust metadata for $(lab_krel) (some minutes of all CPUs)" make_headers
	stamp headers "$(headers_key)"
}

lab_setup() {
	if [[ ${1-} == --refresh ]]; then
		unstamp kernel
		shift
	fi
	[[ -z ${1-} ]] || die "lab setup takes no $1"
	if lab_ready; then
		say "lab ready: $ROOTFS, kernel $(lab_krel)"
		return 0
	fi
	need_root setup
	[[ $(uname -m) == x86_64 ]] || die "the lab is made for x86-64 machines, this is $(uname -m)"
	mkdir -p "$CACHE/stamps" || die "cannot write $CACHE"
	exec {lock}>"$CACHE/lock"
	if ! flock -n "$lock"; then
		say "waiting for another setup, or a running guest, to end"
		flock "$lock"
		if lab_ready; then
			say "lab ready: $ROOTFS, kernel $(lab_krel)"
			exec {lock}>&-
			return 0
		fi
	fi
	need_tools util-linux=setpriv util-linux=unshare apt=/usr/lib/apt/apt-helper \
		mmdebstrap=mmdebstrap debian-archive-keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	need_namespaces
	find_mirror
	step_base
	step_packages
	step_kernel
	step_headers
	exec {lock}>&-
	say "lab ready: $ROOTFS, kernel $(lab_krel)"
}

# For the verbs that use the lab: make what is missing, then hold it for as
# long as this script lives, so that no setup changes it meanwhile.
use_lab() {
	need_root "$@"
	lab_ready || lab_setup ''
	exec {lock}>"$CACHE/lock"
	flock -n -s "$lock" || { say "waiting for a setup to end"; flock -s "$lock"; }
	lab_ready || die "the lab changed meanwhile: try again"
	need_namespaces
}
