# SPDX-License-Identifier: GPL-2.0
"""Crowds: thousands of limited QPs at once, QPs that come and go while somebody
looks, a device in each of many namespaces. All are controlled, their memory comes
back, and a number that is used again inherits nothing.

RXE_CC_LONG: more rounds.
"""
import load
import rp
from lab import *
from rp import Pairs

QPS = 2000
NAMESPACES = 100


def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


def mark(qpn):
    return h1.to(h2, marked_write(h1, h2, qpn))


def limit_all(qpns, seconds=40):
    """CNPs until each is limited: a device asks for 1,024 contexts at a time."""
    end = time.monotonic() + seconds
    missing = list(qpns)
    while missing and time.monotonic() < end:
        for at in range(0, len(missing), 200):
            rp.send_cnps(h1, h2, missing[at:at + 200])
            time.sleep(0.05)
        time.sleep(0.2)
        seen = rp.state(h1)
        missing = [qpn for qpn in missing if qpn not in seen or not seen[qpn].limited]
    check(not missing, f"{len(missing)} of {len(qpns)} QPs are not limited")


@case
def two_thousand_qps_are_limited_at_once_and_their_memory_comes_back():
    after = []
    for number in range(4 if load.LONG else 2):
        rp.fix_rate(h1, 1)
        tool, started = h1.qps(), time.monotonic()
        qps = load.crowd(tool, h2.ip, QPS)
        made, memory = time.monotonic() - started, load.unreclaimable_kb()
        # Some have peers, and traffic.
        pairs = Pairs(h1, h2, 8)
        started = time.monotonic()
        limit_all([qp.qpn for qp in qps + pairs.ours])
        equal(h1.counters()["rp_limited_qps"], QPS + 8, "rp_limited_qps")
        note(f"{QPS} QPs made in {made:.0f} s, limited in {time.monotonic() - started:.1f} s,"
             f" {(load.unreclaimable_kb() - memory) * 1024 // QPS} bytes of slab each")
        seen = rp.state(h1)
        equal({seen[qp.qpn].rc for qp in qps}, {1_000_000}, "their rates")
        pairs.post("write", 1, 64 << 10)
        pairs.finish(30)
        # All at once.
        started = time.monotonic()
        tool.kill()
        pairs.kill()
        tool.process.wait()
        check(wait_until(lambda: not h1.live_qps(), 60, 0.2), "QPs are left")
        gone = time.monotonic() - started
        check(wait_until(lambda: h1.counters()["rp_limited_qps"] == 0, 30, 0.2), f"rp_limited_qps: {h1.counters()['rp_limited_qps']}")
        note(f"gone after {gone:.1f} s, forgotten after {time.monotonic() - started:.1f} s")
        time.sleep(3)
        after.append(load.unreclaimable_kb())
    # What a first round leaves in caches is no loss; a second one adds nothing.
    note(f"slab after each round: {after} kB")
    check(after[-1] - after[0] < 2048, f"{after[-1] - after[0]} kB more after {len(after) - 1} more rounds of {QPS} QPs")


@case
def marks_for_more_rested_qps_than_are_asked_for_at_once_are_all_answered():
    tools, first = [h2.qps() for _ in range(5 if load.LONG else 1)], 1 << 20
    qpns = [qp.qpn for n, tool in enumerate(tools) for qp in load.crowd(tool, h1.ip, QPS, first + n * QPS)]
    end = time.monotonic() + 60
    while (missing := sorted(set(qpns) - set(rp.state(h2)))) and time.monotonic() < end:
        h1.sender.send_all([mark(qpn) for qpn in missing[:500]])
        time.sleep(0.3)
    check(not missing, f"{len(missing)} of {len(qpns)} contexts are not known")
    # What is known of them is old then, but not yet looked up for its age alone.
    time.sleep(0.5)
    had = h2.counters()["np_cnp_sent"]
    started = time.monotonic()
    h1.sender.send_all([mark(qpn) for qpn in qpns])
    check(wait_until(lambda: h2.counters()["np_cnp_sent"] - had >= len(qpns), 30, 0.05),
          f"{h2.counters()['np_cnp_sent'] - had} CNPs for {len(qpns)} marks, one a QP")
    took = time.monotonic() - started
    note(f"{len(qpns)} marks answered in {took:.1f} s")


@case
def a_qpn_that_comes_again_inherits_nothing():
    for host in h1, h2:
        host.renew_device()
    h2.set(dilation=1000, min_time_between_cnps=50000)
    limited = Pairs(h1, h2)
    rp.limit(h1, h2, limited.ours, 1)
    qpn, peer_qpn = limited.ours[0].qpn, limited.theirs[0].qpn
    for _ in range(3):
        h1.sender.send(mark(peer_qpn))
    limited.post("write", 1)
    time.sleep(0.5)
    check(rp.state(h1)[qpn].held > 0, "nothing is held")
    limited.kill()
    for host in h1, h2:
        host.renew_device()
    again = Pairs(h1, h2)
    equal((again.ours[0].qpn, again.theirs[0].qpn), (qpn, peer_qpn), "the numbers")
    again.post("write", 1)
    again.finish(20)
    line = rp.state(h1).get(qpn)
    check(not line or not line.known, f"an RP state: {line and vars(line)}")
    with open(f"{rp.DEBUGFS}/rxe_cc/{h2.device}/qps") as file:
        lines = [text for text in file if text.split()[0] == str(peer_qpn)]
    check(all(text.rstrip().endswith("| -") for text in lines), f"an NP state: {lines}")
    equal(h1.counters()["rp_limited_qps"], 0, "rp_limited_qps")


