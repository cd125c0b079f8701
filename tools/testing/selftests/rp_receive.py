# SPDX-License-Identifier: GPL-2.0
"""CNPs at the RP: which are handled, as what the others are counted, and that
none of them ever reaches rxe.

CNPs come from a raw socket on h2 to QPs of h1 in known states. A datagram that
reaches rxe's UDP socket shows in the namespace's UDP counters.
"""
import subprocess

import lab
from lab import *

PEER = 0x33


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6", "--vlan", "100")
    h1, h2 = net.hosts


HANDLED = "rp_cnp_handled"


def expect(verdict, packet, what, tci=None, times=1):
    """verdict: rp_cnp_handled or a reason; it is the only counter of the RP that may
    move beside the sum of the reasons."""
    change, datagrams = Change(h1), h1.udp_datagrams()
    for _ in range(times):
        h2.sender.send(h2.to(h1, packet, tci))
    wait_until(lambda: change.now().get(verdict, 0) == times, 1)
    got = {name: value for name, value in change.now().items() if name in (HANDLED, "rp_cnp_ignored", *IGNORED)}
    want = {HANDLED: times} if verdict == HANDLED else {verdict: times, "rp_cnp_ignored": times}
    equal(got, want, what)
    equal(h1.udp_datagrams(), datagrams, f"{what}: datagrams that reached UDP")


def cnp(qp, **fields):
    return roce.cnp(h2.ip, h1.ip, qp if isinstance(qp, int) else qp.qpn, **fields)


def rc_qp(tclass=0, sl=0, kind="rc"):
    return h1.qps().new(kind).rtr(h2.ip, PEER, tclass, sl).rts()


@case
def a_cnp_for_a_live_qp_is_handled():
    qp = rc_qp()
    expect(HANDLED, cnp(qp), "first")
    expect(HANDLED, cnp(qp), "fifty", times=50)


@case
def uc_ud_ipv6_and_vlan():
    expect(HANDLED, cnp(rc_qp(kind="uc")), "UC")
    expect(HANDLED, cnp(rc_qp(kind="ud")), "UD")
    six = h1.qps("--ipv6").new("rc").rtr(h2.ip6, PEER).rts()
    expect(HANDLED, roce.cnp(h2.ip6, h1.ip6, six.qpn), "IPv6")
    vlan = h1.qps("--vlan").new("rc").rtr(h2.vlan_ip, PEER).rts()
    expect(HANDLED, roce.cnp(h2.vlan_ip, h1.vlan_ip, vlan.qpn), "VLAN", tci=6 << 13 | 100)


@case
def states_other_than_rtr_rts_and_sqd_are_unknown():
    tool = h1.qps()
    for path, verdict in (("rtr",), HANDLED), (("rtr", "rts"), HANDLED), (("rtr", "rts", "sqd"), HANDLED), \
            ((), "rp_cnp_unknown_qp"), (("reset",), "rp_cnp_unknown_qp"), (("rtr", "rts", "err"), "rp_cnp_unknown_qp"):
        qp = tool.new("rc")
        for state in path:
            if state == "rtr":
                qp.rtr(h2.ip, PEER)
            elif state == "rts":
                qp.rts()
            else:
                qp.state(state)
        expect(verdict, cnp(qp), f"QP in {path[-1] if path else 'init'}")


@case
def an_unknown_qpn_is_ignored():
    for qpn in 0, 1, 2, 0xABCDE, 0xFFFFFF:
        expect("rp_cnp_unknown_qp", cnp(qpn), f"QPN {qpn:#x}")


@case
def another_source_than_the_peer_is_ignored():
    qp = rc_qp()
    expect("rp_cnp_wrong_peer", roce.cnp("10.0.0.77", h1.ip, qp.qpn), "stranger")
    expect("rp_cnp_wrong_peer", roce.cnp(h2.ip6, h1.ip6, qp.qpn), "the peer's other address")
    expect(HANDLED, cnp(qp), "peer")
    expect(HANDLED, roce.cnp("10.0.0.77", h1.ip, rc_qp(kind="ud").qpn), "UD has no peer")


@case
def a_wrong_icrc_is_ignored():
    qp = rc_qp()
    good = cnp(qp)
    for at in -1, -4, -5, -20, 36, 40:
        bad = bytearray(good)
        bad[at] ^= 1
        verdict = "rp_cnp_bad_icrc"
        expect(verdict, bytes(bad), f"byte {at} changed")
    expect(HANDLED, good, "as it was")


