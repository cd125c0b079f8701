# SPDX-License-Identifier: GPL-2.0
"""Part 6: kernel instructions a packet, through each hook.

In a guest whose clock counts instructions (`scripts/lab run --icount --smp 1`: each is
one nanosecond) what a packet takes is how many instructions it takes: no cache, no
neighbour and no frequency has a say, and two runs differ by a few. The way out: headers
from a raw IP socket pass LOCAL_OUT as rxe's do (hook.c), to QPs that are limited, to one
that is not, with ECT(0) and without, to another UDP port; they are dropped at the
switch. The way in: frames of the peer pass LOCAL_IN, with and without a mark, for a real
QP, and are dropped behind it, so that no answer of rxe's counts with them. Beside the
module: an nftables rule and a tc/BPF program that match CE and count, and fq as the queue.
"""
import statistics
import time

import lab
import roce
from cnp import known, mark
from common import Figure, Unmeasured, counted, dropped, module, network, scope
from cost import Variants
from many import FIRST_PEER_QPN, Hook, ManyQps
from scale import COUNTS, OTHER_PORT, RATE, UNKNOWN_QPN, counts_of, limit_all

BATCH = 32
NOT_ECT = "not limited, Not-ECT"
# Of the guest's time: so many instructions.
SLICE_S = 0.05
# Behind all hooks of interest, conntrack's confirmation among them.
DROP = """
table inet behind {
    chain in {
        type filter hook input priority 2147483647
        udp dport 4791 drop
    }
}
"""


class WayOut:
    """Packets of `host` through LOCAL_OUT."""

    def __init__(self, host, peer, rounds):
        self.rounds, self.hook = rounds, Hook(host, peer, 0)

    def measure(self, count=1):
        kinds = {"limited": (roce.ECT0, roce.ROCE_PORT, FIRST_PEER_QPN, count), "not limited": (roce.ECT0, roce.ROCE_PORT, UNKNOWN_QPN, count),
                 NOT_ECT: (roce.NOT_ECT, roce.ROCE_PORT, UNKNOWN_QPN, count), "another port": (roce.ECT0, OTHER_PORT, FIRST_PEER_QPN, count)}
        seen = [self.hook.ns(kinds.values(), SLICE_S) for _ in range(self.rounds)]
        return dict(zip(kinds, map(list, zip(*seen))))


