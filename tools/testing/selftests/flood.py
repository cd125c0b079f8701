# SPDX-License-Identifier: GPL-2.0
"""Floods: CNPs, right ones and spoofed ones, and CE marks, as many as the machine
sends. What they may do is bounded, however many there are: cuts, the rate, CNPs,
memory, the log, and the traffic of others goes on.

4 seconds each, 60 with RXE_CC_LONG. What rate was reached is said, not judged: it is
the machine's.
"""
import random

import load
import rp
from lab import *
from load import Flood
from rp import Pairs

SECONDS = 60 if load.LONG else 4
# Real ones, by a dilation of 1000.
FLOOR_MBPS, MONITOR_MS, WINDOW_MS = 4, 100, 50


def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


def limits():
    """Nothing but cuts changes a rate, and they end at the floor."""
    h1.set(dilation=1000, rpg_min_rate=FLOOR_MBPS * 1000, rate_reduce_monitor_period=MONITOR_MS, dce_tcp_rtt=55,
           rpg_time_reset=131071, rpg_byte_reset=0, line_rate=40)


def rate(count, seconds):
    return f"{count / seconds:,.0f}/s"


class Traffic:
    """Writes of h1 to h2, enough of them to last while they are limited."""

    def __init__(self):
        # 0.5 s, so that ACKs which a flood drowned are waited for and not given up.
        self.pairs = Pairs(h1, h2, timeout=17)
        self.qp = self.pairs.ours[0]
        self.qpn = self.qp.qpn
        self.change = Change(h2, rxe_too=True)

    def line(self):
        return rp.state(h1).get(self.qpn)

    def start(self):
        self.pairs.post("write", 2 * SECONDS)
        return self

    def gave_up(self):
        """It repeated itself too often: the QP is in error, and CNPs for it are ignored."""
        text = run("rdma", "resource", "show", "qp")
        return any(f"link {h1.device}/" in line and f" lqpn {self.qpn} " in line and " state ERR " in line for line in text.splitlines())

    def arrived(self):
        """Bytes at h2, repetitions included."""
        return self.change.now().get("rcvd_bytes", 0)

    def finish(self, lost):
        """To the end, without a limit and without an error; so many frames of the
        flood were lost, and its own with them."""
        h1.enable("roce_rp", False)
        if lost:
            note(f"the machine lost {lost} frames: what that did to the traffic is not judged")
        else:
            self.pairs.finish(60 + 10 * SECONDS)


@case
def a_flood_of_right_cnps_cuts_once_in_a_monitor_period_and_not_below_the_floor():
    limits()
    traffic = Traffic()
    flood = Flood(h2, [h2.to(h1, roce.cnp(h2.ip, h1.ip, traffic.qpn))], SECONDS)
    change = Change(h1)
    flood.start()
    check(wait_until(lambda: traffic.line() and traffic.line().limited, 2), "the flood limits nothing")
    traffic.start()
    seen = []
    while flood.running():
        line = traffic.line()
        if line and line.known:
            seen.append(line.rc)
        time.sleep(0.05)
    sent, seconds = flood.finish()
    arrived = traffic.arrived()
    time.sleep(0.5)
    got = change.now()
    came = got.get("rp_cnp_handled", 0) + got.get("rp_cnp_ignored", 0)
    note(f"{sent} CNPs sent, {rate(sent, seconds)}; {came} came, {rate(came, seconds)}; {got['rp_rate_cuts']} cuts in {seconds:.1f} s;"
         f" h2 got {arrived * 8 / seconds / 1e6:.2f} Mb/s meanwhile")
    check(1000 < came <= sent, f"{came} CNPs came of {sent}")
    if sent > came and traffic.gave_up():
        raise Skip(f"the machine lost {sent - came} frames, and the QP gave up waiting for ACKs")
    equal(got.get("rp_cnp_ignored", 0), 0, f"rp_cnp_ignored (all: {got})")
    # One at once, one at the end of each period, the last one after the flood.
    check(3 <= got["rp_rate_cuts"] <= (seconds + 0.6) * 1000 / MONITOR_MS + 2, f"{got['rp_rate_cuts']} cuts in {seconds:.1f} s")
    check(len(seen) > 5 and min(seen) >= FLOOR_MBPS * 1e6, f"Rc fell to {min(seen, default=None)}")
    equal(traffic.line().rc, FLOOR_MBPS * 1_000_000, "Rc in the end")
    check(arrived > FLOOR_MBPS * 1e6 / 8 * seconds / 4, f"the victim's traffic stands still: {arrived} bytes in {seconds:.1f} s")
    traffic.finish(sent - came)


