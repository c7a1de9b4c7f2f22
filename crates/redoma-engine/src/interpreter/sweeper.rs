//! Removes what nobody has used for as long as it was to be kept.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use redoma_store::{Store, StoreError, Swept};

/// A thread that looks around now and then. Dropping it ends it.
#[derive(Debug)]
pub struct Sweeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// `tell` hears of each sweep.
    pub fn start(
        store: Arc<Store>,
        every: Duration,
        tell: impl Fn(Result<Swept, StoreError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("sweeper".to_owned()).spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                tell(store.sweep());
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
