//! Removes what nobody has used for as long as it was to be kept: sessions from the store, kernels from memory.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use redoma_store::{Store, StoreError, Swept};

use super::Interpreter;

/// How often kernels are looked at.
const ROUND: Duration = Duration::from_millis(500);

/// A thread that looks around now and then. Dropping it ends it.
#[derive(Debug)]
pub struct Sweeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Removes old sessions, and gives free memory back to the host. `tell` hears of each sweep.
    pub fn start(
        store: Arc<Store>,
        every: Duration,
        tell: impl Fn(Result<Swept, StoreError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::every(every, "sweeper", move || {
            tell(store.sweep());
            redoma_jail::give_back_memory();
        })
    }

    /// Looks after kernels that nobody uses.
    pub fn of_kernels(interpreter: Arc<Interpreter>) -> std::io::Result<Self> {
        Self::every(ROUND, "caretaker", move || interpreter.tend_kernels())
    }

    fn every(time: Duration, name: &str, work: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                work();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