@case
def masked_fields_changed_on_the_way_do_not_matter():
    qp = rc_qp()
    changed = bytearray(cnp(qp))
    changed[8] = 3             # TTL
    changed[32] = 0            # BECN
    expect(HANDLED, roce.set_ecn(bytes(changed), roce.ECT0), "TTL and BECN")
    expect(HANDLED, roce.set_ecn(bytes(changed), 0), "Not-ECT")
    change = Change(h1)
    expect(HANDLED, roce.set_ecn(bytes(changed), roce.CE), "CE")
    change.settle(np_ecn_marked_roce_packets=1, np_ce_not_data=1, np_cnp_sent=0)


@case
def any_value_of_the_reserved_bits_is_accepted():
    qp = rc_qp()

    def with_fields(flags=0, resv8a=0x40, ack=0, body=bytes(16)):
        return roce.udp_ip(h2.ip, h1.ip, roce.bth(roce.CNP, qp.qpn, flags=flags, resv8a=resv8a, ack=ack) + body, dscp=48, sport=0)

    for fields in {"flags": 0x80}, {"flags": 0x40}, {"resv8a": 0xFF}, {"resv8a": 0}, {"resv8a": 0x7F}, {"ack": 0x80}, {"ack": 0x7F}, \
            {"body": b"\xff" * 16}, {"body": bytes(range(16))}:
        expect(HANDLED, with_fields(**fields), str(fields))


@case
def dscp_source_port_pkey_and_ip_id_do_not_matter():
    qp = rc_qp()
    for fields in {"dscp": 0}, {"dscp": 63}, {"sport": 4791}, {"sport": 65535}, {"ident": 7}, {"pkey": 0x7FFF}:
        expect(HANDLED, cnp(qp, **fields), str(fields))


@case
def wrong_forms_are_malformed():
    qp = rc_qp()

    def form(transport, claim=None, **fields):
        ip = bytearray(roce.udp_ip(h2.ip, h1.ip, transport, dscp=48, sport=0, **fields))
        if claim is not None:
            ip[24:26] = struct.pack("!H", claim)
            ip[-4:] = roce.icrc(bytes(ip[:-4]))
        return bytes(ip)

    head = roce.bth(roce.CNP, qp.qpn, resv8a=0x40)
    for size in 0, 4, 12, 15, 17, 20, 32, 1000:
        expect("rp_cnp_malformed", form(head + bytes(size)), f"{size} bytes behind the BTH")
    expect("rp_cnp_malformed", form(roce.bth(roce.CNP, qp.qpn, flags=1, resv8a=0x40) + bytes(16)), "TVer 1")
    expect("rp_cnp_malformed", form(head + bytes(16), claim=20), "UDP length 20")
    expect(HANDLED, form(head + bytes(16)), "right form")


@case
def truncated_cnps_never_reach_rxe():
    qp = rc_qp()
    whole = cnp(qp)
    for claim in 39, 41, 60, 0xFFFF:
        bad = bytearray(whole)
        bad[24:26] = struct.pack("!H", claim)
        change, datagrams = Change(h1), h1.udp_datagrams()
        h2.sender.send(h2.to(h1, bytes(bad)))
        time.sleep(0.1)
        equal(change.now().get("rp_cnp_handled", 0), 0, f"UDP length {claim}: handled")
        equal(change.now().get("rp_cnp_ignored", 0), 1, f"UDP length {claim}: ignored")
        equal(h1.udp_datagrams(), datagrams, f"UDP length {claim}: datagrams that reached UDP")


@case
def ip_options_do_not_let_a_cnp_through():
    qp = rc_qp()
    packet = roce.udp_ip(h2.ip, h1.ip, roce.bth(roce.CNP, qp.qpn, resv8a=0x40) + bytes(16), options=bytes([1, 1, 1, 0]))
    expect("rp_cnp_bad_icrc", packet, "IPv4 options")


@case
def rp_off_ignores_but_still_consumes():
    qp = rc_qp()
    h1.enable("roce_rp", False)
    expect("rp_cnp_disabled", cnp(qp), "RP off", times=10)
    h1.enable("roce_rp", True)
    expect(HANDLED, cnp(qp), "on again")


@case
def rp_enable_goes_by_the_qps_traffic_class_not_the_cnps():
    qp = rc_qp(tclass=106)     # DSCP 26, priority 3
    h1.enable("roce_rp", False, [3])
    for dscp in 48, 26, 0:
        expect("rp_cnp_disabled", cnp(qp, dscp=dscp), f"CNP with DSCP {dscp}")
    expect(HANDLED, cnp(rc_qp(), dscp=26), "a QP of priority 0")
    h1.enable("roce_rp", True, [3])
    h1.enable("roce_rp", False, [0, 6])
    expect(HANDLED, cnp(qp, dscp=48), "only other priorities are off")


