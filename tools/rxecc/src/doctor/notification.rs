// SPDX-License-Identifier: GPL-2.0

//! Checks of the notification point: marks are answered, and the answers arrive.

use rxe_cc::dcqcn::params::{Enable, Group, PRIORITIES};

use super::observed::{Host, Observation};
use super::setup::each;
use super::Said;

/// So many CNPs are enough to miss them.
const SURE_CNPS: u64 = 5;

/// Whether `part` of `all` is more than what comes and goes with a QP: a tenth.
pub(super) fn is_notable(part: u64, all: u64) -> bool {
    part > 0 && part * 10 >= all
}

/// One half is on for the priorities that are in use; `counter` counts those that it
/// was off for, which are `what`.
pub(super) fn half_off(o: &Observation, half: Group, counter: &str, what: &str) -> Vec<Said> {
    each(o, |host| {
        let count = host.count(o, counter);
        let enable = host.knobs.as_ref().map(|knobs| knobs.enable(half));
        let is_off = enable.is_some_and(|enable| enable != Enable::ALL);
        let is_all_off = enable.is_some_and(|enable| enable.bits() == 0);
        let short = half.name().trim_start_matches("roce_").to_uppercase();
        // At rest an old count says nothing about a half that is on by now.
        if !is_all_off && (count == 0 || (enable.is_some() && !is_off)) {
            return None;
        }
        let which = match enable {
            Some(_) if is_all_off => "every priority".to_owned(),
            Some(enable) => {
                let off = (0..PRIORITIES).filter(|priority| !enable.is_on(*priority));
                let off: Vec<String> = off.map(|priority| priority.to_string()).collect();
                match &off[..] {
                    [one] => format!("priority {one}, which is in use"),
                    several => format!("priorities {}, one of which is in use", several.join(", ")),
                }
            }
            None => "a priority that is in use".to_owned(),
        };
        let seen = match count {
            0 => String::new(),
            count => format!(": {count} {what} {}", o.when()),
        };
        Some((
            format!("its {short} is off for {which}{seen}"),
            format!(
                "{} (priority = DSCP / 8)",
                host.set(&format!("{}/enable", half.name()), 1)
            ),
        ))
    })
}

/// The receiver's half is on.
pub(super) fn np_off(o: &Observation) -> Vec<Said> {
    half_off(
        o,
        Group::RoceNp,
        "np_ce_disabled",
        "marks were not answered",
    )
}

/// Marks are on packets that somebody accepts.
pub(super) fn marks_invalid(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let (count, all) = (
            host.count(o, "np_ce_invalid"),
            host.count(o, "np_ecn_marked_roce_packets"),
        );
        // They were not read at one moment.
        let all = all.max(count);
        is_notable(count, all).then(|| {
            (
                format!(
                    "{count} of {all} CE marks {} were on packets that no QP here accepts (QPN, sender's \
                     address, P_Key, ICRC or form)",
                    o.when()
                ),
                "look at them (tcpdump -v udp port 4791): a NAT or a router that changes more than TTL and \
                 TOS, a replay for a QP that is gone, or an injector that errs"
                    .to_owned(),
            )
        })
    })
}

/// CNPs get out.
pub(super) fn cnp_send_failed(o: &Observation) -> Vec<Said> {
    each(o, |host| {
        let count = host.count(o, "np_cnp_send_failed");
        let all = count + host.count(o, "np_cnp_sent");
        is_notable(count, all).then(|| {
            (
                format!("{count} of {all} CNPs could not be sent {}{}", o.when(), hint(o)),
                "there must be a route back to the sender (ip route get), and no firewall that drops UDP \
                 to port 4791 on its way out"
                    .to_owned(),
            )
        })
    })
}

