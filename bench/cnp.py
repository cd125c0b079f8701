# SPDX-License-Identifier: GPL-2.0
"""Part 3: CNPs.

Latency: from a CE-marked packet to the CNP that answers it, in a capture on the
receiver, its time stamps being those of processing (netdev_tstamp_prequeue is 0). The
measure beside it is what the same guest takes for an ICMP echo reply: also one small
packet, made in softirq from the one that came; marks and echo requests come in
turns. Rate: with a window of 0 every mark wants a CNP; marks and echo requests come
back to back, and what one core answers is counted by its busy time. Deadlines: marks
for 1 to 10,000 QPs, back to back, with a window of 50 us. A CNP is due at the mark if
the last CNP of the QP is longer ago than the window, else at the window's end.
"""
import os
import socket
import struct
import time

import lab
import roce
from common import Figure, Lateness, Unmeasured, bootstrap, module, network, percentile, scope, short
from many import FIRST_PEER_QPN, ManyQps

WINDOW_US = 50
GAP_US = 2000
# What is in flight is answered after this.
REST_S = 0.5
# After a packet its queue pair is looked up again within this, unless there are thousands.
VERIFIED_S = 0.1


def mark(host, peer, qpn, ecn=roce.CE):
    """A frame of peer for a QP of host. Its PSN is an old one: rxe drops it at once."""
    return peer.to(host, roce.udp_ip(peer.ip, host.ip, roce.bth(roce.RC_WRITE_ONLY, qpn, 5) + roce.reth(), ecn=ecn))


def echo(host, peer, number):
    """An ICMP echo request, as long as a mark."""
    icmp = struct.pack("!BBHHH", 8, 0, 0, 0x7A7A, number & 0xFFFF) + bytes(28)
    icmp = icmp[:2] + struct.pack("!H", roce.checksum(icmp)) + icmp[4:]
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0x4000, 64, 1, 0, roce.address(peer.ip), roce.address(host.ip))
    return peer.to(host, head[:10] + struct.pack("!H", roce.checksum(head)) + head[12:] + icmp)


class Watch:
    """All that a host sends and gets, kept in the socket until it is read."""

    def __init__(self, host):
        with roce.netns(host.namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, roce.SO_RCVBUFFORCE, 256 << 20)
            self.socket.setsockopt(socket.SOL_SOCKET, roce.SO_TIMESTAMPNS, 1)
            self.socket.bind(("eth0", 3))
        self.socket.setblocking(False)
        lab.cleanup(self.socket.close)

    def read(self):
        """(ns, outgoing, frame), in the order of time."""
        seen = []
        while True:
            try:
                data, control, _, where = self.socket.recvmsg(2048, 64)
            except BlockingIOError:
                break
            stamp = next(value for level, kind, value in control if (level, kind) == (socket.SOL_SOCKET, roce.SO_TIMESTAMPNS))
            seconds, nanos = struct.unpack("qq", stamp[:16])
            seen.append((seconds * 1_000_000_000 + nanos, where[2] == roce.PACKET_OUTGOING, data))
        lost = struct.unpack("II", self.socket.getsockopt(roce.SOL_PACKET, roce.PACKET_STATISTICS, 8))[1]
        if lost:
            raise roce.Lost(f"the capture lost {lost} packets")
        return sorted(seen, key=lambda one: one[0])


def histogram(host):
    """Rows of debugfs' latency: least us -> CNPs that left at once."""
    with open(f"/sys/kernel/debug/rxe_cc/{host.device}/latency") as file:
        rows = [line.split() for line in file]
    column = rows[0].index("ce_to_cnp") - (rows[0][0] == "#")
    return {int(row[0]): int(row[column]) for row in rows[1:]}


def from_histogram(before, after, share):
    """Where this share of them ends: the next row's begin, us."""
    gained = [(least, after[least] - before[least]) for least in sorted(after)]
    total, so_far = sum(count for _, count in gained), 0
    for (_, count), (end, _) in zip(gained, [*gained[1:], (float("inf"), 0)]):
        so_far += count
        if total and so_far >= share * total:
            return end
    return None


def known(host, peer, qpns, seconds=60):
    """Their contexts are: unmarked packets, few enough at a time."""
    end = time.monotonic() + seconds
    path = f"/sys/kernel/debug/rxe_cc/{host.device}/qps"

    def listed():
        with open(path) as file:
            return {int(line.split()[0]) for line in file if not line.startswith("#")}
    while True:
        missing = sorted(set(qpns) - listed())
        if not missing or time.monotonic() > end:
            return len(missing)
        peer.sender.send_all(mark(host, peer, qpn, roce.ECT0) for qpn in missing[:500])
        time.sleep(0.1 if len(missing) < 50 else 0.5)