@case
def debugfs_is_read_while_thousands_of_qps_come_and_go():
    seconds = 60 if load.LONG else 8
    rp.fix_rate(h1, 2)
    h2.set(min_time_between_cnps=0)
    steady = Pairs(h1, h2)
    rp.limit(h1, h2, steady.ours)
    steady.post("write", max(1, seconds // 5))
    reader = load.Files(f"{rp.DEBUGFS}/rxe_cc/*/*")
    tool, other = h1.qps(), h2.qps()
    started, made, seen, worst, lines = time.monotonic(), 0, set(), 0, 0
    while time.monotonic() - started < seconds:
        qps, peers = load.crowd(tool, h2.ip, 50), load.crowd(other, h1.ip, 50)
        rp.send_cnps(h1, h2, qps)
        h1.sender.send_all([mark(qp.qpn) for qp in peers])
        for host in h1, h2:
            before = time.monotonic()
            state = rp.state(host)
            worst = max(worst, time.monotonic() - before)
            lines += len(state)
            if host is h1:
                seen.update(line.qpn for line in state.values() if line.limited)
        made += len(qps) + len(peers)
        for ends, some in (tool, qps), (other, peers):
            load.tell_all(ends, [f"destroy {qp.number}" for qp in some])
        if made % 2000 == 0:
            # A tool has room for 4,096.
            tool.close()
            other.close()
            tool, other = h1.qps(), h2.qps()
    note(f"{made} QPs, {len(seen)} seen limited, {lines} lines in debugfs, a file took {worst * 1e3:.0f} ms at most; a reader read {reader.touched()} files")
    check(reader.running() and reader.touched() > 10, f"the reader read {reader.touched()} files")
    check(len(seen) > made // 8, f"of {made} QPs {len(seen)} were seen limited")
    steady.finish(60)


def ip_batch(lines, namespace=None):
    """ip's commands, all in one process."""
    run("ip", *(("-n", namespace) if namespace else ()), "-batch", "-", text="\n".join(lines))


class Many:
    """Namespaces, each with an rxe device on one end of a veth, whose other end is in
    one namespace with all the others."""

    HUB = f"{PREFIX}hub"

    def __init__(self, count):
        self.names = [f"{PREFIX}m{n}" for n in range(count)]
        cleanup(self.down)
        # Few processes, for each costs an emulated machine 50 ms.
        ip_batch(f"netns add {name}" for name in (self.HUB, *self.names))
        ip_batch((f"link add v{n} up type veth peer name eth0 netns {name}" for n, name in enumerate(self.names)), self.HUB)
        for n, name in enumerate(self.names):
            ip_batch((f"addr add {self.ip(n)} dev eth0", "link set eth0 up"), name)
            with roce.netns(name):
                run("rdma", "link", "add", f"{PREFIX}many{n}", "type", "rxe", "netdev", "eth0")

    @staticmethod
    def ip(n):
        return f"10.20.{n // 250}.{n % 250 + 2}/16"

    def counters(self):
        return [counters(f"{PREFIX}many{n}") for n in range(len(self.names))]

    def down(self):
        for name in (*self.names, self.HUB):
            run("ip", "netns", "del", name, fail=False)

    def gone(self):
        return not [d for d in os.listdir("/sys/class/infiniband") if d.startswith(f"{PREFIX}many")]


@case
def a_hundred_namespaces_with_a_device_each():
    # While namespaces share RDMA devices, each device has thousands of files in each of them:
    # 8 GB for a hundred, and the kernel is busy for minutes with taking them away.
    net.down()
    exclusive_devices()
    started = time.monotonic()
    many = Many(NAMESPACES)
    note(f"{NAMESPACES} namespaces in {time.monotonic() - started:.0f} s")
    have = [len(c) > len(STANDARD) for c in many.counters()]
    check(all(have), f"devices without counters: {have.count(False)}")
    for n in range(NAMESPACES):
        with roce.netns(Many.HUB), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
            raw.bind((f"v{n}", 0))
            target = roce.neighbour_mac(many.names[n])
            ip = Many.ip(n).split("/")[0]
            packets = [roce.cnp("10.20.0.1", ip, 0x1234)] * (n % 3 + 1)
            packets.append(roce.udp_ip("10.20.0.1", ip, roce.bth(roce.RC_SEND_ONLY, 0x1234, STALE), ecn=roce.CE))
            for packet in packets:
                raw.send(roce.frame(target, raw.getsockname()[4], packet))

    def counted():
        return [(c["rp_cnp_unknown_qp"], c["np_ce_invalid"]) for c in many.counters()]
    want = [(n % 3 + 1, 1) for n in range(NAMESPACES)]
    wait_until(lambda: counted() == want, 5, 0.1)
    equal(counted(), want, "CNPs and marks of each device")
    with roce.netns(many.names[-1]):
        knobs = run("unshare", "--mount", "sh", "-c", "mount -t sysfs none /sys && ls /sys/class/net/eth0/ecn")
    equal(knobs.split(), ["roce_np", "roce_rp", "rxe_cc"], "the knobs' directories of the last one")
    started = time.monotonic()
    half = many.names[::2]
    for name in half:
        run("ip", "netns", "del", name)
    # The other half goes while the module does.
    unload = subprocess.Popen(["rmmod", "rxe_cc"])
    many.down()
    equal(unload.wait(60), 0, "status of rmmod")
    check(wait_until(many.gone, 60, 0.2), "devices outlive their namespaces")
    Module.load()
    note(f"all gone after {time.monotonic() - started:.1f} s")


main(setup, ("ip", "tc", "nft", "rdma", "unshare"))
