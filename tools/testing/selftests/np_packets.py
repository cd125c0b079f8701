# SPDX-License-Identifier: GPL-2.0
"""Which marked packets the NP answers, and as what the others are counted.

Every packet comes alone from a raw socket on h1, CE-marked, to a QP of h2 in a
known state; the window is off (min_time_between_cnps 0), so that each valid
mark must give one CNP. Whatever the verdict, rxe gets the packet.
"""
from lab import *

PEER = 0x33


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6")
    h1, h2 = net.hosts


SENT, NOT_DATA, INVALID, DISABLED = "np_cnp_sent", "np_ce_not_data", "np_ce_invalid", "np_ce_disabled"


class Trial:
    """Packets to judge; the counters and captured CNPs say how they were judged."""

    def __init__(self, sender=None):
        self.sender = sender or h1.sender
        h2.set(min_time_between_cnps=0)
        self.watch = roce.Capture(h2.namespace, opcode=roce.CNP)
        cleanup(self.watch.close)

    def expect(self, verdict, packet, what, reaches_rxe=True, ce=1, group=None):
        """packet: IP; group: its Ethernet address if it is multicast."""
        change, datagrams = Change(h2), h2.udp_datagrams()
        self.sender.send(roce.frame(group or h2.mac, h1.mac, packet))
        wait_until(lambda: change.now().get("np_ecn_marked_roce_packets", 0) == ce, 0.5)
        # A mark whose QP is being resolved is judged by a worker.
        wait_until(lambda: verdict in change.now(), 0.5)
        got = change.now()
        equal(got.get("np_ecn_marked_roce_packets", 0), ce, f"{what}: marks counted ({got})")
        for reason in SENT, NOT_DATA, INVALID, DISABLED:
            equal(got.get(reason, 0), int(reason == verdict), f"{what}: {reason} ({got})")
        cnps = [p for p in self.watch.read(0.5 if verdict == SENT else 0.0) if p.outgoing]
        equal(len(cnps), int(verdict == SENT), f"{what}: CNPs on the wire")
        if reaches_rxe:
            check(wait_until(lambda: h2.udp_datagrams() > datagrams, 0.5), f"{what}: rxe did not get the packet")
        return cnps


def ce(transport, src=None, dst=None, **fields):
    return roce.udp_ip(src or h1.ip, dst or h2.ip, transport, **{"ecn": roce.CE, **fields})


def rc_qp(peer=None):
    return h2.qps().new("rc").rtr(peer or h1.ip, PEER)


ATOMIC = struct.pack("!QIQQ", 0, 0, 0, 0)
IMM = bytes(4)
DATA = bytes(1024)
RC_DATA = {
    0x00: DATA, 0x01: DATA, 0x02: DATA, 0x03: IMM + DATA, 0x04: DATA, 0x05: IMM + DATA,
    0x06: roce.reth() + DATA, 0x07: DATA, 0x08: DATA, 0x09: IMM + DATA, 0x0A: roce.reth() + DATA, 0x0B: roce.reth() + IMM + DATA,
    0x0C: roce.reth(), 0x0D: roce.aeth() + DATA, 0x0E: DATA, 0x0F: roce.aeth() + DATA, 0x10: roce.aeth() + DATA,
    0x13: ATOMIC, 0x14: ATOMIC, 0x16: IMM + DATA, 0x17: IMM + DATA,
}


@case
def every_rc_request_and_read_response_is_answered():
    trial, qp = Trial(), rc_qp()
    for opcode, rest in RC_DATA.items():
        trial.expect(SENT, ce(roce.bth(opcode, qp.qpn, STALE) + rest), f"opcode {opcode:#x}")


@case
def every_uc_request_is_answered():
    # Closed to WRITEs: UC executes whatever comes, and an rxe that copies to no
    # memory region warns.
    trial, qp = Trial(), h2.qps().new("uc", "closed").rtr(h1.ip, PEER)
    for opcode in range(0x20, 0x2C):
        trial.expect(SENT, ce(roce.bth(opcode, qp.qpn, STALE) + RC_DATA[opcode & 0x1F]), f"opcode {opcode:#x}")


