//! What the kernel says of this backend's sandboxes, counted by a thread that listens. Without the right to listen there is
//! none, and the counts say so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use redoma_jail::violations::{AuditLog, Told};

use super::Shared;
use crate::backend::KernelWords;
use crate::identity::Identities;
use crate::meter::Counter;

#[derive(Debug, Default)]
pub(crate) struct Overheard {
    is_heard: AtomicBool,
    seccomp: Counter,
    overruns: Counter,
}

impl Overheard {
    /// Listens from now on, if that is permitted. The thread is nobody's to wait for: it sleeps until the kernel says something,
    /// and ends when it finds the backend gone.
    pub(crate) fn begin(shared: &Arc<Shared>) {
        let Ok(log) = AuditLog::open() else { return };
        let listener = Arc::downgrade(shared);
        let thread = std::thread::Builder::new().name("listener".to_owned());
        let is_started = thread.spawn(move || listen(&log, &listener)).is_ok();
        shared.overheard.is_heard.store(is_started, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> KernelWords {
        KernelWords {
            is_heard: self.is_heard.load(Ordering::Relaxed),
            seccomp: self.seccomp.get(),
            overruns: self.overruns.get(),
        }
    }
}

fn listen(log: &AuditLog, backend: &Weak<Shared>) {
    let is_ours = |uid| backend.upgrade().is_some_and(|shared| shared.identities.has_given(uid));
    loop {
        let told = log.next(is_ours);
        let Some(shared) = backend.upgrade() else { return };
        match told {
            Ok(Some(Told::Seccomp)) => shared.overheard.seccomp.add_one(),
            Ok(Some(Told::Overrun)) => shared.overheard.overruns.add_one(),
            Ok(None) => {}
            Err(_) => {
                shared.overheard.is_heard.store(false, Ordering::Relaxed);
                return;
            }
        }
    }
}

impl Identities {
    /// Whether a sandbox of this process has, or had, this uid.
    fn has_given(&self, of: u32) -> bool {
        match self {
            Self::Own { uid, .. } => *uid == of,
            Self::Range(uids) => uids.has_given(of),
        }
    }
}
