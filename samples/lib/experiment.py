# SPDX-License-Identifier: GPL-2.0
"""What the experiments share: senders, a receiver behind a slow link, perftest
between them, and one recording of each way of running it.

In: options, as `parser` has them, and a Way. Out: a recording (see `rxecc record`)
whose run.json also says what only the experiment knows: when the link became slow,
how many QPs send, what perftest had to complain about. The network is
samples/fabric's, the figures and plots are `rxecc report`'s.

How a way is run: the port has its rate, queue and marks from the start. perftest's
two ends speak to each other by TCP before and after they send, which a full RED queue
would drop; so TCP goes past the queue, over a link of its own, as over the management
network of a real testbed. The recording goes before anybody sends; figures begin when
the last sender has begun.
"""
import argparse
import csv
import datetime
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(f"{HERE}/../..")
FABRIC = f"{ROOT}/samples/fabric"

# perftest's program for each verb. They sleep until a completion (-e): polling, they
# would take the CPU that rdma_rxe needs. ib_write_bw cannot; fabric runs all of them
# behind everything else. A READ holds as much in flight as the other verbs do.
VERBS = {
    "send": ("ib_send_bw", "-e"),
    "write": ("ib_write_bw",),
    "read": ("ib_read_bw", "-e", "-s", "16384", "-o", "4"),
}
# perftest's own size of a message, unless the verb has another.
MESSAGE_BYTES = 65536
# Messages that are not sent within any time that one would wait.
ENDLESS = 200_000


class Failed(Exception):
    """The experiment could not be made."""


@dataclass
class Way:
    """One way of running it: a name for the directory, a title for the report, whether
    rxe_cc is loaded, and the words of `rxecc preset` and `rxecc set` before it."""
    name: str
    title: str
    module: bool = True
    preset: tuple = ()
    knobs: dict = field(default_factory=dict)


def say(text=""):
    print(text, flush=True)


def run(*words, **more):
    """Its output; what it complains about goes to the terminal."""
    try:
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, **more).stdout
    except FileNotFoundError:
        raise Failed(f"no {words[0]}") from None
    except subprocess.CalledProcessError as error:
        raise Failed(f"{shlex.join(words)}: status {error.returncode}") from None


def rxecc():
    """The command's path."""
    for path in os.environ.get("RXECC"), shutil.which("rxecc"), f"{ROOT}/target/release/rxecc", f"{ROOT}/target/debug/rxecc":
        if path and os.access(path, os.X_OK):
            return path
    raise Failed("no rxecc: cargo build --release --package rxecc")


def mbps(text):
    """A rate as tc writes it."""
    units = {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3}
    for unit, factor in units.items():
        if text.lower().endswith(unit):
            try:
                return float(text[:-len(unit)]) * factor
            except ValueError:
                break
    raise argparse.ArgumentTypeError(f"{text}: write 40mbit, 500kbit or 1gbit")


def rate(text):
    mbps(text)
    return text


