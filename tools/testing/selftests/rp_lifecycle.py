# SPDX-License-Identifier: GPL-2.0
"""Held packets and the end of what they belong to: of their QP, process, device,
net device, namespace, and of the module. Whatever goes, goes at once, and nothing
stays behind.

More rounds with RXE_CC_LONG.
"""
import os
import random

import rp
from lab import *
from rp import Departures, Pairs, check_order, check_time, limit, timely

LONG = bool(os.environ.get("RXE_CC_LONG"))


def setup():
    fresh()


def fresh():
    """A new network; the old one may be in ruins."""
    global net, h1, h2
    if "net" in globals():
        net.down()
    Module.load()
    net = Network(2)
    h1, h2 = net.hosts


def fresh_afterwards():
    cleanup(fresh)


def holding(mbps=1, count=4, messages=4, least=20, timeout=14):
    """QPs of h1 with held packets."""
    pairs = Pairs(h1, h2, count, timeout=timeout)
    limit(h1, h2, pairs.ours, mbps)
    pairs.post("write", messages)
    check(wait_until(lambda: h1.counters()["rp_held_packets"] >= least * count, 5), f"held: {h1.counters()['rp_held_packets']}")
    return pairs


def nothing_held(host, seconds=1.0):
    check(wait_until(lambda: host.counters().get("rp_held_packets", 0) == 0, seconds), f"rp_held_packets: {host.counters().get('rp_held_packets')}")


@case
@timely
def sixteen_qps_at_1_mbps_go_within_a_second_of_their_process():
    pairs = holding(1, 16)
    held = h1.counters()["rp_held_packets"]
    change = Change(h1)
    started = time.monotonic()
    pairs.left.process.kill()
    steps = []
    while h1.live_qps() and time.monotonic() - started < 60:
        left, still = h1.live_qps(), h1.counters()["rp_held_packets"]
        if not steps or steps[-1][1:] != (left, still):
            steps.append((round((time.monotonic() - started) * 1e3), left, still))
        time.sleep(0.01)
    seconds = time.monotonic() - started
    pairs.left.process.wait()
    note(f"{held} held, QPs gone after {seconds * 1e3:.0f} ms; (ms, QPs, held): {steps[:12]}; worst stall {rp.stalls.worst_ms():.0f} ms")
    check_time(seconds < 1, f"16 QPs took {seconds:.2f} s to go: {steps}")
    nothing_held(h1)
    check(change.now().get("rp_purged_packets", 0) >= held - 64, f"{change.now()}")


@case
@timely
def the_destroy_verb_returns_at_once():
    pairs = holding(0.1, 8)
    worst = 0
    for qp in pairs.ours:
        started = time.monotonic()
        qp.destroy()
        worst = max(worst, time.monotonic() - started)
    note(f"destroy of a QP with held packets: {worst * 1e3:.0f} ms at most")
    check_time(worst < 0.15, f"destroy took {worst * 1e3:.0f} ms")
    nothing_held(h1)


@case
@timely
def the_other_qp_first_and_error_states():
    # The peer's QP goes; ours retransmits into the void until it is told to stop.
    pairs = holding(1, 2)
    for qp in pairs.theirs:
        qp.destroy()
    time.sleep(0.3)
    for qp, name in zip(pairs.ours, ("err", "reset")):
        qp.state(name)
    nothing_held(h1)
    started = time.monotonic()
    for qp in pairs.ours:
        qp.destroy()
    check_time(time.monotonic() - started < 0.5, "destroy of QPs in ERR and RESET is slow")


@case
@timely
def the_normal_end_of_a_stream_at_2_mbps():
    pairs = holding(2, 1, 1)
    pairs.finish(20)
    started = time.monotonic()
    pairs.left.close()
    check_time(time.monotonic() - started < 1, f"the end took {time.monotonic() - started:.2f} s")
    nothing_held(h1)


