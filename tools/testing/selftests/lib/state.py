# SPDX-License-Identifier: GPL-2.0
"""Complaints about the machine as a test left it, a line each: counters that do
not add up, splats in the kernel's log since the runner's last mark, networks or
processes left behind. For `run`."""
import os
import subprocess

import lab

MARK = "rxe_cc selftest "

log = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True, errors="replace").stdout.splitlines()
starts = [i for i, line in enumerate(log) if MARK in line]
since = log[starts[-1] + 1:] if starts else log
for line in [line for line in since if lab.SPLAT.search(line)][:5]:
    print(f"kernel log: {line}")
for line in lab.invariant_complaints():
    print(line)
for name in sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []:
    if name.startswith(lab.PREFIX):
        print(f"namespace {name}")
