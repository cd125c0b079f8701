// SPDX-License-Identifier: GPL-2.0

//! Network namespaces, and the sysfs that each of them sees.
//!
//! A sysfs shows the netdevs of the namespace in which it was mounted. So for each
//! namespace one is mounted, attached nowhere (`fsopen(2)`): it is reached through a
//! file descriptor and goes with it, and no mount table ever shows it.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{anyhow, Context, Result};
use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

use super::names;

/// A file system's root, and what keeps it mounted.
pub(crate) struct Tree {
    path: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tree {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// One that is mounted for all to see.
    fn at(path: PathBuf) -> Self {
        Self { path, _mount: None }
    }

    /// One of our own, attached nowhere, of the namespace that the thread is in.
    fn mount(kind: &str) -> std::io::Result<Self> {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        let mount = fsmount(
            context.as_fd(),
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )?;
        Ok(Self {
            path: PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())),
            _mount: Some(mount),
        })
    }
}

/// A network namespace.
pub(crate) struct Namespace {
    /// As `ip netns` names it; empty for the initial one, or for the one that this
    /// process is in where that has no name.
    pub(crate) name: String,
    sys: Tree,
    /// Where [`Namespace::enter`] goes; none: this process is there already.
    door: Option<File>,
}

impl Namespace {
    /// Runs `work` in a thread that is in this network namespace. Programs and sockets
    /// that it starts and opens are there, too.
    ///
    /// # Errors
    ///
    /// Only root may enter; else those of `work`.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let Some(door) = &self.door else {
            return work();
        };
        enter(door, work).with_context(|| format!("in the network namespace {}", self.title()))
    }

    /// Where its sysfs is, with its netdevs in `class/net`.
    pub(crate) fn sys(&self) -> &Path {
        self.sys.path()
    }

    /// Its name for people.
    pub(crate) fn title(&self) -> &str {
        match &*self.name {
            "" => "(initial)",
            name => name,
        }
    }
}

fn enter<T: Send>(door: &File, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        // The thread ends in the other namespace; the process never was there.
        let inside = scope.spawn(|| {
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(std::io::Error::from)
                .context("cannot enter")?;
            work()
        });
        inside
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the thread panicked")))
    })
}

/// A namespace behind its file in `/run/netns` or `/proc`, or nothing if it may not be
/// entered.
fn behind(name: &str, file: &Path) -> Option<Namespace> {
    let door = File::open(file).ok()?;
    let sys = enter(&door, || Ok(Tree::mount("sysfs")?)).ok()?;
    Some(Namespace {
        name: name.to_owned(),
        sys,
        door: Some(door),
    })
}

/// The network namespace with the sysfs at `sys`, where this process is.
fn here(name: &str, sys: PathBuf) -> Namespace {
    Namespace {
        name: name.to_owned(),
        sys: Tree::at(sys),
        door: None,
    }
}

/// Which namespace a file means.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let data = fs::metadata(file).ok()?;
    Some((data.dev(), data.ino()))
}

/// All network namespaces that can be found by a name: this process's own, the initial
/// one, and those of `ip netns`; then the names of those that may not be entered.
pub(super) fn all(root: &Path) -> (Vec<Namespace>, Vec<String>) {
    let netns = root.join("run/netns");
    if root != Path::new("/") {
        let named = names(&netns)
            .into_iter()
            .map(|name| here(&name, netns.join(&name).join("sys")));
        return (
            [here("", root.join("sys"))]
                .into_iter()
                .chain(named)
                .collect(),
            Vec::new(),
        );
    }
    let initial = (String::new(), PathBuf::from("/proc/1/ns/net"));
    let named = names(&netns)
        .into_iter()
        .map(|name| (name.clone(), netns.join(name)));
    let known: Vec<(String, PathBuf)> = [initial].into_iter().chain(named).collect();
    let own = identity(Path::new("/proc/self/ns/net"));
    let own_name = known
        .iter()
        .find(|(_, file)| own.is_some() && identity(file) == own)
        .map_or("", |(name, _)| name);
    let mut found = vec![here(own_name, "/sys".into())];
    let mut seen = vec![own];
    let mut closed = Vec::new();
    for (name, file) in known.iter().cloned() {
        let identity = identity(&file);
        if seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        match behind(&name, &file) {
            Some(namespace) => found.push(namespace),
            None if name.is_empty() => {}
            None => closed.push(name),
        }
    }
    (found, closed)
}

/// debugfs. Inside `ip netns exec` it is not where it usually is, so root gets one of
/// its own.
pub(super) fn debugfs(root: &Path) -> Tree {
    let usual = root.join("sys/kernel/debug");
    let empty = fs::read_dir(&usual).is_ok_and(|mut dir| dir.next().is_none());
    if root == Path::new("/") && empty {
        if let Ok(own) = Tree::mount("debugfs") {
            return own;
        }
    }
    Tree::at(usual)
}
