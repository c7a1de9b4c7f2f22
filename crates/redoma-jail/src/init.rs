//! PID 1 of a sandbox: waits for the program, reaps orphans, reports how it ended, and leaves.
//!
//! When PID 1 leaves, the kernel kills everything else in its namespace: no daemon, however often it forked, outlives
//! the program. Code inside can't reach this process: the kernel drops signals that PID 1 has no handler for, it is not
//! dumpable (so `/proc/1/mem`, `environ` and `root` are closed), `/proc` does not show it, and it sits outside of the
//! program's Landlock domain.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};

use crate::spawn::Report;
use crate::sys;

/// The program's process, and the pipe that tells whether it could be started: closed by a successful exec.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) result: OwnedFd,
    /// Always false, but for the attack suite's own build: go on after the program's end.
    pub(crate) stays: bool,
}

pub(crate) fn run(program: &Started, talk: BorrowedFd<'_>) -> ! {
    let _ = rustix::thread::set_name(c"redoma-init");
    // Stdio belongs to the program alone: a copy held here would keep its pipes open.
    for fd in [0, 1, 2] {
        sys::close_number(fd);
    }
    let mut record = [0u8; Report::SIZE];
    if read_all(&program.result, &mut record) > 0 {
        // The program's process has already written its failure in the form that the supervisor reads.
        let _ = rustix::net::send(talk, &record, rustix::net::SendFlags::NOSIGNAL);
        sys::exit_now(125)
    }
    Report::Running.send(talk);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program.pid => {
                Report::Ended { status: status.as_raw() }.send(talk);
                if !program.stays {
                    sys::exit_now(0)
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) if program.stays => std::thread::sleep(std::time::Duration::from_secs(5)),
            Err(_) => sys::exit_now(125),
        }
    }
}

fn read_all(fd: &OwnedFd, buffer: &mut [u8]) -> usize {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            Ok(count) => return count,
            Err(Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
}
