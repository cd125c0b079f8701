# SPDX-License-Identifier: GPL-2.0
"""What the tests work with: a network of samples/fabric, its hosts with their
knobs and counters, QPs, perftest streams, captures, and the module.

In: names of hosts, knobs and counters as users know them. Out: values; a
`ktap.Failure` where a rule is broken, `roce.Lost` or `Skip` where nothing can be
said. Rules themselves stand in the tests.
"""
import atexit
import ctypes
import glob
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections import namedtuple

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(f"{HERE}/../../../..")
sys.path.insert(0, f"{ROOT}/samples/lib")

import ktap  # noqa: E402
import roce  # noqa: E402
from ktap import Failure, Skip, check, cleanup, equal, note  # noqa: E402,F401

SCRATCH = os.environ.get("RXE_CC_SCRATCH") or "/tmp/rxe_cc-selftests"
PREFIX = "st-"
FABRIC = [f"{ROOT}/samples/fabric", "--prefix", PREFIX]
HW = "/sys/class/infiniband/{}/ports/1/hw_counters"
OURS = "/sys/class/infiniband/{}/ports/1/rxe_cc"
STANDARD = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")

_libc = ctypes.CDLL(None, use_errno=True)


# Where time is not judged, it may take a while.
PATIENCE = 5 if os.environ.get("RXE_CC_REPORTS") else 1


def run(*command, timeout=60, fail=True, text=None):
    """Its output (both streams); Failure when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout * PATIENCE, input=text)
    if fail and done.returncode:
        raise Failure(f"{' '.join(command)}: status {done.returncode}: {done.stdout.strip()[-500:]}")
    return done.stdout


def wait_until(condition, seconds, step=0.02):
    """Whether it became true; the last chance is at the end."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(step)


def read(path):
    with open(path) as file:
        return file.read().rstrip("\n")


# The kernel's log -------------------------------------------------------------

SPLAT = re.compile(
    r"WARNING:|BUG:|\bOops\b|INFO: (possible|rcu|task)|\bdeadlock\b|inconsistent lock|suspicious RCU|blocked for more than"
    r"|refcount|leaked|memory leak|UBSAN|KASAN|general protection|cleanup failed|panicked|stuck for|RIP:|Call Trace"
    r"|unregister_netdevice: waiting|use-after-free|kobject.*(duplicate|tried)"
    # What kernels with more checks say beyond that.
    r"|turning off the locking|non-static key|list_\w+ corruption|ODEBUG|ref_tracker: (?!memory allocation failure)|kmemleak: Cannot|detected stalls?\b")


class Log:
    """What the kernel wrote since `mark`."""

    def __init__(self):
        self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.file, 0, os.SEEK_END)

    def lines(self):
        lines = []
        while True:
            try:
                record = os.read(self.file, 8192).decode(errors="replace")
            except BlockingIOError:
                return lines
            except BrokenPipeError:
                lines.append("BUG: the kernel's log overflowed")
                continue
            lines.append(record.split(";", 1)[1].split("\n")[0])


_log = None
last_log = []


def log_complaints():
    """Also leaves the lines in last_log, for those who count them."""
    global last_log
    last_log = _log.lines() if _log else []
    bad = [line for line in last_log if SPLAT.search(line)]
    return [f"kernel log: {line}" for line in bad[:5]]


# The module -------------------------------------------------------------------

class Module:
    @staticmethod
    def loaded():
        return os.path.isdir("/sys/module/rxe_cc")

    @staticmethod
    def load():
        if Module.loaded():
            return
        if not os.path.isdir("/sys/module/rdma_rxe"):
            run("modprobe", "rdma_rxe")
        path = os.environ.get("RXE_CC_KO")
        if path:
            run("insmod", path)
        else:
            run("modprobe", "rxe_cc")

    @staticmethod
    def unload(timeout=30):
        run("rmmod", "rxe_cc", timeout=timeout)


def need_module():
    if not Module.loaded():
        try:
            Module.load()
        except Failure as failure:
            raise Skip(f"rxe_cc cannot be loaded: {failure}") from None


# Counters ---------------------------------------------------------------------

def devices():
    """All devices with our counters."""
    return sorted(os.path.basename(d) for d in glob.glob("/sys/class/infiniband/*") if os.path.isdir(OURS.format(os.path.basename(d))))


def counters(device, rxe_too=False):
    values = {}
    for directory, names in (HW.format(device), None if rxe_too else STANDARD), (OURS.format(device), None):
        try:
            for name in names or os.listdir(directory):
                with open(f"{directory}/{name}") as file:
                    values[name] = int(file.read())
        except FileNotFoundError:
            pass
    return values


