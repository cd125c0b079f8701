# SPDX-License-Identifier: GPL-2.0
"""Things that come and go under traffic: QPs, rxe devices, net devices,
namespaces, the module. Nothing may hang, crash, or act for a QP that is gone.
"""
import random

from lab import *

LONG = bool(os.environ.get("RXE_CC_LONG"))


def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


def mark(qpn, src=None):
    return marked_write(src or h1, h2, qpn)


def received(host):
    return int(read(f"{host.sys}/class/net/eth0/statistics/rx_packets"))


class Injector:
    """Marks to h2 and CNPs to it in the background, as fast as they go."""

    def __init__(self, *packets):
        frames = [h1.to(h2, packet).hex() for packet in packets]
        program = f"""
import sys, time
sys.path.insert(0, {f'{ROOT}/samples/lib'!r})
import roce
sender = roce.Sender({h1.namespace!r})
frames = [bytes.fromhex(f) for f in {frames!r}] * 50
while True:
    try:
        sender.send_all(frames)
    except OSError:
        pass
    time.sleep(0.005)
"""
        self.process = subprocess.Popen([sys.executable, "-c", program])
        cleanup(self.stop)
        # It takes a while to start.
        datagrams = received(h2)
        check(wait_until(lambda: received(h2) > datagrams + 50, 20), "the injector sends nothing")

    def stop(self):
        self.process.kill()
        self.process.wait()


def rounds(count):
    return count * 5 if LONG else count


@case
def a_destroyed_qp_gets_no_cnp_200_ms_later():
    h2.set(min_time_between_cnps=0)
    tool = h2.qps()
    watch = roce.Capture(h2.namespace, opcode=roce.CNP)
    cleanup(watch.close)
    for _ in range(rounds(3)):
        qp = tool.new("rc").rtr(h1.ip, 0x33)
        sender = Injector(mark(qp.qpn))
        time.sleep(0.5)
        check([p for p in watch.read() if p.outgoing], "no CNPs for a live QP")
        before = time.time_ns()
        qp.destroy()
        destroyed = time.time_ns()
        check(destroyed - before < 1_000_000_000, "destroy took more than a second")
        time.sleep(0.6)
        late = [p for p in watch.read() if p.outgoing and p.time_ns > destroyed + 200_000_000]
        sender.stop()
        equal(len(late), 0, "CNPs later than 200 ms after the destroy")


@case
def a_qp_in_error_gets_no_cnp_200_ms_later():
    h2.set(min_time_between_cnps=0)
    watch = roce.Capture(h2.namespace, opcode=roce.CNP)
    cleanup(watch.close)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33).rts()
    Injector(mark(qp.qpn))
    time.sleep(0.4)
    check([p for p in watch.read() if p.outgoing], "no CNPs for a live QP")
    qp.state("err")
    changed = time.time_ns()
    time.sleep(0.6)
    equal(len([p for p in watch.read() if p.outgoing and p.time_ns > changed + 200_000_000]), 0, "late CNPs")


@case
def a_qp_that_is_connected_anew_names_its_new_peer():
    # The same QPN, first of one peer QP, then of another.
    h2.set(min_time_between_cnps=0)
    watch = roce.Capture(h2.namespace, opcode=roce.CNP)
    cleanup(watch.close)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x111)
    Injector(mark(qp.qpn))
    for peer in 0x222, 0x333, 0x444:
        time.sleep(0.3)
        watch.read()
        qp.state("reset").state("init").rtr(h1.ip, peer)
        connected_at = time.time_ns()
        time.sleep(0.6)
        late = {p.dest_qp for p in watch.read() if p.outgoing and p.time_ns > connected_at + 200_000_000}
        equal(late, {peer}, "DestQPs later than 200 ms after the reconnect")


@case
def a_window_of_a_destroyed_qp_does_not_close_with_a_cnp():
    h2.set(min_time_between_cnps=131071, dilation=6)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    h1.sender.send(h1.to(h2, mark(qp.qpn)))
    time.sleep(0.1)
    change = Change(h2)
    for _ in range(3):
        h1.sender.send(h1.to(h2, mark(qp.qpn)))
    change.settle(np_cnp_suppressed=3)
    qp.destroy()
    time.sleep(1.2)
    change.settle(np_cnp_sent=0)


