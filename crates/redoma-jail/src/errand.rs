//! What the kernel takes its time for, done by a process beside the one that enters the jail.
//!
//! Making a network namespace takes some 0.5 ms, and taking off the old root waits for an RCU grace period of about as
//! long. None of the steps meanwhile needs either, so they go on beside: as long as a sandbox is made for one run, this is
//! time that somebody waits for. A sandbox that is made ahead has no [`Errands`] and does the same in place.
//!
//! A process on an errand has the rights of the one that sent it. It is waited for before these are given up, and if the
//! errand failed, so has the step: [`Network::enter`] and [`OldRoot::gone`] are the only ways on. Where the sandbox is born in
//! its group, which counts them, there is one at a time: never more processes than init and a program.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::enter::{At, Failure};
use crate::step::Step;
use crate::sys::{self, Beside, Processors, Stack};

/// What errands need, made before the clone.
#[derive(Debug)]
pub(crate) struct Errands {
    network: Stack,
    /// A descriptor in the new network namespace, once there is one.
    socket: AtomicI32,
    old_root: Stack,
    /// To make the network on.
    processors: Option<Processors>,
    pub(crate) at_once: AtOnce,
}

/// How many errands there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtOnce {
    One,
    Both,
}

impl Errands {
    pub(crate) fn new(processors: Option<Processors>, at_once: AtOnce) -> Self {
        let [network, old_root] = [Stack::new(), Stack::new()];
        Self { network, socket: AtomicI32::new(-1), old_root, processors, at_once }
    }
}

/// Waits for an errand's end, and whether it did what it was sent for.
fn ended_well(beside: Beside<'_>) -> Result<(), Errno> {
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
pub(crate) struct Network<'a>(Option<(Beside<'a>, &'a AtomicI32)>);

impl<'a> Network<'a> {
    pub(crate) fn begin(errands: Option<&'a Errands>) -> Result<Self, Failure> {
        Ok(match errands {
            None => {
                make_network().at(Step::Network)?;
                Self(None)
            }
            Some(Errands { network, socket, processors, .. }) => {
                let beside = sys::spawn_beside(network, go_and_make_network, socket, *processors);
                Self(Some((beside.at(Step::Fork)?, socket)))
            }
        })
    }

    /// Moves this process there.
    pub(crate) fn enter(self) -> Result<(), Failure> {
        // Made in place, this process is there already.
        let Some((beside, socket)) = self.0 else { return Ok(()) };
        let enter = || {
            ended_well(beside)?;
            let socket = take_descriptor(socket)?;
            let namespace = sys::network_of(socket.as_fd())?;
            sys::enter_namespace(namespace.as_fd(), libc::CLONE_NEWNET)
        };
        enter().at(Step::Network)
    }
}

/// The descriptor that the errand has left in the table that it shared.
fn take_descriptor(number: &AtomicI32) -> Result<OwnedFd, Errno> {
    let number: RawFd = number.swap(-1, Ordering::Acquire);
    if number < 0 {
        return Err(Errno::BADF);
    }
    Ok(sys::own(number))
}

fn make_network() -> Result<OwnedFd, Errno> {
    sys::unshare(libc::CLONE_NEWNET)?;
    sys::loopback_up()
}

extern "C" fn go_and_make_network(argument: *mut c_void) -> c_int {
    let socket: &AtomicI32 = sys::shared_argument(argument);
    code(make_network().map(|made| socket.store(made.into_raw_fd(), Ordering::Release)))
}

/// The root of before, being taken off.
#[derive(Debug)]
pub(crate) struct OldRoot<'a>(Option<Beside<'a>>);

impl<'a> OldRoot<'a> {
    /// It lies on top of the working folder.
    pub(crate) fn take_off(errands: Option<&'a Errands>) -> Result<Self, Failure> {
        Ok(Self(match errands {
            None => {
                unmount_here().at(Step::PivotRoot)?;
                None
            }
            Some(Errands { old_root, .. }) => {
                // Here, since it waits more than it works.
                match sys::spawn_beside(old_root, go_and_unmount_here, &(), None) {
                    // As many processes as this user may have.
                    Err(Errno::AGAIN) => return Self::take_off(None),
                    beside => Some(beside.at(Step::Fork)?),
                }
            }
        }))
    }

    pub(crate) fn gone(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), ended_well).at(Step::PivotRoot)
    }
}

fn unmount_here() -> Result<(), Errno> {
    rustix::mount::unmount(c".", UnmountFlags::DETACH)
}

extern "C" fn go_and_unmount_here(_: *mut c_void) -> c_int {
    code(unmount_here())
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
        for errands in [None, Some(Errands::new(Processors::of_this_process(), AtOnce::Both))] {
            let before = network_number();
            let code = with_rights(|| match Network::begin(errands.as_ref()).and_then(Network::enter) {
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
        for errands in [None, Some(Errands::new(Processors::of_this_process(), AtOnce::Both))] {
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
                code_of(Network::begin(errands.as_ref()).and_then(Network::enter))
            });
            assert_eq!(code, Errno::NOSPC.raw_os_error(), "{errands:?}");
        }
    }

    #[test]
    fn an_old_root_that_stays_is_told() {
        for errands in [None, Some(Errands::new(Processors::of_this_process(), AtOnce::Both))] {
            let code = with_rights(|| {
                // Nothing is mounted there.
                match rustix::process::chdir(c"/proc/self") {
                    Ok(()) => code_of(OldRoot::take_off(errands.as_ref()).and_then(OldRoot::gone)),
                    Err(_) => 97,
                }
            });
            assert_eq!(code, Errno::INVAL.raw_os_error(), "{errands:?}");
        }
    }

    #[test]
    fn who_ignores_the_ends_of_children_still_hears_of_an_errand() {
        let errands = Errands::new(Processors::of_this_process(), AtOnce::Both);
        let code = with_rights(|| {
            if sys::reap_children(sys::Reaping::AtOnce).is_err() {
                return 97;
            }
            code_of(Network::begin(Some(&errands)).and_then(Network::enter))
        });
        assert_eq!(code, 0);
    }
}
