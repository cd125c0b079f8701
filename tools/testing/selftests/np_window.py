# SPDX-License-Identifier: GPL-2.0
"""When the NP sends: at once after a quiet period, then at most one CNP in a
window, and one at its end if it held a mark; what a window is shared by; which
marks of it are checked.

Marks come from a raw socket on h1. Times are those of a capture on h2. A mark's
is taken before the NP's decision and a CNP's after it, so CNP n of a run that
began with mark 0 leaves at least n windows after that mark: this bound is strict.
Upper bounds are loose, the machine may be busy.
"""
from lab import *

MS = 1_000_000


def setup():
    global net, h1, h2, h3
    net = Network(3)
    h1, h2, h3 = net.hosts


def mark(qp, src=None, psn=STALE, **fields):
    return marked_write(src or h1, h2, qp.qpn, psn, **fields)


def send(packet, src=None):
    src = src or h1
    src.sender.send(src.to(h2, packet))


def rc_qp(peer_qpn=0x33, peer=None, tool=None):
    qp = (tool or h2.qps()).new("rc").rtr((peer or h1).ip, peer_qpn)
    return qp


def warm(*qps, src=None):
    """Their contexts get known: unmarked packets, and the moment that takes."""
    for qp in qps:
        send(roce.set_ecn(mark(qp, src), roce.ECT0), src)
    time.sleep(0.05)


class Watch:
    """CE packets and CNPs of h2."""

    def __init__(self):
        self.capture = roce.Capture(h2.namespace)
        cleanup(self.capture.close)
        self.change = Change(h2)

    def read(self):
        """(CE in, CNPs out), both in time order."""
        packets = self.capture.read()
        return ([p for p in packets if not p.outgoing and p.ecn == roce.CE and p.opcode != roce.CNP],
                [p for p in packets if p.outgoing and p.opcode == roce.CNP])


def delays_ms(marks, cnps):
    """From the first mark."""
    return [(cnp.time_ns - marks[0].time_ns) / MS for cnp in cnps]


def check_window_ends(delays, window_ms):
    """Of the CNPs behind the immediate one."""
    for number, delay in enumerate(delays[1:], 1):
        check(delay >= number * window_ms, f"CNP {number} left {delay:.2f} ms after the first mark, before the end of window {number}")
    check(delays[-1] < (len(delays) - 1) * window_ms + 80, f"CNPs left late: {delays} ms")


@case
def a_mark_after_a_quiet_period_is_answered_at_once():
    qp = rc_qp()
    for _ in range(5):
        warm(qp)
        watch = Watch()
        send(mark(qp))
        watch.change.settle(np_cnp_immediate=1, np_cnp_deferred=0, np_cnp_suppressed=0)


@case
def the_first_mark_of_an_unknown_qpn_waits_for_its_context():
    watch = Watch()
    send(mark(rc_qp()))
    watch.change.settle(np_cnp_suppressed=1, np_cnp_deferred=1, np_cnp_immediate=0, np_cnp_sent=1)
    marks, cnps = watch.read()
    delay = (cnps[0].time_ns - marks[0].time_ns) / MS
    note(f"the CNP left after {delay:.1f} ms")
    check(delay < 100, f"the CNP left {delay:.0f} ms late")


@case
def two_thousand_marks_1_ms_apart_give_two_thousand_cnps():
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    packet = h1.to(h2, mark(qp))
    h1.sender.send_paced([packet] * 2000, 1000)
    watch.change.settle(np_ecn_marked_roce_packets=2000, np_cnp_sent=2000)
    marks, cnps = watch.read()
    equal((len(marks), len(cnps)), (2000, 2000), "marks, CNPs on the wire")
    events = sorted([(p.time_ns, 0) for p in marks] + [(p.time_ns, 1) for p in cnps])
    wrong = [number for number, (_, kind) in enumerate(events) if kind != number % 2]
    check(not wrong, f"marks that came before the one ahead of them was answered: {len(wrong)}, the first is {wrong[:1]}")
    equal({p.dest_qp for p in cnps}, {0x33}, "DestQP")


@case
def the_cnp_leaves_from_the_receive_path():
    # Back to back: a CNP that a worker sends would come after later marks.
    h2.set(min_time_between_cnps=0)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    h1.sender.send_all([h1.to(h2, mark(qp))] * 500)
    watch.change.settle(np_cnp_immediate=500)
    marks, cnps = watch.read()
    delays = sorted((cnp.time_ns - ce.time_ns) / 1000 for ce, cnp in zip(marks, cnps))
    note(f"CE to CNP: median {delays[250]:.0f} us, 99% {delays[495]:.0f} us")
    overtaken = sum(1 for cnp, following in zip(cnps, marks[1:]) if cnp.time_ns > following.time_ns)
    check(overtaken <= 5, f"{overtaken} of 500 CNPs left after the next mark had come")


