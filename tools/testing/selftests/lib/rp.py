# SPDX-License-Identifier: GPL-2.0
"""What the tests of the RP's rate limiter share: fixed rates, the state in
debugfs, departures as captured, and a watch on the machine itself.

In: hosts of lab.py and their captures. Out: rates, gaps, bursts, order; stalls of
the guest's CPUs, so that a case can tell the limiter's fault from the machine's.
"""
import functools
import json
import os
import subprocess
import sys
import time

import ktap
import lab
import roce
from ktap import Failure, Skip, check, cleanup, note

DEBUGFS = "/sys/kernel/debug"


# The machine ------------------------------------------------------------------

_WATCH = """
import os, sys, time
cpu = int(sys.argv[1])
os.sched_setaffinity(0, {cpu})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
while True:
    before = time.time_ns()
    time.sleep(0.004)
    late = time.time_ns() - before - 4_000_000
    if late > 2_000_000:
        print(before, late, cpu, flush=True)
"""


class Late(Failure):
    """A rule about time is broken: the limiter's fault only if the CPUs ran."""


class Stalls:
    """Times at which a CPU of the guest did not run: a process of higher priority
    than all others sleeps 4 ms at a time on each CPU and notes when it was late."""

    # From so much on a stall excuses a late packet, or an ack timeout (67 ms).
    excuse_ms = 30

    def __init__(self):
        self.path = f"{lab.SCRATCH}/stalls"
        self.file = open(self.path, "w")
        self.watchers = [
            subprocess.Popen([sys.executable, "-c", _WATCH, str(cpu)], stdout=self.file)
            for cpu in sorted(os.sched_getaffinity(0))]
        cleanup(self.stop)

    def stop(self):
        for watcher in self.watchers:
            watcher.kill()
            watcher.wait()
        self.watchers = []

    def list(self):
        """(start, length, CPU), in ns of the wall clock, as captures have it."""
        with open(self.path) as file:
            return sorted(tuple(map(int, line.split())) for line in file if line.endswith("\n"))

    def worst_ms(self, since_ns=0, until_ns=1 << 63):
        """The most that a CPU stood still in a tenth of a second, in one go or in
        pieces: three of 12 ms stop a worker as well as one of 36."""
        worst, recent = 0, {}
        for start, late, cpu in self.list():
            if start + late < since_ns or start > until_ns:
                continue
            near = recent.setdefault(cpu, [])
            near.append((start, late))
            while near[0][0] < start - 100_000_000:
                near.pop(0)
            worst = max(worst, sum(length for _, length in near))
        return worst / 1e6


    def episodes(self):
        """How often a CPU stood still for so long that an ack timeout is excused."""
        count = 0
        last = self.list()[-1][0] if self.list() else 0
        at = self.list()[0][0] if self.list() else 1
        while at <= last:
            count += self.worst_ms(at, at + 100_000_000) >= self.excuse_ms
            at += 100_000_000
        return count


# The watch of the case that runs.
stalls = None


def timely(function, attempts=3):
    """For cases with rules about time. When one is broken (Late) the case is tried
    again, and skipped when that goes on: what a machine that others use, too, did to
    it is no verdict on the module. With RXE_CC_STRICT, for a machine of one's own, or
    with --long, it fails unless a CPU of the guest stood still meanwhile."""
    strict = os.environ.get("RXE_CC_STRICT") or os.environ.get("RXE_CC_LONG")

    @functools.wraps(function)
    def wrapped():
        global stalls
        for attempt in range(attempts):
            stalls = Stalls()
            try:
                return function()
            except Late as late:
                worst = stalls.worst_ms()
                if strict and worst < stalls.excuse_ms:
                    raise Failure(f"{late} (the CPUs stood still for {worst:.0f} ms at most)") from None
                ktap._unwind(ktap._cleanups)
                note(f"attempt {attempt + 1}, a CPU stood still for {worst:.0f} ms: {late}")
                reason = f"a CPU stood still for {worst:.0f} ms: {late}"
        raise Skip(reason)
    return wrapped


def check_time(holds, text):
    if not holds:
        raise Late(text)


# The limiter --------------------------------------------------------------------

