//! A process of our own that reads what nobody trusts. Parsers have mistakes, and the texts that they are given here are
//! written by those who look for them: whoever takes one over finds a process with memory, two pipes and nothing else.
//!
//! Not a sandbox for programs: no namespaces, no control group. It can't open, connect, signal, trace, start or change
//! anything, and what it says is taken for what it is.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Uid, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::credentials::{dump_no_core, gain_no_privileges};
use crate::landlock::LandlockPlan;
use crate::seccomp::Filter;
use crate::sys;

/// Nobody's: the id that means no user in particular.
const NOBODY: u32 = 65_534;
/// Memory, all told. A text of some MiB takes a hundred times as much while it is read.
const MOST_MEMORY: u64 = 1 << 30;
/// Seconds of processor time in its whole life: one that nobody can end any more ends by itself.
const MOST_SECONDS: u64 = 600;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a process for reading could not give up {what}: {errno}")]
pub struct CanNotWithdraw {
    what: &'static str,
    errno: Errno,
}

/// Gives up everything but memory and what is open. For a process with one thread; what it needs files for, it has done.
pub fn withdraw() -> Result<(), CanNotWithdraw> {
    let step = |what| move |errno| CanNotWithdraw { what, errno };
    // It is the first to go when memory runs out, whoever started it.
    rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::write(&file, b"1000"))
        .map_err(step("being spared"))?;
    sys::close_all_but(&[0, 1, 2]).map_err(step("open files"))?;
    dump_no_core(None).map_err(step("core dumps"))?;
    give_up_rights().map_err(step("its rights"))?;
    if crate::landlock::abi().is_ok() {
        LandlockPlan::for_nothing().restrict().map_err(step("files"))?;
    }
    limit_resources().map_err(step("resources"))?;
    sys::install_seccomp(Filter::for_reader().program()).map_err(step("system calls"))
}

fn give_up_rights() -> Result<(), Errno> {
    gain_no_privileges()?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

fn limit_resources() -> Result<(), Errno> {
    let most = |value| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::As, most(MOST_MEMORY))?;
    setrlimit(Resource::Cpu, most(MOST_SECONDS))?;
    setrlimit(Resource::Fsize, most(0))?;
    setrlimit(Resource::Nproc, most(0))?;
    setrlimit(Resource::Nofile, most(3))
}
