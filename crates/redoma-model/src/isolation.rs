//! The layers of the jail by name: what a result reports, what `doctor` checks, what an operator may waive.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One independent wall around the code. DESIGN §4 says what each does; `docs/threat-model.md` what it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    UserNamespace,
    PidNamespace,
    IpcNamespace,
    UtsNamespace,
    NetNamespace,
    MountNamespace,
    CgroupNamespace,
    TimeNamespace,
    /// Memory, pids and CPU limits that count the whole process tree.
    Cgroup,
    /// The swap part of the memory limit; only needed where the host has swap.
    Swap,
    /// Throttled reads from the disk under the runtime, where a limit asks for it and the device can be throttled. Writes
    /// never reach a disk: the workspace is in memory.
    Io,
    Rlimits,
    Capabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
    Environment,
}

impl Layer {
    pub const ALL: [Self; 17] = [
        Self::UserNamespace,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::NetNamespace,
        Self::MountNamespace,
        Self::CgroupNamespace,
        Self::TimeNamespace,
        Self::Cgroup,
        Self::Swap,
        Self::Io,
        Self::Rlimits,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Seccomp,
        Self::Environment,
    ];

    /// Whether a run can be made at all without it, should the operator allow that. The others are what the jail is
    /// built from: without them there is nothing to run in.
    pub const fn can_be_waived(self) -> bool {
        matches!(
            self,
            Self::CgroupNamespace
                | Self::TimeNamespace
                | Self::Cgroup
                | Self::Swap
                | Self::Io
                | Self::Landlock
        )
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::UtsNamespace => "uts_namespace",
            Self::NetNamespace => "net_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::CgroupNamespace => "cgroup_namespace",
            Self::TimeNamespace => "time_namespace",
            Self::Cgroup => "cgroup",
            Self::Swap => "swap",
            Self::Io => "io",
            Self::Rlimits => "rlimits",
            Self::Capabilities => "capabilities",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Environment => "environment",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownLayer {
    #[error(
        "`{0}` is not a layer; the ones that can be waived are cgroup, cgroup_namespace, io, landlock, swap, time_namespace"
    )]
    NoSuchLayer(String),
    #[error("the layer `{0}` can't be waived: without it there is no sandbox to run in")]
    NotWaivable(Layer),
}

impl FromStr for Layer {
    type Err = UnknownLayer;

    fn from_str(text: &str) -> Result<Self, UnknownLayer> {
        Self::ALL
            .into_iter()
            .find(|layer| layer.name() == text)
            .ok_or_else(|| UnknownLayer::NoSuchLayer(text.to_owned()))
    }
}

/// What stood around one run. On every result, so that nobody has to guess.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationReport {
    /// The engine that made the sandbox: `native` for the jail of this program.
    pub engine: String,
    /// `root`: a host uid of its own. `rootless`: the caller's uid, in a user namespace.
    pub mode: String,
    pub layers: Vec<Layer>,
    /// Layers that this host could not give and that the operator waived by name.
    pub missing: Vec<Layer>,
    /// 1 or 2; nothing where the cgroup layer is missing.
    pub cgroup_version: Option<u8>,
    pub landlock_abi: Option<u8>,
    /// The uid on the host behind the sandbox's uid 1000.
    pub host_uid: u32,
}

impl IsolationReport {
    /// Of what did not run.
    pub fn of_nothing() -> Self {
        Self {
            engine: "none".to_owned(),
            mode: "none".to_owned(),
            layers: Vec::new(),
            missing: Vec::new(),
            cgroup_version: None,
            landlock_abi: None,
            host_uid: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_reads_back_from_its_name_and_is_spelt_the_same_in_json() {
        for layer in Layer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
            assert_eq!(serde_json::to_string(&layer).unwrap(), format!("\"{layer}\""));
        }
    }
}
