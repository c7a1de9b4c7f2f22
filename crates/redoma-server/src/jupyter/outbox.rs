//! What waits to be sent to one client. A client that reads slowly slows its kernel's output down for a moment; one that
//! does not read is let go, so that it costs others neither time nor memory.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::Message;
use redoma_model::Owner;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::framing::{Encoded, Framing};
use crate::memory::{Pool, Share, UNCOUNTED};

/// KiB that wait for one client at most.
const MOST_KIB: u32 = 8 << 10;
/// How long there may be no room for more.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };

/// How often it is looked whether there is memory again.
const RETRY: Duration = Duration::from_millis(20);

/// Why a connection is ended from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It does not read.
    Slow,
    /// The same client has connected again.
    Replaced,
    /// The kernel is no more.
    Gone,
}

#[derive(Debug)]
pub struct Outbox {
    framing: Framing,
    /// What the client calls itself, also when it comes back.
    pub name: Option<String>,
    sender: UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    /// The memory of all clients together, and whose share of it this one takes.
    memory: (Arc<Pool>, Owner),
    end: watch::Sender<Option<End>>,
}

/// A frame that waits, with its share of the room.
#[derive(Debug)]
pub struct Queued {
    pub frame: Message,
    _room: OwnedSemaphorePermit,
    _memory: Share,
}

impl Outbox {
    pub fn new(
        framing: Framing,
        name: Option<String>,
        memory: (Arc<Pool>, Owner),
    ) -> (Arc<Self>, UnboundedReceiver<Queued>) {
        let (sender, receiver) = unbounded_channel();
        let room = Arc::new(Semaphore::new(MOST_KIB as usize));
        let outbox = Self { framing, name, sender, room, memory, end: watch::Sender::new(None) };
        (Arc::new(outbox), receiver)
    }

    /// Whether it is on its way.
    pub async fn send(&self, message: &mut Encoded<'_>) -> bool {
        if self.sender.is_closed() || self.end.borrow().is_some() {
            return false;
        }
        let frame = message.frame(self.framing);
        let bytes = match &frame {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(MOST_KIB).min(MOST_KIB);
        let room = async {
            let room = Arc::clone(&self.room).acquire_many_owned(kib).await;
            // The first few KiB of this queue are not counted: an owner with no memory left still gets an answer.
            let used = (MOST_KIB as usize).saturating_sub(self.room.available_permits());
            let counted = if used <= UNCOUNTED >> 10 { 0 } else { bytes };
            (room, self.memory(counted).await)
        };
        let Ok((Ok(room), memory)) = tokio::time::timeout(PATIENCE, room).await else {
            self.end(End::Slow);
            return false;
        };
        self.sender.send(Queued { frame, _room: room, _memory: memory }).is_ok()
    }

    /// Waits until the owner may have so much more memory.
    async fn memory(&self, bytes: usize) -> Share {
        let (pool, owner) = &self.memory;
        loop {
            if let Ok(share) = pool.take(owner, bytes) {
                return share;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    pub fn end(&self, why: End) {
        self.end.send_if_modified(|end| end.is_none() && end.replace(why).is_none());
    }

    /// Comes back when the connection is to end.
    pub async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let why = end.wait_for(Option::is_some).await.ok().and_then(|end| *end);
        why.unwrap_or(End::Gone)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::messages::{Channel, Parent, Sender};
    use super::*;
    use crate::memory::Memory;

    #[tokio::test]
    async fn the_first_bytes_need_no_memory() {
        let owner = |name: &str| Owner { client: name.to_owned(), user: None };
        let pool = Memory::new(8 << 20).leaving;
        let mut held = Vec::new();
        for name in ["one", "two", "three", "four", "five", "six", "seven", "me"] {
            while let Ok(share) = pool.take(&owner(name), 64 << 10) {
                held.push(share);
            }
        }
        while let Ok(share) = pool.take(&owner("me"), 1024) {
            held.push(share);
        }
        let (outbox, mut receiver) = Outbox::new(Framing::Default, None, (pool, owner("me")));
        let message = |length: usize| {
            let content = json!({ "text": "x".repeat(length) });
            Sender::new().unwrap().message(Channel::Iopub, "stream", &Parent::none(), &content)
        };
        for _ in 0..100 {
            assert!(outbox.send(&mut Encoded::new(&message(4000))).await);
            assert!(receiver.recv().await.is_some());
        }
        assert!(!outbox.send(&mut Encoded::new(&message(100_000))).await, "more of it is counted");
        drop(held);
    }

    #[tokio::test]
    async fn who_does_not_read_is_let_go() {
        let owner = Owner { client: "chat".to_owned(), user: None };
        let memory = (Memory::new(8 << 20).leaving, owner);
        let (outbox, mut receiver) = Outbox::new(Framing::Default, None, memory);
        let content = json!({ "text": "x".repeat(900_000) });
        let message = Sender::new().unwrap().message(Channel::Iopub, "stream", &Parent::none(), &content);
        let mut sent = 0;
        while outbox.send(&mut Encoded::new(&message)).await {
            sent += 1;
        }
        assert_eq!(sent, (MOST_KIB as usize) / (900_000 / 1024 + 1));
        assert_eq!(outbox.ended().await, End::Slow);
        // Who reads gets all of it.
        assert!(receiver.recv().await.is_some());
        assert!(!outbox.send(&mut Encoded::new(&message)).await);
    }
}