@case
def every_mark_is_answered_with_a_window_of_0():
    h2.set(min_time_between_cnps=0)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    h1.sender.send_all([h1.to(h2, mark(qp))] * 1000)
    watch.change.settle(np_ecn_marked_roce_packets=1000, np_cnp_sent=1000, np_cnp_suppressed=0)


@case
def a_window_gives_one_cnp_at_once_and_one_at_its_end():
    # The 131 ms that the knob allows: longer than a busy machine takes for ten packets.
    h2.set(min_time_between_cnps=131071)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    h1.sender.send_all([h1.to(h2, mark(qp))] * 10)
    watch.change.settle(np_ecn_marked_roce_packets=10, np_cnp_immediate=1, np_cnp_suppressed=9)
    time.sleep(0.4)
    watch.change.settle(np_cnp_deferred=1, np_cnp_sent=2)
    delays = delays_ms(*watch.read())
    note(f"delays {delays} ms")
    check_window_ends(delays, 131.071)


@case
def a_single_mark_gives_a_single_cnp():
    h2.set(min_time_between_cnps=20000)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    send(mark(qp))
    time.sleep(0.2)
    watch.change.settle(np_cnp_sent=1, np_cnp_deferred=0)


@case
def the_cnp_at_a_windows_end_opens_the_next_window():
    h2.set(min_time_between_cnps=100000)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    send(mark(qp))
    send(mark(qp))
    time.sleep(0.15)           # the second one's CNP went at 100 ms
    send(mark(qp))
    watch.change.settle(np_cnp_immediate=1, np_cnp_suppressed=2)
    time.sleep(0.2)
    watch.change.settle(np_cnp_deferred=2, np_cnp_sent=3)
    check_window_ends(delays_ms(*watch.read()), 100)
    time.sleep(0.1)
    warm(qp)
    watch = Watch()
    send(mark(qp))
    watch.change.settle(np_cnp_immediate=1)


@case
def a_long_run_keeps_the_window_and_answers_its_last_mark():
    h2.set(min_time_between_cnps=50000)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    h1.sender.send_paced([h1.to(h2, mark(qp))] * 700, 1000)
    time.sleep(0.2)
    marks, cnps = watch.read()
    windows = (cnps[-1].time_ns - marks[0].time_ns) / MS / 50
    note(f"{len(cnps)} CNPs in {windows:.1f} windows")
    check(len(cnps) - 1 <= windows, f"{len(cnps)} CNPs in {windows:.1f} windows: too many")
    check(len(cnps) - 1 >= windows * 0.8, f"{len(cnps)} CNPs in {windows:.1f} windows: too few")
    check(cnps[-1].time_ns > marks[-1].time_ns, "the last mark is not answered")
    got = watch.change.now()
    equal(got["np_cnp_sent"], len(cnps), "np_cnp_sent and CNPs on the wire")


@case
def twenty_thousand_marks_back_to_back_keep_the_window():
    # 50 us, and 2 ms: under emulation marks do not come faster than 50 us apart.
    for dilation, count in (1, 5000), (40, 15000):
        h2.set(min_time_between_cnps=50, dilation=dilation)
        qp = rc_qp()
        warm(qp)
        watch = Watch()
        equal(h1.sender.send_all([h1.to(h2, mark(qp))] * count), count, "packets sent")
        time.sleep(0.3)
        marks, cnps = watch.read()
        equal(len(marks), count, "marks on the wire")
        watch.change.settle(np_ecn_marked_roce_packets=count, np_cnp_sent=len(cnps))
        window = 50 * dilation / 1000
        windows = (cnps[-1].time_ns - marks[0].time_ns) / MS / window
        note(f"{len(cnps)} CNPs in {windows:.0f} windows of {window} ms")
        check(len(cnps) <= windows + 1, f"{len(cnps)} CNPs in {windows:.1f} windows: too many")
        check(cnps[-1].time_ns >= marks[-1].time_ns, "the last mark is not answered")


@case
def a_shorter_period_closes_an_open_window_at_once():
    h2.set(min_time_between_cnps=131071, dilation=100)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    send(mark(qp))
    send(mark(qp))
    time.sleep(0.3)
    watch.change.settle(np_cnp_immediate=1, np_cnp_suppressed=1, np_cnp_deferred=0)
    h2.write("roce_np/min_time_between_cnps", 4)
    watch.change.settle(np_cnp_deferred=1, np_cnp_sent=2)
    # And a longer one acts on the next mark.
    h2.set(min_time_between_cnps=10000, dilation=1)


@case
def dilation_stretches_the_window():
    h2.set(min_time_between_cnps=50, dilation=2000)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    send(mark(qp))
    send(mark(qp))
    time.sleep(0.3)
    watch.change.settle(np_cnp_immediate=1, np_cnp_deferred=1)
    check_window_ends(delays_ms(*watch.read()), 100)


