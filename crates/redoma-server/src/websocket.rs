//! WebSockets of both façades: how many an owner may have, and how much a message may hold before it is complete.
//!
//! The library that reads messages tells nothing of those that are not complete, so bytes are counted where the connection is
//! read (`listen.rs`), from the last complete message on. They take the owner's share of `Memory::arriving`; if there is no room,
//! the connection is not read any more, and its conversation ends. A socket keeps the largest share that it had: the
//! library keeps its buffer too. Sockets on which a message is arriving give way first, idle ones after them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::http::request::Parts;
use redoma_model::Owner;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::App;
use crate::body::BODY_TIMEOUT;
use crate::connections::{self, Busy};
use crate::failure::Failure;
use crate::memory::{NoRoom, Share};

/// Maximum number of WebSockets of one owner, on both façades together.
const MAX_PER_OWNER: usize = 256;
/// How long the other side may take to end the connection when it knows.
const GOODBYE: Duration = Duration::from_secs(2);
/// Bytes that are read at a time.
pub const READ_BUFFER: usize = 16 << 10;
/// Bytes of a control frame beside its payload: head and mask.
const CONTROL_HEAD: usize = 6;

/// Numbers that tell why a connection ends (RFC 6455).
pub mod code {
    pub const NORMAL: u16 = 1000;
    pub const GOING_AWAY: u16 = 1001;
    pub const POLICY: u16 = 1008;
    pub const TOO_BIG: u16 = 1009;
    pub const TRY_AGAIN: u16 = 1013;
}

/// How many WebSockets each owner has.
#[derive(Debug, Default)]
pub struct Sockets(Arc<Mutex<HashMap<Owner, usize>>>);

/// The right to one WebSocket. Dropping it gives it back.
#[derive(Debug)]
pub struct Socket {
    owner: Owner,
    sockets: Arc<Mutex<HashMap<Owner, usize>>>,
    unfinished: Arc<Unfinished>,
}

impl Sockets {
    /// Room for one more of this owner's, on the connection of this request.
    pub fn admit(&self, app: &App, owner: &Owner, parts: &Parts) -> Result<Socket, Failure> {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = sockets.get(owner).copied().unwrap_or(0);
        if own >= MAX_PER_OWNER {
            return Err(Failure::busy(format!(
                "you have {MAX_PER_OWNER} WebSockets already; close some of them"
            )));
        }
        sockets.insert(owner.clone(), own + 1);
        drop(sockets);
        let connection = parts.extensions.get::<Busy>();
        let line: Weak<TcpStream> = connection.map(|busy| busy.0.line.clone()).unwrap_or_default();
        let close = move || {
            if let Some(stream) = line.upgrade() {
                connections::close(&stream);
            }
        };
        let share = app.memory.arriving.evictable_share(owner, close);
        share.set_in_use(false);
        let unfinished = Arc::new(Unfinished {
            share,
            bytes: AtomicUsize::new(0),
            since: Mutex::default(),
            begun: Notify::new(),
            refused: Notify::new(),
        });
        if let Some(busy) = connection {
            let _ = busy.0.unfinished.set(Arc::clone(&unfinished));
        }
        Ok(Socket { owner: owner.clone(), sockets: Arc::clone(&self.0), unfinished })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sockets.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                sockets.remove(&self.owner);
            }
        }
    }
}

/// Why a message that is not complete ends its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    NoRoom,
    Slow,
}

impl Trouble {
    pub fn close_code(self) -> (u16, &'static str) {
        match self {
            Self::NoRoom => (code::TRY_AGAIN, "your messages hold as much memory as one user may"),
            Self::Slow => (code::POLICY, "the message took too long to arrive"),
        }
    }
}

impl Socket {
    /// The next message, or why there will be none.
    pub async fn receive(
        &self,
        socket: &mut WebSocket,
    ) -> Result<Option<Result<Message, axum::Error>>, Trouble> {
        tokio::select! {
            message = socket.recv() => {
                if let Some(Ok(message)) = &message {
                    self.unfinished.complete(message);
                }
                Ok(message)
            }
            trouble = self.unfinished.trouble() => Err(trouble),
        }
    }

    /// From here on the socket is read again: the time in which it was not does not count.
    pub fn resume(&self) {
        self.unfinished.resume();
    }
}

/// Bytes of messages that are not complete.
#[derive(Debug)]
pub struct Unfinished {
    share: Share,
    bytes: AtomicUsize,
    /// When the first of these bytes came.
    since: Mutex<Option<Instant>>,
    begun: Notify,
    refused: Notify,
}

impl Unfinished {
    fn since(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for what is read next.
    pub async fn room(self: Arc<Self>) -> Result<(), NoRoom> {
        let room = self.share.grow_to(self.bytes.load(Ordering::Relaxed) + READ_BUFFER).await;
        if room.is_err() {
            self.refused.notify_one();
        }
        room
    }

    /// Whether there is room already.
    pub fn has_room(&self) -> bool {
        self.share.holds(self.bytes.load(Ordering::Relaxed) + READ_BUFFER)
    }

    /// Bytes have come.
    pub fn add(&self, bytes: usize) {
        if bytes > 0 && self.bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            *self.since() = Some(Instant::now());
            self.share.set_in_use(true);
            self.begun.notify_one();
        }
    }

    /// A message has come to its end.
    fn complete(&self, message: &Message) {
        let before = self.bytes.load(Ordering::Relaxed);
        let rest = match message {
            Message::Text(_) | Message::Binary(_) | Message::Close(_) => 0,
            // Comes also between the parts of another message.
            Message::Ping(payload) | Message::Pong(payload) => {
                before.saturating_sub(CONTROL_HEAD + payload.len())
            }
        };
        self.bytes.store(rest, Ordering::Relaxed);
        if rest == 0 {
            *self.since() = None;
            self.share.set_in_use(false);
        }
    }

    fn resume(&self) {
        if let Some(since) = &mut *self.since() {
            *since = Instant::now();
        }
    }

    async fn trouble(&self) -> Trouble {
        tokio::select! {
            () = self.refused.notified() => Trouble::NoRoom,
            () = self.overdue() => Trouble::Slow,
        }
    }

    /// Comes back when a message has been on its way for too long.
    async fn overdue(&self) {
        loop {
            let since = *self.since();
            let Some(begun) = since else {
                self.begun.notified().await;
                continue;
            };
            tokio::time::sleep_until(begun + BODY_TIMEOUT).await;
            if *self.since() == since {
                return;
            }
        }
    }
}

/// Ends a conversation, with a number and a reason.
pub async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    let goodbye = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    if let Ok(Ok(())) = tokio::time::timeout(GOODBYE, socket.send(goodbye)).await {
        wait_for_end(socket).await;
    }
}

/// Waits for the other side to end the connection.
pub async fn wait_for_end(mut socket: WebSocket) {
    let end = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = tokio::time::timeout(GOODBYE, end).await;
}
