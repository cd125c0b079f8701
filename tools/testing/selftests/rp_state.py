# SPDX-License-Identifier: GPL-2.0
"""From CNPs to rates: the state machine as it is live, against a model that ticks
(lib/rp_model.py, which the vectors of the state machine check first), and what
knobs, priorities and the limiter's end do to packets that are held.
"""
import copy
import json
import threading

import rp
from lab import *
from rp import MIB, Departures, Pairs, check_order, check_rate, check_time, fix_rate, limit, send_cnps, timely
from rp_model import Rp

PAPER = dict(
    clamp_tgt_rate=1, clamp_tgt_rate_after_time_inc=1, rpg_time_reset=55, rpg_byte_reset=156250, rpg_threshold=5, rpg_max_rate=0,
    rpg_ai_rate=40, rpg_hai_rate=200, rpg_gd=11, rpg_min_dec_fac=50, rpg_min_rate=1, rate_to_set_on_first_cnp=0, dce_tcp_g=1020,
    dce_tcp_rtt=55, rate_reduce_monitor_period=50, initial_alpha_value=1023)
CONNECTX = dict(
    PAPER, clamp_tgt_rate=0, rpg_time_reset=300, rpg_byte_reset=32767, rpg_threshold=1, rpg_ai_rate=5, rpg_hai_rate=50, dce_tcp_g=1019,
    dce_tcp_rtt=1, rate_reduce_monitor_period=4)


def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


@case
def the_model_of_these_tests_agrees_with_the_vectors():
    with open(f"{rp.lab.ROOT}/tests/data/dcqcn.json") as file:
        vectors = json.load(file)["vectors"]
    compared = 0
    for vector in vectors:
        model = Rp(vector["knobs"], vector["line_rate_mbps"], vector["dilation"])
        for event in vector["events"]:
            at = event["t_ns"]
            if event["ev"] == "cnp":
                model.cnp(at)
            elif event["ev"] == "sent":
                model.sent(at, event["bytes"])
            else:
                model.advance(at)
            where = f"{vector['name']}, {at} ns"
            for name in "rc", "rt":
                check(abs(getattr(model, name) - event[name]) <= 1e-4 * event[name], f"{where}: {name} {getattr(model, name)}, not {event[name]}")
            check(abs(model.alpha - event["alpha"]) <= 0.01, f"{where}: alpha {model.alpha}, not {event['alpha']}")
            equal((model.time_stage, model.byte_stage, model.limited), (event["time_stage"], event["byte_stage"], event["limited"]), where)
            compared += 1
    check(compared > 200, f"only {compared} events")


class Watch:
    """debugfs every so often; one reading is [(before, after, line)]."""

    def __init__(self, host, qpn, every=0.03):
        self.seen = []
        self.over = threading.Event()

        def look():
            while not self.over.wait(every):
                before = time.time_ns()
                line = rp.state(host).get(qpn)
                self.seen.append((before, time.time_ns(), line))
        self.thread = threading.Thread(target=look)
        self.thread.start()
        cleanup(self.stop)

    def stop(self):
        self.over.set()
        self.thread.join()


def replay(dump, qpn, knobs, line_mbps, dilation):
    """The model, fed with the CNPs and departures of a capture: its states at the
    events, as (time, copy)."""
    model = Rp(knobs, line_mbps, dilation)
    states = []
    for f in dump.frames():
        p = f.packet
        if not p.outgoing and p.opcode == roce.CNP and p.dest_qp == qpn:
            model.cnp(f.time_ns)
        elif p.outgoing and rp.is_data(p):
            model.sent(f.time_ns, f.size)
        else:
            continue
        states.append((f.time_ns, model.at(f.time_ns)))
    return states


