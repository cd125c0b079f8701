# SPDX-License-Identifier: GPL-2.0
"""The CNP on the wire: byte for byte, for every QP type, address family and knob.

h2 is the NP. Its QPs are connected to peers that do not exist (what counts is
what their context says), marked packets come from a raw socket on h1.
"""
import subprocess

from lab import *

# One real CNP of a ConnectX-5, from a public measurement.
CONNECTX5 = bytes.fromhex("45c2003cece64000401139060a0000020a000001000012b7002800008100ffff"
                          "4000003300000000000000000000000000000000000000008bc6384b")


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6", "--vlan", "100", "--egress-map", "0:0 1:1 2:2 3:3 4:4 5:5 6:7 7:6")
    h1, h2 = net.hosts


def marked(src, dst, qpn, opcode=roce.RC_WRITE_ONLY, more=roce.reth(), **fields):
    ip = {name: fields.pop(name) for name in ("dscp", "ttl", "sport", "ecn") if name in fields}
    return roce.udp_ip(src, dst, roce.bth(opcode, qpn, STALE, **fields) + more, **{"ecn": roce.CE, **ip})


def answer(packet, tci=None, seconds=1.0):
    """The one CNP that h2 sends for this packet."""
    watch = roce.Capture(h2.namespace, opcode=roce.CNP)
    change = Change(h2)
    h1.sender.send(h1.to(h2, packet, tci))
    cnps = watch.read(seconds)
    time.sleep(0.05)
    cnps += watch.read()
    watch.close()
    cnps = [p for p in cnps if p.outgoing]
    equal(len(cnps), 1, f"CNPs (counters: {change.now()})")
    return cnps[0]


def identification(packet):
    return int.from_bytes(packet.ip[4:6])


def bytes_equal(got, want):
    check(got == want, f"CNP\n  is        {got.hex()}\n  should be {want.hex()}")


@case
def the_expected_bytes_are_those_of_a_connectx():
    bytes_equal(roce.cnp("10.0.0.2", "10.0.0.1", 0x33, ident=0xECE6), CONNECTX5)


@case
def rc_cnp_equals_a_connectx_cnp_byte_for_byte():
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    cnp = answer(marked(h1.ip, h2.ip, qp.qpn))
    bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 0x33, ident=identification(cnp)))
    equal(cnp.eth_dst, h1.mac, "Ethernet destination")


@case
def uc_cnp():
    qp = h2.qps().new("uc").rtr(h1.ip, 0xABCDEF)
    cnp = answer(marked(h1.ip, h2.ip, qp.qpn, roce.UC_WRITE_ONLY))
    bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 0xABCDEF, ident=identification(cnp)))


@case
def ud_cnp_names_the_source_qp_of_the_deth():
    qp = h2.qps().new("ud").rtr(h1.ip, 0)
    cnp = answer(marked(h1.ip, h2.ip, qp.qpn, roce.UD_SEND_ONLY, roce.deth(0x4321)))
    bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 0x4321, ident=identification(cnp)))


@case
def ipv6_cnp():
    qp = h2.qps("--ipv6").new("rc").rtr(h1.ip6, 0x33)
    cnp = answer(marked(h1.ip6, h2.ip6, qp.qpn))
    bytes_equal(cnp.ip, roce.cnp(h2.ip6, h1.ip6, 0x33))


@case
def addresses_are_those_of_the_marked_packet_swapped():
    run("ip", "-n", h2.namespace, "addr", "add", "10.0.0.22/24", "dev", "eth0")
    cleanup(run, "ip", "-n", h2.namespace, "addr", "del", "10.0.0.22/24", "dev", "eth0")
    qp = h2.qps().new("rc").rtr(h1.ip, 0x44)
    cnp = answer(marked(h1.ip, "10.0.0.22", qp.qpn))
    bytes_equal(cnp.ip, roce.cnp("10.0.0.22", h1.ip, 0x44, ident=identification(cnp)))


@case
def nothing_of_the_marked_packet_but_addresses_and_pkey_is_copied():
    qp = h2.qps().new("rc").rtr(h1.ip, 0x55)
    packet = marked(h1.ip, h2.ip, qp.qpn, dscp=10, ttl=7, sport=4444, flags=0xC0, resv8a=0xFF, ack=0xFF)
    cnp = answer(packet)
    bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 0x55, ident=identification(cnp)))


