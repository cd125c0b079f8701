# SPDX-License-Identifier: GPL-2.0
"""The files of debugfs: the histograms agree with the counters, and what ended is
no longer shown."""
import rp
from lab import *
from rp import Pairs, limit



def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


class Histograms:
    """What debugfs' latency of a host gained since this was made: name -> {from_us: n}."""

    def __init__(self, host):
        self.path = f"{rp.DEBUGFS}/rxe_cc/{host.device}/latency"
        rp.state(host)  # mounts debugfs
        self.start = self.read()

    def read(self):
        with open(self.path) as file:
            head, *rows = (line.split() for line in file)
        equal(head[:2], ["#", "from_us"], "the head of latency")
        rows = [list(map(int, row)) for row in rows]
        equal([row[0] for row in rows], [0, *(1 << n for n in range(len(rows) - 1))], "from_us")
        return {name: {row[0]: row[column] for row in rows} for column, name in enumerate(head[2:], 1)}

    def gained(self):
        return {name: {us: n - self.start[name][us] for us, n in rows.items() if n != self.start[name][us]}
                for name, rows in self.read().items()}


def mark(qp):
    return h1.to(h2, marked_write(h1, h2, qp.qpn))


@case
def every_cnp_is_in_the_histogram_of_its_kind():
    h2.set(min_time_between_cnps=20000)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    change, histograms = Change(h2), Histograms(h2)
    for _ in range(10):
        h1.sender.send_all([mark(qp)] * 5)
        time.sleep(0.05)
    change.settle(np_ecn_marked_roce_packets=50)
    counted = {"ce_to_cnp": change.now()["np_cnp_immediate"], "ce_to_cnp_deferred": change.now()["np_cnp_deferred"]}
    check(min(counted.values()) > 5, f"CNPs of both kinds: {counted}")
    gained = histograms.gained()
    note(f"{gained}")
    equal({name: sum(gained[name].values()) for name in counted}, counted, "CNPs in the histograms")
    # A window is 20 ms, and the last mark of a burst comes at once.
    check(all(us >= 8192 for us in list(gained["ce_to_cnp_deferred"])[1:]), f"deferred CNPs left before their window's end: {gained}")


@case
def packets_that_waited_are_in_the_histogram_for_as_long_as_they_waited():
    pairs = Pairs(h1, h2)
    limit(h1, h2, pairs.ours, 2)
    histograms = Histograms(h1)
    pairs.post("write", 1, 256 << 10)
    pairs.finish()
    gained = histograms.gained()["held"]
    note(f"held: {gained}, longest {h1.counters()['rp_held_max_us']} us")
    # 256 packets, of which the first leaves at once.
    check(200 < sum(gained.values()) < 256, f"{sum(gained.values())} packets of 256 were held")
    longest = h1.counters()["rp_held_max_us"]
    check(max(gained) <= longest, f"none can have been held for {max(gained)} us")
    # 64 in flight, 4.4 ms each.
    check(max(gained) >= 131072, "a packet behind 60 others waits for 0.26 s at 2 Mb/s")


@case
def a_limited_qp_that_ends_with_nothing_held_is_soon_counted_no_more():
    # Those of earlier cases may still be there.
    check(wait_until(lambda: h1.counters()["rp_limited_qps"] == 0, 10), "dead QPs count as limited")
    pairs = Pairs(h1, h2, 3)
    limit(h1, h2, pairs.ours, 2)
    equal(h1.counters()["rp_limited_qps"], 3, "rp_limited_qps")
    for qp in pairs.ours:
        qp.destroy()
    started = time.monotonic()
    check(wait_until(lambda: h1.counters()["rp_limited_qps"] == 0, 10), "dead QPs count as limited")
    note(f"after {time.monotonic() - started:.1f} s")
    check(time.monotonic() - started < 5, f"dead QPs counted as limited for {time.monotonic() - started:.1f} s")
    equal([qp.qpn for qp in pairs.ours if qp.qpn in rp.state(h1) and rp.state(h1)[qp.qpn].limited], [], "limited QPs in debugfs")


main(setup, ("ip", "tc", "nft", "rdma"))
