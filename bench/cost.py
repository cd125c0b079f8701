# SPDX-License-Identifier: GPL-2.0
"""Part 1: what it costs when nothing is congested.

One perftest stream for each workload, without any mark. Below it rxe_cc is
inserted and removed, and so are its rivals: an nftables rule and a tc/BPF program, on
both hosts, that match CE and count, and fq as the queue of both hosts. Each is
measured in slices next to slices of plain rxe: plain, it, it, plain, blocks in
random order, so that what drifts meanwhile is not taken for a difference. The stream
pauses at each switch: rxe gives a queue pair up when its packet meets a queue that is
being exchanged. Rates are from rxe's own counters of packets; of a ping-pong the
number of packets a second is the inverse of its latency.

In the guest whose clock counts instructions the same is done with its one CPU: there a
rate is exact, and its ratio that of the instructions that a message takes in all, both
hosts and the switch together. Two processes that poll would wait for each other's time
slices there; so the ping-pong is one that sleeps.
"""
import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass

import lab
from common import HERE, SEED, Figure, Lateness, Unmeasured, counted, module, network, scope, short

import roce

# A switch of variants settles for so long.
SETTLE_S = 0.3
# Blocks of each variant in a round.
WEIGHTS = {"rxe_cc": 2, "nftables": 1, "tc/BPF": 1, "fq": 1}
NFT = """
table inet bench {
    chain in {
        type filter hook input priority 0
        udp dport 4791 ip ecn ce counter
    }
}
"""


@dataclass
class Workload:
    tool: str
    size: int
    options: tuple
    # Which end's counter of received bytes (packets) is the rate.
    receiver: int = 2
    latency: bool = False
    quick: bool = False
    # With which clock only.
    counted: bool | None = None

    @property
    def name(self):
        return f"{self.tool} {self.size} B"


# Those that can wait for an event do: polling takes CPU from rxe. With events perftest
# wants a number of messages instead of a time; this many do not end before they are stopped.
SLEEPS = ("-e", "-N", "-n", "100000000")
POLLS = ("-D", "3600")
WORKLOADS = [
    *(Workload("ib_write_bw", size, POLLS, quick=size == 4096) for size in (64, 4096, 65536)),
    *(Workload("ib_send_bw", size, SLEEPS, quick=size == 64) for size in (64, 4096, 65536)),
    *(Workload("ib_read_bw", size, SLEEPS, receiver=1) for size in (64, 4096, 65536)),
    Workload("ib_write_lat", 64, POLLS, latency=True, quick=True, counted=False),
    Workload("ib_send_lat", 64, ("-e", "-n", "5000000"), latency=True, quick=True, counted=True),
]


