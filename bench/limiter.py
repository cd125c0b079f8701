# SPDX-License-Identifier: GPL-2.0
"""Part 2: the limiter's accuracy and smoothness.

One QP with more to send than its rate lets through; what leaves is captured on the
sender, behind whatever limits it. rxe_cc's limiter is set to a rate by a CNP; beside
it, one after the other on the same link, tbf with the burst that its manual asks for
(a tick of HZ 250, two packets at least) and fq with maxrate. All three depend on
timers, so all three are judged under the lateness that a watch on the CPUs measured
meanwhile: no burst has a reason to be longer than two packets and what the rate gives
in that time.
"""
import importlib.machinery
import importlib.util
import random
import time
from dataclasses import dataclass

import lab
import rp
import roce
from common import ROOT, SEED, Figure, Lateness, Unmeasured, module, network, order_interval, percentile, scope, short

RATES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
QUICK_RATES = (1, 10, 50)
# Of what the sender can do without a limit.
HIGHEST_SHARE = 0.7
LIMITERS = ("rxe_cc", "tbf", "fq")
PACKET = 1098
# Parts of a capture whose rates say how far the rate varies.
PARTS = 5
# A queue of 64 packets at 1 Mb/s takes 0.6 s; nothing is to be sent again for that.
ACK_TIMEOUT = 19


def rate_check():
    """samples/rate-check, whose figures these are."""
    loader = importlib.machinery.SourceFileLoader("rate_check", f"{ROOT}/samples/rate-check")
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(loaded)
    return loaded


@dataclass
class Run:
    """What one capture says."""
    wire: float             # over the set rate
    parts: list             # the same, of parts of it
    burst: float            # bytes
    bound: float            # bytes
    late_ms: float
    stalled: float          # share of the time that no pacer makes up for
    jitter_us: list         # | gap - time of the packet before |
    packets: int


def limit(limiter, host, peer, pairs, mbps):
    if limiter == "rxe_cc":
        return rp.limit(host, peer, pairs.ours, mbps)
    if limiter == "tbf":
        burst = max(2 * PACKET, round(mbps * 1e6 / 8 / 250))
        words = ("tbf", "rate", f"{mbps}mbit", "burst", str(burst), "limit", "1000000")
    else:
        words = ("fq", "maxrate", f"{mbps}mbit")
    lab.run("tc", "-n", host.namespace, "qdisc", "add", "dev", "eth0", "root", *words)
    lab.cleanup(lab.run, "tc", "-n", host.namespace, "qdisc", "del", "dev", "eth0", "root")


def wire_over(departures, bps):
    """Rate between the first and the last departure, over the set one."""
    span = (departures[-1].time_ns - departures[0].time_ns) / 1e9
    return sum(d.size for d in departures[1:]) * 8 / span / bps


def one_run(limiter, hosts, mbps, seconds, figures):
    bps = mbps * 1e6
    with scope():
        pairs = rp.Pairs(*hosts, timeout=ACK_TIMEOUT)
        limit(limiter, *hosts, pairs, mbps)
        dump = lab.Dump(hosts[0], snap=96, leisure=True)
        pairs.post("write", min(200, int((seconds + 1.5) * bps / 8 / rp.MIB) + 1))
        lateness = Lateness(1000)
        # Past what a full bucket, or a QP that has not sent yet, has in advance.
        time.sleep(0.5)
        since = time.time_ns()
        time.sleep(seconds)
        until = time.time_ns()
        lateness.stop()
        try:
            dump.stop()
        except roce.Lost as lost:
            raise Unmeasured(str(lost)) from None
        seen = rp.Departures(dump, since, until)
        lab.forget_captures()
    if len(seen) < 5 * PARTS:
        raise Unmeasured(f"{len(seen)} packets in {seconds} s")
    # The moments at the borders are not there as a whole.
    since, until = seen[0].time_ns, seen[-1].time_ns
    size = len(seen) // PARTS
    parts = [wire_over(seen[n * size:(n + 1) * size + 1], bps) for n in range(PARTS)]
    _, burst, _, _ = figures([(d.time_ns, d.size) for d in seen], bps)
    late_ns = lateness.worst_ns(since - 20_000_000, until)
    packet = max(d.size for d in seen)
    return Run(wire_over(seen, bps), parts, burst, 2 * packet + bps * late_ns / 8e9, late_ns / 1e6, lateness.stalled(since, until),
               [abs((b.time_ns - a.time_ns) - b.size * 8e9 / bps) / 1e3 for a, b in zip(seen, seen[1:])], len(seen))