@case
def every_ud_send_is_answered():
    trial, qp = Trial(), h2.qps().new("ud").rtr(h1.ip, 0)
    trial.expect(SENT, ce(roce.bth(0x64, qp.qpn) + roce.deth(7) + DATA), "SEND only")
    trial.expect(SENT, ce(roce.bth(0x65, qp.qpn) + roce.deth(7) + IMM + DATA), "SEND only with immediate")


@case
def a_padded_payload_is_answered():
    trial, qp = Trial(), rc_qp()
    for pad in 1, 2, 3:
        trial.expect(SENT, ce(roce.bth(0x04, qp.qpn, STALE, flags=pad << 4) + bytes(8)), f"pad {pad}")


@case
def a_duplicate_or_future_psn_is_answered():
    trial, qp = Trial(), rc_qp()
    for psn in 0, 999, 1000, 1001, 0x7FFFFF, 0xFFFFFF:
        trial.expect(SENT, ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, psn)), f"PSN {psn}")


@case
def a_marked_packet_reaches_rxe_as_it_came():
    change = Change(h2, rxe_too=True)
    trial, qp = Trial(), rc_qp()
    for _ in range(10):
        trial.expect(SENT, ce(roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE) + roce.reth()), "stale WRITE")
    change.settle(duplicate_request=10)


@case
def acks_are_not_answered():
    trial, qp = Trial(), rc_qp()
    qp.rts()
    for syndrome in 0x00, 0x1F, 0x20, 0x60, 0x61, 0x63:
        trial.expect(NOT_DATA, ce(roce.bth(roce.RC_ACK, qp.qpn, STALE) + roce.aeth(syndrome)), f"ACK, syndrome {syndrome:#x}")
    trial.expect(NOT_DATA, ce(roce.bth(roce.RC_ATOMIC_ACK, qp.qpn, STALE) + roce.aeth() + bytes(8)), "ATOMIC ACK")


@case
def a_marked_cnp_is_not_answered():
    trial, qp = Trial(), rc_qp()
    change = Change(h2)
    trial.expect(NOT_DATA, roce.cnp(h1.ip, h2.ip, qp.qpn, ecn=roce.CE), "CNP", reaches_rxe=False)
    change.settle(rp_cnp_handled=1)


@case
def qp0_qp1_and_multicast_are_not_answered():
    trial, qp = Trial(), h2.qps().new("ud").rtr(h1.ip, 0)
    for qpn in 0, 1, 0xFFFFFF:
        trial.expect(NOT_DATA, ce(roce.bth(roce.UD_SEND_ONLY, qpn) + roce.deth(7)), f"QP {qpn:#x}")
    four, six = bytes.fromhex("01005e000001"), bytes.fromhex("333300000001")
    # A group address with the QPN of a real QP is multicast all the same.
    for qpn in 0xFFFFFF, qp.qpn:
        transport = roce.bth(roce.UD_SEND_ONLY, qpn) + roce.deth(7)
        trial.expect(NOT_DATA, ce(transport, dst="224.0.0.1"), f"multicast to {qpn:#x}", False, group=four)
        trial.expect(NOT_DATA, ce(transport, src=h1.ip6, dst="ff02::1"), f"IPv6 multicast to {qpn:#x}", False, group=six)


@case
def qps_in_rtr_rts_and_sqd_answer_others_do_not():
    trial = Trial()
    tool = h2.qps()
    for path, verdict in (("rtr",), SENT), (("rtr", "rts"), SENT), (("rtr", "rts", "sqd"), SENT), ((), INVALID), \
            (("reset",), INVALID), (("rtr", "rts", "err"), INVALID), (("err",), INVALID):
        qp = tool.new("rc")
        for state in path:
            if state == "rtr":
                qp.rtr(h1.ip, PEER)
            elif state == "rts":
                qp.rts()
            else:
                qp.state(state)
        packet = ce(roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE) + roce.reth())
        trial.expect(verdict, packet, f"QP in {path[-1] if path else 'init'}")