def knob(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=VALUE, like rpg_ai_rate=10")
    return name, value


def parser(doc, **defaults):
    """Options that all experiments have; `defaults` replaces those of some."""
    made = argparse.ArgumentParser(description=doc.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
                                   epilog="\n\n".join(doc.split("\n\n")[1:]))
    add = made.add_argument
    add("--senders", type=int, default=4, metavar="N", help="hosts that send, to one more (%(default)s)")
    add("--qps", type=int, default=1, metavar="N", help="queue pairs a sender (%(default)s)")
    add("--verb", choices=VERBS, default="send", help="(%(default)s); with read the receiver asks the senders for data")
    add("--ipv6", action="store_true", help="RoCE over IPv6")
    add("--rate", type=rate, default="40mbit", help="of the slow link (%(default)s)")
    add("--mark", default="red:15000:45000:0.2", metavar="MODE", help="of its queue, as for samples/fabric (%(default)s)")
    add("--limit", type=int, default=200_000, metavar="BYTES", help="that its queue holds (%(default)s)")
    add("--preset", choices=("paper", "connectx"), default="paper", help="parameters of the run in slow motion (%(default)s)")
    add("--dilation", default="auto", metavar="S", help="its slow motion; auto is 40 Gb/s over --rate (%(default)s)")
    add("--knob", type=knob, action="append", default=[], metavar="NAME=VALUE", help="set as well, in runs with rxe_cc")
    add("--seconds", type=float, default=60, metavar="S", help="measured, each run (%(default)s)")
    add("--settle", type=float, default=0, metavar="S", help="from the moment that all send until figures are taken (%(default)s)")
    add("--megabytes", type=float, metavar="MB", help="that each queue pair sends, and then is done; --seconds is the most then")
    add("--ack-timeout", type=int, default=16, metavar="N", help="of the queue pairs, 4.096 us * 2^N (%(default)s: 268 ms)")
    add("--interval", type=int, default=50, metavar="MS", help="between two samples of the queue (%(default)s)")
    add("--events", action="store_true", help="record tracepoints as well")
    add("--seed", type=int, default=1, help="of the order in which senders begin; RED's dice are the kernel's own (%(default)s)")
    add("--output", default="/tmp/rxe_cc", metavar="DIR", help="recordings and report (%(default)s)")
    made.set_defaults(**defaults)
    return made


def slow_motion(args, name="paper", **more):
    """The way in which congestion control has time to act."""
    factor = dilation(args)
    chosen = {"paper": "paper", "connectx": "ConnectX"}[args.preset]
    return Way(name, f"rxe_cc, {chosen}, dilation {factor}",
               preset=(args.preset, "--bottleneck", args.rate, "--dilation", str(factor)), **more)


def dilation(args):
    return max(1, round(40_000 / mbps(args.rate))) if args.dilation == "auto" else int(args.dilation)


class Module:
    """rxe_cc, as long as it is needed."""

    loaded_here = False

    @staticmethod
    def there():
        return os.path.isdir("/sys/module/rxe_cc")

    @classmethod
    def want(cls, wanted):
        if wanted and not cls.there():
            path = os.environ.get("RXE_CC_KO")
            run(*(["insmod", path] if path else ["modprobe", "rxe_cc"]))
            cls.loaded_here = True
        elif not wanted and cls.there():
            if not cls.loaded_here:
                raise Failed("rxe_cc is loaded already: rmmod rxe_cc")
            run("rmmod", "rxe_cc")

    @classmethod
    def leave(cls):
        if cls.loaded_here and cls.there():
            run("rmmod", "rxe_cc")


class Network:
    """h1 .. hN send, the next one receives; it is up inside `with`."""

    def __init__(self, args):
        self.args = args
        self.senders = [f"h{n + 1}" for n in range(args.senders)]
        self.receiver = f"h{args.senders + 1}"
        self.hosts = [*self.senders, self.receiver]

    def __enter__(self):
        run(FABRIC, "up", "--hosts", str(len(self.hosts)), *(["--ipv6"] if self.args.ipv6 else []))
        try:
            self.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def settle(self):
        """TCP towards the receiver does not wait in its queue, and nobody asks for an
        address (ARP, ND) through it."""
        macs = {h: json.loads(run("ip", "-n", h, "-j", "link", "show", "eth0"))[0]["address"] for h in self.hosts}
        port = self.receiver
        # The host takes for its own what has its MAC address, on whatever link.
        run("ip", "-n", "sw", "link", "add", "tcp0", "type", "veth", "peer", "name", "tcp0", "netns", port, "address", macs[port])
        for namespace in "sw", port:
            run("ip", "-n", namespace, "link", "set", "tcp0", "up")
        run("tc", "-n", "sw", "-batch", "-", input=f"""qdisc add dev {port} clsact
            filter add dev {port} egress protocol ip flower ip_proto tcp action mirred egress redirect dev tcp0
            """)
        number = {h: h[1:] for h in self.hosts}
        for host in self.hosts:
            others = self.senders if host == port else [port]
            run("ip", "-n", host, "-batch", "-", input="".join(
                f"neigh replace {prefix}{number[other]} lladdr {macs[other]} dev eth0 nud permanent\n"
                for other in others for prefix in ("10.0.0.", *(["fd00::"] if self.args.ipv6 else []))))

    def __exit__(self, *_):
        run(FABRIC, "down")
        Module.leave()

    def port(self, mark=None):
        """A new queue at the receiver's port."""
        run(FABRIC, "port", self.receiver, "--rate", self.args.rate, "--limit", str(self.args.limit), "--mark", mark or self.args.mark)

    def rate(self, value):
        """Another rate; what waits stays."""
        run(FABRIC, "rate", self.receiver, value)

    def sent(self):
        """Bytes that the switch got from each sender."""
        links = json.loads(run("ip", "-n", "sw", "-s", "-j", "link", "show"))
        return {link["ifname"]: link["stats64"]["rx"]["bytes"] for link in links if link["ifname"] in self.senders}

    def counters(self, host, names):
        """Those that exist, for messages."""
        found = {}
        for name in names:
            for directory in "hw_counters", "rxe_cc":
                path = f"/sys/class/infiniband/rxe{host[1:]}/ports/1/{directory}/{name}"
                if os.path.exists(path):
                    with open(path) as file:
                        found[name] = int(file.read())
        return found


class Streams:
    """One perftest for each sender, until `stop`."""

    def __init__(self, network, scratch, seconds):
        args, self.network, self.scratch = network.args, network, scratch
        self.tool, *words = VERBS[args.verb]
        message = int(words[words.index("-s") + 1]) if "-s" in words else MESSAGE_BYTES
        count = round(args.megabytes * 1e6 / message) if args.megabytes else ENDLESS
        words += ["-n", str(max(count, 10)), "-N", "-q", str(args.qps), "-u", str(args.ack_timeout)]
        family = ["--ipv6"] if args.ipv6 else []
        order = list(network.senders)
        random.Random(args.seed).shuffle(order)
        self.processes = {}
        for host in order:
            # Who asks is the client; with READ that is who receives.
            ends = [host, network.receiver] if args.verb != "read" else [network.receiver, host]
            command = [FABRIC, "stream", *ends, "--tool", self.tool, *family, "--timeout", str(round(seconds)),
                       "--client-log", self.log(host), "--server-log", f"{scratch}/{host}.server", "--", *words]
            self.processes[host] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(f"{scratch}/{host}.err", "w"))

    def log(self, host):
        return f"{self.scratch}/{host}.client"

    def wait_all_send(self, seconds=300):
        """Until each has sent some messages; Failed if one does not. Starting a dozen
        programs takes minutes on a machine that has other work and no KVM."""
        start = self.network.sent()
        end = time.monotonic() + seconds
        silent = self.network.senders
        while time.monotonic() < end and not self.errors():
            time.sleep(1)
            now = self.network.sent()
            silent = [h for h in self.network.senders if now[h] - start[h] < 300_000]
            if not silent:
                return
        said = self.errors()
        raise Failed("\n".join([f"{', '.join(silent)} did not begin to send", *(f"{h}: {text}" for h, text in said.items())]))

    def ended(self):
        """Status of each that no longer runs."""
        return {host: p.poll() for host, p in self.processes.items() if p.poll() is not None}

    def errors(self):
        """What those that ended badly had to say, by sender."""
        said = {}
        for host, status in self.ended().items():
            if status == 0:
                continue
            lines = []
            for path in self.log(host), f"{self.scratch}/{host}.server", f"{self.scratch}/{host}.err":
                if os.path.exists(path):
                    with open(path) as file:
                        lines += [line.strip() for line in file if any(w in line.lower() for w in ("error", "fail", "couldn't", "fabric:"))]
            said[host] = f"{self.tool} ended with status {status}: " + "; ".join(lines[:3])
        return said

    def stop(self):
        for host in self.network.hosts:
            for pid in run("ip", "netns", "pids", host).split():
                try:
                    os.kill(int(pid), signal.SIGTERM)
                except ProcessLookupError:
                    pass
        for process in self.processes.values():
            process.wait(timeout=60)