class WayIn:
    """Packets of `peer` through the LOCAL_IN of `host`."""

    def __init__(self, host, peer, qpn, rounds):
        self.rounds, self.sender = rounds, peer.sender
        self.kinds = {name: roce.Batch([mark(host, peer, qpn, ecn)] * BATCH) for name, ecn in (("marked", roce.CE), ("not marked", roce.ECT0))}

    def batch(self, kind):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        sent = self.sender.send_batch(self.kinds[kind])
        took = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - before
        if sent != BATCH:
            raise Unmeasured(f"{sent} of {BATCH} frames were sent")
        return took / BATCH

    def measure(self):
        seen = {kind: [] for kind in self.kinds}
        for _ in range(self.rounds):
            times = {kind: [] for kind in self.kinds}
            end = time.monotonic() + SLICE_S
            while time.monotonic() < end:
                for kind in self.kinds:
                    times[kind].append(self.batch(kind))
            for kind, values in times.items():
                seen[kind].append(sorted(values)[len(values) // 4])
        return seen


def more(values, plain):
    """How many more than without it: medians, and the most that single rounds differ by."""
    return Figure(statistics.median(values) - statistics.median(plain), min(values) - max(plain), max(values) - min(plain), len(values),
                  unit="instructions", better="lower")


def costs(report, key, seen, plain):
    """For each kind of packet how many more; kept as figures below `key`."""
    return {kind: report.figure(f"{key}.{kind.replace(', ', '_').replace(' ', '_')}", more(seen[kind], plain[kind])) for kind in plain}


def over(figure, other, **about):
    """The one figure over the other."""
    if other.low <= 0:
        raise Unmeasured(f"nothing to compare with: {other}")
    return Figure(figure.value / other.value, figure.low / other.high, figure.high / other.low, figure.samples, better="lower", ratio=True, **about)


def way_in(report, net, rounds):
    host, peer = net.hosts
    table = report.table("The way in: instructions a packet more than without it", ["", "marked", "not marked"])
    with scope():
        host.exec("nft", "-f", "-", text=DROP)
        lab.cleanup(host.exec, "nft", "delete", "table", "inet", "behind")
        qpn, = ManyQps(host, peer).grow(1)
        way = WayIn(host, peer, qpn, rounds)
        variants = Variants([host])
        way.measure()
        plain = way.measure()
        table.rows.append(["(whole way without)", *(statistics.median(values) for values in plain.values())])
        cost = {}

        def row(name, key):
            before = variants.seen()
            seen = way.measure()
            if variants.seen() == before:
                raise Unmeasured(f"{name}: no mark was counted: what it costs says nothing")
            cost[key] = costs(report, f"in.{key}", seen, plain)
            table.rows.append([name, *cost[key].values()])
        for name in variants.names:
            if name == "fq":
                continue
            variants.switch(name)
            if name != "rxe_cc":
                row(f"{name}: match CE and count", name)
                continue
            if known(host, peer, [qpn]):
                raise Unmeasured("the queue pair's context is not known")
            with scope():
                host.set(min_time_between_cnps=131071)
                row("rxe_cc, within a window", "window")
            with scope():
                host.set(min_time_between_cnps=0)
                row("rxe_cc, every mark answered by a CNP", "cnp")
    for rival in ("nftables", "tc/BPF"):
        if rival in cost:
            report.figure(f"in.not_marked_over_{rival}", over(cost["window"]["not marked"], cost[rival]["not marked"]))
            report.figure(f"in.marked_over_{rival}", over(cost["window"]["marked"], cost[rival]["marked"]))


def way_out(report, net, rounds, counts):
    host, peer = net.hosts
    table = report.table("The way out: instructions a packet more than without it", ["", "limited", "not limited", NOT_ECT, "another port", "limited: over 1 QP"])
    with scope():
        way, many = WayOut(host, peer, rounds), ManyQps(host, peer)
        variants = Variants([host])
        way.measure()
        plain = way.measure()
        table.rows.append(["(whole way without)", *(statistics.median(values) for values in plain.values()), ""])

        def row(name, key, count=1):
            cost = costs(report, f"out.{key}", way.measure(count), plain)
            table.rows.append([name, *cost.values(), ""])
            return cost
        variants.switch("fq")
        row("fq as queue, no rate set", "fq")
        lab.run("tc", "-n", host.namespace, "qdisc", "change", "dev", "eth0", "root", "fq", "maxrate", f"{RATE}mbit")
        fq = row(f"fq as queue, maxrate {RATE} Mb/s", "fq_maxrate")
        variants.switch("rxe_cc")
        row("rxe_cc, nothing limited", "idle")
        first = None
        for count in counts:
            report.progress(f"{count} limited QPs")
            qpns = many.grow(count)
            if known(host, peer, qpns, 120):
                raise Unmeasured(f"not all of {count} contexts are known")
            limit_all(host, peer, qpns)
            cost = row(f"rxe_cc, {count} limited", f"limited_{count}", count)["limited"]
            first = first or cost
            if count != counts[0]:
                table.rows[-1][-1] = report.figure(f"out.{count}_over_{counts[0]}", over(cost, first, goal=1.2 if count == max(COUNTS) else None))
        report.figure("out.limited_over_fq", over(first, fq["limited"]))
        report.note(f"limit {RATE} Mb/s, so nothing is held; {host.counters()['rp_limited_qps']} QPs were limited at the end")


def measure(report, args):
    if not counted():
        raise Unmeasured("this machine's clock does not count instructions: scripts/lab run --icount --smp 1 boots one whose does")
    rounds = 3 if args.quick else 7
    with scope():
        net = network()
        module(False)
        # What the host sends, at the switch.
        dropped(f"{lab.PREFIX}sw", net.hosts[0].name, "ingress")
        report.progress("the way in")
        way_in(report, net, rounds)
        report.progress("the way out")
        way_out(report, net, rounds, counts_of(args))
        report.note("[least, most]: what single rounds differ by; each is the first quartile of its batches")