@case
def an_unknown_qpn_is_invalid():
    trial, qp = Trial(), rc_qp()
    for qpn in qp.qpn + 1, 2, 0x1234, 0xFFFFFE:
        trial.expect(INVALID, ce(roce.bth(roce.RC_WRITE_ONLY, qpn, STALE) + roce.reth()), f"QPN {qpn:#x}")


@case
def another_source_than_the_peer_is_invalid():
    trial, qp = Trial(), rc_qp()
    good = roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE) + roce.reth()
    trial.expect(SENT, ce(good), "peer")
    trial.expect(INVALID, ce(good, src="10.0.0.77"), "stranger")
    trial.expect(INVALID, ce(good, src="fd00::1", dst=h2.ip6), "stranger by IPv6")
    trial.expect(SENT, ce(good), "peer again")


@case
def a_ud_qp_takes_any_source():
    trial, qp = Trial(), h2.qps().new("ud").rtr(h1.ip, 0)
    run("ip", "-n", h2.namespace, "neigh", "replace", "10.0.0.77", "lladdr", mac_text(h1.mac), "dev", "eth0")
    cnps = trial.expect(SENT, ce(roce.bth(roce.UD_SEND_ONLY, qp.qpn) + roce.deth(99), src="10.0.0.77"), "UD from anywhere")
    equal((cnps[0].dest, cnps[0].dest_qp), ("10.0.0.77", 99), "destination of the CNP")


@case
def another_service_than_the_qps_is_invalid():
    trial, tool = Trial(), h2.qps()
    qps = {kind: tool.new(kind).rtr(h1.ip, PEER) for kind in ("rc", "uc", "ud")}
    rest = {"rc": (roce.RC_SEND_ONLY, DATA), "uc": (roce.UC_SEND_ONLY, DATA), "ud": (roce.UD_SEND_ONLY, roce.deth(7) + DATA)}
    for own, qp in qps.items():
        for service, (opcode, more) in rest.items():
            trial.expect(SENT if own == service else INVALID, ce(roce.bth(opcode, qp.qpn, STALE) + more), f"{service} packet to {own} QP")


@case
def a_wrong_pkey_or_tver_is_invalid():
    trial, qp = Trial(), rc_qp()
    for pkey in 0x1234, 0x0000, 0x8000, 0x9234:
        trial.expect(INVALID, ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE, pkey=pkey)), f"P_Key {pkey:#x}")
    for tver in 1, 8, 15:
        trial.expect(INVALID, ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE, flags=tver)), f"TVer {tver}")


@case
def se_migreq_fecn_becn_and_reserved_bits_do_not_matter():
    trial, qp = Trial(), rc_qp()
    for fields in {"flags": 0x80}, {"flags": 0x40}, {"resv8a": 0x80}, {"resv8a": 0x40}, {"resv8a": 0x3F}, {"ack": 0x80}, {"ack": 0x7F}:
        trial.expect(SENT, ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE, **fields)), str(fields))


@case
def a_wrong_icrc_is_invalid():
    trial, qp = Trial(), rc_qp()
    good = ce(roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE) + roce.reth() + DATA)
    for at in -1, -4, -5, 44, 60:
        bad = bytearray(good)
        bad[at] ^= 1
        trial.expect(INVALID, bytes(bad), f"byte {at} changed")
    trial.expect(SENT, good, "as it was")


@case
def fields_that_may_change_on_the_way_do_not_matter():
    trial, qp = Trial(), rc_qp()
    good = ce(roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE) + roce.reth())
    changed = bytearray(good)
    changed[8] = 3             # TTL
    changed[32] = 0x55         # FECN, BECN, reserved
    changed[1] |= 0xA8         # DSCP
    trial.expect(SENT, roce.set_ecn(bytes(changed), roce.CE), "TTL, TOS and the reserved byte changed")
    udp_sum = bytearray(good)
    udp_sum[26:28] = struct.pack("!H", udp_checksum(good))
    trial.expect(SENT, bytes(udp_sum), "with a UDP checksum")


