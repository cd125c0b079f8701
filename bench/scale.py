# SPDX-License-Identifier: GPL-2.0
"""Part 4: 1 to 10,000 limited QPs.

The QPs are real (many_qps.c) and so are the CNPs that limit them, to a rate so high
that nothing is ever held. Their packets are not rxe's: a raw IP socket sends
packets of that form through the output hook (hook.c), for no perftest opens so many,
and they are dropped right behind it, so that only the way to there is measured. What
the hook costs is the difference to the same packets without the module, both over
packets to another UDP port sent in the same moment. Memory is what the slabs of
kmalloc gained.
"""
import glob
import os
import time

import lab
import rp
import roce
from cnp import known
from common import Figure, Lateness, Unmeasured, bootstrap, dropped, module, network, scope, short
from many import FIRST_PEER_QPN, Hook, ManyQps

COUNTS = (1, 10, 100, 1000, 10_000)
QUICK_COUNTS = (1, 100, 1000)
# Mb/s, a rate that the socket does not reach.
RATE = 4000
OTHER_PORT = 4790
UNKNOWN_QPN = 0x700000
# From so many on, memory is more than noise.
WORTH_COUNTING = 100


def counts_of(args):
    """So many limited QPs, one after the other."""
    return [int(n) for n in args.counts] if args.counts else QUICK_COUNTS if args.quick else COUNTS


def slab_bytes():
    """What kmalloc has given away; caches of CPUs are emptied before."""
    for path in glob.glob("/sys/kernel/slab/kmalloc-*/shrink"):
        with open(path, "w") as file:
            file.write("1")
    with open("/proc/slabinfo") as file:
        rows = [line.split() for line in file if line.startswith("kmalloc-")]
    return sum(int(row[1]) * int(row[3]) for row in rows)


def unsure_bytes():
    """The slab that each CPU takes from counts as full."""
    return os.cpu_count() * os.sysconf("SC_PAGE_SIZE")


def percpu_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Percpu:"))


def settled_bytes():
    """Once what RCU frees is free."""
    time.sleep(0.5)
    slab_bytes()
    time.sleep(0.2)
    return slab_bytes(), percpu_bytes()


def limit_all(host, peer, qpns, seconds=120):
    """CNPs until all are limited."""
    rp.fix_rate(host, RATE)
    # The more QPs, the longer ago each one's last packet: alpha's clock would be counted.
    host.set(dce_tcp_rtt=131071)
    end = time.monotonic() + seconds
    while True:
        limited = {qpn for qpn, line in rp.state(host).items() if line.limited}
        missing = sorted(set(qpns) - limited)
        if not missing:
            return
        if time.monotonic() > end:
            raise Unmeasured(f"{len(missing)} of {len(qpns)} QPs are not limited after {seconds} s")
        peer.sender.send_all(peer.to(host, roce.cnp(peer.ip, host.ip, qpn)) for qpn in missing[:500])
        time.sleep(0.1 if len(missing) < 50 else 0.4)


def slices(hook, count, rounds, seconds):
    """For each round: ns a packet of the QPs, one of a QP that is not limited, and one to
    another port."""
    kinds = {"limited": (roce.ECT0, roce.ROCE_PORT, FIRST_PEER_QPN, count), "other": (roce.ECT0, OTHER_PORT, FIRST_PEER_QPN, count),
             "unlimited": (roce.ECT0, roce.ROCE_PORT, UNKNOWN_QPN, count)}
    seen = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, ns in zip(kinds, hook.ns(kinds.values(), seconds)):
            seen[name].append(ns)
    return seen


def relative(seen, name):
    """Over the packet to another port of the same round."""
    return [a / b for a, b in zip(seen[name], seen["other"])]


