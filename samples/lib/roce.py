# SPDX-License-Identifier: GPL-2.0
"""RoCEv2 packets from user space: building, reading, sending and capturing.

In: fields, bytes, or the name of a network namespace and of a device in it.
Out: whole Ethernet frames and what is in them, through AF_PACKET sockets, which
pass neither netfilter's output hook nor any QP. Shared by the samples and the
selftests; nothing here knows rxe_cc. Formats: IBTA Annex A17; the ICRC is the
Ethernet CRC-32 over the packet with the fields that may change set to ones.

Plain struct and zlib only: scapy takes longer to load than most tests take.
"""
import contextlib
import ctypes
import os
import socket
import struct
import time
import zlib

ROCE_PORT = 4791
NOT_ECT, ECT0, CE = 0, 2, 3

ETH_IP, ETH_IP6, ETH_VLAN = 0x0800, 0x86DD, 0x8100

# BTH opcodes
RC_SEND_ONLY, RC_WRITE_ONLY, RC_READ_REQUEST = 0x04, 0x0A, 0x0C
RC_READ_RESPONSE_ONLY, RC_ACK, RC_ATOMIC_ACK = 0x10, 0x11, 0x12
RC_CMP_SWAP, RC_FETCH_ADD = 0x13, 0x14
UC_SEND_ONLY, UC_WRITE_ONLY = 0x24, 0x2A
UD_SEND_ONLY = 0x64
CNP = 0x81


# Building ---------------------------------------------------------------------