IGNORED = ("rp_cnp_disabled", "rp_cnp_malformed", "rp_cnp_bad_icrc", "rp_cnp_unknown_qp", "rp_cnp_wrong_peer", "rp_cnp_no_memory")


def broken_invariants(c):
    """Of one device's counters."""
    rules = (
        ("np_ecn_marked_roce_packets",
         ("np_cnp_immediate", "np_cnp_suppressed", "np_ce_disabled", "np_ce_not_data", "np_ce_invalid")),
        ("np_cnp_sent np_cnp_send_failed", ("np_cnp_immediate", "np_cnp_deferred")),
        ("rp_cnp_ignored", IGNORED),
    )
    broken = []
    for left, right in rules:
        one, other = sum(c[n] for n in left.split()), sum(c[n] for n in right)
        if one != other:
            broken.append(f"{left} = {one}, but {' + '.join(right)} = {other}")
    return broken


def invariant_complaints():
    """Once traffic rests: what waits for a resolve or a window's end may take a moment."""
    found = {}

    def fine():
        found.clear()
        for device in devices():
            try:
                broken = broken_invariants(counters(device))
            except (OSError, KeyError):
                continue
            if broken:
                found[device] = broken
        return not found

    wait_until(fine, 3, 0.1)
    return [f"invariant of {device}: {text}" for device, texts in found.items() for text in texts]


# Hosts --------------------------------------------------------------------------

class Host:
    def __init__(self, number):
        self.number = number
        self.name = f"h{number}"
        self.namespace = f"{PREFIX}h{number}"
        self.device = f"{PREFIX}rxe{number}"
        self.ip = f"10.0.0.{number}"
        self.ip6 = f"fd00::{number}"
        self.vlan_ip = f"10.0.1.{number}"
        self.netdev = "eth0"
        self.sys = f"{SCRATCH}/sys/{self.namespace}"
        os.makedirs(self.sys, exist_ok=True)
        with roce.netns(self.namespace):
            if _libc.mount(b"sysfs", self.sys.encode(), b"sysfs", 0, None):
                raise OSError(ctypes.get_errno(), "mount sysfs")
        self.mac = roce.neighbour_mac(self.namespace)
        self._sender = None
        self._gids = {}

    def close(self):
        _libc.umount2(self.sys.encode(), 2)
        if self._sender:
            self._sender.socket.close()

    def knows(self, ip, mac):
        """So that no packet of a test waits for ARP."""
        run("ip", "-n", self.namespace, "neigh", "replace", ip, "lladdr", mac_text(mac), "dev", "eth0", "nud", "permanent")

    # Device

    def remove_device(self):
        self.exec("rdma", "link", "del", self.device)

    def add_device(self):
        self.exec("rdma", "link", "add", self.device, "type", "rxe", "netdev", self.netdev)
        self._gids.clear()

    def renew_device(self):
        """Another one of the same name: knobs with their defaults, and rxe counts its
        QPNs from the beginning."""
        self.remove_device()
        self.add_device()

    def live_qps(self):
        text = run("rdma", "resource", "show", "qp", fail=False)
        return sum(f"link {self.device}/" in line and "type GSI" not in line for line in text.splitlines())

    # Knobs

    def knob_path(self, knob):
        return f"{self.sys}/class/net/{self.netdev}/ecn/{knob}"

    def knob(self, knob):
        return read(self.knob_path(knob))

    def write(self, knob, value):
        """As a user would; OSError as the kernel gives it."""
        fd = os.open(self.knob_path(knob), os.O_WRONLY)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)

    def set(self, **knobs):
        """Knobs of roce_np, roce_rp or rxe_cc by their names; put back when the case
        is over."""
        for name, value in knobs.items():
            knob = self.where(name)
            old = self.knob(knob)
            if old != str(value):
                cleanup(self._restore, knob, old)
                self.write(knob, value)

    def _restore(self, knob, value):
        if os.path.exists(self.knob_path(knob)):
            self.write(knob, value)

    def where(self, name):
        for group in "roce_np", "roce_rp", "rxe_cc":
            if os.path.exists(self.knob_path(f"{group}/{name}")):
                return f"{group}/{name}"
        raise Failure(f"no knob {name} on {self.name}")

    def enable(self, half, on, priorities=range(8)):
        """half: roce_np or roce_rp."""
        for priority in priorities:
            knob = f"{half}/enable/{priority}"
            old = self.knob(knob)
            if old != str(int(on)):
                cleanup(self._restore, knob, old)
                self.write(knob, int(on))

    # Counters

    def counters(self, rxe_too=False):
        return counters(self.device, rxe_too)

    def udp_datagrams(self):
        """Datagrams that reached a UDP socket of this namespace, rxe's included."""
        total = 0
        with roce.netns(self.namespace):
            with open("/proc/thread-self/net/snmp") as file:
                lines = [line.split() for line in file if line.startswith("Udp:")]
            total += int(lines[1][lines[0].index("InDatagrams")])
            with open("/proc/thread-self/net/snmp6") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Udp6InDatagrams"))
        return total

    # Packets and programs

    @property
    def sender(self):
        if not self._sender:
            self._sender = roce.Sender(self.namespace)
        return self._sender

    def to(self, other, ip, tci=None):
        """A frame for another host of the network."""
        return roce.frame(other.mac, self.mac, ip, tci=tci)

    def gid(self, family=""):
        """Index; family: "", --ipv6 or --vlan."""
        if family not in self._gids:
            self._gids[family] = int(run(*FABRIC, "gid", self.name, *([family] if family else [])))
        return self._gids[family]

    def exec(self, *command, **options):
        return run("ip", "netns", "exec", self.namespace, *command, **options)

    def popen(self, *command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], **options)

    def qps(self, family=""):
        return QpTool(self, self.gid(family))


