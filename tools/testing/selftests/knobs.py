# SPDX-License-Identifier: GPL-2.0
"""The files: which there are, their defaults and ranges, what they refuse, when
they come and go. The table is written out here on purpose: it is what a
ConnectX user expects, not what the module says of itself.
"""
import errno
import stat

from lab import *

BIG = 2**32 - 1
# file: (least, greatest, default)
KNOBS = {
    **{f"roce_np/enable/{n}": (0, 1, 1) for n in range(8)},
    "roce_np/min_time_between_cnps": (0, 131071, 4),
    "roce_np/cnp_dscp": (0, 63, 48),
    "roce_np/cnp_802p_prio": (0, 7, 6),
    **{f"roce_rp/enable/{n}": (0, 1, 1) for n in range(8)},
    "roce_rp/clamp_tgt_rate": (0, 1, 0),
    "roce_rp/clamp_tgt_rate_after_time_inc": (0, 1, 1),
    "roce_rp/rpg_time_reset": (1, 131071, 300),
    "roce_rp/rpg_byte_reset": (0, BIG, 32767),
    "roce_rp/rpg_threshold": (1, 31, 1),
    "roce_rp/rpg_max_rate": (0, BIG, 0),
    "roce_rp/rpg_ai_rate": (1, BIG, 5),
    "roce_rp/rpg_hai_rate": (1, BIG, 50),
    "roce_rp/rpg_gd": (0, 15, 11),
    "roce_rp/rpg_min_dec_fac": (1, 100, 50),
    "roce_rp/rpg_min_rate": (1, BIG, 1),
    "roce_rp/rate_to_set_on_first_cnp": (0, BIG, 0),
    "roce_rp/dce_tcp_g": (1, 1023, 1019),
    "roce_rp/dce_tcp_rtt": (1, 131071, 1),
    "roce_rp/rate_reduce_monitor_period": (1, 131071, 4),
    "roce_rp/initial_alpha_value": (1, 1023, 1023),
    "rxe_cc/line_rate": (0, None, 0),
    "rxe_cc/dilation": (1, 100000, 1),
    "rxe_cc/cnp_udp_sport": (0, 65535, 0),
}
# file: words, the default first
WORDS = {
    "rxe_cc/ect_mode": ("rewrite", "pass"),
    "rxe_cc/trust": ("dscp", "pcp"),
    "rxe_cc/hyper_increase": ("qcn", "constant", "doubling"),
    "rxe_cc/cnp_moderation": ("per_qp", "per_ip", "per_port"),
}
COUNTERS = """np_cnp_immediate np_cnp_deferred np_cnp_suppressed np_ce_disabled np_ce_not_data np_ce_invalid np_cnp_send_failed
    rp_cnp_disabled rp_cnp_malformed rp_cnp_bad_icrc rp_cnp_unknown_qp rp_cnp_wrong_peer rp_cnp_no_memory
    tx_not_ect tx_born_ce""".split()
RXE = """sent_pkts rcvd_pkts duplicate_request out_of_seq_request rcvd_rnr_err send_rnr_err rcvd_seq_err ack_deferred
    retry_exceeded_err retry_rnr_exceeded_err completer_retry_err send_err link_downed rdma_sends rdma_recvs sent_bytes rcvd_bytes""".split()


def setup():
    global net, h1, h2
    net = Network(2)
    h1, h2 = net.hosts


def refused(host, knob, value):
    before = host.knob(knob)
    try:
        host.write(knob, value)
    except OSError as error:
        equal(errno.errorcode[error.errno], "EINVAL", f"{knob} <- {value!r}")
    else:
        raise Failure(f"{knob} took {value!r} and is now {host.knob(knob)!r}")
    equal(host.knob(knob), before, f"{knob} after the refusal of {value!r}")


def tree(path):
    return sorted(os.path.relpath(os.path.join(where, name), path) for where, _, names in os.walk(path) for name in names)


@case
def the_files_are_these_with_the_defaults_of_a_connectx():
    root = f"{h1.sys}/class/net/eth0/ecn"
    equal(tree(root), sorted([*KNOBS, *WORDS]), "files")
    for knob, (_, _, default) in KNOBS.items():
        equal(h1.knob(knob), str(default), knob)
    for knob, words in WORDS.items():
        equal(h1.knob(knob), words[0], knob)


@case
def a_file_is_one_value_and_a_newline_with_mode_0644():
    for knob in [*KNOBS, *WORDS]:
        path = h1.knob_path(knob)
        with open(path) as file:
            text = file.read()
        check(text == text.strip() + "\n", f"{knob} reads {text!r}")
        equal(oct(stat.S_IMODE(os.stat(path).st_mode)), "0o644", f"mode of {knob}")


