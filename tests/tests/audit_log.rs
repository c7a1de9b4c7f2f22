//! The host's audit log, with auditing on: hostile code can't fill it.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::os::fd::OwnedFd;

use redoma_tests::{Mode, Way, run_json};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const GET: u16 = 1000;
const SET: u16 = 1001;
/// Refusals of Landlock's, and what is told of the domain with the first of them.
const LANDLOCK: [u16; 2] = [1423, 1424];
const HEADER: usize = 16;

fn try_open(groups: u32) -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::AUDIT))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

fn open(groups: u32) -> OwnedFd {
    try_open(groups).unwrap()
}

/// A request to the kernel, and the first answer to it that is of the wanted kind.
fn ask(kind: u16, body: &[u32], wanted: u16) -> Vec<u8> {
    const REQUEST_AND_ACK: u16 = 5;
    let socket = open(0);
    let length = u32::try_from(HEADER + body.len() * 4).unwrap();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&REQUEST_AND_ACK.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    for number in body {
        message.extend_from_slice(&number.to_ne_bytes());
    }
    rustix::net::send(&socket, &message, SendFlags::empty()).unwrap();
    loop {
        let mut answer = vec![0; 9000];
        let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
        if u16::from_ne_bytes([answer[4], answer[5]]) == wanted {
            return answer[HEADER..length].to_vec();
        }
    }
}

/// Auditing is on for as long as this lives.
struct Auditing;

impl Auditing {
    const ACKNOWLEDGED: u16 = 2;
    /// The mask that names `enabled`, then that.
    fn switch(on: u32) {
        ask(SET, &[1, on, 0, 0, 0, 0, 0, 0, 0, 0], Self::ACKNOWLEDGED);
    }

    /// None if it was on already, and stays on.
    fn begin() -> Option<Self> {
        let status = ask(GET, &[], GET);
        let was_on = status[4..8] != [0; 4];
        Self::switch(1);
        (!was_on).then_some(Self)
    }
}

impl Drop for Auditing {
    fn drop(&mut self) {
        Self::switch(0);
    }
}

/// How many records of Landlock's come of a run; more than can be read count as one.
fn landlock_records(way: Way, code: &str) -> usize {
    let listener = open(1);
    let _auditing = Auditing::begin();
    let arguments = way.flags().iter().copied().chain(["--lang", "py", "-c", code]);
    let report = run_json(Mode::Root, arguments);
    assert_eq!(report.stdout.text, "refused 20 times\n", "{}", report.stderr.text);
    let mut count = 0;
    loop {
        let mut record = [0; 9000];
        match rustix::net::recv(&listener, &mut record[..], RecvFlags::DONTWAIT) {
            Ok(_) => count += usize::from(LANDLOCK.contains(&u16::from_ne_bytes([record[4], record[5]]))),
            Err(Errno::NOBUFS) => count += 1,
            Err(_) => return count,
        }
    }
}

/// As the kernel has them logged without being told otherwise: by copies of an interpreter that waited.
const REFUSED: &str = "
def attempt():
    try:
        open('/proc/self/comm', 'w')
    except PermissionError:
        return 1
print('refused', sum(attempt() for _ in range(20)), 'times')";

/// The same below a domain that code makes for itself, with everything logged that can be.
const REFUSED_BELOW: &str = "
import ctypes, os
libc = ctypes.CDLL(None)
attribute = (ctypes.c_uint64 * 3)(1 << 1, 0, 0)
ruleset = libc.syscall(444, attribute, 24, 0)
NEW_EXEC_ON = 2
assert ruleset >= 0 and libc.syscall(446, ruleset, NEW_EXEC_ON) == 0
def attempt():
    try:
        open('/tmp/x', 'w')
    except PermissionError:
        return 1
print('refused', sum(attempt() for _ in range(20)), 'times')";

#[test]
fn what_landlock_refuses_is_not_written_to_the_hosts_audit_log() {
    // Without root, without an audit log or before ABI 7 nothing is written that could be looked for.
    if Mode::Root.unavailable().is_some() || try_open(1).is_err() {
        return;
    }
    let report = run_json(Mode::Root, ["--lang", "py", "-c", ""]);
    if report.isolation.landlock_abi.is_none_or(|abi| abi < 7) {
        return;
    }
    for way in Way::BOTH {
        for code in [REFUSED, REFUSED_BELOW] {
            assert_eq!(landlock_records(way, code), 0, "{}: {code}", way.name());
        }
    }
}