def fix_rate(host, mbps, dilation=1000):
    """A CNP sets this rate, and no CNP, timer or byte count changes it for minutes."""
    host.set(dilation=dilation, rpg_min_dec_fac=100, rpg_time_reset=131071, rpg_byte_reset=0, rpg_threshold=31,
             rate_to_set_on_first_cnp=round(mbps * dilation))


def send_cnps(host, peer, qps, times=1, family=""):
    """CNPs from the wire to QPs (or QPNs) of `host`."""
    here, there = (host.ip6, peer.ip6) if family == "--ipv6" else (host.ip, peer.ip)
    for _ in range(times):
        for qp in qps:
            peer.sender.send(peer.to(host, roce.cnp(there, here, getattr(qp, "qpn", qp))))


def limit(host, peer, qps, mbps=None, family=""):
    """Their rate is this one from now on."""
    if mbps:
        fix_rate(host, mbps)
    send_cnps(host, peer, qps, family=family)

    def missing():
        seen = state(host)
        return [qp for qp in qps if qp.qpn not in seen or not seen[qp.qpn].limited]

    def limited():
        return not missing()
    if mbps and not lab.wait_until(limited, 1):
        # A lossy link loses CNPs, too; at a fixed rate one more changes nothing.
        send_cnps(host, peer, missing(), times=3, family=family)
    check(lab.wait_until(limited, 3), f"not limited by a CNP: {[vars(line) for line in state(host).values()]}")
    if mbps:
        seen = state(host)
        for qp in qps:
            check(abs(seen[qp.qpn].rc - mbps * 1e6) <= 1000, f"Rc of QP {qp.qpn} is {seen[qp.qpn].rc}, {mbps} Mb/s were set")


class Line:
    """A line of debugfs' qps."""

    def __init__(self, text):
        qp, rp, _ = (part.split() for part in text.split("|"))
        self.qpn, self.kind = int(qp[0]), qp[1]
        self.known, self.limited = rp != ["-"], False
        if self.known:
            self.priority, self.phase = int(rp[0]), rp[1]
            self.rc, self.rt, self.model_rc = (int(v) * 1000 for v in rp[2:5])
            self.alpha = float(rp[5])
            self.time_stage, self.byte_stage, self.held, self.cnps, self.cuts, self.since_cut_us = map(int, rp[6:12])
            self.limited = self.phase != "unlimited"


def need_debugfs():
    if not os.path.isdir(f"{DEBUGFS}/rxe_cc"):
        subprocess.run(["mount", "-t", "debugfs", "none", DEBUGFS], stderr=subprocess.DEVNULL)


def state(host):
    """QPN -> Line."""
    need_debugfs()
    try:
        with open(f"{DEBUGFS}/rxe_cc/{host.device}/qps") as file:
            lines = [Line(text) for text in file if not text.startswith("#")]
    except FileNotFoundError:
        raise Failure(f"no debugfs of {host.device}") from None
    return {line.qpn: line for line in lines}


# Traffic ------------------------------------------------------------------------

MIB = 1 << 20


class Pairs:
    """QPs of two hosts, connected: `ours` of a and `theirs` of b."""

    def __init__(self, a, b, count=1, kind="rc", family="", tclass=0, timeout=14):
        self.a, self.b, self.family = a, b, family
        self.left, self.right = a.qps(family), b.qps(family)
        here, there = (a.ip6, b.ip6) if family == "--ipv6" else (a.ip, b.ip)
        self.ours, self.theirs = [], []
        for _ in range(count):
            one, two = self.left.new(kind), self.right.new(kind)
            one.rtr(there, two.qpn, tclass).rts(timeout)
            two.rtr(here, one.qpn, tclass).rts(timeout)
            self.ours.append(one)
            self.theirs.append(two)
        self.memory = self.right.memory()
        self.posted = [0] * count

    def post(self, kind, count, size=MIB):
        """So many of each of our QPs to theirs."""
        for number, qp in enumerate(self.ours):
            qp.post(kind, count, size, self.memory)
            self.posted[number] += count

    def finish(self, seconds=60):
        """All completions, without an error."""
        for number, qp in enumerate(self.ours):
            qp.poll(self.posted[number], seconds)
            self.posted[number] = 0

    def close(self):
        self.left.close()
        self.right.close()

    def kill(self):
        """Both processes, as kill -9 does."""
        for tool in self.left, self.right:
            tool.kill()
            tool.process.wait()