# States of the moment, not counters.
GAUGES = ("rp_limited_qps", "rp_held_packets", "rp_held_max_us")


class Change:
    """What counters of a host gained since it was made."""

    def __init__(self, host, rxe_too=False):
        self.host, self.rxe_too = host, rxe_too
        self.before = host.counters(rxe_too)

    def now(self):
        """Only those that changed."""
        after = self.host.counters(self.rxe_too)
        gained = {name: value - self.before.get(name, 0) for name, value in after.items() if name not in GAUGES}
        return {name: value for name, value in gained.items() if value}

    def settle(self, seconds=1.0, **want):
        """Wait until the named counters gained so much, then the exact comparison."""
        def there():
            got = self.now()
            return all(got.get(name, 0) == value for name, value in want.items())
        wait_until(there, seconds)
        got = self.now()
        for name, value in want.items():
            equal(got.get(name, 0), value, f"{self.host.name} {name} (all: {got})")
        return got


def _setting(path, value):
    """The machine's, until all cases are over."""
    ktap.at_end(_write, path, read(path))
    _write(path, value)


def _write(path, value):
    with open(path, "w") as file:
        file.write(f"{value}\n")


class Network:
    """A network of samples/fabric for the tests of one file."""

    def __init__(self, hosts=2, *options):
        run(*FABRIC, "down")
        atexit.register(self.down)
        ktap.at_end(self.down)
        run(*FABRIC, "up", "--hosts", str(hosts), *options, timeout=200)
        # Captures then say when a packet was received, not when it was queued for the
        # CPU that receives it; and a burst waits for a CPU that is late, none is lost.
        _setting("/proc/sys/net/core/netdev_tstamp_prequeue", 0)
        _setting("/proc/sys/net/core/netdev_max_backlog", 50000)
        self.hosts = [Host(n) for n in range(1, hosts + 1)]
        for host in self.hosts:
            for other in self.hosts:
                if other is not host:
                    host.knows(other.ip, other.mac)
                    if "--ipv6" in options:
                        host.knows(other.ip6, other.mac)
        self.up = True

    def port(self, hosts, *options):
        run(*FABRIC, "port", hosts, *options)
        cleanup(self._plain, hosts)

    def _plain(self, hosts):
        run(*FABRIC, "port", hosts)

    def marked(self, host):
        return int(run(*FABRIC, "marked", host))

    def down(self):
        if getattr(self, "up", False):
            self.up = False
            for host in self.hosts:
                host.close()
        run(*FABRIC, "down")


def mac_text(mac):
    return ":".join(f"{byte:02x}" for byte in mac)


def exclusive_devices():
    """RDMA devices are exclusive to their namespaces while the case lasts. No namespace may
    be there now, and none may stay."""
    run("rdma", "system", "set", "netns", "exclusive")
    cleanup(_shared_devices)


def _shared_devices():
    """As soon as the last namespace has gone."""
    check(wait_until(lambda: not subprocess.run(["rdma", "system", "set", "netns", "shared"], stderr=subprocess.DEVNULL).returncode, 30, 0.2),
          "RDMA devices stay exclusive to their namespaces")


# Packets ----------------------------------------------------------------------------

# A PSN that a QP which was just made does not expect.
STALE = 5