def udp_checksum(ip):
    pseudo = ip[12:20] + struct.pack("!BBH", 0, 17, len(ip) - 20)
    return roce.checksum(pseudo + ip[20:])


@case
def truncated_and_overlong_packets_are_invalid():
    trial, qp = Trial(), rc_qp()

    def cut(transport, claim=None):
        """A packet whose UDP length says `claim` of what is there."""
        ip = bytearray(roce.udp_ip(h1.ip, h2.ip, transport, ecn=roce.CE))
        if claim is not None:
            ip[24:26] = struct.pack("!H", claim)
            ip[-4:] = roce.icrc(bytes(ip[:-4]))
        return bytes(ip)

    head = roce.bth(roce.RC_WRITE_ONLY, qp.qpn, STALE)
    trial.expect(INVALID, cut(head), "WRITE without RETH")
    trial.expect(INVALID, cut(head + roce.reth()[:15]), "WRITE with 15 bytes of RETH")
    trial.expect(INVALID, cut(head[:8]), "8 bytes of BTH")
    trial.expect(INVALID, roce.udp_ip(h1.ip, h2.ip, bytes(4), ecn=roce.CE, with_icrc=False), "4 bytes")
    trial.expect(INVALID, roce.udp_ip(h1.ip, h2.ip, b"", ecn=roce.CE, with_icrc=False), "nothing")
    trial.expect(INVALID, cut(head + roce.reth(), claim=8 + 12), "UDP length ends with the BTH")
    trial.expect(INVALID, cut(head + roce.reth(), claim=9), "UDP length 9")
    trial.expect(INVALID, cut(head + roce.reth(), claim=4), "UDP length 4", reaches_rxe=False)
    trial.expect(INVALID, cut(head + roce.reth(), claim=1000), "UDP length beyond the packet", reaches_rxe=False)
    trial.expect(INVALID, cut(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE, flags=0x30) + bytes(2)), "more padding than payload")
    trial.expect(INVALID, cut(roce.bth(roce.RC_READ_RESPONSE_ONLY, qp.qpn, STALE)), "READ response without AETH")
    trial.expect(INVALID, cut(roce.bth(roce.RC_CMP_SWAP, qp.qpn, STALE) + bytes(20)), "CMP_SWAP cut short")
    trial.expect(SENT, cut(head + roce.reth()), "whole")


@case
def unknown_opcodes_are_invalid():
    trial, qp = Trial(), rc_qp()
    for opcode in 0x15, 0x18, 0x1F, 0x2C, 0x40, 0x60, 0x63, 0x66, 0x80, 0x82, 0xA0, 0xC0, 0xFF:
        trial.expect(INVALID, ce(roce.bth(opcode, qp.qpn, STALE) + bytes(32)), f"opcode {opcode:#x}")


@case
def ip_options_and_extension_headers_are_invalid():
    trial, qp = Trial(), rc_qp()
    transport = roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE)
    trial.expect(INVALID, ce(transport, options=bytes([1, 1, 1, 0])), "IPv4 options")
    six = h2.qps("--ipv6").new("rc").rtr(h1.ip6, PEER)
    plain = ce(roce.bth(roce.RC_SEND_ONLY, six.qpn, STALE), src=h1.ip6, dst=h2.ip6)
    trial.expect(SENT, plain, "IPv6")
    options = bytes([17, 0, 1, 4, 0, 0, 0, 0])
    extended = plain[:4] + struct.pack("!HB", len(plain) - 40 + 8, 60) + plain[7:40] + options + plain[40:]
    trial.expect(INVALID, extended, "IPv6 destination options")


