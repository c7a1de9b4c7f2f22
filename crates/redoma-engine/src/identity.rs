//! Who a sandbox is on the host.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use redoma_jail::host_uid::{HostUid, HostUidError, HostUids};
use redoma_jail::{Ids, SANDBOX_ID, Stdio};

/// Where root keeps what concerns the whole host and must not outlive a boot.
const HOST_STATE: &str = "/run/redoma";

/// Where identities come from: root gives each sandbox a uid of its own; anybody else has only theirs to give.
#[derive(Debug, Clone)]
pub(crate) enum Identities {
    Own { uid: u32, gid: u32 },
    Range(Arc<HostUids>),
}

/// One sandbox's, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) ids: Ids,
    /// The same in the numbers of a nursery, which has the whole range under its own numbers.
    pub(crate) id_in_nursery: u32,
    _uid: Option<HostUid>,
}

impl Identities {
    pub(crate) fn find() -> Result<Self, HostUidError> {
        let uid = rustix::process::geteuid().as_raw();
        if uid != 0 {
            return Ok(Self::Own { uid, gid: rustix::process::getegid().as_raw() });
        }
        Ok(Self::Range(HostUids::open(Path::new(HOST_STATE))?))
    }

    pub(crate) fn take(&self) -> Result<Identity, HostUidError> {
        match self {
            Self::Own { uid, gid } => Ok(Identity {
                ids: Ids { host_uid: *uid, host_gid: *gid, by_root: false },
                id_in_nursery: SANDBOX_ID,
                _uid: None,
            }),
            Self::Range(uids) => {
                let taken = uids.take()?;
                let uid = taken.uid();
                let ids = Ids { host_uid: uid, host_gid: uid, by_root: true };
                Ok(Identity { ids, id_in_nursery: uid, _uid: Some(taken) })
            }
        }
    }

    /// For the janitor, who keeps them taken should this process be killed.
    pub(crate) fn uids(&self) -> Option<&HostUids> {
        match self {
            Self::Own { .. } => None,
            Self::Range(uids) => Some(uids),
        }
    }
}

impl Identity {
    /// Programs open `/dev/stdout` and `/dev/stderr` by name, for which the pipes must be their own.
    pub(crate) fn own_pipes(&self, stdio: &Stdio<OwnedFd>) -> io::Result<()> {
        if self.ids.by_root {
            for pipe in [&stdio.stdin, &stdio.stdout, &stdio.stderr] {
                std::os::unix::fs::fchown(pipe, Some(self.ids.host_uid), Some(self.ids.host_gid))?;
            }
        }
        Ok(())
    }

    pub(crate) fn mode(&self) -> &'static str {
        if self.ids.by_root { "root" } else { "rootless" }
    }
}