class Recording:
    """`rxecc record` around what happens inside `with`."""

    def __init__(self, network, way, directory, command=None):
        args, self.network, self.directory = network.args, network, directory
        self.extra = {"command": command or shlex.join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])}
        words = [rxecc(), "record", "--output", directory, "--port", f"sw:{network.receiver}", "--goodput", network.receiver,
                 "--title", way.title, "--interval", str(args.interval), "--seed", str(args.seed)]
        self.words = words + (["--events"] if args.events and way.module else [])

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "recording into" in line:
                break
        else:
            raise Failed("".join(said).strip() or "rxecc record ended")
        self.started = datetime.datetime.fromisoformat(self.read()["started"]).timestamp()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self):
        """The files are complete after this."""
        self.process.send_signal(signal.SIGTERM)
        self.said = self.process.stderr.read().strip()
        if self.process.wait(timeout=60):
            raise Failed(self.said or f"rxecc record ended with status {self.process.returncode}")

    def read(self):
        with open(f"{self.directory}/run.json") as file:
            return json.load(file)

    def now(self):
        """Seconds of the recording."""
        return time.time() - self.started

    def settled(self):
        """What is measured begins."""
        self.begin, self.told = self.now(), 0

    def second(self):
        """Of what is measured."""
        return self.now() - self.begin

    def tell(self, seconds):
        """How far it is, a line every ten seconds."""
        tens = int(self.second() / 10)
        if tens > self.told:
            self.told = tens
            say(f"   {tens * 10} of {seconds:.0f} s")

    def last_arrivals(self):
        """When the last byte of each sender came."""
        seen, when = {}, {}
        with open(f"{self.directory}/goodput.csv") as file:
            for row in csv.DictReader(file):
                if seen.get(row["sender"]) != row["bytes"]:
                    seen[row["sender"]], when[row["sender"]] = row["bytes"], float(row["time_s"])
        return when

    def amend(self, end, errors, done, notes=()):
        """Once it has ended: what only the experiment knows. `done` are the senders
        whose work is done."""
        run, last = self.read(), self.last_arrivals()
        senders = {sender["name"]: sender for sender in run["senders"]}
        began = [sender["begin_s"] for sender in senders.values() if sender["begin_s"] is not None]
        if len(began) < len(self.network.senders):
            raise Failed(f"something arrived from {len(began)} of {len(self.network.senders)} senders")
        # While all of them send.
        end = min([end, *(last[name] for name in done)])
        run.update(self.extra, measured=[min(max(began) + self.network.args.settle, end), end], notes=[*run["notes"], *notes])
        for name, sender in senders.items():
            sender["qps"] = self.network.args.qps
            sender["errors"] = [errors[name]] if name in errors else []
            sender["completion_s"] = last[name] - sender["begin_s"] if name in done else None
        with open(f"{self.directory}/run.json", "w") as file:
            json.dump(run, file, indent=2)
            file.write("\n")


