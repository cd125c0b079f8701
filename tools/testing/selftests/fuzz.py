# SPDX-License-Identifier: GPL-2.0
"""Random packets at both hooks' receive side: valid ones with some fields changed,
and noise. Nothing may crash; no packet that is wrong may be answered or handled;
the counters add up, and say how many marks and CNPs there were.

The generator knows of each packet whether it may be answered or handled. Left
out is what rdma_rxe itself, with or without rxe_cc, does not survive (7.3.4): a
UDP payload of less than 12 bytes, or a destination that is not in its GID table,
by IPv6 or with IPv4 options: it drops such a packet with a QP pointer that it has
not set yet. Seeds are printed, FUZZ_SEED repeats a run. 100,000 packets, with
--long 1,000,000.
"""
import random

from lab import *

COUNT = 1_000_000 if os.environ.get("RXE_CC_LONG") else 100_000
SEED = int(os.environ.get("FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))


def setup():
    global net, h1, h2, targets
    net = Network(2, "--ipv6", "--vlan", "100")
    h1, h2 = net.hosts
    note(f"FUZZ_SEED={SEED}")


SIZES = {0x06: 16, 0x0A: 16, 0x0B: 20, 0x0C: 16, 0x0D: 4, 0x0F: 4, 0x10: 4, 0x11: 4, 0x12: 12, 0x13: 28, 0x14: 28,
         0x03: 4, 0x05: 4, 0x09: 4, 0x16: 4, 0x17: 4, 0x64: 8, 0x65: 12, 0x81: 16}
OPCODES = [*range(0x18), *range(0x20, 0x2C), 0x64, 0x65, 0x81, 0x81, 0x81]


class Generator:
    """Packets to h2 from h1. `wrong` of the last one: it must cause neither a CNP
    nor a handled one."""

    def __init__(self, rng, qps):
        self.rng, self.qps = rng, qps

    def transport(self, opcode, qpn, **fields):
        size = SIZES.get(opcode, SIZES.get(opcode & 0x1F, 0) if opcode < 0x40 else 0)
        body = self.rng.randbytes(size) if opcode in (0x11, 0x12, 0x81) else bytes(size)
        # Payload only where rxe does not look for memory: see `closed` in np_packets.
        return roce.bth(opcode, qpn, STALE, **fields) + body

    def structured(self):
        rng = self.rng
        kind, qp, family = rng.choice(self.qps)
        if kind == "ud":
            opcode = rng.choice((0x64, 0x65, 0x81))
        elif kind == "uc":
            opcode = rng.choice((*range(0x20, 0x2C), 0x81))
        else:
            opcode = rng.choice((*range(0x18), 0x81))
        if opcode == 0x15:
            opcode = 0x04
        src, dst = {"": (h1.ip, h2.ip), "--ipv6": (h1.ip6, h2.ip6), "--vlan": (h1.vlan_ip, h2.vlan_ip)}[family]
        fields = {}
        self.wrong = False
        changes = rng.sample(CHANGES, rng.choice((0, 1, 1, 1, 2, 3)))
        if "tver" in changes:
            fields["flags"] = rng.randrange(1, 16)
            self.wrong = True
        if "bits" in changes:
            fields.update(resv8a=rng.randrange(256), ack=rng.randrange(256))
            fields["flags"] = fields.get("flags", 0) | rng.randrange(4) << 6
        if "pkey" in changes:
            fields["pkey"] = rng.randrange(0x7FFF)
            # A CNP's P_Key is nobody's business.
            self.wrong |= opcode != 0x81
        qpn = qp.qpn
        if "qpn" in changes:
            qpn = rng.randrange(1 << 12, 1 << 24)
            self.wrong = True
        if "source" in changes and kind != "ud":
            src = "10.0.0.66" if len(roce.address(src)) == 4 else "fd00::66"
            self.wrong = True
        ecn = rng.choice((roce.CE, roce.CE, roce.CE, 0, 1, 2))
        ip = roce.udp_ip(src, dst, self.transport(opcode, qpn, **fields), ecn=ecn, dscp=rng.randrange(64),
                         sport=rng.randrange(1 << 16), ttl=rng.randrange(1, 256), ident=rng.randrange(1 << 16))
        ip = bytearray(ip)
        four = ip[0] >> 4 == 4
        udp = 20 if four else 40
        if "icrc" in changes:
            ip[-rng.randrange(1, 5)] ^= rng.randrange(1, 256)
            self.wrong = True
        if "cut" in changes:
            del ip[rng.randrange(udp + 20, len(ip)):]
            self.wrong = True
        if "udp length" in changes:
            length = rng.choice((0, 7, 20, 21, rng.randrange(20, 100), rng.randrange(20, 1 << 16)))
            self.wrong |= length != int.from_bytes(ip[udp + 4:udp + 6])
            ip[udp + 4:udp + 6] = struct.pack("!H", length)
        if "extension" in changes:
            self.wrong = True
            if four:
                options = rng.randbytes(4 * rng.randrange(1, 10))
                ip[0] = 0x45 + len(options) // 4
                ip[20:20] = bytes([1]) * len(options) if rng.random() < .5 else options
            else:
                ip[6:7], ip[40:40] = bytes([rng.choice((0, 43, 60, 44, 51))]), bytes([17, 0]) + rng.randbytes(6)
        if "fragment" in changes and four:
            self.wrong = True
            ip[6:8] = struct.pack("!H", rng.choice((0x2000, 0x0001, rng.randrange(1 << 16) | 0x2000)))
        ip = self.mend(ip)
        tci = 100 if family == "--vlan" else None
        if "tag" in changes:
            # Nobody's VLAN.
            tci = rng.randrange(16) << 12 | rng.randrange(101, 4095)
            self.wrong = True
        return h1.to(h2, ip, tci)

    def mend(self, ip):
        """Lengths and checksum of IP, so that the packet gets past it."""
        if ip[0] >> 4 == 4:
            ip[2:4] = struct.pack("!H", len(ip))
            size = min((ip[0] & 15) * 4, len(ip))
            ip[10:12] = b"\0\0"
            ip[10:12] = struct.pack("!H", roce.checksum(bytes(ip[:size])))
        else:
            ip[4:6] = struct.pack("!H", len(ip) - 40)
        return bytes(ip)

    def noise(self):
        """UDP to the port, then anything."""
        rng = self.rng
        self.wrong = True
        body = bytearray(rng.randbytes(rng.randrange(12, 64)))
        if rng.random() < .7:
            body[0] = rng.choice((0x81, rng.choice(OPCODES)))
        if body[0] < 0x80:
            # Not QPs that would act on it: noise with a right ICRC does not happen.
            body[5:8] = rng.randrange(1 << 12, 1 << 24).to_bytes(3)
        src, dst = rng.choice(((h1.ip, h2.ip), (h1.ip6, h2.ip6)))
        ip = bytearray(roce.udp_ip(src, dst, bytes(body), ecn=rng.randrange(4), with_icrc=False))
        if rng.random() < .1:
            for _ in range(3):
                ip[rng.randrange(4, len(ip))] = rng.randrange(256)
            # Addresses and UDP as they were, but for ports.
            if ip[0] >> 4 == 4:
                ip[12:20] = roce.address(h1.ip) + roce.address(h2.ip)
                ip[24:26] = struct.pack("!H", len(ip) - 20)
            else:
                ip[8:40] = roce.address(h1.ip6) + roce.address(h2.ip6)
                ip[44:46] = struct.pack("!H", len(ip) - 40)
        return h1.to(h2, self.mend(ip))


CHANGES = ["tver", "bits", "pkey", "qpn", "source", "icrc", "cut", "udp length", "extension", "fragment", "tag"]


def qps_of_every_kind():
    qps = []
    for family, address in ("", h1.ip), ("--ipv6", h1.ip6), ("--vlan", h1.vlan_ip):
        tool = h2.qps(family)
        for kind in "rc", "uc", "ud":
            qps.append((kind, tool.new(kind, "closed").rtr(address, 0x33), family))
    return qps


def fire(make, count):
    """That many frames of `make`, sent in batches."""
    sent = 0
    while sent < count:
        sent += h1.sender.send_all([make() for _ in range(min(2000, count - sent))])
    return sent


@case
def wrong_packets_are_never_answered_or_handled():
    rng = random.Random(SEED)
    h2.set(min_time_between_cnps=0)
    generator = Generator(rng, qps_of_every_kind())
    change = Change(h2)

    def wrong():
        while True:
            frame = generator.structured()
            if generator.wrong:
                return frame

    started = time.monotonic()
    sent = fire(wrong, COUNT // 2)
    note(f"{sent} packets in {time.monotonic() - started:.0f} s")
    time.sleep(0.5)
    got = change.now()
    note(str(got))
    check(got.get("np_ecn_marked_roce_packets", 0) > COUNT // 10, "hardly a mark arrived")
    check(got.get("rp_cnp_ignored", 0) > COUNT // 100, "hardly a CNP arrived")
    equal(got.get("np_cnp_sent", 0), 0, "CNPs for wrong packets")
    equal(got.get("rp_cnp_handled", 0), 0, "wrong CNPs handled")


@case
def a_mix_of_right_and_wrong_packets_adds_up():
    rng = random.Random(SEED + 1)
    h2.set(min_time_between_cnps=0)
    generator = Generator(rng, qps_of_every_kind())
    change = Change(h2)
    fire(generator.structured, COUNT // 4)
    time.sleep(0.5)
    got = change.now()
    note(str(got))
    check(got.get("np_cnp_sent", 0) > 0 and got.get("rp_cnp_handled", 0) > 0, "none of the right ones was taken")


@case
def noise_on_the_port_is_never_answered_or_handled():
    rng = random.Random(SEED + 2)
    h2.set(min_time_between_cnps=0)
    generator = Generator(rng, qps_of_every_kind())
    change = Change(h2)
    fire(generator.noise, COUNT // 4)
    time.sleep(0.5)
    got = change.now()
    note(str(got))
    equal(got.get("np_cnp_sent", 0), 0, "CNPs for noise")
    equal(got.get("rp_cnp_handled", 0), 0, "noise handled")


@case
def the_machine_still_works_afterwards():
    h2.set(min_time_between_cnps=0)
    change = Change(h2)
    for kind, qp, family in qps_of_every_kind():
        if family or kind != "rc":
            continue
        packet = roce.udp_ip(h1.ip, h2.ip, roce.bth(roce.RC_SEND_ONLY, qp.qpn, STALE), ecn=roce.CE)
        for _ in range(10):
            h1.sender.send(h1.to(h2, packet))
            time.sleep(0.02)
    # The first ones may wait for the QP's context and be folded into one.
    wait_until(lambda: change.now().get("np_cnp_sent", 0) >= 8, 2)
    check(change.now().get("np_cnp_sent", 0) >= 8, f"counters: {change.now()}")


main(setup)