/// CNPs arrive.
pub(super) fn cnp_lost(o: &Observation) -> Vec<Said> {
    let remedy = |peer: &str| {
        format!(
            "let UDP to port 4791 through to {peer}, from source port 0 as well (firewalls like to drop \
             that: rxecc set cnp_udp_sport 49152 --all goes around it)"
        )
    };
    let mut said = Vec::new();
    if o.is_busy() && o.is_root {
        for peer in &o.hosts {
            let Some(counters) = &peer.counters else {
                continue;
            };
            // Those that could not even leave have a line of their own.
            let all_left = |host: &&Host| host.count(o, "np_cnp_send_failed") == 0;
            let sent: u64 = o
                .hosts
                .iter()
                .filter(all_left)
                .flat_map(|host| host.known_qps().iter().map(move |qp| (host, qp)))
                .filter(|(_, qp)| qp.peer.as_deref().is_some_and(|address| peer.owns(address)))
                .map(|(host, qp)| host.cnps_of(qp))
                .sum();
            let came = counters.gain("rp_cnp_handled") + counters.gain("rp_cnp_ignored");
            if sent >= SURE_CNPS && came * 2 < sent {
                said.push(Said {
                    subject: peer.name.clone(),
                    text: format!(
                        "of {sent} CNPs sent to it {} only {came} arrived{}",
                        o.when(),
                        hint(o)
                    ),
                    remedy: remedy(&peer.name),
                });
            }
        }
        return said;
    }
    // Nobody knows whose they were: all that is certain is when none came anywhere.
    let sum = |name: &str| -> u64 { o.hosts.iter().map(|host: &Host| host.count(o, name)).sum() };
    let (sent, came) = (
        sum("np_cnp_sent"),
        sum("rp_cnp_handled") + sum("rp_cnp_ignored"),
    );
    if o.hosts.len() > 1 && sent >= SURE_CNPS && came == 0 {
        said.push(Said {
            subject: "this machine".to_owned(),
            text: format!(
                "{sent} CNPs were sent {}, and none arrived at any device here{}",
                o.when(),
                hint(o)
            ),
            remedy: remedy("the senders of the data"),
        });
    }
    said
}

/// What firewalls there are that may be to blame.
fn hint(o: &Observation) -> String {
    match &o.drops[..] {
        [] => String::new(),
        drops => format!(" ({})", drops.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::examine;
    use super::super::observed::tests::{healthy, idle, only};
    use super::*;

    #[test]
    fn an_np_that_is_off_for_the_priority_in_use_is_told_with_the_priority() {
        let mut o = healthy();
        o.knobs(2).np = Enable::ALL.with(3, false);
        assert_eq!(examine(&o), [], "off for a priority that nobody uses");
        o.add(2, "np_ce_disabled", 40);
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("np_off", "rxe2"));
        assert!(found.line().contains("priority 3"), "{found:?}");
        assert!(
            found
                .remedy
                .starts_with("rxecc set roce_np/enable 1 -d rxe2"),
            "{found:?}"
        );
    }

    #[test]
    fn an_np_that_is_off_altogether_is_told_at_rest_too() {
        let mut o = idle();
        o.knobs(2).np = Enable::from_bits(0);
        assert!(only(&o).line().contains("every priority"));
        let mut o = idle();
        o.add(2, "np_ce_disabled", 40);
        assert_eq!(examine(&o), [], "on again");
    }

    #[test]
    fn marks_that_no_qp_accepts_are_told_unless_they_are_few() {
        let mut o = healthy();
        o.add(2, "np_ecn_marked_roce_packets", 3);
        o.add(2, "np_ce_invalid", 3);
        assert_eq!(examine(&o), []);
        o.add(2, "np_ce_invalid", 10);
        assert_eq!(only(&o).check, "marks_invalid");
    }

    #[test]
    fn cnps_that_cannot_leave_are_told() {
        let mut o = healthy();
        o.add(2, "np_cnp_send_failed", 3);
        assert_eq!(only(&o).check, "cnp_send_failed");
    }

    #[test]
    fn cnps_that_do_not_arrive_are_told_with_the_rule_that_drops_them() {
        let mut o = healthy();
        o.hosts[0].counters = Some(Default::default());
        o.drops
            .push("an nft rule of h1 drops UDP port 4791".to_owned());
        let found = only(&o);
        assert_eq!((found.check, &*found.subject), ("cnp_lost", "rxe1"));
        assert!(
            found
                .line()
                .contains("of 20 CNPs sent to it in 2.0 s only 0 arrived (an nft rule of h1"),
            "{found:?}"
        );
    }

    #[test]
    fn cnps_that_could_not_leave_are_not_missed_as_well() {
        let mut o = healthy();
        o.hosts[0].counters = Some(Default::default());
        o.add(2, "np_cnp_send_failed", 20);
        assert_eq!(only(&o).check, "cnp_send_failed");
    }

    #[test]
    fn cnps_to_another_machine_are_not_missed() {
        let mut o = healthy();
        o.hosts.remove(0);
        assert_eq!(examine(&o), []);
    }

    #[test]
    fn at_rest_cnps_are_missed_when_none_ever_came() {
        let mut o = idle();
        o.add(2, "np_cnp_sent", 50);
        assert_eq!(only(&o).check, "cnp_lost");
        o.add(1, "rp_cnp_handled", 1);
        assert_eq!(examine(&o), []);
    }
}