@case
def qps_have_windows_of_their_own():
    h2.set(min_time_between_cnps=100000)
    tool = h2.qps()
    qps = [rc_qp(100 + n, tool=tool) for n in range(8)]
    warm(*qps)
    watch = Watch()
    for qp in qps:
        send(mark(qp))
    watch.change.settle(np_cnp_immediate=8)
    equal([p.dest_qp for p in watch.read()[1]], [100 + n for n in range(8)], "DestQPs")


@case
def per_ip_shares_a_window_among_the_qps_of_a_peer():
    h2.set(min_time_between_cnps=100000, dilation=2, cnp_moderation="per_ip")
    tool = h2.qps()
    near = [rc_qp(0x100 + n, tool=tool) for n in range(3)]
    far = rc_qp(0x200, h3, tool)
    warm(*near)
    warm(far, src=h3)
    watch = Watch()
    for qp in near:
        send(mark(qp))
    send(mark(far, h3), h3)
    watch.change.settle(np_cnp_immediate=2, np_cnp_suppressed=2)
    equal({p.dest_qp for p in watch.read()[1]}, {0x100, 0x200}, "DestQPs of the immediate CNPs")
    watch.change.settle(np_cnp_deferred=1)
    equal([p.dest_qp for p in watch.read()[1]], [0x102], "DestQP of the deferred CNP: the last suppressed mark's")


@case
def per_port_shares_one_window():
    h2.set(min_time_between_cnps=100000, dilation=2, cnp_moderation="per_port")
    tool = h2.qps()
    near, far = rc_qp(0x100, h1, tool), rc_qp(0x200, h3, tool)
    warm(near)
    warm(far, src=h3)
    watch = Watch()
    send(mark(near))
    send(mark(far, h3), h3)
    watch.change.settle(np_cnp_immediate=1, np_cnp_suppressed=1)
    watch.change.settle(np_cnp_deferred=1)
    cnps = watch.read()[1]
    equal([(p.dest, p.dest_qp) for p in cnps], [(h1.ip, 0x100), (h3.ip, 0x200)], "CNPs")


@case
def forged_marks_never_cause_a_cnp():
    h2.set(min_time_between_cnps=100000)
    qp = rc_qp()
    warm(qp)
    watch = Watch()
    forged = bytearray(mark(qp))
    forged[-1] ^= 0xFF
    for _ in range(20):
        send(bytes(forged))
    time.sleep(0.25)
    watch.change.settle(np_ce_invalid=20, np_cnp_sent=0, np_cnp_suppressed=0)


@case
def a_forged_mark_before_the_context_is_known_causes_no_cnp():
    watch = Watch()
    forged = bytearray(mark(rc_qp()))
    forged[-1] ^= 0xFF
    send(bytes(forged))
    time.sleep(0.2)
    watch.change.settle(np_ecn_marked_roce_packets=1, np_ce_invalid=1, np_cnp_sent=0)


@case
def a_forged_mark_alone_in_an_open_window_causes_no_cnp():
    # After the immediate CNP the window holds no mark yet: the forged one is checked.
    h2.set(min_time_between_cnps=100000)
    qp = rc_qp()
    warm(qp)
    forged = bytearray(mark(qp))
    forged[-1] ^= 0xFF
    watch = Watch()
    send(mark(qp))
    send(bytes(forged))
    time.sleep(0.25)
    watch.change.settle(np_cnp_immediate=1, np_ce_invalid=1, np_cnp_deferred=0)
    # Once it holds a valid one, the CNP is due in any case.
    warm(qp)
    watch = Watch()
    send(mark(qp))
    send(mark(qp))
    send(bytes(forged))
    time.sleep(0.25)
    watch.change.settle(np_cnp_immediate=1, np_cnp_suppressed=2, np_ce_invalid=0, np_cnp_deferred=1)


@case
def both_windows_of_a_bidirectional_qp_are_independent():
    # h1 and h2 are each other's NP on the same pair of QPs.
    h1.set(min_time_between_cnps=0)
    h2.set(min_time_between_cnps=0)
    one, two = connected(h1.qps(), h2.qps())
    for ecn in roce.ECT0, roce.CE:
        to_two, to_one = (a.to(b, roce.udp_ip(a.ip, b.ip, roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE), ecn=ecn))
                          for a, b, qp in ((h1, h2, two), (h2, h1, one)))
        if ecn == roce.ECT0:
            h1.sender.send(to_two)
            h2.sender.send(to_one)
            time.sleep(0.05)
    changes = Change(h1), Change(h2)
    for _ in range(100):
        h1.sender.send(to_two)
        h2.sender.send(to_one)
    for change in changes:
        change.settle(np_ecn_marked_roce_packets=100, np_cnp_sent=100, rp_cnp_handled=100, rp_cnp_ignored=0)


main(setup)
