//! Landlock: a second wall around the same paths, kept by another part of the kernel than the mounts are.
//!
//! Should a mount ever be wrong, or a descriptor of the host leak in, opening something outside of the listed places
//! still fails: the check walks up from the file to the sandbox's root, and a host file has no such root. Signals and
//! abstract sockets are scoped too where the ABI has it (6), which also shields init.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::plan::{PlanError, TreeEntry, c_string};
use crate::sys::{self, LandlockRuleset};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1 << 0;
const SCOPE_SIGNALS: u64 = 1 << 1;
const LOG_SAME_EXEC_OFF: u32 = 1 << 0;
const LOG_SUBDOMAINS_OFF: u32 = 1 << 2;

/// What a rule on a single file may name; the rest is about folders.
const FOR_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// The ABI that this kernel offers, or why it offers none.
pub fn abi() -> Result<u8, Errno> {
    sys::landlock_abi().map(|abi| u8::try_from(abi).unwrap_or(u8::MAX))
}

/// All file system rights that an ABI knows: each must be handled, or it would be allowed everywhere.
const fn handled(abi: u8) -> u64 {
    match abi {
        0 | 1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        _ => (1 << 16) - 1,
    }
}

/// How much of the ruleset's attribute an ABI knows.
const fn attribute_size(abi: u8) -> usize {
    match abi {
        0..=3 => 8,
        4 | 5 => 16,
        _ => 24,
    }
}

/// How to go under the rules. From ABI 7 on the kernel writes an audit record for each refusal, as fast as code can provoke
/// them, unless told not to; also for domains that code makes below its own.
const fn restrict_flags(abi: u8) -> u32 {
    if abi >= 7 { LOG_SAME_EXEC_OFF | LOG_SUBDOMAINS_OFF } else { 0 }
}

#[derive(Debug)]
struct Rule {
    path: CString,
    access: u64,
    is_file: bool,
}

/// The rules for one sandbox, with paths as seen inside.
#[derive(Debug)]
pub struct LandlockPlan {
    ruleset: LandlockRuleset,
    size: usize,
    flags: u32,
    rules: Vec<Rule>,
}

/// The rules as the kernel holds them.
#[derive(Debug)]
pub(crate) struct Ruleset {
    rules: OwnedFd,
    flags: u32,
}

impl Ruleset {
    /// Puts this process, and what it will start, under the rules.
    pub(crate) fn restrict(&self) -> Result<(), Errno> {
        sys::landlock_restrict(self.rules.as_fd(), self.flags)
    }
}

impl LandlockPlan {
    /// Read and execute what the tree brings; read `/proc`; use `/dev`; everything but devices in the writable places.
    pub(crate) fn for_tree(tree: &[TreeEntry]) -> Result<Self, PlanError> {
        let abi = abi().unwrap_or(1);
        let all = handled(abi);
        let writable = all & !(MAKE_CHAR | MAKE_BLOCK);
        let mut rules = vec![
            Rule { path: c_string("/")?, access: READ_DIR, is_file: false },
            Rule { path: c_string("/proc")?, access: READ_FILE | READ_DIR, is_file: false },
            Rule {
                path: c_string("/dev")?,
                access: (READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV) & all,
                is_file: false,
            },
        ];
        for path in ["/mnt/data", "/tmp", "/home/sandbox", "/dev/shm"] {
            rules.push(Rule { path: c_string(path)?, access: writable, is_file: false });
        }
        for entry in tree {
            let (path, is_file) = match entry {
                TreeEntry::Bind { path, folder, .. } => (path, !folder),
                TreeEntry::File { path, .. } => (path, true),
                TreeEntry::Folder { .. } | TreeEntry::Link { .. } | TreeEntry::Cover { .. } => continue,
            };
            let path = c_string(format!("/{}", path.to_string_lossy()))?;
            rules.push(Rule { path, access: READ_FILE | READ_DIR | EXECUTE, is_file });
        }
        let scoped = if abi >= 6 { SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS } else { 0 };
        // REFER is always denied across folders unless handled; handling it lets files move between writable folders.
        debug_assert!(abi < 2 || all & REFER != 0);
        Ok(Self {
            ruleset: LandlockRuleset { handled_access_fs: all, handled_access_net: 0, scoped },
            size: attribute_size(abi),
            flags: restrict_flags(abi),
            rules,
        })
    }

    /// No file or folder at all, no socket's name, no signal to others.
    pub(crate) fn for_nothing() -> Self {
        let abi = abi().unwrap_or(1);
        let scoped = if abi >= 6 { SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS } else { 0 };
        let ruleset = LandlockRuleset { handled_access_fs: handled(abi), handled_access_net: 0, scoped };
        Self { ruleset, size: attribute_size(abi), flags: restrict_flags(abi), rules: Vec::new() }
    }

    /// The rules as the kernel holds them, with the places that the paths lead to now. All of them or an error.
    pub(crate) fn ruleset(&self) -> Result<Ruleset, Errno> {
        let ruleset = sys::landlock_create(self.ruleset, self.size)?;
        for rule in &self.rules {
            let place = rustix::fs::open(&*rule.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let access = if rule.is_file { rule.access & FOR_FILES } else { rule.access };
            sys::landlock_allow_beneath(ruleset.as_fd(), place.as_fd(), access)?;
        }
        Ok(Ruleset { rules: ruleset, flags: self.flags })
    }

    /// Puts this process, and what it will start, under the rules.
    pub(crate) fn restrict(&self) -> Result<(), Errno> {
        self.ruleset()?.restrict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_abi_handles_all_rights_of_the_one_before() {
        for abi in 1..8 {
            assert_eq!(handled(abi) & handled(abi + 1), handled(abi));
            assert!(attribute_size(abi) <= attribute_size(abi + 1));
        }
    }
}
