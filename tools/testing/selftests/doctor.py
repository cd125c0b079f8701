# SPDX-License-Identifier: GPL-2.0
"""rxecc doctor: each fault is set up on purpose, with the real module and network,
and found by its name, of the right device, with a remedy; nothing else is found beside
it, and nothing in an experiment that works. The last case compares what was found with
the list of checks in Documentation/doctor.md.

The experiment: writes from h1 to h2 that never end, every 30th packet marked, which
needs no machine of a certain speed, and the paper's parameters in slow motion. QPs are
lib/qp.c's with an ack timeout of four seconds, so a machine that stands still for a
moment neither ends the stream nor makes it repeat anything. h3 only looks on.
"""
import json
import re
import shutil
import subprocess
import sys
import threading

import rp
from lab import *

PAPER = ("preset", "paper", "--bottleneck", "40mbit", "--all")
# A link so slow that streams leave the machine time for everything else.
SLOW = ("--rate", "8mbit")
RED = (*SLOW, "--mark", "red")
MARKS = (*SLOW, "--mark", "every:30")
SWITCH = f"{PREFIX}sw"
MACHINE = "this machine"
AT_REST = ("--watch-for", "0.3")
# For what shows at once.
QUICK = ("--watch-for", "1")

# Found so far, by name.
seen = set()
# What no guest can be made to have; cargo's tests have it (reaction.rs).
NOT_HERE = {"cnp_no_memory"}


def setup():
    global net, h1, h2, h3
    net = Network(3)
    h1, h2, h3 = net.hosts
    rxecc(*PAPER)


