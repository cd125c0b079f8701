// SPDX-License-Identifier: GPL-2.0

//! `rxecc names`: what other vendors and the DCQCN paper call a knob.
//!
//! The table stands here once; `Documentation/vendor-names.md` is written from it
//! (`WRITE_DOCS=1 cargo test -p rxecc`). mlx5 is the file in debugfs
//! (`mlx5/<pci>/cc_params/`), mlxconfig the firmware's setting, irdma the parameter of
//! Intel's out-of-tree module, bnxt_re the file in its debugfs (`cc_config/`).

use anyhow::{bail, Result};
use clap::Args;
use serde::Serialize;

use crate::system::Knob;
use crate::text::{columns, print, wrap, Align};

/// Which knob.
#[derive(Args)]
#[command(after_help = "\
Examples:
  rxecc names dce_tcp_g
  rxecc names RPG_AI_RATE_P1
  rxecc names R_AI

Units differ between vendors: the notes say how.")]
pub(crate) struct Options {
    /// A knob by any of its names (rpg_ai_rate, RPG_AI_RATE_P1, dcqcn_T); without it all.
    knob: Option<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// One knob and its names; empty where there is none.
#[derive(Clone, Copy, Debug, Serialize)]
struct Names {
    knob: &'static str,
    mlx5: &'static str,
    mlxconfig: &'static str,
    irdma: &'static str,
    bnxt_re: &'static str,
    paper: &'static str,
    note: &'static str,
}

macro_rules! names {
    ($($knob:literal: $mlx5:literal, $mlxconfig:literal, $irdma:literal, $bnxt_re:literal,
        $paper:literal, $note:literal;)*) => {
        &[$(Names {
            knob: $knob,
            mlx5: $mlx5,
            mlxconfig: $mlxconfig,
            irdma: $irdma,
            bnxt_re: $bnxt_re,
            paper: $paper,
            note: $note,
        }),*]
    };
}

/// knob: mlx5, mlxconfig, irdma, bnxt_re, the paper's symbol, a note.
const TABLE: &[Names] = names! {
    "roce_np/enable": "", "ROCE_CC_PRIO_MASK_P1", "dcqcn_enable", "enable_cc", "",
        "mlxconfig: bit N of the mask is enable/N of both halves";
    "roce_np/min_time_between_cnps": "np_min_time_between_cnps", "MIN_TIME_BETWEEN_CNPS_P1", "", "", "N",
        "the paper's 50 us at the receiver";
    "roce_np/cnp_dscp": "np_cnp_dscp", "CNP_DSCP_P1", "", "alt_vlan_dscp", "", "";
    "roce_np/cnp_802p_prio": "np_cnp_prio", "CNP_802P_PRIO_P1", "", "alt_vlan_pcp", "", "";
    "roce_rp/enable": "", "ROCE_CC_PRIO_MASK_P1", "dcqcn_enable", "enable_cc", "",
        "as roce_np/enable";
    "roce_rp/clamp_tgt_rate": "rp_clamp_tgt_rate", "CLAMP_TGT_RATE_P1", "", "", "R_T = R_C",
        "the paper does it in every cut: 1";
    "roce_rp/clamp_tgt_rate_after_time_inc": "rp_clamp_tgt_rate_ati", "CLAMP_TGT_RATE_AFTER_TIME_INC_P1",
        "", "", "", "";
    "roce_rp/rpg_time_reset": "rp_time_reset", "RPG_TIME_RESET_P1", "dcqcn_T", "", "T", "";
    "roce_rp/rpg_byte_reset": "rp_byte_reset", "RPG_BYTE_RESET_P1", "dcqcn_B", "", "B",
        "units of 64 bytes here: the paper's 10 MB are 156250; irdma counts bytes";
    "roce_rp/rpg_threshold": "rp_threshold", "RPG_THRESHOLD_P1", "dcqcn_F", "num_phase_per_state", "F", "";
    "roce_rp/rpg_max_rate": "rp_max_rate", "RPG_MAX_RATE_P1", "", "", "",
        "0 is the line rate";
    "roce_rp/rpg_ai_rate": "rp_ai_rate", "RPG_AI_RATE_P1", "dcqcn_rai_factor", "", "R_AI",
        "Mb/s; irdma counts packets of the congestion window";
    "roce_rp/rpg_hai_rate": "rp_hai_rate", "RPG_HAI_RATE_P1", "dcqcn_hai_factor", "", "R_HAI",
        "Mb/s; irdma counts packets of the congestion window";
    "roce_rp/rpg_gd": "rp_gd", "RPG_GD_P1", "", "", "the 2 of alpha/2",
        "alpha counts 1024ths: 11 is alpha/2, 10 is alpha";
    "roce_rp/rpg_min_dec_fac": "rp_min_dec_fac", "RPG_MIN_DEC_FAC_P1", "dcqcn_min_dec_factor", "", "",
        "what a cut leaves: 50 never takes more than half, 100 forbids cuts";
    "roce_rp/rpg_min_rate": "rp_min_rate", "RPG_MIN_RATE_P1", "dcqcn_min_rate_MBps", "", "",
        "Mb/s; irdma's name says megabytes";
    "roce_rp/rate_to_set_on_first_cnp": "rp_rate_to_set_on_first_cnp", "RATE_TO_SET_ON_FIRST_CNP_P1",
        "", "init_cr, init_tr", "", "bnxt_re sets current and target rate apart";
    "roce_rp/dce_tcp_g": "rp_dce_tcp_g", "DCE_TCP_G_P1", "", "run_avg_weight_g", "1 - g",
        "the weight of the old alpha, in 1024ths: the paper's g of 1/256 is 1020; bnxt_re counts g as a power of two";
    "roce_rp/dce_tcp_rtt": "rp_dce_tcp_rtt", "DCE_TCP_RTT_P1", "", "rtt", "K",
        "the paper's alpha timer, 55 us";
    "roce_rp/rate_reduce_monitor_period": "rp_rate_reduce_monitor_period",
        "RATE_REDUCE_MONITOR_PERIOD_P1", "dcqcn_rreduce_mperiod", "", "N",
        "the paper spaces the receiver's CNPs instead";
    "roce_rp/initial_alpha_value": "rp_initial_alpha_value", "INITIAL_ALPHA_VALUE_P1", "", "", "alpha = 1",
        "1023 is the paper's 1";
    "rxe_cc/ect_mode": "", "", "", "", "", "a NIC always sends ECT";
    "rxe_cc/trust": "", "", "", "", "", "mlnx_qos --trust on a ConnectX";
    "rxe_cc/line_rate": "", "", "", "", "line rate", "a NIC knows its link";
    "rxe_cc/dilation": "", "", "", "", "", "no NIC needs it";
    "rxe_cc/hyper_increase": "", "", "", "", "", "how much of R_HAI a stage adds";
    "rxe_cc/cnp_udp_sport": "", "", "", "", "", "0 on a ConnectX";
    "rxe_cc/cnp_moderation": "", "", "", "", "", "the paper's N is for each flow: per_qp";
};

impl Names {
    /// The names elsewhere: whose, and what.
    fn elsewhere(&self) -> [(&'static str, &'static str); 5] {
        [
            ("mlx5", self.mlx5),
            ("mlxconfig", self.mlxconfig),
            ("irdma", self.irdma),
            ("bnxt_re", self.bnxt_re),
            ("paper", self.paper),
        ]
    }

