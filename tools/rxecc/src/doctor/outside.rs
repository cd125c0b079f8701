// SPDX-License-Identifier: GPL-2.0

//! What other tools tell of the machine around the devices: the queues of `tc`, the
//! rules of `nft`, `iptables-save` and `ip6tables-save`. Their output comes in, values go
//! out; what they mean is left to the checks.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::observed::Qdisc;

/// The port of RoCE, as rules write it.
const ROCE_PORT: u64 = 4791;

#[derive(Deserialize)]
struct TcQdisc {
    kind: String,
    dev: String,
    #[serde(default)]
    options: Value,
    #[serde(default)]
    marked: u64,
    #[serde(default)]
    ecn_mark: u64,
    #[serde(default)]
    early: u64,
}

/// `tc -s -j qdisc show`: the queues of each netdev, those left out that do nothing.
///
/// # Errors
///
/// It is not what tc writes.
pub(super) fn qdiscs(text: &str) -> Result<BTreeMap<String, Vec<Qdisc>>> {
    let all: Vec<TcQdisc> = match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).context("tc -s -j qdisc show")?,
    };
    let mut netdevs: BTreeMap<String, Vec<Qdisc>> = BTreeMap::new();
    for qdisc in all.into_iter().filter(|qdisc| qdisc.kind != "noqueue") {
        let number = |name: &str| qdisc.options.get(name).and_then(Value::as_u64);
        let is_shaper = matches!(&*qdisc.kind, "tbf" | "cake");
        netdevs.entry(qdisc.dev).or_default().push(Qdisc {
            ecn: qdisc
                .options
                .get("ecn")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            min_bytes: number("min").filter(|_| qdisc.kind == "red"),
            // tc writes rates as bytes a second.
            rate_bps: number("rate")
                .filter(|_| is_shaper)
                .map(|rate| rate.saturating_mul(8)),
            marked: qdisc.marked + qdisc.ecn_mark,
            early: qdisc.early,
            kind: qdisc.kind,
        });
    }
    Ok(netdevs)
}

/// `nft -j list ruleset`: each rule that drops the RoCE port or its odd source port 0,
/// and each chain that drops what no rule lets through, for people.
pub(super) fn nft_drops(text: &str, place: &str) -> Vec<String> {
    let ruleset: Value = serde_json::from_str(text).unwrap_or_default();
    let entries = ruleset.get("nftables").and_then(Value::as_array);
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        let name = |of: &Value| {
            let part = |key: &str| {
                of.get(key)
                    .and_then(Value::as_str)
                    .unwrap_or("?")
                    .to_owned()
            };
            format!("{} {}", part("family"), part("table"))
        };
        if let Some(rule) = entry.get("rule") {
            if drops(rule) && means_roce(rule) {
                let chain = rule.get("chain").and_then(Value::as_str).unwrap_or("?");
                found.push(format!(
                    "an nft rule of {place} drops such packets: table {}, chain {chain}",
                    name(rule)
                ));
            }
        }
        if let Some(chain) = entry.get("chain") {
            if chain.get("policy").and_then(Value::as_str) == Some("drop") {
                let chain_name = chain.get("name").and_then(Value::as_str).unwrap_or("?");
                found.push(format!(
                    "an nft chain of {place} drops what no rule lets through: table {}, chain {chain_name}",
                    name(chain)
                ));
            }
        }
    }
    found.dedup();
    found
}