def set_up(network, way):
    """The module and its knobs, as the way has them."""
    Module.want(way.module)
    if not way.module:
        return
    command = rxecc()
    run(command, "preset", "connectx", "--dilation", "1", "--line-rate", "0", "--all")
    if way.preset:
        run(command, "preset", *way.preset, "--all")
    for name, value in {**dict(network.args.knob), **way.knobs}.items():
        run(command, "set", name, value, "--all")


def experiment(network, way, meanwhile=None, mark=None, notes=()):
    """Runs it one way; the recording's directory. `meanwhile(recording)` is called
    once a second while figures are taken; it may add to `notes`, and return the second
    that it wants to be the last."""
    args = network.args
    directory = os.path.join(args.output, way.name)
    say(f"\n== {way.title}")
    set_up(network, way)
    network.port(mark)
    with tempfile.TemporaryDirectory() as scratch, Recording(network, way, directory) as recording:
        # They are stopped long before that.
        streams = Streams(network, scratch, 10 * args.seconds + args.settle + 600)
        say(f"   {args.senders} programs begin")
        try:
            streams.wait_all_send()
            begin, seconds = recording.now(), args.seconds

            def goes_on():
                return not streams.errors() and len(streams.ended()) < args.senders

            def rest(left):
                time.sleep(max(0.01, min(1.0, left)))

            settle = f"{args.settle:.0f} s to settle, then " if args.settle else ""
            say(f"   all {args.senders} send after {begin:.0f} s; {settle}measuring for {seconds:.0f} s")
            while recording.now() < begin + args.settle and goes_on():
                rest(begin + args.settle - recording.now())
            recording.settled()
            while recording.second() < seconds and goes_on():
                if meanwhile:
                    seconds = meanwhile(recording) or seconds
                recording.tell(seconds)
                rest(seconds - recording.second())
            end, errors, done = recording.now(), streams.errors(), streams.ended()
            recording.stop()
        finally:
            streams.stop()
    recording.amend(end, errors, [host for host, status in done.items() if status == 0], notes)
    say(f"   {recording.said.splitlines()[-1].removeprefix('rxecc: ')}")
    for host, text in errors.items():
        say(f"   {host}: {text}")
    return directory


def report(args, directories, title):
    """The table on the terminal; the files beside the recordings."""
    say()
    subprocess.run([rxecc(), "report", *directories, "--title", title, "--output", f"{args.output}/report.html",
                    "--json", f"{args.output}/report.json", "--csv", f"{args.output}/report.csv"], check=True)


def check(directory, *bounds):
    """`rxecc assert`: its lines are shown; whether all hold."""
    return subprocess.run([rxecc(), "assert", directory, *bounds]).returncode == 0


def main(function, name):
    """A sample's end: messages are sentences, statuses 0 as asked, 1 not, 2 not made."""
    # The network goes away in any case.
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, lambda *_: sys.exit(143))
    try:
        if os.geteuid() != 0:
            raise Failed("needs root (network namespaces)")
        sys.exit(function())
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
