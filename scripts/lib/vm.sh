# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Guests. In: a command, or a terminal. Out: the command's output on stdout as
# it comes, its status, the kernel's log. QEMU is called directly and boots the
# lab's root file system over virtiofs, without initramfs and without image:
# virtme-ng does the same, but its full machine and udev take 100 s to boot
# where there is no KVM; this takes five. Kernels of our own boot the same root as
# ordinary programs (uml-kernel.sh).
#
# A guest's processes live in name spaces that end with this script, so nothing
# stays behind; its root is read-only on the host's side and an overlay in
# memory in the guest, so guests neither see nor harm each other.

# Set by options of run and shell.
vm_smp=2 vm_mem=2048 vm_share='' vm_log='' vm_timeout=1800 vm_kernel=stock vm_build=1 vm_icount=0

# Options that run and shell share; $rest gets what follows them.
vm_options() {
	local option
	while (($#)); do
		option=$1
		case $option in
		--smp | --mem | --share | --log | --timeout | --kernel)
			(($# > 1)) || die "$option needs a value"
			case $option in
			--smp) vm_smp=$2 ;;
			--mem) vm_mem=$2 ;;
			--share) vm_share=$2 ;;
			--log) vm_log=$2 ;;
			--timeout) vm_timeout=$2 ;;
			--kernel) vm_kernel=$2 ;;
			esac
			shift 2
			;;
		--no-build) vm_build=0; shift ;;
		--icount) vm_icount=1; shift ;;
		--) shift; break ;;
		-*) die "no option $option (scripts/lab help)" ;;
		*) break ;;
		esac
	done
	rest=("$@")
	case $vm_mem in *[gG]) vm_mem=$((${vm_mem%?} * 1024)) ;; *[mM]) vm_mem=${vm_mem%?} ;; esac
	[[ $vm_smp =~ ^[1-9][0-9]*$ && $vm_mem =~ ^[1-9][0-9]*$ && $vm_timeout =~ ^[1-9][0-9]*$ ]] ||
		die "--smp, --mem and --timeout take positive numbers"
	need_kernel "$vm_kernel"
	[[ $vm_icount == 0 || $vm_kernel == stock ]] || die "--icount is of the emulated machine: not with --kernel $vm_kernel"
	if [[ -n $vm_share ]]; then
		[[ -d $vm_share ]] || die "--share $vm_share is not a directory"
		vm_share=$(cd "$vm_share" && pwd -P)
	fi
}

# new_run: a directory for one guest in $run; old ones beyond the last 20 go.
# A lock that its guest holds keeps a live one.
new_run() {
	local old lock_old
	mkdir -p "$CACHE/runs"
	while read -r old; do
		{ exec {lock_old}>>"$CACHE/runs/$old/lock"; } 2>/dev/null || continue
		! flock -n "$lock_old" || rm -rf --one-file-system -- "$CACHE/runs/${old:?}"
		exec {lock_old}>&-
	done < <(find "$CACHE/runs" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %f\n' | sort -rn | tail -n +21 | cut -d' ' -f2)
	run=$(mktemp -d "$CACHE/runs/$(date +%m%d-%H%M%S)-XXXX")
	exec {run_lock}>"$run/lock"
	flock -n "$run_lock"
	mkdir "$run/guest" "$run/guest/dev"
	ln -s /proc/self/fd "$run/guest/dev/fd"
	ln -s fd/0 "$run/guest/dev/stdin"
	ln -s fd/1 "$run/guest/dev/stdout"
	ln -s fd/2 "$run/guest/dev/stderr"
	cp "$SRC/scripts/lib/guest-init" "$run/guest/init"
	[[ $vm_kernel == stock ]] || : >"$run/guest/uml"
	((vm_icount == 0)) || : >"$run/guest/icount"
}

# accelerator: kvm where a guest really boots with it, else tcg. /dev/kvm alone
# says little (nested and emulated ones fail later), so one trial boot decides,
# once for each boot of this machine.
accelerator() {
	local note=$CACHE/stamps/accel boot verdict=tcg
	case ${RXE_CC_ACCEL-} in
	kvm | tcg) echo "$RXE_CC_ACCEL"; return ;;
	'') ;;
	*) die "RXE_CC_ACCEL is kvm or tcg, not $RXE_CC_ACCEL" ;;
	esac
	[[ -r /dev/kvm && -w /dev/kvm ]] || { echo tcg; return; }
	boot="$(</proc/sys/kernel/random/boot_id) $(lab_krel)"
	if ! [[ -e $note ]] || [[ $(cut -d' ' -f1,2 "$note") != "$boot" ]]; then
		say "trying KVM"
		# A process of its own: the trial must not touch this run's state.
		if RXE_CC_ACCEL=kvm "$SRC/scripts/lab" run --no-build --smp 1 --mem 512 --timeout 20 -- true >/dev/null 2>&1; then
			verdict=kvm
		else
			say "KVM does not boot a guest here: emulating (TCG)"
		fi
		printf '%s %s\n' "$boot" "$verdict" >"$note.$$"
		mv "$note.$$" "$note"
	fi
	cut -d' ' -f3 "$note"
}