fn expressions(rule: &Value) -> impl Iterator<Item = &Value> {
    rule.get("expr")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn drops(rule: &Value) -> bool {
    expressions(rule).any(|part| part.get("drop").is_some() || part.get("reject").is_some())
}

/// A match on a UDP port that is, or has among others, that of RoCE, or source port 0.
fn means_roce(rule: &Value) -> bool {
    expressions(rule)
        .filter_map(|part| part.get("match"))
        .any(|part| {
            let field = part.pointer("/left/payload/field").and_then(Value::as_str);
            let right = part.get("right").unwrap_or(&Value::Null);
            match field {
                Some("dport") => holds(right, ROCE_PORT),
                Some("sport") => holds(right, 0),
                _ => false,
            }
        })
}

/// Whether a value, set or range of nft's has this number.
fn holds(value: &Value, number: u64) -> bool {
    if let Some(range) = value.get("range").and_then(Value::as_array) {
        let ends: Vec<u64> = range.iter().filter_map(Value::as_u64).collect();
        return matches!(ends[..], [low, high] if (low..=high).contains(&number));
    }
    match value {
        Value::Number(one) => one.as_u64() == Some(number),
        Value::Object(map) => map
            .get("set")
            .and_then(Value::as_array)
            .is_some_and(|set| set.iter().any(|one| holds(one, number))),
        _ => false,
    }
}

/// `iptables-save`: each rule that drops the RoCE port, and each chain that drops what
/// no rule lets through, for people.
pub(super) fn iptables_drops(text: &str, program: &str, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let follows = |option: &str, values: &[&str]| {
            words
                .windows(2)
                .any(|pair| pair[0] == option && values.contains(&pair[1]))
        };
        if line.starts_with("-A")
            && follows("-j", &["DROP", "REJECT"])
            && follows("--dport", &["4791"])
        {
            found.push(format!(
                "a rule of {place} drops such packets ({program}): {line}"
            ));
        }
        if let [chain, "DROP", ..] = words[..] {
            if let Some(chain) = chain.strip_prefix(':') {
                found.push(format!(
                    "{program}'s chain {chain} of {place} drops what no rule lets through"
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As tc 6.15 writes it.
    const TC: &str = r#"[
        {"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{},"bytes":0,"packets":0,"drops":0},
        {"kind":"tbf","handle":"2:","dev":"h2","root":true,"options":{"rate":5000000,"burst":50000,"lat":70000},"bytes":135914,"drops":0},
        {"kind":"red","handle":"3:","dev":"h2","parent":"2:1","options":{"limit":400000,"min":15000,"max":45000,"ecn":true,"harddrop":false},"bytes":1,"marked":7,"early":3,"pdrop":0,"other":0}]"#;

    #[test]
    fn queues_are_read_by_netdev_with_their_marks() {
        let found = qdiscs(TC).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["h2"]);
        let [tbf, red] = &found["h2"][..] else {
            panic!("{found:?}")
        };
        assert_eq!((tbf.rate_bps, tbf.ecn), (Some(40_000_000), false));
        assert_eq!(
            (red.ecn, red.min_bytes, red.marked, red.early),
            (true, Some(15_000), 7, 3)
        );
        assert!(qdiscs("").unwrap().is_empty());
        assert!(qdiscs("what?").is_err());
    }

    #[test]
    fn nft_rules_that_drop_roce_are_found_and_others_are_not() {
        let rule = |left: &str, right: &str, verdict: &str| {
            format!(
                r#"{{"nftables":[{{"rule":{{"family":"inet","table":"f","chain":"in","expr":[
                {{"match":{{"op":"==","left":{{"payload":{{"protocol":"udp","field":"{left}"}}}},"right":{right}}}}},
                {{"{verdict}":null}}]}}}}]}}"#
            )
        };
        for (left, right, verdict, found) in [
            ("dport", "4791", "drop", 1),
            ("sport", "0", "drop", 1),
            ("dport", r#"{"set":[53,4791]}"#, "reject", 1),
            ("dport", r#"{"range":[4000,5000]}"#, "drop", 1),
            ("dport", "4791", "accept", 0),
            ("dport", "53", "drop", 0),
        ] {
            let text = rule(left, right, verdict);
            assert_eq!(nft_drops(&text, "h1").len(), found, "{text}");
        }
        assert!(
            nft_drops(&rule("dport", "4791", "drop"), "h1")[0].contains("table inet f, chain in")
        );
    }

    #[test]
    fn a_chain_that_drops_by_policy_is_found() {
        let text = r#"{"nftables":[{"chain":{"family":"inet","table":"f","name":"in","hook":"input","policy":"drop"}}]}"#;
        assert!(nft_drops(text, "h1")[0].contains("chain in"));
        assert_eq!(nft_drops("", "h1"), [""; 0]);
    }

    #[test]
    fn iptables_rules_and_policies_are_found() {
        let text = "*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
                    -A INPUT -p udp -m udp --dport 4791 -j DROP\n-A INPUT -p udp --dport 53 -j DROP\nCOMMIT\n";
        assert_eq!(iptables_drops(text, "iptables", "h1").len(), 2);
    }
}
