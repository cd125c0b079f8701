# SPDX-License-Identifier: GPL-2.0
"""The limiter holds the rate: what leaves, as captured on the sender, for all
services; in order, ACKs at once, data intact.

The rate is fixed by a first CNP from a raw socket and knobs that keep it there,
so all figures are those of the pacer. QPs are lib/qp.c's: they do not poll, and
leave the CPUs to the limiter.
"""
import hashlib
import os
import threading

import rp
from lab import *
from rp import MIB, Departures, Pairs, check_order, check_rate, check_time, limit, timely


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6")
    h1, h2 = net.hosts


def measured(pairs, kind, mbps, seconds, size=MIB, host=None, what=None):
    """Departures of limited QPs in a stretch in the middle of a stream, all of which
    is in order."""
    host = host or pairs.a
    peer = pairs.b if host is pairs.a else pairs.a
    limited = pairs.ours if host is pairs.a else pairs.theirs
    limit(host, peer, limited, mbps, pairs.family)
    dump = Dump(host)
    pairs.post(kind, min(200, int((seconds + 1.5) * mbps * 1e6 / 8 / size) + 1), size)
    time.sleep(0.5)
    since = time.time_ns()
    time.sleep(seconds)
    until = time.time_ns()
    dump.stop()
    check_order(Departures(dump), what or kind, dump)
    return Departures(dump, since, until)


def fixed(mbps, seconds, kind="write", what=None, host=None):
    pairs = Pairs(h1, h2)
    what = what or f"{kind} at {mbps} Mb/s"
    steady = measured(pairs, kind, mbps, seconds, host=host, what=what)
    for departures in steady.by_qp().values():
        check_rate(departures, mbps, what)


@case
@timely
def the_wire_rate_is_the_set_rate_at_1_mbps():
    fixed(1, 6)


@case
@timely
def the_wire_rate_is_the_set_rate_at_10_mbps():
    fixed(10, 5)


@case
@timely
def the_wire_rate_is_the_set_rate_at_50_mbps():
    fixed(50, 4)


@case
@timely
def a_rate_below_a_megabit_is_held():
    # Far below what a knob can say without dilation.
    fixed(0.1, 6)


@case
@timely
def a_rate_above_what_the_sender_can_do_costs_nothing():
    pairs = Pairs(h1, h2)
    times = []
    for limited in False, True, False, True:
        if limited:
            limit(h1, h2, pairs.ours, 5000)
        else:
            h1.enable("roce_rp", False)
            h1.enable("roce_rp", True)
            line = rp.state(h1).get(pairs.ours[0].qpn)
            check(not line or not line.limited, "limited although RP was switched off and on")
        started = time.monotonic()
        pairs.post("write", 12)
        pairs.finish()
        times.append(time.monotonic() - started)
    note(f"12 MiB: unlimited {times[0]:.2f} s and {times[2]:.2f} s, at 5 Gb/s {times[1]:.2f} s and {times[3]:.2f} s")
    check_time(min(times[1::2]) < 1.6 * min(times[::2]) + 0.1, "the limiter slows down what is below its rate")


@case
@timely
def send_at_its_rate():
    pairs = Pairs(h1, h2)
    pairs.theirs[0].recv(256)
    steady = measured(pairs, "send", 2, 2.5, size=4096)
    check_rate(steady, 2, "SEND")


@case
@timely
def read_responses_at_the_responders_rate():
    pairs = Pairs(h1, h2)
    steady = measured(pairs, "read", 10, 3, host=h2)
    check_rate(steady, 10, "READ responses")
    check(all(rp.is_response(f.packet) for f in steady), "these were not READ responses")


@case
@timely
def uc_at_its_rate():
    pairs = Pairs(h1, h2, kind="uc")
    steady = measured(pairs, "write", 10, 3)
    check_rate(steady, 10, "UC")


@case
@timely
def ud_at_its_rate():
    pairs = Pairs(h1, h2, kind="ud")
    one, two = pairs.ours[0], pairs.theirs[0]
    two.recv(256)
    limit(h1, h2, [one], 2)
    dump = Dump(h1)
    one.datagrams(h2.ip, two.qpn, 250, 1000)
    time.sleep(0.4)
    check(rp.state(h1)[one.qpn].held > 0, "no datagram is held")
    one.poll(250)
    departures = Departures(dump)
    check_order(departures, "UD", dump)
    # The last ones leave with the timer as the others.
    check_rate(departures, 2, "UD")


@case
@timely
def ipv6_at_its_rate():
    pairs = Pairs(h1, h2, family="--ipv6")
    steady = measured(pairs, "write", 10, 3)
    check_rate(steady, 10, "IPv6")