    fn is_called(&self, name: &str) -> bool {
        let names = self.elsewhere().into_iter();
        names
            .flat_map(|(_, names)| names.split(", "))
            .any(|known| !known.is_empty() && known.eq_ignore_ascii_case(name))
    }

    fn show(&self) -> String {
        let named = self.elsewhere().into_iter();
        let rows: Vec<Vec<String>> = named
            .filter(|(_, name)| !name.is_empty())
            .map(|(whose, name)| vec![whose.to_owned(), name.to_owned()])
            .collect();
        let mut text = format!(
            "{}\n{}",
            self.knob,
            columns("    ", &[Align::Left; 2], &rows)
        );
        if !self.note.is_empty() {
            text += &wrap("    ", 80, &format!("({})", self.note));
        }
        text
    }
}

/// Prints them.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let found = match &options.knob {
        Some(name) => find(name)?,
        None => TABLE.to_vec(),
    };
    let text = match options.json {
        true => serde_json::to_string_pretty(&found)? + "\n",
        false => found.iter().map(Names::show).collect(),
    };
    print(&text)?;
    Ok(true)
}

fn find(name: &str) -> Result<Vec<Names>> {
    let rows = TABLE.iter().copied();
    let foreign: Vec<Names> = rows.filter(|row| row.is_called(name)).collect();
    if !foreign.is_empty() {
        return Ok(foreign);
    }
    let paths: Vec<String> = match Knob::find(name) {
        Ok(knobs) => knobs.into_iter().map(Knob::path).collect(),
        Err(error) => bail!("{error:#}, nor one of another vendor"),
    };
    let meant = |row: &Names| {
        paths
            .iter()
            .any(|path| path == row.knob || path.starts_with(&format!("{}/", row.knob)))
    };
    Ok(TABLE.iter().copied().filter(meant).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rxe_cc::dcqcn::params::{Group, PARAMS};

    use super::*;

    #[test]
    fn every_knob_of_the_module_has_its_row() {
        let mut knobs: Vec<String> = Vec::new();
        for knob in Knob::all() {
            let path = match knob {
                Knob::Enable(group, _) => format!("{}/enable", group.name()),
                Knob::Param(_) => knob.path(),
            };
            if knobs.last() != Some(&path) {
                knobs.push(path);
            }
        }
        let rows: Vec<&str> = TABLE.iter().map(|row| row.knob).collect();
        assert_eq!(rows, knobs);
    }

    #[test]
    fn mlxconfig_calls_a_knob_of_a_connectx_by_its_own_name() {
        for param in PARAMS.iter().filter(|param| param.group != Group::RxeCc) {
            let path = Knob::Param(param.id).path();
            let row = TABLE.iter().find(|row| row.knob == path).unwrap();
            assert_eq!(row.mlxconfig, format!("{}_P1", param.name.to_uppercase()));
            assert!(
                row.mlx5.starts_with("np_") || row.mlx5.starts_with("rp_"),
                "{path}"
            );
        }
    }

    #[test]
    fn a_knob_is_found_by_any_of_its_names() {
        for name in [
            "rpg_time_reset",
            "rp_time_reset",
            "RPG_TIME_RESET_P1",
            "dcqcn_T",
            "t",
        ] {
            let found = find(name).unwrap();
            assert_eq!(found.len(), 1, "{name}");
            assert_eq!(found[0].knob, "roce_rp/rpg_time_reset", "{name}");
        }
        assert_eq!(
            find("init_tr").unwrap()[0].knob,
            "roce_rp/rate_to_set_on_first_cnp"
        );
        assert_eq!(find("N").unwrap().len(), 2);
        assert!(find("nobody").is_err());
    }

    /// The document's table.
    fn table() -> String {
        let mut text = "| knob | mlx5 | mlxconfig | irdma | bnxt_re | paper | |\n\
                        |---|---|---|---|---|---|---|\n"
            .to_owned();
        for row in TABLE {
            let mut cells = vec![format!("`{}`", row.knob)];
            for (whose, name) in row.elsewhere() {
                cells.push(match (whose, name) {
                    (_, "") => String::new(),
                    ("paper", name) => name.to_owned(),
                    (_, name) => format!("`{}`", name.replace(", ", "`, `")),
                });
            }
            cells.push(row.note.to_owned());
            text += &format!("| {} |\n", cells.join(" | "))
                .replace("|  |", "| |")
                .replace("|  |", "| |");
        }
        text
    }

    #[test]
    fn the_document_has_the_same_table() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Documentation/vendor-names.md");
        let document = fs::read_to_string(&path).unwrap();
        let (begin, end) = ("<!-- table names -->\n", "<!-- end -->");
        let (before, rest) = document.split_once(begin).expect(begin);
        let (got, after) = rest.split_once(end).expect(end);
        let want = table();
        if got != want && std::env::var_os("WRITE_DOCS").is_some() {
            fs::write(&path, format!("{before}{begin}{want}{end}{after}")).unwrap();
            return;
        }
        assert_eq!(got, want, "run WRITE_DOCS=1 cargo test -p rxecc");
    }
}
