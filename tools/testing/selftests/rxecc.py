# SPDX-License-Identifier: GPL-2.0
"""The user's command on the real thing: it finds knobs over network namespaces,
what it writes the kernel has, what it shows the kernel says, and what only root
may do it refuses with a sentence. Other machines, made of files, are tried by
its own tests on the host.
"""
import json

import rp
from lab import *
from rp import Pairs, limit

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def setup():
    global net, h1, h2
    if not shutil.which("rxecc"):
        raise Failure("rxecc is not here: make tools, make install")
    net = Network(2)
    h1, h2 = net.hosts


def rxecc(*arguments, status=0, prefix=()):
    """Its output; the sentence on stderr where a status is expected that is not 0."""
    done = subprocess.run([*prefix, "rxecc", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    check(done.returncode == status, f"rxecc {' '.join(arguments)}: status {done.returncode}: {done.stderr}{done.stdout}")
    return done.stderr if status == 2 else done.stdout


def has(text, *parts):
    for part in parts:
        check(part in text, f"no {part!r} in {text!r}")


def restore(host):
    """All knobs back to the defaults, switches too, when the case is over."""
    cleanup(rxecc, "preset", "connectx", "--dilation", "1", "--line-rate", "0", "-d", host.device)


@case
def the_netdev_of_each_device_is_found_in_its_namespace():
    h2.set(cnp_dscp=7)
    equal(rxecc("get", "cnp_dscp", "-d", h1.device), "48\n", "h1's")
    for name in h2.device, h2.namespace, f"{h2.namespace}/eth0":
        equal(rxecc("get", "cnp_dscp", "-d", name), "7\n", name)


@case
def the_netdev_is_found_from_inside_any_namespace():
    h2.set(cnp_dscp=7)
    for prefix in (("ip", "netns", "exec", h1.namespace), ("ip", "netns", "exec", f"{PREFIX}sw"), ("unshare", "-n")):
        equal(rxecc("get", "cnp_dscp", "-d", h2.device, prefix=prefix), "7\n", " ".join(prefix))
        status = json.loads(rxecc("status", "--json", prefix=prefix))
        equal([device["namespace"] for device in status["devices"]], [h1.namespace, h2.namespace], " ".join(prefix))
        check(all(device["qps"] is not None and device["counters"] for device in status["devices"]),
              f"QPs or counters are missing from {prefix}: {status}")


@case
def no_mount_is_left_behind_and_none_is_seen():
    before = read("/proc/self/mounts")
    rxecc("status")
    equal(read("/proc/self/mounts"), before, "mounts")


@case
def get_shows_what_the_kernel_has():
    values = json.loads(rxecc("get", "--json"))
    equal(sorted(values), sorted([h1.device, h2.device]), "devices")
    for host in h1, h2:
        there = {knob: host.knob(knob) for knob in values[host.device]}
        equal(values[host.device], there, host.name)
        equal(len(there), 42, "knobs")


@case
def set_writes_what_the_kernel_takes():
    restore(h1)
    has(rxecc("set", "rpg_ai_rate", "40", "-d", h1.device), "roce_rp/rpg_ai_rate 5 -> 40 Mb/s")
    equal(h1.knob("roce_rp/rpg_ai_rate"), "40", "h1's knob")
    equal(h2.knob("roce_rp/rpg_ai_rate"), "5", "h2's knob")


@case
def every_end_of_every_range_that_the_command_knows_is_the_kernels():
    for row in json.loads(rxecc("get", "--list", "--json")):
        knob, text = row["knob"], row["range"]
        ends = text.split("..") if ".." in text else text.split(", ")
        equal(h1.knob(knob), row["default"], f"default of {knob}")
        for end in ends:
            h1.write(knob, end)
            equal(h1.knob(knob), end, knob)
        h1.write(knob, row["default"])
        if ".." in text and int(ends[1]) < 2**32 - 1:
            try:
                h1.write(knob, int(ends[1]) + 1)
            except OSError:
                pass
            else:
                h1.write(knob, row["default"])
                raise Failure(f"{knob} takes more than {ends[1]}")


@case
def the_papers_preset_is_in_force_after_it_was_set():
    for host in h1, h2:
        restore(host)
    has(rxecc("preset", "paper", "--bottleneck", "40mbit", "--all", "--diff", status=1), "roce_rp/rpg_threshold", "dilation")
    equal(h1.knob("roce_rp/rpg_threshold"), "1", "after --diff")
    rxecc("preset", "paper", "--bottleneck", "40mbit", "--all")
    for host in h1, h2:
        equal(host.knob("rxe_cc/dilation"), "1000", "dilation")
        equal(host.knob("rxe_cc/line_rate"), "40", "line rate")
        equal(host.knob("roce_rp/rpg_threshold"), "5", "F")
    has(rxecc("preset", "paper", "--bottleneck", "40mbit", "--all", "--diff"), "as the preset says")


@case
def a_limited_qp_is_shown_live_with_its_rate():
    pairs = Pairs(h1, h2)
    limit(h1, h2, pairs.ours, 10)
    pairs.post("write", 20)

    def ours():
        status = json.loads(rxecc("status", "--json", "-d", h1.device))
        return [qp for qp in status["devices"][0]["qps"] if qp["rp"] and qp["rp"]["held"]]

    found = wait_until(ours, 5)
    check(found, "no QP with held packets")
    equal(found[0]["qpn"], pairs.ours[0].qpn, "QPN")
    equal(found[0]["peer"], h2.ip, "peer")
    rate = found[0]["rp"]["rc_bps"]
    check(abs(rate - 10e6) < 0.01e6, f"the rate is {rate} bit/s")
    text = rxecc("status", "-d", h1.device)
    has(text, "QPs, 1 of ", "10 Mb/s", h2.ip, "rp_cnp_handled")
    check(max(map(len, text.splitlines())) <= 80, f"wider than 80 columns: {text}")


@case
def watch_goes_on_until_it_is_interrupted():
    process = subprocess.Popen(["rxecc", "status", "--json", "--watch=0.2"], stdout=subprocess.PIPE, text=True)
    cleanup(process.kill)
    lines = [process.stdout.readline() for _ in range(3)]
    equal([len(json.loads(line)["devices"]) for line in lines], [2, 2, 2], "devices")
    check(process.poll() is None, "it ended")


@case
def a_reader_that_has_seen_enough_is_no_error():
    done = subprocess.run(["sh", "-c", "rxecc get | head -n 1; rxecc status --json --watch=0.01 | head -n 1"],
                          capture_output=True, text=True, timeout=30)
    equal(done.stderr, "", "stderr")


@case
def nobody_reads_what_he_may_and_is_told_what_he_may_not():
    text = rxecc("status", prefix=NOBODY)
    has(text, h1.device, h2.device, "counters", "only root")
    equal(text.count("note:"), 2, f"notes in {text!r}")
    # In the host's own namespace he sees its knobs.
    inside = ("ip", "netns", "exec", h1.namespace, *NOBODY)
    h1.set(cnp_dscp=9)
    equal(rxecc("get", "cnp_dscp", "-d", h1.device, prefix=inside), "9\n", "the knob")


@case
def nobody_writes_nothing_and_is_told_so_in_one_sentence():
    inside = ("ip", "netns", "exec", h1.namespace, *NOBODY)
    for prefix in NOBODY, inside:
        error = rxecc("set", "cnp_dscp", "1", "-d", h1.device, status=2, prefix=prefix)
        has(error, "root", "sudo")
        equal(len(error.splitlines()), 1, f"lines of {error!r}")
    equal(h1.knob("roce_np/cnp_dscp"), "48", "the knob")


@case
def without_the_module_each_command_says_so():
    Module.unload()
    try:
        has(rxecc("status"), h1.device, "rxe_cc is not loaded")
        for arguments in (("get",), ("set", "dilation", "1", "--all"), ("preset", "paper", "--all")):
            has(rxecc(*arguments, status=2), "rxe_cc is not loaded", "modprobe")
    finally:
        Module.load()


@case
def the_examples_of_the_help_work_as_printed():
    """But for the name of the device."""
    for host in h1, h2:
        restore(host)
    for command in "status", "get", "set", "preset", "names":
        text = subprocess.run(["rxecc", command, "-h"], capture_output=True, text=True).stdout
        examples = [line.strip() for line in text.splitlines() if line.startswith("  rxecc ")]
        check(len(examples) >= 2, f"examples of {command}: {text}")
        for example in examples:
            # One that goes on is given a moment; a difference is no failure.
            line = example.replace("rxe1", h1.device)
            done = subprocess.run(["timeout", "2", "bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
            want = (124,) if "--watch" in example else (0, 1) if "--diff" in example else (0,)
            check(done.returncode in want, f"{example}: status {done.returncode}: {done.stderr}")
    rxecc("set", "roce_rp/enable", "1", "--all")


main(setup)