def marked_write(source, target, qpn, psn=STALE, **fields):
    """The IP packet of a WRITE with a CE mark, from one host to another one's QP."""
    return roce.udp_ip(source.ip, target.ip, roce.bth(roce.RC_WRITE_ONLY, qpn, psn) + roce.reth(), ecn=roce.CE, **fields)


# The user's command -------------------------------------------------------------------

def rxecc(*words, status=0, prefix=()):
    """All its output; `prefix` runs it."""
    words = [str(word) for word in words]
    done = subprocess.run([*prefix, "rxecc", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    equal(done.returncode, status, f"rxecc {' '.join(words)}: {done.stdout}{done.stderr}: status")
    return done.stdout + done.stderr


# QPs ------------------------------------------------------------------------------

def qp_program():
    """lib/qp.c, compiled once."""
    program = f"{SCRATCH}/qp"
    source = f"{HERE}/qp.c"
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        compiler = next((c for c in ("cc", "gcc", "gcc-14", "clang") if shutil.which(c)), None)
        if not compiler:
            raise Skip("no C compiler for lib/qp.c")
        os.makedirs(SCRATCH, exist_ok=True)
        run(compiler, "-O1", "-Wall", "-o", f"{program}.new", source, "-libverbs")
        os.rename(f"{program}.new", program)
    return program


def gid_text(ip):
    return ip if ":" in ip else f"::ffff:{ip}"


class Qp:
    """One QP of a QpTool."""

    def __init__(self, tool, number, qpn):
        self.tool, self.number, self.qpn = tool, number, qpn

    def rtr(self, peer_ip, peer_qpn, tclass=0, sl=0):
        self.tool.tell("rtr", self.number, gid_text(peer_ip), peer_qpn, tclass, sl)
        return self

    def rts(self, timeout=14):
        self.tool.tell("rts", self.number, timeout)
        return self

    def state(self, name):
        self.tool.tell("state", self.number, name)
        return self

    def query(self):
        return self.tool.tell("query", self.number)[0]

    def post(self, kind, count, size, memory=(0, 0)):
        self.tool.tell("post", self.number, kind, count, size, *memory)

    def datagrams(self, peer_ip, peer_qpn, count, size, tclass=0):
        self.tool.tell("ud", self.number, gid_text(peer_ip), peer_qpn, count, size, tclass)

    def recv(self, count):
        self.tool.tell("recv", self.number, count)

    def poll(self, count, seconds=20):
        self.tool.tell("poll", self.number, count, seconds)

    def join(self, group):
        self.tool.tell("join", self.number, gid_text(group))

    def destroy(self):
        self.tool.tell("destroy", self.number)


class QpTool:
    """A process with QPs on a host's device; gone when the case is over."""

    def __init__(self, host, gid):
        self.host = host
        self.process = host.popen(qp_program(), host.device, str(gid), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cleanup(self.close)
        self._answer("open")

    def _answer(self, what):
        line = self.process.stdout.readline().strip()
        if not line.startswith("ok"):
            raise Failure(f"qp on {self.host.name}: {what}: {line or 'it died'}")
        return line.split()[1:]

    def tell(self, *words):
        line = " ".join(str(w) for w in words)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer(line)

    def new(self, kind="rc", access="open"):
        number, qpn = self.tell("new", kind, access)
        return Qp(self, int(number), int(qpn))

    def memory(self):
        rkey, address, _ = self.tell("memory")
        return int(rkey), int(address)

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise Failure(f"the QPs of {self.host.name} took more than 10 s to go") from None

    def kill(self):
        self.process.kill()


def connected(a, b, kind="rc", family="", tclass=0):
    """Two QPs of two QpTools, connected and in RTS."""
    address = {"": "ip", "--ipv6": "ip6", "--vlan": "vlan_ip"}[family]
    one, two = a.new(kind), b.new(kind)
    one.rtr(getattr(b.host, address), two.qpn, tclass).rts()
    two.rtr(getattr(a.host, address), one.qpn, tclass).rts()
    return one, two


# Streams and captures -----------------------------------------------------------

class Stream:
    """perftest between two hosts, in the background."""

    def __init__(self, client, server, *options, tool="ib_write_bw", timeout=90, family=""):
        command = [*FABRIC, "stream", client.name, server.name, "--tool", tool, "--timeout", str(timeout)]
        command += ([family] if family else []) + ["--", *options]
        self.what = f"{tool} {client.name} {server.name} {' '.join(options)}"
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.timeout = timeout
        cleanup(self.stop)

    def running(self):
        return self.process.poll() is None

    def finish(self, fail=True):
        """Its output, when it has ended well."""
        try:
            out = self.process.communicate(timeout=self.timeout + 30)[0]
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.what} does not end") from None
        if fail and self.process.returncode:
            raise Failure(f"{self.what}: status {self.process.returncode}: {out.strip()[-700:]}")
        return out

    def stop(self):
        if self.running():
            self.process.terminate()
            self.process.wait()


# A RoCE frame of a capture; size: on the wire, without FCS.
Frame = namedtuple("Frame", "time_ns size packet")


class Dump:
    """tcpdump on a host, headers only; from its making on. Read it after stop. It wakes for
    each packet, or at `leisure`: many together, so that it takes little time from others."""

    kept = []

    def __init__(self, host, snap=128, device="eth0", leisure=False):
        self.host = host
        # The last ones arrive so late.
        self.last_s = 1.3 if leisure else 0.3
        how = ["nice", "-n", "19", "tcpdump"] if leisure else ["tcpdump", "--immediate-mode"]
        os.makedirs(f"{SCRATCH}/captures", exist_ok=True)
        self.path = f"{SCRATCH}/captures/{host.name}-{len(Dump.kept)}.pcap"
        Dump.kept.append(self.path)
        self.process = host.popen(*how, "-i", device, "-s", str(snap), "-B", "65536", "-w", self.path, "-Z", "root",
                                  "udp port 4791", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        cleanup(self.stop)
        line = self.process.stderr.readline()
        while line and "listening on" not in line:
            line = self.process.stderr.readline()
        # Until its filter is in place it loses packets that nobody counts, and a little
        # longer than it says.
        time.sleep(0.1)
        self.since_ns = time.time_ns()
        self.stopped = False

    def stop(self):
        if self.process.poll() is None:
            # Let what is still on its way arrive.
            time.sleep(self.last_s)
            self.process.send_signal(2)
        if self.stopped:
            return
        self.stopped = True
        text = self.process.stderr.read()
        self.process.wait()
        dropped = re.search(r"(\d+) packets dropped by kernel", text)
        if not dropped or int(dropped[1]):
            raise roce.Lost(f"tcpdump on {self.host.name} lost packets, nothing can be said: {text.strip()[-200:]}")

    def frames(self):
        """The RoCE frames; a packet is outgoing by the host's MAC address."""
        self.stop()
        own = self.host.mac
        with open(self.path, "rb") as file:
            data = file.read()
        order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
        scale = 1 if data[:4] in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 1000
        head = struct.Struct(f"{order}IIII")
        at = 24
        while at + 16 <= len(data):
            seconds, part, size, length = head.unpack_from(data, at)
            at += 16
            frame = data[at:at + size]
            at += size
            time_ns = seconds * 1_000_000_000 + part * scale
            packet = roce.Packet.read(frame, time_ns, frame[6:12] == own)
            if packet and time_ns >= self.since_ns:
                yield Frame(time_ns, length, packet)

    def packets(self):
        for frame in self.frames():
            yield frame.packet


def forget_captures():
    for path in Dump.kept:
        if os.path.exists(path):
            os.unlink(path)
    Dump.kept.clear()


def keep_captures(name):
    """A case failed: its captures go where the host of the guest finds them."""
    if not os.path.ismount("/share") and not os.environ.get("RXE_CC_KEEP"):
        return
    target = os.path.join(os.environ.get("RXE_CC_KEEP", "/share/selftests"), os.path.basename(sys.argv[0]), name)
    os.makedirs(target, exist_ok=True)
    for path in Dump.kept:
        if os.path.exists(path):
            shutil.copy(path, target)
    with open(f"{target}/dmesg", "w") as file:
        file.write("\n".join(last_log) + "\n")
    with open(f"{target}/counters", "w") as file:
        for device in devices():
            for key, value in counters(device, True).items():
                file.write(f"{device} {key} {value}\n")


def main(setup, need=("ip", "tc", "nft", "rdma")):
    """Run the file's cases in a network that `setup` makes."""
    def prepare():
        global _log
        if os.geteuid() != 0:
            raise Skip("needs root")
        missing = [tool for tool in need if not shutil.which(tool)]
        if missing:
            raise Skip(f"missing: {', '.join(missing)}")
        os.makedirs(SCRATCH, exist_ok=True)
        _log = Log()
        need_module()
        setup()

    ktap.after_each(invariant_complaints)
    ktap.after_each(log_complaints)
    ktap.main(prepare, keep_captures, forget_captures)


case = ktap.case
__all__ = [name for name in dir() if not name.startswith("_")]