def compare(watch, states, slack_ns=12_000_000):
    """Each reading of debugfs lies between what the model says shortly before and
    after it; how many were compared, and the worst deviation that this left."""
    compared, worst = 0, 0.0
    at = 0
    for before, after, line in watch.seen:
        if not line or not line.known or not states or before < states[0][0] + slack_ns:
            continue
        while at + 1 < len(states) and states[at + 1][0] <= before - slack_ns:
            at += 1
        near = [states[at][1].at(max(states[at][0], before - slack_ns))]
        i = at + 1
        while i < len(states) and states[i][0] <= after + slack_ns:
            near.append(states[i][1])
            i += 1
        near.append(states[i - 1][1].at(after + slack_ns))
        for got, name, unit in (line.rc, "rc", 1), (line.rt, "rt", 1):
            low, high = (pick(getattr(m, name) / m.dilation for m in near) for pick in (min, max))
            off = max(low - got, got - high, 0) / max(got, 1)
            worst = max(worst, off)
            rp.check_time(off <= 0.01, f"{(before - states[0][0]) / 1e9:.3f} s after the first event: {name} {got / 1e6:.4f} Mb/s, the model has"
                          f" {low / 1e6:.4f}..{high / 1e6:.4f} (stages {line.time_stage}, {line.byte_stage}; {near[0].time_stage}, {near[0].byte_stage})")
        low, high = min(m.alpha for m in near), max(m.alpha for m in near)
        rp.check_time(low - 2 <= line.alpha <= high + 2, f"alpha {line.alpha}, the model has {low:.1f}..{high:.1f}")
        compared += 1
    return compared, worst


@case
@timely
def one_cut_under_paper_with_f_3_goes_through_all_phases_as_the_model_does():
    # 20 Mb/s as 40 Gb/s; at 4 to 12 Mb/s a byte stage takes 0.1 to 0.3 s, a timer's 0.11 s.
    knobs = dict(PAPER, rpg_threshold=3, rpg_byte_reset=2000, rate_to_set_on_first_cnp=16000)
    h1.set(**knobs, line_rate=20, dilation=2000)
    pairs = Pairs(h1, h2)
    qp = pairs.ours[0]
    dump = Dump(h1)
    pairs.post("write", 12)
    time.sleep(0.2)
    watch = Watch(h1, qp.qpn)
    send_cnps(h1, h2, [qp])
    time.sleep(0.4)
    send_cnps(h1, h2, [qp])
    time.sleep(4.5)
    watch.stop()
    dump.stop()
    states = replay(dump, qp.qpn, knobs, 20, 2000)
    compared, worst = compare(watch, states)
    phases = [line.phase for _, _, line in watch.seen if line and line.known]
    order = [p for i, p in enumerate(phases) if not i or phases[i - 1] != p]
    note(f"{compared} readings compared, worst {worst * 100:.2f}%, phases {' -> '.join(order)}, last {vars(watch.seen[-1][2])}")
    check(compared > 50, f"only {compared} readings")
    for phase in "fast_recovery", "additive_increase", "hyper_increase":
        check(phase in phases, f"{phase} was never seen: {order}")
    equal(states[-1][1].cuts, watch.seen[-1][2].cuts, "cuts of the model and of the module")
    # What left, against the integral of the model's Rc.
    departures = Departures(dump, states[0][0])
    limited = [(at, model) for at, model in states if model.limited]
    since, until = limited[0][0], limited[-1][0]
    allowed = sum(copy.copy(before).advance(then) for (_, before), (then, _) in zip(limited, limited[1:]))
    sent = sum(f.size for f in departures if since < f.time_ns <= until) * 8
    note(f"sent {sent / 1e6:.2f} Mb, the integral of Rc is {allowed / 1e6:.2f} Mb")
    check(sent <= allowed * 1.01 + 20e6 * 0.02 + 3 * 1100 * 8, "more left than the rate allows")
    check_time(sent >= allowed * 0.97, "less left than the rate allows")


@case
@timely
def connectx_defaults_follow_the_model_under_repeated_cnps():
    knobs = dict(CONNECTX)
    h1.set(**knobs, line_rate=20, dilation=2000)
    pairs = Pairs(h1, h2)
    qp = pairs.ours[0]
    dump = Dump(h1)
    pairs.post("write", 20)
    time.sleep(0.2)
    watch = Watch(h1, qp.qpn)
    for wait in 0.5, 0.3, 0.02, 0.9, 0.004, 0.004, 0.004, 1.2, 1.5:
        send_cnps(h1, h2, [qp])
        time.sleep(wait)
    watch.stop()
    dump.stop()
    states = replay(dump, qp.qpn, knobs, 20, 2000)
    compared, worst = compare(watch, states)
    note(f"{compared} readings compared, worst {worst * 100:.2f}%, {states[-1][1].cuts} cuts, {states[-1][1].increases} increases")
    check(compared > 50, f"only {compared} readings")
    equal(states[-1][1].cuts, watch.seen[-1][2].cuts, "cuts of the model and of the module")


