# SPDX-License-Identifier: GPL-2.0
"""Whose packets are looked at: those of net devices with an rxe device in their
own namespace, and of no others.
"""
from lab import *


def setup():
    global net, h1, h2, h3
    net = Network(3)
    h1, h2, h3 = net.hosts


def ce(src, dst, qpn, **fields):
    return roce.udp_ip(src, dst, roce.bth(roce.RC_SEND_ONLY, qpn, STALE), ecn=roce.CE, **fields)


def totals():
    return {device: counters(device) for device in devices()}


@case
def several_devices_in_several_namespaces_do_not_mix():
    tools = {h: h.qps() for h in net.hosts}
    # The same QPN everywhere, as far as rxe allows: each NP must take its own.
    qps = {h: tools[h].new("rc") for h in net.hosts}
    peers = {h1: h2, h2: h3, h3: h1}
    for host, qp in qps.items():
        host.set(min_time_between_cnps=0)
        qp.rtr(peers[host].ip, 0x100 + host.number)
    for host, qp in qps.items():
        changes = {h: Change(h) for h in net.hosts}
        watch = roce.Capture(host.namespace, opcode=roce.CNP)
        cleanup(watch.close)
        sender = peers[host]
        sender.sender.send(sender.to(host, ce(sender.ip, host.ip, qp.qpn)))
        changes[host].settle(np_ecn_marked_roce_packets=1, np_cnp_sent=1)
        equal([p.dest_qp for p in watch.read() if p.outgoing], [0x100 + host.number], "DestQP")
        # The CNP comes to a host that has no such QP.
        changes[sender].settle(rp_cnp_unknown_qp=1, np_ecn_marked_roce_packets=0)
        for other in net.hosts:
            if other not in (host, sender):
                equal(changes[other].now(), {}, f"counters of {other.name}, which had no part in it")


@case
def a_namespace_without_rxe_is_not_looked_at():
    h3.remove_device()
    cleanup(h3.add_device)
    with roce.netns(h3.namespace):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind((h3.ip, roce.ROCE_PORT))
    receiver.settimeout(2)
    before = totals()
    for packet in ce(h1.ip, h3.ip, 17), roce.cnp(h1.ip, h3.ip, 17), roce.cnp(h1.ip, h3.ip, 17, ecn=roce.CE):
        h1.sender.send(h1.to(h3, packet))
        got = receiver.recv(2000)
        equal(got, packet[28:], "what a program on port 4791 gets")
    receiver.close()
    equal(totals(), before, "counters")


@case
def a_net_device_without_rxe_beside_one_with_it_is_not_looked_at():
    # A second link between h1 and h3, on which neither has an rxe device.
    run("ip", "-n", h1.namespace, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", h3.namespace)
    cleanup(run, "ip", "-n", h1.namespace, "link", "del", "eth1")
    for host in h1, h3:
        run("ip", "-n", host.namespace, "addr", "add", f"10.9.0.{host.number}/24", "dev", "eth1")
        run("ip", "-n", host.namespace, "link", "set", "eth1", "up")
    other = roce.Sender(h1.namespace, "eth1")
    cleanup(other.socket.close)
    target = roce.neighbour_mac(h3.namespace, "eth1")
    before, datagrams = totals(), h3.udp_datagrams()
    for packet in ce("10.9.0.1", "10.9.0.3", 17), roce.cnp("10.9.0.1", "10.9.0.3", 17):
        other.send(roce.frame(target, other.mac, packet))
    # They go on to rxe's socket, which is bound to no device: rxe's matter.
    check(wait_until(lambda: h3.udp_datagrams() >= datagrams + 2, 1), "the packets did not arrive")
    equal(totals(), before, "counters")


@case
def forwarded_packets_are_not_looked_at():
    # h3 routes between its two links; marks that pass through are not its own.
    h3.exec("sysctl", "-qw", "net.ipv4.ip_forward=1")
    cleanup(h3.exec, "sysctl", "-qw", "net.ipv4.ip_forward=0")
    before = Change(h3)
    watch = roce.Capture(h2.namespace)
    cleanup(watch.close)
    h1.sender.send(roce.frame(h3.mac, h1.mac, ce(h1.ip, h2.ip, 17)))
    packets = [p for p in watch.read(1) if p.opcode == roce.RC_SEND_ONLY and not p.outgoing]
    check(packets, "h3 did not forward")
    equal(packets[0].ecn, roce.CE, "ECN of the forwarded packet")
    equal(before.now(), {}, "counters of the router")


@case
def programs_that_send_to_port_4791_without_rxe_are_left_alone():
    h3.remove_device()
    cleanup(h3.add_device)
    watch = roce.Capture(h3.namespace)
    cleanup(watch.close)
    with roce.netns(h3.namespace):
        program = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    program.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3)
    program.sendto(roce.bth(roce.RC_SEND_ONLY, 17) + bytes(4), (h1.ip, roce.ROCE_PORT))
    program.close()
    sent = [p for p in watch.read(1) if p.outgoing]
    equal([p.tos for p in sent], [3], "TOS of a program's own packets")


@case
def a_device_that_moves_to_another_namespace_loses_rxe_and_its_knobs():
    run("ip", "netns", "add", f"{PREFIX}other")
    cleanup(run, "ip", "netns", "del", f"{PREFIX}other")
    run("ip", "-n", h3.namespace, "link", "add", "eth2", "type", "veth", "peer", "name", "eth3")
    name = f"{PREFIX}rxe9"
    h3.exec("ip", "link", "set", "eth2", "up")
    h3.exec("rdma", "link", "add", name, "type", "rxe", "netdev", "eth2")
    check(os.path.isdir(f"{h3.sys}/class/net/eth2/ecn"), "no knobs on a second device")
    run("ip", "-n", h3.namespace, "link", "set", "eth2", "netns", f"{PREFIX}other")
    gone = wait_until(lambda: not os.path.exists(f"/sys/class/infiniband/{name}"), 3)
    there = run("ip", "netns", "exec", f"{PREFIX}other", "ls", "/sys/class/net/eth2")
    if gone:
        check("ecn" not in there.split(), "the moved device still has knobs")
    else:
        run("ip", "netns", "exec", f"{PREFIX}other", "rdma", "link", "del", name)
    run("ip", "-n", h3.namespace, "link", "del", "eth3")


@case
def two_devices_in_one_namespace_keep_their_own_counters():
    run("ip", "-n", h1.namespace, "link", "add", "eth4", "type", "veth", "peer", "name", "eth4", "netns", h3.namespace)
    cleanup(run, "ip", "-n", h1.namespace, "link", "del", "eth4")
    for host in h1, h3:
        run("ip", "-n", host.namespace, "addr", "add", f"10.9.4.{host.number}/24", "dev", "eth4")
        run("ip", "-n", host.namespace, "link", "set", "eth4", "up")
    name = f"{PREFIX}rxe8"
    h3.exec("rdma", "link", "add", name, "type", "rxe", "netdev", "eth4")
    sender = roce.Sender(h1.namespace, "eth4")
    cleanup(sender.socket.close)
    target = roce.neighbour_mac(h3.namespace, "eth4")
    before, first = counters(name), Change(h3)
    sender.send(roce.frame(target, sender.mac, ce("10.9.4.1", "10.9.4.3", 0x1234)))
    check(wait_until(lambda: counters(name)["np_ce_invalid"] == before["np_ce_invalid"] + 1, 1), f"the second device: {counters(name)}")
    equal(first.now(), {}, "counters of the first device")


main(setup)