def copy_program():
    program, source = f"{lab.SCRATCH}/rp_copy", f"{lab.HERE}/rp_copy.c"
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        compiler = next((c for c in ("cc", "gcc", "gcc-14", "clang") if lab.shutil.which(c)), None)
        if not compiler:
            raise Skip("no C compiler for lib/rp_copy.c")
        lab.run(compiler, "-O1", "-Wall", "-o", program, source, "-libverbs")
    return program


class Copy:
    """A process with a QP and a buffer whose contents matter."""

    def __init__(self, host, size):
        self.host = host
        self.process = host.popen(copy_program(), host.device, str(host.gid()), str(size),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cleanup(self.close)
        self.qpn, self.rkey, self.address = map(int, self.answer("open"))

    def answer(self, what):
        line = self.process.stdout.readline().strip()
        if not line.startswith("ok"):
            raise Failure(f"rp_copy on {self.host.name}: {what}: {line or 'it died'}")
        return line.split()[1:]

    def tell(self, *words, wait=True):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        return self.answer(words[0]) if wait else None

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise Failure(f"a QP of {self.host.name} took more than 20 s to go") from None


# Captures -----------------------------------------------------------------------

def is_response(packet):
    return 0x0D <= packet.opcode <= 0x10


def is_ack(packet):
    return packet.opcode in (roce.RC_ACK, roce.RC_ATOMIC_ACK)


def is_nak(packet):
    """Of a sequence error."""
    return packet.opcode == roce.RC_ACK and packet.transport[12:13] == b"\x60"


def is_data(packet):
    return packet.dest_qp > 1 and packet.opcode != roce.CNP and not is_ack(packet)


class Departures(list):
    """Data frames that a host sent, in order; `before` are those that left earlier."""

    def __init__(self, dump=None, since_ns=0, until_ns=1 << 63, want=is_data):
        super().__init__()
        self.before = []
        for f in dump.frames() if dump else []:
            if f.packet.outgoing and f.time_ns <= until_ns and want(f.packet):
                (self if f.time_ns >= since_ns else self.before).append(f)

    def by_qp(self):
        found = {}
        for f in self:
            found.setdefault(f.packet.dest_qp, Departures()).append(f)
        for f in self.before:
            if f.packet.dest_qp in found:
                found[f.packet.dest_qp].before.append(f)
        return found

    def seconds(self):
        return (self[-1].time_ns - self[0].time_ns) / 1e9

    def bits(self):
        """Behind the first departure."""
        return sum(f.size for f in self[1:]) * 8

    def account(self, bps, late_ms=20):
        """Against the rate, with so much lateness made up for: how far a departure
        ever was ahead of it (bytes), the time not made up for (s), and how late a
        departure ever was behind the one before (ms)."""
        credit, ahead, lost, worst = 0.0, 0.0, 0.0, 0.0
        most = bps * late_ms / 1e3
        # What was still to be made up for when this began.
        for before, now in zip(self.before, [*self.before[1:], *self[:1]]):
            credit = min(most, credit + (now.time_ns - before.time_ns) / 1e9 * bps - now.size * 8)
        credit = max(0.0, credit)
        for before, now in zip(self, self[1:]):
            gap = (now.time_ns - before.time_ns) / 1e9
            credit += gap * bps - now.size * 8
            worst = max(worst, gap - now.size * 8 / bps)
            if credit > most:
                lost += (credit - most) / bps
                credit = most
            ahead = min(ahead, credit)
        return -ahead / 8, lost, worst * 1e3

    def gaps_ms(self):
        return [(b.time_ns - a.time_ns) / 1e6 for a, b in zip(self, self[1:])]

    def rewinds(self):
        """PSNs that went back: (time, QP, from, to), each direction for itself."""
        last, found = {}, []
        for f in self:
            p = f.packet
            key = p.dest_qp, is_response(p)
            if key in last and not 0 < (p.psn - last[key]) & 0xFFFFFF < 0x800000:
                found.append((f.time_ns, p.dest_qp, last[key], p.psn))
            last[key] = p.psn
        return found

    def holes(self):
        """PSNs left out: (time, QP, before, behind), each direction for itself. What
        left already may be: the transport goes back, and an ACK takes it on again. A
        READ request takes as many PSNs as it has responses: none is expected in a
        capture with some."""
        last, seen, found = {}, set(), []
        for f in self:
            p = f.packet
            key = p.dest_qp, is_response(p)
            if key in last and 1 < (p.psn - last[key]) & 0xFFFFFF < 0x800000:
                between = range(1, (p.psn - last[key]) & 0xFFFFFF)
                if any((key, (last[key] + n) & 0xFFFFFF) not in seen for n in between):
                    found.append((f.time_ns, p.dest_qp, last[key], p.psn))
            last[key] = p.psn
            seen.add((key, p.psn))
        return found


def check_rate(departures, mbps, what, tolerance=0.01, early=0):
    """On the wire it is the set rate, as far as timers allowed it, and bursts stay in
    their bound; `early` packets may have left before their time by another rule."""
    check(len(departures) > 20, f"{what}: only {len(departures)} departures")
    bps = mbps * 1e6
    ahead, lost, worst = departures.account(bps)
    seconds, got = departures.seconds(), departures.bits()
    packet = max(f.size for f in departures)
    note(f"{what}: set {mbps:g} Mb/s, wire {got / seconds / 1e6:.4f} Mb/s ({(got / seconds / bps - 1) * 100:+.2f}%), {len(departures)} packets,"
         f" latest {worst:.1f} ms, {lost * 1e3:.0f} ms not made up for, {ahead:.0f} bytes ahead")
    check(ahead <= (2 + early) * packet + bps * 0.0005 / 8, f"{what}: a burst beyond 2 packets and 20 ms of the rate, {ahead:.0f} bytes")
    check(got <= bps * seconds * (1 + tolerance) + bps * 0.02 + packet * 8 * (2 + early), f"{what}: {got / seconds / 1e6:.4f} Mb/s is more than {mbps}")
    check_time(got >= bps * (seconds - lost) * (1 - tolerance) - packet * 16, f"{what}: {got / seconds / 1e6:.4f} Mb/s is less than {mbps}")
    check_time(lost < 0.02 * seconds, f"{what}: timers were too late for {lost * 1e3:.0f} ms of {seconds:.1f} s")


def check_order(departures, what, dump=None, pairs=None):
    """Nothing was left out, and nothing sent twice but for what a stall explains: one
    that lets an ack timeout pass, or a packet be overtaken on its way to the wire.

    With `dump` the answers are looked at, with `pairs` each QP's own only."""
    acks = []
    if dump:
        acks = [f.packet for f in dump.frames() if not f.packet.outgoing and f.packet.opcode == roce.RC_ACK]
    ours = {theirs.qpn: own.qpn for own, theirs in zip(pairs.ours, pairs.theirs)} if pairs else {}

    def arrived(qpn):
        return [p for p in acks if qpn not in ours or p.dest_qp == ours[qpn]]

    for _, qpn, before, psn in departures.holes():
        # Acknowledged, and never missed: it is the capture that lacks them.
        missed = any(is_nak(p) and 0 < (p.psn - before) & 0xFFFFFF <= (psn - before) & 0xFFFFFF for p in arrived(qpn))
        beyond = any(not is_nak(p) and (p.psn - psn) & 0xFFFFFF < 0x800000 for p in arrived(qpn))
        check(beyond and not missed, f"{what}: QP {qpn}: PSNs left out between {before} and {psn}")
        note(f"{what}: QP {qpn}: the capture lacks what is between {before} and {psn}")
    for at, qpn, before, psn in departures.rewinds():
        naks = sum(map(is_nak, arrived(qpn)))
        text = f"{what}: QP {qpn} went back from PSN {before} to {psn}, {naks} NAKs came"
        stall_ms = stalls.worst_ms(at - 400_000_000, at) if stalls else 0
        raise Late(f"{text}; a CPU stood still for {stall_ms:.0f} ms at most before")