@case
def a_cnp_for_a_destroyed_qp_is_unknown_200_ms_later():
    qp = h1.qps().new("rc").rtr(h2.ip, 0x33).rts()
    change = Change(h1)
    h2.sender.send(h2.to(h1, roce.cnp(h2.ip, h1.ip, qp.qpn)))
    change.settle(rp_cnp_handled=1)
    qp.destroy()
    time.sleep(0.25)
    change = Change(h1)
    for _ in range(5):
        h2.sender.send(h2.to(h1, roce.cnp(h2.ip, h1.ip, qp.qpn)))
    change.settle(rp_cnp_handled=0, rp_cnp_unknown_qp=5)


@case
def each_of_many_qps_that_come_and_go_is_answered_once():
    tool = h2.qps()
    watch = roce.Capture(h2.namespace, opcode=roce.CNP)
    cleanup(watch.close)
    answered = 0
    for _ in range(rounds(4)):
        qps = [tool.new("rc").rtr(h1.ip, 0x1000 + n) for n in range(100)]
        h1.sender.send_all([h1.to(h2, mark(qp.qpn)) for qp in qps])
        wait_until(lambda: False, 0.3)
        answered += len([p for p in watch.read() if p.outgoing])
        for qp in qps:
            qp.destroy()
    equal(answered, rounds(4) * 100, "CNPs, one for each QP")


@case
def rmmod_and_insmod_in_mid_stream():
    net.port("h2", "--mark", "every:50")
    # An ack timeout of a second: rxe 7.3 now and then goes on with a wrong opcode when
    # it repeats (status 9), and a busy machine lets 67 ms pass.
    seconds = rounds(30)
    stream = Stream(h1, h2, "-s", "65536", "-D", str(seconds), "-u", "18", timeout=seconds + 90)
    idle = received(h2)
    check(wait_until(lambda: received(h2) > idle + 500, 30), "no stream")
    loops = 0
    while stream.running() and loops < rounds(5):
        Module.unload()
        time.sleep(random.random() * 0.2)
        Module.load()
        # The rate limiter acts in every other round.
        if loops % 2:
            for n in range(8):
                h1.write(f"roce_rp/enable/{n}", 0)
        before = received(h2)
        # It may be at its end, which finish() judges.
        check(wait_until(lambda: received(h2) > before + 20 or not stream.running(), 10), "the stream does not go on")
        loops += 1
    note(f"{loops} times")
    check(loops >= 3, f"only {loops} loops fit into the stream")
    stream.finish()
    equal(counters(h1.device, True).get("retry_exceeded_err", 0), 0, "retry_exceeded_err")


@case
def rmmod_and_insmod_under_marks_and_cnps():
    a, b = h1.qps(), h2.qps()
    one, two = connected(a, b)
    Injector(mark(two.qpn), roce.cnp(h1.ip, h2.ip, two.qpn), mark(0x1234), roce.cnp(h1.ip, h2.ip, 0x4321))
    for _ in range(rounds(10)):
        time.sleep(random.random() * 0.1)
        Module.unload()
        time.sleep(random.random() * 0.05)
        Module.load()


@case
def rxe_devices_come_and_go_under_marks():
    qpns = range(16, 40)
    Injector(*[mark(qpn) for qpn in qpns], *[roce.cnp(h1.ip, h2.ip, qpn) for qpn in qpns])
    for _ in range(rounds(5)):
        tool = h2.qps()
        for _ in range(4):
            tool.new("rc").rtr(h1.ip, 0x33)
        time.sleep(random.random() * 0.2)
        tool.kill()
        tool.process.wait()
        h2.remove_device()
        time.sleep(random.random() * 0.05)
        h2.add_device()


@case
def an_rxe_device_goes_with_live_qps():
    for _ in range(rounds(3)):
        tool = h2.qps()
        qps = [tool.new("rc").rtr(h1.ip, 0x33 + n) for n in range(4)]
        sender = Injector(*[mark(qp.qpn) for qp in qps])
        time.sleep(0.3)
        before = time.monotonic()
        h2.remove_device()
        check(time.monotonic() - before < 5, "rdma link del took more than 5 s")
        sender.stop()
        tool.kill()
        tool.process.wait()
        h2.add_device()