@case
@timely
def at_most_one_cut_in_a_monitor_period():
    # 0.5 s; a CNP each 10 ms for 4 s: the first one's cut and one at each period's end.
    h1.set(**dict(PAPER, rate_reduce_monitor_period=50000), line_rate=40, dilation=10)
    pairs = Pairs(h1, h2)
    qp = pairs.ours[0]
    change = Change(h1)
    dump = Dump(h1)
    started = time.monotonic()
    while time.monotonic() - started < 4:
        send_cnps(h1, h2, [qp])
        time.sleep(0.01)
    time.sleep(0.6)
    line = rp.state(h1)[qp.qpn]
    times = [f.time_ns for f in dump.frames() if f.packet.opcode == roce.CNP]
    span = (times[-1] - times[0]) / 1e9
    got = change.now()
    note(f"{len(times)} CNPs in {span:.2f} s: {line.cuts} cuts")
    equal((got["rp_cnp_handled"], line.cnps), (len(times), len(times)), "CNPs")
    equal(got["rp_rate_cuts"], line.cuts, "rp_rate_cuts")
    check(int(span / 0.5) + 1 <= line.cuts <= int(span / 0.5) + 2, f"{line.cuts} cuts in {span:.2f} s and periods of 0.5 s")


@case
def a_flood_of_cnps_cuts_no_more_often_and_is_counted():
    h1.set(**dict(PAPER, rate_reduce_monitor_period=100000), line_rate=40, dilation=10)
    pairs = Pairs(h1, h2)
    qp = pairs.ours[0]
    pairs.post("write", 1)
    send_cnps(h1, h2, [qp])
    time.sleep(0.3)
    change = Change(h1)
    frame = h2.to(h1, roce.cnp(h2.ip, h1.ip, qp.qpn))
    started = time.monotonic()
    total = 0
    while time.monotonic() - started < 4:
        total += h2.sender.send_all([frame] * 1024)
    seconds = time.monotonic() - started
    wait_until(lambda: change.now().get("rp_cnp_handled", 0) >= total, 10)
    got = change.now()
    note(f"{total} CNPs in {seconds:.1f} s: {got.get('rp_rate_cuts')} cuts")
    check(total > 5000, f"a flood of {total}")
    # A veth's queue may drop some of a flood; those that came are handled, all.
    check(total * 0.9 <= got["rp_cnp_handled"] <= total and "rp_cnp_ignored" not in got, f"{got}")
    check(1 <= got["rp_rate_cuts"] <= seconds + 2, f"{got['rp_rate_cuts']} cuts in {seconds:.1f} s, the period is 1 s")
    fix_rate(h1, 1)
    h1.enable("roce_rp", False)
    pairs.finish()


def held_head(mbps):
    """A QP that sends 65 packets and waits for the next departure; its first packets
    have left."""
    pairs = Pairs(h1, h2)
    limit(h1, h2, pairs.ours, mbps)
    pairs.post("write", 1, 200_000)
    check(wait_until(lambda: rp.state(h1)[pairs.ours[0].qpn].held > 30, 3), "nothing is held")
    return pairs


@case
@timely
def a_rising_rate_shortens_the_wait_of_a_held_head():
    # 8.66 s a packet; a stage of 1 ms that adds 10 Mb/s.
    pairs = held_head(0.001)
    dump = Dump(h1)
    time.sleep(0.5)
    written = time.time_ns()
    h1.set(rpg_threshold=1, rpg_ai_rate=10000, rpg_hai_rate=10000)
    h1.set(rpg_time_reset=1)
    pairs.finish(5)
    departures = Departures(dump)
    check(departures[0].time_ns >= written, "one left before")
    delay = (departures[0].time_ns - written) / 1e6
    note(f"the head left {delay:.1f} ms after the writes")
    check_time(delay < 100, f"the held head left {delay:.1f} ms after the rate rose")
    check_order(departures, "after the rise")