@case
def np_off_does_not_matter_to_the_rp():
    qp = rc_qp()
    h1.enable("roce_np", False)
    expect(HANDLED, cnp(qp), "NP off")


@case
def opcode_0x80_is_no_cnp():
    qp = rc_qp()
    change, datagrams = Change(h1), h1.udp_datagrams()
    packet = roce.udp_ip(h2.ip, h1.ip, roce.bth(0x80, qp.qpn, resv8a=0x40) + bytes(16), dscp=48, sport=0)
    h2.sender.send(h2.to(h1, packet))
    check(wait_until(lambda: h1.udp_datagrams() > datagrams, 1), "opcode 0x80 did not reach rxe")
    # The others follow the flows of earlier cases, which end by and by.
    equal({k: v for k, v in change.now().items() if k.startswith("rp_cnp_")}, {}, "CNPs counted")


@case
def a_cnp_to_another_port_or_host_is_not_looked_at():
    qp = rc_qp()
    change = Change(h1)
    h2.sender.send(h2.to(h1, roce.udp_ip(h2.ip, h1.ip, roce.bth(roce.CNP, qp.qpn) + bytes(16), dport=4790)))
    h2.sender.send(h2.to(h1, roce.cnp(h2.ip, "10.0.0.99", qp.qpn)))
    time.sleep(0.2)
    # The others follow the flows of earlier cases, which end by and by.
    equal({k: v for k, v in change.now().items() if k.startswith("rp_cnp_")}, {}, "CNPs counted")


@case
def many_bad_cnps_do_not_fill_the_log():
    qp = rc_qp()
    log_complaints()
    bad = bytearray(cnp(qp))
    bad[-1] ^= 1
    change = Change(h1)
    frames = [h2.to(h1, bytes(bad)), h2.to(h1, cnp(0x1234)), h2.to(h1, roce.cnp("10.0.0.77", h1.ip, qp.qpn)),
              h2.to(h1, roce.udp_ip(h2.ip, h1.ip, roce.bth(roce.CNP, qp.qpn) + bytes(8)))] * 2500
    h2.sender.send_all(frames)
    change.settle(3, rp_cnp_ignored=10000, rp_cnp_bad_icrc=2500, rp_cnp_malformed=2500)
    log_complaints()
    check(len(lab.last_log) < 20, f"{len(lab.last_log)} lines in the log, such as {lab.last_log[:2]}")


@case
def made_up_qpns_cost_a_bounded_number_of_lookups_and_do_no_harm():
    qp = rc_qp()
    expect(HANDLED, cnp(qp), "before")
    change = Change(h1)
    h2.sender.send_all([h2.to(h1, cnp(0x10000 + n)) for n in range(20000)])
    change.settle(5, rp_cnp_unknown_qp=20000)
    expect(HANDLED, cnp(qp), "after", times=20)
    # While the flood lasts new QPs may find no place; soon after it they do.
    new, started = rc_qp(), time.monotonic()
    change = Change(h1)

    def handled():
        h2.sender.send(h2.to(h1, cnp(new)))
        return wait_until(lambda: change.now().get(HANDLED, 0) > 0, 0.1)

    check(wait_until(handled, 3), "3 s after the flood a new QP's CNPs are still ignored")
    note(f"a new QP's CNP is handled {time.monotonic() - started:.1f} s after the flood")


@case
def scapys_ipv6_cnp_is_accepted_when_its_icrc_is_right():
    qp = h1.qps("--ipv6").new("rc").rtr(h2.ip6, PEER).rts()
    program = f"""
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.contrib.roce import cnp
p = IPv6(src="{h2.ip6}", dst="{h1.ip6}", tc=0xC2, hlim=64) / UDP(sport=0, dport=4791) / cnp({qp.qpn})
print(bytes(p).hex())
"""
    done = subprocess.run(["python3", "-c", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if "No module named 'scapy'" in done.stderr:
        raise Skip("no scapy")
    if done.returncode:
        note(f"scapy cannot build it: {done.stderr.strip().splitlines()[-1]}")
        raise Skip("this scapy builds no IPv6 CNP")
    packet = bytes.fromhex(done.stdout.strip().splitlines()[-1])
    verdict = HANDLED if roce.icrc(packet[:-4]) == packet[-4:] else "rp_cnp_bad_icrc"
    note(f"scapy's ICRC is {'right' if verdict == HANDLED else 'wrong'}")
    expect(verdict, packet, "scapy's packet as it is")
    expect(HANDLED, packet[:-4] + roce.icrc(packet[:-4]), "with the right ICRC")


main(setup)
