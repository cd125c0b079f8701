# SPDX-License-Identifier: GPL-2.0
"""Files against what they show: knobs are written while traffic goes by them, and
everything is read while QPs, devices and the module go. No reader hangs, nothing
crashes, no write breaks a flow.

RXE_CC_LONG: ten times as long.
"""
import random

import load
import rp
from lab import *
from rp import Pairs

FACTOR = 10 if load.LONG else 1


def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


def ecn(host):
    return f"{host.sys}/class/net/eth0/ecn/**"


@case
def knobs_are_written_under_traffic_without_an_error():
    net.port("h2", "--mark", "every:5")
    cleanup(h1.renew_device)
    cleanup(h2.renew_device)
    # Not all in one go: a completion queue holds so many.
    for _ in range(FACTOR):
        write_knobs_under_traffic(8)
        # All knobs as they were.
        h1.renew_device()
        h2.renew_device()


def write_knobs_under_traffic(seconds):
    # Rates of any kind, so that nothing may take longer than its ack timeout.
    pairs = Pairs(h1, h2, 4, timeout=18)
    writers = [load.Files(ecn(host), write=True) for host in (h1, h2)]
    reader = load.Files(f"{rp.DEBUGFS}/rxe_cc/*/*")
    change = Change(h1)
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        pairs.post("write", 4, 64 << 10)
        pairs.post("read", 2, 64 << 10)
        rp.send_cnps(h1, h2, pairs.ours, 2)
        # A dilation of 131071 is refused, one of 1000 with 1 Mb/s is 1 kb/s: not for long.
        time.sleep(0.3)
        for knob in "rxe_cc/dilation", "rxe_cc/line_rate":
            h1.write(knob, 1)
        h1.write("rxe_cc/line_rate", 0)
        h1.write("roce_rp/rpg_max_rate", 0)
        h1.write("roce_rp/rpg_min_rate", 50)
    touched = [writer.touched() for writer in writers]
    alive = [process.running() for process in (*writers, reader)]
    for process in (*writers, reader):
        process.stop()
    h1.write("rxe_cc/dilation", 1)
    h1.enable("roce_rp", False)
    pairs.finish(120)
    got = change.now()
    note(f"{touched} writes, {got.get('rp_cnp_handled', 0)} CNPs handled, {got.get('rp_rate_cuts', 0)} cuts, {got.get('rp_rate_increases', 0)} increases")
    check(all(alive) and min(touched) > 100, f"writers: {alive}, {touched}")
    check(got.get("rp_cnp_handled", 0) > 10, f"{got}")
    pairs.close()


@case
def everything_is_read_while_it_goes():
    rng = random.Random(int(os.environ.get("RXE_CC_SEED", "3")))
    rp.state(h1)  # mounts debugfs
    ports = [f"/sys/class/infiniband/{PREFIX}*/ports/1/{directory}/[rnt][pnx]_*" for directory in ("hw_counters", "rxe_cc")]
    readers = [load.Files(*ports, f"{rp.DEBUGFS}/rxe_cc/*/*", ecn(h1), ecn(h2)) for _ in range(2)]
    check(wait_until(lambda: all(reader.touched() > 100 for reader in readers), 20), "the readers do not read")
    counts = {}
    for _ in range(12 * FACTOR):
        pairs = Pairs(h1, h2, 4)
        rp.limit(h1, h2, pairs.ours, 1)
        pairs.post("write", 1)
        time.sleep(rng.random() * 0.2)
        how = rng.choice(("kill", "relink", "rmmod", "down"))
        counts[how] = counts.get(how, 0) + 1
        if how == "rmmod":
            Module.unload()
            Module.load()
        elif how == "down":
            for state in "down", "up":
                run("ip", "-n", h1.namespace, "link", "set", "eth0", state)
            h1.knows(h2.ip, h2.mac)
        elif how == "relink":
            h1.renew_device()
        pairs.kill()
        h1.set(dilation=1)
    note(f"{counts}; files read: {[reader.touched() for reader in readers]}")
    check(all(reader.running() for reader in readers), "a reader died")


main(setup, ("ip", "tc", "nft", "rdma"))
