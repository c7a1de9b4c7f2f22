//! What a waiting sandbox is told when it is needed.
//!
//! Init gets the limits, in a fixed frame. If these are known ahead (nearly always), it gets them while the sandbox is made,
//! gives up its rights at once and hands its line to the program's process over to the supervisor: an assignment then goes
//! straight there, as [`Work`]: the script's name and text, and a payload for whoever becomes the program. If there are
//! inputs to mount, or other limits, all of it goes to init first, with the script's text as a file in memory and the
//! inputs as a detached mount.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::plan::{PlanError, Rlimits, c_string};

/// The part for the sandbox's init.
#[derive(Debug, Clone, Copy)]
pub struct Assignment {
    pub rlimits: Rlimits,
    /// The scratch's quota.
    pub disk: u64,
    pub inodes: u64,
    pub kind: SandboxFor,
}

/// What a sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxFor {
    /// One program: it ends with it.
    Run,
    /// A session's kernel: it goes on while any of its processes does.
    Kernel,
    /// Nothing yet: it is to have room for files that come before its use, which is told in another assignment.
    Files,
}

/// The part for the program.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// The script's name in the workspace.
    pub name: &'a str,
    pub code: &'a [u8],
    /// For the process that becomes the program.
    pub payload: &'a [u8],
    pub reader: Reader,
}

/// Who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// This crate's code, which puts the script into its place.
    Jail,
    /// A program that was started ahead of time: it gets the payload and nothing else, and must do that itself.
    Program,
}

impl Work<'_> {
    /// Whether it can go straight to the program's process, in one packet.
    pub fn fits(&self) -> bool {
        self.name.len() + self.code.len() + self.payload.len() <= Assignment::MOST_PAYLOAD
    }

    /// Straight to the program's process.
    pub(crate) fn send(&self, line: BorrowedFd<'_>) -> Result<(), Errno> {
        let lengths: Vec<u8> =
            [self.name.len() as u64, self.code.len() as u64].into_iter().flat_map(u64::to_ne_bytes).collect();
        let parts = match self.reader {
            Reader::Jail => vec![&lengths[..], self.name.as_bytes(), self.code, self.payload],
            Reader::Program => vec![self.payload],
        };
        let parts: Vec<_> = parts.into_iter().map(IoSlice::new).collect();
        let mut nothing = SendAncillaryBuffer::default();
        rustix::net::sendmsg(line, &parts, &mut nothing, SendFlags::NOSIGNAL).map(drop)
    }
}

/// Such a packet, as it arrives.
#[derive(Debug)]
pub(crate) struct ReceivedWork {
    pub(crate) name: CString,
    pub(crate) code: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl ReceivedWork {
    pub(crate) fn receive(line: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut packet = vec![0u8; Assignment::MOST_BYTES];
        let length = loop {
            match rustix::net::recv(line, packet.as_mut_slice(), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((_, 0)) => return Err(Errno::PIPE),
                other => break other?.1,
            }
        };
        let packet = packet.get(..length).ok_or(Errno::MSGSIZE)?;
        let (name_length, rest) = packet.split_first_chunk::<8>().ok_or(Errno::INVAL)?;
        let (code_length, rest) = rest.split_first_chunk::<8>().ok_or(Errno::INVAL)?;
        let number = |bytes: [u8; 8]| usize::try_from(u64::from_ne_bytes(bytes)).map_err(|_| Errno::INVAL);
        let (name, rest) = rest.split_at_checked(number(*name_length)?).ok_or(Errno::INVAL)?;
        let (code, payload) = rest.split_at_checked(number(*code_length)?).ok_or(Errno::INVAL)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(Self { name, code: code.to_vec(), payload: payload.to_vec() })
    }
}

/// What init gets, as it arrives.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) assignment: Assignment,
    /// None while the sandbox is made: it is then only to give up its rights.
    pub(crate) script: Option<(CString, OwnedFd)>,
    pub(crate) payload: &'a [u8],
}

const FIELDS: usize = 8;
const HEADER: usize = FIELDS * 8;
const NO_LIMIT: u64 = u64::MAX;

impl Assignment {
    /// One packet holds it all; the kernel's default buffer takes 208 KiB.
    pub const MOST_BYTES: usize = 160 << 10;
    /// How long a payload may be.
    pub const MOST_PAYLOAD: usize = Self::MOST_BYTES - HEADER;

