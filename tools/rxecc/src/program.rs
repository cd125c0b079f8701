// SPDX-License-Identifier: GPL-2.0

//! Other programs, asked for what the kernel tells them: a command line comes in,
//! its output goes out, or a sentence on what to install.

use std::{io::ErrorKind, process::Command};

use anyhow::{anyhow, bail, Context, Result};

/// Programs that may have to be installed, and the Debian package of each.
const PACKAGES: [(&str, &str); 8] = [
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("rdma", "iproute2"),
    ("ss", "iproute2"),
    ("nft", "nftables"),
    ("iptables-save", "iptables"),
    ("modprobe", "kmod"),
    ("ib_write_bw", "perftest"),
];

/// What the program prints when it is run with these arguments, in the network
/// namespace of the calling thread.
///
/// # Errors
///
/// It is not installed, or it fails: then with what it says itself.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| cannot_run(program, &error))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let line = said.lines().next().unwrap_or("it failed").trim();
        bail!("{program} {}: {line}", arguments.join(" "));
    }
    String::from_utf8(done.stdout).with_context(|| format!("the output of {program}"))
}

/// Why a program could not be started.
pub(crate) fn cannot_run(program: &str, error: &std::io::Error) -> anyhow::Error {
    if error.kind() != ErrorKind::NotFound {
        return anyhow!("cannot run {program}: {error}");
    }
    match PACKAGES.iter().find(|(name, _)| *name == program) {
        Some((_, package)) => anyhow!("{program} is missing: install it (in Debian: {package})"),
        None => anyhow!("{program} is missing: install it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = output("ls", &["/no/such/place"]).unwrap_err().to_string();
        assert!(
            error.starts_with("ls /no/such/place: ") && error.contains("No such file"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let missing = std::io::Error::from(ErrorKind::NotFound);
        let text = |program| cannot_run(program, &missing).to_string();
        assert_eq!(
            text("rdma"),
            "rdma is missing: install it (in Debian: iproute2)"
        );
        assert_eq!(text("frobnicate"), "frobnicate is missing: install it");
    }
}
