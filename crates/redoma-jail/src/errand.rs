//! What the kernel takes its time for, done by a process beside the one that enters the jail.
//!
//! Making a network namespace takes some 0.5 ms, and taking off the old root waits for an RCU grace period of about as
//! long. None of the steps meanwhile needs either, so they go on beside: as long as a sandbox is made for one run, this is
//! time that somebody waits for. A sandbox that is made ahead has no [`Errands`] and does the same in place.
//!
//! A process on an errand has the rights of the one that sent it. It is waited for before these are given up, and if the
//! errand failed, so has the step: [`Network::enter`] and [`OldRoot::gone`] are the only ways on. Where the sandbox is born in
//! its group, which counts them, there is one at a time: never more processes than init and a program.

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::{DupFlags, Errno};
use rustix::mount::UnmountFlags;

use crate::enter::{At, Failure};
use crate::step::Step;
use crate::sys::{self, Beside, Processors};

/// Whether there are errands, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errands {
    /// To make the network on.
    pub(crate) processors: Option<Processors>,
    pub(crate) at_once: AtOnce,
}

/// How many errands there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtOnce {
    One,
    Both,
}

/// Waits for an errand's end, and whether it did what it was sent for.
fn ended_well(beside: Beside) -> Result<(), Errno> {
    match beside.join() {
        Some(0) => Ok(()),
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::CHILD),
    }
}

/// The exit code of an errand. Errno's numbers all fit into one.
fn code(result: Result<(), Errno>) -> c_int {
    result.map_or_else(Errno::raw_os_error, |()| 0)
}

/// A network namespace in the making, with nothing in it but a loopback device.
#[derive(Debug)]
pub(crate) struct Network(Option<(Beside, OwnedFd)>);

impl Network {
    pub(crate) fn begin(errands: Option<Errands>) -> Result<Self, Failure> {
        let Some(errands) = errands else {
            make_network().at(Step::Network)?;
            return Ok(Self(None));
        };
        // Descriptors are shared: a socket of the new namespace takes the place of something that is none.
        let mut place = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).at(Step::Network)?;
        let make =
            || code(make_network().and_then(|made| rustix::io::dup3(&made, &mut place, DupFlags::CLOEXEC)));
        let beside = sys::spawn_beside(make, errands.processors).at(Step::Fork)?;
        Ok(Self(Some((beside, place))))
    }

    /// Moves this process there.
    pub(crate) fn enter(self) -> Result<(), Failure> {
        // Made in place, this process is there already.
        let Some((beside, socket)) = self.0 else { return Ok(()) };
        let enter = || {
            ended_well(beside)?;
            let namespace = sys::network_of(socket.as_fd())?;
            sys::enter_namespace(namespace.as_fd(), libc::CLONE_NEWNET)
        };
        enter().at(Step::Network)
    }
}

fn make_network() -> Result<OwnedFd, Errno> {
    sys::unshare(libc::CLONE_NEWNET)?;
    sys::loopback_up()
}

/// The root of before, being taken off.
#[derive(Debug)]
pub(crate) struct OldRoot(Option<Beside>);

impl OldRoot {
    /// It lies on top of the working folder.
    pub(crate) fn take_off(errands: Option<Errands>) -> Result<Self, Failure> {
        if errands.is_none() {
            unmount_here().at(Step::PivotRoot)?;
            return Ok(Self(None));
        }
        // On this processor, since it waits more than it works.
        match sys::spawn_beside(|| code(unmount_here()), None) {
            // As many processes as this user may have.
            Err(Errno::AGAIN) => Self::take_off(None),
            beside => Ok(Self(Some(beside.at(Step::Fork)?))),
        }
    }

    pub(crate) fn gone(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), ended_well).at(Step::PivotRoot)
    }
}

fn unmount_here() -> Result<(), Errno> {
    rustix::mount::unmount(c".", UnmountFlags::DETACH)
}

#[cfg(test)]
mod tests {
    use rustix::process::WaitOptions;

    use super::*;

    /// Runs something in a process of its own that has all rights in a new user namespace. Its exit code.
    fn with_rights(run: impl FnOnce() -> i32) -> i32 {
        let Some(pid) = sys::fork().unwrap() else {
            let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
            sys::exit_now(if sys::unshare(namespaces).is_ok() { run() } else { 99 })
        };
        let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status().unwrap_or(98)
    }

    fn both() -> Errands {
        Errands { processors: Processors::of_this_process(), at_once: AtOnce::Both }
    }

    fn code_of(result: Result<(), Failure>) -> c_int {
        code(result.map_err(|failure| failure.errno))
    }

    fn network_number() -> u64 {
        rustix::fs::stat(c"/proc/self/ns/net").map_or(0, |stat| stat.st_ino)
    }

    /// Whether this process sees nothing but a loopback device, and that one up.
    fn is_alone() -> bool {
        let mut text = [0u8; 4096];
        let read =
            rustix::fs::open(c"/proc/self/net/dev", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
                .and_then(|file| rustix::io::read(&file, &mut text))
                .unwrap_or(0);
        // Two lines of headings.
        text[..read].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() == 3
    }

    #[test]
    fn a_network_made_beside_is_another_with_nothing_in_it() {
        for errands in [None, Some(both())] {
            let before = network_number();
            let code = with_rights(|| match Network::begin(errands).and_then(Network::enter) {
                Err(failure) => code_of(Err(failure)),
                Ok(()) if network_number() == before => 97,
                Ok(()) if !is_alone() => 96,
                Ok(()) => 0,
            });
            assert_eq!(code, 0, "{errands:?}");
            assert_eq!(network_number(), before);
        }
    }

    #[test]
    fn without_a_network_there_is_no_way_on() {
        for errands in [None, Some(both())] {
            let code = with_rights(|| {
                let none = rustix::fs::open(
                    c"/proc/sys/user/max_net_namespaces",
                    rustix::fs::OFlags::WRONLY,
                    rustix::fs::Mode::empty(),
                )
                .and_then(|file| rustix::io::write(&file, b"0"));
                if none.is_err() {
                    return 97;
                }
                code_of(Network::begin(errands).and_then(Network::enter))
            });
            assert_eq!(code, Errno::NOSPC.raw_os_error(), "{errands:?}");
        }
    }

    #[test]
    fn an_old_root_that_stays_is_told() {
        for errands in [None, Some(both())] {
            let code = with_rights(|| {
                // Nothing is mounted there.
                match rustix::process::chdir(c"/proc/self") {
                    Ok(()) => code_of(OldRoot::take_off(errands).and_then(OldRoot::gone)),
                    Err(_) => 97,
                }
            });
            assert_eq!(code, Errno::INVAL.raw_os_error(), "{errands:?}");
        }
    }

    #[test]
    fn who_ignores_the_ends_of_children_still_hears_of_an_errand() {
        let code = with_rights(|| {
            if sys::reap_children(sys::Reaping::AtOnce).is_err() {
                return 97;
            }
            code_of(Network::begin(Some(both())).and_then(Network::enter))
        });
        assert_eq!(code, 0);
    }
}
