# SPDX-License-Identifier: GPL-2.0
"""Every allocation of the module fails, one after the other or at random: what
cannot be done is counted or refused, nothing crashes or leaks, traffic goes on.

Only where the kernel makes allocations fail on request and looks who asks:
CONFIG_FAILSLAB and CONFIG_FAULT_INJECTION_STACKTRACE_FILTER, as in the debug kernel
(`scripts/lab run --kernel debug`). Elsewhere it is skipped.
"""
import os
import random

import load
import rp
from lab import *
from rp import Pairs

# These checks are about what the module does, not about time.
os.environ.pop("RXE_CC_REPORTS", None)

FAULTS = f"{rp.DEBUGFS}/failslab"


def setup():
    global net, h1, h2
    rp.need_debugfs()
    if not os.path.isdir(FAULTS):
        raise Skip("this kernel has no CONFIG_FAILSLAB: try scripts/lab run --kernel debug")
    if not os.path.exists(f"{FAULTS}/require-start"):
        raise Skip("this kernel has no CONFIG_FAULT_INJECTION_STACKTRACE_FILTER: try scripts/lab run --kernel debug")
    net = Network(2)
    h1, h2 = net.hosts


def put(name, value):
    with open(f"{FAULTS}/{name}", "w") as file:
        file.write(str(value))


def quiet():
    put("probability", 0)
    put("require-start", 0)
    put("require-end", hex((1 << 64) - 1))


def prepare():
    """Those that may sleep fail, too, and none is reported."""
    quiet()
    for name, value in ("ignore-gfp-wait", "N"), ("cache-filter", "N"), ("task-filter", "N"), ("verbose", 0), ("times", -1), \
            ("space", 0), ("interval", 1), ("stacktrace-depth", 32):
        put(name, value)
    cleanup(quiet)


def place():
    """Where the module is: (start, end)."""
    with open("/proc/modules") as file:
        size, start = next((int(line.split()[1]), int(line.split()[5], 16)) for line in file if line.startswith("rxe_cc "))
    return start, start + size


def only_the_modules(where=None):
    """Those with a function of the module on the stack."""
    start, end = where or place()
    put("require-start", hex(start))
    put("require-end", hex(end))


@case
def a_load_with_a_failed_allocation_is_refused_or_works_and_leaves_nothing():
    path = os.environ.get("RXE_CC_KO")
    if not path:
        raise Skip("needs the module as a file (RXE_CC_KO)")
    prepare()
    cleanup(Module.load)
    rng = random.Random(int(os.environ.get("RXE_CC_SEED", "9")))
    # It comes near the same place again, where only other modules are.
    start, end = place()
    around, outcome = (start - (16 << 20), end + (16 << 20)), {}
    for _ in range(300 if load.LONG else 40):
        Module.unload()
        only_the_modules(around)
        put("times", 1)
        put("probability", rng.choice((1, 1, 2, 3, 5, 10, 100)))
        told = subprocess.run(["insmod", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        quiet()
        if Module.loaded():
            equal(told.returncode, 0, "status of insmod")
            what = f"{len(devices())} of 2 devices controlled" if around[0] <= place()[0] < around[1] else "elsewhere"
        else:
            what = told.stdout.strip().rsplit(": ", 1)[-1]
            Module.load()
        outcome[what] = outcome.get(what, 0) + 1
    note(f"{outcome}")
    check(outcome.get("elsewhere", 0) < sum(outcome.values()) // 2, "the module hardly ever comes near the same place")
    check(set(outcome) <= {"Cannot allocate memory", "elsewhere", *(f"{n} of 2 devices controlled" for n in range(3))}, f"{outcome}")
    check(len(set(outcome) - {"elsewhere"}) > 2, f"hardly anything failed: {outcome}")


@case
def a_device_whose_allocations_fail_is_not_controlled_and_works_as_without():
    prepare()
    controlled, numbers = 0, range(1, 200, 1 if load.LONG else 14)
    for number in numbers:
        h2.remove_device()
        only_the_modules()
        put("interval", number)
        put("times", 1)
        put("probability", 100)
        h2.add_device()
        quiet()
        here = os.path.isdir(OURS.format(h2.device))
        equal(os.path.isdir(f"{h2.sys}/class/net/eth0/ecn"), here, "knobs there, as counters are")
        controlled += here
    note(f"{controlled} of {len(numbers)} devices were controlled")
    check(controlled < len(numbers), "no allocation failed")
    put("times", -1)
    put("interval", 1)
    # The last one, wherever it stands, and a whole one.
    Pairs(h1, h2).left.close()
    h2.renew_device()
    check(os.path.isdir(OURS.format(h2.device)), "not controlled, although nothing failed")


@case
def traffic_goes_on_while_allocations_fail_at_random():
    prepare()
    rp.fix_rate(h1, 20)
    h2.set(min_time_between_cnps=0)
    changes = Change(h1), Change(h2)
    wanted = {"rp_cnp_no_memory", "rp_cnp_handled"}, {"np_cnp_send_failed", "np_cnp_sent"}

    def missing():
        # A change has only the counters that gained.
        return [name for change, names in zip(changes, wanted) for name in sorted(names - change.now().keys())]

    only_the_modules()
    put("probability", 40)
    started = time.monotonic()
    # Some time, and where the machine is slow for long enough to see all there is to see.
    while (took := time.monotonic() - started) < (60 if load.LONG else 10) or took < 90 and missing():
        pairs = Pairs(h1, h2, 4)
        rp.send_cnps(h1, h2, pairs.ours, 3)
        for qp in pairs.theirs:
            h1.sender.send_all([h1.to(h2, marked_write(h1, h2, qp.qpn))] * 20)
        pairs.post("write", 1, 256 << 10)
        pairs.post("read", 1, 64 << 10)
        for knob in "roce_rp/rpg_ai_rate", "roce_np/min_time_between_cnps":
            h1.write(knob, h1.knob(knob))
        rp.state(h1)
        pairs.finish(30)
        pairs.close()
    put("probability", 0)
    time.sleep(0.5)
    for end, change in zip(("RP", "NP"), changes):
        note(f"{end}: {change.now()}")
    equal(missing(), [], "what never happened")


@case
def the_module_goes_while_allocations_fail():
    prepare()
    for _ in range(50 if load.LONG else 8):
        pairs = Pairs(h1, h2, 4)
        rp.limit(h1, h2, pairs.ours, 2)
        pairs.post("write", 1, 256 << 10)
        only_the_modules()
        put("probability", 50)
        Module.unload()
        quiet()
        Module.load()
        pairs.finish(30)
        pairs.close()


main(setup, ("ip", "tc", "nft", "rdma"))