@case
@timely
def a_perftest_client_killed_at_1_mbps():
    rp.fix_rate(h1, 1)
    stream = Stream(h1, h2, "-s", "16384", "-D", "15", "-q", "16")
    wait_until(lambda: h1.live_qps() >= 16, 20)
    time.sleep(1.5)
    rp.send_cnps(h1, h2, [line for line in rp.state(h1).values() if line.kind == "RC"])
    time.sleep(1)
    held = h1.counters()["rp_held_packets"]
    check(held > 100, f"only {held} packets are held")
    clients = [int(p) for p in run("ip", "netns", "pids", h1.namespace).split()
               if os.path.exists(f"/proc/{p}/comm") and read(f"/proc/{p}/comm") == "ib_write_bw"]
    started = time.monotonic()
    for pid in clients:
        os.kill(pid, 9)
    gone = wait_until(lambda: not h1.live_qps(), 60)
    seconds = time.monotonic() - started
    note(f"{held} held, QPs gone after {seconds * 1e3:.0f} ms")
    check(gone, "the QPs do not go")
    check_time(seconds < 1.5, f"16 QPs took {seconds:.2f} s to go")
    nothing_held(h1)
    stream.stop()


@case
@timely
def rmmod_in_mid_stream_loses_and_reorders_nothing():
    cleanup(Module.load)
    for _ in range(10 if LONG else 3):
        # 0.5 s: what a stall of the machine lets pass would be repeated.
        pairs = holding(4, 3, 2, timeout=17)
        dump = Dump(h1)
        time.sleep(0.3)
        started = time.monotonic()
        Module.unload()
        seconds = time.monotonic() - started
        unloaded = time.time_ns()
        # Now unlimited.
        pairs.finish(30)
        departures = Departures(dump)
        check_order(departures, "rmmod", dump, pairs)
        behind = sum(f.time_ns > unloaded for f in departures)
        note(f"rmmod took {seconds * 1e3:.0f} ms; {len(departures)} packets, {behind} of them after it")
        check_time(seconds < 3, f"rmmod took {seconds:.1f} s")
        Module.load()
        equal(h1.counters()["rp_held_packets"], 0, "held after a reload")
        equal(h1.knob("roce_rp/rate_to_set_on_first_cnp"), "0", "a knob after a reload")
        pairs.close()


@case
def rmmod_while_everything_is_on_fire():
    # CNPs, new QPs and dying ones, in the very moment.
    cleanup(Module.load)
    for _ in range(20 if LONG else 4):
        pairs = holding(2, 4, 1)
        rp.send_cnps(h1, h2, pairs.ours, 50)
        pairs.left.process.kill()
        Module.unload()
        Module.load()
        check(wait_until(lambda: not h1.live_qps(), 10), "QPs are left")
        pairs.left.process.wait()
        pairs.right.close()


@case
def link_down_drops_what_is_held_and_after_up_packets_are_held_again():
    pairs = holding(2, 2, 1)
    change = Change(h1)
    held = h1.counters()["rp_held_packets"]
    run("ip", "-n", h1.namespace, "link", "set", "eth0", "down")
    nothing_held(h1, 0.2)
    got = change.now().get("rp_purged_packets", 0)
    check(got >= held - 10, f"{got} purged of {held}")
    time.sleep(0.3)
    equal(h1.counters()["rp_held_packets"], 0, "held while the link is down")
    run("ip", "-n", h1.namespace, "link", "set", "eth0", "up")
    # rxe has no route meanwhile, which ends the QPs; new ones work as before.
    note(f"the QPs are in {', '.join(qp.query() for qp in pairs.ours)}")
    holding(4, 2, 1).finish(30)


def removed(how, command):
    fresh_afterwards()
    pairs = holding(1, 4)
    started = time.monotonic()
    run(*command, timeout=30)
    check(wait_until(lambda: not os.path.exists(f"/sys/class/infiniband/{h1.device}"), 10), f"{how}: the device is still there")
    seconds = time.monotonic() - started
    pairs.left.kill()
    pairs.left.process.wait()
    note(f"{how}: {seconds * 1e3:.0f} ms")
    check(seconds < 5, f"{how} took {seconds:.1f} s")


@case
def rdma_link_del_with_held_packets():
    removed("rdma link del", ("ip", "netns", "exec", h1.namespace, "rdma", "link", "del", h1.device))


@case
def ip_link_del_with_held_packets():
    removed("ip link del", ("ip", "-n", h1.namespace, "link", "del", "eth0"))


