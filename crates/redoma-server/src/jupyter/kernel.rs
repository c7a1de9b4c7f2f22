//! One kernel as clients see it: a session of its owner's, those who are connected to it, and what waits to be done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redoma_engine::Cancel;
use redoma_engine::interpreter::InUse;
use redoma_model::{Owner, Principal, SessionId};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::framing::Encoded;
use super::messages::{Channel, Outgoing, Parent, Request, Sender};
use super::outbox::{End, Outbox};
use super::specs::Spec;
use super::{now, random};
use crate::memory::{Pool, Share, UNCOUNTED};

/// KiB of requests that may wait.
const MOST_WAITING_KIB: u32 = 9 << 10;
/// KiB that a request counts at least.
const LEAST_KIB: usize = 4;
/// Connections at the same time.
const MOST_CONNECTIONS: usize = 32;

#[derive(Debug)]
pub struct Kernel {
    pub id: String,
    pub spec: &'static Spec,
    pub owner: Owner,
    pub created: Instant,
    /// Another after a restart, if the first one's time was over.
    session: Mutex<KernelSession>,
    sender: Sender,
    connections: Mutex<Vec<Arc<Outbox>>>,
    /// What waits for the cells before it.
    shell: UnboundedSender<Work>,
    /// What does not.
    control: UnboundedSender<Work>,
    room: Arc<Semaphore>,
    activity: Mutex<Activity>,
    /// Cells so far.
    count: AtomicU64,
    /// Counts restarts: what was asked for before one is not done after it.
    pub epoch: AtomicU64,
    /// Ends the cell that runs.
    current: Mutex<Option<Arc<Cancel>>>,
    /// Tells a cell that waits for its turn.
    pub interrupted: Notify,
    /// Turns true when it is shut down …
    pub gone: watch::Sender<bool>,
    /// … and this when nothing of it runs any more.
    pub ended: watch::Sender<bool>,
}

/// The session of a kernel.
#[derive(Debug)]
pub struct KernelSession {
    id: SessionId,
    /// Keeps it from making room for other sessions.
    _spared: Option<InUse>,
}

impl KernelSession {
    pub fn new(id: SessionId, spared: Option<InUse>) -> Self {
        Self { id, _spared: spared }
    }
}

#[derive(Debug)]
struct Activity {
    is_busy: bool,
    at: Instant,
    /// The same for people.
    time: String,
}

/// The other ends of a kernel's queues.
#[derive(Debug)]
pub struct Queues {
    pub shell: UnboundedReceiver<Work>,
    pub control: UnboundedReceiver<Work>,
}

