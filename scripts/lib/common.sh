# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the lab's scripts share: progress and error lines, host tools, and
# processes in name spaces of their own. In: nothing. Out: functions, and the
# paths of checkout and cache. What the lab contains stands in setup.sh, how
# it boots in vm.sh.

# The checkout that this script belongs to, and the lab's place on disk.
SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rxe_cc
ROOTFS=$CACHE/rootfs

export LC_ALL=C

# Exit status of errors that are the lab's own, not the command's.
LAB_FAILED=126

# Progress goes to stderr: stdout belongs to the command that runs in the lab.
say() { printf '[lab] %4ds  %s\n' "$SECONDS" "$*" >&2; }
die() {
	printf '[lab] error: %s\n' "$*" >&2
	exit "$LAB_FAILED"
}

# The child process of the moment; it goes with all its own.
CHILD=
stop_child() {
	local pid=$CHILD
	CHILD=
	[[ -n $pid ]] || return 0
	kill -KILL "$pid" 2>/dev/null || return 0
	wait "$pid" 2>/dev/null || true
}

# On every way out: nothing goes on running, and a terminal that a guest had is
# as it was.
terminal=
leave() {
	stop_child
	[[ -z $terminal ]] || stty "$terminal" || true
}

# exec_ns CMD...: become CMD in mount and process name spaces of its own. When
# CMD ends or this process is killed, however hard, everything that CMD
# started or mounted is gone.
exec_ns() {
	exec setpriv --pdeathsig KILL -- \
		unshare --mount --propagation private --pid --fork --kill-child --mount-proc -- "$@"
}

# in_rootfs [OPTION]... -- CMD...: become CMD in the lab's root file system, with
# /dev, /proc, /sys, a /tmp of its own and the host's network; options of "enter".
in_rootfs() {
	exec_ns bash "$SRC/scripts/lib/enter" "$ROOTFS" "$@"
}

# wait_child CMD...: CMD (a function or program that may exec) in a subshell,
# with our stdin; its status. Interruptible, as a plain foreground child is not.
wait_child() {
	local status=0
	( CHILD=; "$@" ) <&0 &
	CHILD=$!
	wait "$CHILD" || status=$?
	CHILD=
	return "$status"
}

# logged NAME TITLE CMD...: CMD with its output in the log NAME, and a sign of
# life now and then.
logged() {
	local log=$CACHE/log/$1.log title=$2 status=0 started=$SECONDS next
	shift 2
	mkdir -p "$CACHE/log"
	say "$title"
	( CHILD=; set -e; "$@" ) >"$log" 2>&1 </dev/null &
	CHILD=$!
	next=$((SECONDS + 20))
	while kill -0 "$CHILD" 2>/dev/null; do
		sleep 0.5
		if ((SECONDS >= next)); then
			say "  ... $((SECONDS - started))s: $(tail -n 1 "$log" | tr -d '\r' | cut -c1-60)"
			next=$((SECONDS + 20))
		fi
	done
	wait "$CHILD" || status=$?
	CHILD=
	((status == 0)) && return 0
	grep -vE '^\s*$' "$log" | tail -n 15 | sed 's/^/[lab]   | /' >&2
	die "failed: $title (status $status; the whole log: $log)"
}

is_debian() { [[ -r /etc/debian_version ]] && grep -qs '^ID=debian$' /etc/os-release; }

# need_tools PACKAGE=TOOL...: get missing host tools on Debian, name them elsewhere.
need_tools() {
	local pair tool package missing=()
	for pair; do
		package=${pair%%=*} tool=${pair#*=}
		if [[ $tool == /* ]]; then
			[[ -e $tool ]] || missing+=("$package")
		else
			command -v "$tool" >/dev/null || missing+=("$package")
		fi
	done
	((${#missing[@]})) || return 0
	is_debian || die "missing on this machine: ${missing[*]} (package names as in Debian): install them, then run this again"
	apt_host() { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends "${missing[@]}"; }
	logged host-tools "installing host tools: ${missing[*]}" apt_host
}

need_root() {
	[[ $EUID -eq 0 ]] || die "needs root (it makes a root file system and mounts in it): sudo $0 $*"
}

need_namespaces() {
	unshare --mount --pid --fork --mount-proc -- true 2>/dev/null ||
		die "cannot make mount and process name spaces: inside a container start it with --privileged"
}
