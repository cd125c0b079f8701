# SPDX-License-Identifier: GPL-2.0
"""samples/ce-replay, the ConnectX experiment, with rxe_cc: what it claims it also
finds. That it can say no: without the module soft-RoCE answers nothing."""
from lab import *

REPLAY = [f"{ROOT}/samples/ce-replay", "--prefix", PREFIX]


def setup():
    global net, h1, h2
    net = Network(2, "--ipv6")
    h1, h2 = net.hosts


def replay(*options, status=0, tries=1):
    """tries: a guest whose CPUs stand still for 200 ms has to look its contexts up
    again, and folds the marks of that moment into one CNP."""
    for left in reversed(range(tries)):
        done = subprocess.run([*REPLAY, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in done.stdout.splitlines():
            note(line)
        if done.returncode == status or not left:
            break
        note("once more")
    equal(done.returncode, status, f"status of ce-replay {' '.join(options)}")


@case
def two_thousand_ce_in_two_thousand_cnps_out():
    h1.enable("roce_rp", False)
    replay(tries=3)


@case
def back_to_back_keeps_the_window_of_50_us():
    h1.enable("roce_rp", False)
    h2.set(min_time_between_cnps=50)
    replay("--count", "20000", "--gap-us", "0", "--window-us", "50", "--ipv6")


@case
def np_off_answers_nothing():
    h2.enable("roce_np", False)
    replay("--count", "50", "--gap-us", "0", "--expect", "none")


@case
def without_the_module_soft_roce_answers_nothing():
    Module.unload()
    cleanup(Module.load)
    replay("--count", "50", status=1)


main(setup, ("ip", "rdma", "ib_write_lat"))