@case
@timely
def sixteen_qps_have_a_rate_each():
    pairs = Pairs(h1, h2, count=16)
    steady = measured(pairs, "write", 1, 4)
    each = steady.by_qp()
    equal(len(each), 16, "QPs that sent")
    for number, departures in enumerate(each.values()):
        check_rate(departures, 1, f"QP {number} of 16", 0.03)


@case
@timely
def both_sides_of_a_qp_have_their_own_rate():
    pairs = Pairs(h1, h2)
    one, two = pairs.ours[0], pairs.theirs[0]
    limit(h1, h2, [one], 4)
    limit(h2, h1, [two], 8)
    dumps = Dump(h1), Dump(h2)
    one.post("write", 4, MIB, pairs.memory)
    two.post("write", 6, MIB, pairs.left.memory())
    time.sleep(0.5)
    since = time.time_ns()
    time.sleep(3)
    until = time.time_ns()
    for dump, mbps in zip(dumps, (4, 8)):
        check_order(Departures(dump), f"{dump.host.name} of two", dump)
        check_rate(Departures(dump, since, until), mbps, f"{dump.host.name} of two")


@case
@timely
def requests_and_read_responses_of_a_qp_share_its_rate():
    pairs = Pairs(h1, h2)
    one, two = pairs.ours[0], pairs.theirs[0]
    limit(h1, h2, [one], 4)
    dump = Dump(h1)
    one.post("write", 3, MIB, pairs.memory)
    two.post("read", 3, MIB, pairs.left.memory())
    time.sleep(0.5)
    since = time.time_ns()
    time.sleep(3)
    departures = Departures(dump, since, time.time_ns())
    check_order(Departures(dump), "both directions", dump)
    kinds = {False: 0, True: 0}
    for f in departures:
        kinds[rp.is_response(f.packet)] += 1
    note(f"{kinds[False]} requests, {kinds[True]} READ responses")
    # The oldest head goes first: 64 requests wait, and behind them all that was read.
    # A response that the 16 ms between two of them let go early is not paid back.
    check_rate(departures, 4, "both directions", early=16)
    check(kinds[False] > 20 and kinds[True] > 100, f"one direction is left out: {kinds}")


def ack_delays_ms(dump):
    """From the arrival of a request that asks for an ACK to the ACK."""
    waiting, delays = {}, []
    for f in dump.frames():
        p = f.packet
        if not p.outgoing and rp.is_data(p) and p.ack & 0x80:
            waiting.setdefault(p.psn, f.time_ns)
        elif p.outgoing and rp.is_ack(p) and p.psn in waiting:
            delays.append((f.time_ns - waiting.pop(p.psn)) / 1e6)
    return sorted(delays)