@case
@timely
def a_lower_maximum_acts_at_once_and_a_higher_dilation_keeps_the_rate():
    pairs = Pairs(h1, h2)
    qp = pairs.ours[0]
    limit(h1, h2, [qp], 10)
    pairs.post("write", 12)
    h1.set(rpg_max_rate=3000)
    line = rp.state(h1)[qp.qpn]
    equal((line.rc, line.rt), (3_000_000, 3_000_000), "Rc and Rt under a maximum of 3 Mb/s")
    dump = Dump(h1)
    time.sleep(1.5)
    h1.set(dilation=1500)
    line = rp.state(h1)[qp.qpn]
    # The maximum is a model rate: with this dilation it is 2 Mb/s.
    equal((line.rc, line.rt, line.model_rc), (2_000_000, 2_000_000, 3_000_000_000), "Rc, Rt and the model's Rc after a higher dilation")
    h1.set(rpg_max_rate=0)
    h1.set(dilation=3000)
    line = rp.state(h1)[qp.qpn]
    equal((line.rc, line.model_rc), (2_000_000, 6_000_000_000), "Rc and the model's Rc: the real rate stays")
    changed = time.time_ns()
    time.sleep(1.5)
    check_rate(Departures(dump, changed + 50_000_000), 2, "after the dilation", 0.02)
    h1.set(line_rate=1)
    line = rp.state(h1)[qp.qpn]
    check(line.rc == 1_000_000, f"Rc is {line.rc} on a line of 1 Mb/s")


@case
@timely
def rp_off_releases_what_is_held_in_order_and_ignores_cnps():
    pairs = held_head(0.01)
    qp = pairs.ours[0]
    dump = Dump(h1)
    change = Change(h1)
    held = rp.state(h1)[qp.qpn].held
    h1.enable("roce_rp", False)
    pairs.finish(5)
    check(wait_until(lambda: h1.counters()["rp_held_packets"] == 0, 1), f"held packets: {h1.counters()['rp_held_packets']}")
    departures = Departures(dump)
    check_order(departures, "after RP was switched off")
    check(held <= len(departures), f"{held} were held, {len(departures)} left")
    send_cnps(h1, h2, [qp], 5)
    change.settle(rp_cnp_ignored=5, rp_cnp_disabled=5)
    line = rp.state(h1).get(qp.qpn)
    check(not line or not line.limited, "limited although RP is off")
    # On again, the next CNP is a first one, at once.
    h1.enable("roce_rp", True)
    limit(h1, h2, [qp])
    pairs.post("write", 1)
    check(wait_until(lambda: rp.state(h1)[qp.qpn].held > 30, 3), "nothing is held after RP is on again")
    h1.enable("roce_rp", False)
    pairs.finish(20)


@case
def only_with_np_and_rp_on_the_stream_slows_down():
    fix_rate(h1, 2)
    net.port("h2", "--mark", "every:10")
    size = 2 * MIB
    for np_on in True, False:
        for rp_on in True, False:
            h2.enable("roce_np", np_on)
            h1.enable("roce_rp", rp_on)
            changes = Change(h1), Change(h2)
            pairs = Pairs(h1, h2)
            started = time.monotonic()
            pairs.post("write", 2)
            pairs.finish()
            seconds = time.monotonic() - started
            mbps = size * 8 / seconds / 1e6
            sender, receiver = (c.now() for c in changes)
            what = f"NP {'on' if np_on else 'off'}, RP {'on' if rp_on else 'off'}"
            note(f"{what}: {mbps:.1f} Mb/s")
            check(receiver.get("np_ecn_marked_roce_packets", 0) > 50, f"{what}: no marks")
            check((receiver.get("np_cnp_sent", 0) > 0) == np_on, f"{what}: CNPs {receiver.get('np_cnp_sent', 0)}")
            check((sender.get("rp_cnp_handled", 0) > 0) == (np_on and rp_on), f"{what}: handled {sender.get('rp_cnp_handled', 0)}")
            check((sender.get("rp_cnp_ignored", 0) > 0) == (np_on and not rp_on), f"{what}: ignored {sender.get('rp_cnp_ignored', 0)}")
            if np_on and rp_on:
                # What left before the first CNP came was not limited.
                check(mbps < 2.5, f"{what}: {mbps:.1f} Mb/s at a rate of 2")
            else:
                check(mbps > 3, f"{what}: {mbps:.1f} Mb/s, nobody limits")
            pairs.close()