@case
def the_switch_end_of_the_link_del_with_held_packets():
    removed("ip link del of the peer", ("ip", "-n", f"{rp.lab.PREFIX}sw", "link", "del", "h1"))


@case
def ip_netns_del_with_held_packets():
    fresh_afterwards()
    pairs = holding(1, 4)
    # The namespace goes with the last process and mount that knows it.
    run("ip", "netns", "del", h1.namespace)
    pairs.left.kill()
    pairs.left.process.wait()
    h1.close()
    check(wait_until(lambda: not os.path.exists(f"/sys/class/infiniband/{h1.device}"), 30, 0.1), "the device outlives its namespace")


@case
def random_ends_in_random_order():
    rounds = 200 if LONG else 20
    rng = random.Random(int(os.environ.get("RXE_CC_SEED", "1")))
    counts = {}
    for number in range(rounds):
        pairs = holding(rng.choice((0.2, 1, 5)), rng.choice((1, 3, 8)), 1, 1)
        rp.send_cnps(h1, h2, pairs.ours, rng.choice((0, 1, 5)))
        how = rng.choice(("kill", "close", "destroy", "peer", "error", "off", "down", "rmmod", "relink"))
        counts[how] = counts.get(how, 0) + 1
        time.sleep(rng.random() * 0.2)
        if how == "kill":
            pairs.left.kill()
        elif how == "close":
            pairs.left.process.stdin.close()
        elif how == "destroy":
            for qp in rng.sample(pairs.ours, len(pairs.ours)):
                qp.destroy()
        elif how == "peer":
            pairs.right.kill()
        elif how == "error":
            for qp in pairs.ours:
                qp.state(rng.choice(("err", "reset")))
        elif how == "off":
            h1.enable("roce_rp", False)
        elif how == "down":
            run("ip", "-n", h1.namespace, "link", "set", "eth0", "down")
            run("ip", "-n", h1.namespace, "link", "set", "eth0", "up")
        elif how == "rmmod":
            Module.unload()
            Module.load()
        elif how == "relink":
            run("ip", "netns", "exec", h1.namespace, "rdma", "link", "del", h1.device)
            check(wait_until(lambda: not os.path.exists(f"/sys/class/infiniband/{h1.device}"), 10), "the device is still there")
            pairs.left.kill()
            pairs.left.process.wait()
            run("ip", "netns", "exec", h1.namespace, "rdma", "link", "add", h1.device, "type", "rxe", "netdev", "eth0")
            h1._gids.clear()
        pairs.kill()
        check(wait_until(lambda: not h1.live_qps() and not h2.live_qps(), 10), f"round {number} ({how}): QPs are left")
        if how == "off":
            h1.enable("roce_rp", True)
        nothing_held(h1)
        h1.set(dilation=1)
    note(f"{rounds} rounds: {counts}")
    # A QP that went while nothing was held is missed within 2 s, and 2 s later forgotten.
    check(wait_until(lambda: h1.counters()["rp_limited_qps"] == 0, 10), f"rp_limited_qps: {h1.counters()['rp_limited_qps']}")


@case
def memory_comes_back():
    def unreclaimable():
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("SUnreclaim"))

    def rounds(number):
        for _ in range(number):
            pairs = holding(0.2, 8, 1)
            pairs.left.kill()
            pairs.left.process.wait()
            pairs.right.close()
        wait_until(lambda: not h1.live_qps(), 10)
        time.sleep(2.5)
    rounds(2)
    before = unreclaimable()
    rounds(40 if LONG else 8)
    after = unreclaimable()
    note(f"SUnreclaim {before} kB, {after} kB after {40 if LONG else 8} rounds of 8 QPs with held packets")
    # What a round holds is 8 x 64 x 2.3 KiB, 1.2 MB.
    check(after - before < 1500, f"{after - before} kB more")


@case
def both_modules_unload():
    fresh_afterwards()
    pairs = holding(0.2, 4)
    pairs.left.kill()
    net.down()
    run("rmmod", "rxe_cc", timeout=30)
    run("rmmod", "rdma_rxe", timeout=30)
    Module.load()


main(setup, ("ip", "tc", "nft", "rdma", "tcpdump", "ib_write_bw"))
