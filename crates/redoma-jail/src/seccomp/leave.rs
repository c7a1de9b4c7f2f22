//! A program's end, seen before it happens.
//!
//! Taking a process apart takes the kernel a millisecond and more, and only then does anybody hear of its end. A program
//! that was copied from a zygote therefore *takes its leave*: its last system call is held by its filter and shown to the
//! supervisor, with the exit code in it. The process stands still in that call from the moment at which the supervisor has
//! received it: no signal wakes it, only its death does. Its files can be collected and the answer be sent while it waits
//! to be killed with its sandbox.
//!
//! Hostile code can make the same call. It then stands still, too, and has told its own exit code.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Pid;

use super::rules::{LEAVING, LEAVING_MASK};
use crate::sys;

/// The supervisor's side: where the program's leave is heard.
#[derive(Debug)]
pub struct Leave {
    listener: OwnedFd,
    /// Whose leave it is, in this process's numbers. Others' are none of ours.
    program: Pid,
}

/// One that was heard. Until it is let go, its process stands still.
#[derive(Debug)]
pub struct Leaving {
    id: u64,
    is_program: bool,
    pub(crate) code: i32,
}

impl Leave {
    pub(crate) fn new(listener: OwnedFd, program: Pid) -> Self {
        Self { listener, program }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// What is to be heard, if it has not been taken back meanwhile.
    pub(crate) fn hear(&self) -> Option<Leaving> {
        let notice = sys::receive_notice(self.listener.as_fd()).ok()?;
        let argument = u32::try_from(notice.data.args[0] & u64::from(u32::MAX)).ok()?;
        let is_leaving = argument & LEAVING_MASK == LEAVING;
        let is_program = i64::from(notice.pid) == i64::from(self.program.as_raw_nonzero().get());
        let code = i32::try_from(argument & 0xff).ok()?;
        Some(Leaving { id: notice.id, is_program: is_program && is_leaving, code })
    }

    /// Lets it go on to its end.
    pub(crate) fn let_go(&self, leaving: &Leaving) {
        let _ = sys::answer_notice(self.listener.as_fd(), leaving.id);
    }
}

impl Leaving {
    /// Whether it is the program itself, and not a process of its.
    pub(crate) fn is_program(&self) -> bool {
        self.is_program
    }
}

/// The program's side: leaves. If nobody listens, as any process does.
pub(crate) fn leave(code: u8) -> ! {
    sys::exit_group(LEAVING | u32::from(code));
    sys::exit_now(i32::from(code))
}
