//! What the kernel says of those who ran into a wall.
//!
//! Most refusals are an error number that only the program itself gets to see, and that is all: telling anybody would cost
//! a refused call sixty times as much, and let hostile code write to the host's log as fast as it can (`docs/metrics.md` has
//! the numbers). The kernel tells one thing unasked, through its audit log: that a filter killed a process. A process with
//! `CAP_AUDIT_READ` can listen to it beside `auditd`. Landlock's refusals would be told too; `landlock.rs` switches that off.
//!
//! A record names the uid on the host, and each sandbox has one of its own: that tells ours from others'. The records are
//! text, in part made of what a program chose (its name). The kernel writes that in hex if it holds blanks or quotes; still,
//! what stands before it is looked for from the front, and what stands behind it from the end.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

/// The group of those who read along.
const READ_LOG: u32 = 1;
/// A filter killed a process, or was asked to tell what it did.
const SECCOMP: u16 = 1326;
/// Records that may wait to be read, in bytes.
const ROOM: usize = 1 << 20;
const HEADER: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum AuditUnavailable {
    #[error("not permitted: it takes root, or CAP_AUDIT_READ, outside of any container")]
    NotPermitted,
    #[error("this kernel has no audit log (CONFIG_AUDIT)")]
    NotThere,
    #[error("{0}")]
    Other(Errno),
}

/// Something that the kernel told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A filter killed a process.
    Seccomp,
    /// Some was told that nobody could read in time.
    Overrun,
}

/// The kernel's audit log, from now on.
#[derive(Debug)]
pub struct AuditLog {
    socket: OwnedFd,
}

impl AuditLog {
    pub fn open() -> Result<Self, AuditUnavailable> {
        let refused = |errno| match errno {
            Errno::PERM | Errno::ACCESS | Errno::CONNREFUSED => AuditUnavailable::NotPermitted,
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => AuditUnavailable::NotThere,
            other => AuditUnavailable::Other(other),
        };
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::AUDIT))
            .map_err(refused)?;
        // Without the right to have more it holds what it can.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, ROOM);
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, READ_LOG)).map_err(refused)?;
        Ok(Self { socket })
    }

    /// Waits for the next record, and what it tells of the processes of these uids, if anything.
    pub fn next(&self, is_ours: impl Fn(u32) -> bool) -> io::Result<Option<Told>> {
        // The longest record that the kernel writes.
        let mut buffer = [0u8; HEADER + 8970];
        match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => Ok(read(&buffer[..length], is_ours)),
            Err(Errno::NOBUFS) => Ok(Some(Told::Overrun)),
            Err(Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn read(message: &[u8], is_ours: impl Fn(u32) -> bool) -> Option<Told> {
    let (header, text) = message.split_at_checked(HEADER)?;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let text = std::str::from_utf8(text).ok()?;
    let is_of_ours = || number(text, "uid").and_then(|uid| u32::try_from(uid).ok()).is_some_and(&is_ours);
    // Without a signal it is a refusal that another program's filter tells of.
    (kind == SECCOMP && last_number(text, "sig")? != 0 && is_of_ours()).then_some(Told::Seccomp)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split([' ', '\0']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.parse().ok()
}

fn last_number(text: &str, name: &str) -> Option<u64> {
    text.split([' ', '\0']).rev().find_map(|part| part.strip_prefix(name)?.strip_prefix('='))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: u32 = 1_900_000_007;

    fn told(kind: u16, text: &str) -> Option<Told> {
        let mut message = vec![0; HEADER];
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(text.as_bytes());
        read(&message, |uid| uid == OURS)
    }

    fn killed(uid: u32, signal: u32) -> String {
        format!(
            "audit(1794776248.137:613): auid=4294967295 uid={uid} gid={uid} ses=4294967295 pid=8208 comm=\"python3\" \
             exe=\"/usr/bin/python3.11\" sig={signal} arch=c000003e syscall=1073741863 compat=0 ip=0x7f5a0a7ec829 \
             code=0x80000000"
        )
    }

    #[test]
    fn a_process_that_a_filter_killed_is_told_if_it_is_ours() {
        assert_eq!(told(SECCOMP, &killed(OURS, 31)), Some(Told::Seccomp));
        assert_eq!(told(SECCOMP, &killed(0, 31)), None, "somebody else's");
        assert_eq!(told(SECCOMP, &killed(OURS, 0)), None, "nobody was killed");
        assert_eq!(told(1300, &killed(OURS, 31)), None, "another kind of record");
    }

    #[test]
    fn a_name_that_looks_like_a_record_changes_nothing() {
        let named = killed(OURS, 31).replace("python3\" ", "x\" uid=0 sig=0 ");
        assert_eq!(told(SECCOMP, &named), Some(Told::Seccomp));
    }

    #[test]
    fn what_is_cut_or_strange_is_nothing() {
        assert_eq!(read(&[0; 7], |_| true), None);
        for text in ["", "uid=", "sig=31", "uid=x sig=31", "uid=99999999999 sig=31"] {
            assert_eq!(told(SECCOMP, text), None, "{text}");
        }
    }
}
