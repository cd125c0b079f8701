# SPDX-License-Identifier: GPL-2.0
"""perftest through a congested or marking switch: every mark that tcpdump saw at
the receiver is counted, every CNP counted is one on the wire, and the other
side's counters say the same.

The RP is off in most cases, so that a stream keeps the rate at which marks are
made; that it is on and cuts is the rate limiter's own test.
"""
from collections import Counter

from lab import *


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6", "--vlan", "100")
    h1, h2 = net.hosts


def is_data(p):
    return p.opcode not in (roce.RC_ACK, roce.RC_ATOMIC_ACK, roce.CNP) and p.dest_qp > 1


class Measured:
    """Captures and counters of both hosts around a stream."""

    def __init__(self, rp=False):
        for host in h1, h2:
            if not rp:
                host.enable("roce_rp", False)
        self.dumps = {h: Dump(h) for h in (h1, h2)}
        self.changes = {h: Change(h) for h in (h1, h2)}

    def finish(self):
        """Everything agrees; then for each host (CE received, CNPs sent)."""
        time.sleep(0.3)
        result = {}
        seen = {}
        for host, dump in self.dumps.items():
            c = seen[host] = Counter()
            c["qps"] = 0
            self.qps = {}
            for p in dump.packets():
                c["packets"] += 1
                if p.outgoing:
                    c["cnp out"] += p.opcode == roce.CNP
                    c["not ect"] += is_data(p) and p.ecn != roce.ECT0
                else:
                    c["ce in"] += p.ecn == roce.CE
                    c["cnp in"] += p.opcode == roce.CNP
        for host, other in (h1, h2), (h2, h1):
            got, c = self.changes[host].now(), seen[host]
            note(f"{host.name}: {c['packets']} packets, CE in {c['ce in']}, CNPs out {c['cnp out']}, in {c['cnp in']}")
            equal(got.get("np_ecn_marked_roce_packets", 0), c["ce in"], f"{host.name}: np_ecn_marked_roce_packets and CE on the wire")
            equal(got.get("np_cnp_sent", 0), c["cnp out"], f"{host.name}: np_cnp_sent and CNPs on the wire")
            equal(got.get("np_cnp_send_failed", 0), 0, f"{host.name}: np_cnp_send_failed")
            equal(got.get("rp_cnp_handled", 0) + got.get("rp_cnp_ignored", 0), c["cnp in"], f"{host.name}: rp counters and CNPs on the wire")
            equal(c["cnp in"], seen[other]["cnp out"], f"CNPs {other.name} -> {host.name}: in and out")
            equal(c["not ect"], 0, f"{host.name}: data that left other than as ECT(0)")
            result[host] = (c["ce in"], c["cnp out"])
        return result


def stream(*options, client=None, server=None, **more):
    Stream(client or h1, server or h2, *options, **more).finish()


@case
def thirty_thousand_marks_add_up():
    net.port("h2", "--mark", "all")
    m = Measured()
    stream("-s", "65536", "-n", "480")
    ce, cnps = m.finish()[h2]
    check(ce >= 30000, f"only {ce} marks")
    check(0 < cnps <= ce, f"{cnps} CNPs for {ce} marks")
    equal(m.changes[h1].now().get("rp_cnp_disabled"), cnps, "rp_cnp_disabled of the sender")


@case
def red_in_front_of_a_slow_link_marks_and_nothing_is_lost():
    # Well below what a machine with other things to do sends.
    net.port("h2", "--rate", "20mbit", "--mark", "red")
    m = Measured()
    # Where the sender hardly keeps the queue filled, a packet in twenty is marked.
    stream("-s", "65536", "-n", "300")
    ce, cnps = m.finish()[h2]
    marked = net.marked(h2.name)
    equal(ce, marked, "CE at the receiver and marks that RED counts")
    check(ce > 500, f"only {ce} marks")
    check(cnps > 100, f"only {cnps} CNPs")


@case
def with_the_rp_on_cnps_are_handled():
    net.port("h2", "--mark", "every:200")
    m = Measured(rp=True)
    stream("-s", "16384", "-n", "60")
    ce, cnps = m.finish()[h2]
    check(ce > 0 and cnps > 0, f"{ce} marks, {cnps} CNPs")
    got = m.changes[h1].now()
    equal((got.get("rp_cnp_handled"), got.get("rp_cnp_ignored", 0)), (cnps, 0), "handled, ignored")


@case
def the_four_combinations_of_np_and_rp():
    net.port("h2", "--mark", "every:100")
    for np_on in True, False:
        for rp_on in True, False:
            h2.enable("roce_np", np_on)
            h1.enable("roce_rp", rp_on)
            changes = Change(h1), Change(h2)
            stream("-s", "16384", "-n", "30")
            time.sleep(0.2)
            sender, receiver = (c.now() for c in changes)
            what = f"NP {'on' if np_on else 'off'}, RP {'on' if rp_on else 'off'}"
            marks, cnps = (receiver.get(n, 0) for n in ("np_ecn_marked_roce_packets", "np_cnp_sent"))
            check(marks > 0, f"{what}: no marks")
            check(cnps > 0 if np_on else cnps == 0, f"{what}: {cnps} CNPs for {marks} marks")
            equal(receiver.get("np_ce_disabled", 0), 0 if np_on else marks, f"{what}: np_ce_disabled")
            equal(sender.get("rp_cnp_handled", 0), cnps if rp_on else 0, f"{what}: rp_cnp_handled")
            equal(sender.get("rp_cnp_disabled", 0), 0 if rp_on else cnps, f"{what}: rp_cnp_disabled")
            if not (np_on and rp_on):
                equal(sender.get("rp_rate_cuts", 0), 0, f"{what}: rp_rate_cuts")


