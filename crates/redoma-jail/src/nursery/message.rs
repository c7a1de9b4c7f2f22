//! Requests to a nursery's keeper and zygotes, and their answers: one packet each, with descriptors beside it. Both ends are
//! ours, and nothing that code says ever goes this way.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::enter::Failure;
use crate::step::Step;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make a sandbox that is `id` in the nursery's own numbers. Descriptors: its talk, stdin, stdout, stderr.
    Spawn { id: u32, variant: String, hurry: Hurry },
    /// Of the keeper: start the first zygote. Descriptor: its end of a channel.
    StartZygote { imports: Vec<String> },
    /// Of a zygote: become two, and let the other one import these too. Descriptor: its end of a channel.
    Branch { imports: Vec<String> },
}

/// Whether somebody waits for a sandbox while it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hurry {
    /// Then it does nothing that can be done later just as well.
    Yes,
    No,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Descriptor: the new process.
    Started,
    /// Descriptor: a detached mount.
    Failed { step: u8, errno: i32, entry: u16 },
}

impl Answer {
    pub(super) fn failed(failure: Failure) -> Self {
        Self::Failed { step: failure.step as u8, errno: failure.errno.raw_os_error(), entry: failure.entry }
    }

    pub(super) fn failure(step: u8, errno: i32, entry: u16) -> Failure {
        Failure {
            step: Step::from_code(step).unwrap_or(Step::Init),
            errno: Errno::from_raw_os_error(errno),
            entry,
        }
    }
}

/// What a zygote says once it has imported everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUp {
    pub imported: Vec<String>,
    /// What could not be, and why.
    pub left_out: Vec<LeftOut>,
    /// It had to be left out after it had done its damage: this zygote is of no use, and must be made anew without it.
    pub spoiled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub module: String,
    pub reason: String,
}

/// The most descriptors in one message.
const MOST_FDS: usize = 4;
const MOST_BYTES: usize = 64 << 10;

pub(super) fn send(
    channel: BorrowedFd<'_>,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
    send_bytes(channel, &bytes, fds)
}

pub(super) fn send_bytes(channel: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(channel, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// The next message; `None` when the other end is closed.
pub(super) fn receive<T: DeserializeOwned>(channel: impl AsFd) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    let mut bytes = vec![0u8; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&channel, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let fds = fds.collect();
    let message = serde_json::from_slice(&bytes[..received.bytes]).map_err(|_| Errno::PROTO)?;
    Ok(Some((message, fds)))
}