def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def address(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def icrc(ip):
    """The ICRC of the IP packet without one, as the 4 bytes on the wire."""
    head = bytearray(ip)
    if head[0] >> 4 == 4:
        udp = (head[0] & 15) * 4
        head[1] = head[8] = 0xFF
        head[10:12] = b"\xff\xff"
    else:
        udp = 40
        head[0] |= 0x0F
        head[1:4] = b"\xff\xff\xff"
        head[7] = 0xFF
    head[udp + 6:udp + 8] = b"\xff\xff"
    head[udp + 12] = 0xFF
    return struct.pack("<I", zlib.crc32(head, zlib.crc32(b"\xff" * 8)))


def bth(opcode, dest_qp, psn=0, *, pkey=0xFFFF, flags=0, resv8a=0, ack=0):
    """flags: SE, M, pad and TVer as one byte; resv8a: FECN, BECN, reserved;
    ack: the byte before the PSN, so A is 0x80."""
    return struct.pack("!BBHII", opcode, flags, pkey, resv8a << 24 | dest_qp, ack << 24 | psn)


def reth(length=0, va=0, rkey=0):
    return struct.pack("!QII", va, rkey, length)


def deth(source_qp, qkey=0x11111111):
    return struct.pack("!II", qkey, source_qp)


def aeth(syndrome=0, msn=0):
    return struct.pack("!I", syndrome << 24 | msn)


def udp_ip(src, dst, transport, *, ecn=ECT0, dscp=0, sport=49152, dport=ROCE_PORT, ttl=64, ident=0,
           flags=0x4000, options=b"", with_icrc=True):
    """An IP packet around the transport headers (BTH and on). flags: IPv4's DF,
    MF and fragment offset as one word."""
    tos = dscp << 2 | ecn
    size = 8 + len(transport) + (4 if with_icrc else 0)
    udp = struct.pack("!HHHH", sport, dport, size, 0)
    source, dest = address(src), address(dst)
    if len(source) == 4:
        ihl = 5 + len(options) // 4
        head = struct.pack("!BBHHHBBH4s4s", 0x40 | ihl, tos, ihl * 4 + size, ident, flags, ttl, 17, 0, source, dest) + options
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    else:
        head = struct.pack("!IHBB16s16s", 6 << 28 | tos << 20, size, 17, ttl, source, dest)
    packet = head + udp + transport
    return packet + icrc(packet) if with_icrc else packet


def cnp(src, dst, dest_qp, *, dscp=48, ecn=ECT0, sport=0, ident=0, **fields):
    """A CNP as rxe_cc and a ConnectX send it."""
    return udp_ip(src, dst, bth(CNP, dest_qp, resv8a=0x40, **fields) + bytes(16), dscp=dscp, ecn=ecn, sport=sport, ident=ident)


def frame(dst_mac, src_mac, ip, *, tci=None):
    kind = struct.pack("!H", ETH_IP if ip[0] >> 4 == 4 else ETH_IP6)
    if tci is not None:
        kind = struct.pack("!HH", ETH_VLAN, tci) + kind
    return dst_mac + src_mac + kind + ip


def set_ecn(ip, ecn):
    """The packet with these ECN bits and a right IPv4 checksum."""
    out = bytearray(ip)
    if out[0] >> 4 == 4:
        out[1] = out[1] & ~3 | ecn
        size = (out[0] & 15) * 4
        out[10:12] = b"\0\0"
        out[10:12] = struct.pack("!H", checksum(bytes(out[:size])))
    else:
        out[1] = out[1] & ~0x30 | ecn << 4
    return bytes(out)


# Reading ----------------------------------------------------------------------

class Packet:
    """A RoCEv2 packet of a frame; `Packet.read` gives None for other frames."""

    __slots__ = ("time_ns", "outgoing", "tci", "ip", "tos", "src", "dst", "sport", "opcode", "flags", "pkey",
                 "resv8a", "dest_qp", "ack", "psn", "transport", "eth_src", "eth_dst")

    @classmethod
    def read(cls, data, time_ns=0, outgoing=False, tci=None):
        at, kind = 14, int.from_bytes(data[12:14])
        while kind == ETH_VLAN:
            tci, kind = struct.unpack_from("!HH", data, at)
            at += 4
        ip = data[at:]
        if kind == ETH_IP and len(ip) >= 28:
            udp, proto, tos = (ip[0] & 15) * 4, ip[9], ip[1]
            addresses = ip[12:16], ip[16:20]
        elif kind == ETH_IP6 and len(ip) >= 48:
            udp, proto, tos = 40, ip[6], (ip[0] & 15) << 4 | ip[1] >> 4
            addresses = ip[8:24], ip[24:40]
        else:
            return None
        if proto != 17 or len(ip) < udp + 20 or int.from_bytes(ip[udp + 2:udp + 4]) != ROCE_PORT:
            return None
        p = cls()
        p.time_ns, p.outgoing, p.tci, p.ip, p.tos = time_ns, outgoing, tci, ip, tos
        p.eth_dst, p.eth_src = data[:6], data[6:12]
        p.src, p.dst = addresses
        p.sport = int.from_bytes(ip[udp:udp + 2])
        p.transport = ip[udp + 8:]
        p.opcode, p.flags, p.pkey, qp, psn = struct.unpack_from("!BBHII", ip, udp + 8)
        p.resv8a, p.dest_qp, p.ack, p.psn = qp >> 24, qp & 0xFFFFFF, psn >> 24, psn & 0xFFFFFF
        return p

    @property
    def ecn(self):
        return self.tos & 3

    @property
    def dscp(self):
        return self.tos >> 2

    @property
    def source(self):
        return socket.inet_ntop(socket.AF_INET if len(self.src) == 4 else socket.AF_INET6, self.src)

    @property
    def dest(self):
        return socket.inet_ntop(socket.AF_INET if len(self.dst) == 4 else socket.AF_INET6, self.dst)

    def icrc_right(self):
        return icrc(self.ip[:-4]) == self.ip[-4:]


# Sending and capturing ----------------------------------------------------------

CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def netns(name):
    """This thread inside a namespace of `ip netns`; sockets opened there stay."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        os.setns(there, CLONE_NEWNET)
        yield
    finally:
        os.setns(home, CLONE_NEWNET)
        os.close(home)
        os.close(there)


class _iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class _msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(_iovec)),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class _mmsghdr(ctypes.Structure):
    # The length that was sent stands behind the padding of the inner structure.
    _fields_ = [("message", _msghdr), ("len", ctypes.c_uint)]


_libc = ctypes.CDLL(None, use_errno=True)


class Batch:
    """Frames as one system call takes them; may be sent again and again."""

    def __init__(self, frames):
        self.size = len(frames)
        self.iov = (_iovec * self.size)(*((frame, len(frame)) for frame in frames))
        self.messages = (_mmsghdr * self.size)()
        for i in range(self.size):
            self.messages[i].message.iov = ctypes.pointer(self.iov[i])
            self.messages[i].message.iovlen = 1


class Sender:
    """Raw frames out of a device."""

    BATCH = 256

    def __init__(self, namespace, device="eth0"):
        with netns(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.socket.bind((device, 0))
            self.mac = self.socket.getsockname()[4]
        self.socket.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_SNDBUFFORCE", 32), 8 << 20)

    def send(self, data):
        self.socket.send(data)

    def send_all(self, frames):
        """Back to back, many a system call; frames that the kernel refuses (too
        long for the device) are left out. Their number that left."""
        sent = 0
        frames = list(frames)
        for start in range(0, len(frames), self.BATCH):
            batch, at = Batch(frames[start:start + self.BATCH]), 0
            while at < batch.size:
                n = self.send_batch(batch, at)
                sent += max(n, 0)
                at += max(n, 1)
        return sent

    def send_batch(self, batch, at=0):
        """From the one at `at` on, in one system call; how many left, below 0 if that one could not."""
        return _libc.sendmmsg(self.socket.fileno(), ctypes.byref(batch.messages, at * ctypes.sizeof(_mmsghdr)), batch.size - at, 0)

    def send_paced(self, frames, gap_us):
        """One every gap_us; a late one is not made up for, the gap is a least."""
        due = time.monotonic()
        for data in frames:
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            self.socket.send(data)
            due = max(due, time.monotonic()) + gap_us / 1e6 - 1e-5


# Classic BPF: RoCEv2 by IPv4 or IPv6 (no options in front), tags are stripped
# by then. X = offset of UDP - 14.
def _filter(opcode=None):
    program = [
        (0x28, 0, 0, 12),          # ldh [12]
        (0x15, 0, 4, ETH_IP),      # ip? else ip6
        (0x30, 0, 0, 23),          # ldb [23]
        (0x15, 0, "no", 17),
        (0xB1, 0, 0, 14),          # ldx 4*([14]&15)
        (0x05, 0, 0, 4),           # ja udp
        (0x15, 0, "no", ETH_IP6),
        (0x30, 0, 0, 20),
        (0x15, 0, "no", 17),
        (0x01, 0, 0, 40),          # ldx #40
        (0x48, 0, 0, 16),          # udp: ldh [x+16]
        (0x15, 0, "no", ROCE_PORT),
    ]
    if opcode is not None:
        program += [(0x50, 0, 0, 22), (0x15, 0, "no", opcode)]
    program += [(0x06, 0, 0, 0x40000)]
    end = len(program)
    program += [(0x06, 0, 0, 0)]
    code = b"".join(struct.pack("HBBI", c, t, end - i - 1 if f == "no" else f, k) for i, (c, t, f, k) in enumerate(program))
    return code, len(program)


SOL_PACKET, PACKET_STATISTICS, PACKET_AUXDATA, PACKET_OUTGOING = 263, 6, 8, 4
SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35
TP_STATUS_VLAN_VALID = 0x10


class Lost(Exception):
    """The capture itself lost packets: no statement about what was sent."""


class Capture:
    """RoCEv2 packets of a device, both directions, kept in the socket until they
    are read. Not for streams (tcpdump's ring is): a packet costs a system call."""

    def __init__(self, namespace, device="eth0", opcode=None, megabytes=64):
        with netns(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            code, length = _filter(opcode)
            self._code = ctypes.create_string_buffer(code)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                                   struct.pack("HxxxxxxQ", length, ctypes.addressof(self._code)))
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, megabytes << 20)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            self.socket.bind((device, 3))

    def read(self, wait=0.0):
        """What came since the last read; wait for the first at most so long. What comes
        meanwhile may be left to the next read: packets may come faster than they are read."""
        packets = []
        end_ns = time.time_ns() + int(wait * 1e9)
        self.socket.settimeout(wait or 0.000001)
        while True:
            try:
                data, control, _, where = self.socket.recvmsg(70000, 256)
            except (TimeoutError, BlockingIOError):
                break
            self.socket.setblocking(False)
            time_ns, tci = 0, None
            for level, kind, value in control:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                    seconds, nanos = struct.unpack("qq", value[:16])
                    time_ns = seconds * 1_000_000_000 + nanos
                elif level == SOL_PACKET and kind == PACKET_AUXDATA:
                    status, tag = struct.unpack_from("I", value)[0], struct.unpack_from("H", value, 16)[0]
                    if status & TP_STATUS_VLAN_VALID:
                        tci = tag
            packet = Packet.read(data, time_ns, where[2] == PACKET_OUTGOING, tci)
            if packet:
                packets.append(packet)
            if time_ns > end_ns:
                break
        _, drops = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        if drops:
            raise Lost(f"the capture lost {drops} packets")
        return packets

    def close(self):
        self.socket.close()


def neighbour_mac(namespace, device="eth0"):
    with netns(namespace), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as s:
        s.bind((device, 0))
        return s.getsockname()[4]