def latency(report, host, peer, count):
    with scope():
        # What stood still arrives in one go; each mark is to have its own CNP all the same.
        host.set(min_time_between_cnps=0)
        qpn, = ManyQps(host, peer).grow(1)
        known(host, peer, [qpn])
        watch = Watch(host)
        before = histogram(host)
        marked = mark(host, peer, qpn)
        peer.sender.send_paced((f for n in range(count) for f in (marked, echo(host, peer, n))), GAP_US)
        time.sleep(REST_S)
        seen, after = watch.read(), histogram(host)
    # A CNP answers what came since the last one: with this window one mark, unless the
    # context was stale after the machine stood still.
    ours, waiting, marks, asked, answered = [], None, 0, {}, {}
    for at, outgoing, frame in seen:
        if frame[23] == 1:
            (answered if outgoing else asked)[struct.unpack_from("!H", frame, 40)[0]] = at
            continue
        packet = roce.Packet.read(frame)
        if packet and outgoing and packet.opcode == roce.CNP and waiting:
            ours.append((at - waiting) / 1e3)
            waiting = None
        elif packet and not outgoing and packet.ecn == roce.CE:
            marks += 1
            waiting = waiting or at
    if len(ours) < count // 2:
        raise Unmeasured(f"{len(ours)} CNPs for {marks} marks of {count}")
    if len(ours) != marks:
        report.note(f"{marks} marks were answered by {len(ours)} CNPs")
    theirs = [(answered[n] - at) / 1e3 for n, at in asked.items() if n in answered]
    table = report.table("From request to answer on the wire, us", ["", "p50", "p99", "most", "samples"])
    for name, values in ("CE mark to CNP", ours), ("ICMP echo to reply", theirs):
        table.rows.append([name, *(Figure(*bootstrap(lambda v, s=share: percentile(v, s), values), len(values), unit="us", better="lower")
                                   for share in (0.5, 0.99)), max(values), len(values)])
        report.figure(f"{'latency' if values is ours else 'echo'}_us.p50", table.rows[-1][1])
        report.figure(f"{'latency' if values is ours else 'echo'}_us.p99", table.rows[-1][2])
    table.rows.append(["the module's histogram, below", from_histogram(before, after, 0.5), from_histogram(before, after, 0.99),
                       from_histogram(before, after, 1), sum(after.values()) - sum(before.values())])
    row = ["CNP over echo"]
    for share, goal in (0.5, None), (0.99, 3.0):
        ratio = Figure(*bootstrap(lambda a, b, s=share: percentile(a, s) / percentile(b, s), ours, theirs), len(ours),
                       better="lower", goal=goal, ratio=True)
        row.append(report.figure(f"latency_over_echo.p{share * 100:.0f}", ratio))
    table.rows.append([*row, max(ours) / max(theirs), len(ours)])


def busy_s(cpu):
    """Seconds that a CPU has not been idle."""
    with open("/proc/stat") as file:
        words = next(line.split() for line in file if line.startswith(f"cpu{cpu} "))
    values = list(map(int, words[1:9]))
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")


def echo_replies(host):
    with roce.netns(host.namespace), open("/proc/thread-self/net/snmp") as file:
        names, values = (line.split() for line in file if line.startswith("Icmp:"))
    return int(values[names.index("OutEchoReps")])


def rate(report, host, peer, rounds, seconds):
    """The sender has a CPU of its own; the receiver's is that of samples/fabric."""
    cpus = sorted(os.sched_getaffinity(0))
    core = cpus[host.number % len(cpus)]
    with scope():
        host.set(min_time_between_cnps=0)
        qpn, = ManyQps(host, peer).grow(1)
        known(host, peer, [qpn])
        if len(cpus) > 1:
            lab.cleanup(os.sched_setaffinity, 0, set(cpus))
            os.sched_setaffinity(0, set(cpus) - {core})
        kinds = {
            "CNPs": ([mark(host, peer, qpn)] * 256, lambda: host.counters()["np_cnp_sent"]),
            "echo replies": ([echo(host, peer, n) for n in range(256)], lambda: echo_replies(host)),
        }
        a_second = {name: [] for name in kinds}
        per_core = {name: [] for name in kinds}
        for n in range(rounds):
            for name in (kinds, reversed(kinds))[n % 2]:
                frames, count = kinds[name]
                begin, had, busy = time.monotonic(), count(), busy_s(core)
                while time.monotonic() < begin + seconds:
                    peer.sender.send_all(frames)
                time.sleep(0.05)
                gained, took = count() - had, time.monotonic() - begin
                a_second[name].append(gained / took)
                per_core[name].append(gained / max(0.01, busy_s(core) - busy))
    table = report.table("Answers to back to back packets", ["", "a second", "a second of the core", "core busy", "slices"])
    for name in kinds:
        one, two = Figure.median(a_second[name], better="higher"), Figure.median(per_core[name], better="higher")
        report.figure(f"rate.{name.replace(' ', '_')}", two)
        table.rows.append([name, one, two, f"{one.value / two.value * 100:.0f}%", rounds])
    ratios = [a / b for a, b in zip(per_core["CNPs"], per_core["echo replies"])]
    table.rows.append(["CNPs over echo replies", "", report.figure("rate_over_echo", Figure.median(ratios, better="higher", ratio=True)), "", rounds])


