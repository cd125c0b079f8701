# SPDX-License-Identifier: GPL-2.0
"""Holding packets must not look like loss to the transport: no retransmission where
there is no loss, no completion error where there is, at rates at which packets are
held for many ack timeouts.

Retransmissions are rxe's own counters on both sides; on a machine whose CPUs stand
still for half an ack timeout (67 ms here) rxe retransmits without anybody's help,
so these cases watch the CPUs, too.
"""
import os

import rp
from lab import *
from rp import MIB, Departures, Pairs, check_time, fix_rate, limit, timely

REPEATS = ("duplicate_request", "completer_retry_err", "rp_rewound_packets")


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6")
    h1, h2 = net.hosts


class Repeats:
    """Retransmissions since it was made."""

    def __init__(self):
        self.changes = Change(h1, True), Change(h2, True)

    def now(self):
        return {f"{c.host.name} {name}": value for c in self.changes for name, value in c.now().items() if name in REPEATS}

    def out_of_order(self):
        """Packets that had been overtaken when they arrived."""
        return sum(c.now().get("out_of_seq_request", 0) for c in self.changes)


def no_repeats(mbps, count, seconds, kind="write", **options):
    """Streams of `count` QPs, all done at the time that the rate allows."""
    pairs = Pairs(h1, h2, count, **options)
    host, peer, qps = (h2, h1, pairs.theirs) if kind == "read" else (h1, h2, pairs.ours)
    limit(host, peer, qps, mbps, pairs.family)
    repeats = Repeats()
    size = min(MIB, int(mbps * 1e6 / 8 * seconds))
    number = max(1, round(mbps * 1e6 / 8 * seconds / size))
    started = time.monotonic()
    pairs.post(kind, number, size)
    time.sleep(min(1, seconds / 2))
    # A slow machine may not have sent that much yet.
    wait_until(lambda: host.counters()["rp_held_packets"] > 16 * count, 0 if kind == "read" else seconds)
    held = host.counters()["rp_held_packets"]
    pairs.finish(int(seconds * 4 + 20))
    took = time.monotonic() - started
    got = repeats.now()
    what = f"{count} QPs at {mbps} Mb/s, {kind}"
    note(f"{what}: {took:.1f} s for {seconds}, {held} held early on, retransmissions {got or 'none'}, out of order {repeats.out_of_order()}")
    check(held or kind == "read", f"{what}: nothing is held")
    # Each stall may cost each QP an ack timeout, not more, and a few may go unseen:
    # without the doorbell there are some 90.
    retries, excused = got.get(f"{pairs.a.name} completer_retry_err", 0), (rp.stalls.episodes() + 10) * count
    check(retries <= excused, f"{what}: {retries} ack timeouts, stalls explain {excused}")
    # Retransmissions that a slow machine brings about take the place of what is held.
    check_time(held > 16 * count or kind == "read", f"{what}: only {held} packets are held")
    check_time(not repeats.out_of_order(), f"{what}: {repeats.out_of_order()} packets were overtaken")
    check_time(not got, f"{what}: {got}")
    check_time(took < seconds * 1.25 + 1, f"{what}: took {took:.1f} s instead of {seconds}")


@case
@timely
def one_qp_at_half_a_megabit():
    no_repeats(0.5, 1, 6)


@case
@timely
def one_qp_at_2_mbps():
    no_repeats(2, 1, 5)


@case
@timely
def sixteen_qps_at_1_mbps():
    no_repeats(1, 16, 5)


@case
@timely
def ninety_six_qps_at_1_mbps():
    no_repeats(1, 96, 3)


@case
@timely
def one_qp_at_20_mbps_over_ipv6():
    no_repeats(20, 1, 4, family="--ipv6")


@case
@timely
def a_reader_does_not_ask_twice():
    no_repeats(2, 1, 3, kind="read")


@case
@timely
def a_long_path_does_not_change_it():
    # 40 ms one way more: the ack timeout has less than half of it left.
    net.port("h2", "--delay", "40ms")
    no_repeats(1, 1, 5)


@case
@timely
def the_shortest_timeout_that_the_doorbell_serves():
    # 13: 33.6 ms, of which the doorbell waits for a quarter: shorter stalls do harm.
    rp.stalls.excuse_ms = 12
    no_repeats(1, 1, 4, timeout=13)


