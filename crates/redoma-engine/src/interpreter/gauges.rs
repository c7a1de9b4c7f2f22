//! How much of everything there is at the moment, for whoever watches.

use std::sync::Arc;

use redoma_store::{Quota, StoreError, Totals};

use super::Interpreter;
use crate::backend::Status;
use crate::meter::{Exposition, Meter};

/// Sessions with live variables, by what their process is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelCounts {
    pub busy: usize,
    pub idle: usize,
    /// Standing still, since nobody has used it for a while.
    pub frozen: usize,
    /// Also without the memory that could be taken from it.
    pub reclaimed: usize,
    /// So many there may be.
    pub most: usize,
}

/// A look around.
#[derive(Debug)]
pub struct Gauges {
    pub status: Status,
    pub running: usize,
    /// Those who wait in the engine; a server may have a queue of its own before it.
    pub waiting: usize,
    pub kernels: KernelCounts,
    /// What is stored, if the store could tell.
    pub stored: Result<Totals, StoreError>,
    pub quota: Quota,
}

impl Interpreter {
    /// What is counted of all that runs here.
    pub fn meter(&self) -> &Arc<Meter> {
        self.engine.meter()
    }

    /// Asks the store too, so not to be called from a thread that must not wait.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            status: self.engine.status(),
            running: self.count_running(),
            waiting: self.engine.waiting(),
            kernels: self.kernels.by_state(),
            stored: self.store.totals(),
            quota: self.store.quota(),
        }
    }
}

impl Gauges {
    /// With those who wait before the engine.
    pub fn write(&self, page: &mut Exposition, waiting_outside: usize) {
        page.gauge("redoma_executions_running", "Runs and cells that go on now.")
            .count(&[], self.running as u64);
        let waiting = self.waiting + waiting_outside;
        page.gauge("redoma_queue_length", "Requests that wait for their turn.").count(&[], waiting as u64);
        let mut kernels =
            page.gauge("redoma_kernels", "Sessions with live variables, by what their process is doing.");
        for (state, count) in [
            ("busy", self.kernels.busy),
            ("idle", self.kernels.idle),
            ("frozen", self.kernels.frozen),
            ("reclaimed", self.kernels.reclaimed),
        ] {
            kernels.count(&[("state", state)], count as u64);
        }
        page.gauge("redoma_kernels_most", "Sessions that may have live variables at the same time.")
            .count(&[], self.kernels.most as u64);
        self.status.write(page);
        self.write_storage(page);
    }

    /// A store that can't tell has no samples: a zero would look like an answer.
    fn write_storage(&self, page: &mut Exposition) {
        let stored = self.stored.as_ref().ok();
        let mut gauge = |name: &str, help: &str, value: Option<u64>| {
            let mut samples = page.gauge(name, help);
            if let Some(value) = value {
                samples.count(&[], value);
            }
        };
        gauge("redoma_sessions", "Sessions that are stored.", stored.map(|all| all.sessions));
        gauge("redoma_storage_bytes", "Bytes of all files of all sessions.", stored.map(|all| all.bytes));
        gauge(
            "redoma_storage_files",
            "Files of all sessions, earlier versions too.",
            stored.map(|all| all.files),
        );
        let disk = stored.and_then(|all| all.disk);
        let help = "Size of the file system that files are stored on.";
        gauge("redoma_storage_disk_bytes", help, disk.map(|disk| disk.size));
        let help = "What is free of it.";
        gauge("redoma_storage_disk_free_bytes", help, disk.map(|disk| disk.free));
        let mut quota = page.gauge("redoma_storage_quota_bytes", "Bytes that one session or user may store.");
        quota
            .count(&[("scope", "session")], self.quota.session_bytes)
            .count(&[("scope", "user")], self.quota.owner_bytes);
    }
}
