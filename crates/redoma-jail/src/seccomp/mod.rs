//! The system call filter: an allow-list for the native architecture, everything else refused.
//!
//! | file | subject |
//! |---|---|
//! | `rules.rs` | which calls, with which arguments, and why |
//! | `leave.rs` | a program's end, seen before it happens |
//! | `bpf.rs` | turning the rules into the kernel's filter program |

mod bpf;
mod leave;
mod rules;

pub use leave::Leave;
pub(crate) use leave::leave;
pub use rules::{Refusal, Rule, rules};

/// A ready filter program.
#[derive(Debug)]
pub struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// The filter for code that nobody trusts.
    pub fn for_code() -> Self {
        Self(bpf::assemble(&rules()))
    }

    /// The filter for the init of a sandbox that waited, which does little. (One that is made on the spot shares the
    /// program's, installed once for both.)
    pub fn for_init() -> Self {
        Self(bpf::assemble(&rules::rules_for_init()))
    }

    /// The filter for a process that reads hostile text, and nothing else.
    pub fn for_reader() -> Self {
        Self(bpf::assemble(&rules::rules_for_reader()))
    }

    /// The same for a process that [takes its leave](Leave).
    pub fn for_code_with_leave() -> Self {
        Self(bpf::assemble(&rules::rules_with_leave()))
    }

    pub(crate) fn program(&self) -> &[libc::sock_filter] {
        &self.0
    }
}

/// Whether the kernel can do what the filter needs.
pub fn is_available() -> bool {
    crate::sys::seccomp_has_action(libc::SECCOMP_RET_KILL_PROCESS)
}
