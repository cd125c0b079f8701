# SPDX-License-Identifier: GPL-2.0
"""QPs that the kernel owns, by a real user of them: NFS over RDMA. They are limited
as any other; since no doorbell reaches them, none of their packets waits for longer
than half their ack timeout, and NFS never sees a transport error.

The server, in h2, answers a read with RDMA WRITEs: requests of its own QP. It fetches
what is written with RDMA READs: the client in h1 sends READ responses.
"""
import hashlib
import os
import shlex
import subprocess

import rp
from lab import *
from rp import check_time, limit, timely

EXPORT, MOUNTED = f"{rp.lab.SCRATCH}/export", f"{rp.lab.SCRATCH}/mounted"
REPEATS = ("duplicate_request", "out_of_seq_request", "completer_retry_err", "retry_exceeded_err")
# What rdma_cm gives to QPs of soft-RoCE: 4.096 us * 2^17.
ACK_TIMEOUT_MS = 4.096e-3 * (1 << 17)


class Shell:
    """A shell in a host that keeps its mounts."""

    def __init__(self, host):
        self.host = host
        self.process = host.popen("sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, command, fail=True):
        self.process.stdin.write(f"{{ {command}\n}} </dev/null; echo; echo =$?\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.process.stdout.readline()).startswith("="):
            if not line:
                raise Failure(f"the shell in {self.host.name} died: {''.join(lines)}")
            lines.append(line)
        out = "".join(lines).strip()
        check(not fail or line == "=0\n", f"{command}: status {line[1:].strip()}: {out}")
        return out

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def setup():
    global net, h1, h2, server, client
    for module in "nfsd", "nfs", "rpcrdma":
        if subprocess.run(["modprobe", "-q", module]).returncode:
            raise Skip(f"the kernel has no {module}")
    net = Network(2)
    h1, h2 = net.hosts
    os.makedirs(EXPORT)
    os.makedirs(MOUNTED)
    server, client = Shell(h2), Shell(h1)
    rp.lab.ktap.at_end(close)
    server.run(f"mount -t tmpfs export {shlex.quote(EXPORT)}")
    server.run("mount -t nfsd nfsd /proc/fs/nfsd; echo 10 >/proc/fs/nfsd/nfsv4gracetime; echo 10 >/proc/fs/nfsd/nfsv4leasetime")
    # NFS 4 alone needs neither rpcbind nor statd.
    server.run("mkdir -p /var/lib/nfs /run/nfs; touch /var/lib/nfs/etab /var/lib/nfs/rmtab; rpc.mountd -N 3")
    server.run(f"exportfs -o rw,no_root_squash,fsid=0,insecure,no_subtree_check '*:{EXPORT}'")
    server.run("rpc.nfsd -N 3 -V 4.2 --rdma=20049 1")
    mount()
    # The server lets nobody open files in its first seconds.
    client.run(f"timeout 60 dd if=/dev/zero of={MOUNTED}/first bs=4k count=1 conv=fsync")
    client.run(f"umount {MOUNTED}")


def mount():
    """With QPs of its own."""
    client.run(f"timeout 60 mount -t nfs4 -o proto=rdma,port=20049,vers=4.2,soft,timeo=600 {h2.ip}:/ {MOUNTED}")


def close():
    server.run("rpc.nfsd 0; exportfs -ua; pkill rpc.mountd; sleep 0.3; umount /proc/fs/nfsd", fail=False)
    client.close()
    server.close()


class Qp:
    """The one that NFS has in a host."""

    def __init__(self, host):
        self.host = host
        text = run("rdma", "resource", "show", "qp", "link", f"{host.device}/1")
        found = [line.split() for line in text.splitlines() if "type RC" in line and "state RTS" in line]
        equal(len(found), 1, f"RC QPs of {host.name}")
        self.qpn = int(found[0][found[0].index("lqpn") + 1])


class Mount:
    """A mounted file system. Its QPs stay what they are, and repeat nothing."""

    def __init__(self):
        mount()
        cleanup(client.run, f"umount {MOUNTED} || umount -l {MOUNTED}", False)
        # The first file to be opened may have to wait for much that is NFS's own.
        client.run(f"cat {MOUNTED}/first >/dev/null")
        self.changes = Change(h1, True), Change(h2, True)
        self.qps = Qp(h1), Qp(h2)

    def limit_client(self, mbps):
        limit(h1, h2, self.qps[:1], mbps)

    def limit_server(self, mbps):
        limit(h2, h1, self.qps[1:], mbps)

    def check(self, what):
        for qp in self.qps:
            equal(Qp(qp.host).qpn, qp.qpn, f"{what}: the QP of {qp.host.name}")
        repeats = {f"{c.host.name} {name}": n for c in self.changes for name, n in c.now().items() if name in REPEATS}
        check_time(not repeats, f"{what}: {repeats}")


def new_file(name, size):
    """On the server; its digest."""
    data = os.urandom(size)
    path = f"{rp.lab.SCRATCH}/data"
    with open(path, "wb") as file:
        file.write(data)
    server.run(f"cp {path} {EXPORT}/{name}")
    return hashlib.sha256(data).hexdigest()


def read_back(shell, path):
    return shell.run(f"sha256sum {path}").split()[0]


@case
@timely
def the_requests_of_a_kernel_qp_are_limited():
    size, mbps = 768 << 10, 2
    digest = new_file("read", size)
    nfs = Mount()
    nfs.limit_server(mbps)
    started = time.monotonic()
    equal(read_back(client, f"{MOUNTED}/read"), digest, "what was read")
    took, least = time.monotonic() - started, size * 8 / (mbps * 1e6)
    note(f"{size} bytes read at {mbps} Mb/s in {took:.2f} s, payload alone {least:.2f} s")
    check(took > least, f"read in {took:.2f} s, faster than the limit")
    check_time(took < 1.3 * least + 1, f"read in {took:.2f} s")
    nfs.check("read")


@case
@timely
def the_read_responses_of_a_kernel_qp_are_limited():
    size, mbps = 768 << 10, 2
    nfs = Mount()
    nfs.limit_client(mbps)
    path = f"{rp.lab.SCRATCH}/data"
    data = os.urandom(size)
    with open(path, "wb") as file:
        file.write(data)
    started = time.monotonic()
    client.run(f"dd if={path} of={MOUNTED}/written bs=64k conv=fsync")
    took, least = time.monotonic() - started, size * 8 / (mbps * 1e6)
    note(f"{size} bytes written at {mbps} Mb/s in {took:.2f} s, payload alone {least:.2f} s")
    check(took > least, f"written in {took:.2f} s, faster than the limit")
    check_time(took < 1.3 * least + 1, f"written in {took:.2f} s")
    equal(read_back(server, f"{EXPORT}/written"), hashlib.sha256(data).hexdigest(), "what was written")
    nfs.check("write")


@case
@timely
def no_packet_of_a_kernel_qp_waits_for_longer_than_half_its_ack_timeout():
    # A packet every 0.87 s; a read of 32 KiB is 32 of them at once.
    digest = new_file("slow", 32 << 10)
    nfs = Mount()
    nfs.limit_server(0.01)
    dump = Dump(h2)
    started = time.monotonic()
    equal(read_back(client, f"{MOUNTED}/slow"), digest, "what was read")
    took = time.monotonic() - started
    departures = rp.Departures(dump)
    gaps = departures.gaps_ms()
    note(f"32 KiB at 0.01 Mb/s in {took:.2f} s, {len(departures)} packets, longest gap {max(gaps):.0f} ms, held {h2.counters()['rp_held_max_us'] / 1e3:.0f} ms at most")
    half_ms = ACK_TIMEOUT_MS / 2
    check(max(gaps) > half_ms / 2, f"nothing was held: the longest gap is {max(gaps):.0f} ms")
    check_time(max(gaps) < half_ms + 50, f"a packet waited for {max(gaps):.0f} ms, half the ack timeout is {half_ms:.0f} ms")
    nfs.check("read at 0.01 Mb/s")


@case
def a_file_system_can_be_unmounted_while_its_packets_are_held():
    new_file("held", 1 << 20)
    nfs = Mount()
    nfs.limit_server(0.5)
    client.run(f"sha256sum {MOUNTED}/held >/dev/null 2>&1 & sleep 0.1")
    check(wait_until(lambda: h2.counters()["rp_held_packets"] > 10, 5), "nothing is held")
    started = time.monotonic()
    client.run(f"umount -f {MOUNTED}; wait; umount {MOUNTED} || umount -l {MOUNTED}", fail=False)
    server.run("rpc.nfsd 0")
    note(f"gone after {time.monotonic() - started:.2f} s")
    check(wait_until(lambda: h2.counters()["rp_held_packets"] == 0, 5), f"{h2.counters()['rp_held_packets']} packets held for nobody")
    check(wait_until(lambda: "type RC" not in run("rdma", "resource", "show", "qp"), 10), f"QPs that stay: {run('rdma', 'resource', 'show', 'qp')}")


main(setup, ("ip", "tc", "nft", "rdma", "tcpdump", "rpc.nfsd", "rpc.mountd", "exportfs", "mount.nfs4"))