/// A request that waits.
#[derive(Debug)]
pub struct Work {
    pub request: Request,
    pub principal: Principal,
    /// Who gets the reply.
    pub asker: Arc<Outbox>,
    pub epoch: u64,
    /// A cell before it failed.
    pub is_aborted: bool,
    _room: OwnedSemaphorePermit,
    _memory: Share,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernel {
    pub fn new(
        spec: &'static Spec,
        owner: Owner,
        session: KernelSession,
    ) -> std::io::Result<(Arc<Self>, Queues)> {
        let (shell, shell_work) = unbounded_channel();
        let (control, control_work) = unbounded_channel();
        let kernel = Self {
            id: random::uuid()?,
            spec,
            owner,
            created: Instant::now(),
            session: Mutex::new(session),
            sender: Sender::new()?,
            connections: Mutex::default(),
            shell,
            control,
            room: Arc::new(Semaphore::new(MOST_WAITING_KIB as usize)),
            activity: Mutex::new(Activity { is_busy: false, at: Instant::now(), time: now() }),
            count: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            current: Mutex::default(),
            interrupted: Notify::new(),
            gone: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        };
        Ok((Arc::new(kernel), Queues { shell: shell_work, control: control_work }))
    }

    /// As Jupyter's REST API shows it.
    pub fn model(&self) -> Value {
        let connections = self.connections().len();
        let activity = locked(&self.activity);
        json!({
            "id": self.id,
            "name": self.spec.name,
            "last_activity": activity.time,
            "execution_state": if activity.is_busy { "busy" } else { "idle" },
            "connections": connections,
            // Where its files are in the native API.
            "redoma_session_id": self.session(),
        })
    }

    pub fn session(&self) -> SessionId {
        locked(&self.session).id.clone()
    }

    pub fn set_session(&self, session: KernelSession) {
        *locked(&self.session) = session;
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Outbox>>> {
        locked(&self.connections)
    }

    pub fn count_connections(&self) -> usize {
        self.connections().len()
    }

    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    pub fn is_busy(&self) -> bool {
        locked(&self.activity).is_busy
    }

    pub fn last_used(&self) -> Instant {
        locked(&self.activity).at
    }

    pub fn last_used_time(&self) -> String {
        locked(&self.activity).time.clone()
    }

    fn note_activity(&self, is_busy: Option<bool>) {
        let mut activity = locked(&self.activity);
        let is_busy = is_busy.unwrap_or(activity.is_busy);
        *activity = Activity { is_busy, at: Instant::now(), time: now() };
    }

    /// Lets a client take part. One that comes again under the same name takes its own place.
    pub fn connect(self: &Arc<Self>, outbox: &Arc<Outbox>) -> Option<Connected> {
        let mut connections = self.connections();
        if outbox.name.is_some() {
            connections.retain(|other| {
                let is_same = other.name == outbox.name;
                if is_same {
                    other.end(End::Replaced);
                }
                !is_same
            });
        }
        if connections.len() >= MOST_CONNECTIONS {
            return None;
        }
        connections.push(Arc::clone(outbox));
        drop(connections);
        self.note_activity(None);
        Some(Connected { kernel: Arc::clone(self), outbox: Arc::clone(outbox) })
    }

    /// Ends all connections.
    pub fn disconnect_all(&self) {
        self.connections().iter().for_each(|outbox| outbox.end(End::Gone));
    }

    /// A request that waits for those before it; whether there is room for it.
    pub fn enqueue(
        &self,
        memory: &Arc<Pool>,
        request: Request,
        principal: Principal,
        asker: &Arc<Outbox>,
    ) -> bool {
        let kib = (request.size() / 1024 + 1).max(LEAST_KIB);
        let kib = u32::try_from(kib).unwrap_or(MOST_WAITING_KIB).min(MOST_WAITING_KIB);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(kib) else { return false };
        // The first few KiB of this queue are not counted: an owner with no memory left still gets an answer.
        let used = (MOST_WAITING_KIB as usize).saturating_sub(self.room.available_permits());
        let counted = if used <= UNCOUNTED >> 10 { 0 } else { request.size() };
        let Ok(memory) = memory.take(&self.owner, counted) else { return false };
        let (asker, epoch) = (Arc::clone(asker), self.epoch.load(Ordering::SeqCst));
        let work = Work { request, principal, asker, epoch, is_aborted: false, _room: room, _memory: memory };
        let is_urgent = work.request.channel == Channel::Control && work.request.kind != "execute_request";
        let queue = if is_urgent { &self.control } else { &self.shell };
        queue.send(work).is_ok()
    }

    pub fn message(
        &self,
        channel: Channel,
        kind: &'static str,
        parent: &Parent,
        content: &impl Serialize,
    ) -> Outgoing {
        self.sender.message(channel, kind, parent, content)
    }

    /// Tells everybody who is connected.
    pub async fn publish(&self, parent: &Parent, kind: &'static str, content: &impl Serialize) {
        let listeners = self.connections().clone();
        if listeners.is_empty() {
            return;
        }
        let message = self.message(Channel::Iopub, kind, parent, content);
        let mut encoded = Encoded::new(&message);
        for outbox in listeners {
            outbox.send(&mut encoded).await;
        }
    }

    /// `busy` or `idle` because of a request.
    pub async fn publish_status(&self, parent: &Parent, state: &'static str) {
        self.publish(parent, "status", &json!({ "execution_state": state })).await;
    }

    /// The same, where it is also so: in contrast to what control messages cause.
    pub async fn become_busy(&self, parent: &Parent, is_busy: bool) {
        self.note_activity(Some(is_busy));
        self.publish_status(parent, if is_busy { "busy" } else { "idle" }).await;
    }

    /// Tells who has asked, wherever they are connected now.
    pub async fn reply(&self, asker: &Outbox, message: &Outgoing) {
        let mut encoded = Encoded::new(message);
        if asker.send(&mut encoded).await || asker.name.is_none() {
            return;
        }
        let again = self.connections().iter().find(|outbox| outbox.name == asker.name).cloned();
        if let Some(outbox) = again {
            outbox.send(&mut encoded).await;
        }
    }

    /// The number of the next cell, which is counted or not.
    pub fn next_number(&self, is_counted: bool) -> u64 {
        if is_counted { self.count.fetch_add(1, Ordering::Relaxed) + 1 } else { self.number() }
    }

    /// Of the last cell.
    pub fn number(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn forget_cells(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// What ends the cell that runs from now on, or none.
    pub fn set_current(&self, cancel: Option<Arc<Cancel>>) {
        *locked(&self.current) = cancel;
    }

    pub fn cancel_current(&self) {
        if let Some(cancel) = &*locked(&self.current) {
            cancel.cancel();
        }
        self.interrupted.notify_waiters();
    }
}

/// While this lives, the client is connected.
#[derive(Debug)]
pub struct Connected {
    kernel: Arc<Kernel>,
    outbox: Arc<Outbox>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.kernel.connections().retain(|other| !Arc::ptr_eq(other, &self.outbox));
        self.kernel.note_activity(None);
    }
}
