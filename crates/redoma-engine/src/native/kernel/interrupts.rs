//! Interrupting the cell that runs.
//!
//! Python looks for signals between two of its own steps. One that comes after the last look and before a call that waits
//! (`time.sleep`, `waitpid`) ends neither: it is heard when the call is over, which may be never. So the kernel says when it
//! has heard one, and is asked again if it has not. Not without end: code that has a handler of its own hears each.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::kernel::KernelHandle;

/// How long after the first each of the others is sent.
const AGAIN: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(600)];

#[derive(Debug, Default)]
pub(super) struct Interrupts(Mutex<Aim>);

#[derive(Debug, Default)]
struct Aim {
    process: Option<OwnedFd>,
    /// When somebody asked for what was not heard yet, and how often it was sent again.
    asked: Option<(Instant, usize)>,
}

impl Aim {
    fn shoot(&self) {
        if let Some(process) = &self.process {
            let _ = pidfd_send_signal(process, Signal::INT);
        }
    }
}

impl KernelHandle for Interrupts {
    fn interrupt(&self) {
        let mut aim = self.lock();
        aim.shoot();
        aim.asked = aim.process.is_some().then(|| (Instant::now(), 0));
    }
}

impl Interrupts {
    /// The process that runs a cell from now on, or none.
    pub(super) fn aim(&self, process: Option<OwnedFd>) {
        *self.lock() = Aim { process, asked: None };
    }

    /// Asks again if nothing was heard for too long. For now and then.
    pub(super) fn repeat(&self) {
        let mut aim = self.lock();
        if let Some((since, count)) = aim.asked
            && let Some(after) = AGAIN.get(count)
            && since.elapsed() >= *after
        {
            aim.shoot();
            aim.asked = Some((since, count + 1));
        }
    }

    pub(super) fn note_heard(&self) {
        self.lock().asked = None;
    }

    fn lock(&self) -> MutexGuard<'_, Aim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
