# SPDX-License-Identifier: GPL-2.0
"""Part 5: how well the algorithm controls, which no machine changes.

Incast in the guest (samples/incast), the same by `rxecc simulate` with the same link,
RED and dilation, and, for up to 64 flows, the simulator beside the fluid model's
fixed point: for that link, and for the 40 Gb/s of the DCQCN papers. Differences
between guest and simulation are the machine's.
"""
import json
import os
import subprocess
import time

import lab
from common import ROOT, Figure, Lateness, Unmeasured, module, scope, short

FLOWS = (2, 4, 8, 16, 32, 64)
QUICK_FLOWS = (2, 8, 32)
GUEST = (2, 4, 8, 16)
QUICK_GUEST = (4,)
# As samples/incast and samples/fabric have them; a burst is 20 ms.
RATE, KMIN, KMAX, PMAX, LIMIT, BURST = "40mbit", 15_000, 45_000, 0.2, 200_000, 100_000
# RED's line of the papers, without its step at Kmax (Documentation/simulate.md).
LONG_LINE = "5KB:3905KB:0.2"
COLUMNS = ["Jain", "used %", "queue mean KB", "p99 KB", "converged s", "alpha", "fluid q* KB", "alpha*"]


def rxecc(*words):
    program = lab.shutil.which("rxecc") or next(
        (path for path in (f"{ROOT}/target/release/rxecc", f"{ROOT}/target/debug/rxecc") if os.access(path, os.X_OK)), None)
    if not program:
        raise Unmeasured("no rxecc: cargo build --release --package rxecc")
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
    if done.returncode:
        raise Unmeasured(f"rxecc {words[0]}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def simulated(scenario, flows, seeds, *more):
    """(outcomes, fixed point)"""
    runs = [rxecc("simulate", "--scenario", scenario, "--flows", str(flows), "--seed", str(seed), "--fluid", "--json", *more) for seed in seeds]
    return [run["outcome"] for run in runs], runs[0]["fluid"]


def spread(values, scale=1.0, **more):
    known = [v * scale for v in values if v is not None]
    if not known:
        return None
    return Figure(sum(known) / len(known), min(known), max(known), len(known), **more)


def row_of(report, key, outcomes, fluid):
    """A row; its figures are kept under key."""
    def keep(name, values, scale=1.0, better="", ratio=True):
        figure = spread(values, scale, better=better, ratio=ratio)
        return report.figure(f"{key}.{name}", figure) if figure else None
    cells = [
        keep("jain", [o["jain"] for o in outcomes], better="higher"),
        keep("utilisation", [o["utilisation"] for o in outcomes], 100, "higher"),
        keep("queue_mean_kb", [o["queue_mean_bytes"] for o in outcomes], 1e-3, "lower"),
        keep("queue_p99_kb", [o["queue_p99_bytes"] for o in outcomes], 1e-3, "lower"),
        # Slow or never: a matter of luck where flows are many.
        keep("convergence_s", [o["convergence_s"] for o in outcomes], ratio=False) or "no",
        keep("alpha", [o["alpha_mean"] for o in outcomes], ratio=False),
    ]
    if not fluid:
        return [*cells, None, None]
    if cells[2]:
        over = [o["queue_mean_bytes"] / fluid["queue_bytes"] for o in outcomes]
        report.figure(f"{key}.queue_over_fluid", spread(over, ratio=True))
    return [*cells, short(fluid["queue_bytes"] / 1e3) + (" (Kmax)" if fluid["pinned"] else ""), fluid["alpha"]]


def in_guest(flows, seconds):
    """What samples/incast says of one run, in the simulator's words."""
    output = f"{lab.SCRATCH}/incast"
    done = subprocess.run([f"{ROOT}/samples/incast", "--senders", str(flows), "--runs", "paper", "--seconds", str(seconds), "--rate", RATE,
                           "--mark", f"red:{KMIN}:{KMAX}:{PMAX}", "--limit", str(LIMIT), "--output", output],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds + 300)
    # 1: it does not hold what the sample asserts; its figures are there all the same.
    if done.returncode not in (0, 1):
        raise Unmeasured(f"{flows} flows in the guest: {done.stdout.strip()[-300:]}")
    with open(f"{output}/report.json") as file:
        figures = json.load(file)[0]["figures"]
    names = {"jain": "jain_last_half", "alpha_mean": "alpha_median"}
    return {name: figures[names.get(name, name)] for name in
            ("jain", "utilisation", "queue_mean_bytes", "queue_p99_bytes", "convergence_s", "alpha_mean")}


def measure(report, args):
    guest, flows, repeats, seeds, seconds = (QUICK_GUEST, QUICK_FLOWS, 1, (1,), 20) if args.quick else (GUEST, FLOWS, 2, (1, 2, 3), 40)
    guest = [int(n) for n in args.counts] if args.counts else guest
    repeats = args.rounds or repeats
    soft = ("--rate", RATE, "--red", f"{KMIN}:{KMAX}:{PMAX}", "--tbf", str(BURST), "--limit", str(LIMIT), "--dilation", "1000", "--preset", "paper")
    with scope():
        module(False)
        lateness = Lateness()
        began = time.time_ns()
        table = report.table(f"{RATE}, RED {KMIN}:{KMAX}:{PMAX}, the paper's parameters, dilation 1000", ["flows", *COLUMNS])
        for count in sorted({*guest, *flows}):
            outcomes, fluid = simulated("soft-roce", count, seeds, "--duration", "120s", "--warm-up", "30s", *soft)
            if count in guest:
                report.progress(f"{count} flows in the guest")
                runs = []
                for _ in range(repeats):
                    try:
                        runs.append(in_guest(count, seconds))
                    except (Unmeasured, KeyError, OSError, subprocess.SubprocessError) as error:
                        report.note(f"{count} flows in the guest: not measured: {error!r}")
                if runs:
                    table.rows.append([f"{count} guest", *row_of(report, f"guest.{count}", runs, fluid)])
            table.rows.append([f"{count} simulated", *row_of(report, f"simulated.{count}", outcomes, fluid)])
        report.note(lateness.summary(began, time.time_ns()))
        report.note("guest: Jain of the last half, median of alpha; simulated: Jain of the whole, mean of alpha; q*, alpha*: the fluid model's")
    for name, red in ("40 Gb/s, RED 5KB:200KB:0.01", ()), (f"40 Gb/s, RED {LONG_LINE}, the same slope without a step", ("--red", LONG_LINE)):
        table = report.table(f"{name}, the paper's parameters, simulated", ["flows", *COLUMNS])
        for count in flows:
            report.progress(f"{count} flows at 40 Gb/s")
            outcomes, fluid = simulated("paper-40g", count, seeds[:1 if args.quick else 2], "--duration", "120ms" if args.quick else "300ms",
                                        "--warm-up", "60ms" if args.quick else "150ms", *red)
            table.rows.append([str(count), *row_of(report, f"{'long' if red else 'paper'}_40g.{count}", outcomes, fluid)])
