//! Live sessions as their users see them, and as those who would like to break them do.
//!
//! | file | subject |
//! |---|---|
//! | `endings.rs` | every way in which a cell can end badly |
//! | `survive.rs` | variables that survive it, and what does not |
//! | `stop.rs` | cells that somebody stops |
//! | `state.rs` | what lives on between cells, in every language |
//! | `starved.rs` | sessions whose processes get hardly any CPU |
//! | `undo.rs` | taking back cells |
//! | `repeats.rs` | cells that are run again instead of being kept in a checkpoint |
//! | `branch.rs` | two sessions from one state |
//! | `idle.rs` | kernels that nobody uses, and those that are too many |
//! | `leaks.rs` | what one session can see of another, and what is left of those that are gone |
//! | `lies.rs` | code that speaks in the kernel's name |
//! | `attacks.rs` | the jail's attack suite, as cells of live sessions |
//! | `session.rs` | a session, its cells and their answers |
//!
//! All in the mode that is there first: what a kernel does is the same in both, and the attack suite runs in both.

#![expect(clippy::unwrap_used, reason = "tests")]

mod attacks;
mod branch;
mod endings;
mod idle;
mod leaks;
mod lies;
mod repeats;
mod session;
mod starved;
mod state;
mod stop;
mod survive;
mod undo;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use redoma_tests::Mode;
use redoma_tests::server::{Home, Server};

/// So much memory the server may have held at most, in MiB, whatever was done to it.
const MOST_MEMORY: u64 = 400;

/// A server with nothing loaded ahead: these tests are not about speed.
struct World {
    home: Home,
    server: Server,
}

impl World {
    fn new() -> Self {
        Self::with("", "")
    }

    /// With further lines at the top of the configuration, and in its default profile.
    fn with(config: &str, profile: &str) -> Self {
        Self::in_mode(Mode::available()[0], config, profile, |command| command)
    }

    fn in_mode(
        mode: Mode,
        config: &str,
        profile: &str,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let home = Home::new(mode);
        home.configure(&format!("{config}\n[profiles.default]\npreload = []\n{profile}\n"));
        let server = home.serve_with(change);
        server.wait_until_ready();
        Self { home, server }
    }

    /// What must hold after everything that was tried.
    #[track_caller]
    fn assert_sound(&self) {
        assert_eq!(self.server.get("/healthz").send().status, 200);
        let log = self.server.log();
        let panic = log.lines().find(|line| line.contains("panicked"));
        assert!(panic.is_none(), "the server panicked: {panic:?}");
        let peak = self.server.memory_peak();
        assert!(peak < MOST_MEMORY, "the server has held {peak} MiB");
    }
}

/// Goes through all cases, a few at a time, and tells of all that fail.
fn each<C: Sync>(cases: &[C], name: impl Fn(&C) -> String + Sync, check: impl Fn(&C) + Sync) {
    each_of(cases, 3, name, check);
}

/// The same with so many at a time.
fn each_of<C: Sync>(
    cases: &[C],
    at_once: usize,
    name: impl Fn(&C) -> String + Sync,
    check: impl Fn(&C) + Sync,
) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(case))) {
                        let why = panic.downcast_ref::<String>().cloned();
                        let why = why.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                        failed.lock().unwrap().push(format!("{}: {}", name(case), why.unwrap_or_default()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {}:\n\n{}", failed.len(), cases.len(), failed.join("\n\n"));
}
