// SPDX-License-Identifier: GPL-2.0

//! A machine of files for the tests of the command line, and running the command on it.
//!
//! In: hosts with a netdev and an rxe device each, as in `samples/fabric`. Out: a tree
//! that `--sysroot` takes, gone when the value goes, and what `rxecc` says of it.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rxe_cc::dcqcn::params::{Group, PARAMS};

pub(crate) const QPS_HEAD: &str = "# qpn type peer_qpn peer | rp: prio phase rc_kbps rt_kbps \
    model_rc_kbps alpha/1024 time_stage byte_stage held cnps cuts since_cut_us | np: window \
    marks cnps\n";

/// The tree.
pub(crate) struct Machine {
    root: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// What a run of the command came to.
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Machine {
    /// Neither modules nor devices.
    pub(crate) fn bare() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("machine-{}-{number}", std::process::id());
        let machine = Self {
            root: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name),
        };
        fs::create_dir_all(machine.path("sys/class")).unwrap();
        machine
    }

    /// Two hosts h1 and h2, each a namespace with eth0, on which rxe1 and rxe2 are;
    /// with rxe_cc.
    pub(crate) fn fabric() -> Self {
        let machine = Self::without_rxe_cc();
        machine.mkdir("sys/module/rxe_cc");
        for host in 1..=2 {
            machine.add_knobs(&format!("run/netns/h{host}/sys/class/net/eth0/ecn"));
            machine.add_counters(&format!("rxe{host}"));
        }
        machine
    }

    /// The same without rxe_cc.
    pub(crate) fn without_rxe_cc() -> Self {
        let machine = Self::bare();
        machine.mkdir("sys/module/rdma_rxe");
        for host in 1..=2 {
            let netdev = format!("run/netns/h{host}/sys/class/net/eth0");
            machine.write(
                &format!("{netdev}/address"),
                &format!("02:cc:15:00:00:0{host}\n"),
            );
            machine.write(&format!("{netdev}/speed"), "10000\n");
            let device = format!("sys/class/infiniband/rxe{host}");
            machine.write(&format!("{device}/parent"), "eth0\n");
            machine.write(
                &format!("{device}/node_guid"),
                &format!("00cc:15ff:fe00:000{host}\n"),
            );
            machine.write(&format!("{device}/ports/1/hw_counters/sent_pkts"), "17\n");
        }
        machine
    }

    fn add_knobs(&self, ecn: &str) {
        for group in Group::ALL.into_iter().filter(|group| group.has_enable()) {
            for priority in 0..8 {
                self.write(&format!("{ecn}/{}/enable/{priority}", group.name()), "1\n");
            }
        }
        for param in &PARAMS {
            let path = format!("{ecn}/{}/{}", param.group.name(), param.name);
            self.write(&path, &format!("{}\n", param.show(param.connectx)));
        }
    }

    fn add_counters(&self, device: &str) {
        let port = format!("sys/class/infiniband/{device}/ports/1");
        for name in [
            "np_ecn_marked_roce_packets",
            "np_cnp_sent",
            "rp_cnp_handled",
            "rp_cnp_ignored",
        ] {
            self.write(&format!("{port}/hw_counters/{name}"), "0\n");
        }
        for name in ["np_cnp_immediate", "rp_rate_cuts", "rp_limited_qps"] {
            self.write(&format!("{port}/rxe_cc/{name}"), "0\n");
        }
        self.write(&format!("sys/kernel/debug/rxe_cc/{device}/qps"), QPS_HEAD);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn mkdir(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_dir_all(self.path(path)).unwrap();
    }

    /// The knob of a host's eth0, without the newline.
    pub(crate) fn knob(&self, host: &str, knob: &str) -> String {
        let path = self.path(&format!("run/netns/{host}/sys/class/net/eth0/ecn/{knob}"));
        fs::read_to_string(path).unwrap().trim_end().to_owned()
    }

    /// `rxecc ARGUMENTS`, which are separated by spaces, with its output piped.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rxecc"));
        command
            .args(arguments.split_whitespace())
            .env("RXECC_SYSROOT", &self.root)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The same run.
    pub(crate) fn rxecc(&self, arguments: &str) -> Said {
        let output: Output = self.command(arguments).output().unwrap();
        Said {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The same where it must end well: its output.
    pub(crate) fn done(&self, arguments: &str) -> String {
        let said = self.rxecc(arguments);
        assert_eq!(
            said.status,
            Some(0),
            "rxecc {arguments}: {}{}",
            said.out,
            said.err
        );
        assert_eq!(said.err, "", "rxecc {arguments}");
        said.out
    }

    /// The same where it must fail: the one sentence.
    pub(crate) fn refused(&self, arguments: &str) -> String {
        let said = self.rxecc(arguments);
        assert_eq!(
            said.status,
            Some(2),
            "rxecc {arguments}: {}{}",
            said.out,
            said.err
        );
        assert_eq!(
            said.err.lines().count(),
            1,
            "rxecc {arguments}: {}",
            said.err
        );
        said.err
    }
}
