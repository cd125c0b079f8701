# SPDX-License-Identifier: GPL-2.0
"""The samples and `rxecc record`, from end to end: what a recording says is what
perftest, tc, nft and the counters say.

In: samples/incast and rxecc. Out: recordings, whose tables are compared with each
other and with the kernel's own figures. How well congestion control does is not
judged here: that is a matter of a machine of one's own.
"""
import csv
import json
import shutil
import tempfile

from lab import *


def setup():
    for tool in "rxecc", "ib_send_bw", "ib_write_bw", "ib_read_bw":
        if not shutil.which(tool):
            raise Skip(f"no {tool}")


def table(directory, name):
    path = f"{directory}/{name}.csv"
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return list(csv.DictReader(file))


def incast(*options, name="paper"):
    """Runs it; its recording's directory and run.json."""
    Module.unload()
    directory = tempfile.mkdtemp(prefix="rxecc-")
    cleanup(shutil.rmtree, directory, True)
    cleanup(Module.load)
    cleanup(run, f"{ROOT}/samples/fabric", "down")
    said = run(f"{ROOT}/samples/incast", "--runs", name, "--output", directory, *options, timeout=200, fail=False)
    check(os.path.exists(f"{directory}/report.html"), f"no report: {said[-500:]}")
    with open(f"{directory}/{name}/run.json") as file:
        return f"{directory}/{name}", json.load(file)


def last(rows, key, value):
    """The last value of each key."""
    return {row[key]: float(row[value]) for row in rows}


def agrees(directory, details, senders):
    """What must hold of each recording with rxe_cc."""
    names = [f"h{n + 1}" for n in range(senders)]
    equal([s["name"] for s in details["senders"]], names, "senders")
    equal([s["errors"] for s in details["senders"]], [[]] * senders, "errors")
    check(details["bottleneck"]["rate_bps"] == 20e6, f"the link's rate: {details['bottleneck']}")
    begin, end = details["measured"]
    check(end - begin > 5, f"measured {begin} to {end}")
    queue, goodput, flows = (table(directory, name) for name in ("queue", "goodput", "flows"))
    check(len(queue) > 20 and len(flows) > 20, f"{len(queue)} and {len(flows)} samples")
    # Frames that the link sent are those that arrived, and what else uses the link.
    sent, arrived = float(queue[-1]["sent_bytes"]), sum(last(goodput, "sender", "bytes").values())
    check(0.9 * sent < arrived < sent, f"{arrived} bytes of IP arrived, {sent} bytes of Ethernet were sent")
    counted = {(row["device"], row["counter"]): int(row["value"]) for row in table(directory, "counters")}
    marks = counted[f"rxe{senders + 1}", "np_ecn_marked_roce_packets"]
    # The queue is read a moment before the counters, and some marked packets wait.
    near = max(50, 0.1 * marks)
    check(marks > 0 and abs(marks - float(queue[-1]["marks"])) < near, f"{marks} marks came, tc made {queue[-1]['marks']}")
    cnps = last(flows, "qpn", "cnps") if senders == 1 else {}
    for device in (f"rxe{n}" for n in range(1, senders + 1)):
        check(counted[device, "rp_cnp_handled"] > 0, f"{device}: no CNP")
    for count in cnps.values():
        check(count <= counted["rxe1", "rp_cnp_handled"] + 1, f"{count} CNPs of a QP, {counted['rxe1', 'rp_cnp_handled']} of its device")
    equal({row["sender"] for row in flows}, set(names), "senders of flows.csv")


SHORT = ("--senders", "2", "--rate", "20mbit", "--seconds", "8", "--limit", "150000")


@case
def a_recording_of_send_agrees_with_tc_nft_and_the_counters():
    directory, details = incast(*SHORT, "--events")
    agrees(directory, details, 2)
    seen = {row["event"] for row in table(directory, "events")}
    check({"ce", "cnp_tx", "cnp_rx", "rate_cut"} <= seen, f"events: {sorted(seen)}")
    times = [float(row["time_s"]) for row in table(directory, "events")]
    check(min(times) >= 0 and max(times) <= details["measured"][1] + 5, f"events at {min(times)} to {max(times)} s")


@case
def write_over_ipv6_with_four_qps_is_recorded_as_well():
    # 64 packets of each queue pair leave before any CNP can come back: room for them.
    directory, details = incast(*SHORT, "--verb", "write", "--ipv6", "--qps", "4", "--limit", "1000000")
    agrees(directory, details, 2)
    equal({s["address"] for s in details["senders"]}, {"fd00::1", "fd00::2"}, "addresses")
    check(len({(r["device"], r["qpn"]) for r in table(directory, "flows")}) >= 6, "fewer QPs than sent")


@case
def with_read_the_hosts_that_are_read_from_are_the_senders():
    directory, details = incast(*SHORT, "--verb", "read")
    agrees(directory, details, 2)
    check(any(int(row["held"]) > 0 for row in table(directory, "flows")), "no response was ever held")


@case
def without_rxe_cc_the_queue_drops_and_nothing_is_marked():
    directory, details = incast(*SHORT, name="plain")
    queue = table(directory, "queue")
    begin = details["measured"][0] + 1
    late = [float(row["drops"]) for row in queue if float(row["time_s"]) > begin]
    check(late and late[-1] > late[0], "no drops after the first second")
    equal(float(queue[-1]["marks"]), 0.0, "marks")
    equal((table(directory, "flows"), details["knobs"]), ([], {}), "rates and knobs")


@case
def a_recorder_leaves_nothing_behind():
    check(not [name for name in os.listdir("/sys/kernel/tracing/instances") if name.startswith("rxecc")], "a tracefs instance is left")
    run("rxecc", "record", "--output", "/tmp/rxecc-alone", "--port", "lo", "--goodput", ".", "--events", "--duration", "1")
    cleanup(shutil.rmtree, "/tmp/rxecc-alone", True)
    check("rxecc" not in run("nft", "list", "tables"), "an nft table is left")
    check(not [name for name in os.listdir("/sys/kernel/tracing/instances") if name.startswith("rxecc")], "a tracefs instance is left")


main(setup, ("ip", "tc", "nft", "rdma"))
