# SPDX-License-Identifier: GPL-2.0
"""Programs that parts 3 and 4 talk to line by line: many QPs (many_qps.c), packets
through the output hook (hook.c)."""
import subprocess

import lab
from common import Unmeasured, compiled

# Of peers that do not exist.
FIRST_PEER_QPN = 0x200000


class Program:
    def __init__(self, host, *command):
        self.process = host.popen(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = command[0].rsplit("/", 1)[-1]
        lab.cleanup(self.close)

    def tell(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Unmeasured(f"{self.name} died") from None
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline().split()
        if not line or line[0] != "ok":
            raise Unmeasured(f"{self.name}: {' '.join(line) or 'it died'}")
        return line[1:]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()


class ManyQps(Program):
    """QPs of a host, connected to peers of another one that do not exist."""

    def __init__(self, host, peer):
        self.qpns = []
        super().__init__(host, compiled("many_qps.c", "-libverbs"), host.device, str(host.gid()), lab.gid_text(peer.ip), str(FIRST_PEER_QPN))

    def grow(self, count):
        self.qpns += map(int, self.tell(count))
        if len(self.qpns) < count:
            try:
                self.answer()
            except Unmeasured as error:
                raise Unmeasured(f"only {len(self.qpns)} of {count} QPs: {error}") from None
        return self.qpns[:count]


class Hook(Program):
    def __init__(self, host, peer, cpu):
        super().__init__(host, compiled("hook.c"), str(cpu), host.ip, peer.ip)

    def ns(self, kinds, seconds):
        """A packet's time of each (TOS byte, UDP port, first QPN, number of QPNs); they take turns."""
        words = [word for kind in kinds for word in kind]
        return list(map(float, self.tell(round(seconds * 1000), *words)))
