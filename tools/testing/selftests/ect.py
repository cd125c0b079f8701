# SPDX-License-Identifier: GPL-2.0
"""The ECN field of what a host sends: data leave as ECT(0) whatever the program
asked for, with the DSCP as it was; ACKs, CNPs and the connection manager's
packets are left alone; with ect_mode "pass" nothing is changed and it is counted.

Real traffic between QPs of h1 and h2, captured where it leaves.
"""
from lab import *

# Traffic classes as programs set them: none, ECT(0), CE, ECT(1), DSCP 26 with and
# without ECN bits, all ones.
CLASSES = (0, 2, 3, 1, 106, 107, 104, 255)


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6", "--vlan", "100")
    h1, h2 = net.hosts


def is_ack(p):
    return p.opcode in (roce.RC_ACK, roce.RC_ATOMIC_ACK)


def right_checksum(p):
    return len(p.src) != 4 or roce.checksum(p.ip[:(p.ip[0] & 15) * 4]) == 0


class Wire:
    """What h1 and h2 send."""

    def __init__(self):
        self.captures = [roce.Capture(h.namespace) for h in (h1, h2)]
        for capture in self.captures:
            cleanup(capture.close)

    def sent(self, host):
        time.sleep(0.1)
        return [p for p in self.captures[host.number - 1].read() if p.outgoing]

    def expect_data(self, host, tos, count, what):
        """All data packets that the host sent have this TOS and are intact."""
        packets = self.sent(host)
        data = [p for p in packets if not is_ack(p) and p.opcode != roce.CNP]
        check(len(data) >= count, f"{what}: {len(data)} data packets on the wire, expected {count}")
        equal({p.tos for p in data}, {tos}, f"{what}: TOS of data")
        check(all(right_checksum(p) for p in packets), f"{what}: wrong IP checksum")
        check(all(p.icrc_right() for p in packets), f"{what}: wrong ICRC")
        return [p for p in packets if is_ack(p)]


def transfer(kind, tclass, family="", verbs=("write", "send", "read"), size=4000, count=3):
    """Both ends use the same class. (a's QP, b's QP) when everything has arrived."""
    a, b = h1.qps(family), h2.qps(family)
    one, two = connected(a, b, kind, family, tclass)
    memory = b.memory()
    for verb in verbs:
        if verb == "send":
            two.recv(count)
        one.post(verb, count, size, memory)
        one.poll(count)
    a.close()
    b.close()


@case
def rc_data_leave_as_ect0_with_their_dscp():
    wire = Wire()
    for tclass in CLASSES:
        transfer("rc", tclass)
        what = f"class {tclass}"
        wire.expect_data(h1, tclass & ~3 | 2, 27, f"{what}: requests")
        acks = wire.expect_data(h2, tclass & ~3 | 2, 12, f"{what}: READ responses")
        check(acks, f"{what}: no ACKs seen")
        equal({p.tos for p in acks}, {tclass}, f"{what}: TOS of ACKs, as the program asked")


@case
def uc_data_leave_as_ect0():
    wire = Wire()
    for tclass in 0, 3, 106:
        transfer("uc", tclass, verbs=("write", "send"))
        wire.expect_data(h1, tclass & ~3 | 2, 24, f"class {tclass}")


@case
def ud_data_leave_as_ect0():
    wire = Wire()
    a, b = h1.qps(), h2.qps()
    one, two = a.new("ud").rtr(h2.ip, 0).rts(), b.new("ud").rtr(h1.ip, 0).rts()
    for tclass in 0, 3, 106:
        one.datagrams(h2.ip, two.qpn, 5, 1000, tclass)
        one.poll(5)
        wire.expect_data(h1, tclass & ~3 | 2, 5, f"class {tclass}")