class Variants:
    """What can be switched on beside plain rxe, on both hosts."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.object = f"{lab.SCRATCH}/ce.bpf.o"
        compiler = next((c for c in ("clang", "clang-19") if lab.shutil.which(c)), None)
        if compiler:
            # The kernel's headers for user space are below an architecture's name in Debian.
            lab.run(compiler, "-O2", "-target", "bpf", "-I/usr/include/x86_64-linux-gnu", "-c", "-o", self.object, f"{HERE}/ce.bpf.c")
        self.names = [name for name in WEIGHTS if name != "tc/BPF" or compiler]
        self.on = None
        lab.cleanup(self.switch, None)

    def switch(self, name):
        """Only this one is on; None: plain rxe."""
        if name == self.on:
            return
        if self.on:
            self._off(self.on)
            self.on = None
        if name:
            self._on(name)
            self.on = name

    def _on(self, name):
        if name == "rxe_cc":
            return module(True)
        for host in self.hosts:
            if name == "nftables":
                host.exec("nft", "-f", "-", text=NFT)
            elif name == "tc/BPF":
                lab.run("tc", "-n", host.namespace, "qdisc", "add", "dev", "eth0", "clsact")
                lab.run("tc", "-n", host.namespace, "filter", "add", "dev", "eth0", "ingress", "bpf", "obj", self.object, "sec", "classifier",
                        "action", "ok")
            else:
                lab.run("tc", "-n", host.namespace, "qdisc", "add", "dev", "eth0", "root", "fq")

    def _off(self, name):
        if name == "rxe_cc":
            return module(False)
        for host in self.hosts:
            if name == "nftables":
                host.exec("nft", "delete", "table", "inet", "bench")
            else:
                lab.run("tc", "-n", host.namespace, "qdisc", "del", "dev", "eth0", "clsact" if name == "tc/BPF" else "root")

    def seen(self):
        """Marks that the one that is on has counted at the last host."""
        host = self.hosts[-1]
        if self.on == "rxe_cc":
            return host.counters()["np_ecn_marked_roce_packets"]
        if self.on == "nftables":
            text = host.exec("nft", "list", "table", "inet", "bench")
            return int(text.split("counter packets ")[1].split()[0])
        text = lab.run("tc", "-n", host.namespace, "-s", "filter", "show", "dev", "eth0", "ingress")
        return int(text.split("Sent ")[1].split(" bytes ")[1].split()[0])

    def check(self):
        """They do what they are here for: one marked packet, one more counted."""
        sender, target = self.hosts[0], self.hosts[-1]
        mark = sender.to(target, roce.udp_ip(sender.ip, target.ip, roce.bth(roce.RC_SEND_ONLY, 0xABCDE) + bytes(16), ecn=roce.CE))
        for name in self.names:
            if name == "fq":
                continue
            self.switch(name)
            before = self.seen()
            sender.sender.send(mark)
            if not lab.wait_until(lambda: self.seen() > before, 2):
                raise Unmeasured(f"{name} does not count a marked packet: what it costs says nothing")
        self.switch(None)


def blocks(names, rounds, dice):
    """Variants in the order in which their blocks come."""
    for _ in range(rounds):
        order = [name for name in names for _ in range(WEIGHTS[name])]
        dice.shuffle(order)
        yield from order


class StandsStill(Exception):
    """Not a packet in a slice."""


def process(host, name):
    """The PID of a process of this name, if the host has one."""
    for pid in lab.run("ip", "netns", "pids", host.namespace).split():
        # Another one may end meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if lab.read(f"/proc/{pid}/comm") == name:
                return int(pid)
    return None


class Stream:
    """A workload that runs until its scope ends."""

    def __init__(self, workload, hosts):
        self.workload = workload
        words = ["-s", str(workload.size), "-u", "18", *workload.options]
        self.stream = lab.Stream(*hosts, *words, tool=workload.tool, timeout=4000)
        host = hosts[workload.receiver - 1]
        self.path = f"{lab.HW.format(host.device)}/{'rcvd_pkts' if workload.latency else 'rcvd_bytes'}"
        self.client = lab.wait_until(lambda: process(hosts[0], workload.tool), 30, 0.2)
        if not self.client:
            raise Unmeasured(f"{workload.name}: no client")
        self.wait_moving()

    def wait_moving(self):
        start = self.read()[1]
        if not lab.wait_until(lambda: self.read()[1] > start + (20 if self.workload.latency else 20_000), 30, 0.2):
            state = "for 30 s" if self.stream.running() else self.ending()
            raise Unmeasured(f"{self.workload.name}: nothing moves: {state}")

    def ending(self):
        """What the client said last, which broke off first."""
        lines = self.stream.finish(fail=False).strip().splitlines()
        return "\n".join([line for line in lines if "server" not in line.split("|")[0]][-12:])

    @contextlib.contextmanager
    def paused(self):
        """What is posted has arrived, and no more is until the end."""
        os.kill(self.client, signal.SIGSTOP)
        try:
            had = None
            while had != (has := self.read()[1]):
                had = has
                time.sleep(0.1)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.client, signal.SIGCONT)

    def read(self):
        before = time.monotonic()
        value = int(lab.read(self.path))
        return (before + time.monotonic()) / 2, value

    def rate(self, seconds):
        """Of a slice from now on."""
        begin, had = self.read()
        time.sleep(seconds)
        end, has = self.read()
        if has == had:
            raise StandsStill
        return (has - had) / (end - begin)


def pairs_of(stream, variants, rounds, slice_s, dice):
    """For each variant its rate over that of the plain slice next to it; plain rates;
    how many blocks are left out, for the stream stood still in one of its slices."""
    ratios, plain, void = {name: [] for name in variants.names}, [], 0

    def slice_of(name):
        if variants.on != name:
            with stream.paused():
                variants.switch(name)
            time.sleep(SETTLE_S)
        return stream.rate(slice_s)

    for name in blocks(variants.names, rounds, dice):
        try:
            first, one, two, last = slice_of(None), slice_of(name), slice_of(name), slice_of(None)
        except StandsStill:
            void += 1
            stream.wait_moving()
            continue
        ratios[name] += [one / first, two / last]
        plain += [first, last]
    return ratios, plain, void


def measure(report, args):
    # The counting clock goes slowly.
    slice_s, rounds = (0.2, 2) if counted() else (0.5, 4)
    rounds = args.rounds or (1 if args.quick else rounds)
    chosen = [w for w in WORKLOADS if (w.quick or not args.quick) and w.counted in (None, counted())]
    with scope():
        net = network()
        module(False)
        variants = Variants(net.hosts)
        variants.check()
        lateness = Lateness()
        dice = random.Random(SEED)
        table = report.table("Rate (ping-pong: latency) with it / without it: median [95% interval]",
                             ["workload", "plain rxe", *variants.names, "pairs"])
        began = time.time_ns()
        for workload in chosen:
            report.progress(workload.name)
            with scope():
                stream = Stream(workload, net.hosts)
                counters = ("out_of_seq_request", "duplicate_request", "completer_retry_err")
                before = [net.hosts[n].counters(True) for n in (0, 1)]
                ratios, plain, void = pairs_of(stream, variants, rounds, slice_s, dice)
                after = [net.hosts[n].counters(True) for n in (0, 1)]
                lost = sum(a[c] - b[c] for b, a in zip(before, after) for c in counters)
            if void:
                report.note(f"{workload.name}: {void} blocks left out, nothing moved for a whole slice")
            if lost:
                report.note(f"{workload.name}: {lost} packets out of sequence or sent again meanwhile")
            rate = order_rate(workload, plain)
            row = [workload.name, rate]
            for name in variants.names:
                if not ratios[name]:
                    row.append(None)
                    continue
                values = [1 / r for r in ratios[name]] if workload.latency else ratios[name]
                goal = None if name != "rxe_cc" else 1.01 if workload.latency else 0.99
                kind = "latency" if workload.latency else "throughput"
                row.append(report.figure(f"{kind}.{workload.tool}.{workload.size}.{name}", Figure.median(
                    values, better="lower" if workload.latency else "higher", goal=goal, ratio=True)))
            row.append("/".join(str(len(ratios[name])) for name in variants.names))
            table.rows.append(row)
        report.note(lateness.summary(began, time.time_ns()))
        report.note("nftables, tc/BPF: match CE and count, nothing else; fq: queue of both hosts, no rate set")


def order_rate(workload, plain):
    if not plain:
        return None
    middle = sorted(plain)[len(plain) // 2]
    # Two packets a message there and back, with their ACKs.
    return f"{short(middle)} packets/s" if workload.latency else f"{short(middle * 8 / 1e6)} Mb/s"