    /// To init: with what the sandbox is for, or without, while it is made.
    pub(crate) fn send(&self, talk: BorrowedFd<'_>, work: Option<&Work<'_>>) -> Result<(), Errno> {
        let (name, payload) = work.map_or(("", &b""[..]), |work| (work.name, work.payload));
        if name.len() + payload.len() > Self::MOST_PAYLOAD {
            return Err(Errno::MSGSIZE);
        }
        let script = work.map(|work| file_in_memory(work.code)).transpose()?;
        let Rlimits { fsize, nofile, cpu_seconds, nproc } = self.rlimits;
        let nproc = nproc.unwrap_or(NO_LIMIT);
        let kind = match self.kind {
            SandboxFor::Run => 0,
            SandboxFor::Kernel => 1,
            SandboxFor::Files => 2,
        };
        let fields = [fsize, nofile, cpu_seconds, nproc, self.disk, self.inodes, kind, name.len() as u64];
        let header: Vec<u8> = fields.into_iter().flat_map(u64::to_ne_bytes).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = script.as_ref().map(|script| [script.as_fd()]);
        if let Some(fds) = &fds {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(name.as_bytes()), IoSlice::new(payload)];
        rustix::net::sendmsg(talk, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
    }

    /// Inside: waits for it.
    pub(crate) fn receive<'a>(talk: BorrowedFd<'_>, packet: &'a mut [u8]) -> Result<Received<'a>, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(packet)];
            match rustix::net::recvmsg(talk, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut fds = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let script = fds.next();
        let packet = packet.get(..received.bytes).ok_or(Errno::MSGSIZE)?;
        let (header, rest) = packet.split_at_checked(HEADER).ok_or(Errno::PIPE)?;
        let mut fields = header.chunks_exact(8).map(|field| {
            let mut bytes = [0u8; 8];
            bytes.copy_from_slice(field);
            u64::from_ne_bytes(bytes)
        });
        let mut next = || fields.next().ok_or(Errno::INVAL);
        let rlimits = Rlimits {
            fsize: next()?,
            nofile: next()?,
            cpu_seconds: next()?,
            nproc: Some(next()?).filter(|count| *count != NO_LIMIT),
        };
        let (disk, inodes) = (next()?, next()?);
        let kind = match next()? {
            1 => SandboxFor::Kernel,
            2 => SandboxFor::Files,
            _ => SandboxFor::Run,
        };
        let assignment = Self { rlimits, disk, inodes, kind };
        let name_length = usize::try_from(next()?).map_err(|_| Errno::INVAL)?;
        let (name, payload) = rest.split_at_checked(name_length).ok_or(Errno::INVAL)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        Ok(Received { assignment, script: script.map(|script| (name, script)), payload })
    }
}

fn file_in_memory(content: &[u8]) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create("script", MemfdFlags::CLOEXEC)?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(file)
}

/// The payload for a process that is to execute something.
#[derive(Debug, PartialEq, Eq)]
pub struct ExecPayload {
    pub(crate) path: CString,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
}

impl ExecPayload {
    /// Writes it down: three lists of strings, each string ended by a zero byte and each list by another.
    pub fn encode(path: &str, argv: &[String], env: &[(&str, String)]) -> Result<Vec<u8>, PlanError> {
        let env: Vec<_> = env.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut bytes = Vec::new();
        for list in [&[path.to_owned()][..], argv, &env] {
            for text in list {
                // An empty string would read as the end of its list.
                bytes.push(b'=');
                bytes.extend(c_string(text)?.as_bytes_with_nul());
            }
            bytes.push(0);
        }
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut list = || {
            let mut strings = Vec::new();
            loop {
                let end = rest.iter().position(|byte| *byte == 0)?;
                let (text, after) = (rest.get(..end)?, rest.get(end + 1..)?);
                rest = after;
                match text.split_first() {
                    None => return Some(strings),
                    Some((_, text)) => strings.push(CString::new(text).ok()?),
                }
            }
        };
        Some(Self { path: list()?.into_iter().next()?, argv: list()?, env: list()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_as_it_was_written_empty_strings_too() {
        let argv = ["bash".to_owned(), String::new(), "a b".to_owned()];
        let bytes =
            ExecPayload::encode("/bin/bash", &argv, &[("A", String::new()), ("B", "=x".into())]).unwrap();
        let decoded = ExecPayload::decode(&bytes).unwrap();
        assert_eq!(decoded.path.to_str().unwrap(), "/bin/bash");
        assert_eq!(decoded.argv, [c"bash".to_owned(), c"".to_owned(), c"a b".to_owned()]);
        assert_eq!(decoded.env, [c"A=".to_owned(), c"B==x".to_owned()]);
        for length in 0..bytes.len() {
            assert_eq!(ExecPayload::decode(&bytes[..length]), None, "cut at {length}");
        }
    }
}
