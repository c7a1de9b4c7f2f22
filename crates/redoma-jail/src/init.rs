//! PID 1 of a sandbox: waits for the program, reaps orphans, reports how it ended, and leaves.
//!
//! When PID 1 leaves, the kernel kills everything else in its namespace: no daemon, however often it forked, outlives
//! the program. Code inside can neither read nor signal this process: the kernel drops signals that PID 1 has no handler for, it is not
//! dumpable (so `/proc/1/mem`, `environ` and `root` are closed), `/proc` does not show it, and it sits outside of the
//! program's Landlock domain. It has the same uid, so the filter keeps its scheduling and limits out of reach.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};

use crate::spawn::Report;
use crate::sys;

/// The running program.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    /// Always false, but for the attack suite's own build: go on while anything else is alive.
    pub(crate) stays: bool,
    /// Whether it is a kernel, whose copies outlive it.
    pub(crate) is_kernel: bool,
}

pub(crate) fn run(program: &Started, talk: BorrowedFd<'_>) -> ! {
    let _ = rustix::thread::set_name(c"redoma-init");
    // Stdio and the runtime's mounts belong to the program alone: nothing is held here but the talk.
    for fd in [0, 1, 2] {
        sys::close_number(fd);
    }
    let _ = sys::close_all_but(&[talk.as_raw_fd()]);
    Report::Running.send(talk);
    reap(program, talk)
}

/// Waits for the program and for whatever else ends meanwhile.
pub(crate) fn reap(program: &Started, talk: BorrowedFd<'_>) -> ! {
    if program.is_kernel {
        reap_kernel(talk)
    }
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program.pid => {
                Report::Ended { status: status.as_raw() }.send(talk);
                if !program.stays {
                    sys::exit_now(0)
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => sys::exit_now(125),
        }
    }
}

/// Tells of each child that ends, and goes on as long as there are any: one of them may be a copy of the first.
fn reap_kernel(talk: BorrowedFd<'_>) -> ! {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let pid = pid.as_raw_nonzero().get();
                Report::Gone { pid, status: status.as_raw() }.send_if_heard(talk);
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => sys::exit_now(0),
        }
    }
}