def doctor(*words, prefix=()):
    """What it found, and how many packets it saw; `prefix` runs it."""
    done = subprocess.run([*prefix, "rxecc", "doctor", "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    check(done.returncode in (0, 1), f"rxecc doctor: status {done.returncode}: {done.stderr}")
    told = json.loads(done.stdout)
    found = told["findings"]
    equal(done.returncode, 1 if found else 0, "the status")
    for finding in found:
        note(f"{finding['check']}: {finding['subject']}: {finding['text']}. Remedy: {finding['remedy']}")
        check(finding["text"] and finding["remedy"], f"a finding without a text or remedy: {finding}")
        check("\n" not in finding["text"] + finding["remedy"], "a finding of several lines")
    return found, told["roce_packets"]


def expect(*wanted, words=(), prefix=(), again=False, perhaps=()):
    """Exactly these are found; each is (check, subject, words in its text and remedy).
    Checks named in `perhaps` may be beside them.
    A machine that stood still showed nothing: then once more, or whenever nothing is
    found, if `again`."""
    for _ in range(4):
        found, packets = doctor(*words, prefix=prefix)
        if found or not wanted or (packets > 50 and not again):
            break
        note(f"nothing found, {packets} packets seen")
    equal(sorted((f["check"], f["subject"]) for f in found if f["check"] not in perhaps), sorted((name, subject) for name, subject, *_ in wanted), "findings")
    for name, subject, *parts in wanted:
        finding = next(f for f in found if (f["check"], f["subject"]) == (name, subject))
        for part in parts:
            check(part in f"{finding['text']} {finding['remedy']}", f"no '{part}' in {finding}")
        seen.add(name)
    return found


def obey(found):
    """Do what the remedies say that are one command."""
    for finding in found:
        run(*re.split(r" \(|,", finding["remedy"])[0].split())


class Traffic:
    """Writes of `client`'s QPs to `server`, one after the other, until the case is
    over; `begun` packets have arrived."""

    def __init__(self, client=None, server=None, count=1, tclass=0, timeout=20, window=16, size=65536, begun=200):
        self.client, self.server = client or h1, server or h2
        self.window, self.size = window, size
        self.pairs = rp.Pairs(self.client, self.server, count, tclass=tclass, timeout=timeout)
        self.error, self.stopping = None, False
        self.thread = threading.Thread(target=self.feed, daemon=True)
        self.thread.start()
        cleanup(self.stop)
        if begun:
            self.flows(begun)

    def flows(self, packets=100):
        """So many more arrive. When a port is set anew all that waited there is lost, and
        the transport needs its ack timeout to see that."""
        before = self.packets()
        came = wait_until(lambda: self.error or self.packets() > before + packets, 40, 0.05)
        self.alive()
        check(came, "the stream stands still")

    def packets(self):
        return self.server.counters(True)["rcvd_pkts"]

    def feed(self):
        try:
            self.pairs.post("write", self.window, self.size)
            while not self.stopping:
                for qp in self.pairs.ours:
                    qp.poll(self.window // 2, 3600)
                    qp.post("write", self.window // 2, self.size, self.pairs.memory)
        except Exception as error:  # noqa: BLE001
            self.error = error

    def alive(self):
        check(not self.error, f"the stream ended: {self.error}")

    def stop(self):
        """As kill -9 does; what is held then goes at once."""
        if self.stopping:
            return
        self.alive()
        self.stopping = True
        self.pairs.left.kill()
        self.pairs.left.process.wait()
        self.thread.join(10)


def cnps_at(host):
    counted = host.counters()
    return counted["rp_cnp_handled"] + counted["rp_cnp_ignored"]


# How the switch's ports are now; to set one anew takes a second or two.
_ports = {}


def ports(**wanted):
    """The ports towards these hosts are like this, all others plain."""
    for host in net.hosts:
        options = wanted.get(host.name, ())
        if _ports.get(host.name, ()) != options:
            run(*FABRIC, "port", host.name, *options)
            _ports[host.name] = options


def congested(*port, **traffic):
    """The experiment, with CNPs on their way."""
    ports(h2=port or MARKS)
    before = cnps_at(h1)
    stream = Traffic(**traffic)
    check(wait_until(lambda: cnps_at(h1) > before + 3, 20, 0.05), "no CNPs")
    return stream


def queue(host, *words):
    """One that samples/fabric does not make."""
    _ports[host] = None
    run("tc", "-n", SWITCH, "qdisc", "replace", "dev", host, *words)


# Nothing flows ------------------------------------------------------------------

@case
def a_machine_at_rest_that_is_set_up_has_no_finding_and_others_than_root_may_ask():
    text = rxecc("doctor", *AT_REST)
    check(text.startswith("nothing found; checked: ") and "no RoCE traffic" in text and len(text.splitlines()) == 1, text)
    expect(words=AT_REST)
    if shutil.which("setpriv"):
        text = rxecc("doctor", *AT_REST, prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
        check("not checked without root" in text, text)


@case
def json_and_help_say_what_there_is_and_errors_have_a_status_of_their_own():
    told = json.loads(rxecc("doctor", "--json", "-d", h2.namespace, "--watch-for", "0"))
    equal((told["devices"], told["findings"], told["as_root"], told["roce_packets"]), ([h2.device], [], True, 0), "JSON")
    equal(set(told["checked"]), documented(), "checks, and rows of doctor.md")
    for words, said in (("-d", "rxe77"), "no soft-RoCE device rxe77"), (("--watch-for=-1",), "0 to 86400"), (("--watch-for", "x"), "--watch-for"):
        text = rxecc("doctor", *words, status=2)
        check(said in text, text)
    lines = [line.strip() for line in rxecc("doctor", "--help").splitlines() if line.startswith("  rxecc doctor")]
    check(len(lines) >= 3, f"{lines}")
    for line in lines:
        words = re.split(r"  +", line)[0].split()[1:]
        rxecc(*[PREFIX + word if word.startswith("rxe") else "1" if word == "10" else word for word in words])


def documented():
    return set(re.findall(r"^\| `(\w+)` \|", read(f"{ROOT}/Documentation/doctor.md"), re.M))


@case
def links_that_are_down_and_two_devices_in_one_namespace():
    run("ip", "-n", h1.namespace, "link", "set", "eth0", "down")
    cleanup(run, "ip", "-n", h1.namespace, "link", "set", "eth0", "up")
    run("ip", "-n", SWITCH, "link", "set", "h2", "down")
    cleanup(run, "ip", "-n", SWITCH, "link", "set", "h2", "up")
    run("ip", "-n", h3.namespace, "link", "add", "d0", "type", "veth", "peer", "name", "d1")
    cleanup(run, "ip", "-n", h3.namespace, "link", "del", "d0")
    for netdev in "d0", "d1":
        run("ip", "-n", h3.namespace, "link", "set", netdev, "up")
    run("ip", "-n", h3.namespace, "addr", "add", "10.0.0.77/24", "dev", "d0")
    h3.exec("rdma", "link", "add", f"{PREFIX}rxe9", "type", "rxe", "netdev", "d0")
    cleanup(h3.exec, "rdma", "link", "del", f"{PREFIX}rxe9")
    # A new device has a new one's knobs.
    rxecc("set", "line_rate", "40", "-d", f"{PREFIX}rxe9")
    rxecc("set", "dilation", "1000", "-d", f"{PREFIX}rxe9")
    found = expect(("interface_down", h1.device, "is down", f"ip -n {h1.namespace} link set eth0 up"),
                   ("interface_down", h2.device, "no carrier"),
                   ("two_devices", f"{h3.device} and {PREFIX}rxe9", "namespace of its own"), words=AT_REST)
    obey(found[:1])
    expect(("interface_down", h2.device), ("two_devices", f"{h3.device} and {PREFIX}rxe9"), words=AT_REST)


@case
def knobs_that_do_not_fit_the_link_or_each_other():
    h1.set(line_rate=0)
    h2.set(dilation=10)
    expect(("line_rate", h1.device, "fiction", f"rxecc set line_rate N -d {h1.device}", "rxecc calibrate"),
           ("dilation_differs", f"{h1.device}, {h2.device}, {h3.device}", f"{h2.device} 10", "rxecc set dilation 1000 --all"), words=AT_REST)
    h1.write("rxe_cc/line_rate", 40)
    h2.write("rxe_cc/dilation", 1000)
    h1.set(rpg_min_rate=100000, rate_to_set_on_first_cnp=50000, rpg_min_dec_fac=100, rpg_gd=15)
    found = expect(*[("knob_conflict", h1.device)] * 4, words=AT_REST)
    equal([re.match(r"rxecc set (\S+) ", f["remedy"])[1] for f in found],
          ["rpg_min_rate", "rate_to_set_on_first_cnp", "rpg_min_dec_fac", "rpg_gd"], "knobs")
    obey(found)
    expect(words=AT_REST)


@case
def halves_that_are_off_and_queues_that_do_not_mark_as_they_should():
    h2.enable("roce_np", False)
    h1.enable("roce_rp", False)
    ports(h2=RED)
    queue("h2", "parent", "2:1", "handle", "9:", *"red limit 400000 min 15000 max 45000 avpkt 1100 burst 20 probability 0.2 bandwidth 8mbit".split())
    queue("h3", "root", "netem", "limit", "1000", "loss", "1%", "ecn")
    expect(("np_off", h2.device, "every priority", f"rxecc set roce_np/enable 1 -d {h2.device}"),
           ("rp_off", h1.device, "every priority", f"rxecc set roce_rp/enable 1 -d {h1.device}"),
           ("red_without_ecn", f"{SWITCH}/h2", f"tc -n {SWITCH} qdisc change dev h2", "ecn"),
           ("netem_ecn", f"{SWITCH}/h3", "at random", "--mark red"), words=AT_REST)


# Marks --------------------------------------------------------------------------

@case
def data_that_nobody_marks_and_why():
    ports(h2=SLOW)
    stream = Traffic(timeout=17)
    expect(("no_marks", h2.device, "no queue here marks", f"RED on {SWITCH}/h2"), words=QUICK)
    ports(h2=SLOW, h3=RED)
    expect(("no_marks", h2.device, f"on {SWITCH}/h3, and they do not pass it", f"put it on {SWITCH}/h2"), words=QUICK)
    ports(h1=RED, h2=SLOW, h3=RED)
    expect(("no_marks", h2.device, f"on {SWITCH}/h1, the way of the ACKs", f"put it on {SWITCH}/h2"), words=QUICK)
    ports(h2=(*SLOW, "--mark", "red:200000:390000:0.1"))
    stream.flows()
    expect(("no_marks", h2.device, "below its threshold of 200000 bytes"), words=QUICK)


@case
def data_that_lose_their_ect_on_the_way_to_red():
    firewall(h1, "postrouting", "udp dport 4791 ip ecn set not-ect")
    ports(h2=RED)
    Traffic(timeout=17)
    wait_until(lambda: "early 0" not in run("tc", "-s", "-n", SWITCH, "qdisc", "show", "dev", "h2"), 10)
    expect(("no_marks", h2.device, "they came as Not-ECT", "clears the ECN bits"))


@case
def marks_on_the_way_of_the_acks():
    ports(h1=("--mark", "force"), h2=SLOW)
    Traffic()
    expect(("wrong_egress", h1.device, f"{SWITCH}/h1"), words=QUICK)


@case
def data_that_leave_as_not_ect_and_what_cures_it():
    h1.set(ect_mode="pass")
    ports(h2=MARKS)
    stream = Traffic()
    found = expect(("not_ect", h1.device, "--tclass=2"), words=QUICK)
    obey(found)
    equal(h1.knob("rxe_cc/ect_mode"), "rewrite", "ect_mode after the remedy")
    expect(words=QUICK)
    stream.stop()
    h1.write("rxe_cc/ect_mode", "pass")
    Traffic(tclass=2)
    expect(words=QUICK)


@case
def data_that_are_born_marked():
    h1.set(ect_mode="pass", rpg_min_rate=2000)
    ports(h2=SLOW)
    Traffic(tclass=3)
    # Marks without end lead there.
    expect(("born_ce", h1.device, "--tclass=2", "rxecc set ect_mode rewrite"), ("at_the_floor", h1.device), words=QUICK)


@case
def an_experiment_that_works_has_no_finding():
    stream = congested(*RED, timeout=17)
    expect()
    ports(h2=MARKS)
    stream.flows()
    expect()
    # One of the two alone is no reason for one either.
    for host in h1, h2:
        expect(words=("-d", host.device, *QUICK))


# CNPs ---------------------------------------------------------------------------

@case
def halves_that_are_off_for_the_priority_in_use():
    # DSCP 24 is priority 3.
    congested(tclass=96)
    h1.enable("roce_rp", False, [3])
    expect(("rp_off", h1.device, "priority 3, which is in use", "CNPs were ignored", f"rxecc set roce_rp/enable 1 -d {h1.device}"), words=QUICK)
    h2.enable("roce_np", False, [3, 4])
    h1.write("roce_rp/enable/3", 1)
    expect(("np_off", h2.device, "priorities 3, 4, one of which is in use", "marks were not answered", f"rxecc set roce_np/enable 1 -d {h2.device}"), words=QUICK)
    # Off for priorities that nobody uses is fine.
    h2.write("roce_np/enable/3", 1)
    h1.enable("roce_rp", False, [0])
    expect(words=QUICK)


def firewall(host, hook, rule):
    host.exec("nft", "-f", "-", text=f"table inet doctor {{ chain {hook} {{ type filter hook {hook} priority 0; {rule}; }}; }}\n")
    cleanup(host.exec, "nft", "delete", "table", "inet", "doctor")


@case
def firewalls_that_drop_cnps():
    congested()
    firewall(h1, "input", "udp dport 4791 udp sport 0 drop")
    expect(("cnp_lost", h1.device, "table inet doctor, chain input", "source port 0"))
    h1.exec("nft", "flush", "table", "inet", "doctor")
    firewall(h2, "output", "udp dport 4791 udp sport 0 drop")
    expect(("cnp_send_failed", h2.device, "table inet doctor, chain output", "no firewall"))


@case
def cnps_and_marks_that_are_ignored_and_why():
    stream = congested()
    own = str(stream.pairs.ours[0].qpn)
    to, ce = ("cnp", "--to", h1.device, "--from", h2.device, "--qpn"), ("ce", "--to", h2.device, "--from", h1.device, "--qpn")
    reasons = {
        "cnp_bad_icrc": (h1, "rp_cnp_bad_icrc", *to, own, "--bad-icrc"),
        "cnp_malformed": (h1, "rp_cnp_malformed", *to, own, "--tver", "1"),
        "cnp_wrong_peer": (h1, "rp_cnp_wrong_peer", *to, own, "--source", "10.0.0.9"),
        "cnp_unknown_qp": (h1, "rp_cnp_unknown_qp", *to, "0xfff"),
        "marks_invalid": (h2, "np_ce_invalid", *ce, "0xfff", "--psn", "0"),
    }
    before = {host: host.counters() for host in (h1, h2)}
    injectors = []
    for _, _, *words in reasons.values():
        injectors.append(subprocess.Popen(["rxecc", "inject", *words, "--count", "100000", "--interval-us", "5000"],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        cleanup(injectors[-1].wait)
        cleanup(injectors[-1].terminate)

    def missing():
        return [counter for host, counter, *_ in reasons.values() if host.counters()[counter] == before[host][counter]]
    wait_until(lambda: not missing() or any(one.poll() for one in injectors), 30, 0.05)
    said = [one.stderr.read() for one in injectors if one.poll()]
    check(not missing() and not said, f"injected in vain: {missing()} {said}")
    expect(*[(name, host.device) for name, (host, *_) in reasons.items()], words=QUICK)


# The limiter --------------------------------------------------------------------

@case
def two_hosts_of_different_dilation_that_talk_to_each_other():
    h2.set(dilation=10)
    h3.set(dilation=1)
    congested()
    expect(("dilation_differs", f"{h1.device}, {h2.device}", "rxecc set dilation 1000 --all"), words=QUICK)


@case
def the_defaults_of_a_connectx_on_a_slow_link():
    cleanup(rxecc, *PAPER)
    rxecc("preset", "connectx", "--dilation", "1", "--all")
    congested()
    expect(("time_constants", h1.device, "dce_tcp_rtt", "rxecc set dilation", "--all"), words=QUICK)


@case
def a_limiter_that_lets_go_at_once():
    # A cut takes next to nothing, and the next packet completes stages that lead back to
    # the maximum. A look may fall between the two.
    h1.set(rpg_min_dec_fac=99, rpg_byte_reset=1, rpg_threshold=1, rpg_ai_rate=4294967295)
    h2.set(min_time_between_cnps=150)
    congested("--mark", "every:30")
    expect(("never_limited", h1.device, "rxecc calibrate"), words=QUICK, again=True)


@case
def qps_that_cannot_go_lower():
    h1.set(rpg_min_rate=2000)
    congested(*SLOW, "--mark", "all", count=4)
    rates = []

    def down():
        rates[:] = [line.model_rc for line in rp.state(h1).values() if line.limited]
        return len(rates) == 4 and max(rates) <= 2000e6
    check(wait_until(down, 20, 0.1), f"rates: {rates}")
    obey(expect(("at_the_floor", h1.device, "all 4 limited QPs", f"rxecc set rpg_min_rate 1 -d {h1.device}"), words=QUICK))
    equal(h1.knob("roce_rp/rpg_min_rate"), "1", "rpg_min_rate after the remedy")


@case
def packets_that_are_held_for_ever():
    for host in net.hosts:
        host.set(dilation=100000)
    h1.set(rate_to_set_on_first_cnp=1)
    ports(h2=MARKS)
    Traffic(begun=0)
    check(wait_until(lambda: h1.counters()["rp_held_packets"] > 10, 20), "nothing is held")
    time.sleep(0.5)
    expect(("held_for_ever", h1.device, "held all the time", f"rxecc set rpg_min_rate N -d {h1.device}"))


@case
def a_transport_that_repeats_what_is_held():
    # Short messages: rxe goes back once for each that ended.
    congested(*MARKS, "--loss", "3%", timeout=17, size=4096, window=64)
    expect(("rewinds", h1.device, "ack timeout of 14"), words=("--watch-for", "4"))


@case
def read_responses_that_find_no_room():
    ports()
    size = 8 * rp.MIB
    h2.set(rate_to_set_on_first_cnp=500, rpg_ai_rate=1)
    reader, source = rp.Copy(h1, size), rp.Copy(h2, size)
    cleanup(reader.process.kill)
    reader.tell("connect", f"::ffff:{h2.ip}", source.qpn)
    source.tell("connect", f"::ffff:{h1.ip}", reader.qpn)
    rp.send_cnps(h2, h1, [source])
    # They are dropped while the responder makes them all, which is over in a moment: the
    # READ begins while one looks.
    read_all = threading.Timer(2, lambda: reader.tell("read", source.rkey, source.address, size, wait=False))
    cleanup(read_all.join)
    read_all.start()
    # A machine that stands still lets the reader's ack timer fire, and it asks again.
    expect(("responses_dropped", h2.device, "4 MiB", "-o"), words=("--watch-for", "5"), perhaps=("rewinds",))


@case
def a_stream_of_a_host_to_itself():
    ports()
    Traffic(client=h1, server=h1)
    expect(("loopback", h1.device, "namespace of its own"), words=QUICK)


# Without modules or network, last -----------------------------------------------

def elsewhere(script):
    """rxecc in a mount namespace that the script changes."""
    return ("unshare", "-m", "sh", "-ec", f'{script}\nexec "$@"', "-")


@case
def devices_and_kernels_without_the_module():
    # What counters came to in other cases is no fault of this one.
    Module.unload()
    Module.load()
    rxecc(*PAPER)
    port = f"/sys/class/infiniband/{h2.device}/ports/1"
    hidden = elsewhere(f"mount --bind {port}/hw_counters /mnt; mount -t tmpfs none {port}; mkdir {port}/hw_counters; mount --move /mnt {port}/hw_counters")
    expect(("device_without_module", h2.device, "dmesg"), words=AT_REST, prefix=hidden)
    Module.unload()
    cleanup(rxecc, *PAPER)
    cleanup(Module.load)
    expect(("no_module", MACHINE, "insmod"), words=AT_REST)
    release = read("/proc/sys/kernel/osrelease")
    config = f'mount -t tmpfs none /boot; echo "CONFIG_RUST=%s" >/boot/config-{release}'
    expect(("no_module", MACHINE), words=AT_REST, prefix=elsewhere(config % "y"))
    expect(("kernel", MACHINE, "without CONFIG_RUST"), words=AT_REST, prefix=elsewhere(config % "n"))
    old = f"mount -t tmpfs none /mnt; echo 6.12.9-amd64 >/mnt/old; mount --bind /mnt/old /proc/sys/kernel/osrelease"
    expect(("kernel", MACHINE, "6.12.9-amd64 is too old"), words=AT_REST, prefix=elsewhere(old))


@case
def no_device_exclusive_namespaces_and_a_kernel_without_rxe():
    net.down()
    expect(("no_device", MACHINE, "rdma link add"), words=AT_REST)
    exclusive_devices()
    expect(("netns_exclusive", MACHINE, "rdma system set netns shared"), ("no_device", MACHINE), words=AT_REST)
    obey([{"remedy": "rdma system set netns shared"}])
    Module.unload()
    run("rmmod", "rdma_rxe")
    expect(("no_module", MACHINE, "insmod"), ("no_device", MACHINE), words=AT_REST)
    expect(("kernel", MACHINE, "has no rdma_rxe"), words=AT_REST, prefix=elsewhere("mount -t tmpfs none /lib/modules"))


@case
def every_check_of_the_documentation_was_seen_to_find_its_fault():
    if sys.argv[1:]:
        raise Skip("only some of the cases ran")
    equal(documented() - seen, NOT_HERE, "checks that found nothing")


main(setup, ("ip", "tc", "nft", "rdma", "unshare", "rxecc"))
