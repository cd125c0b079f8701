# SPDX-License-Identifier: GPL-2.0
"""rxecc calibrate: what it says was sent was on the wire, and the knobs become what it
says.

How fast a host is nobody knows; but a port that is slowed down carries what it was set
to, however fast or slow the host, if that is little enough.
"""
import re

from lab import *

SLOW_MBPS = 2


def setup():
    global net, h1, h2, h3
    net = Network(3)
    h1, h2, h3 = net.hosts


def calibrate(*words, status=0):
    text = rxecc("calibrate", *words, status=status)
    if "--help" not in words:
        for line in text.splitlines():
            note(line)
    return text


def told_mbps(text):
    number, unit = re.search(r": ([0-9.]+) ([kMG])b/s on the wire", text).groups()
    return float(number) * {"k": 1e-3, "M": 1, "G": 1e3}[unit]


def knobs(host):
    return int(host.knob("rxe_cc/line_rate")), int(host.knob("rxe_cc/dilation"))


def restore_later():
    for host in net.hosts:
        for knob in "line_rate", "dilation":
            cleanup(host.write, f"rxe_cc/{knob}", host.knob(f"rxe_cc/{knob}"))


def example(words):
    """The command of the help with these words in it, for this network's names."""
    lines = [line.strip() for line in calibrate("--help").splitlines() if line.startswith("  rxecc calibrate")]
    found = [re.split(r"  +", line)[0].split()[2:] for line in lines if words in line]
    equal(len(found), 1, f"examples with {words} of {lines}")
    return [re.sub(r"^(rxe|h)(\d)$", rf"{PREFIX}\1\2", word) for word in found[0]]


def sent_mb():
    return int(read(f"{h1.sys}/class/net/eth0/statistics/tx_bytes")) * 8 / 1e6


@case
def what_it_measures_was_on_the_wire_and_a_dry_run_sets_nothing():
    before = sent_mb()
    text = calibrate(*example("--dry-run"))
    most, rate = sent_mb() - before, told_mbps(text)
    seconds = float(re.search(r" in ([0-9.]+) s", text)[1])
    # A second before it counts, and four behind it, are not in the figure. The stream
    # does not stand still there, so at least a twentieth of it all is.
    check(most / 20 <= rate * seconds <= most, f"{rate} Mb/s for {seconds} s, but {most:.0f} Mb were sent altogether")
    check(1000 <= int(re.search(r", ([0-9]+) bytes a packet", text)[1]) <= 1100, text)
    equal([knobs(host) for host in net.hosts], [(0, 1)] * 3, "line_rate, dilation")
    equal(text.count("would become"), 4, f"changes in {text}")
    check("CNPs" not in text, text)


@case
def all_devices_are_set_for_a_bottleneck():
    restore_later()
    text = calibrate(*example("--all"))
    line = knobs(h1)[0]
    # The figure told has three digits.
    check(abs(line - told_mbps(text)) <= 1 + line * 0.01, f"line_rate {line}")
    equal([knobs(host) for host in net.hosts], [(line, 1000)] * 3, "line_rate, dilation")


@case
def a_port_of_a_known_rate_is_measured_right_and_only_the_two_devices_are_set():
    restore_later()
    net.port("h2", "--rate", f"{SLOW_MBPS}mbit", "--limit", "400000")
    # The transport's 64 packets wait there; the rest is the link's rate.
    text = calibrate("--from", h1.namespace, "--to", h2.ip, "--seconds", 5)
    rate = told_mbps(text)
    check(0.6 * SLOW_MBPS <= rate <= 1.4 * SLOW_MBPS, f"{rate} Mb/s on a link of {SLOW_MBPS}")
    line = int(rate + 0.5)
    equal([knobs(host) for host in net.hosts], [(line, 40000 // line)] * 2 + [(0, 1)], "line_rate, dilation")


@case
def a_congested_or_lossy_way_is_told_as_such():
    net.port("h2", "--mark", "every:20", "--loss", "3%")
    text = calibrate("--from", h1.device, "--to", h2.device, "--seconds", 2, "--qps", 2, "--port", 18600, "--dry-run")
    check("CNPs slowed the sender down" in text and "note: packets were lost on the way" in text and "2 QPs" in text, text)


@case
def what_cannot_be_measured_is_told_in_a_line_and_sets_nothing():
    for words, said in (([], "--from and --to"), (["--from", h1.device], "go together"), (["--from", h1.device, "--to", h1.ip], "name two devices"),
                        (["--from", f"{PREFIX}rxe9", "--to", h2.device], f"no soft-RoCE device {PREFIX}rxe9"),
                        (["--from", h1.device, "--to", h2.device, "--bottleneck", "fast"], "fast"),
                        (["--from", h1.device, "--to", "10.0.0.99", "--seconds", "1"], "ib_write_bw")):
        text = calibrate(*words, status=2)
        check(said in text and len(text.splitlines()) == 1, f"{words}: {text}")
    equal([knobs(host) for host in net.hosts], [(0, 1)] * 3, "line_rate, dilation")


@case
def without_the_module_it_says_so_before_it_measures():
    Module.unload()
    cleanup(Module.load)
    started = time.monotonic()
    text = calibrate("--from", h1.device, "--to", h2.device, "--seconds", 30, status=2)
    check("rxe_cc is not loaded" in text, text)
    check(time.monotonic() - started < 20, "it measured first")


main(setup, ("ip", "tc", "nft", "rdma", "ib_write_bw", "rxecc"))
