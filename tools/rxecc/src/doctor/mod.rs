// SPDX-License-Identifier: GPL-2.0

//! `rxecc doctor`: why nothing happens.
//!
//! What was seen of this machine comes in ([`observed::Observation`], gathered by
//! [`gather`] over a few seconds), [`Finding`]s go out: what is wrong, seen by whom, and
//! what to do. Each check is a small function over the observation and stands once in
//! [`CHECKS`]; a check whose facts are missing (no root, no module yet) finds nothing.
//!
//! The checks are sorted by the way of a mark: set up at all, sent as ECT
//! and marked ([`marking`]), answered ([`notification`]), obeyed ([`reaction`]).

pub(crate) mod gather;
mod marking;
mod notification;
pub(crate) mod observed;
mod outside;
mod reaction;
mod setup;

use serde::Serialize;

use observed::Observation;

/// Something that keeps congestion control from working.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// [`Check::name`].
    pub(crate) check: &'static str,
    /// Whose fault: a device, a netdev, or `this machine`.
    pub(crate) subject: String,
    /// What was seen, and what it does.
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Finding {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!("{}: {}. Remedy: {}", self.subject, self.text, self.remedy)
    }
}

/// What a check says; [`examine`] adds the check's name.
struct Said {
    subject: String,
    text: String,
    remedy: String,
}

/// One thing that may be wrong.
pub(crate) struct Check {
    /// Its name, for scripts.
    pub(crate) name: &'static str,
    find: fn(&Observation) -> Vec<Said>,
}

const fn check(name: &'static str, find: fn(&Observation) -> Vec<Said>) -> Check {
    Check { name, find }
}

/// All checks, in the order in which their findings are told.
pub(crate) static CHECKS: &[Check] = &[
    check("kernel", setup::kernel),
    check("no_module", setup::no_module),
    check("no_device", setup::no_device),
    check("device_without_module", setup::device_without_module),
    check("netns_exclusive", setup::netns_exclusive),
    check("interface_down", setup::interface_down),
    check("two_devices", setup::two_devices),
    check("loopback", setup::loopback),
    check("line_rate", setup::line_rate),
    check("knob_conflict", setup::knob_conflict),
    check("dilation_differs", setup::dilation_differs),
    check("not_ect", marking::not_ect),
    check("born_ce", marking::born_ce),
    check("red_without_ecn", marking::red_without_ecn),
    check("netem_ecn", marking::netem_ecn),
    check("wrong_egress", marking::wrong_egress),
    check("no_marks", marking::no_marks),
    check("np_off", notification::np_off),
    check("marks_invalid", notification::marks_invalid),
    check("cnp_send_failed", notification::cnp_send_failed),
    check("cnp_lost", notification::cnp_lost),
    check("rp_off", reaction::rp_off),
    check("cnp_malformed", reaction::cnp_malformed),
    check("cnp_bad_icrc", reaction::cnp_bad_icrc),
    check("cnp_unknown_qp", reaction::cnp_unknown_qp),
    check("cnp_wrong_peer", reaction::cnp_wrong_peer),
    check("cnp_no_memory", reaction::cnp_no_memory),
    check("time_constants", reaction::time_constants),
    check("never_limited", reaction::never_limited),
    check("at_the_floor", reaction::at_the_floor),
    check("held_for_ever", reaction::held_for_ever),
    check("rewinds", reaction::rewinds),
    check("responses_dropped", reaction::responses_dropped),
];

/// Everything that is wrong.
pub(crate) fn examine(observation: &Observation) -> Vec<Finding> {
    CHECKS
        .iter()
        .flat_map(|check| {
            (check.find)(observation).into_iter().map(|said| Finding {
                check: check.name,
                subject: said.subject,
                text: said.text,
                remedy: said.remedy,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::observed::tests::{healthy, idle};
    use super::*;

    #[test]
    fn a_healthy_experiment_has_no_finding() {
        assert_eq!(examine(&healthy()), []);
    }

    #[test]
    fn an_idle_machine_that_is_set_up_has_no_finding() {
        assert_eq!(examine(&idle()), []);
    }

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn every_check_stands_in_the_documentation() {
        let page = include_str!("../../../../Documentation/doctor.md");
        for check in CHECKS {
            let row = format!("| `{}` |", check.name);
            assert!(page.contains(&row), "{} is missing", check.name);
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, CHECKS.len(), "a row of a check that is gone");
    }

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding {
            check: "x",
            subject: "rxe1".to_owned(),
            text: "it is so".to_owned(),
            remedy: "do this".to_owned(),
        };
        assert_eq!(finding.line(), "rxe1: it is so. Remedy: do this");
    }
}