@case
def pkey_is_the_marked_packets_own():
    qp = h2.qps().new("rc").rtr(h1.ip, 0x55)
    cnp = answer(marked(h1.ip, h2.ip, qp.qpn, pkey=0x7FFF))
    bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 0x55, pkey=0x7FFF, ident=identification(cnp)))


@case
def cnp_dscp_sets_the_dscp_of_ipv4_and_ipv6():
    four, six = h2.qps().new("rc").rtr(h1.ip, 1), h2.qps("--ipv6").new("rc").rtr(h1.ip6, 2)
    for dscp in 46, 0, 63:
        h2.set(cnp_dscp=dscp)
        cnp = answer(marked(h1.ip, h2.ip, four.qpn))
        bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 1, dscp=dscp, ident=identification(cnp)))
        cnp = answer(marked(h1.ip6, h2.ip6, six.qpn))
        bytes_equal(cnp.ip, roce.cnp(h2.ip6, h1.ip6, 2, dscp=dscp))


@case
def cnp_udp_sport_sets_the_source_port():
    h2.set(cnp_udp_sport=50000)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x55)
    cnp = answer(marked(h1.ip, h2.ip, qp.qpn))
    bytes_equal(cnp.ip, roce.cnp(h2.ip, h1.ip, 0x55, sport=50000, ident=identification(cnp)))


@case
def vlan_cnp_stays_in_its_vlan_with_the_pcp_of_the_egress_map():
    qp = h2.qps("--vlan").new("rc").rtr(h1.vlan_ip, 0x66)
    # The map swaps 6 and 7, so that a PCP which is not mapped shows.
    for priority, pcp in (6, 7), (3, 3), (7, 6), (0, 0):
        h2.set(cnp_802p_prio=priority, cnp_dscp=46)
        cnp = answer(marked(h1.vlan_ip, h2.vlan_ip, qp.qpn), tci=100)
        bytes_equal(cnp.ip, roce.cnp(h2.vlan_ip, h1.vlan_ip, 0x66, dscp=46, ident=identification(cnp)))
        check(cnp.tci is not None, "the CNP is not tagged")
        equal(cnp.tci & 0xFFF, 100, "VLAN")
        equal(cnp.tci >> 13, pcp, f"PCP of cnp_802p_prio {priority}")


@case
def a_vlan_uses_the_knobs_and_counters_of_the_real_device():
    check(not os.path.exists(f"{h2.sys}/class/net/eth0.100/ecn"), "the VLAN device has an ecn directory")
    qp = h2.qps("--vlan").new("rc").rtr(h1.vlan_ip, 0x66)
    change = Change(h2)
    answer(marked(h1.vlan_ip, h2.vlan_ip, qp.qpn), tci=100)
    change.settle(np_ecn_marked_roce_packets=1, np_cnp_sent=1)


@case
def an_untagged_cnp_has_no_tag():
    qp = h2.qps().new("rc").rtr(h1.ip, 0x66)
    equal(answer(marked(h1.ip, h2.ip, qp.qpn)).tci, None, "TCI")


@case
def scapy_reads_the_same_fields():
    qp = h2.qps().new("rc").rtr(h1.ip, 0x777)
    cnp = answer(marked(h1.ip, h2.ip, qp.qpn))
    program = """
import sys
from scapy.layers.inet import IP, UDP
from scapy.contrib.roce import BTH, CNPPadding, cnp
p = IP(bytes.fromhex(sys.stdin.read()))
assert p[UDP].dport == 4791 and p.tos == 0xC2 and p.ttl == 64 and p.len == 60, p.show(dump=True)
b = p[BTH]
assert b.opcode == 0x81 and b.becn == 1 and b.fecn == 0 and b.dqpn == 0x777 and b.psn == 0, p.show(dump=True)
assert p[CNPPadding].reserved1 == 0 and p[CNPPadding].reserved2 == 0, p.show(dump=True)
icrc = b.icrc
b.icrc = None
# scapy computes the ICRC of what it builds.
again = IP(bytes(p))[BTH].icrc
assert again == icrc, (again, icrc)
"""
    done = subprocess.run(["python3", "-c", program], input=cnp.ip.hex(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if "No module named 'scapy'" in done.stdout:
        raise Skip("no scapy")
    check(done.returncode == 0, done.stdout.strip()[-600:])


main(setup)