@case
def a_flood_of_spoofed_cnps_does_nothing_but_count():
    rng = random.Random(5)
    traffic = Traffic()
    rp.limit(h1, h2, [traffic.qp], 2 * FLOOR_MBPS)
    frames = []
    for _ in range(1024):
        frames += [
            # A stranger; a QP that is not; a wrong ICRC; too long.
            roce.cnp("10.0.0.66", h1.ip, traffic.qpn),
            roce.cnp(h2.ip, h1.ip, rng.randrange(1 << 12, 1 << 24)),
            roce.cnp(h2.ip, h1.ip, traffic.qpn)[:-1] + bytes([rng.randrange(256)]),
            roce.udp_ip(h2.ip, h1.ip, roce.bth(roce.CNP, traffic.qpn, resv8a=0x40) + bytes(20)),
        ]
    right = roce.cnp(h2.ip, h1.ip, traffic.qpn)
    flood = Flood(h2, [h2.to(h1, ip) for ip in frames if ip != right], SECONDS)
    log, memory = Log(), load.unreclaimable_kb()
    log.lines()
    change = Change(h1)
    traffic.start()
    flood.start()
    most = memory
    while flood.running():
        most = max(most, load.unreclaimable_kb())
        time.sleep(0.2)
    sent, seconds = flood.finish()
    arrived = traffic.arrived()
    lines = log.lines()
    time.sleep(0.5)
    got = change.now()
    came = got.get("rp_cnp_ignored", 0)
    note(f"{sent} CNPs sent, {rate(sent, seconds)}; {came} came, {rate(came, seconds)}; {len(lines)} lines in the log;"
         f" slab at most {most - memory} kB more; h2 got {arrived * 8 / seconds / 1e6:.2f} Mb/s meanwhile; {got}")
    check(1000 < came <= sent, f"{came} CNPs came of {sent}")
    for name in "rp_cnp_handled", "rp_rate_cuts":
        equal(got.get(name, 0), 0, name)
    for name in "rp_cnp_wrong_peer", "rp_cnp_unknown_qp", "rp_cnp_bad_icrc", "rp_cnp_malformed":
        check(got.get(name, 0) > 100, f"{name}: {got.get(name, 0)}")
    line = traffic.line()
    equal((line.rc, line.cnps), (2 * FLOOR_MBPS * 1_000_000, 1), "the QP's rate and CNPs")
    check(len(lines) < 20, f"{len(lines)} lines in the log: {lines[:3]}")
    # 1,024 QPNs without a context, and what the traffic itself needs.
    check(most - memory < 8192, f"{most - memory} kB of slab more")
    check(arrived > FLOOR_MBPS * 1e6 / 8 * seconds / 4, f"the victim's traffic stands still: {arrived} bytes in {seconds:.1f} s")
    traffic.finish(sent - came)


def marks(qps):
    return [h1.to(h2, marked_write(h1, h2, qp.qpn)) for qp in qps]


@case
def a_flood_of_marks_gives_one_cnp_for_each_flow_and_window():
    h2.set(dilation=1000, min_time_between_cnps=WINDOW_MS)
    tool = h2.qps()
    qps = [tool.new("rc").rtr(h1.ip, 0x1000 + n) for n in range(3)]
    for frame in marks(qps):
        h1.sender.send(frame)
    time.sleep(0.5)
    watch = roce.Capture(h2.namespace, opcode=roce.CNP)
    cleanup(watch.close)
    change = Change(h2)
    sent, seconds = Flood(h1, marks(qps), SECONDS).start().finish()
    time.sleep(0.5)
    got = change.now()
    came = got.get("np_ecn_marked_roce_packets", 0)
    times = {}
    for packet in watch.read():
        if packet.outgoing:
            times.setdefault(packet.dest_qp, []).append(packet.time_ns)
    each = {qpn: len(seen) for qpn, seen in times.items()}
    note(f"{sent} marks sent, {rate(sent, seconds)}; {came} came, {rate(came, seconds)}; CNPs by flow: {each} in {seconds:.1f} s")
    check(1000 < came <= sent, f"{came} marks came of {sent}")
    equal(got.get("np_ce_invalid", 0), 0, "np_ce_invalid")
    check(got["np_cnp_suppressed"] > came * 0.9, f"{got}")
    equal(sum(each.values()), got["np_cnp_sent"], "CNPs captured and counted")
    equal(sorted(each), [0x1000, 0x1001, 0x1002], "flows with CNPs")
    for qpn, seen in times.items():
        most = (seen[-1] - seen[0]) / 1e6 / WINDOW_MS + 2
        check(2 <= len(seen) <= most, f"{len(seen)} CNPs to QP {qpn:#x} in {(seen[-1] - seen[0]) / 1e9:.2f} s")


@case
def a_flood_of_forged_marks_gives_no_cnp():
    h2.set(min_time_between_cnps=0)
    rng = random.Random(6)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    body = roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE) + roce.reth()
    frames = []
    for _ in range(1024):
        right = roce.udp_ip(h1.ip, h2.ip, body, ecn=roce.CE)
        frames += [
            right[:-1] + bytes([right[-1] ^ rng.randrange(1, 256)]),
            roce.udp_ip("10.0.0.66", h2.ip, body, ecn=roce.CE),
            marked_write(h1, h2, rng.randrange(1 << 12, 1 << 24)),
        ]
    log = Log()
    log.lines()
    change = Change(h2)
    sent, seconds = Flood(h1, [h1.to(h2, ip) for ip in frames], SECONDS).start().finish()
    time.sleep(0.5)
    got = change.now()
    came = got.get("np_ecn_marked_roce_packets", 0)
    ours = [line for line in log.lines() if "rxe_cc" in line]
    note(f"{sent} marks sent, {rate(sent, seconds)}; {came} came, {rate(came, seconds)}; {got}")
    check(1000 < came <= sent, f"{came} marks came of {sent}")
    equal(got.get("np_cnp_sent", 0), 0, "CNPs for forged marks")
    check(len(ours) < 20, f"{len(ours)} lines in the log: {ours[:3]}")


main(setup, ("ip", "tc", "nft", "rdma"))