@case
@timely
def acks_of_a_limited_qp_are_not_delayed():
    # At 10 kb/s an ACK would take 50 ms of the clock, each.
    for held in False, True:
        pairs = Pairs(h1, h2)
        one, two = pairs.ours[0], pairs.theirs[0]
        limit(h2, h1, [two], 0.01)
        if held:
            two.post("write", 1, MIB, pairs.left.memory())
            check(wait_until(lambda: rp.state(h2)[two.qpn].held > 10, 3), "no request is held")
        dump = Dump(h2)
        for _ in range(60):
            pairs.post("write", 1, 2048)
            pairs.finish()
        delays = ack_delays_ms(dump)
        what = "with requests of the QP held" if held else "of a QP that sends nothing else"
        check(len(delays) >= 55, f"only {len(delays)} ACKs seen")
        note(f"ACKs {what}: median {delays[len(delays) // 2]:.2f} ms, worst {delays[-1]:.1f} ms")
        check_time(delays[len(delays) // 2] < 10, f"ACKs {what}: {delays[len(delays) // 2]:.1f} ms")
        two.destroy()


@case
@timely
def an_ack_does_not_overtake_held_read_responses():
    pairs = Pairs(h1, h2)
    one, two = pairs.ours[0], pairs.theirs[0]
    limit(h2, h1, [two], 2)
    dump = Dump(h2)
    pairs.post("read", 1, 65536)
    pairs.post("write", 1, 64)
    pairs.finish()
    sent = [f.packet for f in dump.frames() if f.packet.outgoing and (rp.is_response(f.packet) or rp.is_ack(f.packet))]
    psns = [p.psn for p in sent]
    equal(psns, sorted(psns), "PSNs of READ responses and the ACK behind them")
    check(rp.is_ack(sent[-1]) and len(sent) == 65, f"{len(sent)} packets, the last one {sent[-1].opcode:#x}")


@case
@timely
def departures_of_waiting_read_responses_are_at_most_16_ms_apart():
    # At this rate they would be 866 ms apart.
    pairs = Pairs(h1, h2)
    steady = measured(pairs, "read", 0.01, 3, size=65536, host=h2)
    gaps = sorted(steady.gaps_ms())
    note(f"{len(gaps)} gaps, median {gaps[len(gaps) // 2]:.1f} ms, longest {gaps[-1]:.1f} ms")
    check(abs(gaps[len(gaps) // 2] - 16) < 2, f"median gap {gaps[len(gaps) // 2]:.1f} ms")
    check_time(gaps[-1] < 16 + 2 * rp.stalls.excuse_ms, f"a gap of {gaps[-1]:.1f} ms")


@case
@timely
def with_a_short_ack_timeout_nothing_is_held_for_longer_than_half_of_it():
    # Timeout 12 is 16.8 ms, for which no doorbell comes in time; 13 is twice that.
    rates = {}
    for timeout in 12, 13:
        pairs = Pairs(h1, h2, timeout=timeout)
        limit(h1, h2, pairs.ours, 0.05)
        dump = Dump(h1)
        pairs.post("write", 4)
        time.sleep(2)
        departures = Departures(dump)
        rates[timeout] = departures.bits() / 2e6
        pairs.close()
    note(f"set 0.05 Mb/s, wire with ack timeout 12: {rates[12]:.2f} Mb/s, 13: {rates[13]:.3f} Mb/s")
    check(rates[12] > 1, f"{rates[12]:.2f} Mb/s: packets were held longer than half the ack timeout")
    check(rates[13] < 0.07, f"timeout 13: {rates[13]:.2f} Mb/s")


def transfer(kind, size, mbps, message):
    """A file through a limited QP, and the hashes of what was sent and what came."""
    one, two = rp.Copy(h1, size), rp.Copy(h2, size)
    one.tell("connect", f"::ffff:{h2.ip}", two.qpn)
    two.tell("connect", f"::ffff:{h1.ip}", one.qpn)
    source, target = (two, one) if kind == "read" else (one, two)
    data = os.urandom(size)
    with open(f"{rp.lab.SCRATCH}/source", "wb") as file:
        file.write(data)
    source.tell("load", file.name)
    limit(source.host, target.host, [source], mbps)
    started = time.monotonic()
    if kind == "send":
        two.tell("recv", message)
        one.tell("send", message)
        two.tell("received")
    else:
        one.tell(kind, two.rkey, two.address, message)
    seconds = time.monotonic() - started
    target.tell("save", f"{rp.lab.SCRATCH}/target")
    with open(f"{rp.lab.SCRATCH}/target", "rb") as file:
        got = file.read()
    equal(hashlib.sha256(got).hexdigest(), hashlib.sha256(data).hexdigest(), f"{kind}: sha256 of what arrived")
    note(f"{kind}: {size} bytes in {seconds:.2f} s, {size * 8 / seconds / 1e6:.2f} Mb/s of payload at {mbps} Mb/s")
    one.close()
    two.close()


@case
def data_arrive_intact():
    transfer("write", 5 * MIB + 12345, 20, 300000)
    transfer("read", 3 * MIB + 777, 20, 300000)
    transfer("send", 2 * MIB + 99, 20, 100000)


@case
def data_arrive_intact_in_spite_of_loss():
    net.port("all", "--loss", "1%")
    transfer("write", 2 * MIB + 1, 20, 65536)
    transfer("read", MIB + 1, 20, 65536)


@case
def rping_verifies_its_data_at_a_low_rate():
    server = h2.popen("rping", "-s", "-a", h2.ip, "-V", "-C", "20", "-S", "16384", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    cleanup(server.kill)
    time.sleep(1)
    rp.fix_rate(h1, 2)
    rp.fix_rate(h2, 2)
    stop = threading.Event()

    def cnps():
        # Its QPNs are not known before: CNPs to all that there are.
        while not stop.wait(0.05):
            for host, peer in (h1, h2), (h2, h1):
                rp.send_cnps(host, peer, [line for line in rp.state(host).values() if line.kind == "RC"])
    thread = threading.Thread(target=cnps)
    thread.start()
    try:
        started = time.monotonic()
        client = h1.exec("rping", "-c", "-a", h2.ip, "-V", "-C", "20", "-S", "16384", "-v", timeout=60)
        seconds = time.monotonic() - started
        server.wait(20)
    finally:
        stop.set()
        thread.join()
    note(f"20 rounds in {seconds:.1f} s")
    equal(client.count("ping data:"), 20, "rounds")
    check(h1.counters()["rp_rate_cuts"] + h2.counters()["rp_rate_cuts"] > 0 or seconds > 2, "nothing was limited")


main(setup, ("ip", "tc", "nft", "rdma", "tcpdump", "rping"))
