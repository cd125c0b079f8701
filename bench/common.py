# SPDX-License-Identifier: GPL-2.0
"""What the parts of the benchmark share: figures with their spread, tables, a
watch on the machine, programs compiled when they are needed.

In: samples. Out: `Figure`s, each with an interval and, where there is one, its goal;
`Report`s, which are tables and figures of a part. The network, hosts, captures and the
limiter's state are those of the selftests (tools/testing/selftests/lib).
"""
import contextlib
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(HERE)
os.environ.setdefault("RXE_CC_SCRATCH", "/tmp/rxe_cc-bench")
sys.path.insert(0, f"{ROOT}/tools/testing/selftests/lib")

import ktap  # noqa: E402
import lab  # noqa: E402

# A network of the benchmark's own.
lab.PREFIX = "bench-"
lab.FABRIC = [f"{ROOT}/samples/fabric", "--prefix", lab.PREFIX]

SEED = 20140817
RESAMPLES = 400


class Unmeasured(Exception):
    """Nothing can be said, and why."""


# Figures -------------------------------------------------------------------------

def order_interval(values, confidence=0.95):
    """(median, low, high): the narrowest pair of order statistics that holds the median
    with this confidence, whatever the distribution. Of fewer than 6 values none does:
    then it is from the least to the greatest."""
    ordered, n = sorted(values), len(values)
    if n > 200:
        # By the normal distribution; exact sums take too long.
        out = math.floor(n / 2 - statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n) / 2)
    else:
        below, out = 0.0, 0
        while 2 * (below + math.comb(n, out) / 2 ** n) <= 1 - confidence:
            below += math.comb(n, out) / 2 ** n
            out += 1
    out = max(out, 1)
    return statistics.median(ordered), ordered[out - 1], ordered[n - out]


def percentile(values, share):
    """The least value that is not exceeded by this share of them."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def bootstrap(statistic, *samples, confidence=0.95):
    """(value, low, high) of statistic(*samples); the seed is fixed."""
    dice = random.Random(SEED)
    seen = sorted(statistic(*(dice.choices(s, k=len(s)) for s in samples)) for _ in range(RESAMPLES))
    out = round((1 - confidence) / 2 * RESAMPLES)
    return statistic(*samples), seen[out], seen[-1 - out]


@dataclass
class Figure:
    """A measured value, with the interval in which it lies and the number of samples.
    `better` is "higher" or "lower" where one of them is; `goal` what it must reach.
    Ratios of one run can be compared with those of another machine, others cannot."""
    value: float
    low: float
    high: float
    samples: int
    unit: str = ""
    better: str = ""
    goal: float | None = None
    ratio: bool = False

    @classmethod
    def median(cls, values, **more):
        if not values:
            raise Unmeasured("no samples")
        return cls(*order_interval(values), len(values), **more)

    @property
    def reached(self):
        """Whether the interval reaches the goal; None without one."""
        if self.goal is None:
            return None
        return self.high >= self.goal if self.better == "higher" else self.low <= self.goal

    def worse_than(self, other):
        """Whether the intervals do not even touch, on the wrong side."""
        if self.better == "higher":
            return self.high < other.low
        return self.better == "lower" and self.low > other.high

    def __str__(self):
        text = f"{short(self.value)} [{short(self.low)}, {short(self.high)}]"
        return text + ("" if self.reached in (None, True) else " MISSED")


def short(value):
    """Four digits that matter."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}" if abs(value) < 1e6 else f"{value:.4g}"


@dataclass
class Table:
    title: str
    columns: list
    rows: list = field(default_factory=list)

    def text(self):
        cells = [self.columns, *([c if isinstance(c, str) else short(c) if isinstance(c, (int, float)) or c is None else str(c)
                                  for c in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]).rstrip() for row in cells]
        return "\n".join([self.title, *(f"  {line}" for line in lines)])


class Report:
    """Of one part: told on the terminal as it grows, and kept for the JSON."""

    def __init__(self, part, title):
        self.part, self.title = part, title
        self.tables, self.notes, self.figures = [], [], {}
        print(f"\n== {part}. {title}", flush=True)

    def progress(self, text):
        print(f"   {time.strftime('%H:%M:%S')}  {text}", flush=True)

    def note(self, text):
        self.notes.append(text)

    def figure(self, key, figure):
        """Kept under part.key; the same figure, for a table."""
        self.figures[f"{self.part}.{key}"] = figure
        return figure

    def table(self, title, columns):
        made = Table(title, columns)
        self.tables.append(made)
        return made

    def show(self):
        for table in self.tables:
            print(f"\n{table.text()}")
        for note in self.notes:
            print(f"  {note}")
        sys.stdout.flush()

    def json(self):
        return {
            "title": self.title,
            "tables": [{"title": t.title, "columns": t.columns, "rows": [[str(c) if isinstance(c, Figure) else c for c in r] for r in t.rows]}
                       for t in self.tables],
            "notes": self.notes,
        }