@case
def ipv4_fragments_are_judged_when_whole_ipv6_ones_pass():
    trial, qp = Trial(), rc_qp()
    whole = ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE) + DATA, flags=0, ident=77)
    body, parts = whole[20:], []
    for start, end, more in (0, 512, 0x2000), (512, len(body), 0):
        head = bytearray(whole[:20])
        head[2:4] = struct.pack("!H", 20 + end - start)
        head[6:8] = struct.pack("!H", more | start // 8)
        head[10:12] = b"\0\0"
        head[10:12] = struct.pack("!H", roce.checksum(bytes(head)))
        parts.append(bytes(head) + body[start:end])
    h1.sender.send(h1.to(h2, parts[0]))
    trial.expect(SENT, parts[1], "IPv4 in two fragments")
    six = h2.qps("--ipv6").new("rc").rtr(h1.ip6, PEER)
    whole = ce(roce.bth(roce.RC_SEND_ONLY, six.qpn, STALE) + DATA, src=h1.ip6, dst=h2.ip6)
    change = Change(h2)
    for offset, piece, more in (0, whole[40:552], 1), (64, whole[552:], 0):
        extension = struct.pack("!BBHI", 17, 0, offset << 3 | more, 99)
        h1.sender.send(h1.to(h2, whole[:4] + struct.pack("!HB", len(piece) + 8, 44) + whole[7:40] + extension + piece))
    time.sleep(0.2)
    equal(change.now().get("np_cnp_sent", 0), 0, "CNPs for IPv6 fragments")


@case
def ect0_ect1_and_not_ect_are_no_marks():
    trial, qp = Trial(), rc_qp()
    for ecn in 0, 1, 2:
        trial.expect(None, ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE), ecn=ecn), f"ECN {ecn}", ce=0)


@case
def np_off_for_the_packets_priority_answers_nothing():
    trial, qp = Trial(), rc_qp()
    transport = roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE)
    h2.enable("roce_np", False, [3])
    for dscp, verdict in (26, DISABLED), (24, DISABLED), (31, DISABLED), (23, SENT), (32, SENT), (0, SENT):
        trial.expect(verdict, ce(transport, dscp=dscp), f"DSCP {dscp}")
    h2.enable("roce_np", False)
    for dscp in 0, 10, 26, 63:
        trial.expect(DISABLED, ce(transport, dscp=dscp), f"all off, DSCP {dscp}")
    h2.enable("roce_np", True)
    trial.expect(SENT, ce(transport, dscp=26), "on again")


@case
def other_ports_and_protocols_are_not_looked_at():
    trial, qp = Trial(), rc_qp()
    transport = roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE)
    for port in 4790, 4792, 53:
        trial.expect(None, ce(transport, dport=port), f"port {port}", ce=0, reaches_rxe=False)
    tcp = bytearray(ce(transport))
    tcp[9] = 6
    trial.expect(None, roce.set_ecn(bytes(tcp), roce.CE), "TCP", ce=0, reaches_rxe=False)


@case
def a_packet_that_the_firewall_drops_is_not_counted():
    trial, qp = Trial(), rc_qp()
    h2.exec("nft", "-f", "-", text="table ip f {\nchain i {\ntype filter hook input priority 0;\nudp dport 4791 drop\n}\n}\n")
    cleanup(h2.exec, "nft", "delete", "table", "ip", "f")
    trial.expect(None, ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE)), "dropped", ce=0, reaches_rxe=False)


@case
def no_route_for_the_cnp_is_counted_and_the_packet_delivered():
    trial = Trial()
    ipv6 = ["ip", "-n", h2.namespace, "-6"]
    run(*ipv6, "route", "add", "fd77::1/128", "dev", "eth0")
    run(*ipv6, "neigh", "replace", "fd77::1", "lladdr", mac_text(h1.mac), "dev", "eth0", "nud", "permanent")
    qp = h2.qps("--ipv6").new("rc").rtr("fd77::1", PEER)
    packet = ce(roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE), src="fd77::1", dst=h2.ip6)
    trial.expect(SENT, packet, "with a route")
    run(*ipv6, "route", "replace", "unreachable", "fd77::1/128")
    cleanup(run, *ipv6, "route", "flush", "fd77::1/128")
    run(*ipv6, "route", "del", "fd77::1/128", "dev", "eth0", fail=False)
    change = Change(h2)
    trial.expect(None, packet, "without a route")
    change.settle(np_ecn_marked_roce_packets=1, np_cnp_send_failed=1, np_cnp_sent=0)


main(setup)
