//! The end of checkpoints that are not needed any more.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::lineage::Checkpoint;

/// A checkpoint on its way out.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) pid: Pid,
    pub(super) pidfd: Arc<OwnedFd>,
}

/// So many of a session wait for their end at most: each is one of its processes.
pub(super) const MOST_LEAVING: usize = 8;
/// How long they do. A process that ends keeps its processor until all its memory has been given back, a millisecond or two: that is
/// not to be among cells that follow each other closely.
const LAST_MOMENTS: Duration = Duration::from_millis(30);

/// Ends a checkpoint after a while, on a thread that nobody waits for; or the one that has waited longest at once, if this is one too
/// many.
pub(super) fn let_go(checkpoint: Checkpoint, is_one_too_many: bool) {
    static GONE: OnceLock<Option<Sender<(Checkpoint, bool)>>> = OnceLock::new();
    let gone = GONE.get_or_init(|| {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("undertaker".to_owned());
        thread.spawn(move || be_undertaker(&receiver)).ok().map(|_| sender)
    });
    if let Some(gone) = gone {
        // What can't be sent comes back, and is dropped here.
        let _ = gone.send((checkpoint, is_one_too_many));
    }
}

fn be_undertaker(receiver: &Receiver<(Checkpoint, bool)>) {
    let mut waiting: VecDeque<(Instant, Checkpoint)> = VecDeque::new();
    loop {
        let heard = match waiting.front() {
            Some((since, _)) => receiver.recv_timeout(LAST_MOMENTS.saturating_sub(since.elapsed())),
            None => receiver.recv().map_err(RecvTimeoutError::from),
        };
        match heard {
            Ok((checkpoint, is_one_too_many)) => {
                waiting.push_back((Instant::now(), checkpoint));
                if is_one_too_many {
                    waiting.pop_front();
                }
            }
            Err(RecvTimeoutError::Timeout) => drop(waiting.pop_front()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