@case
def ipv6_data_leave_as_ect0():
    wire = Wire()
    for tclass in 0, 3, 107:
        transfer("rc", tclass, "--ipv6")
        wire.expect_data(h1, tclass & ~3 | 2, 27, f"class {tclass}: requests")
        wire.expect_data(h2, tclass & ~3 | 2, 12, f"class {tclass}: READ responses")


@case
def vlan_data_leave_as_ect0():
    wire = Wire()
    transfer("rc", 106, "--vlan")
    wire.expect_data(h1, 106, 27, "requests")
    wire.expect_data(h2, 106, 12, "READ responses")


@case
def the_rp_need_not_be_enabled():
    wire = Wire()
    h1.enable("roce_rp", False)
    h2.enable("roce_rp", False)
    transfer("rc", 3)
    wire.expect_data(h1, 2, 27, "requests")
    wire.expect_data(h2, 2, 12, "READ responses")


@case
def pass_leaves_data_alone_and_counts():
    wire = Wire()
    h1.set(ect_mode="pass")
    for tclass, counter in (3, "tx_born_ce"), (0, "tx_not_ect"), (2, None), (1, None), (107, "tx_born_ce"), (104, "tx_not_ect"):
        change = Change(h1)
        transfer("rc", tclass, verbs=("write",))
        wire.expect_data(h1, tclass, 12, f"class {tclass}")
        got = {name: value for name, value in change.now().items() if name.startswith("tx_")}
        equal(got, {counter: 12} if counter else {}, f"class {tclass}: counters")
    # What rewrite does is counted by neither.
    h1.set(ect_mode="rewrite")
    change = Change(h1)
    transfer("rc", 3, verbs=("write",))
    equal({name for name in change.now() if name.startswith("tx_")}, set(), "counters under rewrite")


@case
def born_ce_is_marked_for_ever_only_under_pass():
    for mode, marks in ("rewrite", 0), ("pass", 12):
        h1.set(ect_mode=mode)
        h2.set(min_time_between_cnps=0)
        change = Change(h2)
        transfer("rc", 3, verbs=("write",))
        change.settle(np_ecn_marked_roce_packets=marks)


@case
def a_write_of_ect_mode_acts_on_existing_qps():
    wire = Wire()
    a, b = h1.qps(), h2.qps()
    one, _ = connected(a, b, tclass=0)
    memory = b.memory()
    for mode, tos in ("rewrite", 2), ("pass", 0), ("rewrite", 2):
        h1.set(ect_mode=mode)
        one.post("write", 1, 1000, memory)
        one.poll(1)
        wire.expect_data(h1, tos, 1, mode)


@case
def packets_of_the_connection_manager_are_left_alone():
    # The kernel gives them the program's class, ECN bits included: here none.
    wire = Wire()
    stream = Stream(h1, h2, "-R", "-n", "5", "--tos=104", tool="ib_write_lat")
    stream.finish()
    for host in h1, h2:
        packets = wire.sent(host)
        cm = [p for p in packets if p.dest_qp == 1]
        check(cm, f"{host.name}: no packets of the connection manager seen")
        equal({p.ecn for p in cm}, {0}, f"{host.name}: ECN of the connection manager's packets")
        data = [p for p in packets if p.dest_qp > 1 and not is_ack(p)]
        check(data, f"{host.name}: no data seen")
        equal({p.ecn for p in data}, {roce.ECT0}, f"{host.name}: ECN of data")


@case
def packets_that_are_not_roce_are_left_alone():
    receiver = None
    with roce.netns(h2.namespace):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        receiver.bind((h2.ip, 4790))
    receiver.settimeout(2)
    with roce.netns(h1.namespace):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for tos in 0, 1, 3, 107:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        sender.sendto(roce.bth(roce.RC_SEND_ONLY, 17), (h2.ip, 4790))
        _, control, _, _ = receiver.recvmsg(100, 64)
        equal(control[0][2][0], tos, "TOS of a datagram to another port")
    sender.close()
    receiver.close()


main(setup)