@case
@timely
def without_an_ack_timeout_nothing_rings_and_nothing_fails():
    no_repeats(1, 1, 3, timeout=0)


@case
def no_completion_error_with_many_qps_at_any_rate():
    for mbps, count in (1, 1), (10, 1), (100, 1), (1, 16), (10, 16), (100, 16), (1, 96), (10, 96), (100, 96):
        pairs = Pairs(h1, h2, count)
        limit(h1, h2, pairs.ours, mbps)
        # Two seconds of the rate, or of what the machine can do.
        size = int(min(mbps, 60 / count if count > 1 else 60) * 1e6 / 8 * 2)
        started = time.monotonic()
        repeats = Repeats()
        pairs.post("write", max(1, size // MIB), min(size, MIB))
        pairs.finish(90)
        note(f"{count} QPs at {mbps} Mb/s: {time.monotonic() - started:.1f} s, retransmissions {repeats.now() or 'none'}")
        pairs.close()
    equal(h1.counters()["rp_held_packets"], 0, "rp_held_packets")


@case
def one_percent_loss_both_ways_gives_no_completion_error():
    net.port("all", "--loss", "1%")
    for mbps, count, megabytes in (2, 1, 1), (2, 8, 1), (10, 1, 4), (10, 4, 2), (40, 1, 12):
        pairs = Pairs(h1, h2, count)
        limit(h1, h2, pairs.ours, mbps)
        repeats = Repeats()
        started = time.monotonic()
        pairs.post("write", megabytes)
        pairs.finish(120)
        got = repeats.now()
        note(f"{count} QPs at {mbps} Mb/s: {time.monotonic() - started:.1f} s, {got}")
        check(got, "nothing was lost")
        pairs.close()


@case
def one_percent_loss_both_ways_and_read():
    net.port("all", "--loss", "1%")
    for mbps, count in (4, 1), (4, 4), (20, 1):
        pairs = Pairs(h1, h2, count)
        limit(h2, h1, pairs.theirs, mbps)
        started = time.monotonic()
        # Messages of a size that some of get through whole.
        for _ in range(2):
            pairs.post("read", 8, 65536)
        pairs.finish(120)
        note(f"{count} QPs read at {mbps} Mb/s: {time.monotonic() - started:.1f} s")
        pairs.close()


@case
def a_long_read_at_a_low_rate_keeps_its_memory_bound_and_its_data():
    # One READ of 8 MiB: the responder makes all its responses at once. What is beyond
    # 4 MiB of memory is dropped, and asked for again.
    size = 8 * MIB
    reader, source = rp.Copy(h1, size), rp.Copy(h2, size)
    reader.tell("connect", f"::ffff:{h2.ip}", source.qpn)
    source.tell("connect", f"::ffff:{h1.ip}", reader.qpn)
    data = os.urandom(size)
    path = f"{rp.lab.SCRATCH}/data"
    with open(path, "wb") as file:
        file.write(data)
    source.tell("load", path)
    limit(h2, h1, [source], 8)
    change = Change(h2)
    reader.tell("read", source.rkey, source.address, size, wait=False)
    most = 0
    for _ in range(40):
        time.sleep(0.05)
        most = max(most, h2.counters()["rp_held_packets"])
    note(f"{most} responses held at most, {change.now().get('rp_dropped_responses', 0)} dropped")
    check(most > 500, f"only {most} responses were ever held")
    # A frame of 1 KiB takes more than that.
    check(most <= (4 << 20) // 1280, f"{most} responses held")
    check(change.now().get("rp_dropped_responses", 0) > 0, "8 MiB fit into 4")
    fix_rate(h2, 60)
    h2.enable("roce_rp", False)
    reader.answer("read")
    reader.tell("save", path)
    with open(path, "rb") as file:
        check(file.read() == data, "the data that arrived are not those that were sent")


@case
@timely
def perftest_ends_well_at_1_10_and_100_mbps():
    for mbps, queues in (1, 1), (10, 16), (100, 1):
        fix_rate(h1, mbps)
        stream = Stream(h1, h2, "-s", "16384", "-D", "5", "-q", str(queues))
        wait_until(lambda: len([q for q in rp.state(h1).values() if q.kind == "RC"]) >= queues, 15)
        time.sleep(1)
        rp.send_cnps(h1, h2, rp.state(h1).values())
        stream.finish()


main(setup, ("ip", "tc", "nft", "rdma", "tcpdump", "ib_write_bw"))
