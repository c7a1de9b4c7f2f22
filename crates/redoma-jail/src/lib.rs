//! The jail: one process tree on Linux that nothing gets out of.
//!
//! A caller describes the whole sandbox in a [`Plan`], then [`Starting::begin`] and [`Starting::finish`] make it. Everything that needs memory
//! or decisions happens while the plan is built, before the first process is cloned; what follows is straight-line
//! system calls in the fixed order of [`Step`], written down in `enter.rs`. A step that fails ends the attempt and
//! comes back as `{step, errno, hint}`; no step is ever skipped quietly.
//!
//! | file | subject |
//! |---|---|
//! | `plan.rs` | what a sandbox looks like, complete before anything is cloned |
//! | `spawn.rs` | the outside: clone, id maps, cgroup, the talk with the inside |
//! | `enter.rs` | the inside, first half: from the clone to `execve`, step by step |
//! | `init.rs` | the inside, second half: PID 1 |
//! | `kernel.rs` | a session's process that goes on, and its copies that wait |
//! | `warm.rs` | the inside of a sandbox that is made ahead and waits |
//! | `nursery/` | where such sandboxes are made: a jail of our own around those who make them |
//! | `mounts.rs` | the root, the scratch file system, `/proc`, `/dev`, the workspace |
//! | `network.rs` | a network with nothing in it, made while other steps go on |
//! | `credentials.rs` | uid, capabilities, securebits, no_new_privs, rlimits |
//! | `recluse.rs` | a process of our own that reads what nobody trusts |
//! | `landlock.rs`, `seccomp/` | the two walls that stay when all else has failed |
//! | `cgroup/` | limits for the whole tree, on version 1 and version 2 |
//! | `locks.rs` | how many record locks a sandbox holds |
//! | `host_uid.rs` | a host uid for each live sandbox |
//! | `janitor.rs` | nothing is left, even if the supervisor is killed |
//! | `violations.rs` | what the kernel says of those who ran into a wall |
//! | `trial.rs` | trying what this kernel allows, for `redoma doctor` |
//! | `weakening.rs` | walls left out on purpose, in the attack suite's own build |
//! | `sys.rs` | the system calls that no safe library offers: the one home of `unsafe` |

pub mod cgroup;
mod credentials;
mod enter;
mod footprint;
pub mod host_uid;
mod init;
pub mod janitor;
pub mod kernel;
pub mod landlock;
mod locks;
mod mounts;
mod network;
pub mod nursery;
mod plan;
pub mod recluse;
pub mod seccomp;
mod spawn;
mod step;
mod sys;
pub mod trial;
pub mod violations;
mod warm;
mod weakening;

pub use credentials::as_user;
pub use locks::MAX_LOCKS;
pub use plan::{Ids, Plan, PlanError, Program, Rlimits, Role, Scratch, TreeEntry, Workspace, own_inodes};
pub use spawn::{Event, Sandbox, Starting, Stdio, above_stdio};
pub use step::{JailError, Step};
pub use sys::{SignalPipe, give_back_memory, is_single_threaded, take_short_turns};
pub use weakening::Weakening;

/// The uid and gid that code sees itself run as.
pub const SANDBOX_ID: u32 = 1000;
/// Where the workspace is inside.
pub const WORKSPACE: &str = "/mnt/data";

/// Sees to it that this process hears of its children's ends. Whoever started it may have ignored them, which is inherited,
/// and then nobody can wait for them. To be called when a program starts.
pub fn hear_of_children() {
    // Can't fail: the signal exists, and the action is the default one.
    let _ = sys::reap_children(sys::Reaping::ByWaiting);
}

/// Ends a copy of this process that panics, at once: it must not clean up what belongs to the original. To be called when a
/// program starts. What is expected, and seen to by whoever called it, is not reported.
pub fn end_copies_that_panic(is_expected: fn() -> bool) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_expected() {
            report(info);
        }
        if sys::is_copy() {
            std::process::abort();
        }
    }));
}