# Things that end -------------------------------------------------------------------

@contextlib.contextmanager
def scope():
    """What the library wants to clean up of what happens inside is cleaned up at its end."""
    kept = ktap._cleanups[:]
    ktap._cleanups.clear()
    try:
        yield
    finally:
        complaints = ktap._unwind(ktap._cleanups)
        ktap._cleanups.extend(kept)
        for complaint in complaints:
            print(f"   {complaint}", flush=True)


def network(hosts=2):
    """One of the benchmark's own, until the scope ends."""
    made = lab.Network(hosts)
    # The library takes it down when the process ends; the next part wants its names.
    ktap._finals.clear()
    lab.cleanup(made.down)
    return made


def module(wanted):
    if wanted:
        lab.Module.load()
    elif lab.Module.loaded():
        lab.Module.unload()


def dropped(namespace, device, direction):
    """What passes the device in this direction is, until the network goes."""
    lab.run("tc", "-n", namespace, "qdisc", "add", "dev", device, "clsact")
    lab.run("tc", "-n", namespace, "filter", "add", "dev", device, direction, "matchall", "action", "drop")


def counted():
    """Whether this guest's clock counts instructions."""
    return os.environ.get("RXE_CC_ICOUNT") == "1"


def native():
    """Whether this is the lab's kernel for measuring, which is not emulated."""
    return os.uname().release.endswith("-native")


def compiled(source, *libraries):
    """The program of a C file that stands here."""
    program = f"{lab.SCRATCH}/{os.path.basename(source).removesuffix('.c')}"
    path = f"{HERE}/{source}"
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(path):
        compiler = next((c for c in ("cc", "gcc", "gcc-14", "clang") if shutil.which(c)), None)
        if not compiler:
            raise Unmeasured(f"no C compiler for {source}: install gcc or clang")
        os.makedirs(lab.SCRATCH, exist_ok=True)
        lab.run(compiler, "-O2", "-Wall", "-o", program, path, *libraries)
    return program


# The machine -----------------------------------------------------------------------

class Lateness:
    """How late timers are: on each CPU a process above all others sleeps for a moment
    again and again and says when it woke late (late.c). Other work of the machine, and CPUs
    that the host takes away, show up here and in everything that is measured meanwhile.
    Short naps see more and cost more: 1 ms takes a tenth of an emulated CPU or more."""

    def __init__(self, nap_us=10_000):
        handle, self.path = tempfile.mkstemp(prefix="late-", dir=lab.SCRATCH)
        self.cpus = sorted(os.sched_getaffinity(0))
        program = compiled("late.c")
        self.file = os.fdopen(handle, "w")
        self.watchers = [subprocess.Popen([program, str(cpu), str(nap_us)], stdout=self.file) for cpu in self.cpus]
        lab.cleanup(self.stop)

    def stop(self):
        for watcher in self.watchers:
            watcher.kill()
            watcher.wait()
        self.watchers = []
        self.file.close()

    def events(self, since_ns, until_ns):
        """(start, lateness, CPU), ns of the wall clock."""
        with open(self.path) as file:
            lines = (tuple(map(int, line.split())) for line in file if line.endswith("\n"))
            return [e for e in lines if since_ns <= e[0] + e[1] and e[0] <= until_ns]

    def worst_ns(self, since_ns, until_ns, window_ns=50_000_000):
        """The most that one CPU was late in so short a time, in one go or in several."""
        worst, recent = 0, {}
        for start, late, cpu in sorted(self.events(since_ns, until_ns)):
            near = recent.setdefault(cpu, [])
            near.append((start, late))
            while near[0][0] < start - window_ns:
                near.pop(0)
            worst = max(worst, sum(length for _, length in near))
        return worst

    def stalled(self, since_ns, until_ns, beyond_ns=20_000_000):
        """Share of the time by which a CPU was late at once beyond what the pacer makes
        up for; of the CPU that was most so."""
        total = dict.fromkeys(self.cpus, 0)
        for _, late, cpu in self.events(since_ns, until_ns):
            total[cpu] += max(0, late - beyond_ns)
        return max(total.values()) / max(1, until_ns - since_ns)

    def summary(self, since_ns, until_ns):
        """One line for the notes."""
        seen = [late for _, late, _ in self.events(since_ns, until_ns)]
        share = sum(seen) / max(1, (until_ns - since_ns) * len(self.cpus))
        return (f"the machine: timers late by more than 0.5 ms {len(seen)} times in {(until_ns - since_ns) / 1e9:.0f} s,"
                f" at most {max(seen, default=0) / 1e6:.1f} ms, {share * 100:.1f}% of all CPU time")