def most(hosts):
    """Mb/s that leave without a limit, watched as in a run."""
    with scope():
        pairs = rp.Pairs(*hosts, timeout=ACK_TIMEOUT)
        lab.Dump(hosts[0], snap=96, leisure=True)
        Lateness(1000)
        pairs.post("write", 200)
        path = f"{lab.HW.format(hosts[0].device)}/sent_bytes"
        time.sleep(0.5)
        samples, had, at = [], int(lab.read(path)), time.monotonic()
        for _ in range(4):
            time.sleep(0.4)
            has, now = int(lab.read(path)), time.monotonic()
            samples.append((has - had) * 8 / (now - at) / 1e6)
            had, at = has, now
    lab.forget_captures()
    # A QP that has sent everything sends no more.
    samples = [s for s in samples if s > 0]
    if not samples:
        raise Unmeasured("nothing was sent without a limit")
    return max(samples)


def rates_of(args, report, hosts):
    if args.rates:
        return args.rates
    top = most(hosts)
    report.note(f"without a limit the sender does {short(top)} Mb/s")
    highest = round(HIGHEST_SHARE * top)
    fixed = [r for r in (QUICK_RATES if args.quick else RATES) if r < 0.8 * highest]
    return [*fixed, highest]


def row_of(report, limiter, mbps, runs):
    parts = [(share - 1) * 100 for run in runs for share in run.parts]
    wires = [(run.wire - 1) * 100 for run in runs]
    ours = limiter == "rxe_cc"
    key = f"{mbps:g}.{limiter}"
    _, low, high = order_interval(parts)
    error = report.figure(f"error.{key}", Figure(sum(wires) / len(wires), min(low, *wires), max(high, *wires), len(parts), "%"))
    off = [abs(w) for w in wires]
    report.figure(f"off.{key}", Figure(sum(off) / len(off), min(off), max(off), len(off), "%", "lower", 1.0 if ours else None, True))
    ratios = [run.burst / run.bound for run in runs]
    report.figure(f"burst_over_bound.{key}", Figure(max(ratios), min(ratios), max(ratios), len(ratios), "", "lower", 1.0 if ours else None, True))
    jitter = [us for run in runs for us in run.jitter_us]
    worst = max(runs, key=lambda run: run.burst / run.bound)
    p50 = report.figure(f"jitter_us.{key}", Figure.median(jitter, unit="us", better="lower"))
    return [f"{mbps:g} Mb/s {limiter}", error, sum(r.stalled for r in runs) / len(runs) * 100, p50, percentile(jitter, 0.99),
            worst.burst, worst.bound, "ok" if worst.burst <= worst.bound else "LONGER", worst.late_ms, sum(run.packets for run in runs)]


def measure(report, args):
    repeats, least_s = (1, 2.0) if args.quick else (3, 3.0)
    repeats = args.rounds or repeats
    figures = rate_check().figures
    dice = random.Random(SEED)
    with scope():
        net = network()
        module(True)
        rates = rates_of(args, report, net.hosts)
        lateness = Lateness()
        began = time.time_ns()
        table = report.table("Set rate against the wire: error [interval of its parts], jitter, longest burst against its bound", [
            "limiter", "error %", "stalled %", "jitter p50 us", "p99 us", "burst B", "bound B", "", "late ms", "packets"])
        for mbps in rates:
            report.progress(f"{mbps:g} Mb/s")
            runs = {name: [] for name in LIMITERS}
            # 400 packets at least.
            seconds = max(least_s, 400 * PACKET * 8 / (mbps * 1e6))
            for _ in range(repeats):
                for name in dice.sample(LIMITERS, k=len(LIMITERS)):
                    try:
                        runs[name].append(one_run(name, net.hosts, mbps, seconds, figures))
                    except (Unmeasured, lab.Failure) as error:
                        report.note(f"{name} at {mbps:g} Mb/s: not measured: {error}")
            for name in LIMITERS:
                if runs[name]:
                    table.rows.append(row_of(report, name, mbps, runs[name]))
            if all(runs.values()):
                middle = {name: percentile([us for run in runs[name] for us in run.jitter_us], 0.5) for name in LIMITERS}
                for rival in LIMITERS[1:]:
                    shares = [a / max(1e-3, percentile(b.jitter_us, 0.5)) for a, b in
                              zip((percentile(run.jitter_us, 0.5) for run in runs["rxe_cc"]), runs[rival])]
                    report.figure(f"jitter_over_{rival}.{mbps:g}", Figure(middle["rxe_cc"] / max(1e-3, middle[rival]), min(shares), max(shares),
                                                                         len(shares), "", "lower", None, True))
        report.note(lateness.summary(began, time.time_ns()))
        report.note("bound: two packets and what the rate gives in the lateness of timers (50 ms at worst) seen meanwhile;"
                    " stalled: time by which CPUs were late beyond the 20 ms that the pacer makes up for; jitter: a gap's distance from its packet's time at the rate")