@case
def the_qps_priority_decides_never_the_cnps():
    fix_rate(h1, 2)
    # DSCP 26 is priority 3, a CNP's 48 is priority 6.
    for off, limited in ((3,), False), ((6,), True), ((0, 1, 2, 4, 5, 6, 7), True), ((0, 1, 2, 3, 4, 5, 7), False):
        h1.enable("roce_rp", True)
        h1.enable("roce_rp", False, off)
        pairs = Pairs(h1, h2, tclass=26 << 2)
        change = Change(h1)
        send_cnps(h1, h2, pairs.ours, 3)
        if limited:
            change.settle(rp_cnp_handled=3)
            check(rp.state(h1)[pairs.ours[0].qpn].priority == 3, "the priority in debugfs")
        else:
            change.settle(rp_cnp_ignored=3, rp_cnp_disabled=3)
        line = rp.state(h1).get(pairs.ours[0].qpn)
        equal(bool(line and line.limited), limited, f"limited with priorities {off} off")
        pairs.close()


@case
@timely
def the_limiter_goes_off_and_the_state_goes_one_second_times_s_after_the_last_cnp():
    # ConnectX parameters in their own time: the rate is back within a second.
    for dilation in 1, 3:
        h1.set(**dict(CONNECTX, rpg_time_reset=5000), line_rate=20, dilation=dilation)
        pairs = Pairs(h1, h2)
        qp = pairs.ours[0]
        send_cnps(h1, h2, [qp])
        started = time.monotonic()
        check(wait_until(lambda: rp.state(h1).get(qp.qpn) and rp.state(h1)[qp.qpn].known, 1), "no state")
        pairs.post("write", 1, 200_000)
        seen = []
        gone = None
        while time.monotonic() - started < dilation + 4:
            line = rp.state(h1).get(qp.qpn)
            name = "gone" if not line or not line.known else line.phase
            if not seen or seen[-1][1] != name:
                seen.append((round(time.monotonic() - started, 2), name))
            if name == "gone":
                gone = gone or time.monotonic() - started
            time.sleep(0.02)
        note(f"dilation {dilation}: {seen}")
        names = [name for _, name in seen]
        check("unlimited" in names and names[-1] == "gone", f"{seen}")
        check(gone >= dilation - 0.02, f"the state was gone {gone:.2f} s after the CNP")
        check_time(gone <= dilation + 2.5, f"the state was gone only {gone:.2f} s after the CNP")
        equal(h1.counters()["rp_limited_qps"], 0, "rp_limited_qps")
        pairs.finish()
        pairs.close()


@case
def steady_cnps_of_a_marking_switch_keep_a_fixed_rate():
    # NP and RP together, with a monitor period's cut of nothing for every window.
    fix_rate(h1, 5, dilation=100)
    h1.set(rpg_threshold=1)
    net.port("h2", "--mark", "all")
    h2.set(min_time_between_cnps=2000)
    pairs = Pairs(h1, h2)
    change = Change(h1)
    pairs.post("write", 8)
    time.sleep(0.5)
    dump = Dump(h1)
    time.sleep(3)
    departures = Departures(dump)
    got = change.now()
    check(got.get("rp_cnp_handled", 0) > 100 and got.get("rp_rate_cuts", 0) > 100, f"{got}")
    ahead, lost, worst = departures.account(5e6)
    rate = departures.bits() / departures.seconds() / 1e6
    note(f"{got['rp_cnp_handled']} CNPs, {got['rp_rate_cuts']} cuts, wire {rate:.3f} Mb/s, {lost * 1e3:.0f} ms not made up for")
    check(rate < 5.05, f"{rate:.3f} Mb/s at a rate of 5")
    h1.enable("roce_rp", False)
    pairs.finish()


main(setup, ("ip", "tc", "nft", "rdma", "tcpdump"))
