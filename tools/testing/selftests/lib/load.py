# SPDX-License-Identifier: GPL-2.0
"""Load for the tests that look for what gives way under it: floods of packets as
fast as the machine sends them, crowds of QPs, files that are read all the time.

In: hosts of lab.py. Out: processes in the background, and what they achieved. As a
program it is the sender of a flood: `load.py NAMESPACE SECONDS` with a frame a line,
in hex, and a line "go" on stdin; lines "ready" and "SENT SECONDS" on stdout.
"""
import ctypes
import os
import subprocess
import sys
import time

sys.path.insert(0, f"{os.path.dirname(os.path.realpath(__file__))}/../../../../samples/lib")

import roce  # noqa: E402

LONG = bool(os.environ.get("RXE_CC_LONG"))

# Messages that one system call takes.
BATCH = 1024


def flood(namespace, seconds, lines):
    """Sends the frames over and over; how many, and how long it took."""
    sender = roce.Sender(namespace)
    frames = []
    for line in lines:
        if line == "go\n":
            break
        frames.append(bytes.fromhex(line))
    frames = frames * max(1, BATCH // len(frames))
    # Made once: what is measured is the kernel.
    iov = (roce._iovec * len(frames))(*((frame, len(frame)) for frame in frames))
    messages = (roce._mmsghdr * len(frames))()
    for i, header in enumerate(messages):
        header.message.iov = ctypes.pointer(iov[i])
        header.message.iovlen = 1
    size, descriptor = ctypes.sizeof(roce._mmsghdr), sender.socket.fileno()
    print("ready", flush=True)
    next(lines)
    sent = at = 0
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        count = roce._libc.sendmmsg(descriptor, ctypes.byref(messages, at * size), min(BATCH, len(frames) - at), 0)
        sent += max(0, count)
        at = (at + max(1, count)) % len(frames)
    return sent, time.monotonic() - started


class Flood:
    """Frames from a host, as fast as they go from `start` on, by a process of its own."""

    def __init__(self, host, frames, seconds):
        import ktap
        self.process = subprocess.Popen([sys.executable, os.path.realpath(__file__), host.namespace, str(seconds)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ktap.cleanup(self.stop)
        self.process.stdin.write("".join(f"{frame.hex()}\n" for frame in frames) + "go\n")
        self.process.stdin.flush()
        ktap.equal(self.process.stdout.readline(), "ready\n", "the flood's sender")
        self.seconds = seconds

    def start(self):
        self.process.stdin.write("now\n")
        self.process.stdin.close()
        return self

    def running(self):
        return self.process.poll() is None

    def finish(self):
        """(frames sent, seconds it took)"""
        sent, seconds = self.process.stdout.read().split()
        self.process.wait(self.seconds + 30)
        return int(sent), float(seconds)

    def stop(self):
        self.process.kill()
        self.process.wait()


def tell_all(tool, lines):
    """Many commands to a QpTool without waiting for each; all answers."""
    answers, lines = [], list(lines)
    for at in range(0, len(lines), 100):
        part = lines[at:at + 100]
        tool.process.stdin.write("".join(f"{line}\n" for line in part))
        tool.process.stdin.flush()
        answers += [tool._answer(line) for line in part]
    return answers


def crowd(tool, peer_ip, count, peer_qpn=1 << 20, timeout=14):
    """So many RC QPs in RTS, whose peers do not exist."""
    import lab
    made = tell_all(tool, ["new rc"] * count)
    qps = [lab.Qp(tool, int(number), int(qpn)) for number, qpn in made]
    gid = lab.gid_text(peer_ip)
    tell_all(tool, [f"rtr {qp.number} {gid} {peer_qpn + n}" for n, qp in enumerate(qps)])
    tell_all(tool, [f"rts {qp.number} {timeout}" for qp in qps])
    return qps


def unreclaimable_kb():
    """The kernel's slab memory that only its owners can give back."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("SUnreclaim"))


# Files ------------------------------------------------------------------------

_READER = """
import glob, os, random, sys
mode, patterns = sys.argv[1], sys.argv[2:]
touched = 0
while True:
    for pattern in patterns:
        for path in glob.glob(pattern, recursive=True):
            try:
                if os.path.isdir(path):
                    continue
                with open(path) as file:
                    text = file.read()
                touched += 1
                if mode == "write":
                    value = text.strip()
                    if value.isdigit():
                        value = random.choice((value, "1", "0", "7", "50", "1000", "131071", "4294967295"))
                    fd = os.open(path, os.O_WRONLY)
                    try:
                        os.write(fd, value.encode())
                    finally:
                        os.close(fd)
            except OSError:
                pass
    print(touched, flush=True)
"""


class Files:
    """A process that reads all files of some patterns, over and over, and writes to
    each, if told so, one of a few values, right or wrong. What is gone is no matter."""

    def __init__(self, *patterns, write=False):
        import ktap
        import lab
        self.path = f"{lab.SCRATCH}/files-{id(self)}"
        with open(self.path, "w") as out:
            self.process = subprocess.Popen([sys.executable, "-c", _READER, "write" if write else "read", *patterns], stdout=out)
        ktap.cleanup(self.stop)

    def touched(self):
        """Files read until now."""
        with open(self.path) as file:
            lines = [line for line in file if line.endswith("\n")]
        return int(lines[-1]) if lines else 0

    def running(self):
        return self.process.poll() is None

    def stop(self):
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    print(*flood(sys.argv[1], float(sys.argv[2]), iter(sys.stdin.readline, "")))