def answers(seen, local):
    """(due, when) of each CNP due, when being None for those that did not come, the number
    sent, and of those the number whose mark came while the one before was on its way.
    What was due is told by the marks and CNPs that were seen of each QP. `local` is
    peer's QPN -> ours."""
    last, waiting, found, sent, between = {}, {}, [], 0, 0
    for at, outgoing, frame in seen:
        packet = roce.Packet.read(frame)
        if not packet:
            continue
        if outgoing and packet.opcode == roce.CNP and packet.dest_qp in local:
            qpn = local[packet.dest_qp]
            sent += 1
            if qpn in waiting:
                found.append((waiting.pop(qpn), at))
            else:
                between += 1
            last[qpn] = at
        elif not outgoing and packet.ecn == roce.CE:
            qpn = packet.dest_qp
            if qpn not in waiting:
                waiting[qpn] = max(at, last.get(qpn, 0) + WINDOW_US * 1000)
    return found + [(due, None) for due in waiting.values()], sent, between


def deadlines(report, host, peer, counts, marks):
    table = report.table(f"Congested QPs, marked in turns, back to back; window {WINDOW_US} us", [
        "QPs", "marks", "a second", "CNPs due", "sent", "within a window %", "late p50 us", "p99", "most"])
    host.set(min_time_between_cnps=WINDOW_US)
    with scope():
        many = ManyQps(host, peer)
        for count in counts:
            report.progress(f"{count} congested QPs")
            try:
                qpns = many.grow(count)
            except Unmeasured as error:
                report.note(str(error))
                break
            unknown = known(host, peer, qpns)
            if unknown:
                report.note(f"{count} QPs: {unknown} contexts were not known in time")
            local = {FIRST_PEER_QPN + n: qpn for n, qpn in enumerate(qpns)}
            frames = [mark(host, peer, qpn) for qpn in qpns]
            frames *= max(2, marks // count)
            before = [mark(host, peer, qpn, roce.ECT0) for qpn in qpns]
            with scope():
                watch = Watch(host)
                # A queue pair in use is known and verified; these have rested.
                peer.sender.send_all(before)
                time.sleep(VERIFIED_S)
                peer.sender.send_all(frames)
                time.sleep(REST_S)
                seen = watch.read()
            found, sent, between = answers(seen, local)
            wanted = len(found) + between
            ours = [at for at, outgoing, frame in seen if not outgoing and frame[23] == 17]
            late = [(at - due) / 1e3 for due, at in found if at is not None]
            if not late:
                report.note(f"{count} QPs: no CNP came")
                continue
            within = [1.0 if at is not None and at - due <= WINDOW_US * 1000 else 0.0 for due, at in found]
            share = bootstrap(lambda v: sum(v) / len(v), within)
            met = report.figure(f"deadlines_met.{count}", Figure(*share, len(within), better="higher", ratio=True))
            report.figure(f"cnps_sent_over_due.{count}", Figure(*[sent / wanted] * 3, 1, better="higher", ratio=True))
            table.rows.append([str(count), len(ours), len(ours) / max(1e-9, (ours[-1] - ours[0]) / 1e9), wanted, sent,
                               f"{met.value * 100:.1f} [{met.low * 100:.1f}, {met.high * 100:.1f}]",
                               percentile(late, 0.5), percentile(late, 0.99), max(late)])


def measure(report, args):
    pairs, rounds, seconds, marks = (300, 4, 0.8, 2000) if args.quick else (2000, 12, 1.0, 10_000)
    rounds = args.rounds or rounds
    counts = [int(n) for n in args.counts] if args.counts else [1, 10, 100, 1000] + ([] if args.quick else [10_000])
    with scope():
        net = network()
        module(True)
        peer, host = net.hosts
        lateness = Lateness()
        began = time.time_ns()
        report.progress("latency")
        latency(report, host, peer, pairs)
        report.progress("CNPs a second")
        rate(report, host, peer, rounds, seconds)
        deadlines(report, host, peer, counts, marks)
        report.note(lateness.summary(began, time.time_ns()))
        report.note(f"late: after the CNP was due, at the mark or {WINDOW_US} us after the QP's last CNP; peers of the QPs do not exist")