# boot [TTY]: the guest, in name spaces of its own. Status: 0 when QEMU ended by
# itself, 124 on timeout, else trouble with starting it.
boot() {
	local kernel
	kernel=/boot/vmlinux-$(lab_krel)
	[[ $vm_kernel == stock ]] || kernel=$UML
	exec_ns bash "$SRC/scripts/lib/vm-host" "$ROOTFS" "$SRC" "${vm_share:--}" "$run" \
		"$accel" "$vm_smp" "$vm_mem" "$vm_timeout" "$kernel" "${1-}"
}

# start_guest [tty]: boot and judge how it ended; the guest's status in $verdict.
start_guest() {
	local status=0 accel=uml
	if ((vm_icount)); then
		accel=icount
	elif [[ $vm_kernel == stock ]]; then
		accel=$(accelerator)
	fi
	wait_child boot "$@" || status=$?
	if [[ -e $run/console ]]; then
		tr -d '\r' <"$run/console" >"$run/dmesg.log"
		[[ -z $vm_log ]] || cp "$run/dmesg.log" "$vm_log"
		[[ -z $vm_share ]] || cp "$run/dmesg.log" "$vm_share/dmesg.log"
	fi
	verdict=$([[ ! -e $run/status ]] || tr -dc 0-9 <"$run/status")
	[[ -z $verdict ]] || return 0
	if ((status == 124)); then
		say "timeout: no end after $vm_timeout s (kernel log: $run/dmesg.log)"
		verdict=124
	elif ((status == 0)); then
		tail -n 40 "$run/dmesg.log" | sed 's/^/[lab]   | /' >&2
		say "the guest died (above; the whole kernel log: $run/dmesg.log)"
		verdict=125
	else
		sed 's/^/[lab]   | /' "$run"/*.err >&2 || true
		die "the virtual machine failed with status $status"
	fi
}

prepare_guest() {
	new_run
	if [[ $vm_kernel != stock ]]; then
		use_uml "$vm_kernel"
		hold_uml
	fi
	((vm_build == 0)) || build_module "$run/guest/rxe_cc.ko" "$vm_kernel"
	if ((vm_build)); then
		build_tool "$run/guest/bin/rxecc"
	else
		give_tool "$run/guest/bin/rxecc"
	fi
	printf '%s\0' "$@" >"$run/guest/argv"
}

lab_run() {
	local rest run run_lock verdict
	vm_options "$@"
	((${#rest[@]})) || die "run what? scripts/lab run -- CMD"
	use_lab run
	prepare_guest "${rest[@]}"
	start_guest </dev/null
	exit "$verdict"
}

lab_shell() {
	local rest run run_lock verdict
	vm_options "$@"
	((${#rest[@]} == 0)) || die "lab shell takes no command: scripts/lab run -- CMD"
	[[ -t 0 && -t 1 ]] || die "lab shell needs a terminal; commands go to scripts/lab run -- CMD"
	use_lab shell
	vm_timeout=1000000
	prepare_guest bash -l
	stty size >"$run/guest/size"
	printf '%s\n' "${TERM:-vt100}" >"$run/guest/term"
	say "booting; the shell's end (exit, ^D) ends the guest"
	# shellcheck disable=SC2034 # leave() reads it
	terminal=$(stty -g)
	start_guest tty
	exit "$verdict"
}