def middle(values):
    return sorted(values)[len(values) // 2]


def stage(report, net, many, hook, count, rounds, seconds):
    """With the module loaded anew: (slices, bytes of a known QP, of a limited one, s of rmmod)."""
    host, peer = net.hosts
    report.progress(f"{count} limited QPs")
    with scope():
        module(True)
        qpns = many.grow(count)
        empty = settled_bytes()
        unknown = known(host, peer, qpns, 120)
        if unknown:
            raise Unmeasured(f"{unknown} of {count} contexts were not known in time")
        aware = settled_bytes()
        limit_all(host, peer, qpns)
        limited = settled_bytes()
        seen = slices(hook, count, rounds, seconds)
        held = host.counters()["rp_held_packets"]
        if held:
            report.note(f"{count} QPs: {held} packets were held")
        still = host.counters()["rp_limited_qps"]
        if still != count:
            report.note(f"{count} QPs: {still} were limited at the end")
    started = time.monotonic()
    module(False)
    took = time.monotonic() - started
    each = [tuple((b - a) / count for a, b in zip(before, after)) for before, after in ((empty, aware), (aware, limited))]
    return seen, *each, took


def measure(report, args):
    rounds, seconds = (7, 0.3) if args.quick else (21, 0.6)
    counts = counts_of(args)
    with scope():
        net = network()
        host, peer = net.hosts
        lateness = Lateness()
        began = time.time_ns()
        dropped(host.namespace, "eth0", "egress")
        many = ManyQps(host, peer)
        # Away from the CPU that takes what comes for this host.
        cpus = sorted(os.sched_getaffinity(0))
        hook = Hook(host, peer, cpus[(host.number + 1) % len(cpus)])
        report.progress("without the module")
        module(False)
        bare = slices(hook, max(counts), rounds, seconds)
        without = relative(bare, "limited")
        table = report.table("A packet through the output hook", [
            "limited QPs", "hook ns", "over 1 QP", "not limited: ns", "whole send ns", "over no module", "rmmod s"])
        memory = report.table("Memory, bytes of kmalloc a QP", ["QPs", "context", "limited: more", "together", "per-CPU"])
        table.rows.append(["no module", "", "", "", middle(bare["limited"]), "", ""])
        first = None
        for count in counts:
            try:
                seen, aware, limited, took = stage(report, net, many, hook, count, rounds, seconds)
            except Unmeasured as error:
                report.note(f"{count} QPs: {error}")
                break
            unit = middle([*seen["other"], *bare["other"]])
            cost = {name: Figure(*bootstrap(lambda a, b: (middle(a) - middle(b)) * unit, relative(seen, name), without), rounds, unit="ns", better="lower")
                    for name in ("limited", "unlimited")}
            whole = Figure(*bootstrap(lambda a, b: middle(a) / middle(b), relative(seen, "limited"), without), rounds, better="lower", ratio=True)
            first = first or relative(seen, "limited")
            over = Figure(*bootstrap(lambda a, b, c: (middle(a) - middle(c)) / max(1e-9, middle(b) - middle(c)), relative(seen, "limited"), first, without),
                          rounds, better="lower", goal=1.2 if count == 10_000 else None, ratio=True)
            report.figure(f"hook_ns.{count}", cost["limited"])
            report.figure(f"send_over_no_module.{count}", whole)
            report.figure(f"rmmod_s.{count}", Figure(took, took, took, 1, "s", "lower"))
            table.rows.append([str(count), cost["limited"], report.figure(f"hook_over_{counts[0]}.{count}", over) if count != counts[0] else "",
                               cost["unlimited"], middle(seen["limited"]), whole, took])
            if count >= WORTH_COUNTING:
                together, unsure = aware[0] + limited[0], unsure_bytes() / count
                for name, gained, most in ("flow", limited[0], 512.0), ("known", aware[0], 128.0):
                    report.figure(f"bytes_{name}.{count}", Figure(gained, gained - unsure, gained + unsure, 1, "bytes", "lower",
                                                                  most if count >= 1000 else None, True))
                memory.rows.append([str(count), aware[0], limited[0], together, aware[1] + limited[1]])
        report.note(lateness.summary(began, time.time_ns()))
        report.note("the QPs and the CNPs that limit them are real; their packets are a raw socket's, one of 140 bytes to each QP in turns,"
                    f" dropped behind the hook; limit {short(RATE / 1000)} Gb/s, so nothing is held")
        report.note("not in the memory: hash tables' buckets, about 8 to 16 bytes a QP, as far as they are larger than a slab")
