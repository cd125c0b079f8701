# SPDX-License-Identifier: GPL-2.0
"""Complaints about the machine as a test left it, a line each: counters that do
not add up, splats in the kernel's log since the runner's last mark, networks or
processes left behind; on kernels that look for them, leaks of memory, and a lock
checker that gave up. For `run`."""
import os
import subprocess
import time

import lab

MARK = "rxe_cc selftest "

LOCKDEP = "/proc/lockdep_stats"
KMEMLEAK = "/sys/kernel/debug/kmemleak"


def leaks():
    """Memory that nothing refers to any more, each report once."""
    try:
        file = open(KMEMLEAK, "r+")
    except OSError:
        return []
    with file:
        # What is younger than five seconds may be on its way to somebody; a pointer
        # may be in motion during one look, hardly during two.
        try:
            for rest in 5.5, 0.1, 0:
                os.write(file.fileno(), b"scan")
                time.sleep(rest)
        except PermissionError:
            return ["kmemleak is off: it has nothing more to say"]
        reports = file.read().rstrip("\n")
        os.write(file.fileno(), b"clear")
    return [f"kmemleak: {line}" for line in reports.splitlines()[:60]]


log = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True, errors="replace").stdout.splitlines()
starts = [i for i, line in enumerate(log) if MARK in line]
since = log[starts[-1] + 1:] if starts else log
for line in [line for line in since if lab.SPLAT.search(line)][:5]:
    print(f"kernel log: {line}")
# Lockdep ends with its first report, and finds nothing from there on.
if os.path.exists(LOCKDEP):
    with open(LOCKDEP) as file:
        if not any(line.split() == ["debug_locks:", "1"] for line in file):
            print("lockdep is off: it has nothing more to say")
for line in leaks():
    print(line)
for line in lab.invariant_complaints():
    print(line)
for name in sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []:
    if name.startswith(lab.PREFIX):
        print(f"namespace {name}")
