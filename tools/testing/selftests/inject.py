# SPDX-License-Identifier: GPL-2.0
"""rxecc inject: what it says it sends is what is on the wire, and each bad one is
counted for what is bad about it.

Packets are captured where they leave; what they are is read by samples/lib/roce.py,
which shares no code with the tool. QPs are lib/qp.c's, idle and of a known PSN.
"""
import re
import shutil
import subprocess

from lab import *


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6")
    h1, h2 = net.hosts


def pair(kind="rc", family=""):
    """QPs of h1 and h2 with different numbers, so that one cannot stand for the other."""
    a, b = h1.qps(family), h2.qps(family)
    b.new(kind)
    return connected(a, b, kind, family)


def seen(host, *words, **more):
    """The RoCE packets that one injection sends out of `host`."""
    capture = roce.Capture(host.namespace)
    try:
        rxecc("inject", *words, **more)
        time.sleep(0.1)
        return [p for p in capture.read() if p.outgoing]
    finally:
        capture.close()


ANSWERED = {"np_ecn_marked_roce_packets": 1, "np_cnp_sent": 1}
# At once, or with the answer where the QP's context was asked for first.
HOW_ANSWERED = ("np_cnp_immediate", "np_cnp_suppressed", "np_cnp_deferred")


def counted(host, want, *words, **more):
    """These and no other of the module's counters move."""
    change = Change(host)
    rxecc("inject", *words, **more)
    wait_until(lambda: len(change.now()) >= len(want), 2)
    got = {name: value for name, value in change.now().items() if name not in ("rp_rate_increases", *HOW_ANSWERED)}
    equal(got, want, f"{host.name}: inject {' '.join(map(str, words))}")


HANDLED = {"rp_cnp_handled": 1, "rp_rate_cuts": 1}


@case
def a_marked_packet_is_answered_and_does_the_qp_no_harm():
    one, two = pair()
    packet, = seen(h1, "ce", "--to", h2.device, "--qpn", two.qpn)
    equal((packet.opcode, packet.ecn, packet.dest_qp), (roce.RC_SEND_ONLY, roce.CE, two.qpn), "opcode, ECN, QPN")
    equal((packet.source, packet.dest), (h1.ip, h2.ip), "addresses")
    check(packet.icrc_right(), "ICRC")
    counted(h2, ANSWERED, "ce", "--to", h2.device, "--qpn", hex(two.qpn))
    memory = two.tool.memory()
    one.post("write", 3, 4096, memory)
    one.poll(3)


@case
def two_thousand_marks_one_by_one_are_answered_one_by_one():
    one, two = pair()
    rxecc("inject", "ce", "--to", h2.device, "--qpn", two.qpn)
    time.sleep(0.3)
    change = Change(h2)
    text = rxecc("inject", "ce", "--to", h2.namespace, "--qpn", two.qpn, "--count", 2000, "--interval-us", 500)
    got = change.now()
    equal(got.get("np_ecn_marked_roce_packets"), 2000, "marks")
    cnps = got.get("np_cnp_sent", 0)
    # After a machine stood still, several are in one window.
    folded = got.get("np_cnp_suppressed", 0) - got.get("np_cnp_deferred", 0)
    equal(cnps + folded, 2000, f"CNPs and marks that share one ({got})")
    check(cnps > 1000, f"only {cnps} CNPs: {got}")
    check("np_ecn_marked_roce_packets +2000" in text, text)


@case
def a_cnp_is_taken_and_cuts_the_rate():
    one, two = pair()
    packet, = seen(h2, "cnp", "--to", h1.device, "--qpn", one.qpn)
    equal(packet.ip, roce.cnp(h2.ip, h1.ip, one.qpn), "the CNP")
    counted(h1, HANDLED, "cnp", "--to", h1.device, "--qpn", one.qpn)


@case
def ipv6_works_like_ipv4():
    one, two = pair(family="--ipv6")
    packet, = seen(h1, "ce", "--to", h2.ip6, "--qpn", two.qpn, "--from", h1.namespace)
    equal((packet.source, packet.dest, packet.ecn), (h1.ip6, h2.ip6, roce.CE), "addresses, ECN")
    check(packet.icrc_right(), "ICRC")
    time.sleep(0.2)
    # By now the module knows the QP, so nothing but the QP need be named.
    counted(h2, ANSWERED, "ce", "--to", h2.device, "--qpn", two.qpn)
    packet, = seen(h2, "cnp", "--to", h1.device, "--qpn", one.qpn)
    equal(packet.ip, roce.cnp(h2.ip6, h1.ip6, one.qpn), "the CNP")