@case
def the_reader_of_an_rdma_read_is_the_np():
    # h1 reads from h2: the data go to h1.
    net.port("h1", "--mark", "all")
    m = Measured()
    stream("-s", "16384", "-n", "60", tool="ib_read_bw")
    result = m.finish()
    check(result[h1][0] >= 900 and result[h1][1] > 0, f"reader: CE, CNPs = {result[h1]}")
    equal(result[h2], (0, 0), "responder: CE, CNPs")


@case
def uc_stream():
    net.port("h2", "--mark", "all")
    m = Measured()
    stream("-s", "16384", "-n", "40", "-c", "UC")
    ce, cnps = m.finish()[h2]
    check(ce >= 600 and cnps > 0, f"{ce} marks, {cnps} CNPs")


@case
def ud_stream():
    net.port("h2", "--mark", "all")
    m = Measured()
    # One way; perftest's datagrams may be lost at the receiver's queue.
    stream("-s", "1024", "-n", "500", "-c", "UD", "-r", "500", "-t", "8", tool="ib_send_bw")
    ce, cnps = m.finish()[h2]
    check(ce >= 500 and cnps > 0, f"{ce} marks, {cnps} CNPs")


@case
def ipv6_stream():
    net.port("h2", "--mark", "all")
    m = Measured()
    stream("-s", "16384", "-n", "60", family="--ipv6")
    ce, cnps = m.finish()[h2]
    check(ce >= 900 and cnps > 0, f"{ce} marks, {cnps} CNPs")


@case
def vlan_stream():
    net.port("h2", "--mark", "all")
    h2.set(cnp_dscp=46)
    m = Measured()
    stream("-s", "16384", "-n", "60", family="--vlan")
    ce, cnps = m.finish()[h2]
    check(ce >= 900 and cnps > 0, f"{ce} marks, {cnps} CNPs")
    tags = {(p.tci, p.dscp) for p in m.dumps[h1].packets() if p.opcode == roce.CNP}
    equal(tags, {(6 << 13 | 100, 46)}, "TCI and DSCP of CNPs")


@case
def ce_on_acks_gives_no_cnp():
    net.port("h1", "--mark", "force")
    m = Measured()
    stream("-s", "16384", "-n", "60")
    result = m.finish()
    ce, cnps = result[h1]
    check(ce > 50, f"only {ce} marked ACKs")
    equal(cnps, 0, "CNPs of the data's sender")
    equal(m.changes[h1].now().get("np_ce_not_data"), ce, "np_ce_not_data")


@case
def traffic_class_106_2_3_and_none_are_all_controlled():
    net.port("h2", "--mark", "all")
    for options in ["--tclass=106"], ["--tclass=2"], ["--tclass=3"], []:
        changes = Change(h1), Change(h2)
        for host in h1, h2:
            host.enable("roce_rp", False)
        stream("-s", "16384", "-n", "20", *options)
        time.sleep(0.2)
        sender, receiver = (c.now() for c in changes)
        check(receiver.get("np_ecn_marked_roce_packets", 0) >= 300, f"{options}: {receiver}")
        check(receiver.get("np_cnp_sent", 0) > 0, f"{options}: {receiver}")
        equal(sender.get("rp_cnp_disabled"), receiver["np_cnp_sent"], f"{options}: CNPs at the sender")


@case
def loss_is_not_a_mark():
    net.port("all", "--loss", "1%")
    changes = Change(h1), Change(h2)
    stream("-s", "4096", "-n", "500")
    for change in changes:
        equal({k: v for k, v in change.now().items() if k.startswith(("np_", "rp_"))}, {}, f"{change.host.name}: counters")


@case
def no_marks_no_counters():
    changes = Change(h1), Change(h2)
    stream("-s", "65536", "-n", "50")
    for change in changes:
        equal(change.now(), {}, f"{change.host.name}: counters")


@case
def a_bidirectional_stream_keeps_np_and_rp_apart_and_cnps_prompt():
    net.port("all", "--mark", "every:20")
    m = Measured()
    stream("-s", "16384", "-n", "60", "-b")
    result = m.finish()
    for host in h1, h2:
        check(result[host][0] > 20 and result[host][1] > 0, f"{host.name}: CE, CNPs = {result[host]}")
    delays = []
    waiting = None
    for p in m.dumps[h2].packets():
        if not p.outgoing and p.ecn == roce.CE and is_data(p):
            waiting = waiting or p.time_ns
        elif p.outgoing and p.opcode == roce.CNP and waiting:
            delays.append((p.time_ns - waiting) / 1000)
            waiting = None
    delays.sort()
    note(f"CE to CNP: median {delays[len(delays) // 2]:.0f} us of {len(delays)}")
    check(delays[len(delays) // 2] < 3000, "CNPs are late")


@case
def many_qps():
    net.port("h2", "--mark", "every:10")
    m = Measured()
    stream("-s", "4096", "-n", "20", "-q", "96")
    m.finish()
    named = {p.dest_qp for p in m.dumps[h1].packets() if p.opcode == roce.CNP}
    check(len(named) >= 90, f"only {len(named)} of 96 QPs got a CNP")


main(setup, ("ip", "tc", "nft", "rdma", "tcpdump", "ib_write_bw", "ib_read_bw", "ib_send_bw"))