@case
def both_ends_of_each_range_are_taken_and_nothing_beyond():
    for knob, (least, greatest, default) in KNOBS.items():
        for value in (least, greatest) if greatest is not None else (least, 1000000):
            h1.write(knob, value)
            equal(h1.knob(knob), str(value), knob)
        h1.write(knob, f"{default}\n")
        equal(h1.knob(knob), str(default), knob)
        refused(h1, knob, least - 1)
        if greatest is not None:
            refused(h1, knob, greatest + 1)


@case
def words_are_taken_as_they_are_written():
    for knob, words in WORDS.items():
        for word in *reversed(words[1:]), words[0]:
            h1.write(knob, f"{word}\n")
            equal(h1.knob(knob), word, knob)
        for bad in "", "\n", words[1].upper(), words[1] + "x", words[1][:-1], f"{words[0]} {words[1]}", "0x1":
            if bad:
                refused(h1, knob, bad)


@case
def bad_input_is_refused_and_changes_nothing():
    for knob in "roce_np/min_time_between_cnps", "roce_rp/rpg_byte_reset", "roce_np/enable/3", "rxe_cc/dilation":
        for bad in "abc", "-1", "1x", "1 1", "1.0", "1,5", "+-1", "\n", " ", "1\n\n1", "4294967296", "18446744073709551616", \
                "9" * 100, "0x", "1\0002", "\x00", "é", "1;", "١":
            refused(h1, knob, bad)


@case
def every_file_survives_odd_lengths():
    for knob in "roce_np/min_time_between_cnps", "rxe_cc/ect_mode":
        refused(h1, knob, "1" * 4095)
        refused(h1, knob, " " * 4095)


@case
def hosts_have_knobs_of_their_own():
    h1.set(min_time_between_cnps=77)
    equal(h2.knob("roce_np/min_time_between_cnps"), "4", "h2's knob")


@case
def only_root_writes():
    status = run("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c",
                 f"cat {h1.knob_path('roce_np/cnp_dscp')} && echo 1 > {h1.knob_path('roce_np/cnp_dscp')}", fail=False)
    check("48" in status, f"nobody cannot read the knob: {status}")
    equal(h1.knob("roce_np/cnp_dscp"), "48", "the knob after nobody's write")


@case
def counters_stand_beside_those_of_rxe():
    there = os.listdir(HW.format(h1.device))
    missing = {*STANDARD, *RXE} - set(there)
    check(not missing, f"missing in hw_counters: {missing}")
    missing = set(COUNTERS) - set(os.listdir(OURS.format(h1.device)))
    check(not missing, f"missing in rxe_cc: {missing}")
    for directory in HW, OURS:
        path = directory.format(h1.device)
        for name in os.listdir(path):
            if directory is HW and name not in STANDARD:
                continue
            with open(f"{path}/{name}") as file:
                text = file.read()
            check(text.endswith("\n") and text.strip().isdigit(), f"{name} reads {text!r}")
            equal(os.stat(f"{path}/{name}").st_mode & 0o222, 0, f"write bits of {name}")


@case
def a_net_device_without_rxe_has_no_ecn_directory():
    for name in "lo",:
        check(not os.path.exists(f"{h1.sys}/class/net/{name}/ecn"), f"{name} has one")


@case
def the_directories_go_with_the_rxe_device_and_come_back_with_defaults():
    h2.write("roce_np/cnp_dscp", 1)
    h2.remove_device()
    check(not os.path.exists(f"{h2.sys}/class/net/eth0/ecn"), "ecn is still there")
    h2.add_device()
    equal(h2.knob("roce_np/cnp_dscp"), "48", "the knob of a new device")
    check(os.path.isdir(OURS.format(h2.device)), "no counters on a new device")


@case
def the_directory_follows_a_renamed_net_device():
    h2.set(cnp_dscp=7)
    run("ip", "-n", h2.namespace, "link", "set", "eth0", "name", "renamed0")
    try:
        equal(read(f"{h2.sys}/class/net/renamed0/ecn/roce_np/cnp_dscp"), "7", "the knob under the new name")
    finally:
        run("ip", "-n", h2.namespace, "link", "set", "renamed0", "name", "eth0")
    equal(h2.knob("roce_np/cnp_dscp"), "7", "the knob under the old name again")


@case
def reading_and_writing_while_the_device_goes_does_no_harm():
    script = f"""
import os, sys, random
paths = []
while True:
    for where, _, names in os.walk("{h2.sys}/class/net/eth0/ecn"):
        for name in names:
            path = os.path.join(where, name)
            try:
                text = open(path).read()
                fd = os.open(path, os.O_WRONLY)
                os.write(fd, text.encode())
                os.close(fd)
            except OSError:
                pass
"""
    workers = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(2)]
    cleanup(lambda: [w.kill() or w.wait() for w in workers])
    time.sleep(1)
    for _ in range(10):
        h2.renew_device()
        time.sleep(0.1)
    check(all(w.poll() is None for w in workers), "a reader died")


main(setup)