@case
def uc_and_ud_get_packets_of_their_own_kind():
    one, two = pair("uc")
    packet, = seen(h1, "ce", "--to", h2.device, "--qpn", two.qpn)
    equal((packet.opcode, packet.dest_qp), (roce.UC_SEND_ONLY, two.qpn), "UC: opcode, QPN")
    one, two = pair("ud")
    rxecc("inject", "ce", "--to", h2.device, "--qpn", two.qpn, status=2)
    words = "ce", "--to", h2.device, "--qpn", two.qpn, "--from", h1.device, "--source-qpn", one.qpn
    packet, = seen(h1, *words)
    equal((packet.opcode, packet.transport[17:20]), (roce.UD_SEND_ONLY, one.qpn.to_bytes(3)), "UD: opcode, source QPN")
    time.sleep(0.2)
    counted(h2, ANSWERED, *words)


@case
def each_bad_cnp_is_ignored_for_what_is_bad_about_it():
    one, two = pair()
    to = "cnp", "--to", h1.device, "--qpn", one.qpn
    counted(h1, HANDLED, *to)
    for reason, bad in (("rp_cnp_bad_icrc", ["--bad-icrc"]), ("rp_cnp_malformed", ["--tver", 1]), ("rp_cnp_malformed", ["--truncate", 4]),
                        ("rp_cnp_wrong_peer", ["--source", "10.0.0.9"])):
        counted(h1, {"rp_cnp_ignored": 1, reason: 1}, *to, *bad)
    counted(h1, {"rp_cnp_ignored": 1, "rp_cnp_unknown_qp": 1}, "cnp", "--to", h1.device, "--qpn", "0xfff", "--from", h2.device)


@case
def what_the_icrc_or_the_annex_leaves_open_makes_no_cnp_bad():
    one, two = pair()
    to = "cnp", "--to", h1.device, "--qpn", one.qpn
    for odd in [], ["--reserved"], ["--ttl", 3], ["--tos", "0x2e"], ["--psn", 4711], ["--sport", 4000], ["--pkey", "0x7fff"]:
        counted(h1, HANDLED, *to, *odd)


@case
def each_bad_mark_is_counted_for_what_is_bad_about_it():
    one, two = pair()
    to = "ce", "--to", h2.device, "--qpn", two.qpn
    rxecc("inject", *to)
    time.sleep(0.3)
    invalid = {"np_ecn_marked_roce_packets": 1, "np_ce_invalid": 1}
    not_data = {"np_ecn_marked_roce_packets": 1, "np_ce_not_data": 1}
    for want, bad in ((invalid, ["--bad-icrc"]), (invalid, ["--tver", 2]), (invalid, ["--pkey", "0x1234"]), (invalid, ["--source", "10.0.0.9"]),
                      (invalid, ["--opcode", "uc_send_only"]), (not_data, ["--opcode", "rc_ack"]), ({}, ["--tos", 2])):
        counted(h2, want, *to, *bad)


@case
def what_cannot_be_done_is_told_with_the_option_that_helps():
    one, two = pair()
    for words, said in ((["ce", "--to", h2.device, "--qpn", two.qpn, "--from", h2.device], "--from"),
                        (["ce", "--to", h2.ip, "--qpn", "0x777", "--from", h1.device], "--psn"),
                        (["ce", "--to", "10.0.0.77", "--qpn", 17, "--from", h1.device, "--psn", 0], "--peer"),
                        (["cnp", "--to", h1.device, "--qpn", "0x777"], "--from")):
        text = rxecc("inject", *words, status=2)
        check(said in text, f"{words}: {text}")


@case
def without_root_one_sentence_says_so():
    if not shutil.which("setpriv"):
        raise Skip("no setpriv (util-linux)")
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", shutil.which("rxecc"), "inject", "cnp", "--to", h1.device,
               "--qpn", "17", "--from", h2.device]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    equal(done.returncode, 2, f"status: {done.stdout}{done.stderr}")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("rxecc: note")]
    check(len(lines) == 1 and "sudo" in lines[0], done.stderr)


@case
def the_examples_of_the_help_work_as_printed():
    """With this network's names in the place of the help's, which has no prefix."""
    one, two = pair()
    examples = [line.split("  ")[1].strip() for line in rxecc("inject", "--help").splitlines() if line.startswith("  rxecc inject ")]
    check(len(examples) >= 5, f"{examples}")
    for example in examples:
        words = example.split()[2:]
        qpn = two.qpn if words[0] == "ce" else one.qpn
        at = words.index("--qpn") + 1
        if not words[at].startswith("0x"):
            words[at] = str(qpn)
        words = [re.sub(r"^(rxe|h)(\d)$", rf"{PREFIX}\1\2", word) for word in words]
        if "2000" in words:
            words[words.index("2000")] = "20"
        rxecc("inject", *words)


main(setup, ("ip", "tc", "nft", "rdma", "rxecc"))
