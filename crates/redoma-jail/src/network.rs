//! The sandbox's network, made by a process beside the one that enters the jail.
//!
//! A network namespace takes the kernel some 0.6 ms, and none of the other steps needs it: as long as a sandbox is made for
//! one run, that is time that somebody waits for. A sandbox that is made ahead makes it in place.
//!
//! The process has the rights of the one that sent it. It is waited for before these are given up, and if it failed, so
//! has the step: [`Network::enter`] is the only way on.

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::{DupFlags, Errno};

use crate::enter::{At, Failure};
use crate::step::Step;
use crate::sys::{self, Beside, Processors};

/// Who makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MadeBy {
    /// A process beside, on another of these processors than this one's.
    Another(Option<Processors>),
    This,
}

/// A network namespace in the making, with nothing in it but a loopback device.
#[derive(Debug)]
pub(crate) struct Network(Option<(Beside, OwnedFd)>);

/// That this process is in it. No program starts without.
#[derive(Debug)]
pub(crate) struct Entered(());

impl Network {
    /// In the attack suite's own build: there is none, and the host's stays.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn begin(made_by: MadeBy) -> Result<Self, Failure> {
        let MadeBy::Another(processors) = made_by else {
            make().at(Step::Network)?;
            return Ok(Self(None));
        };
        // Descriptors are shared: a socket of the new namespace takes the place of something that is none.
        let mut place = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).at(Step::Network)?;
        let run = || code(make().and_then(|made| rustix::io::dup3(&made, &mut place, DupFlags::CLOEXEC)));
        match sys::spawn_beside(run, processors) {
            // As many processes as this user may have.
            Err(Errno::AGAIN) => Self::begin(MadeBy::This),
            beside => Ok(Self(Some((beside.at(Step::Fork)?, place)))),
        }
    }

    /// Moves this process there.
    pub(crate) fn enter(self) -> Result<Entered, Failure> {
        // Made in place, this process is there already.
        let Some((mut beside, socket)) = self.0 else { return Ok(Entered(())) };
        let mut enter = || {
            match beside.join() {
                Some(0) => {}
                Some(errno) => return Err(Errno::from_raw_os_error(errno)),
                None => return Err(Errno::CHILD),
            }
            let namespace = sys::network_of(socket.as_fd())?;
            sys::enter_namespace(namespace.as_fd(), libc::CLONE_NEWNET)?;
            Ok(Entered(()))
        };
        enter().at(Step::Network)
    }
}

/// The exit code of the process beside. Errno's numbers all fit into one.
fn code(result: Result<(), Errno>) -> c_int {
    result.map_or_else(Errno::raw_os_error, |()| 0)
}

fn make() -> Result<OwnedFd, Errno> {
    sys::unshare(libc::CLONE_NEWNET)?;
    sys::loopback_up()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};
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

    fn ways() -> [MadeBy; 2] {
        [MadeBy::This, MadeBy::Another(Processors::of_this_process())]
    }

    fn code_of(result: Result<Entered, Failure>) -> c_int {
        code(result.map(drop).map_err(|failure| failure.errno))
    }

    fn network_number() -> u64 {
        rustix::fs::stat(c"/proc/self/ns/net").map_or(0, |stat| stat.st_ino)
    }

    /// Whether this process sees nothing but a loopback device, and that one up.
    fn is_alone() -> bool {
        let mut text = [0u8; 4096];
        let read = rustix::fs::open(c"/proc/self/net/dev", OFlags::RDONLY, Mode::empty())
            .and_then(|file| rustix::io::read(&file, &mut text))
            .unwrap_or(0);
        // Two lines of headings.
        text[..read].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() == 3
    }

    #[test]
    fn a_network_made_beside_is_another_with_nothing_in_it() {
        for made_by in ways() {
            let before = network_number();
            let code = with_rights(|| match Network::begin(made_by).and_then(Network::enter) {
                Err(failure) => code_of(Err(failure)),
                Ok(_) if network_number() == before => 97,
                Ok(_) if !is_alone() => 96,
                Ok(_) => 0,
            });
            assert_eq!(code, 0, "{made_by:?}");
            assert_eq!(network_number(), before);
        }
    }

    #[test]
    fn without_a_network_there_is_no_way_on() {
        for made_by in ways() {
            let code = with_rights(|| {
                let none =
                    rustix::fs::open(c"/proc/sys/user/max_net_namespaces", OFlags::WRONLY, Mode::empty())
                        .and_then(|file| rustix::io::write(&file, b"0"));
                if none.is_err() {
                    return 97;
                }
                code_of(Network::begin(made_by).and_then(Network::enter))
            });
            assert_eq!(code, Errno::NOSPC.raw_os_error(), "{made_by:?}");
        }
    }

    #[test]
    fn who_ignores_the_ends_of_children_still_hears_that_it_is_made() {
        let code = with_rights(|| {
            if sys::reap_children(sys::Reaping::AtOnce).is_err() {
                return 97;
            }
            code_of(Network::begin(ways()[1]).and_then(Network::enter))
        });
        assert_eq!(code, 0);
    }
}