def second_network(number):
    """A namespace with a net device and an rxe device of its own, linked to h1."""
    name, device = f"{PREFIX}x{number}", f"{PREFIX}rxex{number}"
    run("ip", "netns", "add", name)
    run("ip", "-n", h1.namespace, "link", "add", f"x{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
    for namespace, link, address in (h1.namespace, f"x{number}", f"10.7.{number}.1/24"), (name, "eth0", f"10.7.{number}.2/24"):
        run("ip", "-n", namespace, "addr", "add", address, "dev", link)
        run("ip", "-n", namespace, "link", "set", link, "up")
    run("ip", "netns", "exec", name, "rdma", "link", "add", device, "type", "rxe", "netdev", "eth0")
    return name, device


@case
def net_devices_and_namespaces_go_under_traffic_in_all_orders():
    for number in range(rounds(3)):
        name, device = second_network(number)
        sender = roce.Sender(h1.namespace, f"x{number}")
        target = roce.neighbour_mac(name)
        src, dst = f"10.7.{number}.1", f"10.7.{number}.2"
        packets = [roce.udp_ip(src, dst, roce.bth(roce.RC_SEND_ONLY, qpn, STALE), ecn=roce.CE) for qpn in range(16, 20)]
        packets += [roce.cnp(src, dst, qpn) for qpn in range(16, 20)]
        frames = [roce.frame(target, sender.mac, packet) for packet in packets] * 100
        sender.send_all(frames)
        order = number % 3
        before = time.monotonic()
        if order == 0:
            run("ip", "-n", name, "link", "del", "eth0")
        elif order == 1:
            run("ip", "netns", "del", name)
        else:
            run("ip", "-n", h1.namespace, "link", "del", f"x{number}")
        try:
            sender.send_all(frames)
        except OSError:
            pass
        gone = wait_until(lambda: not os.path.exists(f"/sys/class/infiniband/{device}"), 10)
        check(gone, f"{device} is still there 10 s later")
        note(f"order {order}: {time.monotonic() - before:.1f} s")
        sender.socket.close()
        if order != 1:
            run("ip", "netns", "del", name)


@case
def a_namespace_goes_while_the_module_does():
    for number in range(rounds(3)):
        name, device = second_network(number)
        unload = subprocess.Popen(["rmmod", "rxe_cc"])
        run("ip", "netns", "del", name)
        equal(unload.wait(30), 0, "status of rmmod")
        check(wait_until(lambda: not os.path.exists(f"/sys/class/infiniband/{device}"), 10), f"{device} is still there")
        Module.load()


@case
def link_down_and_up_under_marks():
    h2.set(min_time_between_cnps=0)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    Injector(mark(qp.qpn))
    for _ in range(rounds(5)):
        time.sleep(0.1)
        run("ip", "-n", h2.namespace, "link", "set", "eth0", "down")
        time.sleep(0.1)
        run("ip", "-n", h2.namespace, "link", "set", "eth0", "up")
    h2.knows(h1.ip, h1.mac)
    change = Change(h2)
    check(wait_until(lambda: change.now().get("np_cnp_sent", 0) > 0, 3), "no CNP after the link came up again")


@case
def a_renamed_net_device_goes_on():
    h2.set(min_time_between_cnps=0)
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    Injector(mark(qp.qpn))
    time.sleep(0.3)
    run("ip", "-n", h2.namespace, "link", "set", "eth0", "name", "other0")
    try:
        change = Change(h2)
        check(wait_until(lambda: change.now().get("np_cnp_sent", 0) > 0, 2), "no CNPs under the new name")
    finally:
        run("ip", "-n", h2.namespace, "link", "set", "other0", "name", "eth0")


@case
def rdma_rxe_can_go_after_the_module():
    net.down()
    Module.unload()
    run("rmmod", "rdma_rxe", timeout=30)
    Module.load()
    check(Module.loaded(), "the module does not come back")


@case
def the_module_needs_no_device_and_finds_those_that_were_there():
    net.down()
    check(not devices(), f"devices: {devices()}")
    Module.unload()
    setup()
    Module.load()
    equal(sorted(devices()), sorted([h1.device, h2.device]), "devices with counters")
    qp = h2.qps().new("rc").rtr(h1.ip, 0x33)
    change = Change(h2)
    h1.sender.send(h1.to(h2, mark(qp.qpn)))
    change.settle(np_cnp_sent=1)


main(setup, ("ip", "tc", "nft", "rdma", "ib_write_bw"))
