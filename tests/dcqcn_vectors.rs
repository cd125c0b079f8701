// SPDX-License-Identifier: GPL-2.0

//! Golden traces of the RP's state machine: `data/dcqcn.json`, and the worked
//! example of a rate that is cut, recovers through two phases, and is cut again.

use rxe_cc::dcqcn::params::{parse, Group, Id, Param, Preset, RpParams};
use rxe_cc::dcqcn::rp::{Alpha, Phase, State};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct File {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    line_rate_mbps: u32,
    dilation: u32,
    knobs: BTreeMap<String, serde_json::Value>,
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    t_ns: u64,
    ev: String,
    bytes: Option<u32>,
    rc: u64,
    rt: u64,
    alpha: f64,
    time_stage: u64,
    byte_stage: u64,
    limited: bool,
}

fn vectors() -> Vec<Vector> {
    let file: File = serde_json::from_str(include_str!("data/dcqcn.json")).unwrap();
    assert!(file.vectors.len() >= 12);
    file.vectors
}

fn knob(name: &str) -> &'static Param {
    Param::find(Group::RoceRp, name)
        .or_else(|| Param::find(Group::RxeCc, name))
        .unwrap_or_else(|| panic!("no knob {name}"))
}

fn params(vector: &Vector) -> RpParams {
    let mut values = BTreeMap::new();
    for (name, value) in &vector.knobs {
        let param = knob(name);
        let text = match value {
            serde_json::Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        values.insert(param.id.index(), parse(param, text.as_bytes()).unwrap());
    }
    values.insert(Id::Dilation.index(), vector.dilation);
    RpParams::from_values(
        |id| {
            let given = values.get(&id.index()).copied();
            given.unwrap_or_else(|| Preset::ConnectX.value(id))
        },
        vector.line_rate_mbps,
    )
}

/// The flow as an outsider sees it: without state it is unlimited.
fn shown(state: Option<&State>, p: &RpParams) -> (u64, u64, f64, u64, u64, bool) {
    match state {
        None => (p.maximum_bps(), p.maximum_bps(), 0.0, 0, 0, false),
        Some(state) => {
            let view = state.view(p);
            let alpha = view.alpha.units() as f64 / (1u64 << Alpha::FRACTION_BITS) as f64;
            (
                view.rc,
                view.rt,
                alpha,
                view.time_stage,
                view.byte_stage,
                view.limited,
            )
        }
    }
}

fn near(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) as f64 <= expected as f64 * 1e-4
}

/// Runs a vector; `free` frees the state as soon as it may be, and otherwise it
/// is kept for ever.
fn run(vector: &Vector, free: bool) {
    let p = params(vector);
    let mut state: Option<State> = None;
    for event in &vector.events {
        let now = event.t_ns;
        match (event.ev.as_str(), state.as_mut()) {
            ("cnp", None) => state = Some(State::first_cnp(now, &p)),
            ("cnp", Some(state)) => drop(state.on_cnp(now, &p)),
            ("sent", Some(state)) => drop(state.on_sent(now, event.bytes.unwrap(), &p)),
            ("read", Some(state)) => drop(state.advance(now, &p)),
            ("sent" | "read", None) => {}
            (other, _) => panic!("unknown event {other}"),
        }
        if free && state.is_some_and(|state| state.can_free(now, &p)) {
            state = None;
        }
        let (rc, rt, alpha, time_stage, byte_stage, limited) = shown(state.as_ref(), &p);
        let context = format!(
            "{}: {event:?}, found rc {rc} rt {rt} alpha {alpha}",
            vector.name
        );
        assert!(near(rc, event.rc), "{context}");
        assert!(near(rt, event.rt), "{context}");
        assert!((alpha - event.alpha).abs() <= 0.01, "{context}");
        assert_eq!(
            (time_stage, byte_stage, limited),
            (event.time_stage, event.byte_stage, event.limited),
            "{context}"
        );
    }
}

#[test]
fn golden_traces_are_followed() {
    for vector in vectors() {
        run(&vector, true);
    }
}

#[test]
fn a_state_that_is_kept_behaves_as_if_it_had_been_freed() {
    for vector in vectors() {
        run(&vector, false);
    }
}

#[test]
fn the_worked_example_64_48_56_60_62_63_65_5_68_75_51_6() {
    let p = RpParams::from_values(
        |id| match id {
            Id::RpgThreshold => 3,
            Id::RpgAiRate => 4_000,
            Id::ClampTgtRate => 1,
            Id::DceTcpRtt => 131_071,
            Id::InitialAlphaValue => 512,
            Id::RateToSetOnFirstCnp => 64_000,
            Id::RpgByteReset => 1_000,
            _ => Preset::ConnectX.value(id),
        },
        200_000,
    );
    const STAGE_BYTES: u32 = 64_000;
    const STAGE_NS: u64 = 300_000;
    let gbps = |state: &State| {
        let view = state.view(&p);
        (view.rc as f64 / 1e9, view.rt as f64 / 1e9, view.phase)
    };

    let mut state = State::first_cnp(0, &p);
    assert_eq!(gbps(&state), (64.0, 64.0, Phase::FastRecovery));
    let cut = 10_000;
    let _ = state.on_cnp(cut, &p);
    assert_eq!(gbps(&state), (48.0, 64.0, Phase::FastRecovery));

    let timer = |state: &mut State, nth: u64| {
        let events = state.advance(cut + nth * STAGE_NS, &p);
        assert_eq!(events.increases, 1);
        gbps(state)
    };
    let bytes = |state: &mut State| {
        let events = state.on_sent(state.now_ns() + 1, STAGE_BYTES, &p);
        assert_eq!(events.increases, 1);
        gbps(state)
    };
    assert_eq!(timer(&mut state, 1), (56.0, 64.0, Phase::FastRecovery));
    assert_eq!(bytes(&mut state), (60.0, 64.0, Phase::FastRecovery));
    assert_eq!(timer(&mut state, 2), (62.0, 64.0, Phase::FastRecovery));
    assert_eq!(bytes(&mut state), (63.0, 64.0, Phase::FastRecovery));
    assert_eq!(bytes(&mut state), (65.5, 68.0, Phase::AdditiveIncrease));
    assert_eq!(timer(&mut state, 3), (68.75, 72.0, Phase::AdditiveIncrease));

    let events = state.on_cnp(state.now_ns() + 1, &p);
    assert_eq!(events.cuts, 1);
    assert_eq!(gbps(&state), (51.5625, 68.75, Phase::FastRecovery));
    let view = state.view(&p);
    assert_eq!((view.time_stage, view.byte_stage), (0, 0));
    assert_eq!((view.alpha.whole(), view.alpha.thousandths()), (512, 0));
    assert_eq!(view.alpha.to_string(), "512.000");
}
