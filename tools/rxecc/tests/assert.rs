// SPDX-License-Identifier: GPL-2.0

//! `rxecc assert`: what it says, and its exit status.

mod report_recordings;

use report_recordings::{made_up, rxecc, written, Kind};

/// Exit status, standard output and errors of `rxecc assert` on a way of its own.
fn assert_on(kind: Kind, name: &str, bounds: &[&str]) -> (i32, String, String) {
    let mut recording = made_up(kind, 4, 10.0);
    recording.run.measured = Some((1.0, 10.0));
    let dir = written(&format!("assert/{name}"), &recording)
        .display()
        .to_string();
    let output = rxecc(["assert", &dir].iter().chain(bounds));
    (
        output.status.code().expect("an exit status"),
        String::from_utf8(output.stdout).expect("UTF-8"),
        String::from_utf8(output.stderr).expect("UTF-8"),
    )
}

const ALL: [&str; 9] = [
    "--converged",
    "--fair=0.95",
    "--no-loss",
    "--utilisation=95%",
    "--queue-p99=kmax",
    "--cnp-rate-under=25",
    "--rate=h1=9.7mbit+-5%",
    "--no-errors",
    "--no-retransmissions",
];

#[test]
fn what_holds_is_ok_a_line_each() {
    let (status, said, errors) = assert_on(Kind::Paper, "holds", &ALL);
    assert_eq!(status, 0, "{said}{errors}");
    assert_eq!(said.lines().count(), ALL.len());
    assert!(
        said.lines().all(|line| line.starts_with("ok      ")),
        "{said}"
    );
}

#[test]
fn each_bound_can_fail() {
    let (kind, bounds) = (
        Kind::Paper,
        [
            "--converged=0.1%",
            "--fair=1.1",
            "--utilisation=99",
            "--queue-p99=1k",
            "--cnp-rate-under=10",
            "--rate=rxe1=9mbit+-1%",
        ],
    );
    for bound in bounds {
        let (status, said, errors) = assert_on(kind, "fails", &[bound]);
        assert_eq!(status, 1, "{bound}: {said}{errors}");
        assert!(said.starts_with("FAILED  "), "{said}");
    }
    for bound in ["--no-loss=0.5", "--no-retransmissions"] {
        let (status, said, _) = assert_on(Kind::Plain, "plain-fails", &[bound]);
        assert_eq!(
            (status, said.starts_with("FAILED  ")),
            (1, true),
            "{bound}: {said}"
        );
    }
}

#[test]
fn a_completion_error_fails() {
    let mut recording = made_up(Kind::Paper, 2, 2.0);
    recording.run.senders[0].errors = vec!["status 12".into()];
    let dir = written("assert/error", &recording);
    let output = rxecc(["assert".as_ref(), dir.as_os_str(), "--no-errors".as_ref()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_was_not_recorded_is_an_error_and_never_a_pass() {
    let bounds = ["--cnp-rate-under=1000000", "--no-errors"];
    let (status, said, errors) = assert_on(Kind::Plain, "unknown", &bounds);
    assert_eq!(status, 2, "{said}");
    assert!(
        errors.contains("it needs the counter np_cnp_sent"),
        "{errors}"
    );
    assert!(said.starts_with("ok      no-errors"), "{said}");

    let mut empty = made_up(Kind::Paper, 2, 2.0);
    empty.goodput.clear();
    empty.queue.clear();
    empty.counters.clear();
    empty.flows.clear();
    empty.run.senders.clear();
    let dir = written("assert/empty", &empty).display().to_string();
    for bound in ALL {
        let output = rxecc(["assert", &dir, bound]);
        assert_eq!(output.status.code(), Some(2), "{bound}");
        assert!(output.stdout.is_empty(), "{bound}");
    }
}

#[test]
fn without_goodput_a_rate_is_that_of_the_limiter() {
    let mut recording = made_up(Kind::Paper, 4, 10.0);
    recording.goodput.clear();
    let dir = written("assert/rc", &recording).display().to_string();
    let output = rxecc(["assert", &dir, "--rate", "h3=10mbit+-10%"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("ok      rate h3: mean of Rc "), "{said}");
}

#[test]
fn asking_for_nothing_or_nonsense_is_an_error() {
    for bounds in [
        &[][..],
        &["--rate=h1=10mbit"],
        &["--queue-p99=long"],
        &["--rate=h77=1mbit+-1%"],
    ] {
        let (status, said, errors) = assert_on(Kind::Paper, "nonsense", bounds);
        assert_eq!(status, 2, "{bounds:?}: {said}");
        assert!(!errors.is_empty());
    }
}
